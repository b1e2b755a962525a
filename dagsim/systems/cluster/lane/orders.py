"""List scheduling, compiled: keys, queues, and the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log10
from typing import NamedTuple

import numpy as np

from dagsim.systems.cluster.lane.heap import pop, push
from dagsim.systems.cluster.lane.jit import inner, int64, outer
from dagsim.systems.cluster.lane.kernel import DECIDE, MOVE, move_on, origin_of, start, steps
from dagsim.systems.cluster.lane.placement import choose, fits_on
from dagsim.systems.cluster.lane.state import ENDED, FRESH, PHASE, STARTS, STRICT, Classes, State, Work

__all__ = [
    "ORDERS",
    "Columns",
    "Order",
    "advance_list",
    "first_task",
    "ideal_s",
    "job_gpu_seconds",
    "take_in",
    "upward_rank",
    "widths",
]


class Columns(NamedTuple):
    """The columns that keys are made of, with the columns that several of them need."""

    work: Work
    classes: Classes

    @property
    def job(self) -> np.ndarray:
        """(n,) int32."""
        job: np.ndarray = self.work.rows.job
        return job

    @property
    def width(self) -> np.ndarray:
        """(n,) float64: GPUs that start together for the task, 1 for what asks for no GPU."""
        gpus = self.classes.table.gpus * np.maximum(self.classes.table.gang, 1)
        width: np.ndarray = np.where(gpus, gpus, 1.0)[self.work.rows.kind]
        return width

    @property
    def rank_s(self) -> np.ndarray:
        """(n,) float64: the longest path from the task's start to the end of its job."""
        return upward_rank(self.work, self.work.best_s)

    @property
    def deadline_s(self) -> np.ndarray:
        """(n,) float64."""
        deadline_s: np.ndarray = self.work.jobs.deadline_s[self.job]
        return deadline_s

    @property
    def log_arrival(self) -> np.ndarray:
        """(n,) float64: the logarithm of the arrival, of at least 0.1 s."""
        return _log10(self.work.jobs.arrival_s)[self.job]


class Order(NamedTuple):
    """A static order: its column of keys; ``strict`` if its first task blocks all others."""

    keys: Callable[[Columns], np.ndarray]
    strict: bool = False


def _column(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float64).reshape(len(values), 1)


def _log10(values: np.ndarray) -> np.ndarray:
    """Logarithms as ``math`` computes them: NumPy's own differ in the last bit."""
    return np.array([log10(value) for value in np.maximum(values, 0.1).tolist()])


def _arrival(c: Columns) -> np.ndarray:
    return np.zeros((len(c.work.truth), 1))  # equal keys go first come, first served


def _f1(c: Columns) -> np.ndarray:
    return _column(_log10(c.work.best_s) * c.width + 870 * c.log_arrival)


def _f2(c: Columns) -> np.ndarray:
    return _column(np.sqrt(c.work.best_s) * c.width + 25_600 * c.log_arrival)


def _f3(c: Columns) -> np.ndarray:
    return _column(c.work.best_s * c.width + 6_860_000 * c.log_arrival)


def _f4(c: Columns) -> np.ndarray:
    return _column(c.work.best_s * np.sqrt(c.width) + 530_000 * c.log_arrival)


ORDERS: Mapping[str, Order] = {
    "fifo": Order(_arrival, strict=True),
    "fifo-fit": Order(_arrival),
    "sjf": Order(lambda c: c.work.seconds),
    "ljf": Order(lambda c: _column(-c.work.best_s)),
    "saf": Order(lambda c: c.width[:, None] * c.work.seconds),
    "wspt": Order(lambda c: c.work.seconds / c.work.jobs.weight[c.job][:, None]),
    "edf": Order(lambda c: _column(c.deadline_s)),
    "llf": Order(lambda c: _column(c.deadline_s - c.rank_s)),
    "priority": Order(lambda c: _column(-c.work.jobs.priority[c.job])),
    "critical-path": Order(lambda c: _column(-c.rank_s)),
    "f1": Order(_f1),
    "f2": Order(_f2),
    "f3": Order(_f3),
    "f4": Order(_f4),
}
"""The static orders by the name of their policy. ``priority`` with ageing grows as its task waits to become ready."""


def upward_rank(work: Work, best_s: np.ndarray) -> np.ndarray:
    """(n,) float64: per task the longest path from its start to the end of its job, with ``best_s`` per task."""
    rank = best_s.copy()
    _add_longest(work.order, work.tasks, work.child, rank)
    return rank


def ideal_s(work: Work, rank: np.ndarray) -> np.ndarray:
    """(J,) float64: the longest path through each job, from the ranks of its tasks."""
    return np.maximum.reduceat(rank, work.jobs.first[:-1]) if len(rank) else np.zeros(0)


def job_gpu_seconds(work: Work, classes: Classes, best_s: np.ndarray) -> np.ndarray:
    """(J,) float64: GPU-seconds of all instances of a job, each on its fastest type."""
    rows = work.rows
    gpus = classes.table.gpus[rows.kind] * rows.instances
    sums = np.zeros(len(work.jobs.arrival_s))
    _add_up(rows.job, gpus, best_s, sums)
    return sums


def widths(work: Work, classes: Classes) -> np.ndarray:
    """(J,) float64: the most GPUs that any one task of a job can hold at once."""
    rows = work.rows
    gpus = classes.table.gpus[rows.kind] * rows.instances
    return np.maximum.reduceat(gpus, work.jobs.first[:-1]) if len(gpus) else np.zeros(0)


@outer
def _add_longest(order: np.ndarray, tasks: np.recarray, child: np.ndarray, rank: np.ndarray) -> None:
    """Add to every rank the longest of its children's."""
    for place in range(len(rank) - 1, -1, -1):
        task = int64(order[place]) if len(order) else place
        longest = 0.0
        for edge in range(tasks[task].children, tasks[task + 1].children):
            longest = max(longest, rank[child[edge]])
        rank[task] += longest


@outer
def _add_up(job: np.ndarray, gpus: np.ndarray, best_s: np.ndarray, sums: np.ndarray) -> None:
    """Add every task's GPU-seconds to its job's."""
    for task in range(len(job)):
        if gpus[task]:
            sums[job[task]] += gpus[task] * best_s[task]


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


@outer
def advance_list(s: State, log: np.recarray) -> bool:
    """Go on until everything is done (False) or more space is needed (True). The space is that of the log or the
    state."""
    left = steps(s, log)
    while left > 0:
        if s.n[PHASE] == DECIDE:
            if not _decide(s, log):
                s.n[PHASE] = MOVE
        elif not move_on(s, log):
            return False
        left = left - 1 if left > 1 else steps(s, log)
    return True


@inner
def _decide(s: State, log: np.recarray) -> bool:
    """Start one task; False if none can."""
    s.n[ENDED] = 0
    s.n[STARTS] = 0
    take_in(s)
    task, only = first_task(s, s.n[STRICT] == 0)
    if task < 0:
        return False
    type_, node = choose(s, task, only)
    if node == -1:
        return False
    start(s, log, task, type_, node)
    return True
