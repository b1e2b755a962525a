"""An index of the ready tasks, for policies that choose among all waiting tasks at once."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from dagsim.systems.cluster.api import ClusterState, ClusterView, Queue, Run, TaskState
from dagsim.systems.cluster.policies.orders import by_rank


class WaitingTasks:
    """The ready tasks that need GPUs, and those that do not. A preempted task can have several
    waiting pieces. The keys of tasks are ``TaskState.order``.
    """

    def __init__(self, machines: ClusterState) -> None:
        self._tasks: dict[int, list[TaskState]] = {}
        self._sorted: list[int] = []
        """Negated keys of these tasks in rising order, so that the oldest, which leave first, are
        at the end.
        """
        self.without_gpus = Queue(by_rank, machines)

    def push(self, task: TaskState) -> None:
        if not task.demand.demand.gpus:
            self.without_gpus.push(task)
            return
        pieces = self._tasks.get(task.order)
        if pieces is None:
            self._tasks[task.order] = [task]
            insort(self._sorted, -task.order)
        else:
            pieces.append(task)

    def started(self, run: Run, now: float) -> None:
        task, key = run.task, run.task.order
        pieces = self._tasks.get(key)
        if pieces is None or task.waiting or task not in pieces:
            return
        pieces.remove(task)
        if not pieces:
            self._drop(key)

    def get(self, key: int) -> TaskState | None:
        """Return a waiting piece of the task, or None if it has none."""
        return next(iter(self.pieces(key)), None)

    def pieces(self, key: int) -> list[TaskState]:
        """Return all waiting pieces of the task. Pieces of a killed job no longer wait."""
        return [piece for piece in self._tasks.get(key, ()) if piece.waiting]

    def oldest(self, count: int = 0) -> list[TaskState]:
        """Return the first ``count`` tasks by arrival (all tasks if ``count`` is 0), with one piece
        for each task.
        """
        tasks = []
        for key in [-key for key in reversed(self._sorted[-count:])]:
            if pieces := self.pieces(key):
                tasks.append(pieces[0])
            else:
                self._drop(key)
        return self.oldest(count) if count and len(tasks) < min(count, len(self._sorted)) else tasks

    def first_fit(self, view: ClusterView) -> TaskState | None:
        """Return the oldest task that fits now, or None if there is none."""
        return next((task for task in self.oldest() if view.fits(task)), None)

    def _drop(self, key: int) -> None:
        del self._tasks[key], self._sorted[bisect_left(self._sorted, -key)]

    def fitting(self, keys: Iterable[int], machines: ClusterState) -> set[int]:
        """Return those ``keys`` whose tasks have a waiting piece that would fit."""
        get, fits = self._tasks.get, machines.fits
        return {key for key in keys if (pieces := get(key)) is not None and fits(pieces[0].demand)}
