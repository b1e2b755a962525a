"""The inner loops of Slurm's backfill. They find when a job fits on nodes, and which of these nodes
it takes.

The loops are plain functions over flat sequences. Small simulations pass lists to them. If there is
enough work, ``NodePlan`` compiles the functions and passes arrays (``compiled.jit``). In a sequence
with rows, row ``node`` begins at ``node`` times the stride. Amounts are integer counts of
millionths, stored as floats (exact up to 9e15).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from math import ceil, inf
from operator import or_
from typing import Any, NamedTuple

from dagsim.model import Cluster, Placement, Share
from dagsim.model.arithmetic import bits, whole_sum

MANY = 1099511627776.0
"""Number of instances that are assumed to fit on a node if they need none of its resources."""
FIRST_WINDOW_S = 30.0
"""Length of a forecast's first window."""


class Where(NamedTuple):
    """The nodes on which a demand may start, and the latest start that is considered."""

    nodes: Any
    """The nodes that may be taken, in the order in which they are tried."""
    span: Any
    """The nodes of the partition that are up."""
    asked: Any
    """For each node, 1 if it satisfies the constraint."""
    own: int
    """Number of the site's reservation in which the demand runs, or -2 if there is none."""
    until_s: float
    """The latest start."""


class FitSteps(NamedTuple):
    """The times from which more instances of a demand fit on each node. Rows are one longer than
    the rows of runs.
    """

    times: Any
    rooms: Any
    """The number of instances that fit from each time on."""
    counts: Any
    """Number of steps of each node."""


class Held(NamedTuple):
    """The runs in progress: one row of length ``stride`` per node, sorted by the ends of the time
    limits.
    """

    ends: Any
    """The limit of each run."""
    gives: Any
    """The GPUs, CPUs and memory of each run."""
    runs: Any
    """Number of runs on each node."""
    stride: int
    free: Any
    """The GPUs, CPUs and memory that are free on each node."""


class Limits(NamedTuple):
    """The distinct times at which current runs end, and the rank of each run's end among them, by
    node."""

    order: Any
    """The ends in ascending order."""
    ranks: Any
    """The place in ``order`` of each run's end, in rows of ``stride`` for each node."""
    runs: Any
    """Number of runs on each node."""
    stride: int
    marks: Any
    """As long as ``order``; overwritten."""


class Reserved(NamedTuple):
    """The reservations of each node: one row of length ``stride`` per node. Owners 0 and above
    stand for reservations of the site, negative owners for reservations of jobs.
    """

    begins: Any
    untils: Any
    owners: Any
    counts: Any
    stride: int
    edges: Any
    """The times at which the entries of Slurm's map of reservations begin, in ascending order."""


class SiteClock(NamedTuple):
    """The current time, and the way in which Slurm rounds times on the site's clock. This clock
    shows ``origin_s`` at time 0."""

    now: float
    origin_s: float
    resolution_s: float
    linear_s: float
    """Growth of the windows (``bf_window_linear``); 0 to double them."""


def fill_rooms(
    nodes: Any, held: Held, is_open: Any, is_whole: Any, needs: Any, alone: bool, now: float, steps: FitSteps
) -> None:
    """Compute, for each of ``nodes``, the times from which more instances fit. An instance needs
    the GPUs, CPUs and memory ``needs``.

    Nodes with ``is_whole`` set take instances only while nothing else runs there. If the demand is
    ``alone``, this applies to all nodes. A run that has exceeded its limit may end at any moment,
    so its end is assumed to be 1 s from now.
    """
    ends, gives, runs, stride, free = held
    times, rooms, counts = steps
    need_gpus, need_cpus, need_memory = needs[0], needs[1], needs[2]
    for at in range(len(nodes)):
        node = nodes[at]
        row, step = node * stride, node * (stride + 1)
        gpus, cpus, memory = free[3 * node], free[3 * node + 1], free[3 * node + 2]
        number = runs[node]
        shared = not alone and is_whole[node] == 0
        filled = 0
        for place in range(-1, number):
            if place >= 0:
                give = 3 * (row + place)
                gpus, cpus, memory = gpus + gives[give], cpus + gives[give + 1], memory + gives[give + 2]
            if not shared and place != number - 1:
                continue
            room = MANY
            if need_gpus > 0:
                room = gpus // need_gpus
            if need_cpus > 0:
                room = min(room, cpus // need_cpus)
            if need_memory > 0:
                room = min(room, memory // need_memory)
            if place < 0:
                times[step + filled] = now
                rooms[step + filled] = room if is_open[node] != 0 else 0.0
            else:
                times[step + filled] = max(ends[row + place], now + 1.0)
                rooms[step + filled] = room
            filled += 1
        counts[node] = filled


def earliest(
    where: Where,
    steps: FitSteps,
    limits: Limits,
    kept: Reserved,
    clock: SiteClock,
    least_s: float,
    limit_s: float,
    wanted: float,
    spread: bool,
    after_s: float,
    out: Any,
) -> tuple[float, int, float, float]:
    """Return the first time from ``least_s`` on at which Slurm expects that ``wanted`` instances
    can start and run for ``limit_s``, or infinity if there is none. Also return the first node on
    which an instance then fits, or -1; the possible start time that was tried; and the time up to
    which runs are freed for it. ``out`` is filled with the number of instances that fit on each
    node.

    Slurm tries one start after another: ``least_s`` first, then the end of each reservation that
    keeps the job from nodes in its partition (_attempt_backfill in backfill.c). For each start, it
    considers the nodes that satisfy the constraint and are not reserved during the following
    ``limit_s``, regardless of their GPUs. It assumes that the runs on these nodes end in the order
    of their limits. It frees the resources of all runs that end in a window of time, and then tests
    whether the job fits (_will_run_test in job_test.c). The first window lasts until
    ``FIRST_WINDOW_S`` after the first end, rounded up to a multiple of ``FIRST_WINDOW_S``. Each
    further window ends twice as late, or ``linear_s`` later, or as late as is needed to include the
    next end of a run.

    The reservation ``own`` is ignored. Reservations of the site end at the next multiple of
    ``resolution_s``. With ``spread``, a node takes at most one instance. At ``least_s`` itself,
    only tests after ``after_s`` count, because earlier tests did not find the nodes that the job
    needs.
    """
    nodes, span, asked, own, until_s = where
    times, rooms, counts = steps
    order, ranks, runs, runs_stride, marks = limits
    begins, untils, owners, kept_counts, kept_stride, edges = kept
    now, origin_s, resolution_s, linear_s = clock
    stride = runs_stride + 1
    later_s = least_s
    while later_s <= until_s:
        start_s, end_s, later_s = later_s, later_s + limit_s, inf
        for at in range(len(order)):
            marks[at] = 0
        # Slurm divides time into periods with the same reservations. It looks for nodes that become
        # free at the end of each period, up to the first one that begins after ``end_s``.
        beyond = 0
        while beyond < len(edges) and edges[beyond] <= end_s:
            beyond += 1
        beyond_s, last_s = inf, inf
        if beyond < len(edges):
            beyond_s = edges[beyond]
            last_s = edges[min(beyond + 1, len(edges) - 1)]
        usable = 0
        for at in range(len(span)):
            node = span[at]
            row = node * kept_stride
            last = row + kept_counts[node]
            blocked = False
            for place in range(row, last):
                if untils[place] <= start_s or owners[place] == own:
                    continue
                begin_s = begins[place]
                # A job that starts later has to end before another job's reservation begins. Ending
                # exactly then is not enough.
                in_window = begin_s < end_s or (begin_s == end_s and start_s > now and owners[place] < 0)
                if not in_window and not (owners[place] < 0 and begin_s <= beyond_s < untils[place]):
                    continue
                blocked = blocked or in_window
                free_s = untils[place]
                if owners[place] >= 0:
                    free_s = ceil((free_s + origin_s) / resolution_s) * resolution_s + 1.0 - origin_s
                other = row
                while other < last and free_s < later_s:
                    if begins[other] <= free_s < untils[other] and owners[other] != own:
                        if owners[place] >= 0 or owners[other] >= 0:
                            break
                        # Another reservation follows immediately. Slurm merges both periods if
                        # they cover the same nodes.
                        free_s, other = untils[other], row
                        continue
                    other += 1
                if other == last and free_s < later_s and (owners[place] >= 0 or free_s <= last_s):
                    later_s = free_s
            out[node] = 0.0 if blocked else 1.0
            if not blocked and asked[node] != 0:
                usable += 1
                for place in range(node * runs_stride, node * runs_stride + runs[node]):
                    marks[ranks[place]] = 1
        # ``least`` is the earliest time at which an instance fits on any node. ``most`` is how many
        # instances fit once all runs have ended.
        least, most = inf, 0.0
        for index in range(len(nodes) if usable else 0):
            node = nodes[index]
            step, last = node * stride, node * stride + counts[node] - 1
            if out[node] > 0 and last >= step and rooms[last] > 0:
                most += 1.0 if spread else rooms[last]
                while rooms[step] <= 0:
                    step += 1
                least = min(least, times[step])
        if most < wanted:
            continue
        anchor_s, window_s, freed_s = inf, FIRST_WINDOW_S, now
        at = -1
        while True:
            total = wanted if wanted == 1 and freed_s >= least else 0.0
            for index in range(len(nodes) if wanted > 1 and freed_s >= least else 0):
                node = nodes[index]
                if out[node] > 0:
                    step = node * stride
                    room = 0.0
                    for place in range(step, step + counts[node]):
                        if times[place] > freed_s:
                            break
                        room = rooms[place]
                    if room > 0:
                        total += 1.0 if spread else room
            if total >= wanted and (freed_s > after_s or start_s > least_s):
                break
            at += 1
            # Find the next end of a run on these nodes.
            while at < len(order) and marks[at] == 0:
                at += 1
            if at >= len(order):
                freed_s = inf
                break
            if anchor_s == inf:
                anchor_s = order[at] + FIRST_WINDOW_S - (order[at] + origin_s) % FIRST_WINDOW_S
            while at + 1 < len(order) and order[at + 1] <= anchor_s + window_s:
                further = at + 1
                while further < len(order) and marks[further] == 0:
                    further += 1
                if further >= len(order):
                    break
                at = further
            freed_s = order[at]
            while True:
                window_s = window_s + linear_s if linear_s > 0 else 2.0 * window_s
                if at + 1 >= len(order) or order[at + 1] <= anchor_s + window_s:
                    break
        begin_s = max(freed_s, start_s)
        if begin_s > later_s or freed_s == inf:
            continue
        if begin_s > until_s:
            return inf, -1, inf, inf
        first = -1
        for index in range(len(nodes)):
            node = nodes[index]
            room, step = 0.0, node * stride
            for place in range(step, step + counts[node] if out[node] > 0 else step):
                if times[place] > freed_s:
                    break
                room = rooms[place]
            out[node] = room
            if room > 0 and first < 0:
                first = node
        return begin_s, first, start_s, freed_s
    return inf, -1, inf, inf


class NodeLayout(NamedTuple):
    """The rules by which the instances of a start are placed on nodes."""

    spread: bool
    """True if each instance takes a node of its own."""
    shares: tuple[tuple[int, int], ...] = ()
    """Sets of nodes, each with a number of nodes that must be chosen from it."""
    idlest: bool = False
    """True if nodes with the largest free fraction come first (LLN)."""
    fewest: int = 1
    """The smallest number of nodes for instances that may share nodes."""
    most: int | None = None
    """The largest number of nodes."""


class NodeChoice:
    """The rule for choosing nodes.

    With ``first``, a job gets the first nodes on which it fits, in the order of the configuration.
    ``best`` is the rule in ``select/cons_tres`` without topology (``_eval_nodes_consec`` in
    eval_nodes.c, Slurm 22.05). It divides the nodes with the smallest weight into blocks of
    consecutive nodes. Among the blocks that suffice, the job uses the one with the fewest free
    CPUs. If a single node in this block suffices, the job takes the one with the fewest free CPUs,
    and otherwise the nodes of the block in order. If no block suffices, the job gets the largest
    blocks in turn, and then nodes with the next weight.
    """

    def __init__(self, cluster: Cluster, *, best: bool) -> None:
        self.in_order = not best
        """True if a job gets the first nodes on which it fits."""
        weights: dict[float, int] = {}
        for index, node in enumerate(cluster.nodes):
            weights[node.weight] = weights.get(node.weight, 0) | 1 << index
        self._weights = [node.weight for node in cluster.nodes]
        self._cpus = [node.cpus or 1.0 for node in cluster.nodes]
        self._by_weight = [weights[weight] for weight in sorted(weights)]
        """Bit sets of the nodes with each weight, smallest weight first."""
        self.asleep = 0
        """The nodes that are powered down, as a bit set: the last ones among those of their weight."""

    def nodes(
        self, nodes: int, room: Mapping[int, int], free: Mapping[int, int], wanted: int, layout: NodeLayout
    ) -> int:
        """Return the nodes that ``counts`` chooses, as a bit set, or 0 if the instances do not
        fit."""
        return sum([1 << node for node in self.counts(nodes, room, free, wanted, layout)])

    def counts(
        self, nodes: int, room: Mapping[int, int], free: Mapping[int, int], wanted: int, layout: NodeLayout
    ) -> dict[int, int]:
        """Choose nodes for ``wanted`` instances among ``nodes``. ``room`` is the number of
        instances that fit on each node, and ``free`` is the number of free CPUs on each node.

        Sets of nodes in the layout's ``shares`` are served first, one set at a time. With
        ``idlest``, nodes with the largest free fraction come first among nodes with equal weights
        (``_eval_nodes_lln``). If this takes more nodes than allowed, the choice is repeated without
        the nodes with the fewest free CPUs (``choose_nodes``). Return the number of instances on
        each chosen node, in the order of choice. Each node is filled, but one instance is left for
        each further node that is needed (``_cpus_to_use``). The last node takes the rest. The
        result is empty if the instances do not fit.
        """
        counts = self._counts(nodes, room, free, wanted, layout)
        if counts or layout.most is None or layout.spread:
            return counts
        kept = reduce(or_, [share for share, _ in layout.shares], 0)
        for cpus in sorted({free[node] for node in bits(nodes)}):
            nodes = sum([1 << node for node in bits(nodes) if free[node] > cpus or kept >> node & 1])
            if whole_sum(room[node] for node in bits(nodes)) < wanted:
                break
            if counts := self._counts(nodes, room, free, wanted, layout):
                break
        return counts

    def _counts(
        self, nodes: int, room: Mapping[int, int], free: Mapping[int, int], wanted: int, layout: NodeLayout
    ) -> dict[int, int]:
        """Return ``counts`` for all nodes, or an empty result if too many nodes would be needed."""
        counts: dict[int, int] = {}
        spread, left, fewest = layout.spread, wanted, layout.fewest
        for share, number in layout.shares:
            open_ = nodes & share & ~sum([1 << node for node in counts])
            one = dict.fromkeys(bits(open_), 1)
            own = NodeLayout(spread=True, idlest=layout.idlest)
            part = self._counts(open_, one, free, number, own) if len(one) >= number else {}
            if not part:
                return {}
            counts |= part
        most = wanted if layout.most is None else layout.most
        if len(counts) > (wanted if spread else most):
            return {}
        for place, node in enumerate(counts):  # every required node gets at least one instance
            others = max(len(counts) - place, fewest) - 1
            counts[node] = max(0, min(1 if spread else room[node], left - others))
            left, fewest = left - counts[node], fewest - 1
        chosen = sum([1 << node for node in counts])
        for node in self._order(nodes & ~chosen, room, free, left, layout._replace(fewest=fewest)):
            if left <= 0 or len(counts) == most:
                break
            # Only one more node may be chosen, so skip nodes that cannot take all remaining
            # instances, as Slurm does.
            if len(counts) == most - 1 and room[node] < left and not (spread or layout.idlest):
                continue
            fewest -= 1
            counts[node] = min(1 if spread else room[node], left - max(fewest, 0))
            left -= counts[node]
        return {} if left > 0 else {node: count for node, count in counts.items() if count}

    def _order(
        self, nodes: int, room: Mapping[int, int], free: Mapping[int, int], wanted: int, layout: NodeLayout
    ) -> Iterable[int]:
        """Return nodes in the order in which they are taken for ``wanted`` instances."""
        if layout.idlest:
            return sorted(
                bits(nodes),
                key=lambda node: (self._weights[node], self.asleep >> node & 1, -free[node] / self._cpus[node], node),
            )
        if self.in_order:
            return [*bits(nodes & ~self.asleep), *bits(nodes & self.asleep)]
        return self._best(nodes, room, free, wanted, layout)

    def _best(
        self, nodes: int, room: Mapping[int, int], free: Mapping[int, int], wanted: int, layout: NodeLayout
    ) -> Iterator[int]:
        """Yield nodes in the order in which ``wanted`` instances take them. The order is by weight
        first. Within a weight, nodes that are up precede nodes that are powered down, and nodes are
        taken block by block.
        """
        spread, fewest = layout.spread, layout.fewest
        for of_weight in self._by_weight:
            for group in (nodes & of_weight & ~self.asleep, nodes & of_weight & self.asleep):
                blocks = _blocks(group)
                while wanted > 0 and blocks:
                    fewest = wanted if spread else fewest
                    block = _best_block(blocks, room, free, wanted, fewest, spread)
                    blocks.remove(block)
                    alone = [node for node in block if room[node] >= wanted] if fewest <= 1 else []
                    for node in [min(alone, key=lambda node: (free[node], node))] if alone else block:
                        yield node
                        fewest -= 1
                        wanted -= 1 if spread else min(room[node], wanted - max(fewest, 0))

    def placement(
        self, nodes: int, room: Mapping[int, int], free: Mapping[int, int], wanted: int, layout: NodeLayout
    ) -> Placement | None:
        """Return the choice made by ``counts`` as a placement, or None if the instances do not fit."""
        counts = self.counts(nodes, room, free, wanted, layout)
        return tuple([Share(node, counts[node]) for node in sorted(counts)]) or None


def _best_block(
    blocks: Sequence[list[int]],
    room: Mapping[int, int],
    free: Mapping[int, int],
    wanted: int,
    fewest: int,
    spread: bool,
) -> list[int]:
    """Return the block with the fewest free CPUs among those that suffice. If none suffices,
    return the block with the most free CPUs.
    """
    held = [whole_sum(1 if spread else room[node] for node in block) for block in blocks]
    cpus = [whole_sum(free[node] for node in block) for block in blocks]
    enough = [place for place, count in enumerate(held) if count >= wanted and len(blocks[place]) >= fewest]
    if enough:
        return blocks[min(enough, key=lambda place: (cpus[place], place))]
    return blocks[max(range(len(blocks)), key=lambda place: (cpus[place], -place))]


def _blocks(nodes: int) -> list[list[int]]:
    """Split a set of nodes into blocks of consecutive nodes."""
    blocks: list[list[int]] = []
    for node in bits(nodes):
        if blocks and blocks[-1][-1] == node - 1:
            blocks[-1].append(node)
        else:
            blocks.append([node])
    return blocks
