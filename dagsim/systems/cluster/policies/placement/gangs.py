"""Placements by how many nodes a task's instances go to: as few or as many as possible."""

from __future__ import annotations

from dagsim.model import Placement, Share
from dagsim.systems.cluster.api import ClusterView, TaskState
from dagsim.systems.cluster.policies.placement.nodes import by_speed, with_room

__all__ = ["Consolidate", "SpreadGang"]


class Consolidate:
    """As few nodes as possible, whatever the type: of the types with room the one that takes the waiting instances on
    the fewest nodes (ties: the fastest), on it the fullest node that takes them all, else the ones with the most room.
    O(nodes)."""

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        demand, best = task.demand, None
        needed = demand.gang or task.waiting
        for each in by_speed(task, type_):
            rooms = sorted((-machine.room(demand), machine.index) for machine in with_room(view, demand, each))
            enough = [room for room in rooms if -room[0] >= needed]
            placement = _pour(enough[-1:] or rooms, needed, whole=bool(demand.gang))
            if placement is not None and (best is None or _fewer(placement, best)):
                best = placement
        return best


class SpreadGang:
    """As many nodes as possible: one instance at a time to the emptiest node of the fastest type with room, around and
    around. O(nodes)."""

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        demand = task.demand
        needed = demand.gang or task.waiting
        for each in by_speed(task, type_):
            emptiest = sorted(with_room(view, demand, each), key=lambda machine: (-machine.idle, machine.index))
            room = {machine.index: machine.room(demand) for machine in emptiest}
            if room and (not demand.gang or sum(room.values()) >= needed):
                return _deal(room, needed)
        return None


def _fewer(one: Placement, other: Placement) -> bool:
    """True if ``one`` starts more instances, or as many on fewer nodes."""
    started, before = (sum(share.instances for share in each) for each in (one, other))
    return (-started, len(one)) < (-before, len(other))


def _pour(rooms: list[tuple[int, int]], needed: int, *, whole: bool) -> Placement | None:
    """Node after node as many as there is room for; ``None`` if not all of a ``whole`` gang, or nothing, finds room."""
    shares = []
    for less_room, node in rooms:
        count = min(needed, -less_room)
        shares.append(Share(node, count))
        needed -= count
        if not needed:
            break
    return tuple(shares) if shares and not (whole and needed) else None


def _deal(room: dict[int, int], needed: int) -> Placement:
    """One instance to each node in turn, until all are dealt or no room is left."""
    dealt = dict.fromkeys(room, 0)
    while needed and room:
        for node in list(room):
            if not needed:
                break
            dealt[node] += 1
            needed -= 1
            room[node] -= 1
            if not room[node]:
                del room[node]
    return tuple(Share(node, count) for node, count in dealt.items() if count)
