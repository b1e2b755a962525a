"""The time that each dependency takes on the chosen servers, and the orders in which servers run
operations and channels send data.

A dependency within one server takes no time. Any other dependency takes the time of a transfer, or
the time of the collective to which it belongs. Dependencies between the same two operations that
take the same time also end together. They form one *bundle*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dagsim.families.ramp.decisions import OpPlacement, OpSchedule, Rules
from dagsim.families.ramp.fabric import Fabric, Lane
from dagsim.families.ramp.partition import PartitionedGraph, PieceEdge
from dagsim.model.arithmetic import ordered_sum
from dagsim.registry import Entry, Registry


class Bundle(NamedTuple):
    """Dependencies from the pieces of one pass operation to those of another that take the same
    time."""

    target: int
    seconds: float
    flows: bool
    """True if they are sent over channels; otherwise they are free (within one server, or without
    bytes)."""
    group: int
    """Bundles with one source and group form one collective, so they are sent together."""
    lane: Lane


class TimedGraph(NamedTuple):
    """A partitioned and placed graph with the transfer time of every dependency."""

    parts: PartitionedGraph
    placement: OpPlacement
    bundles: tuple[tuple[Bundle, ...], ...]
    """Bundles that each pass operation releases when its pieces end; edges first, then weight
    exchanges."""
    edges: tuple[tuple[int, int], ...]
    """Source of each edge (``PartitionedGraph.edges``), and the edge's first bundle among the
    source's bundles."""


def timed(parts: PartitionedGraph, placement: OpPlacement, fabric: Fabric, rules: Rules) -> TimedGraph:
    """Return the graph with the transfer time of every dependency."""
    return _Pricing(parts, placement, fabric, rules).priced()


class _Pricing:
    """Computes the transfer times of one placed job."""

    def __init__(self, parts: PartitionedGraph, placement: OpPlacement, fabric: Fabric, rules: Rules) -> None:
        self.parts = parts
        self.fabric = fabric
        self.rules = rules
        self.count = len(parts.graph)
        self.placement = placement
        self.blocks = [placement.block(op) for op in range(self.count)] * 2

    def priced(self) -> TimedGraph:
        bundles: list[list[Bundle]] = [[] for _ in self.blocks]
        collective = self._collectives()
        places = []
        for number, edge in enumerate(self.parts.edges):
            out = bundles[edge.source]
            places.append((edge.source, len(out)))
            together_s = collective.get(number)
            for lane in self.fabric.crossing(self.blocks[edge.source], self.blocks[edge.target]).lanes:
                flows = not lane.local and edge.pair_bytes > 0
                if not flows:
                    out.append(Bundle(edge.target, 0.0, False, 0, lane))
                elif together_s is not None:
                    out.append(Bundle(edge.target, together_s, True, 0, lane))
                else:
                    seconds = self.fabric.topology.transfer_s(lane.key, edge.pair_bytes * lane.sharing)
                    out.append(Bundle(edge.target, seconds, True, len(out) + 1, lane))
        for op, size in enumerate(self.parts.sync_bytes):
            if self.parts.splits[op] > 1:
                self._exchange(op, size, bundles[self.count + op])
        return TimedGraph(self.parts, self.placement, tuple(map(tuple, bundles)), tuple(places))

    def _collectives(self) -> dict[int, float]:
        """Return the duration of the collective to which each edge belongs, in seconds, by the
        edge's number."""
        leaving: dict[int, list[int]] = {}
        entering: dict[int, list[int]] = {}
        for number, edge in enumerate(self.parts.edges):
            leaving.setdefault(edge.source, []).append(number)
            if edge.target >= self.count:
                entering.setdefault(edge.target, []).append(number)
        seconds: dict[int, float] = {}
        if self.rules.collectives == "pair":
            for op in range(self.count):
                self._together(leaving.get(op, ()), op, seconds)
                self._together(entering.get(self.count + op, ()), op, seconds)
        else:
            for op, numbers in leaving.items():
                self._together(numbers, op, seconds)
        return seconds

    def _together(self, numbers: Iterable[int], op: int, prices: dict[int, float]) -> None:
        """Time the edges of ``op`` as one collective if they form one. This is the case if ``op``
        is split, and if the edges end on the same servers on which they start.
        """
        edges = [self.parts.edges[number] for number in numbers]
        if not edges or self.parts.pieces[op] == 1:
            return
        if not self._same_ends(edges):
            for number in numbers:
                prices.pop(number, None)
            return
        group = self.fabric.group(dict.fromkeys(self.blocks[end] for edge in edges for end in edge[:2]))
        seconds = self.fabric.topology.collective_s(group, self._total_bytes(edges))
        for number in numbers:
            prices[number] = seconds

    def _same_ends(self, edges: list[PieceEdge]) -> bool:
        """Return True if each server sends as many dependencies as it receives."""
        if len({self.blocks[end] for edge in edges for end in edge[:2]}) == 1:
            return True
        balance: Counter[int] = Counter()
        for edge in edges:
            for server in self.blocks[edge.source]:
                balance[server] += self.parts.pieces[edge.target]
            for server in self.blocks[edge.target]:
                balance[server] -= self.parts.pieces[edge.source]
        return not any(balance.values())

    def _total_bytes(self, edges: list[PieceEdge]) -> float:
        pieces = self.parts.pieces
        return _summed(tuple((edge.pair_bytes, pieces[edge.source] * pieces[edge.target]) for edge in edges))

    def _exchange(self, op: int, size: float, out: list[Bundle]) -> None:
        """Time the exchange of weights among the pieces of the operation's mirror."""
        mirror, block = self.count + op, self.blocks[op]
        whole = self.fabric.group((block,)) if self.rules.collectives == "operation" else None
        group = -1
        for lane in self.fabric.exchange(block).lanes:
            if not size:
                out.append(Bundle(mirror, 0.0, False, 0, lane))
                continue
            if whole is not None:
                seconds = self.fabric.topology.collective_s(whole, size * len(block))
            else:
                seconds = self.fabric.topology.collective_s(lane.key, size + size)
            out.append(Bundle(mirror, seconds, True, group, lane))
            group -= whole is None


@lru_cache(maxsize=65536)
def _summed(terms: tuple[tuple[float, int], ...]) -> float:
    """Add up all terms ``(size, count)`` in a fixed order, each size ``count`` times. The order
    matters, because ddls rounds sizes up after this sum."""
    if all(count & (count - 1) == 0 for _, count in terms):
        return ordered_sum(size * count for size, count in terms)
    return float(np.cumsum(np.repeat([size for size, _ in terms], [count for _, count in terms]))[-1])


OpScheduler = Callable[[int, PartitionedGraph, Fabric], OpSchedule]

OP_SCHEDULES: Registry[OpScheduler] = Registry(
    "op schedule",
    (
        Entry("srpt", "dagsim.families.ramp.timing:Srpt", "the operation with the shortest piece first (ddls)"),
        Entry("fifo", "dagsim.families.ramp.timing:GraphOrder", "operations in the order of the graph, forward first"),
    ),
    method="__call__",
)


class Srpt:
    """Runs the operation with the shortest piece first. If several operations have equal pieces,
    the later one in topological order comes first. Its mirror comes before it.
    """

    def __call__(self, job: int, parts: PartitionedGraph, fabric: Fabric) -> OpSchedule:
        """Return the rank of each operation on each GPU type."""
        placed = _placed(parts)
        ranks = []
        for gpu in fabric.types:
            costs = parts.graph.costs(gpu.name)
            longest_first = sorted(placed, key=lambda op: -(costs[op] / parts.pieces[op]))
            ranks.append(_ranked(longest_first))
        return OpSchedule(job, tuple(ranks))


class GraphOrder:
    """Runs operations in graph order, forward pass first."""

    def __call__(self, job: int, parts: PartitionedGraph, fabric: Fabric) -> OpSchedule:
        """Return the rank of each operation, the same on every GPU type."""
        count, order = len(parts.graph), parts.graph.order
        last_first = [*(count + op for op in order), *reversed(order)]
        return OpSchedule(job, (_ranked(last_first),) * len(fabric.types))


def _placed(parts: PartitionedGraph) -> list[int]:
    """Return the pass operations in the order in which they are placed: each forward operation,
    followed by its mirror.
    """
    count = len(parts.graph)
    return [op for forward in parts.graph.order for op in (forward, count + forward)]


def _ranked(lowest_first: list[int]) -> tuple[int, ...]:
    ranks = [0] * len(lowest_first)
    for rank, op in enumerate(lowest_first):
        ranks[op] = rank
    return tuple(ranks)
