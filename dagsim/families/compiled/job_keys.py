"""Orders over whole jobs. Among the ready tasks that fit, the first one is chosen by the key of its
job, and then by the longest path from the task to the end of the job.

The compiled counterpart of ``policies.job_orders.JobOrdered`` and ``JobQueue``. The key of a job is
recomputed whenever one of its runs has ended. Keys never grow. If the key of a job changes, its
tasks can therefore only move up in their heaps, which record the position of each task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dagsim.families.compiled.jit import by_pointer, inner, int64, outer
from dagsim.families.compiled.list_scheduling import upward_rank
from dagsim.families.compiled.memory import State, Work, one_record, record_type, records
from dagsim.families.compiled.node_trees import choose, fits
from dagsim.families.compiled.rules import DECIDE, MOVE, move_on, start, steps
from dagsim.systems.cluster.policies.formulas import instance_work
from dagsim.systems.cluster.policies.job_orders import PathLeft, WorkLeft, total_work

WORK_LEFT, PATH_LEFT, TOTAL_WORK = range(3)
JOB_KEYS: Mapping[Any, int] = {WorkLeft: WORK_LEFT, PathLeft: PATH_LEFT, total_work: TOTAL_WORK}
"""The compiled keys of jobs (``_job_key``), by the functions in ``policies.job_orders`` that they
copy."""

_instance_work = inner(instance_work)

JOB_RULE = record_type(i8="key")
"""``key`` is one of JOB_KEYS."""
PAIR = record_type(f8="key second", i8="task")


@by_pointer
class JobOrder(NamedTuple):
    """The state of an order over whole jobs, in addition to the engine's state."""

    rule: Any  # JOB_RULE
    best_s: np.ndarray  # (n,) float64
    rank_s: np.ndarray  # (n,) float64
    instances: np.ndarray  # (n,) int64
    job_key: np.ndarray  # (J,) float64: key of each job, NaN until it is computed
    ready: np.recarray  # (n,) PAIR: heaps of ready tasks, with one range of rows per demand class, as in State.queues
    place: np.ndarray  # (n,) int64: position of each task in its heap; -1 if it is in none


def new_job_order(work: Work, key: int) -> JobOrder:
    """Build the initial ``JobOrder``."""
    best_s = work.best_s
    return JobOrder(
        rule=one_record(JOB_RULE, key=key),
        best_s=best_s,
        rank_s=upward_rank(work, best_s),
        instances=work.rows.instances.astype(np.int64),
        job_key=np.full(len(work.jobs.arrival_s), np.nan),
        ready=records(PAIR, len(best_s)),
        place=np.full(len(best_s), -1, np.int64),
    )


@outer
def advance_jobs(s: State, log: np.recarray, o: JobOrder) -> bool:
    """Simulate until no event is left (return False), or until the log or the state needs more
    space (return True).
    """
    left = steps(s, log)
    while left > 0:
        if s.clock.phase == DECIDE:
            if not _decide(s, log, o):
                s.clock.phase = MOVE
        elif not move_on(s, log):
            return False
        left = left - 1 if left > 1 else steps(s, log)
    return True


@inner
def _decide(s: State, log: np.recarray, o: JobOrder) -> bool:
    """Start one task. Return False if none can start."""
    _rank_again(s, o)
    _take_in(s, o)
    task = _first(s, o)
    if task < 0:
        return False
    type_, node = choose(s, task, -1)
    start(s, log, task, type_, node)
    return True


@inner
def _rank_again(s: State, o: JobOrder) -> None:
    """Recompute the keys of jobs whose runs have ended, and move their tasks up."""
    for index in range(s.count.ended):
        job = int64(s.tasks[s.runs[s.ended[index]].task].job)
        if not s.jobs[job].left:
            continue
        key = _job_key(s, o, job)
        if key == o.job_key[job]:
            continue
        o.job_key[job] = key
        for task in range(s.jobs[job].first, s.jobs[job + 1].first):
            if o.place[task] >= 0:
                _rise(s, o, task, o.place[task], key)
    s.count.ended = 0
    s.count.starts = 0


@inner
def _take_in(s: State, o: JobOrder) -> None:
    """Put tasks that have become ready into the heaps."""
    for index in range(s.count.fresh):
        task = s.fresh[index]
        job, queue = int64(s.tasks[task].job), int64(s.tasks[task].kind)
        if np.isnan(o.job_key[job]):
            o.job_key[job] = _job_key(s, o, job)
        _rise(s, o, task, s.queues[queue].held, o.job_key[job])
        s.queues[queue].held += 1
    s.count.fresh = 0
    s.count.early = 0


@inner
def _job_key(s: State, o: JobOrder, job: int) -> float:
    """Return the remaining work of a job."""
    total, longest = 0.0, 0.0
    for task in range(s.jobs[job].first, s.jobs[job + 1].first):
        unfinished = int64(s.todo[task].unfinished)
        if unfinished:
            longest = max(longest, o.rank_s[task])
        count = unfinished if o.rule.key == WORK_LEFT else o.instances[task]
        # Add in the same order as ordered_sum, so that the results are identical.
        total += _instance_work(o.best_s[task], count, s.classes[s.tasks[task].kind].gpus)
    return longest if o.rule.key == PATH_LEFT else total


@inner
def _first(s: State, o: JobOrder) -> int:
    """Return the first task that fits, or -1 if no task fits."""
    best = int64(-1)
    for queue in range(len(s.queues)):
        task = _head(s, o, queue)
        if task < 0 or (best >= 0 and not _before(s, o, task, best)):
            continue
        if fits(s, queue):
            best = task
    return best


@inner
def _before(s: State, o: JobOrder, one: int, other: int) -> bool:
    """Return True if one task comes before another."""
    one_key, other_key = o.job_key[s.tasks[one].job], o.job_key[s.tasks[other].job]
    if one_key != other_key:
        return one_key < other_key
    if o.rank_s[one] != o.rank_s[other]:
        return o.rank_s[one] > o.rank_s[other]
    return one < other


@inner
def _head(s: State, o: JobOrder, queue: int) -> int:
    """Return the first task in a queue, or -1 if the queue is empty. Along the way, drop tasks that
    have no waiting instances."""
    at = s.queues[queue].at
    while s.queues[queue].held:
        task = o.ready[at].task
        if s.todo[task].waiting:
            return task
        o.place[task] = -1
        s.queues[queue].held -= 1
        last = s.queues[queue].held
        if last:
            _sink(o, at, last, o.ready[at + last].key, o.ready[at + last].second, o.ready[at + last].task)
    return int64(-1)


@inner
def _rise(s: State, o: JobOrder, task: int, place: int, key: float) -> None:
    """Move a task up its heap to the position that its key requires, starting from a free position
    or from its current one."""
    at = s.queues[s.tasks[task].kind].at
    second = -o.rank_s[task]
    while place:
        above = (place - 1) >> 1
        if _in_order(o, at + above, key, second, task):
            break
        _move(o, at, above, place)
        place = above
    _put(o, at, place, key, second, task)


@inner
def _sink(o: JobOrder, at: int, held: int, key: float, second: float, task: int) -> None:
    """Move a task down from the top of a heap, which then has ``held`` entries."""
    place, below = 0, 1
    while below < held:
        if below + 1 < held:
            twin = at + below + 1
            if not _in_order(o, at + below, o.ready[twin].key, o.ready[twin].second, o.ready[twin].task):
                below += 1
        if not _in_order(o, at + below, key, second, task):
            break
        _move(o, at, below, place)
        place, below = below, 2 * below + 1
    _put(o, at, place, key, second, task)


@inner
def _in_order(o: JobOrder, place: int, key: float, second: float, task: int) -> bool:
    """Return True if the task at a position comes before the given task."""
    if o.ready[place].key != key:
        return o.ready[place].key < key
    if o.ready[place].second != second:
        return o.ready[place].second < second
    return o.ready[place].task < task


@inner
def _move(o: JobOrder, at: int, source: int, place: int) -> None:
    _put(o, at, place, o.ready[at + source].key, o.ready[at + source].second, o.ready[at + source].task)


@inner
def _put(o: JobOrder, at: int, place: int, key: float, second: float, task: int) -> None:
    o.ready[at + place].key = key
    o.ready[at + place].second = second
    o.ready[at + place].task = task
    o.place[task] = place
