"""EASY back-filling: the oldest task gets a reservation, others may go ahead of it if they do not delay it."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

import numpy as np

from dagsim.model import Decision, Placement, Start
from dagsim.systems.cluster.api import MICRO, ClusterView, DemandClass, ExpectedFree, TaskState
from dagsim.systems.cluster.policies.orders.static import by_arrival
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing
from dagsim.systems.cluster.policies.support.task_groups import AlikeTasks, Backlog, RankColumn, by_order

__all__ = ["Easy", "easy", "easy_lxf", "easy_sjf"]


class Shadow(NamedTuple):
    """The reservation of the oldest task: its time, its type, and what is left over there then."""

    time_s: float
    type: int
    extra: int


class Easy:
    """Start the oldest task; when it does not fit, start others, by ``rank``, that end before its *shadow time*, when
    enough is expected to be free for it, or that need no more than is *extra* then.

    Shadow and extra count the GPUs (cores, if the oldest asks for no GPU) of one type, whatever their nodes: where
    tasks share a node the oldest is never delayed by a candidate whose estimate holds. Clairvoyant, not preemptive.
    Cost per decision: O(running log running), and a pass of numpy over the waiting tasks of each demand that has room
    but not among what is extra (Lifka 1995; Mu'alem and Feitelson 2001).
    """

    def __init__(self, rank: RankColumn, placement: str | PlacementRule = "best-fit") -> None:
        self._rank = rank
        self._place = placing(placement).place

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        head = view.queue(by_arrival).first()
        if head is None:
            return
        backlog = view.index(self, Backlog)
        task = head
        placement = self._place(view, head)
        if placement is None:
            if not backlog.fits(view.machines):
                return
            shadow = min([_reservation(view, view.expected_free, head, type_) for type_ in head.demand.types])
            filler = self._filler(view, backlog, head, shadow)
            if filler is None:
                return
            task, placement = filler
        yield Start(task, placement)

    def _filler(
        self, view: ClusterView, backlog: Backlog, head: TaskState, shadow: Shadow
    ) -> tuple[TaskState, Placement] | None:
        """The first task by rank that fits and does not delay ``head``."""
        machines, now = view.machines, view.now
        stuck: set[AlikeTasks] = set()
        room: dict[DemandClass, list[int]] = {}
        while True:
            best: tuple[float, int, TaskState] | None = None
            chosen: AlikeTasks | None = None
            for group in backlog.groups():
                demand = group.demand
                types = room.get(demand)
                if types is None:
                    types = room[demand] = [type_ for type_ in demand.types if machines.fits_on(demand, type_)]
                if not types or group in stuck:
                    continue
                type_ = types[0] if len(types) == 1 else min(types, key=group.ratios.__getitem__)
                most_s = inf
                ratio = group.ratios[type_]  # 0 for tasks of no work, which end at once
                if ratio and type_ == shadow.type and self._needed(view, group, head, type_) > shadow.extra:
                    most_s = (shadow.time_s - now) / ratio
                first = group.first(self._rank, now, most_s)
                if first is not None and (best is None or first[:2] < best[:2]):
                    best, chosen = first, group
            if best is None or chosen is None:
                return None
            task = best[2]
            placement = self._place(view, task)
            if placement is not None and task is not head and not self._delays(view, task, head, placement, shadow):
                return task, placement
            stuck.add(chosen)

    def _needed(self, view: ClusterView, group: AlikeTasks, head: TaskState, type_: int) -> int:
        """The amount of what ``head`` waits for that a task of the group would take now."""
        count = group.waiting
        if not group.demand.gang and count > 1:
            placement = self._place(view, group.tasks[0], type_)
            count = 0 if placement is None else sum(share.instances for share in placement)
        return _amount(group.demand, head.demand) * count

    def _delays(
        self, view: ClusterView, task: TaskState, head: TaskState, placement: Placement, shadow: Shadow
    ) -> bool:
        type_ = view.machines.list[placement[0].node].type
        if type_ != shadow.type or view.now + task.seconds[type_] <= shadow.time_s:
            return False
        return _amount(task.demand, head.demand) * sum(share.instances for share in placement) > shadow.extra


def easy(placement: str | PlacementRule = "best-fit") -> Easy:
    """EASY: candidates by arrival. Clairvoyant. Cost: ``Easy`` (Lifka 1995)."""
    return Easy(by_order, placement)


def easy_sjf(placement: str | PlacementRule = "best-fit") -> Easy:
    """EASY with the shortest candidate first. Clairvoyant. Cost: ``Easy`` (Tsafrir, Etsion and Feitelson 2007)."""
    return Easy(_shortest, placement)


def easy_lxf(placement: str | PlacementRule = "best-fit") -> Easy:
    """EASY with the candidate of the largest slowdown first. Clairvoyant. Cost: ``Easy``."""
    return Easy(_largest_slowdown, placement)


def _shortest(group: AlikeTasks, _: float) -> np.ndarray:
    return group.best_s


def _largest_slowdown(group: AlikeTasks, now: float) -> np.ndarray:
    ranks: np.ndarray = (group.ready_s - now) * group.per_second
    return ranks


def _amount(demand: DemandClass, head: DemandClass) -> int:
    """Millionths of what ``head`` is counted in (GPUs, or cores) that one instance of ``demand`` takes."""
    return round(demand.demand.gpus * MICRO) if head.demand.gpus else demand.cpus


def _reservation(view: ClusterView, expected: ExpectedFree, head: TaskState, type_: int) -> Shadow:
    """The time when ``type_`` should have room for ``head``, and what is left over."""
    demand = head.demand
    if demand.demand.gpus:
        time_s, extra = expected.shadow(demand.demand.gpus * (demand.gang or 1), type_)
        return Shadow(time_s, type_, round(extra * MICRO))
    missing = demand.cpus * (demand.gang or 1)
    missing -= sum(machine.cpus for machine in view.machines.list if machine.type == type_ and machine.up)
    now, running = view.now, view.running
    shadow_s = now if missing <= 0 else inf
    for end_s, id_, _ in expected.ends(type_):
        if missing > 0:
            shadow_s = max(end_s, now)
        elif end_s > shadow_s:
            break
        run = running[id_]
        missing -= _amount(run.task.demand, demand) * run.instances
    return Shadow(shadow_s, type_, -missing) if missing <= 0 else Shadow(inf, type_, 0)
