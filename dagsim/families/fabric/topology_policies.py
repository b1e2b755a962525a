"""Placement rules that use the levels of the network (``ClusterView.levels``), and policies based
on them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from math import ceil, inf
from typing import NamedTuple, TypeAlias

from dagsim.errors import ConfigError
from dagsim.model import Decision, Migrate, Placement, Request, Share, Start
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.systems.cluster.api import ClusterView, DemandClass, NodeState, Run, TaskState
from dagsim.systems.cluster.policies.backfilling import EVERYTHING, NOTHING, Backlog, Easy, Shadow, by_order
from dagsim.systems.cluster.policies.orders import by_arrival
from dagsim.systems.cluster.policies.placement import by_speed

_Nodes: TypeAlias = Collection[int]
_NONE: _Nodes = frozenset()
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
        self, view: ClusterView, task: TaskState, type_: int | None = None, avoid: _Nodes = _NONE
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
    rule: SmallestDomain | SegmentsInBlocks, view: ClusterView, task: TaskState, type_: int | None, avoid: _Nodes
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
            return _placement(taken)
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


def _placement(taken: Iterable[tuple[int, int]]) -> Placement:
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
        self, view: ClusterView, task: TaskState, type_: int | None = None, avoid: _Nodes = _NONE
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
                    return _placement(taken)
        return None


class _Reserved(NamedTuple):
    """The nodes that are reserved for the oldest task, and the time at which it will get them."""

    shadow: Shadow
    nodes: _Nodes


class _Avoiding(NamedTuple):
    """A placement rule that uses none of the nodes in ``avoid``."""

    rule: SmallestDomain | SegmentsInBlocks
    avoid: _Nodes

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        return self.rule.place(view, task, type_, self.avoid)


class EasyOnNodes(Easy):
    """EASY, except that the oldest task reserves specific nodes rather than a number of GPUs if it
    needs whole domains (it has a segment or requires a level). Other tasks start on other nodes, or
    on the reserved nodes if they end before the reservation begins.

    The reservation contains the nodes that the rule would choose at the first expected end after
    which the task fits, judging only by GPUs. It remains until the task starts or is overdue. The
    policy uses estimates, and never preempts. It costs as much as ``Easy``, plus O(nodes) per start
    and O(nodes log running) per reservation.
    """

    def __init__(self, rule: SmallestDomain | SegmentsInBlocks) -> None:
        super().__init__(by_order, rule)
        self.rule = rule
        self._reserved_for: tuple[tuple[int, int], _Reserved] | None = None

    def _filler(
        self, view: ClusterView, backlog: Backlog, head: TaskState, shadow: Shadow
    ) -> tuple[TaskState, Placement] | None:
        split = bool(view.levels) and _is_split(self.rule, head)
        if not (head.demand.gang and head.demand.whole and (head.demand.bound or split)):
            return super()._filler(view, backlog, head, shadow)
        reserved = self._reserved(view, head)
        elsewhere = Easy(self.rank, _Avoiding(self.rule, reserved.nodes))
        filler = elsewhere._filler(view, backlog, head, reserved.shadow._replace(extra=EVERYTHING))
        return filler or super()._filler(view, backlog, head, reserved.shadow)

    def _reserved(self, view: ClusterView, head: TaskState) -> _Reserved:
        key = head.order, head.piece
        if self._reserved_for is None or self._reserved_for[0] != key or self._reserved_for[1].shadow.time_s < view.now:
            best = min([self._reservation(view, head, type_) for type_ in head.demand.types], key=_time_s)
            self._reserved_for = key, best
        return self._reserved_for[1]

    def _reservation(self, view: ClusterView, head: TaskState, type_: int) -> _Reserved:
        """Return the first expected end of a run on ``type_`` after which the oldest task can
        start, and the nodes that it then gets.
        """
        whole = head.demand.whole
        own = [machine for machine in view.machines.list if machine.type == type_ and machine.up]
        ends = view.expected_free.ends(type_)

        def chosen(count: int) -> list[tuple[int, int]] | None:
            idle = {machine.index: machine.idle for machine in own}
            for _, run, _ in ends[:count]:
                for machine, instances, *_ in view.running[run].held:
                    if machine.index in idle:
                        idle[machine.index] += instances * view.running[run].task.demand.whole
            rooms = [(idle[machine.index] // whole, [machine]) for machine in own if idle[machine.index] >= whole]
            terms = head.demand.terms
            for domain in terms.domains if terms is not None and head.demand.bound else (-1,):
                inside = [(room, machines) for room, machines in rooms if domain >> machines[0].index & 1]
                taken = self.rule.choose(view, head, type_, inside)
                if taken is not None:
                    return taken
            return None

        low, high = 0, len(ends)
        best = chosen(high)
        if best is None:
            return _Reserved(Shadow(inf, type_, NOTHING), _NONE)
        while low < high:
            middle = (low + high) // 2
            taken = chosen(middle)
            if taken is None:
                low = middle + 1
            else:
                high, best = middle, taken
        time_s = max(ends[high - 1][0], view.now) if high else view.now
        return _Reserved(Shadow(time_s, type_, NOTHING), frozenset([node for node, _ in best]))


def _time_s(reserved: _Reserved) -> float:
    return reserved.shadow.time_s


def _is_split(rule: SmallestDomain | SegmentsInBlocks, task: TaskState) -> bool:
    """Return True if the rule places each segment of the task within one domain."""
    request = task.job.job.request
    return isinstance(rule, SegmentsInBlocks) or (request is not None and request.segment is not None)


def topology() -> EasyOnNodes:
    """Return EASY with gangs in the smallest sufficient domain. The policy uses estimates, and
    costs as much as ``EasyOnNodes``."""
    return EasyOnNodes(SmallestDomain())


def block() -> EasyOnNodes:
    """Return EASY with the segments of gangs within blocks. The policy uses estimates, and costs as
    much as ``EasyOnNodes``."""
    return EasyOnNodes(SegmentsInBlocks())


class _Clearing(NamedTuple):
    """The runs that have to migrate so that a gang fits, and the cost of these migrations in
    GPU-seconds.
    """

    cost: float
    moves: tuple[tuple[Run, int], ...]
    """Runs, each with the node to which it migrates."""


class Defrag(EasyOnNodes):
    """``topology`` with migrations: if the oldest gang fits on no single node, rack or pod although
    there are enough free GPUs in total, the policy empties a node, rack or pod by moving runs that
    use a single node. It does so only if the moves cost fewer GPU-seconds than the gang gains.

    All moves happen simultaneously, and cost the time until the runs compute again: the delays in
    ``Preemption``, the transfer of their states next to the flows in transit
    (``expected_moves_s``), and, without a checkpoint, the lost work. The gain is the time that the
    gang would lose to communication if it were spread (``expected_rate``). A gang that cannot start
    without the moves gains the time that it would otherwise wait, but at most its own run time.
    Gains and costs are multiplied by the number of GPUs. At most ``most_moves`` runs move
    simultaneously. The policy uses estimates, and preempts. It costs as much as ``Easy``, plus
    O(running + nodes) for each gang that waits or would be spread.

    Raises:
        ConfigError: ``most_moves`` is below 1.
    """

    def __init__(self, most_moves: int = 8) -> None:
        if most_moves < 1:
            raise ConfigError(f"defrag: most_moves must be 1 or more, got {most_moves!r}")
        super().__init__(SmallestDomain())
        self.most_moves = most_moves
        self._cleared_for: tuple[int, int, float] | None = None
        """The task and the time of the last moves, which happen at most once at a time, even if the
        task then does not fit for a reason that ``_clearing`` does not consider, such as a
        reservation."""

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        head = view.queue(by_arrival).first()
        if head is not None and head.demand.gang and head.demand.whole and head.training is None:
            key = head.order, head.piece, view.now
            clearing = None if key == self._cleared_for else self._clearing(view, head)
            if clearing is not None:
                self._cleared_for = key
                for run, node in clearing.moves:
                    yield Migrate(run.id, (Share(node, run.instances),))
                placement = self._place(view, head)
                if placement is not None:
                    yield Start(head, placement)
                return
        yield from super().decide(view)

    def _clearing(self, view: ClusterView, task: TaskState) -> _Clearing | None:
        """Return the cheapest moves that give ``task`` a smaller domain than it would get now, or
        None if no moves are worthwhile."""
        placement, demand, machines = self._place(view, task), task.demand, view.machines.list
        type_ = by_speed(task, None)[0] if placement is None else machines[placement[0].node].type
        nodes = -1 if demand.terms is None else demand.terms.nodes
        own = [machine for machine in machines if machine.type == type_ and machine.up and nodes >> machine.index & 1]
        if placement is not None and len(placement) == 1:
            return None
        if sum(machine.idle // demand.whole for machine in own) < demand.gang:
            return None
        for domains in ([*range(len(machines))], *(level.domains for level in view.levels)):
            if placement is not None and len({domains[share.node] for share in placement}) == 1:
                return None
            best: _Clearing | None = None
            for domain in dict.fromkeys(domains[machine.index] for machine in own):
                inside = [machine for machine in own if domains[machine.index] == domain]
                clearing = self._cleared(view, task, inside, own)
                if clearing is not None and (best is None or clearing.cost < best.cost):
                    best = clearing
                    compact = _filled(inside, demand.whole, demand.gang)
            if best is not None:
                gpus, seconds = demand.whole * demand.gang, task.seconds[type_]
                if placement is None:
                    gain = gpus * min(seconds, self._wait_s(view, task))
                else:
                    gain = _spread_costs(view, task, placement, compact, gpus * seconds)
                return best if best.cost < gain else None
        return None

    def _cleared(
        self, view: ClusterView, task: TaskState, inside: Sequence[NodeState], own: Sequence[NodeState]
    ) -> _Clearing | None:
        """Return moves out of ``inside``, cheapest per GPU first, until ``task`` fits there."""
        demand = task.demand
        if sum(machine.gpus // demand.whole for machine in inside) < demand.gang:
            return None
        within = {machine.index for machine in inside}
        left = {machine.index: (machine.idle, machine.cpus, machine.memory) for machine in own}
        movable = [
            run
            for run in view.running.values()
            if len(run.held) == 1 and run.held[0][0].index in within and run.task.demand.whole and not run.beside
            and run.task.training is None and run.computing_s is not None
        ]  # fmt: skip
        moves: list[tuple[Run, int]] = []
        for run in sorted(movable, key=lambda run: (_lost_s(view, run), _state_gb(view, run), -run.gpus, run.id)):
            if whole_sum(_instances(left[node], demand) for node in within) >= demand.gang:
                break
            count, source = run.instances, run.held[0][0].index
            targets = [
                (left[machine.index], machine.index)
                for machine in own
                if machine.index not in within
                and machine.room(run.task.demand) >= count
                and _instances(left[machine.index], run.task.demand) >= count
            ]
            if not targets:
                continue
            _, node = min(targets)
            left[node] = _after(left[node], run.task.demand, -count)
            left[source] = _after(left[source], run.task.demand, count)
            moves.append((run, node))
        enough = whole_sum(_instances(left[node], demand) for node in within) >= demand.gang
        if not (enough and 0 < len(moves) <= self.most_moves):
            return None
        away_s = view.expected_moves_s([(run, (Share(node, run.instances),)) for run, node in moves])
        costs = [run.gpus * (_lost_s(view, run) + seconds) for (run, _), seconds in zip(moves, away_s, strict=True)]
        return _Clearing(ordered_sum(costs), tuple(moves))

    def _wait_s(self, view: ClusterView, task: TaskState) -> float:
        """Return the seconds until the task would start without any moves."""
        return self._reserved(view, task).shadow.time_s - view.now


_Free: TypeAlias = tuple[int, int, int]
"""Idle GPUs of a node, and its free CPUs and memory in millionths."""


def _instances(free: _Free, demand: DemandClass) -> int:
    """Return the number of instances with whole GPUs that fit."""
    asked = demand.whole, demand.cpus, demand.memory
    return min([has // amount for has, amount in zip(free, asked, strict=True) if amount])


def _after(free: _Free, demand: DemandClass, count: int) -> _Free:
    """Return a node's free resources after ``count`` instances have left."""
    gpus, cpus, memory = free
    return gpus + count * demand.whole, cpus + count * demand.cpus, memory + count * demand.memory


def _lost_s(view: ClusterView, run: Run) -> float:
    """Return how many seconds of computation a run loses if it moves."""
    kept = view.preemption.on_resume == "resume" or run.computing_s is None
    return 0.0 if kept else view.now - run.computing_s  # type: ignore[operator]


def _state_gb(view: ClusterView, run: Run) -> float:
    """Return how many GB a run has to save."""
    return run.task.task.memory_gb * run.instances if view.preemption.on_resume == "resume" else 0.0


def _filled(machines: Iterable[NodeState], whole: int, gang: int) -> Placement:
    """Return the placement that a gang would get if these machines were empty."""
    taken = []
    for machine in machines:
        count = min(gang, machine.gpus // whole)
        if count:
            taken.append((machine.index, count))
            gang -= count
    return _placement(taken)


def _spread_costs(view: ClusterView, task: TaskState, spread: Placement, compact: Placement, whole: float) -> float:
    """Return how much longer a gang with ``whole`` GPU-seconds of work takes on ``spread`` than on
    ``compact``, in GPU-seconds."""
    slow, fast = (max(view.expected_rate(task, way), 1e-9) for way in (spread, compact))
    return whole * (1 / slow - 1 / fast)
