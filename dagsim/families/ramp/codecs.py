"""RAMP's codec. Each row of an observation stands for one way to partition the waiting job, and a
choice selects a row.

Features describe the job, its graph and the servers. They are scaled to about 1, and computed in
NumPy. The features of the graph are those of PAC-ML: they describe the graph with both passes,
before it is split. Two features that ddls computes wrongly are corrected. In ddls, the operation
that costs most is always number 0, and the sum of sizes is close to 0 for all jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, log1p, log2
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dagsim.errors import ConfigError, IllegalDecision, require
from dagsim.families.ramp.bounded import Bounded
from dagsim.families.ramp.decisions import Partition
from dagsim.families.ramp.fabric import Fabric, bit_mask
from dagsim.families.ramp.graph import ComputationGraph
from dagsim.families.ramp.view import ARRIVALS, SIZES, RampView, Room, Way, ways_in_time
from dagsim.families.ramp.workload import RampJob
from dagsim.registry import Entry, Registry

RAMP_CODECS: Registry[Any] = Registry(
    "codec",
    [Entry("partition", ".codecs:PartitionConfig", "a degree, and optionally a block of servers (PAC-ML)")],
    group="dagsim.ramp_codecs",
    listing="dagsim list codecs",
    home="dagsim.families.ramp",
    method="build",
)
"""Codecs of RAMP, by name."""


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """Settings of RAMP's codec. The first row of an observation rejects the job. Every other row
    stands for a degree of partitioning at which the job can be placed now (Parsonson et al. 2023).
    """

    blocks: int = 0
    """Maximum number of rows for each degree. Each row then also determines the servers, because it
    stands for a degree on one particular block of servers. The rows are for the blocks that leave the
    most space for later jobs. With 0, the scenario's placer chooses the servers.
    """
    outlooks: bool = True
    """Add features from the look-ahead: the outcome of each row, and the blocks that become free.
    Also omit rows with which the job would be too slow. With false, an agent has the same
    information as PAC-ML's agent: the job, its graph, the numbers of busy servers and running jobs,
    and the degrees that the rules allow. Under the rules of ``ddls``, it may be impossible to place
    the job with one of these degrees.
    """
    kind: Literal["partition"] = "partition"

    version: ClassVar[int] = 1

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        require(self.blocks >= 0, "codec: blocks must be 0 or more", self.blocks)
        if self.blocks and not self.outlooks:
            raise ConfigError("codec: choosing blocks requires outlooks=true")

    @property
    def features(self) -> dict[str, tuple[str, ...]]:
        """The names of the columns in each part of an observation."""
        return {
            "tokens": ROW_FEATURES,
            "context": CONTEXT,
            "gpus": TYPE_FEATURES,
            "ops": OP_FEATURES,
            "deps": DEP_FEATURES,
        }

    def build(self) -> RampCodec:
        """Build a codec for one simulation."""
        return RampCodec(blocks=self.blocks, outlooks=self.outlooks)


OP_FEATURES = ("compute", "is_max_compute", "memory", "is_max_memory", "depth")
"""Features of an operation, each relative to the largest value in the graph."""

DEP_FEATURES = ("size", "is_max_size")

JOB_FEATURES = (
    "num_ops", "num_deps", "sequential_s", "acceptable_s", "beta", "raw_beta", "memory_bytes", "dep_bytes", "steps",
    "mean_compute", "median_compute", "mean_memory", "median_memory", "mean_dep", "median_dep", "mounted_workers",
    "jobs_running",
)  # fmt: skip
"""Features of the job.

The first nine, except the raw beta, are scaled between the smallest and the largest value of the
examples. Then come means and medians relative to the largest value in the graph, then fractions of
the servers.
"""

_ROOM = tuple(f"{size} free in {ahead}" for ahead in ARRIVALS for size in SIZES)

CONTEXT = (*JOB_FEATURES, *_ROOM)
"""Job features, then the fraction of blocks of each size that will be free k arrivals from now."""

ROW_FEATURES = (
    "turned away",
    "in time",
    "over acceptable",
    "degree",
    "log degree",
    "servers",
    "server time",
    "arrivals",
    "left idle",
    *(f"{size} lost in {ahead}" for ahead in ARRIVALS for size in SIZES),
    *(f"{size} scarcer in {ahead}" for ahead in ARRIVALS for size in SIZES),
)
"""Features of a choice:

- completion time divided by the acceptable one (at most 2)
- servers, as a fraction of all
- their total time divided by the time that one GPU needs (at most 4, halved)
- arrivals until the end, on a log scale
- the part of a gap between arrivals for which its servers stay idle after it
- the blocks that it takes (4 times the fraction)
- the increase of 1 / (1 + free blocks)
"""

TYPE_FEATURES = ("share", "free", "speed")
"""Features of a GPU type: its servers and its free servers as fractions of all, and its rate
divided by that of the fastest type."""

Float32s = NDArray[np.float32]


class GraphArrays(NamedTuple):
    """The features that depend only on the graph. ``ops`` contains the operations of both
    passes."""

    ops: Float32s  # shape (ops, 5)
    deps: Float32s  # shape (deps, 2)
    sources: NDArray[np.int64]  # shape (deps,): indices of rows in ``ops``
    targets: NDArray[np.int64]  # shape (deps,)
    means: tuple[float, ...]
    counts: tuple[float, float]
    """Numbers of operations and dependencies."""
    bytes: tuple[float, float]
    """Sums of memory and of dependencies."""


class JobRanges:
    """The smallest and the largest value of each job feature among the examples.

    Raises:
        ConfigError: There are no examples.
    """

    def __init__(self, examples: Sequence[RampJob]) -> None:
        if not examples:
            raise ConfigError("the codec needs example jobs to determine its ranges, got none")
        graphs = list({job.graph.digest: job.graph for job in examples}.values())
        figures: list[list[float]] = [
            [2 * len(graph) for graph in graphs],
            [2 * len(graph.edges) + 1 for graph in graphs],
            [job.sequential_s for job in examples],
            [job.acceptable_s for job in examples],
            [job.beta for job in examples],
            [graph.memory_bytes for graph in graphs],
            [graph.dep_bytes for graph in graphs],
            [job.steps for job in examples],
        ]
        self._limits = [(min(values), max(values)) for values in figures]

    def row(self, view: RampView, graph: GraphArrays) -> list[float]:
        """Return the ``JOB_FEATURES`` of the waiting job, whose graph has the arrays ``graph``."""
        job, servers, means = view.job, view.fabric.servers, graph.means
        figures = (*graph.counts, job.sequential_s, job.acceptable_s, job.beta, *graph.bytes, job.steps)
        ranged = [_between(value, *limits) for value, limits in zip(figures, self._limits, strict=True)]
        ranged.insert(5, job.beta)
        return [*ranged, *means, 1 - view.free / servers, view.running / servers]


def graph_arrays(graph: ComputationGraph) -> GraphArrays:
    """Encode a graph as arrays."""
    count = len(graph)
    compute = _over_largest(graph.costs())
    memory = _over_largest([op.memory_bytes for op in graph.ops] * 2)
    depth = _over_largest(graph.depths())
    ends = [
        *graph.edges,
        *((count + child, count + parent) for parent, child in graph.edges),
        (graph.last, count + graph.last),
    ]
    size = _over_largest([graph.ops[source % count].activation_bytes for source, _ in ends])
    both = np.array(ends, np.int64).reshape(-1, 2)
    means = [figure for part in (compute, memory, size) for figure in (float(part.mean()), float(np.median(part)))]
    return GraphArrays(
        np.stack([compute, compute == 1, memory, memory == 1, depth], axis=1).astype(np.float32),
        np.stack([size, size == 1], axis=1).astype(np.float32),
        both[:, 0].copy(),
        both[:, 1].copy(),
        tuple(means),
        (2 * len(graph), 2 * len(graph.edges) + 1),
        (graph.memory_bytes, graph.dep_bytes),
    )


def type_rows(fabric: Fabric, occupied: int) -> Float32s:
    """Return the ``TYPE_FEATURES`` of the fabric's GPU types. Shape (types, 3)."""
    servers, fastest = fabric.servers, max(gpu.tflops() for gpu in fabric.types)
    rows = []
    for place, gpu in enumerate(fabric.types):
        mine = [server for server, type_ in enumerate(fabric.type_of) if type_ == place]
        free = sum(1 for server in mine if not occupied >> server & 1)
        rows.append((len(mine) / servers, free / servers, gpu.tflops() / fastest))
    return np.array(rows, np.float32)


def _between(value: float, least: float, most: float) -> float:
    """Scale a value so that ``least`` becomes 0 and ``most`` becomes 1. Return 1 if both are equal,
    because ddls does so.
    """
    return min(max((value - least) / (most - least), 0.0), 1.0) if most > least else 1.0


def _over_largest(values: Sequence[float]) -> NDArray[np.float64]:
    array = np.array(values, np.float64)
    largest = float(array.max())
    return array / largest if largest > 0 else array


_PLAIN = ROW_FEATURES.index("left idle") + 1
"""Number of features of a row that precede those for the room that it takes."""


class RampObservation(NamedTuple):
    """An observation: the ways to partition the job (the first one rejects it), the job, and its
    graph.
    """

    tokens: Float32s  # shape (ways, ROW_FEATURES)
    context: Float32s  # shape (CONTEXT,)
    gpus: Float32s  # shape (types, TYPE_FEATURES)
    ops: Float32s  # shape (ops, OP_FEATURES), for both passes
    deps: Float32s  # shape (deps, DEP_FEATURES)
    sources: NDArray[np.int64]  # shape (deps,): indices of rows in ``ops``
    targets: NDArray[np.int64]  # shape (deps,)

    @property
    def is_forced(self) -> bool:
        """True if there is only one choice."""
        return len(self.tokens) <= 1


class RampCodec:
    """Encodes the waiting job. A choice is a row of the observation.

    Each job feature is scaled to its range in ``examples``, and clipped. The examples are jobs
    similar to the future ones (default: the examples of the kernel). ``blocks`` and ``outlooks``
    have the same meaning as in ``PartitionConfig``.
    """

    def __init__(self, examples: Sequence[RampJob] = (), *, blocks: int = 0, outlooks: bool = True) -> None:
        self.blocks = blocks
        self.outlooks = outlooks
        self.ways: tuple[Way, ...] = ()
        """The rows of the last observation."""
        self._ranges = JobRanges(examples) if examples else None
        self._view: RampView | None = None

    def encode(self, view: RampView) -> RampObservation | None:
        """Encode the view. Return None if the job can only be rejected.

        Raises:
            ConfigError: Neither the codec nor the kernel has examples of jobs.
        """
        self._view = view
        room = Room(view) if self.outlooks else None
        ways = list(ways_in_time(view) if self.blocks else self._ways(view))
        left = None
        if ways and room is not None:
            left = room.after([way.servers for way in ways], [view.now + way.jct_s for way in ways])
            if self.blocks:
                chosen = self._roomiest(ways, left)
                ways, left = [ways[place] for place in chosen], left[chosen]
        self.ways = (Way(0, 0, 0.0), *ways)
        if not ways:
            return None
        if self._ranges is None:
            if not view.examples:
                raise ConfigError(
                    "the codec needs example jobs to determine its ranges, but neither the codec nor the kernel has any"
                )
            self._ranges = JobRanges(view.examples)
        graph = _arrays_of(view)
        free = np.zeros(len(_ROOM)) if room is None else (room.before / room.counts).ravel()
        context = np.array([*self._ranges.row(view, graph), *free.tolist()], np.float32)
        types = type_rows(view.fabric, view.occupied)
        return RampObservation(self._rows(view, room, left), context, types, *graph[:4])

    def decode(self, view: RampView, choice: int) -> Iterable[Partition]:
        """Return the decision that a row represents.

        Raises:
            IllegalDecision: There is no such row.
        """
        if not 0 <= choice < len(self.ways):
            raise IllegalDecision(f"at {view.now:g} s: the choice must be from 0 to {len(self.ways) - 1}, got {choice}")
        way = self.ways[choice]
        return (Partition(view.number, way.degree, servers=way.servers if self.blocks and way.degree else None),)

    def choice_of(self, decisions: Iterable[Partition]) -> int | None:
        """Return the row that matches the decision of a heuristic, with the same servers and the
        same completion time. Return None if there is none.
        """
        decision = next(iter(decisions), None)
        if decision is None or not decision.degree:
            return 0
        if not self.outlooks:
            return self.row_of(decision.degree)
        assert self._view is not None
        outlook = self._view.outlook(decision.degree, decision.placer, decision.servers)
        if outlook is None:
            return 0
        mask = bit_mask(outlook.placement.servers)
        for row, way in enumerate(self.ways):
            if way.servers == mask and (way.degree == decision.degree or way.jct_s == outlook.jct_s):
                return row
        return None

    def row_of(self, degree: int) -> int | None:
        """Return the first row with this degree, or None if there is no such row."""
        return next((row for row, way in enumerate(self.ways) if way.degree == degree), None)

    def _ways(self, view: RampView) -> Iterator[Way]:
        """Yield one way for each degree, on the servers that the placer chooses. If outlooks are
        hidden, all degrees that may be chosen are yielded.
        """
        limit_s = view.rules.limit_s(view.job.acceptable_s)
        for degree in view.degrees[1:]:
            if not self.outlooks:
                yield Way(degree, 0, 0.0)
                continue
            outlook = view.outlook(degree)
            if outlook is not None and outlook.jct_s <= limit_s:
                yield Way(degree, bit_mask(outlook.placement.servers), outlook.jct_s)

    def _roomiest(self, ways: Sequence[Way], left: NDArray[np.int64]) -> list[int]:
        """Return the indices of the ways to show, best first. For each degree, these are the ways
        that leave the fewest block sizes scarce.
        """
        worth = -(1 / (1 + left)).sum(axis=(1, 2))
        order = sorted(range(len(ways)), key=lambda place: (ways[place].degree, -worth[place]))
        shown: dict[int, list[int]] = {}
        for place in order:
            of_degree = shown.setdefault(ways[place].degree, [])
            if len(of_degree) < self.blocks:
                of_degree.append(place)
        return [place for of_degree in shown.values() for place in of_degree]

    def _rows(self, view: RampView, room: Room | None, left: NDArray[np.int64] | None) -> Float32s:
        """Return the features of each way. Shape (ways, features).

        ``left``, (ways - 1, arrivals, sizes), is the number of blocks that remain free after each
        way except the first.
        """
        rows = np.zeros((len(self.ways), len(ROW_FEATURES)), np.float32)
        rows[0, 0] = 1.0
        most, job, servers = view.rules.max_degree, view.job, view.fabric.servers
        if room is None or left is None:
            rows[1:, 3:5] = [(way.degree / most, log2(way.degree) / 4) for way in self.ways[1:]]
            return rows
        times_s = (job.acceptable_s, job.sequential_s, room.gap_s)
        acceptable_s, sequential_s, gap_s = (max(time_s, 1e-300) for time_s in times_s)
        values = []
        for degree, mask, jct_s in self.ways[1:]:
            held, gaps = mask.bit_count(), jct_s / gap_s
            over, cost = min(jct_s / acceptable_s, 2.0), min(held * jct_s / sequential_s, 4.0) / 2
            idle = ceil(gaps) - gaps
            values.append((0, 1, over, degree / most, log2(degree) / 4, held / servers, cost, log1p(gaps) / 3, idle))
        rows[1:, :_PLAIN] = values
        lost = (room.before[None] - left) / room.counts
        scarcer = 1 / (1 + left) - 1 / (1 + room.before[None])
        rows[1:, _PLAIN:] = np.concatenate([4 * lost, scarcer], axis=1).reshape(len(left), -1)
        return rows


_graphs: Bounded[str, GraphArrays] = Bounded(1000)


def _arrays_of(view: RampView) -> GraphArrays:
    """Return the arrays for the job's graph. They are cached per graph."""
    graph = view.job.graph
    arrays = _graphs.get(graph.digest)
    if arrays is None:
        arrays = _graphs[graph.digest] = graph_arrays(graph)
    return arrays
