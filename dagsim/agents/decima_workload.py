"""Which episodes Decima is trained and judged on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dagsim.errors import ConfigError
from dagsim.systems.spark import (
    ExecutorType,
    SparkJob,
    SparkKernel,
    parity_sequence,
    read_profiles,
    sequence,
    trace_jobs,
)
from dagsim.systems.spark import synthetic_profiles as made_up

__all__ = ["Workload"]


@dataclass(frozen=True, slots=True)
class Workload:
    """Which episodes are played. ``profiles`` is a file or folder of TPC-H profiles, ``trace`` any trace of DAG jobs,
    those of more than ``most_tasks`` tasks left out; jobs are drawn from them, or else from made-up queries. The first
    ``batch`` jobs arrive at once. ``executors`` of several speeds are a list of types, each with name, count and speed.
    """

    executors: int | tuple[ExecutorType, ...] = 50
    jobs: int = 200
    mean_gap_s: float = 25.0
    batch: int = 1
    parity: bool = False
    profiles: str | None = None
    trace: str | None = None
    most_tasks: int | None = None

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.trace is not None and (self.parity or self.profiles is not None):
            raise ConfigError("workload: a trace goes with neither profiles nor parity")
        if self.parity and (self.batch != 1 or not isinstance(self.executors, int)):
            raise ConfigError("workload: parity knows neither batches nor executors of several speeds")

    def pool(self) -> list[SparkJob]:
        """The jobs to draw from."""
        if self.trace is not None:
            return trace_jobs(Path(os.path.expandvars(self.trace)), most_tasks=self.most_tasks)
        return made_up() if self.profiles is None else read_profiles(Path(os.path.expandvars(self.profiles)))

    def simulation(
        self, pool: Sequence[SparkJob], seed: int, jobs: int | None = None, *, record: bool = False
    ) -> SparkKernel:
        """The episode of ``seed``, with the first ``jobs`` of its jobs; ``record`` keeps every launch."""
        count, gap_ms = self.jobs if jobs is None else jobs, self.mean_gap_s * 1000
        if self.parity:
            drawn = parity_sequence(pool, seed, count, mean_gap_ms=gap_ms)
            return SparkKernel(self.executors, drawn.jobs, parity=True, draws=drawn.draws, record=record, seed=seed)
        arriving = sequence(pool, seed, jobs=count, mean_gap_ms=gap_ms, batch=self.batch)
        return SparkKernel(self.executors, arriving, record=record, seed=seed)
