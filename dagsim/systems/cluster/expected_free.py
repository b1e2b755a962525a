"""Times at which GPUs are expected to be free, by the estimates of the runs under way."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster.nodes import DemandClass

if TYPE_CHECKING:
    from dagsim.systems.cluster.run import Run
    from dagsim.systems.cluster.view import ClusterView

__all__ = ["NEVER_S", "ExpectedFree"]

NEVER_S = 1e7
"""Stands for an end that nobody knows: finite, so that networks can read it."""

End: TypeAlias = tuple[float, int, float]
"""Expected end, id and GPUs of a run. The end may lie in the past: the run takes longer than estimated."""


class ExpectedFree:
    """The runs under way on each GPU type by their expected ends, soonest first; times count from the start of the
    simulation, waits from now. An end is ``Run.estimated_end_s`` of the present.

    Cost: O(log running) per start and end, O(runs that do not compute yet) when the view hands it out, and O(runs that
    end first) per question.
    """

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._machines = view.machines
        self._ends: list[list[End]] = [[] for _ in view.gpu_types]
        self._of: dict[int, End] = {}
        """The entry of each run."""
        self._moving: dict[int, Run] = {}
        """Runs that do not compute yet: their expected ends may move as time goes by."""

    def started(self, run: Run, now: float) -> None:
        """Take in a run."""
        entry = self._of[run.id] = (run.estimated_end_s(now), run.id, run.gpus)
        insort(self._ends[run.type], entry)
        if run.computing_s is None:
            self._moving[run.id] = run

    def ended(self, run: Run, now: float) -> None:
        """Let go of a run."""
        self._forget(run)
        self._moving.pop(run.id, None)

    def refresh(self) -> None:
        """Estimate anew the ends of what did not compute yet."""
        if self._moving:
            moving, self._moving = self._moving, {}
            for run in moving.values():
                self._forget(run)
                self.started(run, self._view.now)

    def ends(self, type_: int) -> Sequence[End]:
        """End, run and GPUs of all that runs on the type, soonest first."""
        return self._ends[type_]

    def eta_s(self, demand: DemandClass, type_: int) -> float:
        """Seconds until the type is expected to have room for ``demand`` (whatever its nodes)."""
        if type_ not in demand.types:
            return NEVER_S
        if self._machines.fits_on(demand, type_):
            return 0.0
        return self.free_in_s(demand.demand.gpus * (demand.gang or 1), type_)

    def free_in_s(self, gpus: float, type_: int) -> float:
        """Seconds until ``gpus`` GPUs of the type are expected to be idle."""
        return self.freed_in_s(gpus - self._machines.idle_gpus(type_), type_)

    def freed_in_s(self, gpus: float, type_: int) -> float:
        """Seconds until ``gpus`` GPUs of the type are expected to have been given back; 0 for none."""
        if gpus <= 0:
            return 0.0
        for end_s, _, held in self._ends[type_]:
            gpus -= held
            if gpus <= 0:
                return max(end_s - self._view.now, 0.0)
        return NEVER_S

    def free_in_each_s(self, amounts: Sequence[float], idle: Sequence[int]) -> list[float]:
        """Seconds until so many GPUs of a type are expected to be idle, for each of the amounts and type after type;
        ``idle`` of each are now."""
        now = self._view.now
        waits: list[float] = []
        for ends, free in zip(self._ends, idle, strict=True):
            for gpus in amounts:
                missing = gpus - free
                if missing <= 0:
                    waits.append(0.0)
                    continue
                for end_s, _, held in ends:
                    missing -= held
                    if missing <= 0:
                        waits.append(end_s - now if end_s > now else 0.0)
                        break
                else:
                    waits.append(NEVER_S)
        return waits

    def free_within(self, wait_s: float, type_: int) -> float:
        """GPUs of the type that are expected to be idle in ``wait_s`` seconds if nothing starts."""
        until = self._view.now + wait_s
        ending = ordered_sum([gpus for end_s, _, gpus in self._ends[type_] if end_s <= until])
        return self._machines.idle_gpus(type_) + ending

    def shadow(self, gpus: float, type_: int) -> tuple[float, float]:
        """The time when ``gpus`` GPUs of the type are expected to be idle, and how many more are then; everything that
        ends at that time counts. ``(inf, 0)`` if they never are."""
        now = self._view.now
        missing = gpus - self._machines.idle_gpus(type_)
        shadow_s = now if missing <= 0 else inf
        for end_s, _, held in self._ends[type_]:
            if missing > 0:
                shadow_s = end_s if end_s > now else now
            elif end_s > shadow_s:
                break
            missing -= held
        return (shadow_s, -missing) if missing <= 0 else (inf, 0.0)

    def oldest_s(self, type_: int, count: int) -> list[float]:
        """Seconds until the ends of the ``count`` runs of the type that started first; 0 for what is missing."""
        now = self._view.now
        first = sorted([(id_, end_s) for end_s, id_, _ in self._ends[type_]])[:count]
        return [max(end_s - now, 0.0) for _, end_s in first] + [0.0] * (count - len(first))

    def times(self, type_: int) -> list[float]:
        """Per GPU of the type the time at which it is expected to be free, soonest first; a run that holds a part of a
        GPU counts as one that holds all of it."""
        now = self._view.now
        times = [now] * self._machines.idle_gpus(type_)
        for end_s, _, gpus in self._ends[type_]:
            if gpus:
                times += [end_s if end_s > now else now] * max(round(gpus), 1)
        return times

    def _forget(self, run: Run) -> None:
        ends = self._ends[run.type]
        del ends[bisect_left(ends, self._of.pop(run.id))]
