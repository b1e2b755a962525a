"""The ready tasks as columns: the first task that meets a condition is found without a loop over
all tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any, TypeAlias

import numpy as np

from dagsim.systems.cluster.api import ClusterState, DemandClass, Run, TaskState

__all__ = ["AlikeTasks", "Backlog", "RankColumn", "by_order", "slowness"]


RankColumn: TypeAlias = Callable[["AlikeTasks", float], np.ndarray]
"""Ranks all tasks of a group at once: (tasks,) float64, smaller first."""


_SHORTEST_S = 1e-9
"""Seconds that a task of zero length counts as."""


def slowness(seconds: Any) -> Any:
    """1 / seconds, of a number or a column."""
    longer_s = np.maximum(seconds, _SHORTEST_S) if isinstance(seconds, np.ndarray) else max(seconds, _SHORTEST_S)
    return 1.0 / longer_s


class AlikeTasks:
    """Waiting tasks with equal demand, equal ratios of speed between types and equally many waiting
    instances. At any moment they all go to the same type and need the same resources there.
    """

    def __init__(self, task: TaskState) -> None:
        self.demand = task.demand
        self.waiting = task.waiting
        best_s = task.best_s or 1.0
        self.ratios = tuple([seconds / best_s if task.best_s else float(seconds == inf) for seconds in task.seconds])
        self.types = sorted(task.demand.types, key=task.seconds.__getitem__)
        """The types that may run them, fastest first."""
        self.tasks: list[TaskState] = []
        self._columns = np.zeros((4 + len(task.seconds), 8))

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def best_s(self) -> np.ndarray:
        """(tasks,) float64: seconds on the fastest type."""
        return self._columns[0, : len(self.tasks)]

    @property
    def order(self) -> np.ndarray:
        """(tasks,) float64: order of arrival."""
        return self._columns[1, : len(self.tasks)]

    @property
    def ready_s(self) -> np.ndarray:
        """(tasks,) float64: when each became ready."""
        return self._columns[2, : len(self.tasks)]

    @property
    def per_second(self) -> np.ndarray:
        """(tasks,) float64: 1 / seconds on the fastest type."""
        return self._columns[3, : len(self.tasks)]

    def ends_s(self, now: float, type_: int) -> np.ndarray:
        """(tasks,) float64: when each would end if it started now on a GPU type."""
        ends_s: np.ndarray = now + self._columns[4 + type_, : len(self.tasks)]
        return ends_s

    def room(self, machines: ClusterState) -> int | None:
        """The fastest type with room for one of the tasks now, if any."""
        return next((type_ for type_ in self.types if machines.fits_on(self.demand, type_)), None)

    def first(
        self, rank: RankColumn, now: float, type_: int = 0, until_s: float = inf
    ) -> tuple[float, int, TaskState] | None:
        """Return the first task by ``(rank, order)`` that ends by ``until_s`` if it starts now on a
        GPU type.
        """
        ranks = rank(self, now)
        if until_s < inf:
            ranks = np.where(self.ends_s(now, type_) <= until_s, ranks, inf)
        place = int(ranks.argmin())
        least = float(ranks[place])
        if least == inf:
            return None
        if rank is not by_order:
            ranks = ranks == least
            if np.count_nonzero(ranks) > 1:
                equal = np.flatnonzero(ranks)
                place = int(equal[self.order[equal].argmin()])
        return least, self.tasks[place].order, self.tasks[place]

    def add(self, task: TaskState) -> None:
        """Append a task."""
        place = len(self.tasks)
        if place == self._columns.shape[1]:
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
        self._columns[:, place] = task.best_s, task.order, task.ready_s, slowness(task.best_s), *task.seconds
        self.tasks.append(task)

    def remove(self, place: int) -> TaskState | None:
        """Remove the task at ``place``; return the task that moves there, if any."""
        last = self.tasks.pop()
        if place == len(self.tasks):
            return None
        self.tasks[place] = last
        self._columns[:, place] = self._columns[:, len(self.tasks)]
        return last


def by_order(group: AlikeTasks, _: float) -> np.ndarray:
    """Rank tasks first come, first served."""
    return group.order


class Backlog:
    """An index of the ready tasks (``ClusterView.index``) in groups. O(1) per task added and per
    run that starts.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[DemandClass, tuple[float, ...], int], AlikeTasks] = {}
        self._place: dict[TaskState, tuple[AlikeTasks, int]] = {}
        self._demands: dict[DemandClass, None] = {}

    def push(self, task: TaskState) -> None:
        """Add a task that became ready."""
        best_s = task.best_s
        profile = tuple([round(seconds / best_s, 9) for seconds in task.seconds]) if best_s else ()
        key = (task.demand, profile, 0 if task.demand.gang else task.waiting)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = AlikeTasks(task)
            self._demands[task.demand] = None
        self._place[task] = group, len(group)
        group.add(task)

    def started(self, run: Run, now: float) -> None:
        """Note that instances of a task were started: remove it, or move it to another group."""
        task = run.task
        if task not in self._place:  # it had been started before there was an index
            return
        group, place = self._place.pop(task)
        moved = group.remove(place)
        if moved is not None:
            self._place[moved] = group, place
        if task.waiting:
            self.push(task)

    def groups(self) -> Iterator[AlikeTasks]:
        """The groups that are not empty."""
        return (group for group in self._groups.values() if group.tasks)

    def fits(self, machines: ClusterState) -> bool:
        """True if any group has room."""
        fits = machines.fits
        return any(fits(demand) for demand in self._demands)
