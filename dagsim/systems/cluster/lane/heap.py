"""Binary heaps of ``ENTRY`` records: smaller keys first, and under equal keys the smaller ``what``.

A heap is a range of an array, starting at ``at``, so that many heaps share one array.
"""

from __future__ import annotations

import numpy as np

from dagsim.systems.cluster.lane.jit import inner

__all__ = ["pop", "push"]


@inner
def push(heap: np.recarray, at: int, held: int, key: float, what: int) -> None:
    """Add an entry to a heap of ``held`` entries."""
    place = held
    while place:
        above = (place - 1) >> 1
        other = heap[at + above].key
        if other < key or (other == key and heap[at + above].what < what):
            break
        heap[at + place].key = other
        heap[at + place].what = heap[at + above].what
        place = above
    heap[at + place].key = key
    heap[at + place].what = what


@inner
def pop(heap: np.recarray, at: int, held: int) -> None:
    """Remove the first entry of a heap of ``held`` entries."""
    last = held - 1
    key, what = heap[at + last].key, heap[at + last].what
    place, below = 0, 1
    while below < last:
        other = heap[at + below].key
        if below + 1 < last:
            twin = heap[at + below + 1].key
            if twin < other or (twin == other and heap[at + below + 1].what < heap[at + below].what):
                below, other = below + 1, twin
        if key < other or (key == other and what < heap[at + below].what):
            break
        heap[at + place].key = other
        heap[at + place].what = heap[at + below].what
        place, below = below, 2 * below + 1
    heap[at + place].key = key
    heap[at + place].what = what
