"""What is planned on which GPU and when: gaps are found, and filled."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from math import inf

__all__ = ["Calendar"]


class Calendar:
    """Busy times of ``count`` lanes (one per GPU), each a rising list of ``(start, end)`` that do not overlap."""

    def __init__(self, count: int) -> None:
        self.busy: list[list[tuple[float, float]]] = [[] for _ in range(count)]

    def earliest(
        self, lanes: Sequence[int], width: int, ready_s: float, seconds: float
    ) -> tuple[float, tuple[int, ...]]:
        """The first time from ``ready_s`` on that ``width`` of the lanes are free for ``seconds``, between what is
        planned or behind it, and which (those that end latest before it first, so that gaps stay whole); ``inf`` and
        nothing if there are not so many lanes. O(lanes x bookings)."""
        if width > len(lanes):
            return inf, ()
        times = {ready_s}
        for lane in lanes:
            times.update(end for _, end in self.busy[lane] if end > ready_s)
        for start in sorted(times):
            free = [lane for lane in lanes if self._is_free(lane, start, start + seconds)]
            if len(free) >= width:
                free.sort(key=lambda lane: (-self._last_end(lane, start), lane))
                return start, tuple(free[:width])
        raise AssertionError("behind everything that is planned all lanes are free")

    def book(self, lanes: Sequence[int], start: float, end: float) -> None:
        """Plan something on the lanes."""
        if end > start:
            for lane in lanes:
                insort(self.busy[lane], (start, end))

    def _is_free(self, lane: int, start: float, end: float) -> bool:
        return all(ended <= start or begun >= end for begun, ended in self.busy[lane]) if end > start else True

    def _last_end(self, lane: int, start: float) -> float:
        return max((end for _, end in self.busy[lane] if end <= start), default=0.0)
