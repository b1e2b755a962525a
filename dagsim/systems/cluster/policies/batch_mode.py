"""Batch-mode mapping policies. They assign ready tasks to GPU types one by one before any of them
starts.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf
from typing import Literal, NamedTuple, TypeAlias

from dagsim.model import Decision, Start
from dagsim.systems.cluster.api import ClusterView, DemandClass, TaskState
from dagsim.systems.cluster.policies.formulas import AHEAD
from dagsim.systems.cluster.policies.gpu_amounts import free_times
from dagsim.systems.cluster.policies.orders import width
from dagsim.systems.cluster.policies.placement import PlacementRule, placing

Rule: TypeAlias = Literal["min-min", "max-min", "sufferage"]


class BatchMode:
    """Map ready tasks one by one to GPU types. For each task, the policy computes the earliest time
    at which the task could complete on any type. The next task is the one for which this time is
    smallest (``min-min``), the one for which it is largest (``max-min``), or the one that would
    complete the most later on its second best type than on its best type (``sufferage``). A mapped
    task starts if it fits now on the type where it completes first. Otherwise, it waits for that
    type, and the GPUs that it needs there count as busy for its duration.

    Tasks with the same demand and the same speed ratios form a group. Only the shortest and the
    longest task in a group can be next. The queue of a GPU type consists of the times at which its
    GPUs are expected to become free. After 24 mapped tasks, the rest of the queue is left for the
    next decision. The policy uses estimates and never preempts. The cost is O(24 x groups x types)
    per decision.
    """

    def __init__(self, rule: Rule, placement: str | PlacementRule = "best-fit") -> None:
        self.rule = rule
        self.placement = placing(placement)
        self._place = self.placement.place

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        groups = view.index(self, _Groups)
        if not any(view.fits(task) for task in groups.heads()):
            return
        lanes = free_times(view)
        passed: set[TaskState] = set()
        for _ in range(AHEAD):
            best: _Choice | None = None
            for task in groups.heads(passed):
                choice = self._choice(view, task, lanes)
                if choice is not None and (best is None or choice.key < best.key):
                    best = choice
            if best is None:
                break
            task = best.task
            placement = self._place(view, task, best.type) if view.machines.fits_on(task.demand, best.type) else None
            if placement is not None:
                yield Start(task, placement)
                return
            passed.add(task)
            _take(lanes[best.type], _lanes_of(task), best.completion_s)
        # Nothing was mapped, so the tasks wait for as long as anything is running.
        for task in sorted(groups.heads()):
            if not view.running and (placement := self._place(view, task)) is not None:
                yield Start(task, placement)
                return

    def _choice(self, view: ClusterView, task: TaskState, lanes: list[list[float]]) -> _Choice | None:
        completions = sorted(
            (_free_at(view, lanes[type_], _lanes_of(task)) + task.seconds[type_], type_) for type_ in task.demand.types
        )
        if not completions or completions[0][0] == inf:
            return None
        first, type_ = completions[0]
        second = completions[1][0] if len(completions) > 1 else first
        match self.rule:
            case "min-min":
                key = first
            case "max-min":
                key = -first
            case "sufferage":
                key = first - second
        return _Choice((key, task.order, task.piece), task, type_, first)


class _Choice(NamedTuple):
    key: tuple[float, int, int]
    task: TaskState
    type: int
    completion_s: float


_Heap: TypeAlias = list[tuple[float, int, int, TaskState]]


class _Groups:
    """Ready tasks in groups with equal demands and equal speed ratios. Each group has a heap with
    the shortest task first and a heap with the longest first.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[DemandClass, tuple[float, ...]], tuple[_Heap, _Heap]] = {}

    def push(self, task: TaskState) -> None:
        best_s = task.best_s
        profile = tuple([round(seconds / best_s, 6) for seconds in task.seconds]) if best_s else ()
        short, long = self._groups.setdefault((task.demand, profile), ([], []))
        heappush(short, (best_s, task.order, task.piece, task))
        heappush(long, (-best_s, task.order, task.piece, task))

    def heads(self, passed: set[TaskState] | None = None) -> Iterator[TaskState]:
        """Yield the shortest and the longest task in each group, leaving out the few tasks in ``passed``."""
        for heaps in self._groups.values():
            first: TaskState | None = None
            for heap in heaps:
                while heap and not heap[0][3].waiting:
                    heappop(heap)
                task = _first(heap, passed) if passed else heap[0][3] if heap else None
                if task is not None and task is not first:
                    first = task
                    yield task


def _first(heap: _Heap, passed: set[TaskState]) -> TaskState | None:
    """Return the first task in the heap that is waiting and is not in ``passed``, or None if there
    is none. The entries of the heap are visited in increasing order.
    """
    if not heap:
        return None
    edge = [(heap[0], 0)]
    while edge:
        entry, place = heappop(edge)
        task = entry[3]
        if task.waiting and task not in passed:
            return task
        for child in (2 * place + 1, 2 * place + 2):
            if child < len(heap):
                heappush(edge, (heap[child], child))
    return None


def _lanes_of(task: TaskState) -> int:
    return max(round(width(task)), 1) if task.demand.demand.gpus else 0


def _free_at(view: ClusterView, lanes: list[float], width: int) -> float:
    """Return the time at which ``width`` GPUs of the type of ``lanes`` are expected to be free."""
    if not width:
        return view.now
    return lanes[width - 1] if width <= len(lanes) else inf


def _take(lanes: list[float], width: int, until: float) -> None:
    """Mark the ``width`` GPUs that become free first as busy until the time ``until``."""
    del lanes[:width]
    for _ in range(width):
        insort(lanes, until)


def min_min(placement: str | PlacementRule = "best-fit") -> BatchMode:
    """Min-Min (Ibarra and Kim 1977; Maheswaran et al. 1999): map the ready task that can complete
    first. The policy uses estimates. Its time complexity is that of ``BatchMode``.
    """
    return BatchMode("min-min", placement)


def max_min(placement: str | PlacementRule = "best-fit") -> BatchMode:
    """Max-Min (Ibarra and Kim 1977; Maheswaran et al. 1999): first map the ready task whose
    earliest completion time is latest, so that long tasks do not come last. The policy uses
    estimates. Its time complexity is that of ``BatchMode``.
    """
    return BatchMode("max-min", placement)


def sufferage(placement: str | PlacementRule = "best-fit") -> BatchMode:
    """Sufferage (Maheswaran et al. 1999): first map the ready task that would lose most if it had
    to use its second best type. The policy uses estimates. Its time complexity is that of
    ``BatchMode``.
    """
    return BatchMode("sufferage", placement)
