"""Episodes played in this process, or in several with one torch thread each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import torch

from dagsim.agents.decima_net import DecimaNet
from dagsim.agents.decima_play import Steps, play
from dagsim.agents.decima_workload import Workload
from dagsim.systems.spark import Action, SparkJob

__all__ = ["Players"]


class Players:
    """Plays episodes of ``workload`` with ``workers`` processes (0: here). A context manager, which ends them."""

    def __init__(self, workload: Workload, pool: Sequence[SparkJob], workers: int = 0) -> None:
        self._workload = workload
        self._pool = pool
        self._workers = workers
        self._processes: ProcessPoolExecutor | None = None

    def __enter__(self) -> Players:
        if self._workers:
            self._processes = ProcessPoolExecutor(self._workers, get_context("spawn"), _begin, (self._workload,))
        return self

    def __exit__(self, *_: object) -> None:
        if self._processes is not None:
            self._processes.shutdown()

    def play(
        self, net: DecimaNet, seeds: Sequence[int], rng: np.random.Generator | None, jobs: int | None = None
    ) -> list[Steps]:
        """The episodes of ``seeds`` with their first ``jobs`` jobs (all), greedy without ``rng``."""
        if self._processes is None:
            return play(net, [self._workload.simulation(self._pool, seed, jobs) for seed in seeds], rng)
        weights = {name: tensor.numpy() for name, tensor in net.state_dict().items()}
        size = -(-len(seeds) // self._workers)
        parts = [list(seeds[at : at + size]) for at in range(0, len(seeds), size)]
        luck = [None if rng is None else int(rng.integers(2**63)) for _ in parts]
        same = (weights, net.form, jobs)
        found = [self._processes.submit(_play, part, each, *same) for part, each in zip(parts, luck, strict=True)]
        return [steps for part in found for steps in part.result()]


_here: tuple[Workload, list[SparkJob]]
"""What a worker process plays."""


def _begin(workload: Workload) -> None:
    global _here
    torch.set_num_threads(1)
    _here = workload, workload.pool()


def _play(
    seeds: list[int],
    luck: int | None,
    weights: Mapping[str, np.ndarray],
    form: tuple[int, int, Action],
    jobs: int | None,
) -> list[Steps]:
    workload, pool = _here
    net = DecimaNet(*form)
    net.load_state_dict({name: torch.from_numpy(values) for name, values in weights.items()})
    rng = None if luck is None else np.random.default_rng(luck)
    return play(net, [workload.simulation(pool, seed, jobs) for seed in seeds], rng)
