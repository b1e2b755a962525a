"""Least attained service, in rounds: the service that jobs have received, the queue of jobs, and
the simulation loop.

The compiled counterpart of ``policies.rounds.Rounds`` with the ranks of ``las`` and ``2d-las``, of
``Service`` and of ``JobQueue``. In a round, a ready task that does not fit replaces the runs with
the lowest ranks, if each of them ranks after the task. Between rounds, tasks that fit are started
in the same order, and nothing is preempted.

Service is added up in the same order as in ``Service``: ended runs by number, then current runs in
the order in which they were first seen. The key of a job is computed when one of its tasks becomes
ready, when one of its runs has ended, and when a round begins. The key is dropped when no task of
the job is left in the queue.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dagsim.families.compiled.jit import by_pointer, inner, int64, outer
from dagsim.families.compiled.list_scheduling import entry_of, task_of_entry
from dagsim.families.compiled.memory import State, one_record, record_type
from dagsim.families.compiled.node_trees import choose, fits
from dagsim.families.compiled.rules import (
    DECIDE,
    ENDLESS,
    MOVE,
    SETTLE,
    move_on,
    origin_of,
    pop,
    push,
    slot_of,
    start,
    steps,
)
from dagsim.families.compiled.srtf import (
    RoomSearch,
    consider,
    drop_stopped,
    enough_pieces,
    new_room,
    next_doomed,
    preempt,
    seek_room,
)
from dagsim.systems.cluster.policies.formulas import CLOSE, EARLY, served_after
from dagsim.systems.cluster.waits.stalled import JUDGED_EVERY, MOST_WAKES

_served_after = inner(served_after)

QUEUE_COUNT = record_type(i8="ready")
"""Number of tasks and pieces with waiting instances."""


@by_pointer
class LasQueues(NamedTuple):
    """The tasks of each job in the queue. The heaps are in ``State``."""

    count: Any  # QUEUE_COUNT
    known: np.ndarray  # (J,) bool: True once the job's key has been computed
    key: np.ndarray  # (J,) float64
    first: np.ndarray  # (J,) int64: first task in the job's queue; -1 if the queue is empty
    next_task: np.ndarray  # (n + pieces,) int64: next task in the same job's queue
    previous_task: np.ndarray  # (n + pieces,) int64: previous task in the same job's queue
    inside: np.ndarray  # (n + pieces,) bool


def new_queue(s: State) -> LasQueues:
    """Return empty queues."""
    jobs, tasks = len(s.jobs) - 1, len(s.fresh)
    return LasQueues(
        count=one_record(QUEUE_COUNT),
        known=np.zeros(jobs, np.bool_),
        key=np.zeros(jobs),
        first=np.full(jobs, -1, np.int64),
        next_task=np.empty(tasks, np.int64),
        previous_task=np.empty(tasks, np.int64),
        inside=np.zeros(tasks, np.bool_),
    )


@inner
def enough_queue(s: State, q: LasQueues) -> bool:
    """Return True if the heaps have space for three times the waiting tasks."""
    most = 3 * (q.count.ready + s.count.fresh)
    for queue in range(len(s.queues)):  # noqa: SIM110 (a generator cannot be compiled)
        if s.queues[queue].held + most > s.queues[queue].most:
            return False
    return True


@inner
def take_in_jobs(s: State, v: LasService, q: LasQueues) -> None:
    """Put tasks that have become ready into the queues of their jobs."""
    for index in range(s.count.fresh):
        task = s.fresh[index]
        job = int64(s.tasks[task].job)
        refresh(s, v, q, job)
        if not q.known[job]:
            q.known[job] = True
            q.key[job] = served(s, v, job)
        if not q.inside[task]:
            q.inside[task] = True
            q.next_task[task] = q.first[job]
            q.previous_task[task] = -1
            if q.first[job] >= 0:
                q.previous_task[q.first[job]] = task
            q.first[job] = task
        q.count.ready += 1
        _enter(s, task, q.key[job])
        # The task is the rest of a preempted task. Its job has received service since the key was
        # computed.
        if task >= len(s.fresh) - len(s.origin):
            refresh(s, v, q, job)
    s.count.fresh = 0
    s.count.early = 0


@inner
def refresh(s: State, v: LasService, q: LasQueues, job: int) -> None:
    """Recompute the key of a job if the job has a key and a waiting task."""
    if not q.known[job]:
        return
    waits = False
    task = q.first[job]
    while task >= 0 and not waits:
        waits = s.todo[task].waiting > 0
        task = q.next_task[task]
    if not waits:
        return
    key = served(s, v, job)
    if key == q.key[job]:
        return
    q.key[job] = key
    task = q.first[job]
    while task >= 0:
        if s.todo[task].waiting:
            _enter(s, task, key)
        task = q.next_task[task]


@inner
def drop_stale(s: State, q: LasQueues, queue: int) -> None:
    """Drop entries at the top of a heap whose tasks are no longer waiting or whose keys have
    changed."""
    at = s.queues[queue].at
    while s.queues[queue].held:
        task = task_of_entry(s, s.ready[at].what)
        job = s.tasks[task].job
        if s.todo[task].waiting and q.known[job] and q.key[job] == s.ready[at].key:
            return
        pop(s.ready, at, s.queues[queue].held)
        s.queues[queue].held -= 1
        if not s.todo[task].waiting and q.inside[task]:
            _forget(q, task, job)


@inner
def _enter(s: State, task: int, key: float) -> None:
    kind = int64(s.tasks[task].kind)
    push(s.ready, s.queues[kind].at, s.queues[kind].held, key, entry_of(s, task))
    s.queues[kind].held += 1


@inner
def _forget(q: LasQueues, task: int, job: int) -> None:
    """Remove a task from the queue. If it was the last task of the job, drop the job's key."""
    q.inside[task] = False
    if q.previous_task[task] < 0:
        q.first[job] = q.next_task[task]
    else:
        q.next_task[q.previous_task[task]] = q.next_task[task]
    if q.next_task[task] >= 0:
        q.previous_task[q.next_task[task]] = q.previous_task[task]
    if q.first[job] < 0:
        q.known[job] = False


COUNTED = record_type(f8="until_s", i8="by_gpus")
"""Service is counted up to ``until_s``, in GPU-seconds if ``by_gpus``, else in seconds."""


@by_pointer
class LasService(NamedTuple):
    """The service of each job. The current runs of a job form a linked list, with -1 at both
    ends."""

    counted: Any  # COUNTED
    ended_s: np.ndarray  # (J,) float64: service received in completed runs
    first: np.ndarray  # (J,) int64: slot of the first run in the job's list of runs
    last: np.ndarray  # (J,) int64
    next_run: np.ndarray  # (runs,) int64
    previous_run: np.ndarray  # (runs,) int64


def new_service(s: State, by_gpus: bool) -> LasService:
    """Build the initial state, in which no job has received any service."""
    jobs, runs = len(s.jobs) - 1, len(s.runs)
    return LasService(
        counted=one_record(COUNTED, until_s=s.clock.begins_s, by_gpus=by_gpus),
        ended_s=np.zeros(jobs),
        first=np.full(jobs, -1, np.int64),
        last=np.full(jobs, -1, np.int64),
        next_run=np.empty(runs, np.int64),
        previous_run=np.empty(runs, np.int64),
    )


@inner
def served(s: State, v: LasService, job: int) -> float:
    """Return how much service a job has received so far."""
    total = v.ended_s[job]
    run = v.first[job]
    while run >= 0:
        total = _served_after(total, _weight(s, v, run), s.runs[run].start_s, v.counted.until_s)
        run = v.next_run[run]
    return total


@inner
def see_starts(s: State, v: LasService) -> None:
    """Append the runs that have started to the lists of their jobs."""
    for index in range(s.count.starts):
        run = slot_of(s.starts[index])
        job = s.tasks[s.runs[run].task].job
        v.next_run[run] = -1
        v.previous_run[run] = v.last[job]
        if v.last[job] < 0:
            v.first[job] = run
        else:
            v.next_run[v.last[job]] = run
        v.last[job] = run
    s.count.starts = 0


@inner
def end_service(s: State, v: LasService, run: int) -> None:
    """Add the service of an ended run to the job's total."""
    job = s.tasks[s.runs[run].task].job
    if v.counted.by_gpus:
        v.ended_s[job] = _served_after(v.ended_s[job], _weight(s, v, run), s.runs[run].start_s, v.counted.until_s)
    else:
        v.ended_s[job] = v.ended_s[job] + v.counted.until_s - s.runs[run].start_s
    if v.previous_run[run] < 0:
        v.first[job] = v.next_run[run]
    else:
        v.next_run[v.previous_run[run]] = v.next_run[run]
    if v.next_run[run] < 0:
        v.last[job] = v.previous_run[run]
    else:
        v.previous_run[v.next_run[run]] = v.previous_run[run]


@inner
def _weight(s: State, v: LasService, run: int) -> float:
    """Return how much service a run adds per second."""
    return s.classes[s.tasks[s.runs[run].task].kind].gpus * s.runs[run].count if v.counted.by_gpus else 1.0


ROUND = record_type(
    f8="quantum_s wake_s check since_s next_s", i8="next number competing task answered ranked keeps skips woken"
)
"""State of the rounds.

- ``quantum_s``: the length of a round. ``wake_s``: when to decide again although nothing happens.
- ``next``: the next round, counted from time 0. ``number``: the number of rounds so far. ``check``:
  the next round in which something may happen by itself (inf: none); ``skips``: set if rounds before
  it are skipped.
- ``competing``: set during a round. ``task``: the task for which room is made, or -1. ``answered``:
  set once anything was done. ``ranked``: the number of runs at the start of the round.
- ``keeps``: set if a preempted run keeps the work it has done.
- ``woken``: rounds since ``since_s`` in which neither an end nor an arrival happened; the next can
  happen at ``next_s`` (``stalled.Wakes``).
"""


@by_pointer
class Las(NamedTuple):
    """The state of ``las`` and ``2d-las``, in addition to the engine's state."""

    r: RoomSearch
    v: LasService
    q: LasQueues
    round: Any  # ROUND
    stuck: np.ndarray  # (K,) int64: the last round in which a task of this class did not fit
    ranked: np.ndarray  # (runs,) int64: slots of runs, lowest rank first.
    # (runs,) int64: number of the run in each slot. It shows whether the slot has been reused by
    # another run.
    number: np.ndarray
    # (runs,) float64: service that the job in each slot had received at the beginning of the round
    standing: np.ndarray
    rate: np.ndarray  # (J,) float64: service that each running job receives per second
    looked_at: np.ndarray  # (J,) int64: the round in which the job was last examined


def new_las(s: State, by_gpus: bool, quantum_s: float, keeps: bool) -> Las:
    """Build the initial ``Las``."""
    runs = len(s.runs)
    return Las(
        r=new_room(s),
        v=new_service(s, by_gpus),
        q=new_queue(s),
        round=one_record(ROUND, quantum_s=quantum_s, wake_s=np.inf, task=-1, keeps=keeps),
        stuck=np.zeros(len(s.classes), np.int64),
        ranked=np.empty(runs, np.int64),
        number=np.empty(runs, np.int64),
        standing=np.empty(runs),
        rate=np.zeros(len(s.jobs) - 1),
        looked_at=np.zeros(len(s.jobs) - 1, np.int64),
    )


@outer
def advance_las(s: State, log: np.recarray, p: Las) -> bool:
    """Simulate until no event is left (return False), or until the log or the state needs more
    space (return True).
    """
    while steps(s, log) and enough_pieces(s) and enough_queue(s, p.q):
        if s.clock.phase == DECIDE:
            if not _decide(s, log, p):
                s.clock.phase = MOVE
        else:
            drop_stopped(s)
            if s.clock.phase == MOVE and _wakes_first(s, p):
                s.clock.now_s = p.round.wake_s
                s.clock.phase = SETTLE
                if _wakes_too_often(s, p):
                    s.clock.phase = ENDLESS
                    return False
            else:
                if s.clock.phase == MOVE:
                    p.round.woken = 0
                if not move_on(s, log):
                    return False
    return True


@inner
def _wakes_first(s: State, p: Las) -> bool:
    """Return True if the beginning of a round is the next event, before any end or arrival."""
    coming = s.count.jobs < len(s.jobs) - 1
    if s.count.ends and s.ends[0].key <= p.round.wake_s:
        return False
    if coming and s.jobs[s.count.jobs].arrival_s <= p.round.wake_s:
        return False
    return p.round.wake_s < np.inf and (s.count.ends > 0 or coming or p.q.count.ready > 0)


@inner
def _wakes_too_often(s: State, p: Las) -> bool:
    """Count a round. Return True if too many rounds would follow before anything else happens."""
    now = s.clock.now_s
    if not p.round.woken:
        p.round.since_s = now
    p.round.woken += 1
    if p.round.woken % JUDGED_EVERY or now <= p.round.since_s:
        return False
    next_s = s.ends[0].key if s.count.ends else np.inf
    if s.count.jobs < len(s.jobs) - 1:
        next_s = min(next_s, s.jobs[s.count.jobs].arrival_s)
    for queue in range(len(s.queues)):
        for place in range(s.queues[queue].at, s.queues[queue].at + s.queues[queue].held):
            task = task_of_entry(s, s.ready[place].what)
            if s.todo[task].waiting:
                for type_ in range(len(s.types)):
                    next_s = min(next_s, now + s.truth[task, type_])
    p.round.next_s = next_s
    return next_s < np.inf and p.round.woken + (next_s - now) * p.round.woken / (now - p.round.since_s) > MOST_WAKES


@inner
def _decide(s: State, log: np.recarray, p: Las) -> bool:
    """Take one step. Return False if nothing more can be done now."""
    see_starts(s, p.v)
    take_in_jobs(s, p.v, p.q)
    if p.round.competing:
        if _compete(s, log, p):
            return True
        p.round.competing = 0
        p.round.check = p.round.next
        if not p.round.answered:
            _skip(s, p)
        _wait(p)
        return p.round.answered != 0
    if p.round.wake_s <= s.clock.now_s:
        p.round.wake_s = np.inf
    begins = _round_begins(s, p)
    if p.round.skips and not begins:
        _rank_at(s, p, (p.round.next - 1) * p.round.quantum_s)
    p.round.skips = 0
    p.round.check = p.round.next
    _look(s, p)
    if not p.q.count.ready:
        return False
    if begins:
        _begin_round(s, p)
        return True
    task = _first(s, p, True)
    if task >= 0:
        _start(s, log, p, task)
    _wait(p)
    return task >= 0


@inner
def _wait(p: Las) -> None:
    """Request another decision at the beginning of the next round that has to be checked, unless no
    task waits."""
    if p.q.count.ready:
        p.round.wake_s = min(p.round.wake_s, p.round.check * p.round.quantum_s)


@inner
def _rank_at(s: State, p: Las, latest_s: float) -> None:
    """Recompute the keys of the running jobs as of ``latest_s``, the beginning of the latest round,
    which may have been skipped."""
    if latest_s > p.v.counted.until_s:
        p.v.counted.until_s = latest_s
        for run in range(s.count.runs_top):
            if s.runs[run].number >= 0:
                refresh(s, p.v, p.q, int64(s.tasks[s.runs[run].task].job))


@inner
def _skip(s: State, p: Las) -> None:
    """Skip the next rounds as long as no task could displace a run in them that it cannot displace
    now, and as long as nothing else happens (``Rounds._next_round``).
    """
    p.round.skips = 1
    left_s = np.inf
    for queue in range(len(s.queues)):
        drop_stale(s, p.q, queue)
        if s.queues[queue].held:
            left_s = min(left_s, _queue_waits_s(s, p, queue))
    early = np.ceil((s.clock.now_s + left_s) * (1 - EARLY) / p.round.quantum_s)
    p.round.check = max(np.float64(p.round.next), early)


@inner
def _queue_waits_s(s: State, p: Las, queue: int) -> float:
    """Return a lower bound on how many seconds pass until a task in a queue can displace more runs.
    The job of the first task may also have running tasks. Its key may then rise above the key of
    another job, which may displace these runs."""
    at = s.queues[queue].at
    left_s = _overtakes_s(s, p, task_of_entry(s, s.ready[at].what))
    if p.v.first[s.tasks[task_of_entry(s, s.ready[at].what)].job] < 0:
        return left_s
    first, first_key, first_entry = int64(-1), 0.0, int64(0)
    for place in range(at + 1, at + s.queues[queue].held):
        key, entry = s.ready[place].key, s.ready[place].what
        task = task_of_entry(s, entry)
        job = s.tasks[task].job
        if not s.todo[task].waiting or not p.q.known[job] or p.q.key[job] != key:
            continue
        if p.v.first[job] < 0:
            if first < 0 or key < first_key or (key == first_key and entry < first_entry):
                first, first_key, first_entry = task, key, entry
        elif p.looked_at[job] != p.round.number:
            p.looked_at[job] = p.round.number
            left_s = min(left_s, _overtakes_s(s, p, task))
    return left_s if first < 0 else min(left_s, _overtakes_s(s, p, first))


@inner
def _overtakes_s(s: State, p: Las, task: int) -> float:
    """Return a lower bound on how many seconds pass until a task can displace a run of another job
    that it cannot displace now, because the service of that job grows.
    """
    job, origin = int64(s.tasks[task].job), origin_of(s, task)
    key = p.q.key[job]
    rises = p.rate[job] if p.v.first[job] >= 0 else 0.0
    least_s = np.inf
    for place in range(p.round.ranked):
        run = p.ranked[place]
        other, had = int64(s.tasks[s.runs[run].task].job), p.standing[run]
        if other == job or had > key or (had == key and origin_of(s, s.runs[run].task) > origin):
            continue
        if rises > 0.0 and _alike(s, p, job, other):
            continue
        closing = p.rate[other] - rises
        left_s = (key - had) / closing if closing > 0.0 else np.inf
        if rises > 0.0:
            left_s = min(left_s, key / rises) if key - had > CLOSE * key else 0.0
        least_s = min(least_s, left_s)
    return least_s


@inner
def _alike(s: State, p: Las, one: int, other: int) -> bool:
    """Return True if two jobs with one run each always have the same service, down to the last
    bit."""
    if p.v.first[one] != p.v.last[one] or p.v.first[other] != p.v.last[other]:
        return False
    same = p.v.ended_s[one] == p.v.ended_s[other] and p.rate[one] == p.rate[other]
    return same and s.runs[p.v.first[one]].start_s == s.runs[p.v.first[other]].start_s


@inner
def _look(s: State, p: Las) -> None:
    """Update the service, and the keys of jobs with ended runs."""
    p.v.counted.until_s = s.clock.now_s
    for index in range(s.count.ended):
        end_service(s, p.v, s.ended[index])
    for index in range(s.count.ended):
        job = int64(s.tasks[s.runs[s.ended[index]].task].job)
        if s.jobs[job].left:
            refresh(s, p.v, p.q, job)
    s.count.ended = 0


@inner
def _round_begins(s: State, p: Las) -> bool:
    """Count the rounds so far. Return True if a round begins now."""
    now, quantum = s.clock.now_s, p.round.quantum_s
    quotient = (now - now % quantum) / quantum  # computed like Python's //, so that both engines count the same rounds
    whole = np.floor(quotient)
    if quotient - whole > 0.5:
        whole += 1.0
    p.round.next = max(p.round.next, int64(whole))
    while p.round.next * quantum < now:
        p.round.next += 1
    if p.round.next * quantum != now:
        return False
    p.round.next += 1
    return True


@inner
def _begin_round(s: State, p: Las) -> None:
    """Recompute all keys, and rank the runs, lowest rank first."""
    p.round.competing = 1
    p.round.answered = 0
    p.round.task = -1
    p.round.number += 1
    count = 0
    for run in range(s.count.runs_top):
        if s.runs[run].number >= 0:
            p.rate[s.tasks[s.runs[run].task].job] = 0.0
    for run in range(s.count.runs_top):
        if s.runs[run].number >= 0:
            job = int64(s.tasks[s.runs[run].task].job)
            p.rate[job] += _weight(s, p.v, run)
            refresh(s, p.v, p.q, job)
            p.standing[run] = served(s, p.v, job)
            p.ranked[count] = run
            count += 1
    p.round.ranked = count
    for place in range(count // 2 - 1, -1, -1):
        _sink(s, p, place, count)
    for last in range(count - 1, 0, -1):
        p.ranked[0], p.ranked[last] = p.ranked[last], p.ranked[0]
        _sink(s, p, 0, last)
    for place in range(count):
        p.number[place] = s.runs[p.ranked[place]].number


@inner
def _compete(s: State, log: np.recarray, p: Las) -> bool:
    """Stop the next of the runs that were chosen to be stopped. If there is none, start the task
    for which runs were stopped, or choose the runs to stop for the next task. Return False after
    all tasks have had their turn."""
    if p.r.count.doomed:
        run = next_doomed(p.r)
        end_service(s, p.v, run)
        preempt(s, log, run, p.round.keeps, 0.0)
        s.count.ended = 0
        p.round.answered = 1
        return True
    task = p.round.task
    if task < 0:
        task = _first(s, p, False)
        if task < 0:
            return False
        if not fits(s, int64(s.tasks[task].kind)):
            _make_room(s, p, task)
            p.round.task = task
            return True
    p.round.task = -1
    if fits(s, int64(s.tasks[task].kind)):
        _start(s, log, p, task)
        p.round.answered = 1
    else:
        p.stuck[s.tasks[task].kind] = p.round.number
    return True


@inner
def _start(s: State, log: np.recarray, p: Las, task: int) -> None:
    type_, node = choose(s, task, -1)
    start(s, log, task, type_, node)
    see_starts(s, p.v)
    if not s.todo[task].waiting:
        p.q.count.ready -= 1


@inner
def _make_room(s: State, p: Las, task: int) -> None:
    """Choose the runs that must stop so that a task fits. Only runs of other jobs that rank after
    the task may be stopped. If stopping all of them is not enough, none is chosen."""
    seek_room(p.r)
    job = s.tasks[task].job
    task_had, origin = served(s, p.v, job), origin_of(s, task)
    for place in range(p.round.ranked):
        run = p.ranked[place]
        run_had = p.standing[run]
        if s.runs[run].number != p.number[place]:
            continue
        if run_had < task_had or (run_had == task_had and origin_of(s, s.runs[run].task) <= origin):
            break
        if s.tasks[s.runs[run].task].job != job and consider(s, p.r, task, run):
            break


@inner
def _first(s: State, p: Las, that_fits: bool) -> int:
    """Return the first task that fits, or -1 if no task fits. Within a round, skip demand classes
    that no longer fit.
    """
    best, best_key, best_entry = int64(-1), 0.0, int64(0)
    for queue in range(len(s.queues)):
        drop_stale(s, p.q, queue)
        if not s.queues[queue].held or (not that_fits and p.stuck[queue] == p.round.number):
            continue
        at = s.queues[queue].at
        key, entry = s.ready[at].key, s.ready[at].what
        if best >= 0 and (key > best_key or (key == best_key and entry > best_entry)):
            continue
        if not that_fits or fits(s, queue):
            best, best_key, best_entry = task_of_entry(s, entry), key, entry
    return best


@inner
def _sink(s: State, p: Las, place: int, held: int) -> None:
    """Move a run down in a heap whose top is the run with the best rank."""
    run = p.ranked[place]
    below = 2 * place + 1
    while below < held:
        if below + 1 < held and _ranks_first(s, p, p.ranked[below + 1], p.ranked[below]):
            below += 1
        if not _ranks_first(s, p, p.ranked[below], run):
            break
        p.ranked[place] = p.ranked[below]
        place, below = below, 2 * below + 1
    p.ranked[place] = run


@inner
def _ranks_first(s: State, p: Las, one: int, other: int) -> bool:
    """Return True if one run ranks before another."""
    if p.standing[one] != p.standing[other]:
        return p.standing[one] < p.standing[other]
    one_origin, other_origin = origin_of(s, s.runs[one].task), origin_of(s, s.runs[other].task)
    return one_origin < other_origin if one_origin != other_origin else s.runs[one].number < s.runs[other].number
