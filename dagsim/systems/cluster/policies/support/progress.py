"""Work and path left of each job, kept up to date at little cost. The cost does not depend on its width."""

from __future__ import annotations

import numpy as np

from dagsim.systems.cluster.api import JobState, Run, TaskState

__all__ = ["PathLeft", "WorkLeft"]

_WIDE = 64
"""Jobs of so many tasks have their sum kept; that of others is added up each time."""


class PathLeft:
    """The longest path from a task that is not done to the job's end, seconds. O(1) once a job is known."""

    def __init__(self) -> None:
        self._longest_last: dict[int, list[TaskState]] = {}

    def __call__(self, job: JobState) -> float:
        tasks = self._longest_last.get(job.number)
        if tasks is None:
            tasks = self._longest_last[job.number] = sorted(job.tasks, key=_rank)
        while not tasks[-1].unfinished:
            tasks.pop()
        return tasks[-1].rank_s

    def ended(self, run: Run) -> None:
        """Nothing to do: a task that is done is passed over when it comes last."""

    def forget(self, job: JobState) -> None:
        """The job has left."""
        self._longest_last.pop(job.number, None)


class WorkLeft:
    """The estimated GPU-seconds of a job's instances that are not done; what asks for no GPU counts as one.

    They are added up in the order of the graph. Of wide jobs the running totals are kept, so that an end costs one pass
    of NumPy over the tasks behind it.
    """

    def __init__(self) -> None:
        self._terms: dict[int, np.ndarray] = {}
        self._totals: dict[int, np.ndarray] = {}
        self._moved: dict[int, set[int]] = {}
        """Per wide job the tasks of which a run has ended since it was last asked for."""

    def __call__(self, job: JobState) -> float:
        if len(job.tasks) < _WIDE:
            return sum([_work(task) for task in job.tasks])
        number = job.number
        terms = self._terms.get(number)
        if terms is None:
            terms = self._terms[number] = np.array([_work(task) for task in job.tasks])
            self._totals[number] = np.add.accumulate(terms)
            self._moved[number] = set()
        totals, moved = self._totals[number], self._moved[number]
        if moved:
            for index in moved:
                terms[index] = _work(job.tasks[index])
            first = min(moved)
            moved.clear()
            behind = terms[first:].copy()
            if first:
                behind[0] += totals[first - 1]
            np.add.accumulate(behind, out=totals[first:])  # one after the other, as sum() does: the same bits
        return float(totals[-1])

    def ended(self, run: Run) -> None:
        """A run of a task has ended, which may be done now."""
        moved = self._moved.get(run.job.number)
        if moved is not None:
            moved.add(run.task.index)

    def forget(self, job: JobState) -> None:
        """The job has left."""
        for known in (self._terms, self._totals, self._moved):
            known.pop(job.number, None)


def _rank(task: TaskState) -> float:
    return task.rank_s


def _work(task: TaskState) -> float:
    return task.best_s * task.unfinished * (task.task.gpus or 1.0)
