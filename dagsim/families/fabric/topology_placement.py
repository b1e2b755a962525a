"""Placement rules that use the levels of the network (``ClusterView.levels``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from math import ceil
from typing import TypeAlias

from dagsim.model import Placement, Request, Share
from dagsim.model.arithmetic import whole_sum
from dagsim.systems.cluster.api import ClusterView, NodeState, TaskState
from dagsim.systems.cluster.policies.placement import by_speed

NodeNumbers: TypeAlias = Collection[int]
NO_NODES: NodeNumbers = frozenset()
_Domain = tuple[int, list[NodeState]]
"""A number of instances that fit, and the machines on which they fit."""


class SmallestDomain:
    """Chooses the smallest domain in which a gang fits: a node, or else a rack, or else a pod, and
    so on. If there are several, it chooses the one with the least free capacity, and among equal
    ones the first. Within the domain, a gang fills the subdomains with the most free capacity until
    the rest fits into a single subdomain. The rest goes to the smallest sufficient subdomain (as in
    Kueue's topology-aware scheduling). This breaks up the fewest domains. A required level is the
    widest level that is tried; a preferred level needs no special rule. Tasks that are not gangs
    use best fit. The cost is O(nodes)."""

    def place(
        self, view: ClusterView, task: TaskState, type_: int | None = None, avoid: NodeNumbers = NO_NODES
    ) -> Placement | None:
        """Place a task (see ``PlacementRule``) without using the nodes in ``avoid``."""
        return _first_choice(self, view, task, type_, avoid)

    def choose(
        self, view: ClusterView, task: TaskState, type_: int, rooms: Sequence[_Domain]
    ) -> list[tuple[int, int]] | None:
        """Choose nodes and numbers of instances for a gang. ``rooms`` lists single machines, each with
        the number of instances that fit on it.
        """
        request = task.job.job.request
        if request is not None and request.segment is not None and _blocks(view, request) is not None:
            return BLOCK.choose(view, task, type_, rooms)
        if whole_sum(room for room, _ in rooms) < task.demand.gang:
            return None
        return _smallest(rooms, [level.domains for level in view.levels], task.demand.gang)


def _first_choice(
    rule: SmallestDomain | SegmentsInBlocks, view: ClusterView, task: TaskState, type_: int | None, avoid: NodeNumbers
) -> Placement | None:
    """Return the placement on the fastest type for which ``rule`` finds one."""
    demand = task.demand
    if not demand.gang and not avoid:
        return view.fit(task, type_)
    for candidate in by_speed(task, type_):
        # If the task is bound to a domain, these are only the machines in that domain.
        machines = view.machines.with_room(demand, candidate)
        rooms = [(machine.room(demand), [machine]) for machine in machines if machine.index not in avoid]
        if demand.gang:
            taken = rule.choose(view, task, candidate, rooms)
        elif rooms:
            room, (best,) = min(rooms, key=lambda room: (room[1][0].idle, room[1][0].index))
            taken = [(best.index, min(room, task.waiting))]
        else:
            taken = None
        if taken is not None:
            return as_placement(taken)
    return None


def _smallest(rooms: Sequence[_Domain], levels: Sequence[Sequence[int]], needed: int) -> list[tuple[int, int]]:
    """Choose nodes and numbers of instances, in the smallest domain into which ``needed`` instances
    fit. ``rooms`` are single machines.
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
    """Fill domains on the levels ``below``, the emptiest first, until the rest of the ``needed``
    instances fits into one domain. The smallest such domain gets the rest.
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
    """Group individual machines by their domains."""
    by_domain: dict[int, _Domain] = {}
    for room, (machine,) in rooms:
        total, machines = by_domain.get(domains[machine.index], (0, []))
        machines.append(machine)
        by_domain[domains[machine.index]] = total + room, machines
    return list(by_domain.values())


def _tightest(domains: Iterable[_Domain], needed: int) -> _Domain | None:
    """Return the domain with the smallest sufficient capacity (the first one if several have it),
    or None if no domain is sufficient.
    """
    enough = [domain for domain in domains if domain[0] >= needed]
    return min(enough, key=lambda domain: (domain[0], domain[1][0].index), default=None)


def as_placement(taken: Iterable[tuple[int, int]]) -> Placement:
    """Return the placement with these nodes and numbers of instances."""
    return tuple([Share(node, count) for node, count in taken])


class SegmentsInBlocks:
    """Places segments in blocks (Slurm's ``topology/block``): each segment of a gang is placed
    within one block, which is a domain on the ``level`` that the job requests (by default the
    narrowest level). The job's request states the size of a segment in instances. A gang without
    such a request forms a single segment if it fits into a block; otherwise, its segments are the
    largest equal parts that fit. Among the blocks that can hold all remaining segments, the rule
    chooses the one with the least free capacity. If there are none, it chooses the block that can
    hold the most segments. The cost is O(nodes).
    """

    def place(
        self, view: ClusterView, task: TaskState, type_: int | None = None, avoid: NodeNumbers = NO_NODES
    ) -> Placement | None:
        """Place a task (see ``PlacementRule``) without using the nodes in ``avoid``."""
        if _blocks(view, task.job.job.request) is None:
            return view.fit(task, type_)
        return _first_choice(self, view, task, type_, avoid)

    def choose(
        self, view: ClusterView, task: TaskState, type_: int, rooms: Sequence[_Domain]
    ) -> list[tuple[int, int]] | None:
        """Choose nodes and numbers of instances for a gang. ``rooms`` lists single machines, each with
        the number of instances that fit on it.
        """
        gang, request = task.demand.gang, task.job.job.request
        blocks = _blocks(view, request)
        if blocks is None:
            return None
        domains, below = blocks
        segment = request.segment if request is not None else None
        if segment is None:
            segment = _largest_segment(gang, self._block_size(view, task, type_, domains))
        taken = _segments(_grouped(rooms, domains), segment, gang)
        if taken is None:
            return None
        room_of = {machine.index: room for room, (machine,) in rooms}
        return [share for machines, count in taken for share in _within(machines, room_of, below, count)]

    def _block_size(self, view: ClusterView, task: TaskState, type_: int, domains: Sequence[int]) -> int:
        """Return the number of instances that the largest block of a type can hold, judging by GPUs."""
        whole = max(task.demand.whole, 1)
        sizes: dict[int, int] = {}
        for machine in view.machines.list:
            if machine.type == type_:
                domain = domains[machine.index]
                sizes[domain] = sizes.get(domain, 0) + machine.gpus // whole
        return max(sizes.values(), default=0)


BLOCK = SegmentsInBlocks()


def _blocks(view: ClusterView, request: Request | None) -> tuple[Sequence[int], list[Sequence[int]]] | None:
    """Return the block of each node, and the domains on the levels below, or None if the network has no
    levels.
    """
    heights = {level.name: height for height, level in enumerate(view.levels)}
    level = None if request is None else request.level
    if level == "host":
        return range(len(view.machines.list)), []
    height = heights.get(level or "", 0)
    return (view.levels[height].domains, [below.domains for below in view.levels[:height]]) if view.levels else None


def _largest_segment(gang: int, most: int) -> int:
    parts = ceil(gang / most) if most else 1
    while parts < gang and gang % parts:
        parts += 1
    return ceil(gang / parts)


def _segments(blocks: list[_Domain], segment: int, needed: int) -> list[tuple[list[NodeState], int]] | None:
    """Return the machines of the chosen blocks, and the number of instances that each block takes.
    The last segment may be smaller than the others.
    """
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
    """The rule of Tiresias (Gu et al., NSDI 2019): a gang whose model has a skewed distribution of
    tensor sizes starts on the smallest possible number of nodes, or waits until it can. Other gangs
    take any GPUs, on the fullest nodes first, so that they fill gaps. VGG and AlexNet are skewed:
    in the table of Tiresias' simulator (SymbioticLab/Tiresias, ``simulator/models.py``), their
    largest tensor contains 61% to 77% of all bytes, compared with at most 14% in the other models.
    Models are compared by the beginning of their names. O(nodes)."""

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
                    return as_placement(taken)
        return None
