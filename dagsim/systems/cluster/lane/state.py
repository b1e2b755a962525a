"""The state of the compiled engine: columns of jobs, tasks and runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from dagsim.systems.cluster.lane.jit import by_pointer

__all__ = [
    "BEST",
    "CHANGES",
    "CLASS",
    "CONSOLIDATE",
    "ENDED",
    "ENDS",
    "ENTRY",
    "FIRST",
    "FRESH",
    "HOLDS",
    "HOLDS_FREE",
    "HOLDS_TOP",
    "JOBS",
    "MICRO",
    "NAMED_GPUS",
    "NODE",
    "NONE",
    "PHASE",
    "PIECES",
    "PLACEMENT",
    "RING",
    "ROWS",
    "RUNS",
    "RUNS_FREE",
    "RUNS_TOP",
    "SLOTS",
    "SPARE",
    "STARTED",
    "STARTS",
    "STRICT",
    "TASK",
    "WORST",
    "Classes",
    "EmptyNodes",
    "Jobs",
    "State",
    "Work",
    "grown",
    "new_state",
    "record_type",
    "records",
]


MICRO = 1_000_000
"""CPUs, memory and shares of a GPU are counted in whole millionths, as the SimPy kernel does."""


def record_type(**fields: str) -> np.dtype:
    """A record type, aligned, from field names by kind: ``record_type(f8="key", i8="what")``."""
    return np.dtype([(name, kind) for kind, names in fields.items() for name in names.split()], align=True)


# Fields must not bear the name of an attribute of arrays (item, size, shape ...): plain Python would find that one.
TASK = record_type(i4="children job kind instances")
"""The tasks of one job stand together. ``children`` is where its own begin in ``Work.child`` (they end where those of
the next task begin), ``kind`` its demand class."""
CLASS = record_type(f8="gpus", i8="whole share cpus memory gang")
"""``gpus`` as asked, and as it is counted: ``whole`` GPUs or a ``share`` of one. ``gang`` instances start together; 0:
each by itself."""
NODE = record_type(i8="type place gpus idle partly free cpus memory")
"""``place`` among the nodes of its type. ``idle`` GPUs are wholly free (``free`` is their bit mask on nodes where the
log names them), ``partly`` many are shared."""


class Jobs(NamedTuple):
    """Jobs in order of arrival, J of them."""

    arrival_s: np.ndarray  # (J,) float64
    rejected: np.ndarray  # (J,) float64: the RejectReason, 0 for jobs that are let in
    first: np.ndarray  # (J + 1,) int64: where the tasks of each begin
    priority: np.ndarray  # (J,) float64
    deadline_s: np.ndarray  # (J,) float64, inf without one
    weight: np.ndarray  # (J,) float64


class Classes(NamedTuple):
    """Demand classes, K of them."""

    table: np.recarray  # (K,) CLASS
    may: np.ndarray  # (K, types) uint8: the types that may run them


class EmptyNodes(NamedTuple):
    """Empty nodes, N of them."""

    table: np.recarray  # (N,) NODE
    by_type: np.ndarray  # (types, most of one type) int64: nodes by type and place
    per_type: np.ndarray  # (types,) int64: how many


class Work(NamedTuple):
    """A whole workload, n tasks."""

    jobs: Jobs
    tasks: np.recarray  # (n + 1,) TASK; the last one only ends the children of the one before
    child: np.ndarray  # (edges,) int32: tasks that wait
    truth: np.ndarray  # (n, types) float64: seconds of an instance, inf where it cannot run
    seconds: np.ndarray  # (n, types) float64: the same as policies see it; may be the same array
    order: np.ndarray  # (n,) int32: job by job all tasks, parents first; (0,) if they stand so anyway

    @property
    def rows(self) -> Any:
        """(n,) TASK: the tasks without the record that only ends them."""
        return self.tasks[:-1]

    @property
    def best_s(self) -> np.ndarray:
        """(n,) float64: estimated seconds on the fastest type."""
        least: np.ndarray = self.seconds.min(axis=1)
        return least


def records(record: np.dtype, rows: int, /, **columns: Iterable[object]) -> np.recarray:
    """A record array of ``rows``; the columns may be shorter, and what they leave out is 0."""
    made = np.zeros(rows, record) if columns else np.empty(rows, record)
    for name, column in columns.items():
        values = np.asarray(column)
        made[name][: len(values)] = values
    return made.view(np.recarray)


NAMED_GPUS = 62
"""The log names the GPUs a run holds on nodes with up to this many."""
NONE = 1 << 62
"""A score in a tree: no room."""
RING = 4096
"""The last so many changes of nodes are known; a tree that has missed more is built anew."""
SPARE = 1024
"""Runs, pieces and groups beyond the least that there is space for at first."""
SLOTS = 24
"""Bits of an entry's ``what`` that hold the slot of a run; its number stands above them."""

BEST, FIRST, WORST, CONSOLIDATE = range(4)
"""Placements: best-fit, first-fit, worst-fit, consolidate."""

(
    PHASE,
    PLACEMENT,
    STRICT,
    ROWS,
    JOBS,
    STARTED,
    ENDS,
    FRESH,
    ENDED,
    STARTS,
    CHANGES,
    RUNS,
    RUNS_TOP,
    RUNS_FREE,
    HOLDS,
    HOLDS_TOP,
    HOLDS_FREE,
    PIECES,
    COUNTERS,
) = range(19)
"""Places in ``State.n``. ``STARTED`` and ``JOBS`` count starts and arrivals, ``ENDS`` the entries of that heap;
``RUNS`` and ``HOLDS`` are in use, the ``TOP`` of each is the first one never
used, ``FREE`` the first to use again. ``PIECES`` counts preemptions."""

ENTRY = record_type(f8="key", i8="what")
JOB = record_type(f8="arrival_s rejected", i8="first left")
UNDONE = record_type(i4="waiting unfinished missing")
"""Instances that wait to be started and that are not finished, parents that are not done."""
RUN = record_type(f8="seconds start_s", i8="number task type count first last")
"""A run under way; ``first`` and ``last`` of what it holds. ``number`` is -1 where the slot is free."""
HOLD = record_type(i8="node count mask gpu next")
"""So many instances on a node and the GPUs they hold; of shared GPUs one hold for each, with its number."""
TREE = record_type(i8="at wide width seen total")
"""A tournament tree of ``width`` leaves: its scores, and (or -1) the room for gangs, begin in ``State.leaves`` there.
``total`` is the room on all nodes, ``seen`` how many changes it has caught up with."""
QUEUE = record_type(i8="at held most")
"""A heap of ready tasks; it begins ``at`` and has space for ``most``."""
TYPE = record_type(i8="count idle cpus")
"""Per type its nodes, and its idle GPUs and free CPUs in millionths."""


@by_pointer
class State(NamedTuple):
    """The state of a run. Arrays that are too small are replaced by ``grown``, between two calls of ``advance``."""

    now: np.ndarray  # (1,) float64
    n: np.ndarray  # (COUNTERS,) int64
    jobs: np.recarray  # (J + 1,) JOB
    tasks: np.recarray  # (n + 1,) TASK
    todo: np.recarray  # (n,) UNDONE
    child: np.ndarray  # (edges,) int32
    truth: np.ndarray  # (n, types) float64
    seconds: np.ndarray  # (n, types) float64
    key: np.ndarray  # (n, 1 or types) float64: the order
    ageing: np.ndarray  # (1,) float64: what a key grows by per second at which its task became ready
    classes: np.recarray  # (K,) CLASS
    may: np.ndarray  # (K, types) uint8
    nodes: np.recarray  # (N,) NODE
    left: np.ndarray  # (N, most GPUs) int64: free millionths of each partly used GPU, -1 for the others
    by_type: np.ndarray  # (types, most of one type) int64
    types: np.recarray  # (types,) TYPE
    trees: np.recarray  # (K * types,) TREE
    leaves: np.ndarray  # int64
    ring: np.ndarray  # (RING,) int64: nodes that changed
    queues: np.recarray  # (K or K * types,) QUEUE
    ready: np.recarray  # ENTRY: ready tasks
    ends: np.recarray  # (runs,) ENTRY
    runs: np.recarray  # (runs,) RUN
    holds: np.recarray  # HOLD
    origin: np.ndarray  # (pieces,) int64: the task of each piece; pieces stand behind the tasks in all columns of tasks
    work_left: np.ndarray  # (n + pieces,) float64: the fraction of the work still to do; only where tasks are preempted
    fresh: np.ndarray  # (n + pieces,) int64: tasks that became ready since the last decision
    ended: np.ndarray  # (runs,) int64: slots of runs that ended since; their records stand until the next start
    starts: np.ndarray  # (runs,) int64: entries of runs that started since
    path: np.ndarray  # (N,) int64: room for a walk over nodes


def new_state(work: Work, classes: Classes, nodes: EmptyNodes, key: np.ndarray, placement: int) -> State:
    """The state before anything has happened."""
    tasks, kinds, types = len(work.truth), len(classes.table), len(nodes.per_type)
    n = np.zeros(COUNTERS, np.int64)
    n[PLACEMENT], n[RUNS_FREE], n[HOLDS_FREE] = placement, -1, -1
    trees, leaves = _trees(classes, nodes, placement)
    queues, ready = _queues(work, kinds, key.shape[1])
    spare = 2 * len(nodes.table) + SPARE
    jobs, rows = work.jobs, work.rows
    free = nodes.table
    return State(
        now=np.zeros(1),
        n=n,
        jobs=records(
            JOB,
            len(jobs.first),
            arrival_s=jobs.arrival_s,
            rejected=jobs.rejected,
            first=jobs.first,
            left=np.diff(jobs.first),
        ),
        tasks=work.tasks,
        todo=records(UNDONE, tasks, waiting=rows.instances, unfinished=rows.instances, missing=_parents(work)),
        child=work.child,
        truth=work.truth,
        seconds=work.seconds,
        key=key,
        ageing=np.zeros(1),
        classes=classes.table,
        may=classes.may,
        nodes=free.copy(),
        left=np.full((len(free), max(1, int(free.gpus.max()))), -1, np.int64),
        by_type=nodes.by_type,
        types=records(
            TYPE,
            types,
            count=nodes.per_type,
            idle=[int(free.idle[free.type == each].sum()) for each in range(types)],
            cpus=[int(free.cpus[free.type == each].sum()) for each in range(types)],
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


def grown(s: State) -> State:
    """The same state with room for twice the runs."""
    double: Any = {name: _doubled(getattr(s, name)) for name in ("ends", "runs", "holds", "ended", "starts")}
    return s._replace(**double)


def _doubled(array: np.ndarray) -> np.ndarray:
    twice = np.empty(2 * len(array), array.dtype)
    twice[: len(array)] = array
    return twice.view(type(array))


def _parents(work: Work) -> np.ndarray:
    """(n,) int64: how many tasks each waits for."""
    return np.bincount(work.child, minlength=len(work.truth))


def _trees(classes: Classes, nodes: EmptyNodes, placement: int) -> tuple[np.recarray, np.ndarray]:
    """A tree per class and type that may run it; a second one beside it where the room itself is asked for."""
    rows, at = [], 0
    for kind, gang in enumerate(classes.table.gang):
        for type_, count in enumerate(nodes.per_type):
            width = 1 << max(0, int(count - 1).bit_length())
            two = gang or placement == CONSOLIDATE
            rows.append((at, at + 2 * width if two else -1, width, -1, 0))
            at += 2 * width * (2 if two else 1) * int(classes.may[kind, type_])
    return np.array(rows, TREE).view(np.recarray), np.empty(at, np.int64)


def _queues(work: Work, kinds: int, width: int) -> tuple[np.recarray, int]:
    """Empty queues of ready tasks, and the length of all stretches. A queue has a stretch for all tasks of its
    class."""
    most = np.repeat(np.bincount(work.rows.kind, minlength=kinds), width)
    return records(QUEUE, len(most), at=np.cumsum(most) - most, most=most), int(most.sum())
