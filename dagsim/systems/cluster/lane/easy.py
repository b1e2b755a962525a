"""EASY back-filling: the oldest task gets a reservation, others may go ahead of it if they do not delay it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dagsim.systems.cluster.lane.columns import Classes, Work
from dagsim.systems.cluster.lane.easy_ends import Ends, amount, look, moved_ends, new_ends, reservation
from dagsim.systems.cluster.lane.easy_groups import (
    ACTIVE,
    BY_LENGTH,
    BY_ORDER,
    BY_SLOWDOWN,
    GROUPS,
    STAMP,
    Groups,
    add,
    before,
    first_of,
    new_groups,
    remove,
)
from dagsim.systems.cluster.lane.heap import pop, push
from dagsim.systems.cluster.lane.index import fits_on
from dagsim.systems.cluster.lane.jit import by_pointer, inner, int64, outer
from dagsim.systems.cluster.lane.kernel import DECIDE, MOVE, move_on, start, steps
from dagsim.systems.cluster.lane.placement import choose, count_started, spot
from dagsim.systems.cluster.lane.state import ENDED, FRESH, PHASE, State

__all__ = ["EASY", "EasyState", "advance_easy", "grown_easy", "new_easy"]

EASY = {"easy": BY_ORDER, "easy-sjf": BY_LENGTH, "easy-lxf": BY_SLOWDOWN}
"""Ranks of candidates by the name of their policy."""


@by_pointer
class EasyState(NamedTuple):
    """State of EASY beside that of the lane."""

    g: Groups
    e: Ends


def new_easy(s: State, work: Work, classes: Classes, policy: str) -> EasyState:
    """EASY before anything has happened."""
    return EasyState(new_groups(work, classes, EASY[policy]), new_ends(len(s.types), len(s.runs), classes))


def grown_easy(s: State, b: EasyState) -> EasyState:
    """The same with space for a state that has grown, and for more groups."""
    g = b.g
    groups = np.concatenate([g.groups, np.zeros_like(g.groups)]).view(np.recarray)
    ratios, active = np.concatenate([g.ratios, g.ratios]), np.concatenate([g.active, g.active])
    return EasyState(g._replace(groups=groups, ratios=ratios, active=active), moved_ends(b.e, len(s.runs)))


@outer
def advance_easy(s: State, log: np.recarray, b: EasyState) -> bool:
    """Go on until everything is done (False) or more space is needed (True). The space is that of the log or the
    state."""
    while steps(s, log) and b.g.n[GROUPS] < len(b.g.groups):
        if s.n[PHASE] == DECIDE:
            if not _decide(s, log, b):
                s.n[PHASE] = MOVE
        elif not move_on(s, log):
            return False
    return True


@inner
def _decide(s: State, log: np.recarray, b: EasyState) -> bool:
    """Start one task; False if none can."""
    _take_in(s, b.g)
    head = _oldest(s)
    if head < 0:
        return False
    look(s, b.e)
    task = head
    type_, node = choose(s, head, -1)
    if node == -1:
        task, type_, node = _filler(s, b, head)
        if task < 0:
            return False
    start(s, log, task, type_, node)
    remove(s, b.g, task)
    return True


@inner
def _take_in(s: State, g: Groups) -> None:
    """Put what has become ready into the queue and the groups."""
    s.n[ENDED] = 0
    for each in range(s.n[FRESH]):
        task = s.fresh[each]
        push(s.ready, 0, s.queues[0].held, 0.0, task)
        s.queues[0].held += 1
        add(s, g, task)
    s.n[FRESH] = 0


@inner
def _oldest(s: State) -> int:
    """Find the oldest task that waits, or -1."""
    while s.queues[0].held:
        task = s.ready[0].what
        if s.todo[task].waiting:
            return task
        pop(s.ready, 0, s.queues[0].held)
        s.queues[0].held -= 1
    return int64(-1)


@inner
def _filler(s: State, b: EasyState, head: int) -> tuple[int, int, int]:
    """Find the first task by rank that fits and does not delay ``head``, and its place; -1 if there is none."""
    shadow_s, shadow_type, extra = np.inf, -1, int64(0)
    b.g.n[STAMP] += 1
    known = False
    while True:
        found = int64(-1)
        for each in range(b.g.n[ACTIVE]):
            group = b.g.active[each]
            if b.g.groups[group].stuck == b.g.n[STAMP]:
                continue
            any_of = first_of(s, b.g, group, np.inf)
            type_ = _fastest_with_room(s, b.g, group, s.tasks[any_of].kind)
            if type_ < 0:
                b.g.groups[group].stuck = b.g.n[STAMP]
                continue
            if not known:
                shadow_s, shadow_type, extra = reservation(s, b.e, head)
                known = True
            most_s, ratio = np.inf, b.g.ratios[group, type_]
            if ratio > 0 and type_ == shadow_type and _needed(s, b.e, any_of, head, type_) > extra:
                most_s = (shadow_s - s.now[0]) / ratio
            task = any_of if most_s == np.inf else first_of(s, b.g, group, most_s)
            if task >= 0 and (found < 0 or before(s, b.g, task, found)):
                found = task
        if found < 0:
            return int64(-1), -1, -1
        on, node = choose(s, found, -1)
        ends_in_time = s.now[0] + s.seconds[found, on] <= shadow_s
        if on != shadow_type or ends_in_time or _takes(s, b.e, found, head, on, node) <= extra:
            return found, on, node
        b.g.groups[b.g.group[found]].stuck = b.g.n[STAMP]


@inner
def _fastest_with_room(s: State, g: Groups, group: int, kind: int) -> int:
    """Find the type with room on which the group's tasks are fastest, or -1."""
    found = -1
    for type_ in range(len(s.types)):
        if (found < 0 or g.ratios[group, type_] < g.ratios[group, found]) and fits_on(s, int64(kind), type_):
            found = type_
    return found


@inner
def _needed(s: State, e: Ends, task: int, head: int, type_: int) -> int:
    """The amount of what ``head`` waits for that a task started now would take."""
    return _takes(s, e, task, head, type_, spot(s, task, type_))


@inner
def _takes(s: State, e: Ends, task: int, head: int, type_: int, node: int) -> int:
    """The amount that a task would take there of what ``head`` waits for."""
    started = count_started(s, task, type_, node)
    return amount(s, e, int64(s.tasks[task].kind), int64(s.tasks[head].kind)) * started
