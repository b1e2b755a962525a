"""Ready tasks by job first, then within the job: an index for orders whose key belongs to the whole job and moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import TypeAlias

from dagsim.systems.cluster.api import DemandClass, JobState, Key, Run, TaskState

__all__ = ["JobKey", "JobQueue"]

JobKey: TypeAlias = Callable[[JobState], float]
"""Ranks a job, smaller first."""

_Entry: TypeAlias = tuple[float, float, int, int, TaskState]
"""Key of the job, key of the task, order, piece, task."""


class JobQueue:
    """Ready tasks by ``(job_key, task_key, order)`` within each demand class; a job's key is asked for again when a
    task of it becomes ready, by ``rank_again`` after a run of it has ended, and by ``refresh``.

    Cost: O(log n) per task that comes, O(log n) per waiting task of a job that is refreshed and has moved, O(demand
    classes) per question.
    """

    def __init__(self, job_key: JobKey, task_key: Key) -> None:
        self._job_key = job_key
        self._task_key = task_key
        self._heaps: dict[DemandClass, list[_Entry]] = {}
        self._keys: dict[int, float] = {}
        self._tasks: dict[int, dict[TaskState, None]] = {}
        self._moved: dict[JobState, None] = {}
        """Jobs of which a run has ended and that are not ranked again yet."""

    def push(self, task: TaskState) -> None:
        """Take in a task that became ready."""
        self.refresh(task.job)
        number = task.job.number
        if number not in self._keys:
            self._keys[number] = self._job_key(task.job)
        self._tasks.setdefault(number, {})[task] = None
        self._enter(task, self._keys[number])

    def ended(self, run: Run, now: float) -> None:
        """The key of the run's job may have moved; what follows from the end is yet to happen."""
        self._moved[run.job] = None

    def rank_again(self) -> None:
        """Rank the jobs of which a run has ended."""
        for job in self._moved:
            self.refresh(job)
        self._moved.clear()

    def refresh(self, job: JobState) -> None:
        """The job's key may have moved."""
        known = self._keys.get(job.number)
        if known is None:
            return
        waiting = [task for task in self._tasks[job.number] if task.waiting]
        if waiting and (key := self._job_key(job)) != known:
            self._keys[job.number] = key
            for task in waiting:
                self._enter(task, key)

    def heads(self) -> Iterator[TaskState]:
        """The first task of each demand class, first of all first."""
        first = []
        for heap in self._heaps.values():
            while heap and self._stale(heap[0]):
                self._forget(heappop(heap)[-1])
            if heap:
                first.append(heap[0])
        for entry in sorted(first):
            yield entry[-1]

    def _enter(self, task: TaskState, key: float) -> None:
        heap = self._heaps.setdefault(task.demand, [])
        heappush(heap, (key, self._task_key(task), task.order, task.piece, task))

    def _forget(self, task: TaskState) -> None:
        """Drop a task that is not waiting any more, and its job's key with the last of them."""
        number = task.job.number
        if not task.waiting and number in self._tasks:
            self._tasks[number].pop(task, None)
            if not self._tasks[number]:
                del self._tasks[number], self._keys[number]

    def _stale(self, entry: _Entry) -> bool:
        task = entry[-1]
        return not task.waiting or self._keys.get(task.job.number) != entry[0]
