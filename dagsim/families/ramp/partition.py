"""Partitioners, and graphs of pieces. A partitioner decides into how many pieces each operation is
split.

The graph of pieces is stored by operation, not by piece, because all pieces of an operation are
equal. An edge between two operations stands for the edges between all pairs of their pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import NamedTuple

import numpy as np

from dagsim.errors import ModelError, require
from dagsim.families.ramp.decisions import Rules
from dagsim.families.ramp.graph import ComputationGraph
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.registry import Entry, Registry

Partitioner = Callable[[ComputationGraph, int, Rules], tuple[int, ...]]
"""A deterministic function from a graph, a degree and the rules to the number of pieces of each
operation."""

PARTITIONERS: Registry[Partitioner] = Registry(
    "partitioner",
    (
        Entry(
            "sip_ml",
            "dagsim.families.ramp.partition:SipMlPartition",
            "an even number of pieces of about one quantum, at most the degree",
        ),
        Entry(
            "random",
            "dagsim.families.ramp.partition:RandomPartition",
            "pieces drawn per operation from 1, 2, 4, ... degree",
        ),
    ),
    method="__call__",
)


class PieceEdge(NamedTuple):
    """All dependencies between the pieces of two pass operations. Each of them transfers
    ``pair_bytes``."""

    source: int
    target: int
    pair_bytes: float


class PartitionedGraph(NamedTuple):
    """Pass operations, split into pieces. Forward operations come first, then their mirrors."""

    graph: ComputationGraph
    splits: tuple[int, ...]
    pieces: tuple[int, ...]
    """Number of pieces of each pass operation."""
    memory_bytes: tuple[float, ...]
    """Memory of one piece of either pass, for each operation."""
    edges: tuple[PieceEdge, ...]
    """Forward edges, backward edges, joins."""
    sync_bytes: tuple[float, ...]
    """Bytes that each ordered pair of pieces of an operation's mirror exchanges, or 0 if it is not
    split."""

    @property
    def degree(self) -> int:
        """The largest number of pieces that any operation has."""
        return max(self.splits)

    @property
    def ops(self) -> int:
        """The number of pieces of all pass operations together."""
        return whole_sum(self.pieces)

    @property
    def deps(self) -> int:
        """The number of dependencies between pieces, including weight exchanges."""
        pairs = whole_sum(self.pieces[edge.source] * self.pieces[edge.target] for edge in self.edges)
        return pairs + whole_sum(count * (count - 1) for count in self.splits)

    @property
    def total_memory_bytes(self) -> float:
        """The memory of all pieces in both passes, in bytes."""
        return ordered_sum(2 * count * memory for count, memory in zip(self.splits, self.memory_bytes, strict=True))

    @property
    def total_dep_bytes(self) -> float:
        """The bytes of all dependencies, including weight exchanges."""
        between = ordered_sum(
            self.pieces[edge.source] * self.pieces[edge.target] * edge.pair_bytes for edge in self.edges
        )
        return between + ordered_sum(
            count * (count - 1) * size for count, size in zip(self.splits, self.sync_bytes, strict=True)
        )


class SipMlPartition:
    """Splits each operation into one piece, or into an even number of pieces. Each piece then takes
    about one quantum in the forward pass.

    This rule is from Khani et al. 2021 (SiP-ML, SIGCOMM). ddls uses it as well.
    """

    def __call__(self, graph: ComputationGraph, degree: int, rules: Rules) -> tuple[int, ...]:
        """Return the number of pieces of each operation, at most ``degree``.

        Raises:
            ModelError: ``degree`` is below 1, or odd and above 1.
        """
        if degree < 1 or (degree > 1 and degree % 2):
            raise ModelError(f"a degree must be 1 or even, got {degree!r}")
        wished = (2 * ceil(ceil(op.forward_s / rules.quantum_s) / 2) for op in graph.ops)
        return tuple(max(1, min(pieces, degree)) for pieces in wished)


class RandomPartition:
    """Draws the number of pieces of each operation from the powers of two (including 1) up to
    ``degree``. For the same ``seed``, graph and degree, the draw is the same.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def __call__(self, graph: ComputationGraph, degree: int, rules: Rules) -> tuple[int, ...]:
        """Return the number of pieces of each operation.

        Raises:
            ModelError: ``degree`` is below 1.
        """
        require(degree >= 1, "a degree must be 1 or more", degree, ModelError)
        rng = np.random.default_rng([self.seed, int(graph.digest, 16), degree])
        choices = [1 << power for power in range(degree.bit_length())]
        return tuple(int(pieces) for pieces in rng.choice(choices, len(graph)))


def partitioned(graph: ComputationGraph, splits: tuple[int, ...], rules: Rules) -> PartitionedGraph:
    """Build the graph of pieces.

    Raises:
        ModelError: There is not one count per operation, or a count is neither 1 nor even.
    """
    count = len(graph)
    if len(splits) != count:
        raise ModelError(f"graph {graph.model!r} has {count} operations, but {len(splits)} counts of pieces were given")
    for op, pieces in zip(graph.ops, splits, strict=True):
        if pieces != 1 and (pieces < 1 or pieces % 2):
            raise ModelError(
                f"graph {graph.model!r}: op {op.id!r} must be split into 1 or an even number, got {pieces!r}"
            )
    ends = [
        *graph.edges,
        *((count + child, count + parent) for parent, child in graph.edges),
        *((op, count + op) for op in ((graph.last,) if rules.joins == "last" else graph.sinks)),
    ]
    total = _in_memory if rules.flow_bytes == "memory" else _of_output
    edges = tuple(
        PieceEdge(
            source, target, total(graph, splits, source, target) / (splits[source % count] * splits[target % count])
        )
        for source, target in ends
    )
    weights = [op.memory_bytes if rules.sync_bytes == "memory" else op.parameter_bytes for op in graph.ops]
    return PartitionedGraph(
        graph,
        splits,
        splits * 2,
        tuple(op.memory_bytes / pieces for op, pieces in zip(graph.ops, splits, strict=True)),
        edges,
        tuple(size / pieces if pieces > 1 else 0.0 for size, pieces in zip(weights, splits, strict=True)),
    )


def _of_output(graph: ComputationGraph, splits: tuple[int, ...], source: int, target: int) -> float:
    """Return the bytes of the output of the operation that sends data over this edge in the forward
    pass. In the backward pass, a gradient of the same size is sent back.
    """
    count = len(graph)
    producer = source if source < count else target - count
    return graph.ops[producer].activation_bytes


def _in_memory(graph: ComputationGraph, splits: tuple[int, ...], source: int, target: int) -> float:
    """Of the two operations that an edge joins, take the one that ddls splits first, and return the
    bytes of its output and weights. This is an operation with a single piece or, if both have
    several pieces, the one with the lower number.
    """
    count = len(graph)
    one, other = source % count, target % count
    if splits[one] == 1:
        first = one
    elif splits[other] == 1:
        first = other
    else:
        first = min(one, other)
    return graph.ops[first].memory_bytes
