"""Ready tasks by the service their jobs have had: the SimPy kernel's ``JobQueue`` once more.

A job's key is computed when one of its tasks comes, one of its runs has ended, or a round begins, and otherwise stands
still; it is forgotten with the last of the job's tasks, when that is next seen at the top of its heap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dagsim.systems.cluster.lane.heap import pop, push
from dagsim.systems.cluster.lane.jit import by_pointer, inner, int64
from dagsim.systems.cluster.lane.kernel import origin_of
from dagsim.systems.cluster.lane.las_service import LasService, served
from dagsim.systems.cluster.lane.state import FRESH, State

__all__ = ["LasQueues", "drop_stale", "enough_queue", "grown_queue", "new_queue", "refresh", "take_in_jobs", "task_at"]

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
