"""Run an episode: carry out the rules of the simulation until there is a choice.

This is the compiled counterpart of ``learning.episode.Episode`` with the codec ``candidates`` or
``relative`` and the reward ``shaped_job_seconds`` or ``job_seconds``. The simulation itself is in
``compiled.rules``. This module adds:

- indexes of ready tasks (as in ``codecs.pool``), of runs by expected end (``ExpectedFree``) and
  of critical paths (``critical_paths.CriticalPaths``), all of which ``catch_up`` brings up to
  date;
- ``play_on``, which returns when a task can start;
- the reward.

``features`` encodes the choices for a network.
"""

from __future__ import annotations

from math import log

import numpy as np

from dagsim.families.compiled.jit import inner, int64
from dagsim.families.compiled.node_trees import fits_on, spot
from dagsim.families.compiled.rules import (
    ARRIVED,
    COMPLETED,
    DECIDE,
    MOVE,
    REJECTED,
    alive,
    move_on,
    pop,
    push,
    slot_of,
    start,
)
from dagsim.families.episodes.episode_state import EpisodeState, named_places
from dagsim.families.episodes.proposals import drop_ready, least_work, note_ends, note_ready, propose
from dagsim.families.learning.codecs.pool import SCALE_S, STATIC

COARSE, FINE = 2.0**20, 2.0**60
"""Sums that leave no residue: ``high`` whole units of 2**-20, and ``low`` of 2**-80."""
_FIXED = named_places(("wait", *STATIC))


@inner
def _add_exact(sums: np.ndarray, row: int, sign: int, high: int, low: int) -> None:
    """Add ``sign`` times a number to an exact sum."""
    high = sums[row, 0] + sign * high
    low = sums[row, 1] + sign * low
    if low >= 1 << 60:
        low -= 1 << 60
        high += 1
    elif low < 0:
        low += 1 << 60
        high -= 1
    sums[row, 0] = high
    sums[row, 1] = low


@inner
def exact_sum(high: int, low: int) -> float:
    """Return the value of an exact sum."""
    return high / COARSE + low / (COARSE * FINE)


@inner
def below(values: np.ndarray, at: int, held: int, value: float) -> int:
    """Return the number of values in a sorted range that are below ``value``."""
    low, high = at, at + held
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low - at


# Events since the last choice.


@inner
def catch_up(e: EpisodeState) -> None:
    """Bring the indexes up to date: process jobs, ends of runs, ready tasks and starts, in this
    order.
    """
    s = e.state
    for index in range(e.tally.read, s.count.rows):
        kind = e.log[index].kind
        if kind in (ARRIVED, COMPLETED, REJECTED):
            _count_job(e, kind, e.log[index].time_s, int64(e.log[index].job))
    e.tally.read = s.count.rows
    if not e.tally.recorded:
        e.tally.read = 0
        s.count.rows = 0
    for index in range(s.count.ended):
        forget_end(e, s.ended[index])
    if e.tally.relative:
        note_ends(e)
    for index in range(s.count.fresh):
        _add_task(e, s.fresh[index])
    s.count.ended = 0
    s.count.fresh = 0
    # All starts since the last call are of one task. The slots of their runs are not reused before
    # the next start.
    if s.count.starts > e.tally.heard:
        _forget_task(e, s.runs[slot_of(s.starts[e.tally.heard])].task)
    for index in range(e.tally.heard, s.count.starts):
        add_run(e, s.starts[index])
    e.tally.heard = s.count.starts


@inner
def _count_job(e: EpisodeState, kind: int, time_s: float, job: int) -> None:
    """Begin to count a job when it arrives, and stop counting it when it leaves."""
    e.tally.integral += e.tally.rate * (time_s - e.tally.since_s)
    e.tally.since_s = time_s
    if kind == ARRIVED:
        e.tally.rate += 1.0
        e.tally.arrived_s += e.ideal_s[job]
        e.in_system[e.tally.jobs] = job
        e.tally.jobs += 1
        return
    e.tally.rate += -1.0
    if kind == COMPLETED:
        e.jobs[job].done_s = time_s
    else:
        e.tally.arrived_s -= e.ideal_s[job]
    place = int64(0)
    while e.in_system[place] != job:
        place += 1
    e.tally.jobs -= 1
    for later in range(place, e.tally.jobs):
        e.in_system[later] = e.in_system[later + 1]


@inner
def _add_task(e: EpisodeState, task: int) -> None:
    """Enter a task that has become ready in the indexes."""
    s, group = e.state, e.facts[task].group
    e.ready_s[task] = s.clock.now_s
    if not e.groups[group].seen:
        e.groups[group].seen = 1
        e.groups[e.tally.groups].listed = group
        e.tally.groups += 1
    push(e.short, e.groups[group].at, e.groups[group].short, e.facts[task].least_s, task)
    e.groups[group].short += 1
    push(e.last, e.groups[group].at, e.groups[group].last, e.facts[task].rank_s, task)
    e.groups[group].last += 1
    _count_task(e, task, 1)
    if e.tally.relative:
        note_ready(e, task)
    job = int64(s.tasks[task].job)
    e.jobs[job].ready_s = max(e.jobs[job].ready_s, e.facts[task].true_rank_s)


@inner
def _count_task(e: EpisodeState, task: int, sign: int) -> None:
    """Add a task to all sums over ready tasks (1), or remove it from them (-1)."""
    width, best_s = e.facts[task].width_class, e.facts[task].best_s
    _count_in(e.sorted_s, e.widths[width].at, e.widths[width].held, best_s, sign)
    if e.tally.relative:
        _count_in(e.all_s, int64(0), e.tally.waiting, best_s, sign)
    e.widths[width].held += sign
    e.tally.waiting += sign
    classes, types = len(e.widths), len(e.on_type)
    _add_exact(e.sums, width, sign, e.facts[task].high, e.facts[task].low)
    _add_exact(e.sums, classes + e.facts[task].best_type, sign, e.facts[task].high, e.facts[task].low)
    for type_ in range(types):
        units = e.slowdown_units[task, type_]
        _add_exact(e.sums, classes + types + type_, sign, units[0], units[1])


@inner
def _count_in(values: np.ndarray, at: int, held: int, value: float, sign: int) -> None:
    """Add a value to a sorted range (1), or remove it (-1)."""
    place = at + below(values, at, held, value)
    if sign > 0:
        for later in range(at + held, place, -1):
            values[later] = values[later - 1]
        values[place] = value
    else:
        for later in range(place, at + held - 1):
            values[later] = values[later + 1]


@inner
def _forget_task(e: EpisodeState, task: int) -> None:
    """Remove a task from the indexes after some of its instances have started, unless others are
    still waiting."""
    s = e.state
    if s.todo[task].waiting:
        return
    _count_task(e, task, -1)
    if e.tally.relative:
        drop_ready(e, task)
    job, longest_s = int64(s.tasks[task].job), 0.0
    for other in range(s.jobs[job].first, s.jobs[job + 1].first):
        if s.todo[other].missing == 0 and s.todo[other].waiting > 0:
            longest_s = max(longest_s, e.facts[other].true_rank_s)
    e.jobs[job].ready_s = longest_s


@inner
def add_run(e: EpisodeState, entry: int) -> None:
    """Enter a run that has started in the index of expected ends. The record of the run remains
    valid until the next start, even if the run has ended.
    """
    s, slot = e.state, slot_of(entry)
    task, type_ = s.runs[slot].task, s.runs[slot].type
    at = e.on_type[type_].at
    end_s = s.runs[slot].start_s + s.seconds[task, type_]
    place = at + e.on_type[type_].held
    while place > at and e.expected[place - 1].end_s > end_s:
        _move_end(e, place, place - 1)
        place -= 1
    e.expected[place].end_s = end_s
    e.expected[place].gpus = s.classes[s.tasks[task].kind].gpus * s.runs[slot].count
    e.expected[place].slot = slot
    e.on_type[type_].held += 1


@inner
def forget_end(e: EpisodeState, slot: int) -> None:
    """Remove a run that has ended from the index of expected ends."""
    type_ = e.state.runs[slot].type
    place = e.on_type[type_].at
    while e.expected[place].slot != slot:
        place += 1
    e.on_type[type_].held -= 1
    for later in range(place, e.on_type[type_].at + e.on_type[type_].held):
        _move_end(e, later, later + 1)


@inner
def _move_end(e: EpisodeState, to: int, place: int) -> None:
    e.expected[to].end_s = e.expected[place].end_s
    e.expected[to].gpus = e.expected[place].gpus
    e.expected[to].slot = e.expected[place].slot


# Choices.


@inner
def play_on(e: EpisodeState) -> bool:
    """Continue the simulation until a task can start. Return False at the end of the episode."""
    s = e.state
    while True:
        if s.clock.phase == DECIDE:
            catch_up(e)
            if _look(e):
                return True
            s.clock.phase = MOVE
        if len(e.log) - s.count.rows < len(s.nodes) + 2:
            # The next moment may bring many simultaneous events, so make space for their rows in
            # the log.
            catch_up(e)
        if not move_on(s, e.log):
            catch_up(e)
            e.tally.choices = 0
            e.tally.pending = 0
            return False


@inner
def _look(e: EpisodeState) -> int:
    """Record the choices, and return their number."""
    s, choices = e.state, int64(0)
    if e.tally.waiting:
        for kind in range(len(e.room)):
            e.room[kind] = -1
            for type_ in range(len(e.on_type)):
                e.eta_s[kind, type_] = -1.0
        for place in range(e.tally.groups):
            group = e.groups[place].listed
            task = _head(e, e.short, group, True)
            if task < 0:
                continue
            room = types_with_room(e, e.groups[group].kind)
            if not room:
                continue
            choices = _offer(e, task, room, choices)
            other = _head(e, e.last, group, False)
            if other != task:
                choices = _offer(e, other, room, choices)
        if e.tally.relative and choices:
            choices = _offer_proposals(e, choices)
    e.tally.choices = choices
    e.tally.pending = s.count.runs > 0 or s.count.jobs < len(s.jobs) - 1
    return choices


@inner
def types_with_room(e: EpisodeState, kind: int) -> int:
    """Return a bit set of the types on which a demand class fits."""
    if e.room[kind] < 0:
        room = int64(0)
        for type_ in range(len(e.on_type)):
            if fits_on(e.state, kind, int64(type_)):
                room |= int64(1) << type_
        e.room[kind] = room
    return e.room[kind]


@inner
def _offer(e: EpisodeState, task: int, room: int, choices: int) -> int:
    """Add a choice for a task on every type on which it fits. Return the new number of choices."""
    for type_ in range(len(e.on_type)):
        if room >> type_ & 1:
            e.choice[choices, 0] = task
            e.choice[choices, 1] = type_
            choices += 1
    return choices


@inner
def _offer_proposals(e: EpisodeState, choices: int) -> int:
    """Also add choices for the tasks that two heuristics would start. Return the new number of
    choices.
    """
    propose(e)
    for task in (e.tally.proposed, least_work(e)):
        offered = task < 0
        for choice in range(choices):
            offered |= e.choice[choice, 0] == task
        if not offered:
            choices = _offer(e, task, e.room[int64(e.state.tasks[task].kind)], choices)
    return choices


@inner
def _head(e: EpisodeState, heap: np.recarray, group: int, short: bool) -> int:
    """Return the first task in a group's heap that is still waiting, or -1 if there is none. Drop
    the tasks before it."""
    at = e.groups[group].at
    held = e.groups[group].short if short else e.groups[group].last
    task = int64(-1)
    while held:
        task = heap[at].what
        if e.state.todo[task].waiting:
            break
        pop(heap, at, held)
        held -= 1
        task = int64(-1)
    if short:
        e.groups[group].short = held
    else:
        e.groups[group].last = held
    return task


@inner
def take_choice(e: EpisodeState, choice: int) -> None:
    """Start the task that a choice represents. A number that is too large for a start means
    waiting.
    """
    s = e.state
    if choice >= e.tally.choices:
        s.clock.phase = MOVE
        return
    start_as_many(e, e.choice[choice, 0], e.choice[choice, 1])


@inner
def start_as_many(e: EpisodeState, task: int, type_: int) -> None:
    """Start a task on a type. With the codec ``relative``, start as many instances as fit."""
    s = e.state
    start(s, e.log, task, type_, spot(s, task, type_))
    if e.tally.relative and not s.classes[s.tasks[task].kind].gang:
        kind = int64(s.tasks[task].kind)
        while s.todo[task].waiting and fits_on(s, kind, type_):
            start(s, e.log, task, type_, spot(s, task, type_))


@inner
def reward(e: EpisodeState) -> float:
    """Return the reward since the last call."""
    s, now = e.state, e.state.clock.now_s
    for index in range(s.count.starts):  # runs that have already ended are not counted
        if alive(s, s.starts[index]):
            _extend_path(e, slot_of(s.starts[index]))
    s.count.starts = 0
    e.tally.heard = 0
    total = e.tally.integral + e.tally.rate * (now - e.tally.since_s)
    if e.tally.shaped:
        left_s = 0.0
        for place in range(e.tally.jobs):
            job = e.in_system[place]
            left_s += max(e.jobs[job].until_s - now, e.jobs[job].ready_s)
        total += left_s - e.tally.arrived_s
    grown = total - e.tally.charged_s
    e.tally.charged_s = total
    return 0.0 - grown * e.tally.weight / e.tally.scale


@inner
def _extend_path(e: EpisodeState, slot: int) -> None:
    """Extend a job's critical path to the end of a run in progress."""
    s, task = e.state, e.state.runs[slot].task
    job = int64(s.tasks[task].job)
    until_s = s.runs[slot].start_s + s.runs[slot].seconds + (e.facts[task].true_rank_s - e.facts[task].true_s)
    e.jobs[job].until_s = max(e.jobs[job].until_s, until_s)


# The state before the first event.


@inner
def prepare(e: EpisodeState) -> None:
    """Compute the constants of all tasks: exact sums and fixed columns.

    Logarithms are computed in compiled code, because NumPy's logarithms differ in the last bit.
    """
    s, types = e.state, len(e.on_type)
    for task in range(len(e.facts)):
        best_s, wide = e.facts[task].best_s, e.facts[task].wide
        if np.isinf(best_s):  # skip the task, because its job will be rejected
            continue
        area = best_s * wide
        e.facts[task].high = int64(np.floor(area * COARSE))
        e.facts[task].low = int64((area * COARSE - e.facts[task].high) * FINE)
        job = int64(s.tasks[task].job)
        log_best, log_area = log(best_s / SCALE_S), log(area / SCALE_S)
        log_rank = log(max(e.facts[task].rank_s, 1e-9) / SCALE_S) / 3
        for type_ in range(types):
            seconds = s.seconds[task, type_]
            slowdown = 0.0 if np.isinf(seconds) else log(max(seconds, 1e-9) / best_s)
            units = int64(np.floor(slowdown * COARSE))
            e.slowdown[task, type_] = slowdown
            e.slowdown_units[task, type_, 0] = units
            e.slowdown_units[task, type_, 1] = int64((slowdown * COARSE - units) * FINE)
            row = e.fixed[task, type_]
            row[_FIXED.wait] = 0.0
            row[_FIXED.log_seconds] = (log_best + slowdown) / 3
            row[_FIXED.log_best] = log_best / 3
            row[_FIXED.slowdown] = slowdown
            row[_FIXED.gpus] = wide / 8
            row[_FIXED.log_area] = (log_area + slowdown) / 3
            row[_FIXED.log_rank] = log_rank
            row[_FIXED.children] = (s.tasks[task + 1].children - s.tasks[task].children) / 2
            row[_FIXED.job_tasks] = (s.jobs[job + 1].first - s.jobs[job].first) / 8
            row[_FIXED.is_best_type] = 1.0 if type_ == e.facts[task].best_type else 0.0
