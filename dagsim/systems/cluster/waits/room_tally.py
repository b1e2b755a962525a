"""The resources that a task lacks, found by counting how many of its instances fit on the nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TypeAlias

from dagsim.metrics.why import TOO_FEW, Cause, CauseKind
from dagsim.model.arithmetic import whole_sum
from dagsim.systems.cluster.resources.nodes import MICRO, NodeState
from dagsim.systems.cluster.state import TaskState

ResourceNames: TypeAlias = tuple[str, ...]
"""Some of ``gpus``, ``cpus`` and ``memory``."""

_SETS: tuple[ResourceNames, ...] = (
    ("cpus",),
    ("memory",),
    ("cpus", "memory"),
    ("gpus",),
    ("gpus", "cpus"),
    ("gpus", "memory"),
    ("gpus", "cpus", "memory"),
)
"""Sets of resources that can be lacking together. GPUs come last: if more CPUs alone were enough,
GPUs are not lacking.
"""
_WHOLE, _PARTS = len(_SETS) + 1, len(_SETS) + 2
"""Indexes of the sums of entirely idle GPUs, and of all free parts of GPUs, in millionths."""


class NodeStanding(IntEnum):
    """The availability of a node to a task: available, or the reason why it is not."""

    OPEN = 0
    CLOSED = 1
    """The jobs on the node, or the task, require the node for themselves."""
    DOWN = 2
    OUTSIDE = 3
    """The rules do not allow the task on the node."""


_EVERYWHERE = -1
"""In place of the number of a domain: all nodes."""


class RoomTally:
    """A count of how many instances of a task fit, by the type of the nodes and by whether and why
    they are available (``NodeStanding``). It is updated node by node. The cost is O(1) per changed
    node and per query. If there are ``domains`` (bit sets of nodes), a gang must be placed within
    one of them.
    """

    def __init__(self, task: TaskState, *, distinct: bool, domains: Sequence[int] = ()) -> None:
        self.task = task
        self._domains = domains if task.demand.gang else ()
        request = task.job.job.request
        self.together = f"one {request.level or request.constraint}" if self._domains and request is not None else ""
        """Description of the nodes that a gang needs, if they must be of one domain."""
        self._needed, self._distinct = task.demand.gang or 1, distinct and bool(task.demand.gang)
        self._nodes: dict[int, tuple[tuple[NodeStanding, int], int, list[int]]] = {}
        self._sums: dict[tuple[NodeStanding, int, int], list[int]] = {}
        """The sums by standing, type and domain."""

    def put(self, machine: NodeState, place: NodeStanding) -> None:
        """Update the count of a node."""
        if machine.type not in self.task.demand.types:
            return
        old = self._nodes.get(machine.index)
        if old is not None:
            self._add(*old, sign=-1)
        new = self._nodes[machine.index] = (place, machine.type), machine.bit, self._rooms(machine)
        self._add(*new, sign=1)

    def fits(self, *places: NodeStanding) -> bool:
        """Return True if the task can start on nodes with one of these standings."""
        return self._fits(0, places)

    def lacking(self, *places: NodeStanding) -> ResourceNames | None:
        """Return the smallest set of resources that are insufficient on the nodes with one of these
        standings. Return ``None`` if these nodes would not be enough even if they were empty.
        """
        return next((resources for at, resources in enumerate(_SETS, 1) if self._fits(at, places)), None)

    def free_gpus(self, *places: NodeStanding) -> tuple[bool, bool]:
        """Return whether enough whole GPUs of a type are idle, and whether enough parts of GPUs are
        free. Both ignore how these are distributed over the nodes.
        """
        whole = self.task.demand.whole * self._needed
        parts = (self.task.demand.share or self.task.demand.whole * MICRO) * self._needed
        return self._sum_reaches(_WHOLE, whole, places), self._sum_reaches(_PARTS, parts, places)

    def _fits(self, at: int, places: tuple[NodeStanding, ...]) -> bool:
        domains = range(len(self._domains)) if self._domains else (_EVERYWHERE,)
        return self._sum_reaches(at, self._needed, places, domains)

    def _sum_reaches(
        self, at: int, wanted: int, places: tuple[NodeStanding, ...], domains: Iterable[int] = (_EVERYWHERE,)
    ) -> bool:
        sums = self._sums
        totals = [
            whole_sum(sums[place, type_, domain][at] for place in places if (place, type_, domain) in sums)
            for type_ in self.task.demand.types
            for domain in domains
        ]
        return max(totals, default=0) >= wanted

    def _rooms(self, machine: NodeState) -> list[int]:
        """Return how many instances fit on the node now, how many would fit if all resources in a
        set were free (for each set), and the free GPUs of the node.
        """
        demand, now = self.task.demand, machine.copy()
        now.up = True
        empty = machine.emptied()
        rooms = [now.room(demand)]
        for resources in _SETS:
            twin = now.copy()
            if "gpus" in resources:
                twin.idle, twin.free, twin.shares, twin.layouts = empty.idle, empty.free, {}, {}
            twin.cpus = empty.cpus if "cpus" in resources else now.cpus
            twin.memory = empty.memory if "memory" in resources else now.memory
            rooms.append(twin.room(demand))
        if self._distinct:
            rooms = [min(room, 1) for room in rooms]
        return [*rooms, now.idle, now.idle * MICRO + whole_sum(now.shares.values())]

    def _add(self, key: tuple[NodeStanding, int], bit: int, rooms: list[int], *, sign: int) -> None:
        for domain in (_EVERYWHERE, *[number for number, nodes in enumerate(self._domains) if nodes & bit]):
            sums = self._sums.setdefault((*key, domain), [0] * len(rooms))
            for at, room in enumerate(rooms):
                sums[at] += sign * room


_UP = (NodeStanding.OPEN, NodeStanding.CLOSED)


def lacking_causes(tally: RoomTally, elsewhere: str, *, powered_down: bool = False) -> Iterator[Cause]:
    """Yield a cause for each resource that is missing for the task to start. If nodes are not up,
    they have failed or, with ``powered_down``, are off or booting.
    """
    kind, state = (CauseKind.BOOT, "off or booting") if powered_down else (CauseKind.DOWN, "down")
    if tally.fits(*_UP):
        yield Cause(CauseKind.WHOLE_NODES, "nodes with enough free resources could not be shared")
        return
    places: tuple[NodeStanding, ...] = _UP
    lacking = tally.lacking(*places)
    if lacking is None:  # the nodes that are up would not be enough even if all were empty
        words = f", and all of its nodes must be of {tally.together}" if tally.together else ""
        yield Cause(kind, f"nodes were {state}{words}")
        places = (*_UP, NodeStanding.DOWN)
        lacking = () if tally.fits(*places) else tally.lacking(*places)
    for what in lacking or ():
        yield _too_little(what, tally, places, lacking or ())
    if places == _UP and tally.fits(*_UP, NodeStanding.DOWN):
        yield Cause(kind, f"nodes with enough free resources were {state}")
    if tally.fits(NodeStanding.OUTSIDE):
        yield Cause(CauseKind.ELSEWHERE, elsewhere)


def _too_little(what: str, tally: RoomTally, places: tuple[NodeStanding, ...], lacking: tuple[str, ...]) -> Cause:
    if what == "gpus":
        idle, free = tally.free_gpus(*places)
        if idle and tally.task.demand.whole:
            where = f"in {tally.together}" if tally.together else "together"
            return Cause(CauseKind.SCATTERED, f"enough GPUs were free, but not {where}")
        if free:
            return Cause(CauseKind.FRAGMENTED, "enough was free, but only in parts of shared GPUs")
        return TOO_FEW
    beside = "GPUs were free, but " if tally.task.demand.demand.gpus and "gpus" not in lacking else ""
    if what == "cpus":
        return Cause(CauseKind.CPUS, f"{beside}too few CPUs{' beside them' if beside else ' were free'}")
    return Cause(CauseKind.MEMORY, f"{beside}too little memory{' beside them' if beside else ' was free'}")
