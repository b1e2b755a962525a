"""Find the starts that two heuristics would choose now, for the codec ``relative``. The heuristics
are the codec's reference ``eft-wait`` with the order ``work`` (as in ``policies.look_ahead``), and
``srpt-work`` (as in ``policies.job_orders``).

Both search all ready tasks. Episodes rarely have more than a few hundred ready tasks, and searching
these takes less time than maintaining heaps.
"""

from __future__ import annotations

import numpy as np

from dagsim.families.compiled.jit import inner, int64
from dagsim.families.episodes.episode_state import EpisodeState
from dagsim.systems.cluster.policies.formulas import instance_work

BY_WORK, BY_TASK, SRPT = range(3)
"""Orders of the reference: ``work`` and ``task`` of ``eft-wait``, and ``srpt-work`` in its place."""

_instance_work = inner(instance_work)


@inner
def note_ends(e: EpisodeState) -> None:
    """Record that the remaining work has changed in every job with a run that has ended."""
    s = e.state
    for index in range(s.count.ended):
        e.jobs[int64(s.tasks[s.runs[s.ended[index]].task].job)].stale = 1


@inner
def note_ready(e: EpisodeState, task: int) -> None:
    """Add a ready task for the heuristics. The runs that have ended since the last decision are still
    in ``State.ended``.
    """
    kind, profile = int64(e.state.tasks[task].kind), e.facts[task].profile
    if not e.kinds[kind].seen:
        e.kinds[kind].seen = 1
        e.kinds[e.tally.kinds].listed = kind
        e.tally.kinds += 1
    if not e.profiles[profile].seen:
        e.profiles[profile].seen = 1
        e.profiles[e.tally.profiles].listed = profile
        e.tally.profiles += 1
    e.left_s[task] = _left_when_ready_s(e, task)
    e.ready_at[task] = e.tally.ready
    e.ready_tasks[e.tally.ready] = task
    e.tally.ready += 1


@inner
def drop_ready(e: EpisodeState, task: int) -> None:
    """Remove a task whose instances have all started from the ready tasks."""
    e.tally.ready -= 1
    last, place = e.ready_tasks[e.tally.ready], e.ready_at[task]
    e.ready_tasks[place] = last
    e.ready_at[last] = place


@inner
def _left_when_ready_s(e: EpisodeState, task: int) -> float:
    """Return the remaining GPU-seconds of the task's job at the moment when the task became ready.
    Runs that end at the same time, but are processed later, still count as unfinished.
    """
    s = e.state
    last = s.count.ended - 1
    while last >= 0 and not _is_parent(e, s.runs[s.ended[last]].task, task):
        last -= 1
    job, total = int64(s.tasks[task].job), 0.0
    for other in range(s.jobs[job].first, s.jobs[job + 1].first):
        unfinished = int64(s.todo[other].unfinished)
        if last >= 0:
            for index in range(last + 1, s.count.ended):
                if s.runs[s.ended[index]].task == other:
                    unfinished += s.runs[s.ended[index]].count
        total += e.facts[other].wide * unfinished * e.facts[other].least_s
    return total


@inner
def _is_parent(e: EpisodeState, parent: int, task: int) -> bool:
    s, is_parent = e.state, False
    for edge in range(s.tasks[parent].children, s.tasks[parent + 1].children):
        is_parent |= s.child[edge] == task
    return is_parent


@inner
def work_left_s(e: EpisodeState, job: int) -> float:
    """Return a job's remaining GPU-seconds on its fastest types, as the order ``work`` counts them."""
    if e.jobs[job].stale:
        s, wide_s, work_s = e.state, 0.0, 0.0
        for task in range(s.jobs[job].first, s.jobs[job + 1].first):
            unfinished, best_s = int64(s.todo[task].unfinished), e.facts[task].least_s
            wide_s += e.facts[task].wide * unfinished * best_s
            work_s += _instance_work(best_s, unfinished, s.classes[s.tasks[task].kind].gpus)
        e.jobs[job].wide_s = wide_s
        e.jobs[job].work_s = work_s
        e.jobs[job].stale = 0
    return e.jobs[job].wide_s


@inner
def least_work(e: EpisodeState) -> int:
    """Return the task that ``srpt-work`` would start, or -1 if there is none."""
    best, best_work, best_rank = int64(-1), 0.0, 0.0
    s = e.state
    for place in range(e.tally.ready):
        task = e.ready_tasks[place]
        if e.room[int64(s.tasks[task].kind)] <= 0:
            continue
        job = int64(s.tasks[task].job)
        work_left_s(e, job)
        work, rank = e.jobs[job].work_s, -e.facts[task].rank_s
        if (
            best < 0
            or work < best_work
            or (work == best_work and (rank < best_rank or (rank == best_rank and task < best)))
        ):
            best, best_work, best_rank = task, work, rank
    return best


@inner
def propose(e: EpisodeState) -> None:
    """Record which task ``eft-wait`` would start (``tally.proposed``), and on which type
    (``tally.on``). The task is -1 if the heuristic would wait. The types on which the demand
    classes of the ready tasks fit must already be known.
    """
    s, types = e.state, len(e.on_type)
    if e.tally.order == SRPT:
        _propose_least_work(e)
        return
    _find_heads(e)
    best, on, best_key = int64(-1), int64(-1), 0.0
    for kind_place in range(e.tally.kinds):
        kind = e.kinds[kind_place].listed
        for type_ in range(types):
            if e.room[kind] <= 0 or not e.room[kind] >> type_ & 1:
                continue
            for place in range(e.tally.profiles):
                profile = e.profiles[place].listed
                if e.profiles[profile].kind != kind:
                    continue
                task = e.heads[profile, type_].first
                if task < 0:
                    continue
                key = e.heads[profile, type_].key
                if best >= 0 and (key > best_key or (key == best_key and task >= best)):
                    continue
                if _worth_waiting(e, task, kind, type_):
                    task = e.heads[profile, type_].shortest
                    if _worth_waiting(e, task, kind, type_):
                        continue
                    key = s.seconds[task, type_]
                    if e.tally.order == BY_WORK:
                        key = work_left_s(e, int64(s.tasks[task].job)) + e.facts[task].wide * (
                            key - e.facts[task].least_s
                        )
                if best < 0 or key < best_key or (key == best_key and task < best):
                    best, best_key, on = task, key, type_
    e.tally.proposed = best
    e.tally.on = on


@inner
def _propose_least_work(e: EpisodeState) -> None:
    """Record the task that ``srpt-work`` would start, and the fastest type on which it fits."""
    s, task, on = e.state, least_work(e), int64(-1)
    e.tally.proposed = task
    if task >= 0:
        room = e.room[int64(s.tasks[task].kind)]
        for type_ in range(len(e.on_type)):
            if room >> type_ & 1 and (on < 0 or s.seconds[task, type_] < s.seconds[task, on]):
                on = int64(type_)
    e.tally.on = on


@inner
def _find_heads(e: EpisodeState) -> None:
    """Find the first and the shortest ready task of each profile on each type."""
    s, types = e.state, len(e.on_type)
    for place in range(e.tally.profiles):
        for type_ in range(types):
            e.heads[e.profiles[place].listed, type_].first = -1
    for place in range(e.tally.ready):
        task = e.ready_tasks[place]
        kind, profile, wide = int64(s.tasks[task].kind), e.facts[task].profile, e.facts[task].wide
        if e.room[kind] <= 0:
            continue
        for type_ in range(types):
            if not e.room[kind] >> type_ & 1:
                continue
            head, seconds = e.heads[profile, type_], s.seconds[task, type_]
            key = seconds
            if e.tally.order == BY_WORK:
                key = e.left_s[task] + wide * (seconds - e.facts[task].least_s)
            if head.first < 0:
                head.first = head.shortest = task
                head.key = key
                head.seconds = seconds
                continue
            if key < head.key or (key == head.key and task < head.first):
                head.first = task
                head.key = key
            if seconds < head.seconds or (seconds == head.seconds and task < head.shortest):
                head.shortest = task
                head.seconds = seconds


@inner
def _worth_waiting(e: EpisodeState, task: int, kind: int, type_: int) -> bool:
    """Return True if the task would finish sooner by waiting for its fastest type."""
    s = e.state
    best_s, here_s = e.facts[task].least_s, s.seconds[task, type_]
    threshold = e.tally.theta * here_s
    if best_s >= threshold or best_s >= here_s:
        return False
    best_type = e.facts[task].best_type
    if e.room[kind] >> best_type & 1:
        return best_s < threshold
    missing = s.classes[kind].gpus * max(s.classes[kind].gang, 1) - s.types[best_type].idle
    at = e.on_type[best_type].at
    for place in range(at, at + e.on_type[best_type].held):
        missing -= e.expected[place].gpus
        if missing <= 0:
            return max(e.expected[place].end_s - s.clock.now_s, 0.0) + best_s < threshold
    return np.inf < threshold
