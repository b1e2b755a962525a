"""The ready tasks in the form that a network needs: in groups of similar tasks, with the constant
columns as packed rows."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from math import inf, log, log1p
from operator import add, sub
from struct import Struct
from typing import Any, TypeAlias

from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster.api import DemandClass, JobState, Run, TaskState
from dagsim.systems.cluster.policies.orders import width

STATIC = (
    "log_seconds", "log_best", "slowdown", "gpus", "log_area", "log_rank", "children", "job_tasks", "is_best_type",
)  # fmt: skip
"""Columns that stay the same while a task is ready."""

QUEUE = ("count", "shortest", "area")
"""Columns with the sums over each width class."""

WIDTHS = (1.0, 2.0, 4.0)
"""Upper bounds of the width classes, in GPUs that start together. The last class holds everything
wider."""

SCALE_S = 600.0
"""Duration of a typical task in seconds, whose logarithm is represented as 0."""
UNITS = 2.0**80
"""Sums are kept in whole units of 2**-80, so that adding and then removing a task leaves no
residue."""
_STATIC_ROW = Struct(f"4x{len(STATIC)}f")
_QUEUE_ROW = Struct(f"{len(QUEUE)}f")

_Profile: TypeAlias = tuple[DemandClass, tuple[float, ...]]
_Heap: TypeAlias = "list[tuple[float, int, int, ReadyTask]]"


class ReadyTask:
    """A ready task, and the values of it that do not change while it waits.

    Three fields have one value per type: ``seconds``, ``slowdown`` (the logarithm of the seconds
    divided by the seconds on the best type), and ``rows``, the float32 bytes of a 0 (the row does
    not represent waiting) and of the ``STATIC`` columns. Two fields are integers, so that their
    sums are exact: ``area``, the GPU-seconds on the best type, and ``slowdowns``.
    """

    __slots__ = (
        "_job_left", "_tasks_left", "area", "best_s", "best_type", "rows", "seconds", "slowdown", "slowdowns", "task",
        "wide", "width_class",
    )  # fmt: skip

    def __init__(self, task: TaskState, seconds: tuple[float, ...] | None = None) -> None:
        self.task = task
        self.seconds = seconds = task.seconds if seconds is None else seconds
        self.best_s = best_s = min(seconds) or 1e-9
        self.best_type = best = seconds.index(min(seconds))
        self.wide = wide = width(task)
        self.width_class = bisect_left(WIDTHS, wide)
        area = best_s * wide
        self.area = int(area * UNITS)
        self.slowdown = [0.0 if s == inf else log(max(s, 1e-9) / best_s) for s in seconds]
        self.slowdowns = [int(slower * UNITS) for slower in self.slowdown]
        log_best, log_area = log(best_s / SCALE_S), log(area / SCALE_S)
        log_rank = log(max(task.rank_s, 1e-9) / SCALE_S) / 3
        graph = task.job.job.graph
        children, tasks = len(graph.children[task.index]) / 2, len(graph.tasks) / 8
        third, eighth = log_best / 3, wide / 8
        self.rows = [
            _STATIC_ROW.pack(
                (log_best + slower) / 3,
                third,
                slower,
                eighth,
                (log_area + slower) / 3,
                log_rank,
                children,
                tasks,
                type_ == best,
            )
            for type_, slower in enumerate(self.slowdown)
        ]
        self._tasks_left = -1
        self._job_left = 0.0

    @property
    def demand(self) -> DemandClass:
        """The task's demand class."""
        return self.task.demand

    def heads(self) -> tuple[ReadyTask, ...]:
        """Return a group with only this task."""
        return (self,)

    def job_left(self) -> float:
        """Return how long the unfinished tasks of the job take on their fastest types, on a scaled
        logarithmic axis.
        """
        job: JobState = self.task.job
        if job.tasks_left != self._tasks_left:
            self._tasks_left = job.tasks_left
            self._job_left = log1p(ordered_sum([task.best_s for task in job.tasks if task.unfinished]) / SCALE_S) / 3
        return self._job_left


class Group:
    """Ready tasks with the same demand and the same ratios between their run times on the GPU
    types."""

    __slots__ = ("_last", "demand", "short")

    def __init__(self, demand: DemandClass) -> None:
        self.demand = demand
        self.short: _Heap = []
        """Tasks sorted by seconds on the fastest type; some may no longer be waiting."""
        self._last: _Heap = []

    def push(self, ready: ReadyTask) -> None:
        """Add a task to the group."""
        task = ready.task
        heappush(self.short, (ready.best_s, task.order, task.piece, ready))
        heappush(self._last, (task.rank_s, task.order, task.piece, ready))

    def heads(self) -> tuple[ReadyTask, ...]:
        """Return the shortest task. If another task has the shortest path to the end of its job,
        return that task as well.
        """
        short, last = self.short, self._last
        while short and not short[0][3].task.waiting:
            heappop(short)
        if not short:
            return ()
        while not last[0][3].task.waiting:
            heappop(last)
        first, other = short[0][3], last[0][3]
        return (first,) if first is other else (first, other)


class WidthClass:
    """Sums over the ready tasks that need similar numbers of GPUs, on a cluster with ``gpus`` GPUs."""

    __slots__ = ("_area", "_best_s", "_gpus", "packed")

    packed: bytes
    """The float32 bytes of the ``QUEUE`` columns."""

    def __init__(self, gpus: float) -> None:
        self._gpus = gpus
        self._best_s: list[float] = []
        """Seconds of each task on its best type, in ascending order."""
        self._area = 0
        """GPU-seconds on the best types, in whole units."""
        self._pack()

    def count(self, ready: ReadyTask) -> None:
        """Add a task to the sums."""
        insort(self._best_s, ready.best_s)
        self._area += ready.area
        self._pack()

    def uncount(self, ready: ReadyTask) -> None:
        """Remove a task from the sums."""
        del self._best_s[bisect_left(self._best_s, ready.best_s)]
        self._area -= ready.area
        self._pack()

    def _pack(self) -> None:
        best_s = self._best_s
        shortest = log1p(best_s[0] / 60) / 5 if best_s else -1.0
        self.packed = _QUEUE_ROW.pack(log1p(len(best_s)), shortest, log1p(self._area / UNITS / self._gpus / SCALE_S))


class Pool:
    """The groups of the ready tasks, in the order of their first tasks, and all sums that
    observations contain. This is an index (``ClusterView.index``). ``capacity`` is the number of
    GPUs per type, at least 1. ``seconds`` returns the seconds that a task is expected to take on
    each type. The default is the task's estimates.

    Adding or removing a task costs O(log tasks + types), plus the time to shift the tail of a
    sorted list.
    """

    def __init__(
        self, capacity: Sequence[float], seconds: Callable[[TaskState], tuple[float, ...]] | None = None
    ) -> None:
        self.capacity = capacity
        self.gpus = ordered_sum(capacity)
        self._seconds = seconds
        self.tasks: dict[TaskState, ReadyTask] = {}
        self.groups: list[Group] = []
        self.classes = [WidthClass(self.gpus) for _ in range(len(WIDTHS) + 1)]
        self.best_s: list[float] = []
        """Seconds of each task on its best type, in ascending order."""
        self.area = [0] * len(capacity)
        """GPU-seconds of the tasks for which each type is the fastest, in whole units."""
        self.slowdown = [0] * len(capacity)
        """Slowdowns of all tasks on each type, in whole units."""
        self.pushed = 0
        """Number of tasks that have become ready so far."""
        self.new: list[Run] = []
        """Runs that started since the last observation."""
        self._group_of: dict[_Profile, Group] = {}

    def arrange(self, like: Pool, classes: Mapping[Any, DemandClass]) -> None:
        """Put the groups of a fork's pool into the order of the original pool ``like``. ``classes`` are
        the fork's demand classes.
        """
        for demand, ratios in like._group_of:
            if (twin := classes.get(demand.key)) is not None:
                group = self._group_of.pop((twin, ratios), None)
                self._group_of[twin, ratios] = Group(twin) if group is None else group
        self.groups = list(self._group_of.values())

    def ready_task(self, task: TaskState) -> ReadyTask:
        """Return the values of a task, whether it waits or not."""
        return ReadyTask(task, None if self._seconds is None else self._seconds(task))

    def push(self, task: TaskState) -> None:
        """Add a task that became ready."""
        self.pushed += 1
        if task in self.tasks:  # the task is still listed: it was started and stopped again between two observations
            return
        ready = self.tasks[task] = self.ready_task(task)
        best_s = ready.best_s
        self.classes[ready.width_class].count(ready)
        insort(self.best_s, best_s)
        self.area[ready.best_type] += ready.area
        self.slowdown = list(map(add, self.slowdown, ready.slowdowns))
        profile = task.demand, tuple([_rounded(seconds / best_s) for seconds in ready.seconds])
        group = self._group_of.get(profile)
        if group is None:
            group = self._group_of[profile] = Group(task.demand)
            self.groups.append(group)
        group.push(ready)

    def started(self, run: Run, now: float) -> None:
        """Record a run that has just started."""
        self.new.append(run)

    def place_of(self, ready: ReadyTask) -> int:
        """Return how many ready tasks are shorter than this one, each on its best type."""
        return bisect_left(self.best_s, ready.best_s)

    def drop_gone(self, ready: Collection[TaskState]) -> None:
        """Remove the tasks that no longer wait. ``ready`` contains those that still do. This costs
        O(starts), or O(tasks) if a job was killed."""
        for run in self.new:
            if not run.task.waiting:
                self._drop(run.task)
        self.new.clear()
        # if a job is killed, its tasks leave the queue without a start
        if len(self.tasks) > len(ready):
            for task in [task for task in self.tasks if not task.waiting]:
                self._drop(task)

    def _drop(self, task: TaskState) -> None:
        ready = self.tasks.pop(task, None)
        if ready is None:
            return
        self.classes[ready.width_class].uncount(ready)
        del self.best_s[bisect_left(self.best_s, ready.best_s)]
        self.area[ready.best_type] -= ready.area
        self.slowdown = list(map(sub, self.slowdown, ready.slowdowns))


@lru_cache(4096)
def _rounded(ratio: float) -> float:
    """Round the ratio to six digits. Results are cached, because the tasks of a model have only a
    few different ratios, and a look-up is five times faster than rounding."""
    return round(ratio, 6)
