"""Features of the job that waits, of its graph and of the servers, as numbers of about 1. NumPy only.

The graph's are PAC-ML's: unsplit, both passes. Two of ddls' are put right: which operation costs the most (ddls has 0
everywhere), and the sum of sizes (there close to 0 for all).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dagsim.errors import ConfigError
from dagsim.systems.ramp.fabric import Fabric
from dagsim.systems.ramp.graph import ComputationGraph
from dagsim.systems.ramp.job import RampJob
from dagsim.systems.ramp.room import ARRIVALS, SIZES
from dagsim.systems.ramp.view import RampView

__all__ = [
    "CONTEXT",
    "DEP_FEATURES",
    "JOB_FEATURES",
    "OP_FEATURES",
    "ROW_FEATURES",
    "TYPE_FEATURES",
    "GraphArrays",
    "JobRanges",
    "graph_arrays",
    "type_rows",
]

OP_FEATURES = ("compute", "is_max_compute", "memory", "is_max_memory", "depth")
"""Each over the largest of the graph."""

DEP_FEATURES = ("size", "is_max_size")

JOB_FEATURES = (
    "num_ops",
    "num_deps",
    "sequential_s",
    "acceptable_s",
    "beta",
    "raw_beta",
    "memory_bytes",
    "dep_bytes",
    "steps",
    "mean_compute",
    "median_compute",
    "mean_memory",
    "median_memory",
    "mean_dep",
    "median_dep",
    "mounted_workers",
    "jobs_running",
)
"""The first nine, but for the raw beta, between the smallest and the largest of the examples; then means and medians
over the largest of the graph; then fractions of the servers."""

_ROOM = tuple(f"{size} free in {ahead}" for ahead in ARRIVALS for size in SIZES)

CONTEXT = (*JOB_FEATURES, *_ROOM)
"""The job, and the fraction of the blocks of so many servers that are free so many arrivals from now."""

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
"""Of a choice: completion time over the acceptable one (at most 2), servers of all, their time over what one GPU needs
(at most 4, halved), arrivals until the end on a log scale, the part of a gap that its servers idle after it, the blocks
it takes (4 times the fraction), and by how much it raises 1 / (1 + free blocks)."""

TYPE_FEATURES = ("share", "free", "speed")
"""Of a GPU type: servers of all, free ones of all, rate over the fastest type's."""

Floats = NDArray[np.float32]


class GraphArrays(NamedTuple):
    """The features that depend on the graph alone; ``ops`` counts both passes."""

    ops: Floats  # (ops, 5)
    deps: Floats  # (deps, 2)
    sources: NDArray[np.int64]  # (deps,), rows of ``ops``
    targets: NDArray[np.int64]  # (deps,)
    means: tuple[float, ...]
    counts: tuple[float, float]
    """Operations and dependencies."""
    bytes: tuple[float, float]
    """Of memory and of dependencies."""


class JobRanges:
    """The smallest and the largest of each figure among jobs like those to come.

    Raises:
        ConfigError: There are none.
    """

    def __init__(self, examples: Sequence[RampJob]) -> None:
        if not examples:
            raise ConfigError("the codec needs jobs to take its ranges from, got none")
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
        """The ``JOB_FEATURES`` of the job that waits, whose graph that is."""
        job, servers, means = view.job, view.fabric.servers, graph.means
        figures = (*graph.counts, job.sequential_s, job.acceptable_s, job.beta, *graph.bytes, job.steps)
        ranged = [_between(value, *limits) for value, limits in zip(figures, self._limits, strict=True)]
        ranged.insert(5, job.beta)
        return [*ranged, *means, 1 - view.free / servers, view.running / servers]


def graph_arrays(graph: ComputationGraph) -> GraphArrays:
    """The graph in arrays."""
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


def type_rows(fabric: Fabric, occupied: int) -> Floats:
    """(types, 3) the ``TYPE_FEATURES`` of the fabric."""
    servers, fastest = fabric.servers, max(gpu.tflops() for gpu in fabric.types)
    rows = []
    for place, gpu in enumerate(fabric.types):
        mine = [server for server, type_ in enumerate(fabric.type_of) if type_ == place]
        free = sum(1 for server in mine if not occupied >> server & 1)
        rows.append((len(mine) / servers, free / servers, gpu.tflops() / fastest))
    return np.array(rows, np.float32)


def _between(value: float, least: float, most: float) -> float:
    """The position of the value from ``least`` (0) to ``most`` (1); 1 where they are equal, as in ddls."""
    return min(max((value - least) / (most - least), 0.0), 1.0) if most > least else 1.0


def _over_largest(values: Sequence[float]) -> NDArray[np.float64]:
    given = np.array(values, np.float64)
    largest = float(given.max())
    return given / largest if largest > 0 else given
