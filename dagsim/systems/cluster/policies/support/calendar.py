"""A calendar of plans by GPU: gaps are found, and filled."""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Sequence
from heapq import nsmallest
from math import inf

__all__ = ["GAPS", "Calendar"]

GAPS = 64
"""Ends of bookings after which a gap is looked for."""


class Calendar:
    """Busy times of ``count`` lanes, one per GPU. Each is a rising list of ``(start, end)`` that do not overlap."""

    def __init__(self, count: int) -> None:
        self.busy: list[list[tuple[float, float]]] = [[] for _ in range(count)]

    def earliest(
        self, lanes: Sequence[int], width: int, ready_s: float, seconds: float
    ) -> tuple[float, tuple[int, ...]]:
        """The first time from ``ready_s`` on that ``width`` lanes are free for ``seconds``, and which. It may lie
        between what is planned or behind it; lanes that end latest before it come first, so that gaps stay whole.
        ``inf`` and nothing if there are not so many lanes.

        Looks at the first ``GAPS`` times at which something ends, then behind everything. O(GAPS x lanes x log
        bookings).
        """
        if width > len(lanes):
            return inf, ()
        ends = {end for lane in lanes for _, end in self._from(lane, ready_s)}
        last = sorted([self.busy[lane][-1][1] if self.busy[lane] else 0.0 for lane in lanes])[width - 1]
        for start in (ready_s, *nsmallest(GAPS, ends), max(ready_s, last)):
            free = [(-before, lane) for lane in lanes if (before := self._gap(lane, start, seconds)) >= 0]
            if len(free) >= width:
                return start, tuple([lane for _, lane in sorted(free)[:width]])
        raise AssertionError("behind everything that is planned all lanes are free")

    def book(self, lanes: Sequence[int], start: float, end: float) -> None:
        """Plan something on the lanes."""
        if end > start:
            for lane in lanes:
                insort(self.busy[lane], (start, end))

    def forget(self, before: float) -> None:
        """Drop what ended by then."""
        for bookings in self.busy:
            while bookings and bookings[0][1] <= before:
                del bookings[0]

    def _from(self, lane: int, start: float) -> list[tuple[float, float]]:
        """The first bookings that end after ``start``."""
        bookings = self.busy[lane]
        place = bisect(bookings, (start, inf))
        place -= place > 0 and bookings[place - 1][1] > start
        return bookings[place : place + GAPS]

    def _gap(self, lane: int, start: float, seconds: float) -> float:
        """The end of the lane's last booking before ``start``, if it is free from then; else -1. Free means for
        ``seconds``."""
        bookings = self.busy[lane]
        place = bisect(bookings, (start, inf))
        before = bookings[place - 1][1] if place else 0.0
        if place and bookings[place - 1][0] == start and seconds > 0:
            return -1.0
        free = before <= start and (place == len(bookings) or bookings[place][0] >= start + seconds)
        return before if free else -1.0
