"""Earliest finish time with waiting: the strong baseline on heterogeneous clusters."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf
from typing import TypeAlias

from dagsim.errors import ConfigError
from dagsim.model import Decision, Start
from dagsim.systems.cluster.api import ClusterState, ClusterView, DemandClass, TaskState, TypedKey
from dagsim.systems.cluster.policies.orders.static import width
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing

__all__ = ["EftWait"]


class EftWait:
    """The first pair of task and GPU type with room that is not worth waiting past. A pair is passed over if waiting
    for the task's fastest type would finish it sooner: if ``eta + p_best < theta * p_here``. Waits if all are passed
    over.

    ``eta`` is when enough GPUs of the fastest type are expected to be free, by the estimates of what runs there.
    ``theta`` below 1 waits less readily. ``order`` is ``task`` (shortest here first), ``path`` (the shortest path to
    the end of the job, starting here, first) or ``work`` (the job with the least work left as the task became ready).
    On one GPU type, ``task`` is SJF. Clairvoyant, not preemptive. O(speed profiles x types) per decision plus O(GPUs
    asked) per ``eta``; a speed profile is a set of tasks with the same ratios between types. The rule is TetriSched's
    plan-ahead (Tumanov et al., EuroSys 2016) reduced to one alternative.

    Raises:
        ConfigError: Another order.
    """

    def __init__(self, theta: float = 1.0, order: str = "task", placement: str | PlacementRule = "best-fit") -> None:
        if order not in _ORDERS:
            raise ConfigError(f"eft-wait: order must be one of {', '.join(_ORDERS)}, got {order!r}")
        self.theta = theta
        self.order = order
        self.placement = placing(placement)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        profiles = view.index(self, lambda: _Profiles(view.machines, _ORDERS[self.order]))
        while True:
            pair = profiles.first(self, view)
            if pair is None:
                return
            task, type_ = pair
            placement = self.placement.place(view, task, type_)
            if placement is None:
                return
            yield Start(task, placement)

    def worth_waiting(
        self, view: ClusterView, task: TaskState, type_: int, known: dict[_Place, float] | None = None
    ) -> bool:
        """True if waiting for the fastest type would finish the task sooner than ``type_`` now. ``known`` keeps the
        etas of this instant."""
        best_s, threshold = task.best_s, self.theta * task.seconds[type_]
        if best_s >= threshold or best_s >= task.seconds[type_]:
            return False
        place = task.demand, task.seconds.index(best_s)
        eta_s = None if known is None else known.get(place)
        if eta_s is None:
            eta_s = self.eta_s(view, *place)
            if known is not None:
                known[place] = eta_s
        return eta_s + best_s < threshold

    def eta_s(self, view: ClusterView, demand: DemandClass, type_: int) -> float:
        """Seconds until ``type_`` is expected to have the GPUs that ``demand`` asks for (whatever their nodes)."""
        machines = view.machines
        if machines.fits_on(demand, type_):
            return 0.0
        missing = demand.demand.gpus * (demand.gang or 1) - machines.idle_gpus(type_)
        for end_s, _, gpus in view.expected_free.ends(type_):
            missing -= gpus
            if missing <= 0:
                return max(end_s - view.now, 0.0)
        return inf


def _here(task: TaskState, type_: int) -> float:
    return task.seconds[type_]


def _path(task: TaskState, type_: int) -> float:
    return task.rank_s - task.best_s + task.seconds[type_]


def _work(task: TaskState, type_: int) -> float:
    left = sum([width(other) * other.unfinished * other.best_s for other in task.job.tasks])
    return left + width(task) * (task.seconds[type_] - task.best_s)


_ORDERS: dict[str, TypedKey] = {"task": _here, "path": _path, "work": _work}
_Place: TypeAlias = tuple[DemandClass, int]
_Heap: TypeAlias = list[tuple[float, int, TaskState]]


class _Profiles:
    """Ready tasks within demand class, type and speed profile, in order and by time. Inside such a group a longer task
    is passed over whenever a shorter one is, so that only the first and the shortest need looking at."""

    def __init__(self, machines: ClusterState, key: TypedKey) -> None:
        self._machines = machines
        self._key = key
        self._groups: dict[_Place, dict[tuple[float, ...], tuple[_Heap, ...]]] = {}

    def push(self, task: TaskState) -> None:
        best_s, by_time = task.best_s, self._key is _here
        profile = tuple([round(s / best_s, 9) for s in task.seconds]) if best_s else ()
        for type_ in task.demand.types:
            groups = self._groups.setdefault((task.demand, type_), {})
            heaps = groups.get(profile)
            if heaps is None:
                heaps = groups[profile] = ([],) if by_time else ([], [])
            key = self._key(task, type_)
            heappush(heaps[0], (key, task.order, task))
            if not by_time:
                heappush(heaps[1], (task.seconds[type_], task.order, task))

    def first(self, policy: EftWait, view: ClusterView) -> tuple[TaskState, int] | None:
        """The first pair that fits and is not worth waiting for something better."""
        best: tuple[float, int, TaskState] | None = None
        on = -1
        fits_on = self._machines.fits_on
        etas: dict[_Place, float] = {}
        for (demand, type_), groups in self._groups.items():
            if not fits_on(demand, type_):
                continue
            for heaps in groups.values():
                for heap in heaps:
                    while heap and not heap[0][2].waiting:
                        heappop(heap)
                if not heaps[0] or (best is not None and heaps[0][0] >= best):
                    continue
                for heap in heaps:
                    task = heap[0][2]
                    if not policy.worth_waiting(view, task, type_, etas):
                        entry = heap[0] if heap is heaps[0] else (self._key(task, type_), task.order, task)
                        if best is None or entry < best:
                            best, on = entry, type_
                        break
        return None if best is None else (best[2], on)
