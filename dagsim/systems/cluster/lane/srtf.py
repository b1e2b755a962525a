"""Least remaining time (or service) first, with preemption.

A ready task that does not fit takes the place of the runs with the most left, as long as each of them has more left
than it needs there. Of one weight, the run that ends last has the most left at any time: a heap per weight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dagsim.systems.cluster.lane.columns import Classes, records
from dagsim.systems.cluster.lane.heap import pop, push
from dagsim.systems.cluster.lane.jit import by_pointer, inner, int64, outer
from dagsim.systems.cluster.lane.kernel import DECIDE, MOVE, alive, move_on, start, steps
from dagsim.systems.cluster.lane.placement import choose
from dagsim.systems.cluster.lane.preempt import (
    DOOMED,
    RoomSearch,
    consider,
    drop_stopped,
    enough_pieces,
    grown_pieces,
    grown_room,
    new_room,
    preempt,
    seek_room,
)
from dagsim.systems.cluster.lane.queues import first_task, take_in
from dagsim.systems.cluster.lane.state import ENDED, ENTRY, PHASE, RUNS, SLOTS, STARTS, State

__all__ = ["SRTF", "Srtf", "advance_srtf", "grown_srtf", "new_srtf", "srtf_state"]

SRTF = ("srtf", "srsf")
"""The policies: by remaining time, by GPUs times remaining time."""

_SPARE = 64


@by_pointer
class Srtf(NamedTuple):
    """State of these policies beside that of the lane."""

    r: RoomSearch
    keeps: np.ndarray  # (1,) bool: a preempted run keeps the work it has done
    weights: np.ndarray  # (weights,) float64: the different ones
    weight_of: np.ndarray  # (K,) int64: the weight of each demand class, as a place among them
    seen: np.ndarray  # (weights + 1,) int64: those that some run has had, in the order seen; their number comes last
    held: np.ndarray  # (weights,) int64
    heaps: np.recarray  # (weights * length,) ENTRY: runs by (-expected end, number)
    aside: np.recarray  # (length,) ENTRY: taken out in a search, to be put back
    aside_of: np.ndarray  # (length,) int64: the heaps they come from


def srtf_state(s: State) -> State:
    """The state with columns of its own, and room for pieces."""
    return grown_pieces(s._replace(work_left=np.ones(len(s.fresh))))


def new_srtf(s: State, classes: Classes, policy: str, keeps: bool) -> Srtf:
    """Before anything has happened."""
    gpus = classes.table.gpus * np.maximum(classes.table.gang, 1)
    widths = np.where(gpus, gpus, 1.0) if policy == "srsf" else np.ones(len(gpus))
    weights, weight_of = np.unique(widths, return_inverse=True)
    length = 2 * len(s.runs) + _SPARE
    return Srtf(
        r=new_room(s),
        keeps=np.array([keeps]),
        weights=weights,
        weight_of=weight_of.reshape(-1).astype(np.int64),
        seen=np.zeros(len(weights) + 1, np.int64),
        held=np.zeros(len(weights), np.int64),
        heaps=records(ENTRY, len(weights) * length),
        aside=records(ENTRY, length),
        aside_of=np.empty(length, np.int64),
    )


def grown_srtf(s: State, p: Srtf) -> Srtf:
    """The same with space for a state that has grown."""
    before, length = len(p.aside), 2 * len(s.runs) + _SPARE
    heaps = records(ENTRY, len(p.weights) * length)
    for each in range(len(p.weights)):
        heaps[each * length : each * length + before] = p.heaps[each * before : (each + 1) * before]
    return p._replace(
        r=grown_room(s, p.r), heaps=heaps, aside=records(ENTRY, length), aside_of=np.empty(length, np.int64)
    )


@outer
def advance_srtf(s: State, log: np.recarray, p: Srtf) -> bool:
    """Go on until everything is done (False) or more space is needed (True). The space is that of the log or the
    state."""
    while steps(s, log) and enough_pieces(s):
        if s.n[PHASE] == DECIDE:
            if not _decide(s, log, p):
                s.n[PHASE] = MOVE
        else:
            drop_stopped(s)
            if not move_on(s, log):
                return False
    return True


@inner
def _decide(s: State, log: np.recarray, p: Srtf) -> bool:
    """Stop the next run that is doomed, else start one task, else doom some runs; False if nothing can be done."""
    s.n[ENDED] = 0
    if p.r.n[DOOMED]:
        _stop_next(s, log, p)
        return True
    take_in(s)
    task, only = first_task(s, True)
    if task >= 0:
        type_, node = choose(s, task, only)
        start(s, log, task, type_, node)
        return True
    task, only = first_task(s, False)
    if task < 0:
        return False
    _look(s, p)
    _make_room(s, p, task)
    return p.r.n[DOOMED] > 0


@inner
def _stop_next(s: State, log: np.recarray, p: Srtf) -> None:
    """Stop the first of the doomed runs."""
    run = p.r.doomed[0]
    p.r.n[DOOMED] -= 1
    for each in range(p.r.n[DOOMED]):
        p.r.doomed[each] = p.r.doomed[each + 1]
    weight = p.weights[p.weight_of[s.tasks[s.runs[run].task].kind]]
    preempt(s, log, run, p.keeps[0], weight)


@inner
def _look(s: State, p: Srtf) -> None:
    """Take in the runs that started since the last look, the newest first."""
    length = len(p.aside)
    for each in range(s.n[STARTS] - 1, -1, -1):
        entry = s.starts[each]
        if not alive(s, entry):
            continue
        run = entry & ((1 << SLOTS) - 1)
        task = s.runs[run].task
        weight = p.weight_of[s.tasks[task].kind]
        if p.held[weight] > 2 * s.n[RUNS] + 16:
            _tidy(s, p, weight)
        end_s = max(s.runs[run].start_s + s.seconds[task, s.runs[run].type], s.now[0])
        push(p.heaps, weight * length, p.held[weight], -end_s, entry)
        p.held[weight] += 1
        _note_weight(p, weight)
    s.n[STARTS] = 0


@inner
def _note_weight(p: Srtf, weight: int) -> None:
    """Remember the order in which weights were first seen: it decides between equals."""
    count = p.seen[len(p.weights)]
    for each in range(count):
        if p.seen[each] == weight:
            return
    p.seen[count] = weight
    p.seen[len(p.weights)] = count + 1


@inner
def _make_room(s: State, p: Srtf, task: int) -> None:
    """Doom the runs that must go for a task. It does so only if those with more left can make room."""
    seek_room(p.r)
    weight = p.weights[p.weight_of[s.tasks[task].kind]]
    least = np.inf
    for type_ in range(len(s.types)):
        least = min(least, s.seconds[task, type_])
    least *= weight
    aside, length = 0, len(p.aside)
    while True:
        which, most = _most_left(s, p, least)
        if which < 0:
            break
        at = which * length
        entry = p.heaps[at].what
        p.aside[aside].key = p.heaps[at].key
        p.aside[aside].what = entry
        p.aside_of[aside] = which
        aside += 1
        pop(p.heaps, at, p.held[which])
        p.held[which] -= 1
        run = entry & ((1 << SLOTS) - 1)
        if s.runs[run].start_s == s.now[0]:
            continue  # what has just been started stays, so that no two tasks displace each other for ever
        type_ = s.runs[run].type
        if s.may[s.tasks[task].kind, type_] and most > weight * s.seconds[task, type_] and consider(s, p.r, task, run):
            break
    for each in range(aside):
        which = p.aside_of[each]
        push(p.heaps, which * length, p.held[which], p.aside[each].key, p.aside[each].what)
        p.held[which] += 1


@inner
def _most_left(s: State, p: Srtf, least: float) -> tuple[int, float]:
    """Find the heap of the run with the most left above ``least``, and that amount. -1 if there is none."""
    length, found, most = len(p.aside), int64(-1), least
    for each in range(p.seen[len(p.weights)]):
        which = p.seen[each]
        at = which * length
        while p.held[which] and not alive(s, p.heaps[at].what):
            pop(p.heaps, at, p.held[which])
            p.held[which] -= 1
        if p.held[which] and p.weights[which] * (-p.heaps[at].key - s.now[0]) > most:
            found, most = which, p.weights[which] * (-p.heaps[at].key - s.now[0])
    return found, most


@inner
def _tidy(s: State, p: Srtf, which: int) -> None:
    """Drop the runs that are over from a heap."""
    at, held = which * len(p.aside), p.held[which]
    p.held[which] = 0
    for each in range(held):
        key, entry = p.heaps[at + each].key, p.heaps[at + each].what
        if alive(s, entry):
            push(p.heaps, at, p.held[which], key, entry)
            p.held[which] += 1
