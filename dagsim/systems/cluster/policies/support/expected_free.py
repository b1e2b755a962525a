"""Times at which GPUs are expected to be free, by the estimates of what runs."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from math import inf

from dagsim.systems.cluster.nodes import DemandClass
from dagsim.systems.cluster.run import Run
from dagsim.systems.cluster.view import ClusterView

__all__ = ["NEVER_S", "Outlook"]

NEVER_S = 1e7
"""Stands for an end that nobody knows: finite, so that networks can read it."""


class Outlook:
    """Expected ends of the runs on each GPU type, soonest first. Cost: O(log running) per run, O(GPUs asked) per
    question."""

    def __init__(self, types: int) -> None:
        self._ends: list[list[tuple[float, int, float]]] = [[] for _ in range(types)]
        """Per type ``(end, run, GPUs)``; runs that are over are dropped now and then."""
        self._seen = -1

    def look(self, view: ClusterView) -> list[int]:
        """Take in the runs started since the last look; returns their ids."""
        new, now = [], view.now
        for run in view.runs_after(self._seen):
            insort(self._ends[run.type], (run.estimated_end_s(now), run.id, run.gpus))
            new.append(run.id)
        if new:
            self._seen = new[0]
            running = view.running
            for type_, ends in enumerate(self._ends):
                if len(ends) > 16 and sum(1 for end in ends if end[1] in running) * 2 < len(ends):
                    self._ends[type_] = [end for end in ends if end[1] in running]
        return new

    def ends(self, view: ClusterView, type_: int) -> Iterator[tuple[float, Run]]:
        """The runs on the type with their expected ends, soonest first."""
        running, now = view.running, view.now
        for end_s, id_, _ in self._ends[type_]:
            run = running.get(id_)
            if run is not None:
                yield max(end_s, now), run

    def eta_s(self, view: ClusterView, demand: DemandClass, type_: int) -> float:
        """Seconds until the type is expected to have room for ``demand`` (whatever its nodes)."""
        if type_ not in demand.types:
            return NEVER_S
        if view.machines.fits_on(demand, type_):
            return 0.0
        return self.free_in_s(view, demand.demand.gpus * (demand.gang or 1), type_)

    def free_in_s(self, view: ClusterView, gpus: float, type_: int) -> float:
        """Seconds until ``gpus`` GPUs of the type are expected to be idle."""
        missing = gpus - view.machines.idle_gpus(type_)
        if missing <= 0:
            return 0.0
        running = view.running
        for end_s, run, held in self._ends[type_]:
            if run in running:
                missing -= held
                if missing <= 0:
                    return max(end_s - view.now, 0.0)
        return NEVER_S

    def shadow(self, view: ClusterView, gpus: float, type_: int) -> tuple[float, float]:
        """The time when ``gpus`` GPUs of the type are expected to be idle, and how many more are then; everything that
        ends at that time counts."""
        running, now = view.running, view.now
        missing = gpus - view.machines.idle_gpus(type_)
        shadow_s = now if missing <= 0 else inf
        for end_s, id_, held in self._ends[type_]:
            if missing > 0:
                if id_ in running:
                    shadow_s = end_s if end_s > now else now
                    missing -= held
            elif end_s > shadow_s:
                break
            elif id_ in running:
                missing -= held
        return (shadow_s, -missing) if missing <= 0 else (inf, 0.0)

    def ends_s(self, view: ClusterView, type_: int, count: int) -> list[float]:
        """Seconds until the ends of the ``count`` runs of the type that started first; 0 for what is missing."""
        running, now = view.running, view.now
        held = sorted((run, end_s) for end_s, run, _ in self._ends[type_] if run in running)[:count]
        return [max(end_s - now, 0.0) for _, end_s in held] + [0.0] * (count - len(held))

    def free_within(self, view: ClusterView, wait_s: float, type_: int) -> float:
        """GPUs of the type that are expected to be idle in ``wait_s`` seconds if nothing starts."""
        running, until = view.running, view.now + wait_s
        ending = sum(gpus for end_s, run, gpus in self._ends[type_] if run in running and end_s <= until)
        return view.machines.idle_gpus(type_) + ending
