"""Ready tasks by key: a heap per demand class, or per demand class and type where the key depends on the type.

An entry's ``what`` is the task and, behind it, the number of the piece, so that equal keys go first come, first served.
"""

from __future__ import annotations

from dagsim.systems.cluster.lane.heap import pop, push
from dagsim.systems.cluster.lane.index import fits_on
from dagsim.systems.cluster.lane.jit import inner, int64
from dagsim.systems.cluster.lane.kernel import origin_of
from dagsim.systems.cluster.lane.state import FRESH, State

__all__ = ["first_task", "take_in"]

_PIECE = 32
"""Bits of an entry for the number of the piece, 0 for the task itself."""


@inner
def take_in(s: State) -> None:
    """Queue what has become ready."""
    width, tasks = s.key.shape[1], len(s.fresh) - len(s.origin)
    for each in range(s.n[FRESH]):
        task = s.fresh[each]
        kind = int64(s.tasks[task].kind)
        entry = origin_of(s, task) << _PIECE | max(task - tasks + 1, 0)
        for type_ in range(width):
            if width == 1 or s.may[kind, type_]:
                queue = kind * width + type_
                key = s.ageing[0] * s.now[0] + s.key[task, type_]
                push(s.ready, s.queues[queue].at, s.queues[queue].held, key, entry)
                s.queues[queue].held += 1
    s.n[FRESH] = 0


@inner
def first_task(s: State, that_fits: bool) -> tuple[int, int]:
    """Find the first task by key (that fits), and its chosen type, or -1."""
    width = s.key.shape[1]
    found, on, least, first = int64(-1), int64(-1), 0.0, int64(0)
    for queue in range(len(s.queues)):
        task = _head(s, queue)
        if task < 0:
            continue
        at = s.queues[queue].at
        key, entry = s.ready[at].key, s.ready[at].what
        if found >= 0 and (key > least or (key == least and entry >= first)):
            continue
        if not that_fits or _fits(s, queue, width):
            found, least, first = task, key, entry
            on = int64(queue % width if width > 1 else -1)
    return found, on


@inner
def _fits(s: State, queue: int, width: int) -> bool:
    """True if the tasks of a queue fit somewhere they may go."""
    types = len(s.types)
    for type_ in range(types):  # noqa: SIM110 (a generator cannot be compiled)
        if (width == 1 or type_ == queue % width) and fits_on(s, queue // width, type_):
            return True
    return False


@inner
def _head(s: State, queue: int) -> int:
    """Find the first task of a queue, or -1; drops those of which nothing waits any more."""
    at, tasks = s.queues[queue].at, len(s.fresh) - len(s.origin)
    while s.queues[queue].held:
        entry = s.ready[at].what
        piece = entry & ((1 << _PIECE) - 1)
        task = tasks + piece - 1 if piece else entry >> _PIECE
        if s.todo[task].waiting:
            return task
        pop(s.ready, at, s.queues[queue].held)
        s.queues[queue].held -= 1
    return int64(-1)
