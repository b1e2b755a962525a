"""The codec of RAMP: a row per way to partition the job that waits, and the choice of one as a decision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, log1p, log2
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dagsim.errors import ConfigError, IllegalDecision
from dagsim.systems.ramp.codecs.features import (
    ROW_FEATURES,
    Floats,
    GraphArrays,
    JobRanges,
    graph_arrays,
    type_rows,
)
from dagsim.systems.ramp.decisions import Partition
from dagsim.systems.ramp.job import RampJob
from dagsim.systems.ramp.room import Room, Way, ways_in_time
from dagsim.systems.ramp.view import RampView

__all__ = ["RampCodec", "RampObservation"]

_PLAIN = ROW_FEATURES.index("left idle") + 1
"""Features of a row before those of the room that it takes."""


class RampObservation(NamedTuple):
    """The ways to partition the job (the first is to turn it away), the job among its fellows, and its graph."""

    tokens: Floats  # (ways, ROW_FEATURES)
    context: Floats  # (CONTEXT,)
    gpus: Floats  # (types, TYPE_FEATURES)
    ops: Floats  # (ops, OP_FEATURES), both passes
    deps: Floats  # (deps, DEP_FEATURES)
    sources: NDArray[np.int64]  # (deps,), rows of ``ops``
    targets: NDArray[np.int64]  # (deps,)

    @property
    def is_forced(self) -> bool:
        """There is one choice only."""
        return len(self.tokens) <= 1


class RampCodec:
    """Encodes the job that waits; a choice is a row.

    Features of the job lie between the smallest and the largest among ``examples``, jobs like those to come (and are
    cut off there); left out: those that the kernel has. ``blocks`` and ``outlooks`` are those of ``PartitionConfig``.
    """

    def __init__(self, examples: Sequence[RampJob] = (), *, blocks: int = 0, outlooks: bool = True) -> None:
        self.blocks = blocks
        self.outlooks = outlooks
        self.ways: tuple[Way, ...] = ()
        """The rows of the last observation."""
        self._ranges = JobRanges(examples) if examples else None
        self._view: RampView | None = None

    def encode(self, view: RampView) -> RampObservation | None:
        """The view in arrays; None where the job can only be turned away.

        Raises:
            ConfigError: Neither the codec nor the kernel has examples of jobs.
        """
        self._view = view
        room = Room(view)
        found = list(ways_in_time(view) if self.blocks else self._ways(view))
        left = None
        if found and self.outlooks:
            left = room.after([way.servers for way in found], [view.now + way.jct_s for way in found])
            if self.blocks:
                chosen = self._roomiest(found, left)
                found, left = [found[place] for place in chosen], left[chosen]
        self.ways = (Way(0, 0, 0.0), *found)
        if not found:
            return None
        if self._ranges is None:
            if not view.examples:
                raise ConfigError("the codec needs examples of jobs for its ranges: the kernel has none, nor it itself")
            self._ranges = JobRanges(view.examples)
        graph = _arrays_of(view)
        free = (room.before / room.counts).ravel()
        context = np.array([*self._ranges.row(view, graph), *free.tolist()], np.float32)
        types = type_rows(view.fabric, view.occupied)
        return RampObservation(self._rows(view, room, left), context, types, *graph[:4])

    def decode(self, view: RampView, choice: int) -> Iterable[Partition]:
        """The decision that the row stands for.

        Raises:
            IllegalDecision: There is no such row.
        """
        if not 0 <= choice < len(self.ways):
            raise IllegalDecision(f"at {view.now:g} s: there is no choice {choice}, only 0 to {len(self.ways) - 1}")
        way = self.ways[choice]
        return (Partition(view.number, way.degree, servers=way.servers if self.blocks and way.degree else None),)

    def choice_of(self, decisions: Iterable[Partition]) -> int | None:
        """The row that stands for a heuristic's decision: the same servers for as long. None if there is none."""
        decision = next(iter(decisions), None)
        if decision is None or not decision.degree:
            return 0
        assert self._view is not None
        outlook = self._view.outlook(decision.degree, decision.placer, decision.servers)
        if outlook is None:
            return 0
        mask = _mask(outlook.placement.servers)
        for row, way in enumerate(self.ways):
            if way.servers == mask and (way.degree == decision.degree or way.jct_s == outlook.jct_s):
                return row
        return None

    def row_of(self, degree: int) -> int | None:
        """The first row of a degree; None if it has none."""
        return next((row for row, way in enumerate(self.ways) if way.degree == degree), None)

    def _ways(self, view: RampView) -> Iterator[Way]:
        """Each degree where the placer places it."""
        limit_s = view.job.acceptable_s * (1 + view.rules.tolerance)
        for degree in view.degrees[1:]:
            outlook = view.outlook(degree)
            if outlook is None:
                continue
            if not self.outlooks:
                yield Way(degree, 0, 0.0)
            elif outlook.jct_s <= limit_s:
                yield Way(degree, _mask(outlook.placement.servers), outlook.jct_s)

    def _roomiest(self, ways: Sequence[Way], left: NDArray[np.int64]) -> list[int]:
        """The places of the ways to show: of each degree those that leave the fewest sizes scarce, best first."""
        worth = -(1 / (1 + left)).sum(axis=(1, 2))
        order = sorted(range(len(ways)), key=lambda place: (ways[place].degree, -worth[place]))
        shown: dict[int, list[int]] = {}
        for place in order:
            of_degree = shown.setdefault(ways[place].degree, [])
            if len(of_degree) < self.blocks:
                of_degree.append(place)
        return [place for of_degree in shown.values() for place in of_degree]

    def _rows(self, view: RampView, room: Room, left: NDArray[np.int64] | None) -> Floats:
        """(ways, features); ``left`` (ways but the first, arrivals, sizes) are the blocks that each leaves free."""
        rows = np.zeros((len(self.ways), len(ROW_FEATURES)), np.float32)
        rows[0, 0] = 1.0
        most, job, servers = view.rules.max_degree, view.job, view.fabric.servers
        if left is None:
            rows[1:, 3:5] = [(way.degree / most, log2(way.degree) / 4) for way in self.ways[1:]]
            return rows
        acceptable_s, sequential_s, gap_s = (max(each, 1e-300) for each in (*_times(job), room.gap_s))
        said = []
        for degree, mask, jct_s in self.ways[1:]:
            held, gaps = mask.bit_count(), jct_s / gap_s
            over, cost = min(jct_s / acceptable_s, 2.0), min(held * jct_s / sequential_s, 4.0) / 2
            idle = ceil(gaps) - gaps
            said.append((0, 1, over, degree / most, log2(degree) / 4, held / servers, cost, log1p(gaps) / 3, idle))
        rows[1:, :_PLAIN] = said
        lost = (room.before[None] - left) / room.counts
        scarcer = 1 / (1 + left) - 1 / (1 + room.before[None])
        rows[1:, _PLAIN:] = np.concatenate([4 * lost, scarcer], axis=1).reshape(len(left), -1)
        return rows


def _times(job: RampJob) -> tuple[float, float]:
    return job.acceptable_s, job.sequential_s


_GRAPHS_KEPT = 1000
_graphs: dict[str, GraphArrays] = {}


def _arrays_of(view: RampView) -> GraphArrays:
    """The arrays of the job's graph, the same objects every time."""
    graph = view.job.graph
    known = _graphs.get(graph.digest)
    if known is None:
        if len(_graphs) >= _GRAPHS_KEPT:
            _graphs.clear()
        known = _graphs[graph.digest] = graph_arrays(graph)
    return known


def _mask(servers: Iterable[int]) -> int:
    return sum(1 << server for server in servers)
