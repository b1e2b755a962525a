"""From a view to arrays for a learner, and from its choice back to a decision. NumPy only.

The features are PAC-ML's: the graph unsplit, both passes, and the job among the jobs it may meet. Two of ddls' are put
right: which operation costs the most (ddls has 0 everywhere), and the sum of sizes (there close to 0 for all). To these
come, for each degree, what it would come to now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dagsim.errors import ConfigError, IllegalDecision
from dagsim.systems.ramp.decisions import Partition
from dagsim.systems.ramp.graph import ComputationGraph
from dagsim.systems.ramp.job import RampJob
from dagsim.systems.ramp.view import RampView

__all__ = ["DEGREE_FEATURES", "DEP_FEATURES", "JOB_FEATURES", "OP_FEATURES", "RampCodec", "RampObservation"]

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
"""The first nine, but for the raw beta, between the smallest and the largest of the pool; then means and medians over
the largest of the graph; then fractions of the servers."""

DEGREE_FEATURES = ("offered", "in_time", "jct_over_acceptable", "servers", "largest_block_left")
"""Per degree: offered now, in time, its completion time over the acceptable one (at most 2), the servers it takes and
the largest block that it leaves free (both over all servers); 0 where it is not offered."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class RampObservation:
    """One view in arrays; ``ops`` counts both passes."""

    ops: Floats  # (ops, 5)
    deps: Floats  # (deps, 2)
    sources: NDArray[np.int64]  # (deps,), rows of ``ops``
    targets: NDArray[np.int64]  # (deps,)
    job: Floats  # (17,)
    degrees: Floats  # (max degree + 1, 5)
    mask: NDArray[np.int8]  # (max degree + 1,), 1 where the degree may be chosen

    def padded(self, max_ops: int, max_deps: int) -> dict[str, NDArray[np.generic]]:
        """Arrays of one shape for every graph, with the true counts; for spaces that want that.

        Raises:
            ConfigError: The graph is larger.
        """
        count, edges = len(self.ops), len(self.deps)
        if count > max_ops or edges > max_deps:
            raise ConfigError(
                f"a graph of {count} operations and {edges} dependencies does not fit into max_ops={max_ops},"
                f" max_deps={max_deps}"
            )
        return {
            "ops": _filled(self.ops, max_ops),
            "deps": _filled(self.deps, max_deps),
            "sources": _filled(self.sources, max_deps),
            "targets": _filled(self.targets, max_deps),
            "counts": np.array([count, edges], np.int64),
            "job": self.job,
            "degrees": self.degrees,
            "mask": self.mask,
        }


class _Fixed(NamedTuple):
    """The features that depend on the graph alone."""

    ops: Floats
    deps: Floats
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    means: tuple[float, ...]


class RampCodec:
    """Encodes the job that waits; a choice is a degree.

    ``pool`` are jobs like those to come: features lie between the smallest and the largest among them (and are cut off
    there). ``outlooks=False`` leaves the look-aheads out of the features by degree, which are 0 then.

    Raises:
        ConfigError: ``pool`` is empty.
    """

    def __init__(self, pool: Sequence[RampJob], max_degree: int = 16, *, outlooks: bool = True) -> None:
        if not pool:
            raise ConfigError("the codec needs jobs to take its ranges from, got none")
        self.max_degree = max_degree
        self.outlooks = outlooks
        self._ranges = [(min(map(of, pool)), max(map(of, pool))) for of in _RANGED]
        self._fixed: dict[str, _Fixed] = {}

    @property
    def choices(self) -> int:
        """The number of choices: degrees from 0 on."""
        return self.max_degree + 1

    def encode(self, view: RampView) -> RampObservation | None:
        """The view in arrays; None where the job can only be turned away.

        Raises:
            ConfigError: A degree is offered that is above ``max_degree``.
        """
        offered = view.degrees
        if len(offered) == 1:
            return None
        if offered[-1] > self.max_degree:
            raise ConfigError(f"degree {offered[-1]} is offered; the codec was made for max_degree={self.max_degree}")
        job = view.job
        fixed = self._fixed.get(job.graph.digest)
        if fixed is None:
            fixed = self._fixed[job.graph.digest] = _fixed(job.graph)
        mask = np.zeros(self.choices, np.int8)
        mask[list(offered)] = 1
        degrees = np.zeros((self.choices, len(DEGREE_FEATURES)), np.float32)
        degrees[:, 0] = mask
        if self.outlooks:
            self._look(view, degrees)
        return RampObservation(
            fixed.ops, fixed.deps, fixed.sources, fixed.targets, self._job(view, fixed), degrees, mask
        )

    def decode(self, view: RampView, choice: int) -> Iterable[Partition]:
        """The decision that the choice stands for.

        Raises:
            IllegalDecision: The choice is not offered.
        """
        if choice not in view.degrees:
            offered = ", ".join(map(str, view.degrees))
            raise IllegalDecision(
                f"at {view.now:g} s: job {view.number} cannot be split {choice} ways now; offered: {offered}"
            )
        return (Partition(view.number, int(choice)),)

    def _job(self, view: RampView, fixed: _Fixed) -> Floats:
        job, servers = view.job, view.fabric.servers
        ranged = [_between(of(job), *limits) for of, limits in zip(_RANGED, self._ranges, strict=True)]
        ranged.insert(5, job.beta)
        return np.array([*ranged, *fixed.means, 1 - view.free / servers, view.running / servers], np.float32)

    def _look(self, view: RampView, degrees: Floats) -> None:
        """The outlook of each degree now."""
        fabric, acceptable_s = view.fabric, view.job.acceptable_s
        for degree in view.degrees[1:]:
            outlook = view.outlook(degree)
            if outlook is None:
                continue
            taken = view.occupied
            for server in outlook.placement.servers:
                taken |= 1 << server
            in_time = outlook.jct_s <= acceptable_s * (1 + view.rules.tolerance)
            over = min(outlook.jct_s / acceptable_s, 2.0) if acceptable_s else 2.0
            left = _largest_left(view, taken) / fabric.servers
            degrees[degree, 1:] = in_time, over, len(outlook.placement.servers) / fabric.servers, left


_RANGED: tuple[Callable[[RampJob], float], ...] = (
    lambda job: 2 * len(job.graph),
    lambda job: 2 * len(job.graph.edges) + 1,
    lambda job: job.sequential_s,
    lambda job: job.acceptable_s,
    lambda job: job.beta,
    lambda job: job.graph.memory_bytes,
    lambda job: job.graph.dep_bytes,
    lambda job: job.steps,
)


def _largest_left(view: RampView, taken: int) -> int:
    """The largest degree that still finds a free block."""
    degrees: list[int] = [1, *range(2, view.rules.max_degree + 1, 2)]
    for degree in reversed(degrees):
        if next(view.fabric.free(degree, taken), None) is not None:
            return degree
    return 0


def _between(value: float, least: float, most: float) -> float:
    """The position of the value from ``least`` (0) to ``most`` (1); 1 where they are equal, as in ddls."""
    return min(max((value - least) / (most - least), 0.0), 1.0) if most > least else 1.0


def _fixed(graph: ComputationGraph) -> _Fixed:
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
    return _Fixed(
        np.stack([compute, compute == 1, memory, memory == 1, depth], axis=1).astype(np.float32),
        np.stack([size, size == 1], axis=1).astype(np.float32),
        both[:, 0],
        both[:, 1],
        tuple(means),
    )


def _over_largest(values: Sequence[float]) -> NDArray[np.float64]:
    given = np.array(values, np.float64)
    largest = float(given.max())
    return given / largest if largest > 0 else given


def _filled(rows: NDArray[np.generic], length: int) -> NDArray[np.generic]:
    found = np.zeros((length, *rows.shape[1:]), rows.dtype)
    found[: len(rows)] = rows
    return found
