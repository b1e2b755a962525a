"""AlloX: who runs where, and after how many others, as one assignment problem."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice
from math import inf

import numpy as np

from dagsim.model import Decision
from dagsim.systems.cluster.api import ClusterView, TaskState
from dagsim.systems.cluster.policies.orders.static import width
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing
from dagsim.systems.cluster.policies.planning.batch_mode import free_times, start_those

__all__ = ["AlloX", "assign"]


class AlloX:
    """Minimises the sum of completion times of the ``window`` ready tasks: each is assigned to a lane (a GPU of
    some type, or as many as it asks for side by side) and a place from the end of that lane's queue; a task in place k
    from the end delays k completions by its seconds there, and waits until the lane is free. Those in front of lanes
    that are free now start. Solved anew whenever something has changed.

    ``window`` bounds who competes: a quarter are those who have waited longest, so that nobody starves, the others
    those with the least GPU time. Clairvoyant, not preemptive. Costly by definition: an assignment of window x (lanes x
    places), about 1 ms (Le et al., EuroSys 2020; Bruno, Coffman and Sethi 1974).
    """

    def __init__(self, window: int = 24, placement: str | PlacementRule = "best-fit") -> None:
        self.window = window
        self._place = placing(placement).place

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        if not any(view.fits(task) for task in view.ready):
            return
        oldest = islice(view.ready, self.window // 4)
        shortest = nsmallest(self.window, view.ready, key=_area)
        tasks = list(dict.fromkeys((*oldest, *shortest)))[: self.window]
        yield from start_those(view, self._first(view, tasks), self._place)

    def _first(self, view: ClusterView, tasks: list[TaskState]) -> Iterator[tuple[TaskState, int]]:
        """The tasks assigned to lanes that are free now, those in front first; those behind fill in where a wide one
        lacks room."""
        lanes = [
            (type_, max(time - view.now, 0.0))
            for type_, times in enumerate(free_times(view))
            for time in (times or [view.now])
        ]
        seconds = np.array([[task.seconds[type_] * _share(view, task, type_) for type_, _ in lanes] for task in tasks])
        places = max(-(-2 * len(tasks) // len(lanes)), 2)
        queues = assign(seconds, np.array([wait_s for _, wait_s in lanes]), places)
        free = [
            (place, number, lanes[lane][0])
            for lane, queue in enumerate(queues)
            if lanes[lane][1] == 0.0
            for place, number in enumerate(queue)
        ]
        for _, number, type_ in sorted(free):
            yield tasks[number], type_


def assign(seconds: np.ndarray, wait_s: np.ndarray, places: int) -> list[list[int]]:
    """Per lane its tasks in order, so that the sum of completion times is least.

    ``seconds`` (tasks, lanes) float64 with ``inf`` where a task may not run, ``wait_s`` (lanes,) the time until each
    lane is free; up to ``places`` tasks per lane, more where that is not enough for all."""
    from scipy.optimize import linear_sum_assignment

    count, lanes = seconds.shape
    places = max(places, -(-count // lanes))
    cost = np.concatenate([seconds * place + wait_s for place in range(1, places + 1)], axis=1)
    rows, columns = linear_sum_assignment(np.where(np.isfinite(cost), cost, 1e15))
    queues: list[list[tuple[int, int]]] = [[] for _ in range(lanes)]
    for task, column in zip(rows.tolist(), columns.tolist(), strict=True):
        if cost[task, column] < inf:
            place, lane = divmod(column, lanes)
            queues[lane].append((-place, task))
    return [[task for _, task in sorted(queue)] for queue in queues]


def _area(task: TaskState) -> float:
    return width(task) * task.best_s


def _share(view: ClusterView, task: TaskState, type_: int) -> float:
    """The time of the task in lanes: its GPUs, as each lane is one GPU."""
    return max(width(task), 1.0) if type_ in task.demand.types else inf
