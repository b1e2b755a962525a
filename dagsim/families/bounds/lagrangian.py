"""The Lagrangian bound: prices on the resource of each type over time, and weights on the edges of
the DAGs.

The sum of w_j (C_j - r_j) over the jobs is minimised subject to three kinds of constraints. Each is
replaced by a price:

- The capacity of type i at time t has a price lambda_i(t) >= 0, which is constant in each cell of a
  grid of times and 0 after the grid.
- Each job sends a flow of w_j through its DAG to its end. A task v receives mu_v directly, and more
  from its parents. It divides the total, alpha_v, among its children. The flow along an edge is the
  price of the constraint that the child starts after its parent ends. The flow out of a last task
  is the price of the constraint that the job ends after this task. All C_j cancel out, and each
  task contributes mu_v S_v + alpha_v p_v with its start S_v and its duration p_v.

For any prices and flows, add up the lowest cost of each task on its own,

    min over types i and starts s >= r_j + head_v of
        mu_v s + alpha_v p_vi + u_vi * integral of lambda_i from s to s + p_vi,

and subtract sum_i m_i * integral of lambda_i and sum_j w_j r_j. The result does not exceed the sum
of any schedule (weak duality), so it is valid for any prices that the search finds. A copy of a
task with n copies carries 1/n of its flow. The minimum is exact, because the cost is linear between
the values of s for which s or s + p_vi is a point of the grid.

With preemption, S_v and the completion C_v are bounded by the mean busy time M_v of the copy,
because it works at most at its highest speed: S_v + p/2 <= M_v <= C_v - p/2 with p on the fastest
type (Goemans, Queyranne, Schulz, Skutella and Wang 2002). The lowest cost is then the cost of p
seconds (one unit of work) at the cheapest times, always on the type that is cheapest at that time.

The length of subgradient steps follows Polyak's rule, with a target above the best value so far.
Flows are updated by multiplicative factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import numpy as np

from dagsim.families.bounds.relaxation import Relaxation

_CELLS, _STEPS = 300, 400
_CELLS_WITH_BREAKS, _STEPS_WITH_BREAKS = 100, 320
"""Maximum number of cells and steps; with preemption, a step costs several times as much."""
_PATIENCE, _SHRINK, _SMALLEST = 12, 0.6, 1e-3
"""Steps without progress after which the step length shrinks, by which factor, and where the search
ends."""
_HALVINGS = 10
"""Number of halvings of the interval that contains the worth of a unit of work, with preemption."""
_SMALL_TABLE, _TABLE_PER_JOB, _LARGE_TABLE = 2**19, 2**12, 2**21
"""Limits of tasks times cells: with more tasks, the grid has fewer cells. An entry costs the most
with preemption, where the limits are a 16th of these."""
_ROUNDING = 1e-9
"""Fraction of the absolute sums that is subtracted from the result, which exceeds their rounding
errors."""


class DualPrices(NamedTuple):
    """A point in the dual problem, for T types, C cells, V tasks and E edges."""

    rate: np.ndarray
    """(T, C + 1) float64: price per unit and second in each cell; the last one, after the grid, is
    0."""
    entry: np.ndarray
    """(V,) float64: flow that enters at each task; it sums to the weight of each job."""
    split: np.ndarray
    """(E,) float64: share of a task's flow that each edge carries; the shares of a task's edges sum
    to 1."""


class Dual(NamedTuple):
    """The best lower bound that the dual problem gave, with its multipliers (prices)."""

    bound_s: float
    prices: DualPrices
    grid: np.ndarray
    """(C + 1,) float64: ends of the cells, in seconds since the first arrival."""
    start_s: np.ndarray
    """(V,) float64: start of each task in the minimum, which may exceed the capacity."""


class _Cheapest(NamedTuple):
    """The lowest cost of each copy of a task, regardless of all other copies."""

    cost: np.ndarray  # (V,)
    start_s: np.ndarray  # (V,): start, or mean busy time if preemption is allowed
    seconds: np.ndarray  # (V,): duration
    held: np.ndarray  # (T, C): the resource-seconds that all copies use in each cell


class _Side(Protocol):
    def cheapest(self, prices: DualPrices, through: np.ndarray) -> _Cheapest: ...


def lagrangian(
    problem: Relaxation,
    *,
    preemptive: bool = False,
    steps: int | None = None,
    cells: int | None = None,
    watch: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Dual:
    """Compute a lower bound on the weighted sum of completion time minus arrival time.

    The bound is valid for schedules in which every copy (instance) of a task runs once, without
    interruption, on one GPU type. If ``preemptive`` is True, it is also valid if copies stop,
    resume and change their type. The cost is about ``steps * V * cells * T`` operations. ``watch``
    wraps the iterator over the steps, for example to show progress.
    """
    cells = cells or (_CELLS_WITH_BREAKS if preemptive else _CELLS)
    entries = min(max(_SMALL_TABLE, _TABLE_PER_JOB * len(problem.weight)), _LARGE_TABLE) // (16 if preemptive else 1)
    flows = Flows(problem)
    release_s = problem.arrival_s[problem.job] + flows.heads()
    grid = _grid(problem, release_s, max(min(cells, entries // max(len(problem.job), 1)), 6))
    side: _Side = (_WithBreaks if preemptive else _Unbroken)(problem, release_s, grid)
    length_s, arrivals = np.diff(grid), float(problem.weight @ problem.arrival_s)
    capacity = problem.capacity[:, None] * length_s
    prices = DualPrices(np.zeros((len(problem.capacity), len(grid))), *flows.even())
    best = Dual(0.0, prices, grid, release_s)
    pace, stalled, gap = 1.0, 0, 0.0
    for _ in watch(range(steps or (_STEPS_WITH_BREAKS if preemptive else _STEPS))):
        through = flows.through(prices)
        least = side.cheapest(prices, through)
        costs, paid = float(problem.copies @ least.cost), float((capacity * prices.rate[:, :-1]).sum())
        bound = costs - paid - arrivals - _ROUNDING * (costs + paid + arrivals + _ROUNDING)
        gap = gap or bound
        stalled = 0 if bound > best.bound_s * (1 + 1e-4) else stalled + 1
        if bound > best.bound_s:
            best = Dual(bound, prices, grid, least.start_s)
        if stalled == _PATIENCE:
            pace, stalled, prices = pace * _SHRINK, 0, best.prices
            if pace < _SMALLEST:
                break
            continue
        excess = least.held - capacity
        direction = excess / length_s
        direction[(prices.rate[:, :-1] <= 0) & (direction < 0)] = 0.0
        steepness = float((excess * direction).sum())
        if steepness <= 0 and not len(prices.split):
            break
        rate = prices.rate.copy()
        if steepness > 0:
            length = pace * (best.bound_s + gap - bound) / steepness
            rate[:, :-1] = np.maximum(0.0, rate[:, :-1] + length * direction)
        prices = flows.moved(prices, least.start_s, least.seconds, pace)._replace(rate=rate)
    return best


def _grid(problem: Relaxation, release_s: np.ndarray, cells: int) -> np.ndarray:
    """Return the times that separate the cells: some release times, some earliest ends, and evenly
    spaced times up to the time by which all work could be done."""
    ends_s = release_s + problem.shortest_s
    seconds = np.where(np.isfinite(problem.seconds), problem.seconds, 0.0)
    work = float((problem.copies[:, None] * problem.usage * seconds).max(axis=1, initial=0.0).sum())
    total = float(problem.capacity.sum())
    last_s = float(ends_s.max(initial=0.0)) + (work / total if total else 0.0)
    shares = np.linspace(0.0, 1.0, cells // 3)
    parts = [np.quantile(times, shares) for times in (release_s, ends_s) if len(times)]
    points = np.unique(np.concatenate([[0.0], *parts, last_s * shares]))
    # Leave out cells that are so short that dividing by their length would overflow.
    apart: np.ndarray = points[np.concatenate([[True], np.diff(points) > 1e-9 * max(last_s, 1e-300)])]
    return apart


class Flows:
    """The flows of the weights of jobs through their DAGs."""

    def __init__(self, problem: Relaxation) -> None:
        self._problem = problem
        self._jobs = len(problem.weight)
        depth = np.zeros(len(problem.job), np.int64)
        self._by_child = problem.levels()
        for level, edges in enumerate(self._by_child):
            depth[problem.child[edges]] = level + 1
        of = depth[problem.parent]
        self._by_parent = [np.flatnonzero(of == level) for level in range(int(of.max(initial=-1)) + 1)]

    def heads(self) -> np.ndarray:
        """Return the length of the longest path from the arrival to the start of each task, (V,)
        float64, with every task on its fastest type."""
        head_s, parent, child = np.zeros(len(self._problem.job)), self._problem.parent, self._problem.child
        shortest_s = self._problem.shortest_s
        for edges in self._by_child:
            np.maximum.at(head_s, child[edges], head_s[parent[edges]] + shortest_s[parent[edges]])
        return head_s

    def tails(self) -> np.ndarray:
        """Return the length of the longest path from the end of each task to the end of the job,
        (V,) float64, with every task on its fastest type."""
        tail_s, parent, child = np.zeros(len(self._problem.job)), self._problem.parent, self._problem.child
        shortest_s = self._problem.shortest_s
        for edges in reversed(self._by_parent):
            np.maximum.at(tail_s, parent[edges], shortest_s[child[edges]] + tail_s[child[edges]])
        return tail_s

    def even(self) -> tuple[np.ndarray, np.ndarray]:
        """Return ``entry`` and ``split`` that treat all tasks of a job, and all children of a task,
        equally."""
        job, parent = self._problem.job, self._problem.parent
        entry = (self._problem.weight / np.maximum(np.bincount(job, minlength=self._jobs), 1))[job]
        return entry, 1.0 / np.bincount(parent, minlength=len(job))[parent]

    def through(self, prices: DualPrices) -> np.ndarray:
        """Return the total flow through each task, (V,) float64."""
        flow, parent, child = prices.entry.copy(), self._problem.parent, self._problem.child
        for edges in self._by_parent:
            np.add.at(flow, child[edges], flow[parent[edges]] * prices.split[edges])
        return flow

    def moved(self, prices: DualPrices, start_s: np.ndarray, seconds: np.ndarray, pace: float) -> DualPrices:
        """Shift flow towards the paths whose last tasks end later."""
        job, parent, child = self._problem.job, self._problem.parent, self._problem.child
        if not len(parent):
            return prices
        left_s = seconds.copy()  # from a task's start to its job's end, along the edges
        for edges in reversed(self._by_parent):
            np.add.at(left_s, parent[edges], prices.split[edges] * left_s[child[edges]])
        end_s = start_s + left_s
        weight = np.maximum(self._problem.weight, 1e-300)
        later_s = end_s - (np.bincount(job, prices.entry * end_s, self._jobs) / weight)[job]
        scale_s = np.full(self._jobs, 1e-300)
        np.maximum.at(scale_s, job, np.abs(later_s))
        entry = prices.entry * np.exp(np.clip(pace * later_s / scale_s[job], -1, 1))
        entry *= (self._problem.weight / np.maximum(np.bincount(job, entry, self._jobs), 1e-300))[job]
        mean_s = np.bincount(parent, prices.split * left_s[child], len(job))
        longer_s = left_s[child] - mean_s[parent]
        split = prices.split * np.exp(np.clip(pace * longer_s / scale_s[job[parent]], -1, 1))
        split /= np.bincount(parent, split, len(job))[parent]
        return prices._replace(entry=entry, split=split)


class _Unbroken:
    """The costs of copies that run once, without a break, on one type."""

    def __init__(self, problem: Relaxation, release_s: np.ndarray, grid: np.ndarray) -> None:
        self._problem, self._grid, self._length_s = problem, grid, np.diff(grid)
        self._types = [_Starts.of(problem, release_s, grid, type_) for type_ in range(len(problem.capacity))]

    def cheapest(self, prices: DualPrices, through: np.ndarray) -> _Cheapest:
        problem, grid = self._problem, self._grid
        cost, start_s = (np.full(problem.seconds.shape, value) for value in (np.inf, 0.0))
        slope, per_second = prices.entry / problem.copies, through / problem.copies
        for type_, starts in enumerate(self._types):
            tasks = starts.tasks
            least, at_s = starts.cheapest(slope[tasks], prices.rate[type_], self._length_s)
            cost[tasks, type_] = least + per_second[tasks] * problem.seconds[tasks, type_]
            start_s[tasks, type_] = at_s
        type_of, rows = cost.argmin(axis=1), np.arange(len(cost))
        begin_s, seconds = start_s[rows, type_of], problem.seconds[rows, type_of]
        end_s = begin_s + seconds
        held = np.zeros((len(self._types), len(self._length_s)))
        amount = problem.copies * problem.usage[rows, type_of]
        for type_ in range(len(self._types)):
            mine = np.flatnonzero(type_of == type_)
            until, since = (np.clip(at[mine, None] - grid[:-1], 0.0, self._length_s) for at in (end_s, begin_s))
            held[type_] = amount[mine] @ (until - since)
        return _Cheapest(cost[rows, type_of], begin_s, seconds, held)


class _Starts(NamedTuple):
    """All starts on one type that can be the cheapest: K starts for each of the n tasks that can
    run on this type.
    """

    tasks: np.ndarray  # (n,)
    usage: np.ndarray  # (n, 1)
    start_s: np.ndarray  # (n, K)
    first: np.ndarray  # (n, K): cell of the start
    into_s: np.ndarray  # (n, K): seconds from the beginning of that cell to the start
    last: np.ndarray  # (n, K): cell of the end
    reach_s: np.ndarray  # (n, K): seconds from the beginning of that cell to the end

    @classmethod
    def of(cls, problem: Relaxation, release_s: np.ndarray, grid: np.ndarray, type_: int) -> _Starts:
        tasks = np.flatnonzero(np.isfinite(problem.seconds[:, type_]))
        seconds, earliest_s = problem.seconds[tasks, type_][:, None], release_s[tasks][:, None]
        points = np.broadcast_to(grid, (len(tasks), len(grid)))
        start_s = np.maximum(np.concatenate([earliest_s, points, points - seconds], axis=1), earliest_s)
        end_s = start_s + seconds
        first, last = (np.searchsorted(grid, at, "right") - 1 for at in (start_s, end_s))
        into_s, reach_s = start_s - grid[first], end_s - grid[last]
        return cls(tasks, problem.usage[tasks, type_][:, None], start_s, first, into_s, last, reach_s)

    def cheapest(self, slope: np.ndarray, rate: np.ndarray, length_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return, for each task, the lowest cost of the start and the resource, and the start itself."""
        # for each cell, the total price of all earlier cells
        before = np.concatenate([[0.0], np.cumsum(rate[:-1] * length_s)])
        cost: np.ndarray = rate[self.last]
        cost *= self.reach_s
        cost += before[self.last]
        until_start = rate[self.first]
        until_start *= self.into_s
        until_start += before[self.first]
        cost -= until_start
        cost *= self.usage
        cost += slope[:, None] * self.start_s
        at, rows = cost.argmin(axis=1), np.arange(len(cost))
        return cost[rows, at], self.start_s[rows, at]


class StartCosts:
    """The cost of starting a copy at any time, with the prices from a bound (without preemption)."""

    def __init__(self, problem: Relaxation, dual: Dual) -> None:
        self._problem, self._dual = problem, dual
        flows = Flows(problem)
        self._slope = dual.prices.entry / problem.copies
        through = flows.through(dual.prices)
        self._fixed = (through / problem.copies)[:, None] * problem.seconds
        rate = dual.prices.rate[:, :-1]
        self._paid = np.concatenate([np.zeros((len(rate), 1)), np.cumsum(rate * np.diff(dual.grid), axis=1)], axis=1)
        release_s = problem.arrival_s[problem.job] + flows.heads()
        self.least = _Unbroken(problem, release_s, dual.grid).cheapest(dual.prices, through).cost
        """(V,) float64: the lowest cost of a copy of each task."""

    def at(self, task: int, type_: int, start_s: np.ndarray) -> np.ndarray:
        """Return the costs of these starts."""
        grid, paid = self._dual.grid, self._paid[type_]
        end_s = start_s + self._problem.seconds[task, type_]
        price = self._problem.usage[task, type_] * (np.interp(end_s, grid, paid) - np.interp(start_s, grid, paid))
        costs: np.ndarray = self._slope[task] * start_s + self._fixed[task, type_] + price
        return costs


class _WithBreaks:
    """The costs of copies that may stop, resume and change their type.

    A copy does one unit of work, at the rate 1 / p_i on type i. Its lowest cost is the optimum of a
    linear program and, by duality, equal to

        max over y of y - integral over t of max(0, max over i of (y - mu t) / p_i - u_i
        lambda_i(t)),

    where any y gives a lower bound. The integrand is convex in each cell, so the trapezoidal rule
    does not underestimate the integral.
    """

    def __init__(self, problem: Relaxation, release_s: np.ndarray, grid: np.ndarray) -> None:
        self._problem, self._last_s = problem, np.maximum(grid[-1], release_s)
        self._left_s = np.clip(release_s[:, None], grid[:-1], grid[1:])
        self._right_s = np.broadcast_to(grid[1:], self._left_s.shape)
        self._half_s = (self._right_s - self._left_s) / 2
        self._need_s = np.maximum(problem.shortest_s, 1e-13 * max(float(grid[-1]), 1e-280))
        usable = np.isfinite(problem.seconds)
        self._speed = np.where(usable, 1.0 / np.maximum(problem.seconds, self._need_s[:, None]), 0.0)  # (V, T)
        self._usage = np.where(usable, problem.usage, 0.0)

    def cheapest(self, prices: DualPrices, through: np.ndarray) -> _Cheapest:
        slope = prices.entry / self._problem.copies
        low, high = np.zeros(len(slope)), slope * (self._last_s + self._need_s)
        for _ in range(_HALVINGS):
            level = (low + high) / 2
            done = self._at(level, slope, prices.rate).work
            low, high = np.where(done < 1, level, low), np.where(done < 1, high, level)
        work = self._at(low, slope, prices.rate, whole=True)
        shortest_s = self._problem.shortest_s
        mean_s = work.moment / np.maximum(work.work, 1e-300)
        ends = (2 * through - prices.entry) / self._problem.copies * shortest_s / 2
        held = np.stack([self._problem.copies @ part for part in work.held])
        return _Cheapest(work.value + ends, mean_s - shortest_s / 2, shortest_s, held)

    def _at(self, level: np.ndarray, slope: np.ndarray, rate: np.ndarray, *, whole: bool = False) -> _Work:
        """Return the work, (V,), that pays off if a unit of work is worth ``level`` (y in the class
        docstring). The other results are computed only if ``whole`` is True.
        """
        excess, work, moment = 0.0, 0.0, 0.0
        held = [np.zeros_like(self._half_s) for _ in rate] if whole else []
        for at_s in (self._left_s, self._right_s):
            worth = level[:, None] - slope[:, None] * at_s
            gain, speed = np.zeros_like(worth), np.zeros_like(worth)
            chosen = np.full(worth.shape, -1) if whole else gain
            for type_, price in enumerate(rate[:, :-1]):
                other = worth * self._speed[:, type_, None] - self._usage[:, type_, None] * price
                better = other > gain
                gain = np.where(better, other, gain)
                speed = np.where(better, self._speed[:, type_, None], speed)
                if whole:
                    chosen[better] = type_
            done = speed * self._half_s
            work = work + done.sum(axis=1)
            if whole:
                excess = excess + (gain * self._half_s).sum(axis=1)
                moment = moment + (done * at_s).sum(axis=1)
                for type_, part in enumerate(held):
                    part += np.where(chosen == type_, self._usage[:, type_, None] * self._half_s, 0.0)
        # After the last cell, resources cost nothing, so the fastest type runs until the level is
        # reached.
        worth = np.maximum(level - slope * self._last_s, 0.0)
        seconds = worth / np.maximum(slope, 1e-300)
        after = seconds / self._need_s
        moment = moment + after * (self._last_s + seconds / 2)
        return _Work(work + after, level - excess - worth * after / 2, moment, held)


class _Work(NamedTuple):
    """The optimal amount of work for each copy of a task, given the value of a unit of work."""

    work: np.ndarray  # (V,): units of work
    value: np.ndarray  # (V,): lower bound on the cost of one unit
    moment: np.ndarray  # (V,): each part of the work times its completion time, summed
    # T arrays of shape (V, C): amount of the resource held by a copy, times seconds
    held: list[np.ndarray]
