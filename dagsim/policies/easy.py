"""EASY back-filling: the oldest task gets a reservation, others may go ahead of it if they do not delay it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import TypeAlias

from dagsim.model import Decision, Start
from dagsim.policies.orders import by_arrival
from dagsim.policies.placement import Placing, placing
from dagsim.sim.frontier import ActiveTask
from dagsim.sim.machines import MICRO, DemandClass
from dagsim.sim.policy import View

__all__ = ["Easy", "easy", "easy_lxf", "easy_sjf"]

Rank: TypeAlias = Callable[[ActiveTask, float], float]
"""Ranks a candidate at a time, smaller first."""


class Easy:
    """Start the oldest task; when it does not fit, start others, by ``rank``, that end before its *shadow time*, when
    enough is expected to be free for it, or that need no more than is *extra* then.

    Shadow and extra count the GPUs (cores, if the oldest asks for no GPU) of one type, whatever their nodes: where
    tasks share a node the oldest is never delayed by a candidate whose estimate holds. Clairvoyant, not preemptive.
    O(n log n + running log running) per decision with the oldest blocked (Lifka 1995; Mu'alem and Feitelson 2001).
    """

    def __init__(self, rank: Rank, placement: str | Placing = "best-fit") -> None:
        self._rank = rank
        self._place = placing(placement).place

    def decide(self, view: View) -> Iterator[Decision]:
        head = view.queue(by_arrival).first()
        if head is None:
            return
        placement = self._place(view, head)
        if placement is not None:
            yield Start(head, placement)
            return
        now = view.now
        shadow_s, on, extra = min(_reservation(view, head, type_) for type_ in head.demand.types)
        for task in sorted(view.ready, key=lambda task: (self._rank(task, now), task)):
            if task is head or not view.fits(task):
                continue
            placement = self._place(view, task)
            if placement is None:
                continue
            type_ = view.machines.list[placement[0].node].type
            needed = _amount(task.demand, head.demand) * sum(share.instances for share in placement)
            if type_ == on and now + task.seconds[type_] > shadow_s:
                if needed > extra:
                    continue
                extra -= needed
            yield Start(task, placement)


def easy(placement: str | Placing = "best-fit") -> Easy:
    """EASY: candidates by arrival. Clairvoyant. Cost: ``Easy`` (Lifka 1995)."""
    return Easy(_oldest, placement)


def easy_sjf(placement: str | Placing = "best-fit") -> Easy:
    """EASY with the shortest candidate first. Clairvoyant. Cost: ``Easy`` (Tsafrir, Etsion and Feitelson 2007)."""
    return Easy(_shortest, placement)


def easy_lxf(placement: str | Placing = "best-fit") -> Easy:
    """EASY with the candidate of the largest slowdown first. Clairvoyant. Cost: ``Easy``."""
    return Easy(_largest_slowdown, placement)


def _oldest(task: ActiveTask, _: float) -> float:
    return task.order


def _shortest(task: ActiveTask, _: float) -> float:
    return task.best_s


def _largest_slowdown(task: ActiveTask, now: float) -> float:
    return -(now - task.ready_s + task.best_s) / task.best_s if task.best_s else -inf


def _amount(demand: DemandClass, head: DemandClass) -> int:
    """Millionths of what ``head`` is counted in (GPUs, or cores) that one instance of ``demand`` takes."""
    return round(demand.demand.gpus * MICRO) if head.demand.gpus else demand.cpus


def _reservation(view: View, head: ActiveTask, type_: int) -> tuple[float, int, int]:
    """When ``type_`` is expected to have room for ``head``, the type, and what is then left over."""
    demand = head.demand
    missing = _amount(demand, demand) * (demand.gang or 1)
    if demand.demand.gpus:
        missing -= view.machines.idle_gpus(type_) * MICRO
    else:
        missing -= sum(machine.cpus for machine in view.machines.list if machine.type == type_ and machine.up)
    ends = sorted((run.estimated_end_s(view.now), run.id) for run in view.running.values() if run.type == type_)
    shadow_s = view.now if missing <= 0 else inf
    for end_s, id_ in ends:
        if missing > 0:
            shadow_s = end_s
        elif end_s > shadow_s:
            break
        run = view.running[id_]
        missing -= _amount(run.task.demand, demand) * sum(held[1] for held in run.held)
    return (shadow_s, type_, -missing) if missing <= 0 else (inf, type_, 0)
