"""The nodes that a job takes among those on which it fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

from dagsim.model import Cluster, Placement, Share
from dagsim.model.arithmetic import bits, whole_sum


class CountedNodes(NamedTuple):
    """A set of nodes (a bit set), and a number of nodes or instances that are needed on it."""

    nodes: int
    number: int


class TimedGroups(NamedTuple):
    """Groups of nodes (bit sets) on which a job has the time limit ``limit_s``. A gang needs nodes
    of a single group."""

    limit_s: float
    groups: tuple[int, ...]


class NodeLayout(NamedTuple):
    """The rules by which the instances of a start are placed on nodes."""

    spread: bool
    """True if each instance takes a node of its own."""
    shares: tuple[CountedNodes, ...] = ()
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
