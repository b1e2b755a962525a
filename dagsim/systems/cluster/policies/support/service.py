"""Service that each job has had: seconds, and GPU-seconds."""

from __future__ import annotations

from array import array
from collections.abc import Set
from typing import NamedTuple

import numpy as np

from dagsim.systems.cluster.api import Run

__all__ = ["Served", "Service", "ServiceColumns"]


class Served(NamedTuple):
    """The service of a job; seconds of runs side by side add up, and set-up counts as service."""

    gpu_s: float = 0.0
    seconds: float = 0.0


_NOTHING = Served()
_NO_RUNS: dict[int, tuple[float, float]] = {}


class ServiceColumns(NamedTuple):
    """The runs under way, in no order, and the service that the job of each has had."""

    run: np.ndarray  # (runs,) int64
    order: np.ndarray  # (runs,) int64: of its task
    job: np.ndarray  # (runs,) int64
    gpu_s: np.ndarray  # (runs,) float64
    seconds: np.ndarray  # (runs,) float64
    gpus: np.ndarray  # (runs,) float64: what all runs of the job hold
    runs: np.ndarray  # (runs,) float64: how many the job has


_IDS = 3
"""Per run: its id, the order of its task, the number of its job."""
_AMOUNTS = 4
"""Per run: GPU-seconds and seconds of the ended runs of its job, its GPUs and its start."""


class Service:
    """The service of every job in the system, ended runs and running ones; ``ClusterView.follow`` keeps it up to date.
    Cost: O(1) per run that starts or ends, and per run under way in a pass of NumPy for ``columns``."""

    def __init__(self) -> None:
        self.now = 0.0
        """Until when running runs are counted; to be set at each decision."""
        self._had: dict[int, Served] = {}
        """Per job what its ended runs were."""
        self._runs: dict[int, dict[int, tuple[float, float]]] = {}
        """Per job that runs its runs: GPUs and start."""
        self._ended: list[tuple[int, int]] = []
        """Run and job of each end since they were last taken."""
        self._row: dict[int, int] = {}
        """The row of each run; the last one moves to where one is left."""
        self._ids, self._amounts = array("q"), array("d")
        """The rows, one after the other."""
        self._several: dict[int, None] = {}
        """Jobs with several runs."""

    def of(self, job: int) -> Served:
        """The service of the job numbered ``job`` until ``now``."""
        gpu_s, seconds = self._had.get(job, _NOTHING)
        for gpus, started_s in self._runs.get(job, _NO_RUNS).values():
            gpu_s += gpus * (self.now - started_s)
            seconds += self.now - started_s
        return Served(gpu_s, seconds)

    def columns(self) -> ServiceColumns:
        """The service of the jobs of all runs under way until ``now``, to the same bits as ``of``."""
        run, order, job = np.array(self._ids).reshape(-1, _IDS).T
        had_gpu_s, had_s, gpus, started_s = np.array(self._amounts).reshape(-1, _AMOUNTS).T
        ran_s = self.now - started_s
        gpu_s, seconds, runs = had_gpu_s + gpus * ran_s, had_s + ran_s, np.ones(len(run))
        for several in self._several:
            rows = [self._row[each] for each in self._runs[several]]
            gpu_s[rows], seconds[rows] = self.of(several)
            gpus[rows], runs[rows] = gpus[rows].sum(), len(rows)
        return ServiceColumns(run, order, job, gpu_s, seconds, gpus, runs)

    def running(self) -> Set[int]:
        """The jobs that run."""
        return self._runs.keys()

    def started(self, run: Run, now: float) -> None:
        """Take in a run."""
        task = run.task
        number, gpus = task.job.number, run.gpus
        runs = self._runs.setdefault(number, {})
        runs[run.id] = (gpus, run.started_s)
        if len(runs) > 1:
            self._several[number] = None
        if run.id not in self._row:
            self._row[run.id] = len(self._row)
            self._ids.extend((run.id, task.order, number))
            self._amounts.extend((*self._had.get(number, _NOTHING), gpus, run.started_s))

    def ended(self, run: Run, now: float) -> None:
        """Add what the run was to what its job has had."""
        number = run.job.number
        runs = self._runs[number]
        gpus, started_s = runs.pop(run.id)
        gpu_s, seconds = self._had.get(number, _NOTHING)
        had = self._had[number] = Served(gpu_s + gpus * (now - started_s), seconds + now - started_s)
        self._ended.append((run.id, number))
        self._leave(run.id)
        for other in runs:
            row = _AMOUNTS * self._row[other]
            self._amounts[row], self._amounts[row + 1] = had
        if len(runs) < 2:
            self._several.pop(number, None)
        if not runs:
            del self._runs[number]

    def take_ended(self) -> dict[int, None]:
        """The jobs of which a run has ended since the last time, by its id."""
        jobs = dict.fromkeys([number for _, number in sorted(self._ended)])
        self._ended.clear()
        return jobs

    def forget(self, job: int) -> None:
        """The job has left."""
        self._had.pop(job, None)

    def _leave(self, run: int) -> None:
        """Give the run's row to the run in the last one."""
        ids, amounts, row = self._ids, self._amounts, self._row.pop(run)
        last_ids, last_amounts = ids[-_IDS:], amounts[-_AMOUNTS:]
        del ids[-_IDS:], amounts[-_AMOUNTS:]
        if row < len(self._row):
            self._row[last_ids[0]] = row
            ids[_IDS * row : _IDS * (row + 1)] = last_ids
            amounts[_AMOUNTS * row : _AMOUNTS * (row + 1)] = last_amounts
