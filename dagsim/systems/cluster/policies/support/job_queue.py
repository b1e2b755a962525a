"""Ready tasks by job first, then within the job: an index for orders whose key belongs to the whole job and moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from heapq import heappop, heappush
from typing import TypeAlias

from dagsim.systems.cluster.api import DemandClass, JobState, Key, Run, TaskState

__all__ = ["Head", "JobKey", "JobQueue"]

JobKey: TypeAlias = Callable[[JobState], float]
"""Ranks a job, smaller first."""

_Task: TypeAlias = tuple[float, int, int, TaskState]
"""Key of the task, order, piece, task."""
_Entry: TypeAlias = tuple[float, float, int, int, int]
"""Key of the job, then of its first task as they were: key, order, piece; and the job's number."""

Head: TypeAlias = tuple[_Entry, TaskState]
"""A task, and before it what it sorts by."""


class JobQueue:
    """Ready tasks by ``(job_key, task_key, order)`` within each demand class; a job's key is asked for again when a
    task of it becomes ready, by ``rank_again`` after a run of it has ended, and by ``refresh``; never if it is
    ``fixed``.

    A heap of jobs by key and first task for each demand class, and a heap of tasks for each of its jobs. Cost: O(log n)
    per task that comes or goes, O(demand classes + log n) per job that is refreshed, whatever its width, O(demand
    classes) per question.
    """

    def __init__(self, job_key: JobKey, task_key: Key, *, fixed: bool = False) -> None:
        self.job_key = job_key
        self._tell_key = getattr(job_key, "ended", None)
        """A key that keeps what it goes by is told of ends, and of jobs to forget."""
        self._forget = getattr(job_key, "forget", None)
        self._task_key = task_key
        self._fixed = fixed
        self._tasks: dict[DemandClass, dict[int, list[_Task]]] = {}
        self._heaps: dict[DemandClass, list[_Entry]] = {}
        self._classes: dict[int, dict[DemandClass, None]] = {}
        """Per job the demand classes in which it may wait."""
        self._keys: dict[int, float] = {}
        self.pushed = 0
        """Counts the tasks that were taken in."""
        self._moved: dict[JobState, None] = {}
        """Jobs of which a run has ended and that are not ranked again yet."""

    def push(self, task: TaskState) -> None:
        """Take in a task that became ready."""
        self.pushed += 1
        self.refresh(task.job)
        number = task.job.number
        if number not in self._keys:
            self._keys[number] = self.job_key(task.job)
        tasks = self._tasks.setdefault(task.demand, {}).setdefault(number, [])
        self._classes.setdefault(number, {})[task.demand] = None
        entry = (self._task_key(task), task.order, task.piece, task)
        heappush(tasks, entry)
        if tasks[0] is entry:
            self._enter(task.demand, number)

    def ended(self, run: Run, now: float) -> None:
        """The key of the run's job may have moved; what follows from the end is yet to happen."""
        self._moved[run.job] = None
        if self._tell_key is not None:
            self._tell_key(run)

    def rank_again(self) -> None:
        """Rank the jobs of which a run has ended, and forget those that have left."""
        for job in self._moved:
            if job.tasks_left:
                self.refresh(job)
            else:
                self._keys.pop(job.number, None)
                if self._forget is not None:
                    self._forget(job)
        self._moved.clear()

    def refresh(self, job: JobState) -> bool:
        """The job's key may have moved. Returns whether it waits; a job that is ``fixed`` is not looked at."""
        number = job.number
        known = self._keys.get(number)
        classes = self._classes.get(number)
        if known is None or self._fixed or not classes:
            return False
        demands = [demand for demand in tuple(classes) if self._first(demand, number) is not None]
        if demands and (key := self.job_key(job)) != known:
            self._keys[number] = key
            for demand in demands:
                self._enter(demand, number)
        return bool(demands)

    def heads(self, fits: Callable[[DemandClass], bool]) -> list[TaskState]:
        """The first task of each demand class that ``fits``, first of all first."""
        first = [
            head
            for demand, heap in self._heaps.items()
            if heap and fits(demand) and (head := self.head(demand)) is not None
        ]
        first.sort()
        return [task for _, task in first]

    def head(self, demand: DemandClass) -> Head | None:
        """The first task of a demand class, with what it sorts by among those of others."""
        heap = self._heaps[demand]
        while heap:
            entry = heap[0]
            key, _, order, piece, number = entry
            task = self._first(demand, number)
            current = task is not None and self._keys[number] == key
            if task is not None and current and (task[1], task[2]) == (order, piece):
                return entry, task[3]
            heappop(heap)
            if current:  # its first task of then has been started
                self._enter(demand, number)
        return None

    def classes(self, job: int | None = None) -> Iterable[DemandClass]:
        """The demand classes in which the job waits, and perhaps some in which it did; or those in which any did."""
        return tuple(self._heaps) if job is None else tuple(self._classes.get(job, ()))

    def waiting(self) -> Set[int]:
        """The jobs that wait, and perhaps some that did."""
        return self._classes.keys()

    def _enter(self, demand: DemandClass, number: int) -> None:
        """Put the job with its first task among those of the class."""
        key, order, piece, _ = self._tasks[demand][number][0]
        heappush(self._heaps.setdefault(demand, []), (self._keys[number], key, order, piece, number))

    def _first(self, demand: DemandClass, number: int) -> _Task | None:
        """The job's first task of the class that waits."""
        tasks = self._tasks[demand].get(number)
        if tasks is None:
            return None
        while tasks and not tasks[0][3].waiting:
            heappop(tasks)
        if not tasks:
            del self._tasks[demand][number]
            self._leave(demand, number)
            return None
        return tasks[0]

    def _leave(self, demand: DemandClass, number: int) -> None:
        classes = self._classes[number]
        del classes[demand]
        if not classes:
            del self._classes[number]
