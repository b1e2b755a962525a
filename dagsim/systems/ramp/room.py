"""Room for jobs to come: which blocks of servers are free at the next arrivals, and what a placement leaves of them.

A fabric fragments in space (blocks of one size do not tile what another left) and in time (what ends together leaves
whole blocks, what does not leaves holes). Both show in how many blocks of each size are free at the arrivals to come,
if nobody else were let in.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dagsim.systems.ramp.fabric import Fabric
from dagsim.systems.ramp.view import RampView

__all__ = ["ARRIVALS", "SIZES", "Room", "blocks_of"]

SIZES = (1, 2, 4, 8, 16)
"""Servers of the blocks that are counted."""
ARRIVALS = (1, 2, 3, 5, 8, 13, 21)
"""How many arrivals ahead they are counted."""

_MOST_BLOCKS = 4096
"""Blocks of one size that are counted; of larger fabrics the first."""

Floats = NDArray[np.float64]


class _Blocks:
    """The blocks of all sizes of a fabric, each once, as words of 64 servers."""

    def __init__(self, fabric: Fabric) -> None:
        self.words = -(-fabric.servers // 64)
        found = [(mask, place) for place, size in enumerate(SIZES) for mask in blocks_of(fabric, size)]
        self.masks = np.array([_words(mask, self.words) for mask, _ in found], np.uint64)
        size_of = np.array([place for _, place in found])
        self.weights = np.zeros((len(found), len(SIZES)), np.float64)
        self.weights[np.arange(len(found)), size_of] = 1.0
        self.weights /= np.maximum(self.weights.sum(axis=0), 1.0)
        self._touched: dict[int, Floats] = {}

    def touched(self, servers: int) -> Floats:
        """(blocks,) 1.0 where a block has one of these servers."""
        known = self._touched.get(servers)
        if known is None:
            if len(self._touched) > 100_000:
                self._touched.clear()
            hit = (self.masks & np.array(_words(servers, self.words), np.uint64)).any(axis=1)
            known = self._touched[servers] = hit.astype(np.float64)
        return known


_made: WeakKeyDictionary[Fabric, _Blocks] = WeakKeyDictionary()


class Room:
    """The free blocks at the next arrivals: fractions by ``ARRIVALS`` (rows) and ``SIZES`` (columns)."""

    def __init__(self, view: RampView) -> None:
        self._blocks = _blocks_of(view.fabric)
        self.gap_s = view.gap_s or _gap_of(view)
        """The mean time between arrivals."""
        self._at_s = [view.now + ahead * self.gap_s for ahead in ARRIVALS]
        occupied = [0] * len(ARRIVALS)
        for end_s, servers in view.ends:
            for place, at_s in enumerate(self._at_s):
                if end_s <= at_s:
                    break
                occupied[place] |= servers
        words = self._blocks.words
        taken = np.array([_words(mask, words) for mask in occupied], np.uint64)
        free = ~(taken[:, None, :] & self._blocks.masks[None, :, :]).any(axis=2)  # (arrivals, blocks)
        self._free = free.astype(np.float64)
        self.before: Floats = self._free @ self._blocks.weights  # (arrivals, sizes)

    def after(self, servers: Sequence[int], ends_s: Sequence[float]) -> Floats:
        """(choices, arrivals, sizes) the fractions left by a job on each of ``servers`` (bit masks) until its end."""
        touched = np.stack([self._blocks.touched(mask) for mask in servers])  # (choices, blocks)
        lost = self._free[:, :, None] * self._blocks.weights[None, :, :]  # (arrivals, blocks, sizes)
        shape = (len(servers), len(ARRIVALS), len(SIZES))
        lost = (touched @ lost.transpose(1, 0, 2).reshape(touched.shape[1], -1)).reshape(shape)
        runs = np.array(ends_s)[:, None] > np.array(self._at_s)[None, :]
        left: Floats = self.before[None] - lost * runs[:, :, None]
        return left


def blocks_of(fabric: Fabric, size: int) -> tuple[int, ...]:
    """The distinct blocks of ``size`` servers as bit masks; servers in a row where any would do."""
    if size > fabric.servers:
        return ()
    return tuple(dict.fromkeys(mask for mask, _ in fabric.blocks(size)))[:_MOST_BLOCKS]


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


def _words(mask: int, words: int) -> tuple[int, ...]:
    """The bit mask in words of 64 bits."""
    return tuple((mask >> 64 * word) & 0xFFFF_FFFF_FFFF_FFFF for word in range(words))
