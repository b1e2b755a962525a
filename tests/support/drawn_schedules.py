"""Small schedules to draw: fixtures for the plots and for the lanes that they show."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.written_schedules import ScheduleWriter

from dagsim.model import Cluster, Kind
from dagsim.model.log import Schedule

RunOf = tuple[float, float, int, int, float]
"""Start, end, node, GPU mask and GPUs held of a run; each is a job that arrives at its start."""

EIGHT = Cluster.of({"A100-40": 4, "T4": 4}, per_node=4)
RUNS: list[RunOf] = [(0.0, 100.0, 0, 0b0011, 2.0), (10.0, 40.0, 0, 0b1000, 1.0), (50.0, 400.0, 1, 0b0101, 2.0)]
"""Three runs on EIGHT."""


@pytest.fixture(scope="session")
def schedule_of() -> Callable[..., Schedule]:
    return _schedule_of


@pytest.fixture(scope="session")
def shared_gpus() -> Callable[[int], Schedule]:
    return _shared_gpus


def _schedule_of(cluster: Cluster, runs: list[RunOf], outcome: Kind = Kind.FINISHED, extra=()) -> Schedule:
    writer = ScheduleWriter(cluster)
    writer.rows.extend(extra)
    for number, (start_s, end_s, node, mask, held) in enumerate(sorted(runs)):
        seconds = end_s - start_s
        job = writer.job(
            start_s,
            ideal_s=seconds,
            ideal_gpu_s=seconds * held,
            completed_s=end_s if outcome == Kind.FINISHED else None,
            priority=float(number % 2),
            tenant=f"team{number % 3}",
            gpus=held,
            tasks=("train",),
        )
        gpus = [gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1]
        writer.run(job, start_s, end_s, {node: gpus}, held=held, outcome=outcome)
    return writer.schedule()


def _shared_gpus(seed: int) -> Schedule:
    """Runs of a quarter of a GPU, as many as fit, on two nodes of two GPUs."""
    rng = np.random.default_rng(seed)
    runs: list[RunOf] = []
    for _ in range(60):
        start_s, length_s = float(rng.integers(0, 40)), float(rng.integers(1, 12))
        node, gpu = int(rng.integers(2)), int(rng.integers(2))
        beside = [run for run in runs if run[2] == node and run[3] == 1 << gpu and run[1] > start_s]
        if sum(run[0] < start_s + length_s for run in beside) < 4:
            runs.append((start_s, start_s + length_s, node, 1 << gpu, 0.25))
    return _schedule_of(Cluster.of({"T4": 4}, per_node=2), runs)
