"""List scheduling: the first ready task by its key starts, as long as one fits.

A policy is a column of keys: one per task, or one per task and type for orders that depend on where a task would run.
Smaller comes first, equal keys go first come, first served, then by type. Tasks of one demand class fit or do not fit
together, so that each class has a heap and only the first of each is looked at.
"""

from __future__ import annotations

import numpy as np

from dagsim.systems.cluster.lane.heap import pop, push
from dagsim.systems.cluster.lane.index import fits_on
from dagsim.systems.cluster.lane.jit import inner, int64, main
from dagsim.systems.cluster.lane.kernel import DECIDE, MOVE, enough_space, move_on, start
from dagsim.systems.cluster.lane.placement import choose
from dagsim.systems.cluster.lane.state import ENDED, FRESH, PHASE, STARTS, STRICT, State

__all__ = ["advance_list"]


@main
def advance_list(s: State, log: np.recarray) -> bool:
    """Go on until everything is done (False), or the log or the state need more space (True)."""
    while enough_space(s, log):
        if s.n[PHASE] == DECIDE:
            if not _decide(s, log):
                s.n[PHASE] = MOVE
        elif not move_on(s, log):
            return False
    return True


@inner
def _decide(s: State, log: np.recarray) -> bool:
    """Start one task; False if none can."""
    _take_in(s)
    task, only = _first(s)
    type_, node = -1, -1
    if task >= 0:
        type_, node = choose(s, task, only)
    if node == -1:
        return False
    start(s, log, task, type_, node)
    return True


@inner
def _take_in(s: State) -> None:
    """Queue what has become ready."""
    s.n[ENDED] = 0
    s.n[STARTS] = 0
    width = s.key.shape[1]
    for each in range(s.n[FRESH]):
        task = s.fresh[each]
        kind = int64(s.tasks[task].kind)
        for type_ in range(width):
            if width == 1 or s.may[kind, type_]:
                queue = kind * width + type_
                key = s.ageing[0] * s.now[0] + s.key[task, type_]
                push(s.ready, s.queues[queue].at, s.queues[queue].held, key, task)
                s.queues[queue].held += 1
    s.n[FRESH] = 0


@inner
def _first(s: State) -> tuple[int, int]:
    """Find the first task by key that fits (strict: the first at all), and the type it was chosen for, or -1."""
    width = s.key.shape[1]
    found, on, least = int64(-1), int64(-1), 0.0
    for queue in range(len(s.queues)):
        task = _head(s, queue)
        if task < 0:
            continue
        key = s.ready[s.queues[queue].at].key
        if found >= 0 and (key > least or (key == least and task >= found)):
            continue
        if s.n[STRICT] or _fits(s, queue, width):
            found, least = task, key
            on = int64(queue % width if width > 1 else -1)
    return found, on


@inner
def _fits(s: State, queue: int, width: int) -> bool:
    """Whether the tasks of a queue fit somewhere they may go."""
    types = len(s.types)
    for type_ in range(types):  # noqa: SIM110 (a generator cannot be compiled)
        if (width == 1 or type_ == queue % width) and fits_on(s, queue // width, type_):
            return True
    return False


@inner
def _head(s: State, queue: int) -> int:
    """Find the first task of a queue, or -1; drops those of which nothing waits any more."""
    at = s.queues[queue].at
    while s.queues[queue].held:
        task = s.ready[at].what
        if s.todo[task].waiting:
            return task
        pop(s.ready, at, s.queues[queue].held)
        s.queues[queue].held -= 1
    return int64(-1)
