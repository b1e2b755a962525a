"""DAG shapes: which task of a job waits for which.

``draw(rng, jobs)`` gives the DAGs of so many jobs. Tasks are listed parents first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import numpy as np

from dagsim.errors import WorkloadError
from dagsim.workload.alibaba import Alibaba
from dagsim.workload.arrays import bounds, ranges
from dagsim.workload.graphs import DagArrays
from dagsim.workload.tagged_union import TaggedUnion

__all__ = ["Chain", "ForkJoin", "Layered", "MapReduce", "RandomDag", "Shape", "Single"]

_FORBID = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Single:
    """One task."""

    kind: Literal["single"] = "single"

    __pydantic_config__ = _FORBID

    def draw(self, rng: np.random.Generator, jobs: int) -> DagArrays:
        return DagArrays.single(jobs)


@dataclass(frozen=True, slots=True)
class Chain:
    """``length`` (from, to) tasks one after the other."""

    length: tuple[int, int] = (2, 8)
    kind: Literal["chain"] = "chain"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        _check_range(self.kind, "length", self.length)

    def draw(self, rng: np.random.Generator, jobs: int) -> DagArrays:
        length = _between(rng, self.length, jobs)
        return _in_layers(length, np.ones(int(length.sum()), np.int64))


@dataclass(frozen=True, slots=True)
class ForkJoin:
    """A task, then ``width`` tasks side by side, then a task that waits for all; ``stages`` times in a row."""

    width: tuple[int, int] = (2, 8)
    stages: tuple[int, int] = (1, 1)
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
    """``maps`` tasks, then ``reduces`` tasks that each wait for all of them; ``rounds`` times in a row."""

    maps: tuple[int, int] = (2, 8)
    reduces: tuple[int, int] = (1, 4)
    rounds: tuple[int, int] = (1, 1)
    kind: Literal["map_reduce"] = "map_reduce"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        for name in ("maps", "reduces", "rounds"):
            _check_range(self.kind, name, getattr(self, name))

    def draw(self, rng: np.random.Generator, jobs: int) -> DagArrays:
        rounds = _between(rng, self.rounds, jobs)
        widths = [_between(rng, each, int(rounds.sum())) for each in (self.maps, self.reduces)]
        return _in_layers(2 * rounds, np.stack(widths, axis=1).ravel())


@dataclass(frozen=True, slots=True)
class Layered:
    """``layers`` of ``width`` tasks; a task waits for each task of the layer above with probability ``density``.

    At least for one of them, so that a job has as many levels as layers.
    """

    layers: tuple[int, int] = (2, 5)
    width: tuple[int, int] = (1, 4)
    density: float = 0.5
    kind: Literal["layered"] = "layered"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        _check_range(self.kind, "layers", self.layers)
        _check_range(self.kind, "width", self.width)
        if not 0 <= self.density <= 1:
            raise WorkloadError(f"shape layered: density must lie in 0..1, got {self.density!r}")

    def draw(self, rng: np.random.Generator, jobs: int) -> DagArrays:
        layers = _between(rng, self.layers, jobs)
        widths = _between(rng, self.width, int(layers.sum()))
        first = bounds(widths)  # the first task of each layer
        below = np.delete(np.arange(len(widths)), bounds(layers)[:-1])  # layers that have one above
        wide, above = widths[below], widths[below - 1]
        kept = rng.random(int((above * wide).sum())) < self.density
        fallback = rng.random(len(widths) * self.width[1])
        tasks = ranges(first[below], wide)  # those that have a layer above
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
    """With probability ``single`` one task, else ``tasks`` tasks that each wait for ``parents`` earlier ones."""

    single: float = 0.15
    tasks: tuple[int, int] = (3, 8)
    parents: tuple[int, int] = (1, 2)
    kind: Literal["random_dag"] = "random_dag"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        if not 0 <= self.single <= 1:
            raise WorkloadError(f"shape random_dag: single must lie in 0..1, got {self.single!r}")
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
"""Any shape; in YAML ``kind`` says which."""


def _in_layers(layers: np.ndarray, widths: np.ndarray) -> DagArrays:
    """Jobs of so many layers of these widths, each task waiting for the whole layer above."""
    firsts = bounds(layers)[:-1]
    above = np.concatenate([np.zeros(1, np.int64), widths[:-1]])
    above[firsts] = 0
    tasks = np.add.reduceat(widths, firsts)
    start = bounds(widths)[:-1] - np.repeat(bounds(tasks)[:-1], layers) - above  # of the layer above, within the job
    waits = np.repeat(above, widths)
    return DagArrays(tasks, waits, ranges(np.repeat(start, widths), waits))


def _distinct(below: np.ndarray, count: np.ndarray, picks: np.ndarray) -> np.ndarray:
    """Per row ``count`` different whole numbers under ``below``, sorted, one row behind the other.

    A pick is the place among the numbers that are left.
    """
    chosen = np.empty((len(below), 0), np.int64)
    for turn in range(int(count.max(initial=0))):
        number = (picks[:, turn] * (below - turn)).astype(np.int64)
        for other in chosen.T:  # sorted: each that is not above the number makes it one more
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
