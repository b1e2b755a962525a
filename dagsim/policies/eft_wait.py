"""Earliest finish time with waiting: the strong baseline on heterogeneous clusters."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf
from typing import TypeAlias

from dagsim.model import Decision, Start
from dagsim.policies.placement import Placing, placing
from dagsim.sim.frontier import ActiveTask
from dagsim.sim.machines import DemandClass, Machines
from dagsim.sim.policy import View

__all__ = ["EftWait"]


class EftWait:
    """Shortest pair of ready task and GPU type first, but a pair is passed over if waiting for the task's fastest type
    would finish it sooner: if ``eta + p_best < theta * p_here``. Waits if all are passed over.

    ``eta`` is when enough GPUs of the fastest type are expected to be free, by the estimates of what runs there.
    ``theta`` below 1 waits less readily. On one GPU type it is SJF. Clairvoyant, not preemptive. O(speed profiles x
    types) per decision plus O(GPUs asked) per ``eta``; a speed profile is a set of tasks with the same ratios between
    types. The rule is TetriSched's plan-ahead (Tumanov et al., EuroSys 2016) reduced to one alternative.
    """

    def __init__(self, theta: float = 1.0, placement: str | Placing = "best-fit") -> None:
        self.theta = theta
        self.placement = placing(placement)
        self._ends: list[list[tuple[float, int, float]]] = []
        """Per type ``(end, run, GPUs)`` of the runs there, soonest first."""
        self._seen = -1

    def decide(self, view: View) -> Iterator[Decision]:
        profiles = view.index(EftWait, lambda: _Profiles(view.machines))
        while True:
            self._look_at_new_runs(view)
            pair = profiles.first(self, view)
            if pair is None:
                return
            task, type_ = pair
            placement = self.placement.place(view, task, type_)
            if placement is None:
                return
            yield Start(task, placement)

    def worth_waiting(self, view: View, task: ActiveTask, type_: int) -> bool:
        """Whether waiting for the task's fastest type would finish it sooner than starting on ``type_`` now."""
        best_s, here_s = task.best_s, task.seconds[type_]
        if best_s >= self.theta * here_s:
            return False
        best = task.seconds.index(best_s)
        return self.eta_s(view, task.demand, best) + best_s < self.theta * here_s

    def eta_s(self, view: View, demand: DemandClass, type_: int) -> float:
        """Seconds until ``type_`` is expected to have the GPUs that ``demand`` asks for (whatever their nodes)."""
        machines = view.machines
        if machines.fits_on(demand, type_):
            return 0.0
        missing = demand.demand.gpus * (demand.gang or 1) - machines.idle_gpus(type_)
        running = view.running
        ends = self._ends[type_]
        if sum(1 for end in ends if end[1] not in running) * 2 > len(ends):
            ends[:] = [end for end in ends if end[1] in running]
        for end_s, run, gpus in ends:
            if run in running:
                missing -= gpus
                if missing <= 0:
                    return max(end_s - view.now, 0.0)
        return inf

    def _look_at_new_runs(self, view: View) -> None:
        while len(self._ends) < len(view.gpu_types):
            self._ends.append([])
        last = self._seen
        for run in view.runs_after(last):
            self._seen = max(self._seen, run.id)
            insort(self._ends[run.type], (run.estimated_end_s(view.now), run.id, run.gpus))


_Group: TypeAlias = tuple[DemandClass, int, tuple[float, ...]]


class _Profiles:
    """Ready tasks by time on a type, within demand class, type and speed profile. Inside such a group a longer task is
    passed over whenever a shorter one is, so that only the heads need looking at."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._groups: dict[_Group, list[tuple[float, int, ActiveTask]]] = {}

    def push(self, task: ActiveTask) -> None:
        best_s = task.best_s
        profile = tuple([round(s / best_s, 9) for s in task.seconds]) if best_s else ()
        for type_ in task.demand.types:
            heap = self._groups.setdefault((task.demand, type_, profile), [])
            heappush(heap, (task.seconds[type_], task.order, task))

    def first(self, policy: EftWait, view: View) -> tuple[ActiveTask, int] | None:
        """The shortest pair that fits and is not worth waiting for something better."""
        best: tuple[float, int, ActiveTask] | None = None
        on = -1
        fits_on = self._machines.fits_on
        for (demand, type_, _), heap in self._groups.items():
            while heap and not heap[0][2].waiting:
                heappop(heap)
            if not heap or (best is not None and heap[0] >= best) or not fits_on(demand, type_):
                continue
            if not policy.worth_waiting(view, heap[0][2], type_):
                best, on = heap[0], type_
        return None if best is None else (best[2], on)
