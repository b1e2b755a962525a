"""Static list scheduling of one DAG on unlike processors: HEFT, CPOP, PEFT and DLS, as their papers have them.

A planner sees a ``Problem`` and books every task on a calendar; it knows nothing of simulations. Ties go to the task
that comes first in the graph and to the site that comes first, as equal up to rounding (1e-9) counts as equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np

from dagsim.systems.cluster.policies.support.calendar import Calendar

__all__ = ["Booking", "Planner", "Problem", "plan_cpop", "plan_dls", "plan_heft", "plan_peft", "rank_down", "rank_up"]

_SAME = 1e-9


class Booking(NamedTuple):
    """The place and time that a task is planned for."""

    task: int
    site: int
    lanes: tuple[int, ...]
    start_s: float
    end_s: float


@dataclass(slots=True)
class Problem:
    """A DAG, and the sites it may run on. A site is a set of lanes of the calendar: a processor, or a node's GPUs."""

    seconds: Sequence[Sequence[float]]
    """Per task and site; ``inf`` where it may not run."""
    parents: Sequence[Sequence[int]]
    children: Sequence[Sequence[int]]
    order: Sequence[int]
    """The tasks, parents before children."""
    transfer_s: Callable[[int, int], float]
    """Seconds that the output of a parent takes to a child on another site."""
    lanes: Sequence[Sequence[int]]
    """The lanes of each site."""
    width: Sequence[int]
    """How many lanes each task needs at once; 0 for none."""
    calendar: Calendar
    now_s: float = 0.0

    def sites(self, task: int) -> list[int]:
        """The sites that may run the task."""
        return [site for site, seconds in enumerate(self.seconds[task]) if seconds < inf]

    def mean_s(self, task: int) -> float:
        """The task's mean seconds over the sites that may run it."""
        known = [seconds for seconds in self.seconds[task] if seconds < inf]
        return sum(known) / len(known)

    def best(self, task: int, done: dict[int, Booking], sites: Sequence[int] | None = None) -> Booking:
        """The booking with the earliest finish time, in a gap or behind everything. It is insertion-based (Topcuoglu et
        al. 2002, section 4.1), given where the parents are booked."""
        best: Booking | None = None
        for site in self.sites(task) if sites is None else sites:
            booking = self.booking(task, site, done)
            if best is None or booking.end_s < best.end_s - _SAME:
                best = booking
        assert best is not None
        return best

    def booking(self, task: int, site: int, done: dict[int, Booking]) -> Booking:
        """The earliest booking of the task on the site."""
        seconds = self.seconds[task][site]
        ready_s = self.ready_s(task, site, done)
        if not self.width[task]:
            return Booking(task, site, (), ready_s, ready_s + seconds)
        start_s, lanes = self.calendar.earliest(self.lanes[site], self.width[task], ready_s, seconds)
        return Booking(task, site, lanes, start_s, start_s + seconds)

    def ready_s(self, task: int, site: int, done: dict[int, Booking]) -> float:
        """The time when all inputs of the task are on the site."""
        ready_s = self.now_s
        for parent in self.parents[task]:
            if parent in done:
                arrives_s = done[parent].end_s + (0.0 if done[parent].site == site else self.transfer_s(parent, task))
                ready_s = max(ready_s, arrives_s)
        return ready_s

    def book(self, booking: Booking, done: dict[int, Booking]) -> None:
        """Take the booking."""
        self.calendar.book(booking.lanes, booking.start_s, booking.end_s)
        done[booking.task] = booking


Planner: TypeAlias = Callable[[Problem], dict[int, Booking]]
"""Books every task of the problem; returns the bookings by task, in the order they were made."""


def rank_up(problem: Problem) -> list[float]:
    """The mean length of the longest path from each task to the end, transfers included. It is rank_u (Topcuoglu et al.
    2002, equation 8)."""
    rank = [0.0] * len(problem.seconds)
    for task in reversed(problem.order):
        behind = [problem.transfer_s(task, child) + rank[child] for child in problem.children[task]]
        rank[task] = problem.mean_s(task) + max(behind, default=0.0)
    return rank


def rank_down(problem: Problem) -> list[float]:
    """The mean length of the longest path from the beginning to each task's start. It is rank_d (equation 10)."""
    rank = [0.0] * len(problem.seconds)
    for task in problem.order:
        for child in problem.children[task]:
            rank[child] = max(rank[child], rank[task] + problem.mean_s(task) + problem.transfer_s(task, child))
    return rank


def plan_heft(problem: Problem) -> dict[int, Booking]:
    """Heterogeneous earliest finish time: tasks by falling upward rank, each where it finishes earliest (Topcuoglu,
    Hariri and Wu 2002, section 4.1)."""
    rank, done = rank_up(problem), dict[int, Booking]()
    for task in _by_priority(problem, rank):
        problem.book(problem.best(task, done), done)
    return done


def plan_cpop(problem: Problem) -> dict[int, Booking]:
    """Critical path on a processor: the ready task with the most upward + downward rank first; the tasks of the
    critical path all go to the site that runs them fastest together (Topcuoglu et al. 2002, section 4.2)."""
    up, down = rank_up(problem), rank_down(problem)
    priority = [above + below for above, below in zip(up, down, strict=True)]
    entries = [task for task in problem.order if not problem.parents[task]]
    longest = max(priority[task] for task in entries)
    at = next(task for task in entries if priority[task] >= longest - _SAME)
    path = [at]
    while problem.children[at]:
        at = max(problem.children[at], key=lambda child: (round(priority[child], 6), -child))
        path.append(at)
    together = [sum(problem.seconds[task][site] for task in path) for site in range(len(problem.lanes))]
    chosen = min(range(len(together)), key=together.__getitem__)
    done: dict[int, Booking] = {}
    critical = set(path)
    for task in _by_readiness(problem, priority):
        pinned = task in critical and problem.seconds[task][chosen] < inf
        problem.book(problem.best(task, done, [chosen] if pinned else None), done)
    return done


def plan_peft(problem: Problem) -> dict[int, Booking]:
    """Predict earliest finish time: tasks by their mean optimistic cost, each where finish time plus the optimistic
    cost of what follows is least (Arabnejad and Barbosa 2014)."""
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
    priority = [sum(row) / len(row) for row in table]
    done: dict[int, Booking] = {}
    for task in _by_readiness(problem, priority):
        bookings = [problem.booking(task, site, done) for site in problem.sites(task)]
        problem.book(min(bookings, key=lambda each: round(each.end_s + table[task][each.site], 9)), done)
    return done


def plan_dls(problem: Problem) -> dict[int, Booking]:
    """Dynamic level scheduling: of all pairs of ready task and site the one with the highest dynamic level (static
    level - earliest start + mean seconds - seconds there), not inserted into gaps (Sih and Lee 1993)."""
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
    """The dynamic levels of all pairs of ready task and site.

    As bookings only delay what is still to be booked, a level known from before is never too low: only that of the
    pair that seems highest is computed again, until it is as high as it seems. On each site a task starts no earlier
    than anything of its width could, which keeps the others near to what they are.
    """

    def __init__(self, problem: Problem, level: Sequence[float]) -> None:
        self._problem = problem
        self._level = level
        shape = len(problem.lanes), len(problem.seconds)
        self._fixed = np.full(shape, -inf)
        """Of a task that is not ready, or on a site that may not run it, -inf; else the level without the start."""
        self._start_s = np.zeros(shape)
        """The earliest start as it was last computed."""
        self._seems = np.full(shape, -inf)
        """The level as it is known."""
        self._highest = np.full(shape[1], -inf)
        """Per task the highest of these."""
        widths, self._width = np.unique(np.array(problem.width), return_inverse=True)
        self._widths: list[int] = widths.tolist()
        self._idle_s = [self._look(site) for site in range(shape[0])]
        """Per site and width the first time when anything could start there."""
        self._shared = [
            [other for other, lanes in enumerate(problem.lanes) if not set(lanes).isdisjoint(mine)]
            for mine in problem.lanes
        ]
        """The sites that have a lane in common with each."""

    def add(self, task: int, done: dict[int, Booking]) -> None:
        """The task is ready."""
        problem, mean_s, width = self._problem, self._problem.mean_s(task), self._width[task]
        for site in problem.sites(task):
            fixed = self._fixed[site, task] = self._level[task] + (mean_s - problem.seconds[task][site])
            start_s = self._start_s[site, task] = problem.ready_s(task, site, done)
            self._seems[site, task] = fixed - max(start_s, self._idle_s[site][width])
        self._highest[task] = max(self._seems[:, task].tolist())

    def take(self, done: dict[int, Booking]) -> Booking:
        """The booking with the highest level; of equal ones the first by task, then by site. O(tasks) per level that is
        computed again."""
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
        """The task is planned, and its lanes are busy then. O(tasks) per site that shares a lane, and a maximum over
        all pairs."""
        for levels in (self._fixed, self._seems):
            levels[:, booking.task] = -inf
        for site in self._shared[booking.site] if booking.lanes else ():
            idle_s = self._idle_s[site] = self._look(site)
            self._seems[site] = self._fixed[site] - np.maximum(self._start_s[site], np.array(idle_s)[self._width])
        self._highest = self._seems.max(axis=0)

    def _look(self, site: int) -> list[float]:
        """Per width the first time when anything could start on the site."""
        problem, lanes = self._problem, self._problem.lanes[site]
        return [
            problem.calendar.idle_s(lanes, width, problem.now_s) if 0 < width <= len(lanes) else problem.now_s
            for width in self._widths
        ]

    def _first_highest(self) -> tuple[int, int]:
        """The task and site that a walk over the pairs ends at which goes on to what is higher by more than rounding.

        Only a task that rises above all before it can be where the walk goes on.
        """
        highest = self._highest
        rises = np.flatnonzero(highest[1:] > np.maximum.accumulate(highest)[:-1]) + 1
        best, task, site = -inf, 0, 0
        for each in (0, *rises.tolist()):
            for place, level in enumerate(self._seems[:, each].tolist()):
                if level > best + _SAME:
                    best, task, site = level, each, place
        return task, site


def _by_priority(problem: Problem, rank: Sequence[float]) -> list[int]:
    """The tasks by falling rank; those that rank the same in the order of the graph, so that parents stay before
    children."""
    place = {task: number for number, task in enumerate(problem.order)}
    return sorted(problem.order, key=lambda task: (-round(rank[task], 6), place[task]))


def _by_readiness(problem: Problem, priority: Sequence[float]) -> list[int]:
    """The tasks in the order of a queue of ready ones, highest priority first."""
    missing = [len(parents) for parents in problem.parents]
    ready = [(-round(priority[task], 6), task) for task in problem.order if not missing[task]]
    heapify(ready)
    given = []
    while ready:
        _, task = heappop(ready)
        given.append(task)
        for child in _freed(problem, task, missing):
            heappush(ready, (-round(priority[child], 6), child))
    return given


def _freed(problem: Problem, task: int, missing: list[int]) -> list[int]:
    """The children of which ``task`` was the last parent missing."""
    freed = []
    for child in problem.children[task]:
        missing[child] -= 1
        if not missing[child]:
            freed.append(child)
    return freed
