"""The plan of one cycle of Slurm's backfill: when and on which nodes each pending job will start."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from math import ceil, floor, inf
from typing import NamedTuple

from dagsim.systems.cluster.api import ClusterView, DemandClass, NodeState, Run

__all__ = ["NodePlan", "Reservation", "bits"]


class Reservation(NamedTuple):
    """Whole nodes that are kept for a job; ``nodes`` is a bit set."""

    begin_s: float
    end_s: float
    nodes: int


class NodePlan:
    """Reservations over named nodes, around the runs under way and the ends of their time limits.

    A reservation takes whole nodes, whatever its job asks of them, as Slurm's does. A job may not start now if its
    limit ends in the very instant in which a reservation of its nodes begins (``ties`` ``"wait"``, as slurmctld has
    it), or it may (``"fit"``); a later reservation may always end where another begins.
    """

    def __init__(
        self, view: ClusterView, ends_s: Mapping[int, float], whole: int, *, window_s: float, resolution_s: float
    ) -> None:
        self.now = view.now
        self.reserved: list[Reservation] = []
        """By their ends."""
        self._ends: list[float] = []
        self._view, self._ends_s, self._whole = view, ends_s, whole
        self._until_s, self._resolution_s = view.now + window_s, resolution_s
        self._known: dict[tuple[DemandClass, bool, int], list[tuple[float, float]]] = {}
        """Limits asked before for a demand on some nodes, and the first time found, which can only come later."""
        self._runs: dict[int, list[Run]] = {}
        """Per node what runs there."""
        self._rooms: dict[tuple[DemandClass, bool], list[tuple[float, int, int]]] = {}
        self._of: dict[int, dict[tuple[DemandClass, bool], list[tuple[float, int, int]]]] = {}
        for run in view.running.values():
            self.started(run)

    def started(self, run: Run) -> None:
        """Take in a run; what was known of the room of its nodes is out of date."""
        for node in run.nodes:
            self._runs.setdefault(node, []).append(run)
            self._of.pop(node, None)
        self._rooms.clear()

    def kept(self, begin_s: float, end_s: float, *, closed: bool, of: int = -1) -> int:
        """The nodes that are reserved at some time between; ``closed`` counts what begins just at the end. No more is
        looked for when all nodes ``of`` are among them."""
        found = 0
        for each in self.reserved[bisect_right(self._ends, begin_s) :]:
            if each.begin_s < end_s or (closed and each.begin_s == end_s):
                found |= each.nodes
                if not of & ~found:
                    break
        return found

    def reserve(self, begin_s: float, end_s: float, nodes: int) -> None:
        """Keep nodes; times are widened to the resolution."""
        step = self._resolution_s
        kept = Reservation(floor(begin_s / step) * step, ceil(end_s / step) * step, nodes)
        at = bisect_right(self._ends, kept.end_s)
        self._ends.insert(at, kept.end_s)
        self.reserved.insert(at, kept)

    def earliest(
        self, demand: DemandClass, nodes: int, limit_s: float, *, alone: bool, distinct: bool
    ) -> tuple[float, int] | None:
        """The first time within the window at which ``nodes`` have room for a start of ``demand`` for ``limit_s``, and
        which of them: the first in their order. ``alone`` needs nodes that nobody uses, ``distinct`` one per instance.
        """
        known = self._known.setdefault((demand, alone, nodes), [])
        least_s = max([begin_s for limit, begin_s in known if limit <= limit_s], default=self.now)
        if least_s > self._until_s:
            return None
        steps = [step for step in self._steps(demand, alone) if nodes >> step[1] & 1]
        times = {least_s, *(step[0] for step in steps), *(each.end_s for each in self.reserved)}
        room: dict[int, int] = {}
        with_room, at = 0, 0
        for begin_s in sorted([time_s for time_s in times if least_s <= time_s <= self._until_s]):
            while at < len(steps) and steps[at][0] <= begin_s:
                _, node, count = steps[at]
                room[node] = count
                with_room = with_room | 1 << node if count else with_room & ~(1 << node)
                at += 1
            free = with_room and with_room & ~self.kept(begin_s, begin_s + limit_s, closed=False, of=with_room)
            chosen = _chosen(free, room, demand.gang or 1, distinct) if free else 0
            if chosen:
                known.append((limit_s, begin_s))
                return begin_s, chosen
        known.append((limit_s, inf))
        return None

    def _steps(self, demand: DemandClass, alone: bool) -> list[tuple[float, int, int]]:
        """Time, node and how many instances it has room for from then on, in order of time."""
        known = self._rooms.get((demand, alone))
        if known is None:
            known = []
            for machine in self._view.machines.list:
                if machine.up and machine.type in demand.types:
                    known += self._steps_of(machine, demand, alone)
            known.sort()
            self._rooms[demand, alone] = known
        return known

    def _steps_of(self, machine: NodeState, demand: DemandClass, alone: bool) -> list[tuple[float, int, int]]:
        of = self._of.setdefault(machine.index, {})
        known = of.get((demand, alone))
        if known is None:
            known = of[demand, alone] = list(self._freed(machine, demand, alone))
        return known

    def _freed(self, machine: NodeState, demand: DemandClass, alone: bool) -> Iterator[tuple[float, int, int]]:
        runs = sorted(self._runs.get(machine.index, ()), key=lambda run: (self._end_s(run), run.id))
        shared = not (alone or self._whole >> machine.index & 1)
        node, plain = machine.index, not (demand.share or machine.shares)
        idle, cpus, memory = machine.idle, machine.cpus, machine.memory
        if shared or not runs:
            yield self.now, node, machine.room(demand)
        for place, run in enumerate(runs):
            gives = run.task.demand
            for held, count, mask, on in run.held:
                if held.index != node:
                    continue
                if plain:
                    idle, cpus = idle + gives.whole * count, cpus + gives.cpus * count
                    memory += gives.memory * count
                else:
                    machine = machine.after(gives, count, mask, on)
            if shared or place == len(runs) - 1:
                yield self._end_s(run), node, _room(demand, idle, cpus, memory) if plain else machine.room(demand)

    def _end_s(self, run: Run) -> float:
        """When its limit ends; one that is past it may end any second."""
        return max(self._ends_s.get(run.id, inf), self.now + 1.0)


def _room(demand: DemandClass, idle: int, cpus: int, memory: int) -> int:
    """``NodeState.room`` of a node that is up and shares no GPU, for a demand of whole GPUs or none."""
    room = idle // demand.whole if demand.whole else 1 << 40
    if demand.cpus:
        room = min(room, cpus // demand.cpus)
    return min(room, memory // demand.memory) if demand.memory else room


def _chosen(free: int, room: Mapping[int, int], wanted: int, distinct: bool) -> int:
    """The first nodes of ``free`` that have room for ``wanted`` instances together; 0 if they do not."""
    chosen = 0
    for node in bits(free):
        chosen |= 1 << node
        wanted -= 1 if distinct else room[node]
        if wanted <= 0:
            return chosen
    return 0


def bits(mask: int) -> Iterator[int]:
    """The places of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
