"""Service that each job has had: seconds, and GPU-seconds."""

from __future__ import annotations

from typing import NamedTuple

from dagsim.systems.cluster.policies.support.job_queue import JobQueue
from dagsim.systems.cluster.view import ClusterView

__all__ = ["Served", "Service"]


class Served(NamedTuple):
    """The service of a job; seconds of runs side by side add up, and set-up counts as service."""

    gpu_s: float = 0.0
    seconds: float = 0.0


class Service:
    """The service of every job in the system, ended runs and running ones. Cost: O(1) per run, plus O(running) when
    something has ended."""

    def __init__(self) -> None:
        self.now = 0.0
        self._ended: dict[int, Served] = {}
        self._runs: dict[int, dict[int, tuple[float, float]]] = {}
        """Per job its runs: GPUs and start."""
        self._job: dict[int, int] = {}
        """The job of each run."""
        self._seen = -1
        self._released = -1

    def of(self, job: int) -> Served:
        """The service of the job numbered ``job`` until now."""
        gpu_s, seconds = self._ended.get(job, Served())
        for gpus, started_s in self._runs.get(job, {}).values():
            gpu_s += gpus * (self.now - started_s)
            seconds += self.now - started_s
        return Served(gpu_s, seconds)

    def look(self, view: ClusterView) -> dict[int, None]:
        """Bring it up to date; returns the jobs of which a run has ended."""
        self.now = view.now
        self.see_starts(view)
        jobs: dict[int, None] = {}
        if self._released != view.machines.released:
            self._released = view.machines.released
            for run_id in sorted(self._job.keys() - view.running.keys()):
                jobs[self._job[run_id]] = None
                self.end(run_id)
        return jobs

    def rank_again(self, view: ClusterView, queue: JobQueue) -> None:
        """Bring it up to date and have ``queue`` rank the jobs again of which a run has ended."""
        for number in self.look(view):
            if number in view.jobs:
                queue.refresh(view.jobs[number])
            else:
                self.forget(number)

    def see_starts(self, view: ClusterView) -> None:
        """Note what has started; to be called after every start, as a run may end before the next decision."""
        last = self._seen
        for run in view.runs_after(last):
            self._seen = max(self._seen, run.id)
            number = run.job.number
            self._job[run.id] = number
            self._runs.setdefault(number, {})[run.id] = (run.gpus, run.started_s)

    def end(self, run: int) -> None:
        """The run ends now."""
        number = self._job.pop(run)
        gpus, started_s = self._runs[number].pop(run)
        gpu_s, seconds = self._ended.get(number, Served())
        self._ended[number] = Served(gpu_s + gpus * (self.now - started_s), seconds + self.now - started_s)

    def forget(self, job: int) -> None:
        """The job has left."""
        self._ended.pop(job, None)
        self._runs.pop(job, None)
