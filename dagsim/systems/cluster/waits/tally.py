"""The room for one task on all nodes, as it is and as it would be if a resource were not used by anybody."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

from dagsim.systems.cluster.nodes import MICRO, NodeState
from dagsim.systems.cluster.state import TaskState

__all__ = ["NodeStanding", "Resources", "RoomTally"]

Resources: TypeAlias = tuple[str, ...]
"""Some of ``gpus``, ``cpus`` and ``memory``."""

_SETS: tuple[Resources, ...] = (
    ("cpus",),
    ("memory",),
    ("cpus", "memory"),
    ("gpus",),
    ("gpus", "cpus"),
    ("gpus", "memory"),
    ("gpus", "cpus", "memory"),
)
"""Resources that can be lacking together. GPUs come late: if more CPUs alone would do, GPUs are not lacking."""
_WHOLE, _PARTS = len(_SETS) + 1, len(_SETS) + 2
"""The places of wholly idle GPUs, and of all that is free of them, in millionths."""


class NodeStanding(IntEnum):
    """The standing of a node for the task."""

    OPEN = 0
    CLOSED = 1
    """Its users, or the task, share a node with nobody."""
    DOWN = 2
    OUTSIDE = 3
    """The rules do not let the task go there."""


class RoomTally:
    """Room by type and place, kept up to date node by node. O(1) per node that changes and per question."""

    def __init__(self, task: TaskState, *, distinct: bool) -> None:
        self.task = task
        self._needed, self._distinct = task.demand.gang or 1, distinct and bool(task.demand.gang)
        self._nodes: dict[int, tuple[tuple[NodeStanding, int], list[int]]] = {}
        self._sums: dict[tuple[NodeStanding, int], list[int]] = {}

    def put(self, machine: NodeState, place: NodeStanding) -> None:
        """Count a node anew."""
        if machine.type not in self.task.demand.types:
            return
        old = self._nodes.get(machine.index)
        if old is not None:
            self._add(*old, sign=-1)
        new = self._nodes[machine.index] = (place, machine.type), self._rooms(machine)
        self._add(*new, sign=1)

    def fits(self, *places: NodeStanding) -> bool:
        """True if nodes of the places have room for a start."""
        return self._fits(0, places)

    def lacking(self, *places: NodeStanding) -> Resources | None:
        """The fewest resources of which there is too little on nodes of the places; ``None`` if they would not do
        empty."""
        return next((each for at, each in enumerate(_SETS, 1) if self._fits(at, places)), None)

    def free_gpus(self, *places: NodeStanding) -> tuple[bool, bool]:
        """True if, wherever they are, so many GPUs of a type are idle, and if so much of GPUs is free."""
        whole = self.task.demand.whole * self._needed
        parts = (self.task.demand.share or self.task.demand.whole * MICRO) * self._needed
        return self._sum_reaches(_WHOLE, whole, places), self._sum_reaches(_PARTS, parts, places)

    def _fits(self, at: int, places: tuple[NodeStanding, ...]) -> bool:
        return self._sum_reaches(at, self._needed, places)

    def _sum_reaches(self, at: int, wanted: int, places: tuple[NodeStanding, ...]) -> bool:
        types = self.task.demand.types
        found = [sum(self._sums[place, each][at] for place in places if (place, each) in self._sums) for each in types]
        return max(found, default=0) >= wanted

    def _rooms(self, machine: NodeState) -> list[int]:
        """Instances that the node has room for, now and without each set of resources, and its free GPUs."""
        demand, now = self.task.demand, machine.copy()
        now.up = True
        empty = NodeState(machine.index, machine.node, machine.type)
        rooms = [now.room(demand)]
        for each in _SETS:
            twin = now.copy()
            if "gpus" in each:
                twin.idle, twin.free, twin.shares = empty.idle, empty.free, {}
            twin.cpus = empty.cpus if "cpus" in each else now.cpus
            twin.memory = empty.memory if "memory" in each else now.memory
            rooms.append(twin.room(demand))
        if self._distinct:
            rooms = [min(room, 1) for room in rooms]
        return [*rooms, now.idle, now.idle * MICRO + sum(now.shares.values())]

    def _add(self, key: tuple[NodeStanding, int], rooms: list[int], *, sign: int) -> None:
        sums = self._sums.setdefault(key, [0] * len(rooms))
        for at, room in enumerate(rooms):
            sums[at] += sign * room
