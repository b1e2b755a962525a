"""Placements that choose the GPU type: by comparative advantage."""

from __future__ import annotations

from math import inf, log

from dagsim.model import Placement
from dagsim.systems.cluster.api import ClusterView, TaskState
from dagsim.systems.cluster.policies.placement.nodes import by_speed

__all__ = ["ComparativeAdvantage"]


class ComparativeAdvantage:
    """The type with room on which the task loses least compared with what others lose there: the least logarithm of its
    slowdown against its fastest type, less the mean of that over all tasks that have been ready so far. There best fit.

    Where the order has chosen the type (sjf), it is best fit. O(types) (after Ricardo 1817).
    """

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        if type_ is not None:
            return view.fit(task, type_)
        mean = view.index(ComparativeAdvantage, lambda: _Losses(len(view.gpu_types))).mean
        for each in sorted(by_speed(task, None), key=lambda each: loss(task, each) - mean(each)):
            placement = view.fit(task, each)
            if placement is not None:
                return placement
        return None


class _Losses:
    """The mean loss on each type, over the tasks that may run there."""

    def __init__(self, types: int) -> None:
        self._sums = [0.0] * types
        self._counts = [0] * types

    def push(self, task: TaskState) -> None:
        for type_ in task.demand.types:
            self._sums[type_] += loss(task, type_)
            self._counts[type_] += 1

    def mean(self, type_: int) -> float:
        return self._sums[type_] / self._counts[type_] if self._counts[type_] else 0.0


def loss(task: TaskState, type_: int) -> float:
    """The logarithm of the task's slowdown on ``type_`` against its fastest type."""
    if task.seconds[type_] == inf:
        return 1e9  # finite, so that the means stay numbers
    return log(task.seconds[type_] / task.best_s) if task.best_s else 0.0
