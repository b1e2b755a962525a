"""The exact bound for small cases: a time-indexed integer program, solved by HiGHS (Sousa and
Wolsey 1992).

Time is divided into slots. Each variable states whether a copy starts in a certain slot on a
certain type. If all times are multiples of the slot, the optimum of the program is the optimum of
the problem: if all starts in a schedule are moved as early as possible, they are sums of arrivals
and durations. Otherwise, arrivals, durations and starts are rounded down. Two runs that do not
overlap still do not overlap afterwards, because floor(a) + floor(b) <= floor(a + b), and any number
of runs that overlap in pairs have a common moment. Every schedule therefore remains feasible and no
job ends later, so the bound from the program is also a bound for the problem.

The program is made small in two steps. First, the sum of a list schedule is an upper bound on the
optimum. Second, the prices of the Lagrangian bound show by how much each start raises the bound.
Starts that raise it above that sum are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from math import ceil, gcd, inf
from typing import Any, NamedTuple

import numpy as np

from dagsim.families.bounds.lagrangian import Dual, Flows, StartCosts, lagrangian
from dagsim.families.bounds.relaxation import Relaxation
from dagsim.model.streams import stream
from dagsim.standard_streams import without_output
from dagsim.workload.array_tools import ranges

MOST_COPIES = 24
"""Maximum number of copies over all tasks; a case with more is not small."""
_ENTRIES = 60_000
"""Maximum number of entries of the program's matrix."""
_SLOTS = 20_000
"""Maximum number of slots in total."""
_DECIMALS = 6
"""Times with at most this many digits after the point can be multiples of a slot."""
_NODES, _SECONDS = 20_000, 8.0
"""Limits on the search by HiGHS, in nodes of the search tree and in seconds. The bound is valid
even if the search stops at a limit."""
_SHARE, _TRIES = 0.006, 4
"""The slot, as a share of the mean completion time, if the times are not multiples of a longer one;
and how many slots are tried, each twice as long, until the program is small enough."""


class Optimum(NamedTuple):
    """A bound from the integer program."""

    bound_s: float
    exact: bool
    """True if the bound is the optimum of the problem, up to rounding."""
    complete: bool
    """True if the program was solved, and not only bounded."""


class _Slots(NamedTuple):
    """A problem whose times are whole numbers of slots, with one row for each copy."""

    problem: Relaxation
    """Times in slots; ``copies`` are 1."""
    slot_s: float
    exact: bool
    """True if nothing was rounded down."""
    twin: np.ndarray
    """(V,) int64: an earlier copy of the same task, -1 if there is none."""
    spare_s: np.ndarray
    """(V, T) float64: seconds by which each duration was rounded down."""


def time_indexed(problem: Relaxation, dual: Dual) -> Optimum | None:
    """Compute a lower bound on the weighted sum of completion time minus arrival time with the
    integer program. ``dual`` is the Lagrangian bound. Return None if the case is too large."""
    weight = float(problem.weight.sum())
    if problem.copies.sum() > MOST_COPIES or not (dual.bound_s > 0 and weight > 0):
        return None
    copies, twin, start_s = _one_by_one(problem, dual.start_s)
    slot_s = _common_unit(copies)
    exact = slot_s > 0 and _end_s(copies) / slot_s <= _SLOTS
    if not exact:
        slot_s = _SHARE * dual.bound_s / weight
    best: Optimum | None = None
    for _ in range(_TRIES):
        slots = _in_slots(copies, twin, slot_s, exact=exact)
        if _end_s(slots.problem) <= _SLOTS:
            program = _program(slots, start_s / slot_s)
            solution = None if program is None else program.solved(slots, problem)
            if solution is not None and (best is None or solution.bound_s > best.bound_s):
                best = solution
            if solution is not None and solution.complete:
                break
        slot_s, exact = 2 * slot_s, False
    return best


def _one_by_one(problem: Relaxation, start_s: np.ndarray) -> tuple[Relaxation, np.ndarray, np.ndarray]:
    """Return the problem with a row for each copy, the twin of each row (an earlier copy of the
    same task), and its start in the Lagrangian minimum.

    A job that ends with several tasks or copies gets an additional task of zero length after them.
    """
    source = np.repeat(np.arange(len(problem.job)), problem.copies.astype(int))
    twin = np.where(np.diff(source, prepend=-1) == 0, np.arange(len(source)) - 1, -1)
    rows = [np.flatnonzero(source == task) for task in range(len(problem.job))]
    pairs = [
        (one, other)
        for parent, child in zip(problem.parent.tolist(), problem.child.tolist(), strict=True)
        for one in rows[parent].tolist()
        for other in rows[child].tolist()
    ]
    job, seconds, usage = (column[source] for column in (problem.job, problem.seconds, problem.usage))
    last = np.setdiff1d(np.arange(len(source)), [one for one, _ in pairs])
    for number in np.flatnonzero(np.bincount(job[last], minlength=len(problem.weight)) > 1).tolist():
        pairs += [(one, len(job)) for one in last[job[last] == number].tolist()]
        job = np.append(job, number)
        seconds, usage = (np.vstack([table, np.zeros((1, table.shape[1]))]) for table in (seconds, usage))
        twin, source = np.append(twin, -1), np.append(source, np.flatnonzero(problem.job == number)[-1])
    edges = np.array(pairs, np.int64).reshape(-1, 2)
    rows_of = problem._replace(
        job=job, copies=np.ones(len(job)), seconds=seconds, usage=usage, parent=edges[:, 0], child=edges[:, 1]
    )
    return rows_of, twin, start_s[source]


def _common_unit(problem: Relaxation) -> float:
    """Return the greatest common divisor of all arrivals and durations, or 0 if it is below a
    microsecond."""
    times_s = np.concatenate([problem.arrival_s, problem.seconds[np.isfinite(problem.seconds)]])
    for decimals in range(_DECIMALS + 1):
        counts = times_s * 10**decimals
        if counts.max(initial=0.0) > 2**52:
            return 0.0
        if (np.abs(counts - np.rint(counts)) <= 1e-9 * np.maximum(counts, 1.0)).all():
            unit = gcd(*np.rint(counts).astype(np.int64).tolist())
            return unit / 10.0**decimals
    return 0.0


def _end_s(problem: Relaxation) -> float:
    """Return a time by which some optimal schedule ends. It exists because an optimal schedule is
    never idle after the last arrival.
    """
    longest = np.where(np.isfinite(problem.seconds), problem.seconds, 0.0).max(axis=1)
    return float(problem.arrival_s.max(initial=0.0) + longest.sum())


def _in_slots(problem: Relaxation, twin: np.ndarray, slot_s: float, *, exact: bool) -> _Slots:
    down = np.rint if exact else np.floor
    with np.errstate(invalid="ignore"):
        seconds = down(problem.seconds / slot_s)
        spare_s = np.where(np.isfinite(seconds), problem.seconds - seconds * slot_s, np.inf)
    rounded = problem._replace(arrival_s=down(problem.arrival_s / slot_s), seconds=seconds)
    for row in np.flatnonzero((problem.seconds == 0).all(axis=1) & (problem.usage == 0).all(axis=1)).tolist():
        before = problem.parent[problem.child == row]
        if len(before):  # a task of zero length only marks the end of its job
            spare_s[row] = spare_s[before].min()
    return _Slots(rounded, slot_s, exact, twin, np.where(exact, 0.0, spare_s))


def _listed(problem: Relaxation, key: np.ndarray) -> float:
    """Return the weighted sum of completion time minus arrival time in a list schedule. The ready
    task with the smallest key is placed next, where and when it ends first."""
    used = np.zeros((len(problem.capacity), int(_end_s(problem)) + 2))
    ready = problem.arrival_s[problem.job].astype(int)
    waits = np.bincount(problem.child, minlength=len(key))
    children: list[list[int]] = [[] for _ in key]
    for parent, child in zip(problem.parent.tolist(), problem.child.tolist(), strict=True):
        children[parent].append(child)
    ends = np.zeros(len(problem.weight))
    free = np.flatnonzero(waits == 0).tolist()
    while free:
        task = min(free, key=lambda row: (key[row], row))
        free.remove(task)
        end, start, type_ = min(_slot_for(problem, used, task, type_, int(ready[task])) for type_ in range(len(used)))
        used[type_, start:end] += problem.usage[task, type_]
        ends[problem.job[task]] = max(ends[problem.job[task]], end)
        for child in children[task]:
            ready[child] = max(ready[child], end)
            waits[child] -= 1
            if not waits[child]:
                free.append(child)
    return float(problem.weight @ (ends - problem.arrival_s))


def _slot_for(problem: Relaxation, used: np.ndarray, task: int, type_: int, ready: int) -> tuple[int, int, int]:
    """Return the end, the start and the type for the earliest possible start of a task on a type."""
    if problem.seconds[task, type_] == np.inf:
        return sys.maxsize, 0, type_
    length, start = int(problem.seconds[task, type_]), ready
    room = problem.capacity[type_] - problem.usage[task, type_] + 1e-9
    for full in (ready + np.flatnonzero(used[type_, ready:] > room)).tolist():
        if full >= start + length:
            break
        start = full + 1
    return start + length, start, type_


class _Program(NamedTuple):
    """The integer program: one variable for each start that can be part of an optimum."""

    task: np.ndarray  # (n,)
    type: np.ndarray  # (n,)
    start: np.ndarray  # (n,)
    end: np.ndarray  # (n,)
    matrix: Any
    low: np.ndarray
    high: np.ndarray

    def solved(self, slots: _Slots, problem: Relaxation) -> Optimum | None:
        """Solve the program. ``problem`` contains the arrivals in seconds."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        rows = slots.problem
        last = np.setdiff1d(np.arange(len(rows.job)), rows.parent)
        end_s = self.end * slots.slot_s + slots.spare_s[self.task, self.type]
        job = rows.job[self.task]
        cost = np.where(np.isin(self.task, last), problem.weight[job] * (end_s - problem.arrival_s[job]), 0.0)
        options = {"node_limit": _NODES, "time_limit": _SECONDS, "mip_rel_gap": 1e-7 if slots.exact else 1e-4}
        constraint = LinearConstraint(self.matrix, self.low, self.high)
        with without_output():
            result = milp(
                cost, integrality=np.ones(len(cost)), bounds=Bounds(0, 1), constraints=constraint, options=options
            )
        bound_s = getattr(result, "mip_dual_bound", None)
        if bound_s is None or not np.isfinite(bound_s):
            return None
        done = result.status == 0
        if slots.exact and (problem.weight == 1).all():  # the optimum is a whole number of slots, so round up
            bound_s = ceil(bound_s / slots.slot_s - 1e-4) * slots.slot_s
            return Optimum(bound_s * (1 - 1e-9), done, done)
        return Optimum(bound_s * (1 - 1e-6), done and slots.exact, done)


def _program(slots: _Slots, start: np.ndarray) -> _Program | None:
    """Build the program for a problem in slots. Return None if it is too large. ``start`` contains
    start times whose order is a good order of the tasks.
    """
    from scipy.sparse import coo_array

    problem = slots.problem
    dual = lagrangian(problem)
    chosen = _possible(problem, dual, _best_listed(problem, [start, dual.start_s]))
    task, type_, begin, end = (np.concatenate(column) for column in zip(*chosen, strict=True))
    entries = float((end - begin).sum())
    if entries > _ENTRIES:
        return None
    number, tasks = np.arange(len(task)), len(problem.job)
    rows = _Constraints()
    rows.add(np.ones(tasks), np.ones(tasks), (task, number, np.ones(len(task))))
    # The capacity limits the runs that have started but not yet ended, in each slot.
    long = (end - begin).astype(int)
    at = ranges(begin.astype(int), long)
    times = int(end.max(initial=0)) + 1
    rows.add(
        np.full(len(problem.capacity) * times, -np.inf),
        np.repeat(problem.capacity + 1e-9, times),
        (np.repeat(type_, long) * times + at, np.repeat(number, long), np.repeat(problem.usage[task, type_], long)),
    )
    _add_orders(rows, slots, task, begin, end, entries)
    matrix = coo_array((rows.values(), rows.places()), shape=(rows.count, len(task))).tocsr()
    needed = np.diff(matrix.indptr) > 0
    low, high = np.concatenate(rows.low), np.concatenate(rows.high)
    return _Program(task, type_, begin, end, matrix[needed], low[needed], high[needed])


class _Constraints:
    """The constraints of the integer program: rows of a sparse matrix, each with its bounds."""

    def __init__(self) -> None:
        self.count = 0
        self.low: list[np.ndarray] = []
        self.high: list[np.ndarray] = []
        self._entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def add(self, low: np.ndarray, high: np.ndarray, *entries: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        """Add rows with these bounds. The entries are rows (counted from the first new one),
        columns and values."""
        self._entries += [(self.count + rows, columns, values) for rows, columns, values in entries]
        self.low.append(low)
        self.high.append(high)
        self.count += len(low)

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the row and the column of each entry."""
        return np.concatenate([rows for rows, _, _ in self._entries]), np.concatenate(
            [at for _, at, _ in self._entries]
        )

    def values(self) -> np.ndarray:
        """Return the value of each entry."""
        return np.concatenate([values for _, _, values in self._entries])


def _add_orders(
    rows: _Constraints, slots: _Slots, task: np.ndarray, begin: np.ndarray, end: np.ndarray, entries: float
) -> None:
    """Add constraints: a child starts after its parent ends, and identical tasks start in order.
    ``entries`` is the number of entries so far.
    """
    problem = slots.problem
    pairs = [*zip(problem.parent.tolist(), problem.child.tolist(), [True] * len(problem.parent), strict=True)]
    pairs += [(twin, row, False) for row, twin in enumerate(slots.twin.tolist()) if twin >= 0]
    by_task = [np.flatnonzero(task == row) for row in range(len(problem.job))]
    for one, other, waits in pairs:
        mine, theirs = by_task[one], by_task[other]
        rows.add(
            np.zeros(1),
            np.full(1, np.inf),
            (np.zeros(len(mine), int), mine, -(end if waits else begin)[mine]),
            (np.zeros(len(theirs), int), theirs, begin[theirs]),
        )
        if waits:
            span = np.arange(int(begin[theirs].min()), int(end[mine].max()))
            entries += len(span) * (len(mine) + len(theirs)) / 2
            if entries > _ENTRIES / 3:
                continue  # too many entries; the constraint above suffices, although it is weaker
            # In every slot, a child can only have started if its parent has ended.
            started, ended = (np.nonzero(times_[None, :] <= span[:, None]) for times_ in (begin[theirs], end[mine]))
            rows.add(
                np.full(len(span), -np.inf),
                np.zeros(len(span)),
                (started[0], theirs[started[1]], np.ones(len(started[0]))),
                (ended[0], mine[ended[1]], np.full(len(ended[0]), -1.0)),
            )


def _alike(problem: Relaxation) -> np.ndarray:
    """Return, for each type, the number of earlier types that are identical to it for every task,
    (T,) int64."""
    columns = np.vstack([problem.seconds, problem.usage, problem.capacity])
    return np.array(
        [(columns[:, :type_] == columns[:, [type_]]).all(axis=0).sum() for type_ in range(columns.shape[1])]
    )


def _best_listed(problem: Relaxation, orders: Sequence[np.ndarray]) -> float:
    """Return the smallest sum of several list schedules, which use the order of the bound's starts and
    similar orders.
    """
    rng = stream(0, "bound")
    least = inf
    for order in orders:
        spread = float(np.std(order)) or 1.0
        for size in (0.0, *[0.02 * spread] * 8, *[0.1 * spread] * 8):
            least = min(least, _listed(problem, order + size * rng.standard_normal(len(order))))
    return least


def _possible(
    problem: Relaxation, dual: Dual, most: float
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the task, type, start and end of all starts that may be part of a schedule whose sum is
    at most ``most``.

    To find out by how much a start raises the bound, the lowest cost of its task is replaced with
    the task's cost at this start.
    """
    costs = StartCosts(problem, dual)
    shortest = problem.shortest_s
    flows = Flows(problem)
    heads, tails = flows.heads(), flows.tails()
    path = np.zeros(len(problem.weight))
    np.maximum.at(path, problem.job, heads + shortest + tails)
    slack = most - dual.bound_s + 1e-6 * most + 1e-6
    with np.errstate(divide="ignore", invalid="ignore"):
        # the longest path that each job can have if all other jobs are at their lower bounds
        longest = (most - float(problem.weight @ path)) / problem.weight + path + 1e-6
    latest = np.minimum(problem.arrival_s + np.where(np.isnan(longest), inf, longest), _end_s(problem))
    alike = _alike(problem)
    for task, job in enumerate(problem.job.tolist()):
        release = problem.arrival_s[job] + heads[task]
        # Identical types are interchangeable, so number them in the order of the first task on each.
        # Task k then needs only the first k + 1 of them.
        for type_ in np.flatnonzero(np.isfinite(problem.seconds[task]) & (alike <= task)).tolist():
            length = problem.seconds[task, type_]
            starts = np.arange(int(release), int(np.floor(latest[job] - tails[task] - length)) + 1, dtype=float)
            starts = starts[costs.at(task, type_, starts) - costs.least[task] <= slack]
            yield np.full(len(starts), task), np.full(len(starts), type_), starts, starts + length
