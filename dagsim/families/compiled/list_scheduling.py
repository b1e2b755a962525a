"""List scheduling: the keys of all tasks (computed together), the queues, and the simulation loop.

The compiled counterpart of ``policies.orders.Ordered`` and ``TypedOrdered``. A policy is a column
of keys: one per task, or one per task and GPU type. Smaller keys come first. Tasks with equal keys
are served first come, first served, and then by type. If one task in a demand class fits, all tasks
in the class fit. Therefore, each class has a heap, and only its first task is examined.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property
from math import inf
from types import FunctionType
from typing import Any

import numpy as np

from dagsim.errors import ConfigError
from dagsim.families.compiled.jit import inner, int64, outer
from dagsim.families.compiled.memory import CLASS, PAST, TASK, Classes, Jobs, State, Work, records
from dagsim.families.compiled.node_trees import choose, fits, fits_on
from dagsim.families.compiled.rules import DECIDE, MOVE, move_on, origin_of, pop, push, ready_at_s, start, steps
from dagsim.systems.cluster.policies.orders import LongestWait, Ordered, TypedOrdered, by_arrival


class KeyColumns:
    """The columns from which the keys of n tasks are computed, each of them when a key first reads it."""

    def __init__(self, work: Work, classes: Classes) -> None:
        self._work, self._classes = work, classes
        self.job, self.kind = work.rows.job, work.rows.kind
        self.seconds, self.best_s = work.seconds, work.best_s
        self.instances = work.rows.instances

    @cached_property
    def order(self) -> np.ndarray:
        """(n,) int64: the place of each task in the order of jobs, and of tasks within a job."""
        return self.job.astype(np.int64) << 32 | (np.arange(len(self.job)) - self._work.jobs.first[self.job])

    @cached_property
    def gpus(self) -> np.ndarray:
        """(n,) float64: GPUs of one instance, or of one member of a gang."""
        return self._classes.table.gpus[self.kind]

    @cached_property
    def gang(self) -> np.ndarray:
        """(n,) int64: the members of a gang, 0 for other tasks."""
        return self._classes.table.gang[self.kind]

    @cached_property
    def width(self) -> np.ndarray:
        """(n,) float64: GPUs of one instance or of a whole gang, at least 1 if it needs none."""
        width = self._classes.table.gpus * np.maximum(self._classes.table.gang, 1)
        return np.where(width, width, 1.0)[self.kind]

    @cached_property
    def rank_s(self) -> np.ndarray:
        """(n,) float64: the longest path from the start of each task to the end of its job."""
        return upward_rank(self._work, self.best_s)

    @cached_property
    def ideal_s(self) -> np.ndarray:
        """(n,) float64: the longest path through the job of each task."""
        return ideal_s(self._work, self.rank_s)[self.job]

    @cached_property
    def arrival_s(self) -> np.ndarray:
        """(n,) float64: when the job of each task arrived."""
        return self._work.jobs.arrival_s[self.job]

    @cached_property
    def priority(self) -> np.ndarray:
        """(n,) float64: the priority of each task's job."""
        return self._work.jobs.priority[self.job]

    @cached_property
    def deadline_s(self) -> np.ndarray:
        """(n,) float64: the deadline of each task's job, or infinity."""
        return self._work.jobs.deadline_s[self.job]

    @cached_property
    def weight(self) -> np.ndarray:
        """(n,) float64: the weight of each task's job."""
        return self._work.jobs.weight[self.job]

    def sample(self, size: int) -> list[int]:
        """Return the positions of ``size`` tasks, and of one without a deadline if there is any."""
        count, jobs = len(self.job), self._work.jobs
        spread = np.linspace(0, count - 1, min(count, size), dtype=int).tolist()
        return [*spread, int(jobs.first[jobs.deadline_s.argmax()])]


_Names = Mapping[str, "str | _Names"]
_NAMES: _Names = {
    "seconds": "seconds",
    "best_s": "best_s",
    "order": "order",
    "rank_s": "rank_s",
    "task": {"gpus": "gpus", "instances": "instances"},
    "demand": {"width": "width", "gang": "gang", "demand": {"gpus": "gpus"}},
    "job": {
        "ideal_s": "ideal_s",
        "job": {"arrival_s": "arrival_s", "priority": "priority", "deadline_s": "deadline_s", "weight": "weight"},
    },
}
"""What keys may read of a ``TaskState``, each with the column that stands for it."""


class AllTasks:
    """All tasks together, with the attribute names of ``TaskState``. A key that was written for a
    single task then returns a column.

    Only attributes that never change are available. A key that uses anything else (``ready_s``, the
    tenant) raises ``AttributeError``, and a key that branches on a value raises ``ValueError``.
    With ``place``, the object stands for the task at this position.
    """

    def __init__(self, columns: KeyColumns, place: int | None = None, names: _Names = _NAMES) -> None:
        self._columns, self._place, self._names = columns, place, names

    def __getattr__(self, name: str) -> Any:
        try:
            column = self._names[name]
        except KeyError:
            raise AttributeError(f"the compiled engine has no column {name!r}") from None
        if not isinstance(column, str):
            return AllTasks(self._columns, self._place, column)
        if column == "seconds":
            return [self._pick(seconds) for seconds in self._columns.seconds.T]
        value = self._pick(getattr(self._columns, column))
        return None if column == "deadline_s" and self._place is not None and value == inf else value

    def _pick(self, column: np.ndarray) -> Any:
        return column if self._place is None else column[self._place].item()


_SAMPLE = 64
"""Number of tasks whose individual keys are compared with those computed for all tasks at once."""


def key_columns(order: Ordered | TypedOrdered | LongestWait, columns: KeyColumns) -> np.ndarray:
    """Return (n, 1 or types) float64: the keys of an order, smaller first. For ``LongestWait``,
    return the rate and, if it has one, ``since``.

    Raises:
        ConfigError: The key cannot be computed for all tasks at once, or the result for a single
            task differs.
    """
    keys = _keys_of(order)
    types = range(columns.seconds.shape[1]) if isinstance(order, TypedOrdered) else None

    def ask(task: Any) -> list[Any]:
        return [key(task) for key in keys] if types is None else [keys[0](task, type_) for type_ in types]

    try:
        # Suppress NumPy's warnings: tasks that cannot run anywhere take inf seconds, so computing
        # keys may give inf - inf. The jobs of these tasks are rejected.
        with np.errstate(all="ignore"):
            found = ask(AllTasks(columns))
            places = [] if all(map(_is_shipped, keys)) else columns.sample(_SAMPLE)
            singly = np.array([ask(AllTasks(columns, place)) for place in places], float)
    except Exception as error:
        raise ConfigError(
            "its key cannot be evaluated for all tasks at once (it must work on arrays): "
            f"{type(error).__name__}: {error}"
        ) from error
    count = len(columns.best_s)
    if not all(isinstance(key, np.ndarray) and key.shape == (count,) for key in found):
        raise ConfigError(f"the policy's key must return one number per task, got {found[0]!r} for {count} tasks")
    table = np.ascontiguousarray(np.stack(found, axis=1), np.float64)
    if places:
        _check_singly(table[places], singly)
    return table


def _keys_of(order: Ordered | TypedOrdered | LongestWait) -> list[Any]:
    match order:
        case TypedOrdered():
            return [order.key]
        case LongestWait():
            return [key for key in (order.rate, order.since) if key is not None]
    return [order.static_key]


def _is_shipped(key: Any) -> bool:
    """Return True if a key is a function of dagsim. Tests compare what these return for a task alone and
    among all tasks. Other keys are compared in each run. They include methods, and functions inside
    others, because these may call a user's function.
    """
    if key is by_arrival:
        return True
    return isinstance(key, FunctionType) and key.__module__.startswith("dagsim.") and key.__closure__ is None


def _check_singly(together: np.ndarray, singly: np.ndarray) -> None:
    differs = (together != singly) & ~(np.isnan(together) & np.isnan(singly))
    if differs.any():
        at = int(differs.any(axis=1).argmax())
        raise ConfigError(
            f"its key is {singly[at].tolist()} for a single task, but {together[at].tolist()} when it is computed "
            "for all tasks at once"
        )


@cache
def sample_columns() -> KeyColumns:
    """Return two artificial tasks. With them, one can check whether a key works on columns at
    all."""
    jobs = Jobs(
        arrival_s=np.array([0.0, 7.0]),
        rejected=np.zeros(2),
        first=np.arange(3),
        priority=np.array([1.0, 0.0]),
        deadline_s=np.array([inf, 30.0]),
        weight=np.array([1.0, 2.0]),
    )
    seconds = np.array([[3.0, 4.0], [5.0, 0.5]])
    rows = records(TASK, 3, job=[0, 1], kind=[0, 1], instances=[1, 2])
    classes = Classes(records(CLASS, 2, gpus=[0.0, 2.0], gang=[0, 2]), np.ones((2, 2), np.uint8))
    no_edges, no_past = np.empty(0, np.int32), records(PAST, 0)
    columns = KeyColumns(Work(jobs, rows, no_edges, seconds, seconds, no_edges, no_past), classes)
    columns.__dict__["rank_s"] = columns.best_s  # stored in advance, because computing it would compile a function
    return columns


def upward_rank(work: Work, best_s: np.ndarray) -> np.ndarray:
    """Return (n,) float64: the longest path from the start of each task to the end of the job, if
    each task takes ``best_s``.
    """
    rank = best_s.copy()
    _add_longest(work.order, work.tasks, work.child, rank)
    return rank


def ideal_s(work: Work, rank: np.ndarray) -> np.ndarray:
    """Return (J,) float64: the longest path through each job, computed from the ranks of the tasks."""
    return np.maximum.reduceat(rank, work.jobs.first[:-1]) if len(rank) else np.zeros(0)


def job_gpu_seconds(work: Work, classes: Classes, best_s: np.ndarray) -> np.ndarray:
    """Return (J,) float64: GPU-seconds of all instances of a job, each on its fastest type."""
    rows = work.rows
    gpus = classes.table.gpus[rows.kind] * rows.instances
    sums = np.zeros(len(work.jobs.arrival_s))
    _add_up(np.ascontiguousarray(rows.job), gpus, best_s, sums)
    return sums


def widths(work: Work, classes: Classes) -> np.ndarray:
    """Return (J,) float64: the maximum number of GPUs that any single task of a job can hold at a
    time."""
    rows = work.rows
    gpus = classes.table.gpus[rows.kind] * rows.instances
    return np.maximum.reduceat(gpus, work.jobs.first[:-1]) if len(gpus) else np.zeros(0)


@outer
def _add_longest(order: np.ndarray, tasks: np.recarray, child: np.ndarray, rank: np.ndarray) -> None:
    """Add to the rank of each task the largest rank among its children."""
    for place in range(len(rank) - 1, -1, -1):
        task = int64(order[place]) if len(order) else place
        longest = 0.0
        for edge in range(tasks[task].children, tasks[task + 1].children):
            longest = max(longest, rank[child[edge]])
        rank[task] += longest


@outer
def _add_up(job: np.ndarray, gpus: np.ndarray, best_s: np.ndarray, sums: np.ndarray) -> None:
    """Add the GPU-seconds of each task to the total of its job."""
    for task in range(len(job)):
        if gpus[task]:
            sums[job[task]] += gpus[task] * best_s[task]


_PIECE = 32
"""Bits of an entry for the number of the piece, which is 0 for the task itself."""


@inner
def entry_of(s: State, task: int) -> int:
    """Return the number that represents a task or piece in a heap. Among equal keys, pieces come
    after their task, in the order of their numbers."""
    tasks = len(s.fresh) - len(s.origin)
    return origin_of(s, task) << _PIECE | max(task - tasks + 1, 0)


@inner
def task_of_entry(s: State, entry: int) -> int:
    """Return the task or piece that an entry of a heap represents (``entry_of``)."""
    piece = entry & ((1 << _PIECE) - 1)
    return len(s.fresh) - len(s.origin) + piece - 1 if piece else entry >> _PIECE


@inner
def take_in(s: State) -> None:
    """Queue tasks that have become ready."""
    width = s.key.shape[1]
    for index in range(s.count.fresh):
        task, ready_s = s.fresh[index], ready_at_s(s, index)
        kind = int64(s.tasks[task].kind)
        entry = entry_of(s, task)
        for type_ in range(width):
            if width == 1 or s.may[kind, type_]:
                queue = kind * width + type_
                key = s.rule.ageing * ready_s + s.key[task, type_]
                push(s.ready, s.queues[queue].at, s.queues[queue].held, key, entry)
                s.queues[queue].held += 1
    s.count.fresh = 0
    s.count.early = 0


@inner
def first_task(s: State, that_fits: bool) -> tuple[int, int]:
    """Return the first task by key that fits, and the type chosen for it, or -1 if there is
    none."""
    width = s.key.shape[1]
    best, best_type, best_key, best_entry = int64(-1), int64(-1), 0.0, int64(0)
    for queue in range(len(s.queues)):
        task = _head(s, queue)
        if task < 0:
            continue
        at = s.queues[queue].at
        key, entry = s.ready[at].key, s.ready[at].what
        if best >= 0 and (key > best_key or (key == best_key and entry >= best_entry)):
            continue
        if not that_fits or _fits(s, queue, width):
            best, best_key, best_entry = task, key, entry
            best_type = int64(queue % width if width > 1 else -1)
    return best, best_type


@inner
def _fits(s: State, queue: int, width: int) -> bool:
    """Return True if the tasks of a queue fit on the queue's type, or on any type if the queue has
    no type."""
    return fits(s, queue) if width == 1 else fits_on(s, queue // width, queue % width)


@inner
def _head(s: State, queue: int) -> int:
    """Return the first task in a queue, or -1 if the queue is empty. Along the way, drop tasks that
    have no waiting instances."""
    at = s.queues[queue].at
    while s.queues[queue].held:
        task = task_of_entry(s, s.ready[at].what)
        if s.todo[task].waiting:
            return task
        pop(s.ready, at, s.queues[queue].held)
        s.queues[queue].held -= 1
    return int64(-1)


@outer
def advance_list(s: State, log: np.recarray) -> bool:
    """Simulate until no event is left (return False), or until the log or the state needs more
    space (return True).
    """
    left = steps(s, log)
    while left > 0:
        if s.clock.phase == DECIDE:
            if not _decide(s, log):
                s.clock.phase = MOVE
        elif not move_on(s, log):
            return False
        left = left - 1 if left > 1 else steps(s, log)
    return True


@inner
def _decide(s: State, log: np.recarray) -> bool:
    """Start one task. Return False if none can start."""
    s.count.ended = 0
    s.count.starts = 0
    take_in(s)
    task, only = first_task(s, s.rule.strict == 0)
    if task < 0:
        return False
    type_, node = choose(s, task, only)
    if node == -1:
        return False
    start(s, log, task, type_, node)
    return True
