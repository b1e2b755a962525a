"""The inner loops of Slurm's backfill. They find when a job fits on nodes.

The loops are plain functions over flat sequences. Small simulations pass lists to them. If there is
enough work, ``RunTable`` compiles the functions and passes arrays (``compiled.jit``). In a sequence
with rows, row ``node`` begins at ``node`` times the stride. Amounts are integer counts of
millionths, stored as floats (exact up to 9e15).
"""

from __future__ import annotations

from math import ceil, inf
from typing import Any, NamedTuple

MANY = 1099511627776.0
"""Number of instances that are assumed to fit on a node if they need none of its resources."""
FIRST_WINDOW_S = 30.0
"""Length of a forecast's first window."""


class Where(NamedTuple):
    """The nodes on which a demand may start, and the latest start that is considered."""

    nodes: Any
    """The nodes that may be taken, in the order in which they are tried."""
    span: Any
    """The nodes of the partition that are up."""
    asked: Any
    """For each node, 1 if it satisfies the constraint."""
    own: int
    """Number of the site's reservation in which the demand runs, or -2 if there is none."""
    until_s: float
    """The latest start."""


class FitSteps(NamedTuple):
    """The times from which more instances of a demand fit on each node. Rows are one longer than
    the rows of runs.
    """

    times: Any
    rooms: Any
    """The number of instances that fit from each time on."""
    counts: Any
    """Number of steps of each node."""


class Held(NamedTuple):
    """The runs in progress: one row of length ``stride`` per node, sorted by the ends of the time
    limits.
    """

    ends: Any
    """The limit of each run."""
    gives: Any
    """The GPUs, CPUs and memory of each run."""
    runs: Any
    """Number of runs on each node."""
    stride: int
    free: Any
    """The GPUs, CPUs and memory that are free on each node."""


class Limits(NamedTuple):
    """The distinct times at which current runs end, and the rank of each run's end among them, by
    node."""

    order: Any
    """The ends in ascending order."""
    ranks: Any
    """The place in ``order`` of each run's end, in rows of ``stride`` for each node."""
    runs: Any
    """Number of runs on each node."""
    stride: int
    marks: Any
    """As long as ``order``; overwritten."""


class Reserved(NamedTuple):
    """The reservations of each node: one row of length ``stride`` per node. Owners 0 and above
    stand for reservations of the site, negative owners for reservations of jobs.
    """

    begins: Any
    untils: Any
    owners: Any
    counts: Any
    stride: int
    edges: Any
    """The times at which the entries of Slurm's map of reservations begin, in ascending order."""


class SiteClock(NamedTuple):
    """The current time, and the way in which Slurm rounds times on the site's clock. This clock
    shows ``origin_s`` at time 0."""

    now: float
    origin_s: float
    resolution_s: float
    linear_s: float
    """Growth of the windows (``bf_window_linear``); 0 to double them."""


def fill_rooms(
    nodes: Any, held: Held, is_open: Any, is_whole: Any, needs: Any, alone: bool, now: float, steps: FitSteps
) -> None:
    """Compute, for each of ``nodes``, the times from which more instances fit. An instance needs
    the GPUs, CPUs and memory ``needs``.

    Nodes with ``is_whole`` set take instances only while nothing else runs there. If the demand is
    ``alone``, this applies to all nodes. A run that has exceeded its limit may end at any moment,
    so its end is assumed to be 1 s from now.
    """
    ends, gives, runs, stride, free = held
    times, rooms, counts = steps
    need_gpus, need_cpus, need_memory = needs[0], needs[1], needs[2]
    for at in range(len(nodes)):
        node = nodes[at]
        row, step = node * stride, node * (stride + 1)
        gpus, cpus, memory = free[3 * node], free[3 * node + 1], free[3 * node + 2]
        number = runs[node]
        shared = not alone and is_whole[node] == 0
        filled = 0
        for place in range(-1, number):
            if place >= 0:
                give = 3 * (row + place)
                gpus, cpus, memory = gpus + gives[give], cpus + gives[give + 1], memory + gives[give + 2]
            if not shared and place != number - 1:
                continue
            room = MANY
            if need_gpus > 0:
                room = gpus // need_gpus
            if need_cpus > 0:
                room = min(room, cpus // need_cpus)
            if need_memory > 0:
                room = min(room, memory // need_memory)
            if place < 0:
                times[step + filled] = now
                rooms[step + filled] = room if is_open[node] != 0 else 0.0
            else:
                times[step + filled] = max(ends[row + place], now + 1.0)
                rooms[step + filled] = room
            filled += 1
        counts[node] = filled


def earliest(
    where: Where,
    steps: FitSteps,
    limits: Limits,
    kept: Reserved,
    clock: SiteClock,
    least_s: float,
    limit_s: float,
    wanted: float,
    spread: bool,
    after_s: float,
    out: Any,
) -> tuple[float, int, float, float]:
    """Return the first time from ``least_s`` on at which Slurm expects that ``wanted`` instances
    can start and run for ``limit_s``, or infinity if there is none. Also return the first node on
    which an instance then fits, or -1; the possible start time that was tried; and the time up to
    which runs are freed for it. ``out`` is filled with the number of instances that fit on each
    node.

    Slurm tries one start after another: ``least_s`` first, then the end of each reservation that
    keeps the job from nodes in its partition (_attempt_backfill in backfill.c). For each start, it
    considers the nodes that satisfy the constraint and are not reserved during the following
    ``limit_s``, regardless of their GPUs (``open_nodes``). It then frees the runs on these nodes
    until the job fits (``freed_until``).

    The reservation ``own`` is ignored. With ``spread``, a node takes at most one instance. At
    ``least_s`` itself, only tests after ``after_s`` count, because earlier tests did not find the
    nodes that the job needs.
    """
    nodes, _, _, _, until_s = where
    _, _, _, runs_stride, _ = limits
    stride, later_s = runs_stride + 1, least_s
    while later_s <= until_s:
        start_s = later_s
        later_s = open_nodes(where, limits, kept, clock, start_s, start_s + limit_s, out)
        least_fit_s = first_fit_s(nodes, steps, stride, wanted, spread, out)
        if least_fit_s == inf:
            continue
        tested_s = after_s if start_s == least_s else -inf
        freed_s = freed_until(nodes, steps, limits, clock, least_fit_s, wanted, spread, tested_s, out)
        begin_s = max(freed_s, start_s)
        if begin_s > later_s or freed_s == inf:
            continue
        if begin_s > until_s:
            break
        return begin_s, count_rooms(nodes, steps, stride, freed_s, out), start_s, freed_s
    return inf, -1, inf, inf


def open_nodes(
    where: Where, limits: Limits, kept: Reserved, clock: SiteClock, start_s: float, end_s: float, out: Any
) -> float:
    """Set ``out`` to 1 for the nodes of the partition that are not reserved between ``start_s`` and
    ``end_s``, and to 0 for its other nodes. Mark the ends of the runs on those that satisfy the
    constraint.

    Return the next start to try, which is the first end of a reservation that keeps the job from a
    node. Slurm divides time into periods with the same reservations. It looks for nodes that become
    free at the end of each period, up to the first one that begins after ``end_s``.
    """
    _, span, asked, own, _ = where
    _, ranks, runs, runs_stride, marks = limits
    now, _, _, _ = clock
    begins, untils, owners, counts, stride, edges = kept
    for at in range(len(marks)):
        marks[at] = 0
    beyond = 0
    while beyond < len(edges) and edges[beyond] <= end_s:
        beyond += 1
    beyond_s, last_s = inf, inf
    if beyond < len(edges):
        beyond_s, last_s = edges[beyond], edges[min(beyond + 1, len(edges) - 1)]
    later_s = inf
    for at in range(len(span)):
        node = span[at]
        row = node * stride
        is_open = True
        for place in range(row, row + counts[node]):
            if untils[place] <= start_s or owners[place] == own:
                continue
            begin_s = begins[place]
            # A job that starts later has to end before another job's reservation begins. Ending
            # exactly then is not enough.
            if begin_s < end_s or (begin_s == end_s and start_s > now and owners[place] < 0):
                is_open = False
            elif owners[place] >= 0 or not begin_s <= beyond_s < untils[place]:
                continue
            free_s = free_again_s(kept, clock, own, row, row + counts[node], place, later_s)
            if free_s < later_s and (owners[place] >= 0 or free_s <= last_s):
                later_s = free_s
        out[node] = 1.0 if is_open else 0.0
        if is_open and asked[node] != 0:
            for place in range(node * runs_stride, node * runs_stride + runs[node]):
                marks[ranks[place]] = 1
    return later_s


def free_again_s(kept: Reserved, clock: SiteClock, own: int, row: int, last: int, place: int, before_s: float) -> float:
    """Return the time at which a node is free after its reservation at ``place``. The reservations
    of the node begin at ``row`` and end before ``last``.

    Reservations of the site end at the next multiple of the resolution. If another reservation
    follows immediately, Slurm merges both periods if they cover the same nodes. Return infinity if
    one of the two belongs to the site. The search stops at ``before_s``.
    """
    begins, untils, owners, _, _, _ = kept
    _, origin_s, resolution_s, _ = clock
    free_s: float = untils[place]
    if owners[place] >= 0:
        free_s = ceil((free_s + origin_s) / resolution_s) * resolution_s + 1.0 - origin_s
    other = row
    while other < last and free_s < before_s:
        if begins[other] <= free_s < untils[other] and owners[other] != own:
            if owners[place] >= 0 or owners[other] >= 0:
                return inf
            free_s, other = untils[other], row
        else:
            other += 1
    return free_s


def first_fit_s(nodes: Any, steps: FitSteps, stride: int, wanted: float, spread: bool, out: Any) -> float:
    """Return the earliest time at which an instance fits on any open node. Return infinity if fewer
    than ``wanted`` instances fit even after all runs have ended."""
    times, rooms, counts = steps
    least_s, most = inf, 0.0
    for index in range(len(nodes)):
        node = nodes[index]
        step, last = node * stride, node * stride + counts[node] - 1
        if out[node] > 0 and last >= step and rooms[last] > 0:
            most += 1.0 if spread else rooms[last]
            while rooms[step] <= 0:
                step += 1
            least_s = min(least_s, times[step])
    return least_s if most >= wanted else inf


def freed_until(
    nodes: Any,
    steps: FitSteps,
    limits: Limits,
    clock: SiteClock,
    least_fit_s: float,
    wanted: float,
    spread: bool,
    after_s: float,
    out: Any,
) -> float:
    """Return the time up to which runs have to be freed so that ``wanted`` instances fit on the
    open nodes, or infinity if freeing all runs is not enough. Only times after ``after_s`` count.

    Slurm assumes that the runs end in the order of their limits. It frees the resources of all runs
    that end in a window of time, and then tests whether the job fits (_will_run_test in
    job_test.c). The first window lasts until ``FIRST_WINDOW_S`` after the first end, rounded up to
    a multiple of ``FIRST_WINDOW_S``. If the job does not fit, the length of the window is doubled
    (or extended by ``linear_s``, if that is set) until the window includes the end of another run.
    """
    order, _, _, runs_stride, marks = limits
    freed_s, origin_s, _, linear_s = clock
    anchor_s, window_s = inf, FIRST_WINDOW_S
    at = -1
    while True:
        counts = freed_s > after_s and freed_s >= least_fit_s  # from then on, one instance fits
        if counts and (wanted == 1 or fitting(nodes, steps, runs_stride + 1, freed_s, spread, out) >= wanted):
            return freed_s
        at = next_marked(marks, at + 1)
        if at >= len(order):
            return inf
        if anchor_s == inf:
            anchor_s = order[at] + FIRST_WINDOW_S - (order[at] + origin_s) % FIRST_WINDOW_S
        while at + 1 < len(order) and order[at + 1] <= anchor_s + window_s:
            further = next_marked(marks, at + 1)
            if further >= len(order):
                break
            at = further
        freed_s = order[at]
        while True:
            window_s = window_s + linear_s if linear_s > 0 else 2.0 * window_s
            if at + 1 >= len(order) or order[at + 1] <= anchor_s + window_s:
                break


def next_marked(marks: Any, at: int) -> int:
    """Return the place of the first mark from ``at`` on, or the number of places if there is none."""
    while at < len(marks) and marks[at] == 0:
        at += 1
    return at


def fitting(nodes: Any, steps: FitSteps, stride: int, freed_s: float, spread: bool, out: Any) -> float:
    """Return the number of instances that fit on the open nodes once the runs up to ``freed_s`` are
    freed."""
    times, rooms, counts = steps
    total = 0.0
    for index in range(len(nodes)):
        node = nodes[index]
        if out[node] > 0:
            room = 0.0
            for place in range(node * stride, node * stride + counts[node]):
                if times[place] > freed_s:
                    break
                room = rooms[place]
            if room > 0:
                total += 1.0 if spread else room
    return total


def count_rooms(nodes: Any, steps: FitSteps, stride: int, freed_s: float, out: Any) -> int:
    """Replace the flags of open nodes in ``out`` by the number of instances that fit on each node
    once the runs up to ``freed_s`` are freed. Return the first node on which one fits, or -1."""
    times, rooms, counts = steps
    first = -1
    for index in range(len(nodes)):
        node = nodes[index]
        room, step = 0.0, node * stride
        for place in range(step, step + counts[node] if out[node] > 0 else step):
            if times[place] > freed_s:
                break
            room = rooms[place]
        out[node] = room
        if room > 0 and first < 0:
            first = node
    return first


CALLED = (open_nodes, free_again_s, first_fit_s, freed_until, next_marked, fitting, count_rooms)
"""The functions that ``earliest`` calls, directly or through others."""
