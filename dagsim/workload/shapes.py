"""DAG shapes: which task of a job waits for which.

``draw(rng, jobs)`` gives one shape per job, as the parents of each task. Tasks are listed parents first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal, TypeAlias

import numpy as np

from dagsim.errors import WorkloadError
from dagsim.workload.alibaba import Alibaba
from dagsim.workload.tagged_union import TaggedUnion

__all__ = ["Chain", "ForkJoin", "Layered", "MapReduce", "Parents", "RandomDag", "Shape", "Single"]

Parents: TypeAlias = tuple[tuple[int, ...], ...]
"""The parents of each task, by place."""

_FORBID = {"extra": "forbid"}
_SINGLE: Parents = ((),)


@dataclass(frozen=True, slots=True)
class Single:
    """One task."""

    kind: Literal["single"] = "single"

    __pydantic_config__ = _FORBID

    def draw(self, rng: np.random.Generator, jobs: int) -> list[Parents]:
        return [_SINGLE] * jobs


@dataclass(frozen=True, slots=True)
class Chain:
    """``length`` (from, to) tasks one after the other."""

    length: tuple[int, int] = (2, 8)
    kind: Literal["chain"] = "chain"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        _check_range(self.kind, "length", self.length)

    def draw(self, rng: np.random.Generator, jobs: int) -> list[Parents]:
        return [_in_layers((1,) * length) for length in _between(rng, self.length, jobs)]


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

    def draw(self, rng: np.random.Generator, jobs: int) -> list[Parents]:
        stages = _between(rng, self.stages, jobs)
        widths = iter(_between(rng, self.width, sum(stages)))
        return [_in_layers((1, *(w for _ in range(count) for w in (next(widths), 1)))) for count in stages]


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

    def draw(self, rng: np.random.Generator, jobs: int) -> list[Parents]:
        rounds = _between(rng, self.rounds, jobs)
        maps = iter(_between(rng, self.maps, sum(rounds)))
        reduces = iter(_between(rng, self.reduces, sum(rounds)))
        return [_in_layers(tuple(w for _ in range(count) for w in (next(maps), next(reduces)))) for count in rounds]


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

    def draw(self, rng: np.random.Generator, jobs: int) -> list[Parents]:
        layers = _between(rng, self.layers, jobs)
        widths = _between(rng, self.width, sum(layers))
        kept = iter(rng.random(sum(above * below for above, below in _neighbours(layers, widths))).tolist())
        fallback = iter(rng.random(len(widths) * self.width[1]).tolist())
        shapes, first = [], 0
        for count in layers:
            parents: list[tuple[int, ...]] = [()] * widths[first]
            for layer in range(first + 1, first + count):
                above = range(len(parents) - widths[layer - 1], len(parents))
                chosen = [tuple([task for task in above if next(kept) < self.density]) for _ in range(widths[layer])]
                parents += [one or (above[int(next(fallback) * len(above))],) for one in chosen]
            shapes.append(tuple(parents))
            first += count
        return shapes


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

    def draw(self, rng: np.random.Generator, jobs: int) -> list[Parents]:
        alone = rng.random(jobs) < self.single
        counts = np.where(alone, 1, rng.integers(*self.tasks, jobs, endpoint=True)).tolist()
        wanted = iter(_between(rng, self.parents, sum(counts)))
        picks = rng.random((sum(counts), self.parents[1])).tolist()
        shapes, first = [], 0
        for count in counts:
            shape = [_distinct(task, next(wanted), picks[first + task]) for task in range(count)]
            shapes.append(tuple(shape))
            first += count
        return shapes


Shape: TypeAlias = Annotated[
    Single | Chain | ForkJoin | MapReduce | Layered | RandomDag | Alibaba, TaggedUnion("single")
]
"""Any shape; in YAML ``kind`` says which."""


@lru_cache(maxsize=4096)
def _in_layers(widths: tuple[int, ...]) -> Parents:
    """Layers of these widths, each task waiting for the whole layer above."""
    parents: list[tuple[int, ...]] = []
    above: tuple[int, ...] = ()
    for width in widths:
        here = tuple(range(len(parents), len(parents) + width))
        parents += [above] * width
        above = here
    return tuple(parents)


def _distinct(below: int, count: int, picks: Sequence[float]) -> tuple[int, ...]:
    """Up to ``count`` different whole numbers under ``below``, sorted."""
    left = list(range(below))
    chosen = [left.pop(int(pick * len(left))) for pick in picks[: min(count, below)]]
    return tuple(sorted(chosen))


def _neighbours(layers: list[int], widths: list[int]) -> list[tuple[int, int]]:
    """The widths of every two layers in a row of the same job."""
    pairs: list[tuple[int, int]] = []
    first = 0
    for count in layers:
        pairs += zip(widths[first : first + count - 1], widths[first + 1 : first + count], strict=True)
        first += count
    return pairs


def _between(rng: np.random.Generator, bounds: tuple[int, int], count: int) -> list[int]:
    return rng.integers(bounds[0], bounds[1], count, endpoint=True).tolist()  # type: ignore[no-any-return]


def _check_range(kind: str, name: str, bounds: tuple[int, int]) -> None:
    if not 1 <= bounds[0] <= bounds[1]:
        raise WorkloadError(f"shape {kind}: {name} must be two whole numbers (from, to) of 1 or more, got {bounds!r}")
