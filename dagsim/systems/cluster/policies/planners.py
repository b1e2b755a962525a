"""Static list scheduling of a single DAG on heterogeneous processors: HEFT, CPOP, PEFT and DLS, as
described in their papers.

A planner receives a ``Problem`` and books every task in a calendar. It needs no simulation. Ties go
to the task that comes first in the graph and to the first site. Values that differ only by rounding
(1e-9) count as equal.
"""

from __future__ import annotations

from bisect import bisect, bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, merge, nsmallest
from itertools import islice
from math import inf
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np

from dagsim.model.arithmetic import ordered_sum, whole_sum

_SAME = 1e-9


class Booking(NamedTuple):
    """The planned place and time of a task."""

    task: int
    site: int
    lanes: tuple[int, ...]
    start_s: float
    end_s: float


@dataclass(slots=True)
class Problem:
    """A DAG and the sites on which it may run. A site is a processor or the GPUs of a node, that
    is, a set of lanes in the calendar.
    """

    seconds: Sequence[Sequence[float]]
    """Seconds by task and site; ``inf`` where the task may not run."""
    parents: Sequence[Sequence[int]]
    children: Sequence[Sequence[int]]
    order: Sequence[int]
    """The tasks, parents before children."""
    transfer_s: Callable[[int, int], float]
    """Seconds to send the output of a parent to a child on another site."""
    lanes: Sequence[Sequence[int]]
    """The lanes of each site."""
    width: Sequence[int]
    """Number of lanes that each task needs at once, or 0 for none."""
    calendar: Calendar
    now_s: float = 0.0

    def sites(self, task: int) -> list[int]:
        """Return the sites on which the task may run."""
        return [site for site, seconds in enumerate(self.seconds[task]) if seconds < inf]

    def mean_s(self, task: int) -> float:
        """Return the task's mean duration in seconds over the sites on which it may run."""
        finite_s = [seconds for seconds in self.seconds[task] if seconds < inf]
        return ordered_sum(finite_s) / len(finite_s)

    def best(self, task: int, done: dict[int, Booking], sites: Sequence[int] | None = None) -> Booking:
        """Return the booking with the earliest finish time, given the bookings of the task's
        parents. The booking may be in a gap between other bookings or after all of them
        (insertion-based, Topcuoglu et al. 2002, section 4.1).
        """
        best: Booking | None = None
        for site in self.sites(task) if sites is None else sites:
            booking = self.booking(task, site, done)
            if best is None or booking.end_s < best.end_s - _SAME:
                best = booking
        assert best is not None
        return best

    def booking(self, task: int, site: int, done: dict[int, Booking]) -> Booking:
        """Return the earliest possible booking for the task on the site."""
        seconds = self.seconds[task][site]
        ready_s = self.ready_s(task, site, done)
        if not self.width[task]:
            return Booking(task, site, (), ready_s, ready_s + seconds)
        start_s, lanes = self.calendar.earliest(self.lanes[site], self.width[task], ready_s, seconds)
        return Booking(task, site, lanes, start_s, start_s + seconds)

    def ready_s(self, task: int, site: int, done: dict[int, Booking]) -> float:
        """Return the time at which all inputs of the task have reached the site."""
        ready_s = self.now_s
        for parent in self.parents[task]:
            if parent in done:
                arrives_s = done[parent].end_s + (0.0 if done[parent].site == site else self.transfer_s(parent, task))
                ready_s = max(ready_s, arrives_s)
        return ready_s

    def book(self, booking: Booking, done: dict[int, Booking]) -> None:
        """Add the booking to the calendar."""
        self.calendar.book(booking.lanes, booking.start_s, booking.end_s)
        done[booking.task] = booking


BookingPlanner: TypeAlias = Callable[[Problem], dict[int, Booking]]
"""A function that books every task of the problem, and returns the bookings by task in the order in
which they were made."""


def rank_up(problem: Problem) -> list[float]:
    """Return each task's upward rank, rank_u (Topcuoglu et al. 2002, equation 8). This is the
    length of the longest path from the task to the end, in mean seconds and including transfers.
    """
    rank = [0.0] * len(problem.seconds)
    for task in reversed(problem.order):
        behind = [problem.transfer_s(task, child) + rank[child] for child in problem.children[task]]
        rank[task] = problem.mean_s(task) + max(behind, default=0.0)
    return rank


def rank_down(problem: Problem) -> list[float]:
    """Return each task's downward rank, rank_d (equation 10). This is the length of the longest
    path from the beginning to the start of the task, in mean seconds and including transfers.
    """
    rank = [0.0] * len(problem.seconds)
    for task in problem.order:
        for child in problem.children[task]:
            rank[child] = max(rank[child], rank[task] + problem.mean_s(task) + problem.transfer_s(task, child))
    return rank


def plan_heft(problem: Problem) -> dict[int, Booking]:
    """Plan by heterogeneous earliest finish time (Topcuoglu, Hariri and Wu 2002, section 4.1).
    Tasks are planned in order of decreasing upward rank, each on the site where it finishes
    earliest.
    """
    rank, done = rank_up(problem), dict[int, Booking]()
    for task in _by_priority(problem, rank):
        problem.book(problem.best(task, done), done)
    return done


def plan_cpop(problem: Problem) -> dict[int, Booking]:
    """Plan by critical path on a processor: the ready task with the largest sum of upward and
    downward rank comes first. All tasks on the critical path are planned on the site on which they
    take the least time in total (Topcuoglu et al. 2002, section 4.2).
    """
    up, down = rank_up(problem), rank_down(problem)
    priority = [above + below for above, below in zip(up, down, strict=True)]
    entries = [task for task in problem.order if not problem.parents[task]]
    longest = max(priority[task] for task in entries)
    at = next(task for task in entries if priority[task] >= longest - _SAME)
    path = [at]
    while problem.children[at]:
        at = max(problem.children[at], key=lambda child: (round(priority[child], 6), -child))
        path.append(at)
    together = [ordered_sum(problem.seconds[task][site] for task in path) for site in range(len(problem.lanes))]
    chosen = min(range(len(together)), key=together.__getitem__)
    done: dict[int, Booking] = {}
    critical = set(path)
    for task in _by_readiness(problem, priority):
        pinned = task in critical and problem.seconds[task][chosen] < inf
        problem.book(problem.best(task, done, [chosen] if pinned else None), done)
    return done


def plan_peft(problem: Problem) -> dict[int, Booking]:
    """Plan by predicted earliest finish time (Arabnejad and Barbosa 2014). Tasks are planned in
    order of their mean optimistic cost. Each is planned on the site where its finish time plus the
    optimistic cost of the following tasks is smallest.
    """
    sites = range(len(problem.lanes))
    table = [[0.0] * len(sites) for _ in problem.seconds]
    for task in reversed(problem.order):
        for site in sites:
            table[task][site] = max(
                (
                    min(
                        table[child][to]
                        + problem.seconds[child][to]
                        + (0.0 if to == site else problem.transfer_s(task, child))
                        for to in problem.sites(child)
                    )
                    for child in problem.children[task]
                ),
                default=0.0,
            )
    priority = [ordered_sum(row) / len(row) for row in table]
    done: dict[int, Booking] = {}
    for task in _by_readiness(problem, priority):
        bookings = [problem.booking(task, site, done) for site in problem.sites(task)]
        problem.book(min(bookings, key=lambda booking: round(booking.end_s + table[task][booking.site], 9)), done)
    return done


def plan_dls(problem: Problem) -> dict[int, Booking]:
    """Plan by dynamic level scheduling: of all pairs of a ready task and a site, the one with the
    highest dynamic level comes first. The dynamic level is the static level minus the earliest
    start, plus the mean seconds, minus the seconds on the site. Tasks are not inserted into gaps
    (Sih and Lee 1993).
    """
    level = [0.0] * len(problem.seconds)
    for task in reversed(problem.order):
        level[task] = problem.mean_s(task) + max((level[child] for child in problem.children[task]), default=0.0)
    pairs = _DynamicLevels(problem, level)
    missing = [len(parents) for parents in problem.parents]
    done: dict[int, Booking] = {}
    for task in problem.order:
        if not missing[task]:
            pairs.add(task, done)
    while len(done) < len(level):
        booking = pairs.take(done)
        problem.book(booking, done)
        pairs.booked(booking)
        for child in _freed(problem, booking.task, missing):
            pairs.add(child, done)
    return done


class _DynamicLevels:
    """The dynamic levels of all pairs of a ready task and a site.

    A booking can only delay later bookings, so a stored level may be too high but is never too low.
    It is therefore enough to recompute the level of the pair with the highest level, until this
    level no longer falls. A task cannot start on a site before the first time at which any task of
    the same width could start there. Because of this bound, the other stored levels are close to
    their true values.
    """

    def __init__(self, problem: Problem, level: Sequence[float]) -> None:
        self._problem = problem
        self._level = level
        shape = len(problem.lanes), len(problem.seconds)
        self._fixed = np.full(shape, -inf)
        """The level without the start, or -inf for a task that is not ready, or a site that may not
        run it.
        """
        self._start_s = np.zeros(shape)
        """The earliest start when it was last computed."""
        self._seems = np.full(shape, -inf)
        """The level when it was last computed."""
        self._highest = np.full(shape[1], -inf)
        """The highest level of each task."""
        widths, self._width = np.unique(np.array(problem.width), return_inverse=True)
        self._widths: list[int] = widths.tolist()
        self._idle_s = [self._look(site) for site in range(shape[0])]
        """By site and width, the first time when any task could start there."""
        self._shared = [
            [other for other, lanes in enumerate(problem.lanes) if not set(lanes).isdisjoint(mine)]
            for mine in problem.lanes
        ]
        """The sites that share a lane with each site."""

    def add(self, task: int, done: dict[int, Booking]) -> None:
        """Add a ready task."""
        problem, mean_s, width = self._problem, self._problem.mean_s(task), self._width[task]
        for site in problem.sites(task):
            fixed = self._fixed[site, task] = self._level[task] + (mean_s - problem.seconds[task][site])
            start_s = self._start_s[site, task] = problem.ready_s(task, site, done)
            self._seems[site, task] = fixed - max(start_s, self._idle_s[site][width])
        self._highest[task] = max(self._seems[:, task].tolist())

    def take(self, done: dict[int, Booking]) -> Booking:
        """Return the booking with the highest level. Ties go to the first task, then to the first
        site. The cost is O(tasks) per recomputed level.
        """
        while True:
            task, site = self._first_highest()
            booking = self._problem.booking(task, site, done)
            level = self._fixed[site, task] - booking.start_s
            self._start_s[site, task] = booking.start_s
            if level == self._seems[site, task]:
                return booking
            self._seems[site, task] = level
            self._highest[task] = max(self._seems[:, task].tolist())

    def booked(self, booking: Booking) -> None:
        """Mark the task as planned, and its lanes as busy at that time. This costs O(tasks) for
        each site that shares a lane, plus finding the maximum over all pairs.
        """
        for levels in (self._fixed, self._seems):
            levels[:, booking.task] = -inf
        for site in self._shared[booking.site] if booking.lanes else ():
            idle_s = self._idle_s[site] = self._look(site)
            self._seems[site] = self._fixed[site] - np.maximum(self._start_s[site], np.array(idle_s)[self._width])
        self._highest = self._seems.max(axis=0)

    def _look(self, site: int) -> list[float]:
        """Return, for each width, the first time at which a task could start on the site."""
        problem, lanes = self._problem, self._problem.lanes[site]
        return [
            problem.calendar.idle_s(lanes, width, problem.now_s) if 0 < width <= len(lanes) else problem.now_s
            for width in self._widths
        ]

    def _first_highest(self) -> tuple[int, int]:
        """Go through all pairs of a task and a site in order, and choose a pair if its level
        exceeds that of the last chosen pair by more than rounding errors. Return the last chosen
        pair.

        Only a task whose highest level exceeds the highest levels of all earlier tasks can be
        chosen.
        """
        highest = self._highest
        rises = np.flatnonzero(highest[1:] > np.maximum.accumulate(highest)[:-1]) + 1
        best, task, site = -inf, 0, 0
        for row in (0, *rises.tolist()):
            for place, level in enumerate(self._seems[:, row].tolist()):
                if level > best + _SAME:
                    best, task, site = level, row, place
        return task, site


def _by_priority(problem: Problem, rank: Sequence[float]) -> list[int]:
    """Return the tasks by decreasing rank. In a tie, tasks keep their order in the graph, so
    parents come before children.
    """
    place = {task: number for number, task in enumerate(problem.order)}
    return sorted(problem.order, key=lambda task: (-round(rank[task], 6), place[task]))


def _by_readiness(problem: Problem, priority: Sequence[float]) -> list[int]:
    """Return the tasks in the order in which they would be taken from a queue of ready tasks,
    highest priority first.
    """
    missing = [len(parents) for parents in problem.parents]
    ready = [(-round(priority[task], 6), task) for task in problem.order if not missing[task]]
    heapify(ready)
    released = []
    while ready:
        _, task = heappop(ready)
        released.append(task)
        for child in _freed(problem, task, missing):
            heappush(ready, (-round(priority[child], 6), child))
    return released


def _freed(problem: Problem, task: int, missing: list[int]) -> list[int]:
    """Return the children of ``task`` that became ready when it was booked."""
    freed = []
    for child in problem.children[task]:
        missing[child] -= 1
        if not missing[child]:
            freed.append(child)
    return freed


GAPS = 64
"""Maximum number of times that the search for a gap tries. At each of them, a booking ends."""


class Calendar:
    """The busy times of ``count`` lanes (one per GPU), and the gaps between them. The busy times of
    a lane are an increasing list of ``(start, end)`` pairs that do not overlap.
    """

    def __init__(self, count: int) -> None:
        self.busy: list[list[tuple[float, float]]] = [[] for _ in range(count)]
        self._gaps: list[list[tuple[float, float]]] = [[] for _ in range(count)]
        """For each lane, ``(start, end)`` of each gap between two bookings, or before the first."""
        self._end: list[float] = [0.0] * count
        """The end of the last booking of each lane."""

    def earliest(
        self, lanes: Sequence[int], width: int, ready_s: float, seconds: float
    ) -> tuple[float, tuple[int, ...]]:
        """Return the first time from ``ready_s`` onwards at which ``width`` lanes are free for
        ``seconds``, and these lanes. The time may be between bookings or after them. If more lanes
        are free, those whose last booking before that time ends latest are used, so that large gaps
        remain. Return ``inf`` and no lanes if there are too few lanes.

        Only the first ``GAPS`` times at which a booking ends are tried, and then the time after all
        bookings. The cost is O(lanes x (gaps + log bookings)).
        """
        if width > len(lanes):
            return inf, ()
        start = self._first_gap(lanes, width, ready_s, seconds)
        free = [(-before, lane) for lane in lanes if (before := self._gap(lane, start, seconds)) >= 0]
        return start, tuple([lane for _, lane in sorted(free)[:width]])

    def book(self, lanes: Sequence[int], start: float, end: float) -> None:
        """Book the lanes, which must be free."""
        if end > start:
            for lane in lanes:
                insort(self.busy[lane], (start, end))
                self._fill(lane, start, end)

    def forget(self, before: float) -> None:
        """Remove the bookings that have ended by that time."""
        for bookings, gaps in zip(self.busy, self._gaps, strict=True):
            while bookings and bookings[0][1] <= before:
                del bookings[0]
            while gaps and gaps[0][1] <= before:
                del gaps[0]

    def idle_s(self, lanes: Sequence[int], width: int, ready_s: float) -> float:
        """Return the first time from ``ready_s`` onwards at which ``width`` of the lanes are idle
        simultaneously. Examine at most ``GAPS`` changes, and return the time of the last one if no
        such time has been found. The cost is O(log lanes) per change.
        """
        idle, reached_s = 0, ready_s
        for reached_s, change in islice(merge(*[self._changes(lane, ready_s) for lane in lanes]), GAPS):
            idle += change
            if idle >= width:
                return reached_s
        return reached_s

    def _changes(self, lane: int, ready_s: float) -> Iterator[tuple[float, int]]:
        """Yield the times from ``ready_s`` onwards at which the lane becomes busy (-1) or idle
        (1)."""
        gaps = self._gaps[lane]
        for place in range(max(bisect(gaps, (ready_s, inf)) - 1, 0), len(gaps)):
            begin, end = gaps[place]
            if (begin := max(begin, ready_s)) < end:
                yield begin, 1
                yield end, -1
        yield max(self._end[lane], ready_s), 1

    def _first_gap(self, lanes: Sequence[int], width: int, ready_s: float, seconds: float) -> float:
        """Return the start time for ``earliest``."""
        tails = sorted([max(self._end[lane], ready_s) for lane in lanes])
        last = tails[width - 1]
        until = min(last, *[self._horizon(lane, ready_s) for lane in lanes])
        fitting = [gap for lane in lanes for gap in self._fitting(lane, ready_s, seconds, until)]
        for start in sorted({gap[0] for gap in fitting}.union(tails)) if fitting else ():
            if start >= last or start > until:
                break
            free = sum(tail <= start for tail in tails)
            if free + whole_sum(begin <= start < end and start + seconds <= end for begin, end in fitting) >= width:
                return start if self._is_near(lanes, ready_s, start) else last
        return last

    def _horizon(self, lane: int, ready_s: float) -> float:
        """Return the ``GAPS``-th time from ``ready_s`` onwards at which a booking on the lane ends."""
        ends = self._from(lane, ready_s)
        return ends[-1][1] if len(ends) == GAPS else inf

    def _fitting(self, lane: int, ready_s: float, seconds: float, until: float) -> Iterator[tuple[float, float]]:
        """Yield the gaps from ``ready_s`` onwards that are long enough and begin by ``until``."""
        gaps = self._gaps[lane]
        for place in range(max(bisect(gaps, (ready_s, inf)) - 1, 0), len(gaps)):
            begin, end = gaps[place]
            begin = max(begin, ready_s)
            if begin > until:
                return
            if begin < end and end >= begin + seconds:
                yield begin, end

    def _is_near(self, lanes: Sequence[int], ready_s: float, start: float) -> bool:
        """Return True if fewer than ``GAPS`` bookings end before ``start``."""
        if start <= ready_s:
            return True
        ends = [self._from(lane, ready_s) for lane in lanes]
        if sum(bisect_left(bookings, start, key=itemgetter(1)) for bookings in ends) < GAPS:
            return True
        return start in nsmallest(GAPS, {end for bookings in ends for _, end in bookings})

    def _fill(self, lane: int, start: float, end: float) -> None:
        """Remove the time of a booking from the gap that contains it. If the booking comes after
        all others, add the gap in front of it instead.
        """
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
        """Return the first ``GAPS`` bookings on the lane that end after ``start``."""
        bookings = self.busy[lane]
        place = bisect(bookings, (start, inf))
        place -= place > 0 and bookings[place - 1][1] > start
        return bookings[place : place + GAPS]

    def _gap(self, lane: int, start: float, seconds: float) -> float:
        """Return the end of the lane's last booking before ``start``. Return -1 if the lane is not
        free for ``seconds`` from ``start`` onwards.
        """
        bookings = self.busy[lane]
        place = bisect(bookings, (start, inf))
        before = bookings[place - 1][1] if place else 0.0
        if place and bookings[place - 1][0] == start and seconds > 0:
            return -1.0
        free = before <= start and (place == len(bookings) or bookings[place][0] >= start + seconds)
        return before if free else -1.0
