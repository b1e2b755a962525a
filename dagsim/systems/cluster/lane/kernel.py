"""The rules of the simulation, one thing per call: an end, an arrival, a step of time, a start.

Time moves as in the SimPy kernel: ends in the order of (time, number of the run), then arrivals, then decisions until
there is none. Which task starts is for the files of the policies; they find what has become ready and which runs have
ended since their last decision in ``State.fresh`` and ``State.ended``.
"""

from __future__ import annotations

import numpy as np

from dagsim.systems.cluster.lane.heap import pop, push
from dagsim.systems.cluster.lane.jit import inner, int64
from dagsim.systems.cluster.lane.placement import SPREAD, give_back, pouring, room, sync, take, top, tree_of
from dagsim.systems.cluster.lane.state import (
    ENDED,
    ENDS,
    FRESH,
    HOLDS,
    JOBS,
    NONE,
    PHASE,
    ROWS,
    RUNS,
    RUNS_FREE,
    RUNS_TOP,
    SLOTS,
    STARTED,
    STARTS,
    State,
)

__all__ = [
    "ARRIVED",
    "COMPLETED",
    "DECIDE",
    "FINISHED",
    "PREEMPTED",
    "REJECTED",
    "STARTED_ROW",
    "alive",
    "move_on",
    "origin_of",
    "start",
    "steps",
    "stop",
]

ARRIVED, REJECTED, STARTED_ROW, FINISHED, PREEMPTED, COMPLETED = 0, 2, 3, 5, 6, 8
"""Kinds of rows, the numbers of ``dagsim.model.Kind``."""
MOVE, SETTLE, DECIDE = 0, 1, 2
"""Phases of an instant: let time pass, settle what is due, decide."""


@inner
def steps(s: State, log: np.recarray) -> int:
    """Count the steps for which there is enough space, whatever they do; up to 64, so that it is not asked for each."""
    nodes = len(s.nodes)
    runs = len(s.runs) - max(s.n[ENDS], s.n[ENDED], s.n[STARTS])
    holds = len(s.holds) - s.n[HOLDS]
    return min((len(log) - s.n[ROWS]) // (nodes + 2), runs // nodes, holds // (nodes * s.left.shape[1]), 64)


@inner
def move_on(s: State, log: np.recarray) -> bool:
    """Settle one thing, after letting time pass if all is decided; False when nothing is left to come."""
    ends, coming = s.n[ENDS] > 0, s.n[JOBS] < len(s.jobs) - 1
    if s.n[PHASE] == MOVE:
        if not (ends or coming):
            return False
        if ends:
            s.now[0] = s.ends[0].key
        if coming and (not ends or s.jobs[s.n[JOBS]].arrival_s < s.now[0]):
            s.now[0] = s.jobs[s.n[JOBS]].arrival_s
        s.n[PHASE] = SETTLE
    if ends and s.ends[0].key == s.now[0]:
        _finish(s, log)
    elif coming and s.jobs[s.n[JOBS]].arrival_s <= s.now[0]:
        _arrive(s, log)
    else:
        s.n[PHASE] = DECIDE
    return True


@inner
def alive(s: State, entry: int) -> bool:
    """True if the run of an entry (its number and slot) is still under way."""
    return s.runs[entry & ((1 << SLOTS) - 1)].number == entry >> SLOTS


@inner
def origin_of(s: State, task: int) -> int:
    """Find the task that a piece is of; a task is its own."""
    first = len(s.fresh) - len(s.origin)
    return task if task < first else s.origin[task - first]


@inner
def start(s: State, log: np.recarray, task: int, type_: int, node: int) -> None:
    """Start the task's waiting instances on a node, or node after node. It starts as many as each has room for.

    A gang is one run, of independent instances those on one node are.
    """
    kind = int64(s.tasks[task].kind)
    tree = tree_of(s, kind, type_)
    needed = int64(s.todo[task].waiting)
    run, on = -1, node
    while needed:
        if node == SPREAD:
            sync(s, kind, type_)
            at = pouring(s, tree)
            if s.leaves[at + 1] == NONE:
                break
            on = s.by_type[type_, top(s, at, s.trees[tree].width, False)]
        if run < 0:
            run = _open(s, task, type_)
        count = 1 if needed == 1 else min(needed, room(s, kind, on))
        held = take(s, kind, on, count, run)
        _row(s, log, STARTED_ROW, task, s.runs[run].number, on, count, held)
        s.runs[run].count += count
        needed -= count
        if not s.classes[kind].gang:
            _close(s, run)
            run = -1
            if node != SPREAD:
                break
    if run >= 0:
        _close(s, run)
    s.todo[task].waiting = needed


@inner
def stop(s: State, log: np.recarray, run: int, what: int) -> None:
    """Give back what a run holds, a row per node, and free its slot."""
    task = s.runs[run].task
    kind = int64(s.tasks[task].kind)
    hold = s.runs[run].first
    while hold >= 0:
        node, count, held = s.holds[hold].node, int64(0), int64(0)
        while hold >= 0 and s.holds[hold].node == node:
            after = s.holds[hold].next
            count += s.holds[hold].count
            held |= s.holds[hold].mask
            give_back(s, kind, hold)
            hold = after
        _row(s, log, what, task, s.runs[run].number, node, count, held)
    s.ended[s.n[ENDED]] = run
    s.n[ENDED] += 1
    s.runs[run].number = -1
    s.runs[run].first = s.n[RUNS_FREE]
    s.n[RUNS_FREE] = run
    s.n[RUNS] -= 1


@inner
def _arrive(s: State, log: np.recarray) -> None:
    """The next job arrives; its tasks without parents become ready, unless it can never run."""
    job = s.n[JOBS]
    s.n[JOBS] += 1
    _job_row(s, log, ARRIVED, job, 0.0)
    if s.jobs[job].rejected:
        _job_row(s, log, REJECTED, job, s.jobs[job].rejected)
        return
    for task in range(s.jobs[job].first, s.jobs[job + 1].first):
        if not s.todo[task].missing:
            s.fresh[s.n[FRESH]] = task
            s.n[FRESH] += 1


@inner
def _finish(s: State, log: np.recarray) -> None:
    """The next run ends; its task, then its job may be done, and children become ready."""
    run = s.ends[0].what & ((1 << SLOTS) - 1)
    pop(s.ends, 0, s.n[ENDS])
    s.n[ENDS] -= 1
    task = origin_of(s, s.runs[run].task)
    s.todo[task].unfinished -= s.runs[run].count
    stop(s, log, run, FINISHED)
    if s.todo[task].unfinished:
        return
    for edge in range(s.tasks[task].children, s.tasks[task + 1].children):
        child = s.child[edge]
        s.todo[child].missing -= 1
        if not s.todo[child].missing:
            s.fresh[s.n[FRESH]] = child
            s.n[FRESH] += 1
    job = s.tasks[task].job
    s.jobs[job].left -= 1
    if not s.jobs[job].left:
        _job_row(s, log, COMPLETED, job, 0.0)


@inner
def _open(s: State, task: int, type_: int) -> int:
    """Begin a run that holds nothing yet; returns its slot."""
    run = s.n[RUNS_FREE]
    if run < 0:
        run = s.n[RUNS_TOP]
        s.n[RUNS_TOP] += 1
    else:
        s.n[RUNS_FREE] = s.runs[run].first
    s.runs[run].number = s.n[STARTED]
    s.n[STARTED] += 1
    s.runs[run].task = task
    s.runs[run].type = type_
    s.runs[run].count = 0
    s.runs[run].first = -1
    s.runs[run].start_s = s.now[0]
    s.runs[run].seconds = s.truth[task, type_]
    return run


@inner
def _close(s: State, run: int) -> None:
    """Set the end of a run that holds all it needs."""
    entry = s.runs[run].number << SLOTS | run
    push(s.ends, 0, s.n[ENDS], s.now[0] + s.runs[run].seconds, entry)
    s.n[ENDS] += 1
    s.n[RUNS] += 1
    s.starts[s.n[STARTS]] = entry
    s.n[STARTS] += 1


@inner
def _row(s: State, log: np.recarray, what: int, task: int, number: int, node: int, count: int, held: int) -> None:
    """Write what a run does on a node."""
    job = s.tasks[task].job
    row = log[s.n[ROWS]]
    row.kind = what
    row.time_s = s.now[0]
    row.job = job
    row.task = origin_of(s, task) - s.jobs[job].first
    row.run = number
    row.node = node
    row.instances = count
    row.gpus = held
    row.value = s.classes[s.tasks[task].kind].gpus * count
    s.n[ROWS] += 1


@inner
def _job_row(s: State, log: np.recarray, what: int, job: int, value: float) -> None:
    """Write what becomes of a job."""
    row = log[s.n[ROWS]]
    row.kind = what
    row.time_s = s.now[0]
    row.job = job
    row.task = -1
    row.run = -1
    row.node = -1
    row.instances = 0
    row.gpus = 0
    row.value = value
    s.n[ROWS] += 1
