"""Service that each job has had: seconds, and GPU-seconds."""

from __future__ import annotations

from typing import NamedTuple

from dagsim.systems.cluster.api import Run

__all__ = ["Served", "Service"]


class Served(NamedTuple):
    """The service of a job; seconds of runs side by side add up, and set-up counts as service."""

    gpu_s: float = 0.0
    seconds: float = 0.0


class Service:
    """The service of every job in the system, ended runs and running ones; ``ClusterView.follow`` keeps it up to date.
    Cost: O(1) per run that starts or ends."""

    def __init__(self) -> None:
        self.now = 0.0
        """Until when running runs are counted; to be set at each decision."""
        self._had: dict[int, Served] = {}
        """Per job what its ended runs were."""
        self._runs: dict[int, dict[int, tuple[float, float]]] = {}
        """Per job its runs: GPUs and start."""
        self._ended: list[tuple[int, int]] = []
        """Run and job of each end since they were last taken."""

    def of(self, job: int) -> Served:
        """The service of the job numbered ``job`` until ``now``."""
        gpu_s, seconds = self._had.get(job, Served())
        for gpus, started_s in self._runs.get(job, {}).values():
            gpu_s += gpus * (self.now - started_s)
            seconds += self.now - started_s
        return Served(gpu_s, seconds)

    def started(self, run: Run, now: float) -> None:
        """Take in a run."""
        self._runs.setdefault(run.job.number, {})[run.id] = (run.gpus, run.started_s)

    def ended(self, run: Run, now: float) -> None:
        """Add what the run was to what its job has had."""
        number = run.job.number
        gpus, started_s = self._runs[number].pop(run.id)
        gpu_s, seconds = self._had.get(number, Served())
        self._had[number] = Served(gpu_s + gpus * (now - started_s), seconds + now - started_s)
        self._ended.append((run.id, number))

    def take_ended(self) -> dict[int, None]:
        """The jobs of which a run has ended since the last time, by its id."""
        jobs = dict.fromkeys([number for _, number in sorted(self._ended)])
        self._ended.clear()
        return jobs

    def forget(self, job: int) -> None:
        """The job has left."""
        self._had.pop(job, None)
        self._runs.pop(job, None)
