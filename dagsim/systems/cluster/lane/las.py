"""LAS in rounds, compiled: attained service, the queue, and the loop."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dagsim.systems.cluster.lane.heap import pop, push
from dagsim.systems.cluster.lane.jit import by_pointer, inner, int64, outer
from dagsim.systems.cluster.lane.kernel import DECIDE, MOVE, SETTLE, move_on, origin_of, start, steps
from dagsim.systems.cluster.lane.placement import choose, fits_on
from dagsim.systems.cluster.lane.srtf import (
    DOOMED,
    RoomSearch,
    consider,
    drop_stopped,
    enough_pieces,
    grown_room,
    new_room,
    preempt,
    seek_room,
)
from dagsim.systems.cluster.lane.state import ENDED, ENDS, FRESH, JOBS, PHASE, RUNS_TOP, SLOTS, STARTS, State

__all__ = [
    "Las",
    "LasQueues",
    "LasService",
    "advance_las",
    "drop_stale",
    "end_service",
    "enough_queue",
    "grown_las",
    "grown_queue",
    "grown_service",
    "new_las",
    "new_queue",
    "new_service",
    "refresh",
    "see_starts",
    "served",
    "take_in_jobs",
    "task_at",
]


_PIECE = 32
"""Bits of an entry for the number of the piece, 0 for the task itself."""


@by_pointer
class LasQueues(NamedTuple):
    """Queues of jobs and their tasks; the heaps are those of the state."""

    ready: np.ndarray  # (1,) int64: tasks and pieces of which something waits
    known: np.ndarray  # (J,) bool: the job has a key
    key: np.ndarray  # (J,) float64
    first: np.ndarray  # (J,) int64: the first of the job's tasks in the queue, -1: none
    behind: np.ndarray  # (n + pieces,) int64: the next one
    before: np.ndarray  # (n + pieces,) int64
    inside: np.ndarray  # (n + pieces,) bool


def new_queue(s: State) -> LasQueues:
    """Nothing waits."""
    jobs, tasks = len(s.jobs) - 1, len(s.fresh)
    return LasQueues(
        ready=np.zeros(1, np.int64),
        known=np.zeros(jobs, np.bool_),
        key=np.zeros(jobs),
        first=np.full(jobs, -1, np.int64),
        behind=np.empty(tasks, np.int64),
        before=np.empty(tasks, np.int64),
        inside=np.zeros(tasks, np.bool_),
    )


def grown_queue(s: State, q: LasQueues) -> LasQueues:
    """The same with space for the pieces of a state that has grown."""
    tasks = len(s.fresh)
    behind, before = (np.resize(each, tasks) for each in (q.behind, q.before))
    inside = np.zeros(tasks, np.bool_)
    inside[: len(q.inside)] = q.inside
    return q._replace(behind=behind, before=before, inside=inside)


@inner
def enough_queue(s: State, q: LasQueues) -> bool:
    """True if the heaps have space for everything that waits, three times over."""
    most = 3 * (q.ready[0] + s.n[FRESH])
    for queue in range(len(s.queues)):  # noqa: SIM110 (a generator cannot be compiled)
        if s.queues[queue].held + most > s.queues[queue].most:
            return False
    return True


@inner
def take_in_jobs(s: State, v: LasService, q: LasQueues) -> None:
    """Take in what has become ready."""
    for each in range(s.n[FRESH]):
        task = s.fresh[each]
        job = int64(s.tasks[task].job)
        refresh(s, v, q, job)
        if not q.known[job]:
            q.known[job] = True
            q.key[job] = served(s, v, job)
        if not q.inside[task]:
            q.inside[task] = True
            q.behind[task] = q.first[job]
            q.before[task] = -1
            if q.first[job] >= 0:
                q.before[q.first[job]] = task
            q.first[job] = task
        q.ready[0] += 1
        _enter(s, task, q.key[job])
        if task >= len(s.fresh) - len(s.origin):  # a piece: its job has had more since its key was computed
            refresh(s, v, q, job)
    s.n[FRESH] = 0


@inner
def refresh(s: State, v: LasService, q: LasQueues, job: int) -> None:
    """Compute the key of a job again, if it has one and something waits."""
    if not q.known[job]:
        return
    waits = False
    task = q.first[job]
    while task >= 0 and not waits:
        waits = s.todo[task].waiting > 0
        task = q.behind[task]
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
        task = q.behind[task]


@inner
def drop_stale(s: State, q: LasQueues, queue: int) -> None:
    """Drop from the top of a heap what waits no more or has another key."""
    at = s.queues[queue].at
    while s.queues[queue].held:
        task = task_at(s, at)
        job = s.tasks[task].job
        if s.todo[task].waiting and q.known[job] and q.key[job] == s.ready[at].key:
            return
        pop(s.ready, at, s.queues[queue].held)
        s.queues[queue].held -= 1
        if not s.todo[task].waiting and q.inside[task]:
            _forget(q, task, job)


@inner
def task_at(s: State, place: int) -> int:
    """Find the task or piece of an entry."""
    entry = s.ready[place].what
    piece = entry & ((1 << _PIECE) - 1)
    return len(s.fresh) - len(s.origin) + piece - 1 if piece else entry >> _PIECE


@inner
def _enter(s: State, task: int, key: float) -> None:
    kind = int64(s.tasks[task].kind)
    tasks = len(s.fresh) - len(s.origin)
    entry = origin_of(s, task) << _PIECE | max(task - tasks + 1, 0)
    push(s.ready, s.queues[kind].at, s.queues[kind].held, key, entry)
    s.queues[kind].held += 1


@inner
def _forget(q: LasQueues, task: int, job: int) -> None:
    """Take a task out, and forget its job's key with the last one."""
    q.inside[task] = False
    if q.before[task] < 0:
        q.first[job] = q.behind[task]
    else:
        q.behind[q.before[task]] = q.behind[task]
    if q.behind[task] >= 0:
        q.before[q.behind[task]] = q.before[task]
    if q.first[job] < 0:
        q.known[job] = False


@by_pointer
class LasService(NamedTuple):
    """Running runs in a list per job, -1 at its ends."""

    now: np.ndarray  # (1,) float64: the time until which service counts
    by_gpus: np.ndarray  # (1,) bool: GPU-seconds count
    ended: np.ndarray  # (J,) float64: what ended runs have had
    first: np.ndarray  # (J,) int64: slots of runs
    last: np.ndarray  # (J,) int64
    behind: np.ndarray  # (runs,) int64
    before: np.ndarray  # (runs,) int64


def new_service(s: State, by_gpus: bool) -> LasService:
    """Nobody has had anything."""
    jobs, runs = len(s.jobs) - 1, len(s.runs)
    return LasService(
        now=np.zeros(1),
        by_gpus=np.array([by_gpus]),
        ended=np.zeros(jobs),
        first=np.full(jobs, -1, np.int64),
        last=np.full(jobs, -1, np.int64),
        behind=np.empty(runs, np.int64),
        before=np.empty(runs, np.int64),
    )


def grown_service(s: State, v: LasService) -> LasService:
    """The same with space for the runs of a state that has grown."""
    behind, before = (np.resize(each, len(s.runs)) for each in (v.behind, v.before))
    return v._replace(behind=behind, before=before)


@inner
def served(s: State, v: LasService, job: int) -> float:
    """Add up what a job has had until now."""
    total = v.ended[job]
    run = v.first[job]
    while run >= 0:
        total += _weight(s, v, run) * (v.now[0] - s.runs[run].start_s)
        run = v.behind[run]
    return total


@inner
def see_starts(s: State, v: LasService) -> None:
    """Note the runs that have started, the newest first."""
    for each in range(s.n[STARTS] - 1, -1, -1):
        run = s.starts[each] & ((1 << SLOTS) - 1)
        job = s.tasks[s.runs[run].task].job
        v.behind[run] = -1
        v.before[run] = v.last[job]
        if v.last[job] < 0:
            v.first[job] = run
        else:
            v.behind[v.last[job]] = run
        v.last[job] = run
    s.n[STARTS] = 0


@inner
def end_service(s: State, v: LasService, run: int) -> None:
    """Count a run as ended."""
    job = s.tasks[s.runs[run].task].job
    if v.by_gpus[0]:
        v.ended[job] += _weight(s, v, run) * (v.now[0] - s.runs[run].start_s)
    else:
        v.ended[job] = v.ended[job] + v.now[0] - s.runs[run].start_s
    if v.before[run] < 0:
        v.first[job] = v.behind[run]
    else:
        v.behind[v.before[run]] = v.behind[run]
    if v.behind[run] < 0:
        v.last[job] = v.before[run]
    else:
        v.before[v.behind[run]] = v.before[run]


@inner
def _weight(s: State, v: LasService, run: int) -> float:
    """The weight of a second of a run."""
    return s.classes[s.tasks[s.runs[run].task].kind].gpus * s.runs[run].count if v.by_gpus[0] else 1.0


ROUND, COMPETING, TASK, ANSWERED, RANKED, STAMP, COUNTERS = range(7)
"""Places in ``Las.n``: the next round; in a round, the task room is made for, or -1, whether anything was done, the
runs that were ranked when it began, and rounds so far."""
QUANTUM, WAKE, TIMES = range(3)
"""Places in ``Las.t``: the seconds of a round, and when to decide again although nothing happens."""


@by_pointer
class Las(NamedTuple):
    """State of these policies beside that of the lane."""

    r: RoomSearch
    v: LasService
    q: LasQueues
    n: np.ndarray  # (COUNTERS,) int64
    t: np.ndarray  # (TIMES,) float64
    keeps: np.ndarray  # (1,) bool: a preempted run keeps the work it has done
    stuck: np.ndarray  # (K,) int64: the round in which a demand class was given up
    ranked: np.ndarray  # (runs,) int64: slots of runs, the last first
    number: np.ndarray  # (runs,) int64: the number of each, to see if it is still the same
    standing: np.ndarray  # (runs,) float64: by slot, the service its job had had when the round began


def new_las(s: State, by_gpus: bool, quantum_s: float, keeps: bool) -> Las:
    """Before anything has happened."""
    n = np.zeros(COUNTERS, np.int64)
    n[TASK] = -1
    runs = len(s.runs)
    return Las(
        r=new_room(s),
        v=new_service(s, by_gpus),
        q=new_queue(s),
        n=n,
        t=np.array([quantum_s, np.inf]),
        keeps=np.array([keeps]),
        stuck=np.zeros(len(s.classes), np.int64),
        ranked=np.empty(runs, np.int64),
        number=np.empty(runs, np.int64),
        standing=np.empty(runs),
    )


def grown_las(s: State, p: Las) -> Las:
    """The same with space for a state that has grown."""
    ranked, number, standing = (np.resize(each, len(s.runs)) for each in (p.ranked, p.number, p.standing))
    return p._replace(
        r=grown_room(s, p.r),
        v=grown_service(s, p.v),
        q=grown_queue(s, p.q),
        ranked=ranked,
        number=number,
        standing=standing,
    )


@outer
def advance_las(s: State, log: np.recarray, p: Las) -> bool:
    """Go on until everything is done (False) or more space is needed (True). The space is that of the log or the
    state."""
    while steps(s, log) and enough_pieces(s) and enough_queue(s, p.q):
        if s.n[PHASE] == DECIDE:
            if not _decide(s, log, p):
                s.n[PHASE] = MOVE
        else:
            drop_stopped(s)
            if s.n[PHASE] == MOVE and _wakes_first(s, p):
                s.now[0] = p.t[WAKE]
                s.n[PHASE] = SETTLE
            elif not move_on(s, log):
                return False
    return True


@inner
def _wakes_first(s: State, p: Las) -> bool:
    """True if a round is the next thing to come, before any end or arrival."""
    coming = s.n[JOBS] < len(s.jobs) - 1
    if s.n[ENDS] and s.ends[0].key <= p.t[WAKE]:
        return False
    if coming and s.jobs[s.n[JOBS]].arrival_s <= p.t[WAKE]:
        return False
    return p.t[WAKE] < np.inf and (s.n[ENDS] > 0 or coming or p.q.ready[0] > 0)


@inner
def _decide(s: State, log: np.recarray, p: Las) -> bool:
    """Do one thing; False if nothing more is to be done now."""
    take_in_jobs(s, p.v, p.q)
    if p.n[COMPETING]:
        if _compete(s, log, p):
            return True
        p.n[COMPETING] = 0
        _wait(p)
        return p.n[ANSWERED] != 0
    if p.t[WAKE] <= s.now[0]:
        p.t[WAKE] = np.inf
    _look(s, p)
    begins = _round_begins(s, p)
    if not p.q.ready[0]:
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
    """Ask to decide again when the next round begins, if anything waits."""
    if p.q.ready[0]:
        p.t[WAKE] = min(p.t[WAKE], p.n[ROUND] * p.t[QUANTUM])


@inner
def _look(s: State, p: Las) -> None:
    """Bring the service up to date, and the keys of jobs with an ended run."""
    p.v.now[0] = s.now[0]
    for each in range(s.n[ENDED]):
        end_service(s, p.v, s.ended[each])
    for each in range(s.n[ENDED]):
        job = int64(s.tasks[s.runs[s.ended[each]].task].job)
        if s.jobs[job].left:
            refresh(s, p.v, p.q, job)
    s.n[ENDED] = 0


@inner
def _round_begins(s: State, p: Las) -> bool:
    """Count rounds up to now; True if one begins at this instant."""
    now, quantum = s.now[0], p.t[QUANTUM]
    quotient = (now - now % quantum) / quantum  # as Python divides
    whole = np.floor(quotient)
    if quotient - whole > 0.5:
        whole += 1.0
    p.n[ROUND] = max(p.n[ROUND], int64(whole))
    while p.n[ROUND] * quantum < now:
        p.n[ROUND] += 1
    if p.n[ROUND] * quantum != now:
        return False
    p.n[ROUND] += 1
    return True


@inner
def _begin_round(s: State, p: Las) -> None:
    """Compute all keys again and rank what runs, the last first."""
    p.n[COMPETING] = 1
    p.n[ANSWERED] = 0
    p.n[TASK] = -1
    p.n[STAMP] += 1
    count = 0
    for run in range(s.n[RUNS_TOP]):
        if s.runs[run].number >= 0:
            job = int64(s.tasks[s.runs[run].task].job)
            refresh(s, p.v, p.q, job)
            p.standing[run] = served(s, p.v, job)
            p.ranked[count] = run
            count += 1
    p.n[RANKED] = count
    for place in range(count // 2 - 1, -1, -1):
        _sink(s, p, place, count)
    for last in range(count - 1, 0, -1):
        p.ranked[0], p.ranked[last] = p.ranked[last], p.ranked[0]
        _sink(s, p, 0, last)
    for place in range(count):
        p.number[place] = s.runs[p.ranked[place]].number


@inner
def _compete(s: State, log: np.recarray, p: Las) -> bool:
    """Stop a doomed run, else start its task, else make room for the next. False when all have had a go."""
    if p.r.n[DOOMED]:
        run = p.r.doomed[0]
        p.r.n[DOOMED] -= 1
        for each in range(p.r.n[DOOMED]):
            p.r.doomed[each] = p.r.doomed[each + 1]
        end_service(s, p.v, run)
        preempt(s, log, run, p.keeps[0], 0.0)
        s.n[ENDED] = 0
        p.n[ANSWERED] = 1
        return True
    task = p.n[TASK]
    if task < 0:
        task = _first(s, p, False)
        if task < 0:
            return False
        if not _fits(s, int64(s.tasks[task].kind)):
            _make_room(s, p, task)
            p.n[TASK] = task
            return True
    p.n[TASK] = -1
    if _fits(s, int64(s.tasks[task].kind)):
        _start(s, log, p, task)
        p.n[ANSWERED] = 1
    else:
        p.stuck[s.tasks[task].kind] = p.n[STAMP]
    return True


@inner
def _start(s: State, log: np.recarray, p: Las, task: int) -> None:
    type_, node = choose(s, task, -1)
    start(s, log, task, type_, node)
    see_starts(s, p.v)
    if not s.todo[task].waiting:
        p.q.ready[0] -= 1


@inner
def _make_room(s: State, p: Las, task: int) -> None:
    """Doom the runs that must go for a task. It does so only if those of other jobs that rank behind it can make
    room."""
    seek_room(p.r)
    job = s.tasks[task].job
    mine, origin = served(s, p.v, job), origin_of(s, task)
    for place in range(p.n[RANKED]):
        run = p.ranked[place]
        its = p.standing[run]
        if s.runs[run].number != p.number[place]:
            continue
        if its < mine or (its == mine and origin_of(s, s.runs[run].task) <= origin):
            break
        if s.tasks[s.runs[run].task].job != job and consider(s, p.r, task, run):
            break


@inner
def _first(s: State, p: Las, that_fits: bool) -> int:
    """Find the first task that fits, -1 if there is none. In a round it is the first whose class was not given up."""
    found, least, entry = int64(-1), 0.0, int64(0)
    for queue in range(len(s.queues)):
        drop_stale(s, p.q, queue)
        if not s.queues[queue].held or (not that_fits and p.stuck[queue] == p.n[STAMP]):
            continue
        at = s.queues[queue].at
        key, what = s.ready[at].key, s.ready[at].what
        if found >= 0 and (key > least or (key == least and what > entry)):
            continue
        if not that_fits or _fits(s, queue):
            found, least, entry = task_at(s, at), key, what
    return found


@inner
def _fits(s: State, kind: int) -> bool:
    """True if a demand class has room anywhere."""
    for type_ in range(len(s.types)):  # noqa: SIM110 (a generator cannot be compiled)
        if fits_on(s, kind, type_):
            return True
    return False


@inner
def _sink(s: State, p: Las, place: int, held: int) -> None:
    """Move a run down in a heap with the one that ranks first on top."""
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
    """True if one run ranks before another."""
    if p.standing[one] != p.standing[other]:
        return p.standing[one] < p.standing[other]
    mine, its = origin_of(s, s.runs[one].task), origin_of(s, s.runs[other].task)
    return mine < its if mine != its else s.runs[one].number < s.runs[other].number
