"""The arrays of the compiled engine: its inputs, the state that changes during a simulation, and
the functions that enlarge this state.

Records have named fields. Single numbers, such as the clock and counters, are in records as well.
Their fields are read and written as ``s.clock.now_s`` or ``s.count.runs``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from dagsim.families.compiled.jit import by_pointer

MICRO = 1_000_000
"""CPUs, memory and shares of a GPU are counted in whole millionths, as in the SimPy kernel."""


def record_type(**fields: str) -> np.dtype:
    """Return an aligned record type. Each argument names a data type and the fields of that type,
    as in ``record_type(f8="key", i8="what")``."""
    return np.dtype([(name, kind) for kind, names in fields.items() for name in names.split()], align=True)


# A field must not share its name with an attribute of arrays (item, size, shape ...), because
# uncompiled Python would find the attribute instead.
TASK = record_type(i4="children job kind instances")
"""A task. The tasks of one job are adjacent. ``children`` is the index in ``Work.child`` at which
the task's children begin (they end where the next task's children begin), and ``kind`` is its
demand class."""
CLASS = record_type(f8="gpus", i8="whole share cpus memory gang")
"""A demand class. ``gpus`` is the requested number, which is counted as ``whole`` GPUs or as a
``share`` of one. ``gang`` is the number of instances that start together, or 0 if instances start
independently."""
NODE = record_type(i8="type place gpus idle partly free cpus memory")
"""``place`` is the index among the nodes of its type. ``idle`` is the number of GPUs that are
entirely free (``free`` is their bit mask on nodes whose GPUs the log names), and ``partly`` is the
number of shared GPUs."""


class Jobs(NamedTuple):
    """The columns of J jobs, in order of arrival."""

    arrival_s: np.ndarray  # (J,) float64
    rejected: np.ndarray  # (J,) float64: number of the RejectReason; 0 for admitted jobs
    first: np.ndarray  # (J + 1,) int64: index of the first task of each job
    priority: np.ndarray  # (J,) float64
    deadline_s: np.ndarray  # (J,) float64, inf for jobs without a deadline
    weight: np.ndarray  # (J,) float64


class Classes(NamedTuple):
    """The columns of K demand classes."""

    table: np.recarray  # (K,) CLASS
    may: np.ndarray  # (K, types) uint8: True if tasks of the class may run on the type


class EmptyNodes(NamedTuple):
    """The columns of N empty nodes."""

    table: np.recarray  # (N,) NODE.
    # (types, largest number of nodes of any type) int64: nodes by type and position
    by_type: np.ndarray
    per_type: np.ndarray  # (types,) int64: number of nodes of each type


class Work(NamedTuple):
    """A whole workload with n tasks."""

    jobs: Jobs
    # (n + 1,) TASK; the last record is not a task. It marks where the children of the last task
    # end.
    tasks: np.recarray
    child: np.ndarray  # (edges,) int32: children
    truth: np.ndarray  # (n, types) float64: run time of one instance in seconds; inf on types that cannot run it.
    # (n, types) float64: run times that policies see as estimates, in seconds; may be the same array as ``truth``
    seconds: np.ndarray
    # (n,) int32: the tasks sorted so that each job's tasks are adjacent and parents come before
    # children. (0,) if they are already in this order.
    order: np.ndarray
    past: np.recarray  # PAST: instances that run when the simulation begins, grouped by run, in order of start
    begins_s: float = 0.0
    has_limits: bool = False
    """True if ``seconds`` are time limits. Resumed pieces then keep the unused part of their
    limits."""

    @property
    def rows(self) -> Any:
        """(n,) TASK: the tasks, without the final record that only marks the end."""
        return self.tasks[:-1]

    @property
    def waiting(self) -> np.ndarray:
        """(n,) int64: the number of instances that are not yet running when the simulation
        begins."""
        waiting: np.ndarray = self.rows.instances.astype(np.int64)
        np.subtract.at(waiting, self.past.task, self.past["count"])
        return waiting

    @property
    def best_s(self) -> np.ndarray:
        """(n,) float64: estimated seconds on the fastest type."""
        least: np.ndarray = self.seconds[:, 0].copy()
        for seconds in self.seconds.T[1:]:  # np.min along short rows would take ten times as long
            np.minimum(least, seconds, out=least)
        return least


def records(record: np.dtype, rows: int, /, **columns: Iterable[object]) -> np.recarray:
    """Return a record array with ``rows`` rows and these values. If a column has fewer values, the
    rest is 0."""
    array = np.zeros(rows, record) if columns else np.empty(rows, record)
    for name, column in columns.items():
        values = np.asarray(column)
        array[name][: len(values)] = values
    return array.view(np.recarray)


def one_record(type_: np.dtype, **values: float) -> Any:
    """Return a single record with these values, and zeros in all other fields. Its fields are
    attributes."""
    one = np.zeros(1, type_).view(np.recarray)[0]
    for name, value in values.items():
        setattr(one, name, value)
    return one


NAMED_GPUS = 62
"""Maximum number of GPUs on a node for which the log names the GPUs of a run."""
NONE = 1 << 62
"""Score in a tree that means that nothing fits."""
RING = 4096
"""Number of recent node changes that are stored, a power of two. A tree that has missed more
changes is rebuilt."""
SPARE = 1024
"""Initial space for runs, pieces and groups, beyond the minimum."""
SLOTS = 24
"""Bits of an entry's ``what`` that hold the slot of a run; the number of the run is in the bits
above."""

BEST, FIRST, WORST, CONSOLIDATE = range(4)
"""Placements: best-fit, first-fit, worst-fit, consolidate."""

CLOCK = record_type(f8="now_s begins_s", i8="phase")
"""The current time and its phase (``rules.MOVE``, ``SETTLE``, ``DECIDE``, ``RECALL``), and when the
simulation begins."""
RULE = record_type(f8="ageing", i8="placement strict limits told")
"""Constants. ``ageing`` is multiplied by the time in seconds at which a task became ready, and the
product is added to the task's key. With ``strict``, the first task blocks all others until it fits.
With ``told``, the policy counts the runs that ended at the beginning of the simulation."""
COUNT = record_type(
    i8="rows jobs past started ends fresh early ended starts changes runs runs_top runs_free "
    "holds holds_top holds_free pieces"
)
"""Counters of ``State``.

- Since the start: ``rows`` of the log, arrived ``jobs``, ``started`` runs, ``changes`` of nodes,
  ``pieces``, rows of the ``past``.
- ``early``: the number of entries of ``fresh`` that became ready before the simulation began.
- Entries of arrays: ``ends`` (a heap), ``fresh``, ``ended`` and ``starts``.
- ``runs`` and ``holds`` in use. The ``top`` of each is the first slot never used, ``free`` the
  first to use again (-1: none); free slots are chained through ``RUN.first`` and ``HOLD.next``.
"""

PAST = record_type(f8="since_s", i8="task node count gpus last")
"""``count`` instances that run on a node when the simulation begins. ``gpus`` is the bit set of
their GPUs; if it is 0, the engine chooses them. ``last`` is set in the last row of each run."""
ENTRY = record_type(f8="key", i8="what")
JOB = record_type(f8="arrival_s rejected", i8="first left")
UNDONE = record_type(i4="waiting unfinished missing")
"""Number of instances that have not started, of instances that have not finished, and of parents
that have not finished."""
RUN = record_type(f8="seconds start_s", i8="number task type count first last")
"""A current run, with its ``first`` and ``last`` holds. ``number`` is -1 if the slot is free."""
HOLD = record_type(i8="node count mask gpu next")
"""``count`` instances on a node, and their GPUs. Each shared GPU has its own hold, with the number
of the GPU."""
TREE = record_type(i8="at wide width seen total")
"""A tournament tree of ``width`` leaves. Its scores begin at position ``at`` in ``State.leaves``,
and those of its second tree, for gangs, at ``wide`` (-1 if there is none). ``total`` is the number
of instances that fit on all nodes together, and ``seen`` is the number of changes already
applied."""
QUEUE = record_type(i8="at held most")
"""A heap of ready tasks; it begins ``at`` and has space for ``most``."""
TYPE = record_type(i8="count idle cpus memory")
"""By type: its nodes, its idle GPUs, and its free CPUs and memory in millionths."""


@by_pointer
class State(NamedTuple):
    """The state of a simulation. Between two calls to ``advance``, ``with_more_room`` replaces the
    arrays that are too small."""

    clock: Any  # CLOCK
    rule: Any  # RULE
    count: Any  # COUNT
    jobs: np.recarray  # (J + 1,) JOB
    past: np.recarray  # PAST
    tasks: np.recarray  # (n + 1,) TASK
    todo: np.recarray  # (n,) UNDONE
    child: np.ndarray  # (edges,) int32
    truth: np.ndarray  # (n, types) float64
    seconds: np.ndarray  # (n, types) float64
    key: np.ndarray  # (n, 1 or types) float64: sort key of each task
    classes: np.recarray  # (K,) CLASS
    may: np.ndarray  # (K, types) uint8
    nodes: np.recarray  # (N,) NODE.
    # (N, largest number of GPUs) int64: free millionths of each partly used GPU; -1 for GPUs that
    # are entirely free or entirely used
    left: np.ndarray
    by_type: np.ndarray  # (types, largest number of nodes of any type) int64
    types: np.recarray  # (types,) TYPE
    trees: np.recarray  # (K * types,) TREE
    leaves: np.ndarray  # int64
    ring: np.ndarray  # (RING,) int64: nodes that have changed; shorter in episodes
    queues: np.recarray  # (K or K * types,) QUEUE
    ready: np.recarray  # ENTRY: ready tasks
    ends: np.recarray  # (runs,) ENTRY
    runs: np.recarray  # (runs,) RUN
    holds: np.recarray  # HOLD.
    # (pieces,) int64: for each piece, the task whose remaining work it is. Columns with n + pieces rows
    # contain the tasks first.
    origin: np.ndarray
    # (n + pieces,) float64: remaining fraction of the work. Used only if tasks can be preempted.
    work_left: np.ndarray
    fresh: np.ndarray  # (n + pieces,) int64: tasks that became ready since the last decision.
    # (runs,) int64: slots of runs that ended since the last decision. Their records in ``runs``
    # remain until the next start.
    ended: np.ndarray
    starts: np.ndarray  # (runs,) int64: entries of runs that started since the last decision
    path: np.ndarray  # (N,) int64: scratch space for a search over nodes


def new_state(work: Work, classes: Classes, nodes: EmptyNodes, key: np.ndarray, placement: int) -> State:
    """Return the state at the beginning of a simulation."""
    tasks, kinds, types = len(work.truth), len(classes.table), len(nodes.per_type)
    trees, leaves = _trees(classes, nodes, placement)
    queues, ready = _queues(work, kinds, key.shape[1])
    spare = 2 * len(nodes.table) + SPARE
    jobs, rows, waiting = work.jobs, work.rows, work.waiting
    free = nodes.table
    columns, of_type = np.asarray(free), [free.type == type_ for type_ in range(types)]
    return State(
        clock=one_record(CLOCK, begins_s=work.begins_s),
        rule=one_record(RULE, placement=placement, limits=work.has_limits),
        count=one_record(COUNT, runs_free=-1, holds_free=-1),
        jobs=records(
            JOB,
            len(jobs.first),
            arrival_s=jobs.arrival_s,
            rejected=jobs.rejected,
            first=jobs.first,
            left=np.diff(jobs.first),
        ),
        past=work.past,
        tasks=work.tasks,
        todo=records(UNDONE, tasks, waiting=waiting, unfinished=rows.instances, missing=_parents(work)),
        child=work.child,
        truth=work.truth,
        seconds=work.seconds,
        key=key,
        classes=classes.table,
        may=classes.may,
        nodes=free.copy(),
        left=np.full((len(free), max(1, int(free.gpus.max()))), -1, np.int64),
        by_type=nodes.by_type,
        types=records(
            TYPE,
            types,
            count=nodes.per_type,
            idle=[int(columns["idle"][here].sum()) for here in of_type],
            cpus=[int(columns["cpus"][here].sum()) for here in of_type],
            memory=[int(columns["memory"][here].sum()) for here in of_type],
        ),
        trees=trees,
        leaves=leaves,
        ring=np.zeros(RING, np.int64),
        queues=queues,
        ready=records(ENTRY, ready),
        ends=records(ENTRY, spare),
        runs=records(RUN, spare),
        holds=records(HOLD, spare + 2 * int(free.gpus.sum())),
        origin=np.empty(0, np.int64),
        work_left=np.empty(0),
        fresh=np.empty(tasks, np.int64),
        ended=np.empty(spare, np.int64),
        starts=np.empty(spare, np.int64),
        path=np.empty(len(free), np.int64),
    )


_PER_RUN = {
    *("ends", "runs", "holds", "ended", "starts"),  # State
    *("chosen", "doomed"),  # RoomSearch
    *("heaps", "aside", "aside_of"),  # Ends, Srtf
    *("by_end", "lanes"),  # MappingState
    *("groups", "ratios", "active"),  # Groups
    *("ranked", "number", "standing", "next_run", "previous_run"),  # State of las
}
"""Arrays that double when a state grows, by field name."""
_PER_TYPE = {"heaps", "by_end", "lanes"}
"""Arrays among these in which each type (of ``held``) has a range of the same length."""
_PER_TASK = {
    *("tasks", "todo", "truth", "seconds", "key", "origin", "work_left", "fresh"),  # State
    *("next_task", "previous_task", "inside"),  # LasQueues
}
"""Arrays in which rows for pieces follow those of tasks, by field name."""


def with_pieces(s: State) -> State:
    """Return the state for a preemptive policy, which has additional columns and space for pieces."""
    return with_more_room(s._replace(work_left=np.ones(len(s.fresh))), SPARE)


def more_pieces(s: State) -> int:
    """Return for how many more pieces the state needs space when it grows (0 without preemption)."""
    return max(SPARE, len(s.origin)) if len(s.work_left) else 0


def with_more_room(s: State, pieces: int) -> State:
    """Return the same state with larger queues, and with space for twice as many runs and for
    ``pieces`` more pieces."""
    s = grown(s, pieces)
    if not pieces:
        return s
    queues, ready = s.queues.copy(), records(s.ready.dtype, 2 * len(s.ready) + 64 * len(s.queues))
    queues.most = 2 * s.queues.most + 64
    queues.at = np.cumsum(queues.most) - queues.most
    for before, after in zip(s.queues, queues, strict=True):
        ready[after.at : after.at + after.held] = s.ready[before.at : before.at + before.held]
    return s._replace(queues=queues, ready=ready)


def grown(state: Any, pieces: int) -> Any:
    """Return a copy of a named tuple of arrays, with twice the space per run and space for more
    pieces. Nested tuples are also enlarged.

    Values keep their positions, and new rows are zero.
    """
    changes: dict[str, object] = {}
    for name, value in zip(state._fields, state, strict=True):
        if isinstance(value, tuple):
            changes[name] = grown(value, pieces)
        elif name in _PER_RUN:
            changes[name] = _longer(value, 2.0, 0, len(state.held) if name in _PER_TYPE else 1)
        elif name in _PER_TASK and pieces:
            changes[name] = _longer(value, 1.0, pieces)
    return state._replace(**changes)


def _longer(array: np.ndarray, factor: float, more: int, stretches: int = 1) -> np.ndarray:
    """Return a copy in which each range is longer: ``factor`` times as long, plus ``more`` rows."""
    rows = array.reshape(stretches, -1, *array.shape[1:])
    longer = np.zeros((stretches, int(factor * rows.shape[1]) + more, *array.shape[1:]), array.dtype)
    longer[:, : rows.shape[1]] = rows
    return longer.reshape(-1, *array.shape[1:]).view(type(array))


def _parents(work: Work) -> np.ndarray:
    """Return (n,) int64: number of parents of each task."""
    return np.bincount(work.child, minlength=len(work.truth))


def _trees(classes: Classes, nodes: EmptyNodes, placement: int) -> tuple[np.recarray, np.ndarray]:
    """Return one tree for each class and each of its types. Classes that need the number of fitting
    instances get a second tree."""
    rows, at = [], 0
    for kind, gang in enumerate(classes.table.gang):
        for type_, count in enumerate(nodes.per_type):
            width = 1 << max(0, int(count - 1).bit_length())
            two = gang or placement == CONSOLIDATE
            rows.append((at, at + 2 * width if two else -1, width, -1, 0))
            at += 2 * width * (2 if two else 1) * int(classes.may[kind, type_])
    return np.array(rows, TREE).view(np.recarray), np.empty(at, np.int64)


def _queues(work: Work, kinds: int, width: int) -> tuple[np.recarray, int]:
    """Return empty queues for ready tasks, and the total length of the ranges. Each queue has a
    range with space for all tasks in the class."""
    most = np.repeat(np.bincount(work.rows.kind, minlength=kinds), width)
    return records(QUEUE, len(most), at=np.cumsum(most) - most, most=most), int(most.sum())
