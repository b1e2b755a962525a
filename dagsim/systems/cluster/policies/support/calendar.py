"""A calendar of plans by GPU: gaps are found, and filled."""

from __future__ import annotations

from bisect import bisect, bisect_left, insort
from collections.abc import Iterator, Sequence
from heapq import merge, nsmallest
from itertools import islice
from math import inf
from operator import itemgetter

__all__ = ["GAPS", "Calendar"]

GAPS = 64
"""Ends of bookings after which a gap is looked for."""


class Calendar:
    """Busy times of ``count`` lanes, one per GPU, and the gaps between them. Busy times are rising lists of ``(start,
    end)`` that do not overlap."""

    def __init__(self, count: int) -> None:
        self.busy: list[list[tuple[float, float]]] = [[] for _ in range(count)]
        self._gaps: list[list[tuple[float, float]]] = [[] for _ in range(count)]
        """Per lane ``(start, end)`` of each time between two bookings, or before the first."""
        self._end: list[float] = [0.0] * count
        """Per lane the end of the last booking."""

    def earliest(
        self, lanes: Sequence[int], width: int, ready_s: float, seconds: float
    ) -> tuple[float, tuple[int, ...]]:
        """The first time from ``ready_s`` on that ``width`` lanes are free for ``seconds``, and which. It may lie
        between what is planned or behind it; lanes that end latest before it come first, so that gaps stay whole.
        ``inf`` and nothing if there are not so many lanes.

        Looks at the first ``GAPS`` times at which something ends, then behind everything. O(lanes x (gaps + log
        bookings)).
        """
        if width > len(lanes):
            return inf, ()
        start = self._first_gap(lanes, width, ready_s, seconds)
        free = [(-before, lane) for lane in lanes if (before := self._gap(lane, start, seconds)) >= 0]
        return start, tuple([lane for _, lane in sorted(free)[:width]])

    def book(self, lanes: Sequence[int], start: float, end: float) -> None:
        """Plan something on the lanes, which must be free."""
        if end > start:
            for lane in lanes:
                insort(self.busy[lane], (start, end))
                self._fill(lane, start, end)

    def forget(self, before: float) -> None:
        """Drop what ended by then."""
        for bookings, gaps in zip(self.busy, self._gaps, strict=True):
            while bookings and bookings[0][1] <= before:
                del bookings[0]
            while gaps and gaps[0][1] <= before:
                del gaps[0]

    def idle_s(self, lanes: Sequence[int], width: int, ready_s: float) -> float:
        """A time from ``ready_s`` on before which no ``width`` of the lanes are idle at once. It is the first at which
        they are, unless that lies behind ``GAPS`` changes. O(log lanes) per change up to then."""
        idle, reached_s = 0, ready_s
        for reached_s, change in islice(merge(*[self._changes(lane, ready_s) for lane in lanes]), GAPS):
            idle += change
            if idle >= width:
                return reached_s
        return reached_s

    def _changes(self, lane: int, ready_s: float) -> Iterator[tuple[float, int]]:
        """The times from ``ready_s`` on at which the lane becomes busy (-1) or idle (1)."""
        gaps = self._gaps[lane]
        for place in range(max(bisect(gaps, (ready_s, inf)) - 1, 0), len(gaps)):
            begin, end = gaps[place]
            if (begin := max(begin, ready_s)) < end:
                yield begin, 1
                yield end, -1
        yield max(self._end[lane], ready_s), 1

    def _first_gap(self, lanes: Sequence[int], width: int, ready_s: float, seconds: float) -> float:
        """The start that ``earliest`` finds."""
        tails = sorted([max(self._end[lane], ready_s) for lane in lanes])
        last = tails[width - 1]
        until = min(last, *[self._horizon(lane, ready_s) for lane in lanes])
        fitting = [gap for lane in lanes for gap in self._fitting(lane, ready_s, seconds, until)]
        for start in sorted({gap[0] for gap in fitting}.union(tails)) if fitting else ():
            if start >= last or start > until:
                break
            free = sum(tail <= start for tail in tails)
            if free + sum(begin <= start < end and start + seconds <= end for begin, end in fitting) >= width:
                return start if self._is_near(lanes, ready_s, start) else last
        return last

    def _horizon(self, lane: int, ready_s: float) -> float:
        """The ``GAPS``-th time from ``ready_s`` on at which something ends on the lane."""
        ends = self._from(lane, ready_s)
        return ends[-1][1] if len(ends) == GAPS else inf

    def _fitting(self, lane: int, ready_s: float, seconds: float, until: float) -> Iterator[tuple[float, float]]:
        """The gaps from ``ready_s`` on that are long enough and begin by ``until``."""
        gaps = self._gaps[lane]
        for place in range(max(bisect(gaps, (ready_s, inf)) - 1, 0), len(gaps)):
            begin, end = gaps[place]
            begin = max(begin, ready_s)
            if begin > until:
                return
            if begin < end and end >= begin + seconds:
                yield begin, end

    def _is_near(self, lanes: Sequence[int], ready_s: float, start: float) -> bool:
        """True if fewer than ``GAPS`` times at which something ends lie before ``start``."""
        if start <= ready_s:
            return True
        ends = [self._from(lane, ready_s) for lane in lanes]
        if sum(bisect_left(each, start, key=itemgetter(1)) for each in ends) < GAPS:
            return True
        return start in nsmallest(GAPS, {end for each in ends for _, end in each})

    def _fill(self, lane: int, start: float, end: float) -> None:
        """Take a booking out of the gap that it lies in, or make one before it."""
        gaps, tail = self._gaps[lane], self._end[lane]
        if start >= tail:
            if start > tail:
                gaps.append((tail, start))
            self._end[lane] = end
            return
        place = bisect(gaps, (start, inf)) - 1
        begin, until = gaps[place]
        gaps[place : place + 1] = [gap for gap in ((begin, start), (end, until)) if gap[0] < gap[1]]

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
