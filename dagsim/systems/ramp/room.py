"""Room for jobs to come: which blocks of servers are free at the next arrivals, and what a placement leaves of them.

A fabric fragments in space (blocks of one size do not tile what another left) and in time (what ends together leaves
whole blocks, what does not leaves holes). Both show in how many blocks of each size are free at the arrivals to come,
if nobody else were let in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dagsim.systems.ramp.fabric import Fabric
from dagsim.systems.ramp.view import RampView

__all__ = ["ARRIVALS", "SIZES", "Room", "Way", "blocks_of", "free_blocks", "ways_in_time"]

SIZES = (1, 2, 4, 8, 16)
"""Servers of the blocks that are counted."""
ARRIVALS = (1, 2, 3, 5, 8, 13, 21)
"""How many arrivals ahead they are counted."""

_MOST_BLOCKS = 4096
"""Blocks of one size that are counted; of larger fabrics the first."""

_KEPT = 100_000
"""Sets of servers that are kept before all are forgotten."""


class _Blocks:
    """The blocks of all sizes of a fabric, each once, as bits of words; a word has blocks of one size."""

    def __init__(self, fabric: Fabric) -> None:
        of_size = [blocks_of(fabric, size) for size in SIZES]
        self.words = [blocks[begin : begin + 64] for blocks in of_size for begin in range(0, max(len(blocks), 1), 64)]
        self.starts = np.cumsum([0, *(max(-(-len(blocks) // 64), 1) for blocks in of_size)])[:-1]
        """(sizes,) the first word of each size."""
        self.full = np.array([(1 << len(blocks)) - 1 for blocks in self.words], np.uint64)
        self.counts = np.maximum(self.count(self.full), 1)
        self._touched: dict[int, NDArray[np.uint64]] = {}

    def touched(self, servers: int) -> NDArray[np.uint64]:
        """(words,) the bits of the blocks that have one of these servers."""
        known = self._touched.get(servers)
        if known is None:
            if len(self._touched) > _KEPT:
                self._touched.clear()
            bits = [sum(1 << bit for bit, block in enumerate(blocks) if block & servers) for blocks in self.words]
            known = self._touched[servers] = np.array(bits, np.uint64)
        return known

    def count(self, bits: NDArray[np.uint64]) -> NDArray[np.int64]:
        """(..., sizes) the number of bits in words (..., words)."""
        return np.add.reduceat(np.bitwise_count(bits).astype(np.int64), self.starts, axis=-1)


_made: WeakKeyDictionary[Fabric, _Blocks] = WeakKeyDictionary()


class Room:
    """The numbers of free blocks at the next arrivals, by ``ARRIVALS`` (rows) and ``SIZES`` (columns)."""

    def __init__(self, view: RampView) -> None:
        self._blocks = blocks = _blocks_of(view.fabric)
        self.gap_s = view.gap_s or _gap_of(view)
        """The mean time between arrivals."""
        self._at_s = np.array([view.now + ahead * self.gap_s for ahead in ARRIVALS])
        self._free = np.repeat(blocks.full[None], len(ARRIVALS), axis=0)  # (arrivals, words)
        for end_s, servers in view.ends:
            self._free[: int(np.searchsorted(self._at_s, end_s))] &= ~blocks.touched(servers)
        self.before = blocks.count(self._free)  # (arrivals, sizes)
        self.counts = blocks.counts
        """(sizes,) blocks of the empty fabric."""

    def after(self, servers: Sequence[int], ends_s: Sequence[float]) -> NDArray[np.int64]:
        """(choices, arrivals, sizes) the numbers left by a job on ``servers`` until its end. Each of ``servers`` is a
        bit mask."""
        touched = np.stack([self._blocks.touched(mask) for mask in servers])  # (choices, words)
        lost = self._blocks.count(touched[:, None] & self._free[None])
        runs = np.array(ends_s)[:, None] > self._at_s
        left: NDArray[np.int64] = self.before - lost * runs[:, :, None]
        return left


class Way(NamedTuple):
    """A way to partition the job that waits: degree 0 turns it away."""

    degree: int
    servers: int
    """Bit mask; 0 where it is turned away, or the placer chooses."""
    jct_s: float


def ways_in_time(view: RampView) -> Iterator[Way]:
    """Every degree on every free block where the job would be in time; degrees that split it alike only once."""
    limit_s = view.job.acceptable_s * (1 + view.rules.tolerance)
    splits = None
    for degree in view.degrees[1:]:
        parts = view.parts(degree)
        if parts.splits == splits:
            continue
        splits = parts.splits
        masks = free_blocks(view, parts.degree)
        for mask, jct_s in zip(masks, view.jct_on(degree, masks), strict=True):
            if jct_s is not None and jct_s <= limit_s:
                yield Way(degree, mask, jct_s)


def blocks_of(fabric: Fabric, size: int) -> tuple[int, ...]:
    """The distinct blocks of ``size`` servers as bit masks; servers in a row where any would do."""
    if size > fabric.servers:
        return ()
    return fabric.masks(size)[:_MOST_BLOCKS]


def free_blocks(view: RampView, size: int) -> list[int]:
    """The distinct blocks of so many free servers, in the order of first fit. They are bit masks."""
    occupied = view.occupied
    if view.fabric.topology.anywhere:
        return list(dict.fromkeys(mask for mask, _ in view.fabric.free(size, occupied)))
    return [mask for mask in view.fabric.masks(size) if not mask & occupied]


def _blocks_of(fabric: Fabric) -> _Blocks:
    known = _made.get(fabric)
    if known is None:
        known = _made[fabric] = _Blocks(fabric)
    return known


def _gap_of(view: RampView) -> float:
    """At the first arrival: the mean gap of the examples, else the time of a job shared by all servers."""
    known = view.examples
    if len(known) > 1 and known[-1].arrival_s > known[0].arrival_s:
        return (known[-1].arrival_s - known[0].arrival_s) / (len(known) - 1)
    return view.job.sequential_s / view.fabric.servers
