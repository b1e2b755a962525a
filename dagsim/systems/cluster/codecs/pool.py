"""The ready tasks as a network wants them: in groups that are alike, with what never changes kept as rows."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf, log
from typing import TypeAlias

import numpy as np

from dagsim.systems.cluster.api import DemandClass, Run, TaskState
from dagsim.systems.cluster.policies.orders.static import width

__all__ = ["STATIC", "WIDTHS", "Pool"]

STATIC = (
    "log_seconds",
    "log_best",
    "slowdown",
    "gpus",
    "log_area",
    "log_rank",
    "children",
    "job_tasks",
    "is_best_type",
)
"""Columns that hold as long as a task is ready."""

WIDTHS = (1.0, 2.0, 4.0)
"""Upper ends of the classes of GPUs that start together; the last class is everything wider."""

_COLUMNS = (
    "rows",
    "slowdown",
    "seconds",
    "ready_s",
    "arrival_s",
    "best_s",
    "area",
    "width",
    "best_type",
    "width_class",
    "alive",
)

_SCALE_S = 600.0
"""A typical task: its logarithm is 0."""

_Profile: TypeAlias = tuple[DemandClass, tuple[float, ...]]
_Heap: TypeAlias = list[tuple[float, int, int, TaskState]]


class Pool:
    """An index of the ready tasks (``ClusterView.index``). Tasks with the same demand and the same ratios of speed
    between types form a group; in each, the shortest task and the one nearest to the end of its job come first.

    Every task has a slot, its row in the arrays: ``rows[slot, type]`` float32 are the ``STATIC`` features, ``ready_s``,
    ``arrival_s``, ``best_s``, ``area`` (GPU-seconds on the best type), ``width`` float64, ``best_type``,
    ``width_class``, ``seconds[slot, type]`` and ``slowdown[slot, type]`` what their names say. ``alive`` marks those
    in use. Cost: O(log tasks + types) per task.
    """

    def __init__(self, types: int) -> None:
        self.types = types
        self.slot: dict[TaskState, int] = {}
        self.groups: dict[_Profile, tuple[_Heap, _Heap]] = {}
        self.pushed = 0
        """How many tasks have become ready so far."""
        self.new: list[Run] = []
        """Runs that started since the last observation, for the codec to clear."""
        self._free: list[int] = []
        self.rows = np.zeros((0, types, len(STATIC)), np.float32)
        self.slowdown, self.seconds = np.zeros((0, types)), np.zeros((0, types))
        self.ready_s, self.arrival_s, self.best_s, self.area, self.width = (np.zeros(0) for _ in range(5))
        self.best_type, self.width_class = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.alive = np.zeros(0, bool)
        self._grow(128)

    def push(self, task: TaskState) -> None:
        """Take in a task that became ready."""
        self.pushed += 1
        if not self._free:
            self._grow(len(self.alive))
        slot = self.slot[task] = self._free.pop()
        best_s, wide = task.best_s or 1e-9, width(task)
        graph = task.job.job.graph
        best = task.seconds.index(task.best_s)
        self.seconds[slot], self.width[slot] = task.seconds, wide
        log_best, log_area = log(best_s / _SCALE_S), log(best_s * wide / _SCALE_S)
        log_rank = log(max(task.rank_s, 1e-9) / _SCALE_S) / 3
        children, tasks = len(graph.children[task.index]) / 2, len(graph.tasks) / 8
        slowdowns = [0.0 if seconds == inf else log(max(seconds, 1e-9) / best_s) for seconds in task.seconds]
        self.slowdown[slot] = slowdowns
        self.rows[slot] = [
            (
                (log_best + slower) / 3,
                log_best / 3,
                slower,
                wide / 8,
                (log_area + slower) / 3,
                log_rank,
                children,
                tasks,
                type_ == best,
            )
            for type_, slower in enumerate(slowdowns)
        ]
        self.ready_s[slot], self.arrival_s[slot] = task.ready_s, task.job.job.arrival_s
        self.best_s[slot], self.area[slot], self.best_type[slot] = best_s, best_s * wide, best
        self.width_class[slot] = sum(wide > limit for limit in WIDTHS)
        self.alive[slot] = True
        profile = tuple([round(seconds / best_s, 6) for seconds in task.seconds])
        short, last = self.groups.setdefault((task.demand, profile), ([], []))
        heappush(short, (task.best_s, task.order, task.piece, task))
        heappush(last, (task.rank_s, task.order, task.piece, task))

    def started(self, run: Run, now: float) -> None:
        """Take in a run that has just started."""
        self.new.append(run)

    def drop(self, task: TaskState) -> None:
        """The task has been started for good: nothing of it waits."""
        slot = self.slot.pop(task, None)
        if slot is not None:
            self.alive[slot] = False
            self._free.append(slot)

    def heads(self, group: tuple[_Heap, _Heap]) -> tuple[TaskState, ...]:
        """The shortest task of the group and the one nearest to the end of its job, if they are two."""
        short, last = group
        while short and not short[0][3].waiting:
            heappop(short)
        if not short:
            return ()
        while not last[0][3].waiting:
            heappop(last)
        first, other = short[0][3], last[0][3]
        return (first,) if first is other else (first, other)

    def _grow(self, more: int) -> None:
        have = len(self.alive)
        for name in _COLUMNS:
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((more, *old.shape[1:]), old.dtype)]))
        self._free.extend(range(have + more - 1, have - 1, -1))
