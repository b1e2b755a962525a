"""Placement rules that know the levels of the network (``ClusterView.levels``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil

from dagsim.model import Placement, Share
from dagsim.systems.cluster.api import ClusterView, NodeState, TaskState
from dagsim.systems.cluster.policies.placement import by_speed

__all__ = ["SegmentsInBlocks", "SkewRule", "SmallestDomain"]

_Domain = tuple[int, list[NodeState]]
"""Room in instances, and the machines with room."""


class SmallestDomain:
    """The smallest sufficient domain: a node, else a rack, else a pod, and so on; of several, the one
    with the least room, then the first. In it, a gang takes the domain below with the most room, until the
    rest fits into one, of which it takes the one with the least room (as Kueue's topology-aware scheduling
    does). This breaks up the fewest domains. A required level is the widest that is tried; a preferred one needs
    no rule of its own. Tasks that are not gangs use best fit. O(nodes).
    """

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        demand, request = task.demand, task.job.job.request
        if not demand.gang:
            return view.fit(task, type_)
        if request is not None and request.segment is not None:
            return BLOCK.place(view, task, type_)
        levels = [level.domains for level in view.levels]
        for candidate in by_speed(task, type_):
            machines = list(view.machines.with_room(demand, candidate))  # of one domain, if it is bound to one
            rooms = [(machine.room(demand), [machine]) for machine in machines]
            if sum(room for room, _ in rooms) >= demand.gang:
                return _placement(_smallest(rooms, levels, demand.gang))
        return None


def _smallest(rooms: Sequence[_Domain], levels: Sequence[Sequence[int]], needed: int) -> list[tuple[int, int]]:
    """Node and instances, in the smallest domain with room for ``needed`` instances. ``rooms`` are single
    machines.
    """
    alone = _tightest(rooms, needed)
    if alone is not None:
        return [(alone[1][0].index, needed)]
    for height, domains in enumerate(levels):
        domain = _tightest(_grouped(rooms, domains), needed)
        if domain is not None:
            return _within(domain[1], {machine.index: room for room, (machine,) in rooms}, levels[:height], needed)
    every = [machine for _, (machine,) in rooms]
    return _within(every, {machine.index: room for room, (machine,) in rooms}, levels, needed)


def _within(
    machines: Sequence[NodeState], room_of: dict[int, int], below: Sequence[Sequence[int]], needed: int
) -> list[tuple[int, int]]:
    """Fill domains of the levels ``below`` with room for ``needed`` instances, the roomiest first; the
    rest goes to the tightest that is enough.
    """
    rooms = [(room_of[machine.index], [machine]) for machine in machines]
    parts = _grouped(rooms, below[-1]) if below else rooms
    taken: list[tuple[int, int]] = []
    while needed:
        part = _tightest(parts, needed) or max(parts, key=lambda part: (part[0], -part[1][0].index))
        parts.remove(part)
        count = min(needed, part[0])
        taken += _within(part[1], room_of, below[:-1], count) if below else [(part[1][0].index, count)]
        needed -= count
    return taken


def _grouped(rooms: Iterable[_Domain], domains: Sequence[int]) -> list[_Domain]:
    """Single machines put together by their domains."""
    by_domain: dict[int, _Domain] = {}
    for room, (machine,) in rooms:
        total, machines = by_domain.get(domains[machine.index], (0, []))
        machines.append(machine)
        by_domain[domains[machine.index]] = total + room, machines
    return list(by_domain.values())


def _tightest(domains: Iterable[_Domain], needed: int) -> _Domain | None:
    """The domain with the least room that is enough, the first of several; None if there is none."""
    enough = [domain for domain in domains if domain[0] >= needed]
    return min(enough, key=lambda domain: (domain[0], domain[1][0].index), default=None)


def _placement(taken: Iterable[tuple[int, int]]) -> Placement:
    return tuple([Share(node, count) for node, count in taken])


class SegmentsInBlocks:
    """Segments in blocks (Slurm's ``topology/block``): each segment of a gang lies within one block, a
    domain of its ``level`` (by default the narrowest). The job's request states the segment, in
    instances; a gang without one is a single segment if a block can hold it, else its segments are the
    largest equal parts that a block can hold. Blocks with the least room that is enough for all
    segments that are left come first, else those with room for the most segments. O(nodes).
    """

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        demand, request = task.demand, task.job.job.request
        if not demand.gang or not view.levels:
            return view.fit(task, type_)
        heights = {level.name: height for height, level in enumerate(view.levels)}
        height = heights.get(request.level, 0) if request is not None else 0
        domains, below = view.levels[height].domains, [level.domains for level in view.levels[:height]]
        for candidate in by_speed(task, type_):
            rooms = [(machine.room(demand), [machine]) for machine in view.machines.with_room(demand, candidate)]
            segment = request.segment if request is not None else None
            if segment is None:
                segment = _largest_segment(demand.gang, self._block_size(view, task, candidate, domains))
            taken = _segments(_grouped(rooms, domains), segment, demand.gang)
            if taken is not None:
                room_of = {machine.index: room for room, (machine,) in rooms}
                parts = [_within(machines, room_of, below, count) for machines, count in taken]
                return _placement([share for part in parts for share in part])
        return None

    def _block_size(self, view: ClusterView, task: TaskState, type_: int, domains: Sequence[int]) -> int:
        """Instances that the largest block of the type can hold, by GPUs."""
        whole = max(task.demand.whole, 1)
        sizes: dict[int, int] = {}
        for machine in view.machines.list:
            if machine.type == type_:
                domain = domains[machine.index]
                sizes[domain] = sizes.get(domain, 0) + machine.gpus // whole
        return max(sizes.values(), default=0)


BLOCK = SegmentsInBlocks()


def _largest_segment(gang: int, most: int) -> int:
    parts = ceil(gang / most) if most else 1
    while parts < gang and gang % parts:
        parts += 1
    return ceil(gang / parts)


def _segments(blocks: list[_Domain], segment: int, needed: int) -> list[tuple[list[NodeState], int]] | None:
    """Machines of blocks, and the instances that each takes; the last segment may be smaller."""
    taken = []
    while needed:
        full = [block for block in blocks if block[0] >= min(segment, needed)]
        if not full:
            return None
        room, machines = _tightest(full, needed) or max(
            full, key=lambda block: (block[0] // segment, -block[0], -block[1][0].index)
        )
        blocks = [block for block in blocks if block[1] is not machines]
        count = needed if room >= needed else room // segment * segment
        taken.append((machines, count))
        needed -= count
    return taken


class SkewRule:
    """The rule of Tiresias (NSDI 2019, section 3.3): a gang whose model has a skewed distribution of tensor
    sizes starts on the fewest nodes that can hold it, or waits for them. Other gangs take any GPUs, fullest
    nodes first, so that they fill gaps. Skewed are VGG and AlexNet, the models that the paper names;
    models are compared by the beginning of their names. O(nodes).
    """

    skewed = ("vgg", "alexnet")

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        demand, model = task.demand, (task.task.model or "").lower()
        if not demand.gang:
            return view.fit(task, type_)
        most_first = model.startswith(self.skewed)
        for candidate in by_speed(task, type_):
            machines = list(view.machines.with_room(demand, candidate, most_first))
            taken, needed = [], demand.gang
            room: Callable[[NodeState], int] = lambda machine: machine.room(demand)  # noqa: E731
            if most_first:
                largest = max((machine.gpus for machine in view.machines.list if machine.type == candidate), default=0)
                least = ceil(needed * max(demand.whole, 1) / largest) if largest else 1
                enough = [machine for machine in machines if room(machine) >= needed]
                machines = enough[-1:] if least == 1 else sorted(machines, key=lambda m: (-room(m), m.index))[:least]
            for machine in machines:
                count = min(needed, room(machine))
                taken.append((machine.index, count))
                needed -= count
                if not needed:
                    return _placement(taken)
        return None
