"""DAG shapes, which define the dependencies between the tasks in a job.

``draw(rng, jobs)`` draws the DAGs of ``jobs`` jobs. Parents are listed before their children.

``Alibaba`` draws jobs like those in Alibaba's 2018 trace, as analysed by Tian et al., SoCC 2019
(2,857,851 DAG jobs with 9,673,063 tasks). The points below come from their histograms
(All-less/trace-generator), and quantiles are interpolated between the points. Instances, durations
and shapes are drawn independently, although they are correlated in the real trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, TypeAlias

import numpy as np

from dagsim.errors import WorkloadError, require
from dagsim.workload.array_tools import bounds, ranges
from dagsim.workload.distributions import Choice, Quantiles
from dagsim.workload.tagged_union import TaggedUnion


class DagArrays(NamedTuple):
    """The DAGs of J jobs with n tasks and E edges. Jobs are stored consecutively, and parents
    precede their children.
    """

    tasks: np.ndarray  # shape (J,), int64: number of tasks of each job
    waits: np.ndarray  # shape (n,), int64: number of parents of each task
    parent: np.ndarray  # shape (E,), int64: index of each parent among the tasks of its job, ordered by child

    @classmethod
    def single(cls, jobs: int) -> DagArrays:
        """Return jobs with one task each."""
        return cls(np.ones(jobs, np.int64), np.zeros(jobs, np.int64), np.zeros(0, np.int64))

    @classmethod
    def of_edges(cls, tasks: np.ndarray, parent: np.ndarray, child: np.ndarray) -> DagArrays:
        """Return the jobs with these numbers of ``tasks`` and these edges, which may be in any
        order. ``parent`` and ``child``, (E,) each, contain indices among all tasks.
        """
        order = np.lexsort((parent, child))
        first = np.repeat(bounds(tasks)[:-1], tasks)
        return cls(tasks, np.bincount(child, minlength=len(first)), parent[order] - first[child[order]])

    @classmethod
    def joined(cls, parts: list[DagArrays]) -> DagArrays:
        """Concatenate jobs."""
        if len(parts) == 1:
            return parts[0]
        return cls(*[np.concatenate(columns) for columns in zip(*parts, strict=True)])

    def between(self, start: int, stop: int) -> DagArrays:
        """Return the jobs from ``start`` up to, but not including, ``stop``."""
        first, edges = bounds(self.tasks), bounds(self.waits)
        begin, end = first[start], first[stop]
        return DagArrays(self.tasks[start:stop], self.waits[begin:end], self.parent[edges[begin] : edges[end]])


# fmt: off
TASKS = Quantiles((
    (0, 1), (0.3833, 1), (0.5874, 2), (0.7150, 3), (0.7847, 4), (0.8385, 5), (0.8716, 6), (0.9069, 7), (0.9243, 8),
    (0.9383, 9), (0.9487, 10), (0.9573, 11), (0.9653, 12), (0.97, 13), (0.98, 16), (0.985, 17), (0.99, 20),
    (0.995, 24), (0.998, 31), (0.999, 36), (0.9998, 62), (1, 199)), whole=True)
"""Tasks per job: mean 3.385."""

DURATION_S = Quantiles((
    (0, 0), (0.0768, 0), (0.2415, 1), (0.3123, 2), (0.3962, 3), (0.4666, 4), (0.5094, 5), (0.6, 9), (0.7, 15),
    (0.75, 22), (0.8, 32), (0.85, 52), (0.9, 96), (0.92, 131), (0.94, 185), (0.95, 227), (0.96, 289), (0.975, 375),
    (0.985, 484), (0.99, 603), (0.995, 854), (0.998, 1376), (0.999, 2033), (0.9995, 2919), (0.9998, 4434),
    (0.9999, 5284), (0.99995, 7719), (0.99999, 20090), (1, 142749)), whole=True)
"""Seconds of a task: mean 44.8."""

INSTANCES = Quantiles((
    (0, 1), (0.6617, 1), (0.6805, 2), (0.7411, 3), (0.7533, 4), (0.7760, 5), (0.8, 8), (0.85, 17), (0.9, 47),
    (0.92, 73), (0.94, 129), (0.95, 176), (0.96, 241), (0.975, 367), (0.985, 588), (0.99, 844), (0.995, 1189),
    (0.9975, 1843), (0.998, 2131), (0.999, 3526), (0.9995, 6684), (0.9998, 11542), (0.9999, 14001), (0.99995, 18769),
    (0.99999, 24895), (1, 47476)), whole=True)
"""Instances per task: mean 43.1."""

CPUS = Choice((0.5, 1.0), (0.419, 0.581))
"""Cores per instance: mean 0.791."""

_DEEPER = (0.977, 0.874, 0.788, 0.674, 0.629, 0.658, 0.557, 0.507, 0.465, 0.451, 0.416, 0.439, 0.389, 0.375, 0.415,
           0.376, 0.362, 0.356, 0.340)
# fmt: on
"""Probability that a further task makes a job of 2, 3, ... 20 tasks one level deeper: (mean levels
- 1) / (tasks - 1).
"""

_CROWDED = 3
"""Exponent applied to the uniform random number that chooses the level of a further task. It puts
61% of these tasks in the first 20% of the levels, as in 6,600 real jobs."""


@dataclass(frozen=True, slots=True)
class Alibaba:
    """Numbers of tasks and levels as published for Alibaba's 2018 trace. A job with ``n`` tasks has
    at least one level; the number of further levels is binomially distributed, with at most ``n -
    1``.

    This matches the published mean for each ``n``, and the spread within about 20% (up to 16
    tasks). Each level has one task, and further tasks concentrate on the first levels. Each task
    waits for one task in the level above. If a task outside the last level then has no child, it
    also becomes a parent of a task in the next level. Of jobs with more than 2 tasks, 59% gather
    (some task has two parents) and 33% scatter, compared with 65% and 21% of 6,600 real jobs.
    """

    kind: Literal["alibaba"] = "alibaba"

    __pydantic_config__ = {"extra": "forbid"}

    def draw(self, rng: np.random.Generator, jobs: int) -> DagArrays:
        tasks = TASKS.draw(rng, jobs).astype(int)
        depth = 1 + rng.binomial(tasks - 1, _deeper(tasks))
        picks = rng.random((int(tasks.sum()), 3))
        level, owner = _levels(tasks, depth, picks[:, 0]), np.repeat(np.arange(jobs), tasks)
        # first task of each level
        firsts = np.flatnonzero((np.diff(owner, prepend=-1) != 0) | (np.diff(level, prepend=-1) != 0))
        ends = np.append(firsts[1:], len(level))
        # for each task, the number of its level, counted across all jobs
        of = np.repeat(np.arange(len(firsts)), ends - firsts)
        widths = ends - firsts

        child = np.flatnonzero(level > 0)
        above = of[child] - 1
        parent = firsts[above] + (picks[child, 1] * widths[above]).astype(np.int64)
        lonely = np.setdiff1d(np.flatnonzero(level < np.repeat(depth, tasks) - 1), parent)
        below = of[lonely] + 1
        adopted = firsts[below] + (picks[lonely, 2] * widths[below]).astype(np.int64)
        return DagArrays.of_edges(tasks, np.concatenate([parent, lonely]), np.concatenate([child, adopted]))


def _deeper(tasks: np.ndarray) -> np.ndarray:
    """Return the probability that a further task adds a level to a job, which depends on the job's
    number of tasks. Jobs with more than 20 tasks have about 6 further levels.
    """
    chances = np.array((0.0, 0.0, *_DEEPER))
    beyond = 6.0 / np.maximum(tasks - 1, 1)
    return np.asarray(np.where(tasks < len(chances), chances[np.minimum(tasks, len(chances) - 1)], beyond))


def _levels(tasks: np.ndarray, depth: np.ndarray, picks: np.ndarray) -> np.ndarray:
    """Return the level of each task, (n,) int64, in ascending order within each job. Each level has
    at least one task, and the remaining tasks may be on any level.
    """
    level = ranges(np.zeros(len(tasks), np.int64), tasks)
    depth = np.repeat(depth, tasks)
    free = level >= depth
    # Use Python's power, because NumPy's results differ between machines.
    power = np.array([pick**_CROWDED for pick in picks[free].tolist()])
    level[free] = (power * depth[free]).astype(np.int64)
    owner = np.repeat(np.arange(len(tasks)), tasks)
    return level[np.lexsort((level, owner))]


_FORBID = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Single:
    """A single task."""

    kind: Literal["single"] = "single"

    __pydantic_config__ = _FORBID

    def draw(self, rng: np.random.Generator, jobs: int) -> DagArrays:
        return DagArrays.single(jobs)


@dataclass(frozen=True, slots=True)
class Chain:
    """Tasks in a chain, where each task waits for the one before it."""

    length: tuple[int, int] = (2, 8)
    """The smallest and the largest number of tasks."""
    kind: Literal["chain"] = "chain"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        _check_range(self.kind, "length", self.length)

    def draw(self, rng: np.random.Generator, jobs: int) -> DagArrays:
        length = _between(rng, self.length, jobs)
        return _in_layers(length, np.ones(int(length.sum()), np.int64))


@dataclass(frozen=True, slots=True)
class ForkJoin:
    """One task, then ``width`` parallel tasks, and then one task that waits for all of them. The
    pattern is repeated ``stages`` times in sequence.
    """

    width: tuple[int, int] = (2, 8)
    """The smallest and the largest number of parallel tasks."""
    stages: tuple[int, int] = (1, 1)
    """The smallest and the largest number of times that the pattern is repeated."""
    kind: Literal["fork_join"] = "fork_join"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        _check_range(self.kind, "width", self.width)
        _check_range(self.kind, "stages", self.stages)

    def draw(self, rng: np.random.Generator, jobs: int) -> DagArrays:
        layers = 1 + 2 * _between(rng, self.stages, jobs)
        place = ranges(np.zeros(jobs, np.int64), layers)
        widths = np.ones(len(place), np.int64)
        widths[place % 2 == 1] = _between(rng, self.width, (len(place) - jobs) // 2)
        return _in_layers(layers, widths)


@dataclass(frozen=True, slots=True)
class MapReduce:
    """``maps`` tasks, followed by ``reduces`` tasks, each of which waits for all ``maps`` tasks.
    The pattern is repeated ``rounds`` times in sequence.
    """

    maps: tuple[int, int] = (2, 8)
    """The smallest and the largest number of tasks that run first."""
    reduces: tuple[int, int] = (1, 4)
    """The smallest and the largest number of tasks that wait for all of the first ones."""
    rounds: tuple[int, int] = (1, 1)
    """The smallest and the largest number of times that the pattern is repeated."""
    kind: Literal["map_reduce"] = "map_reduce"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        for name in ("maps", "reduces", "rounds"):
            _check_range(self.kind, name, getattr(self, name))

    def draw(self, rng: np.random.Generator, jobs: int) -> DagArrays:
        rounds = _between(rng, self.rounds, jobs)
        widths = [_between(rng, range_, int(rounds.sum())) for range_ in (self.maps, self.reduces)]
        return _in_layers(2 * rounds, np.stack(widths, axis=1).ravel())


@dataclass(frozen=True, slots=True)
class Layered:
    """``layers`` layers of ``width`` tasks. Each task waits for each task in the layer before it
    with probability ``density``.

    Each task outside the first layer waits for at least one task, so that a job has as many levels
    as layers.
    """

    layers: tuple[int, int] = (2, 5)
    """The smallest and the largest number of layers."""
    width: tuple[int, int] = (1, 4)
    """The smallest and the largest number of tasks in a layer."""
    density: float = 0.5
    """Probability with which a task waits for each task in the previous layer."""
    kind: Literal["layered"] = "layered"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        _check_range(self.kind, "layers", self.layers)
        _check_range(self.kind, "width", self.width)
        require(0 <= self.density <= 1, "shape layered: density must be between 0 and 1", self.density, WorkloadError)

    def draw(self, rng: np.random.Generator, jobs: int) -> DagArrays:
        layers = _between(rng, self.layers, jobs)
        widths = _between(rng, self.width, int(layers.sum()))
        first = bounds(widths)  # first task of each layer
        # layers that have a layer above them
        below = np.delete(np.arange(len(widths)), bounds(layers)[:-1])
        wide, above = widths[below], widths[below - 1]
        kept = rng.random(int((above * wide).sum())) < self.density
        fallback = rng.random(len(widths) * self.width[1])
        tasks = ranges(first[below], wide)  # tasks that have a layer above them
        candidates = np.repeat(above, wide)
        child = np.repeat(tasks, candidates)[kept]
        parent = ranges(np.repeat(first[below - 1], wide), candidates)[kept]
        alone = np.setdiff1d(tasks, child, assume_unique=False)
        over = np.repeat(above, wide)[np.searchsorted(tasks, alone)]
        start = np.repeat(first[below - 1], wide)[np.searchsorted(tasks, alone)]
        child = np.concatenate([child, alone])
        parent = np.concatenate([parent, start + (fallback[: len(alone)] * over).astype(np.int64)])
        return DagArrays.of_edges(np.add.reduceat(widths, bounds(layers)[:-1]), parent, child)


@dataclass(frozen=True, slots=True)
class RandomDag:
    """With probability ``single``, the job has a single task. All other jobs have ``tasks`` tasks,
    each of which waits for ``parents`` earlier tasks.
    """

    single: float = 0.15
    """The probability that a job has a single task."""
    tasks: tuple[int, int] = (3, 8)
    """The smallest and the largest number of tasks of the other jobs."""
    parents: tuple[int, int] = (1, 2)
    """The smallest and the largest number of earlier tasks for which a task waits."""
    kind: Literal["random_dag"] = "random_dag"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        require(0 <= self.single <= 1, "shape random_dag: single must be between 0 and 1", self.single, WorkloadError)
        _check_range(self.kind, "tasks", self.tasks)
        _check_range(self.kind, "parents", self.parents)

    def draw(self, rng: np.random.Generator, jobs: int) -> DagArrays:
        alone = rng.random(jobs) < self.single
        counts = np.where(alone, 1, rng.integers(*self.tasks, jobs, endpoint=True))
        place = ranges(np.zeros(jobs, np.int64), counts)
        waits = np.minimum(_between(rng, self.parents, len(place)), place)
        picks = rng.random((len(place), self.parents[1]))
        return DagArrays(counts, waits, _distinct(place, waits, picks))


Shape: TypeAlias = Annotated[
    Single | Chain | ForkJoin | MapReduce | Layered | RandomDag | Alibaba, TaggedUnion("single")
]
"""Any shape; in YAML, ``kind`` selects it."""


def _in_layers(layers: np.ndarray, widths: np.ndarray) -> DagArrays:
    """Return jobs that consist of layers with these widths. Each task waits for the whole layer
    above.
    """
    firsts = bounds(layers)[:-1]
    above = np.concatenate([np.zeros(1, np.int64), widths[:-1]])
    above[firsts] = 0
    tasks = np.add.reduceat(widths, firsts)
    # for each layer, the first task of the layer above, as its number in the job
    start = bounds(widths)[:-1] - np.repeat(bounds(tasks)[:-1], layers) - above
    waits = np.repeat(above, widths)
    return DagArrays(tasks, waits, ranges(np.repeat(start, widths), waits))


def _distinct(below: np.ndarray, count: np.ndarray, picks: np.ndarray) -> np.ndarray:
    """For each row, draw ``count`` different whole numbers below ``below``. Return the sorted
    numbers of all rows, row by row.

    Each pick is an index among the numbers that have not been chosen yet.
    """
    chosen = np.empty((len(below), 0), np.int64)
    for turn in range(int(count.max(initial=0))):
        number = (picks[:, turn] * (below - turn)).astype(np.int64)
        # Convert the index among the unchosen numbers to a number: go through the chosen numbers in
        # ascending order, and add one for each that is not above the result so far.
        for other in chosen.T:
            number += number >= other
        number[turn >= count] = np.iinfo(np.int64).max
        chosen = np.sort(np.concatenate([chosen, number[:, None]], axis=1), axis=1)
    numbers: np.ndarray = chosen[np.arange(chosen.shape[1]) < count[:, None]]
    return numbers


def _between(rng: np.random.Generator, span: tuple[int, int], count: int) -> np.ndarray:
    return rng.integers(span[0], span[1], count, endpoint=True)


def _check_range(kind: str, name: str, bounds: tuple[int, int]) -> None:
    if not 1 <= bounds[0] <= bounds[1]:
        raise WorkloadError(f"shape {kind}: {name} must be two whole numbers (from, to) of 1 or more, got {bounds!r}")
