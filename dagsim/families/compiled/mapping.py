"""Batch-mode mapping: ready tasks are mapped to GPU types in turn, by their earliest completion
times, until one of them can start.

The compiled counterpart of ``policies.batch_mode.BatchMode``. It also implements
``ExpectedFree.times`` and the grouping of tasks by demand and ratios. A mapped task that has to
wait is taken out of its heaps for the rest of the decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dagsim.families.compiled.easy import profiles
from dagsim.families.compiled.jit import by_pointer, inner, int64, outer
from dagsim.families.compiled.memory import ENTRY, Classes, State, Work, one_record, record_type, records
from dagsim.families.compiled.node_trees import choose, fits, fits_on
from dagsim.families.compiled.rules import (
    DECIDE,
    MOVE,
    alive,
    expected_end_s,
    move_on,
    pop,
    push,
    slot_of,
    start,
    steps,
)
from dagsim.systems.cluster.policies.formulas import AHEAD

MIN_MIN, MAX_MIN, SUFFERAGE = range(3)
MAPPING_RULES: Mapping[str, int] = {"min-min": MIN_MIN, "max-min": MAX_MIN, "sufferage": SUFFERAGE}
"""The rules by the names in ``policies.batch_mode``."""

MAPPING_COUNT = record_type(i8="rule mapped aside")
"""``rule`` is one of MAPPING_RULES. ``mapped`` is the number of tasks that were mapped in a
decision, and ``aside`` is the number of entries that were removed during it.
"""


@by_pointer
class MappingState(NamedTuple):
    """The state of batch-mode mapping, in addition to the engine's state."""

    count: Any  # MAPPING_COUNT
    best_s: np.ndarray  # (n,) float64
    width: np.ndarray  # (K,) int64: GPUs that start together, 0 without GPUs
    group: np.ndarray  # (n,) int64: group of each task
    kind: np.ndarray  # (groups,) int64: demand class of each group
    by_length: np.recarray  # (2 * n,) ENTRY
    """Two heaps of each group: one with the shortest task first, and one with the longest task first."""
    at: np.ndarray  # (groups, 2) int64: start of each heap in ``by_length``
    left: np.ndarray  # (groups, 2) int64: number of entries in each heap
    passed: np.ndarray  # (n,) uint8: 1 for tasks that were mapped in this decision
    mapped: np.ndarray  # (AHEAD,) int64: the tasks that were mapped in this decision
    put_aside: np.recarray  # (2 * AHEAD,) ENTRY
    """Entries of mapped tasks, removed during this decision. The last bit tells from which of the two
    heaps an entry was removed."""
    held: np.ndarray  # (types,) int64
    """Number of entries in ``by_end``. Some of these entries may belong to runs that have ended."""
    by_end: np.recarray  # (types * length,) ENTRY: runs of each type by (expected end, number)
    lanes: np.ndarray  # (types * length,) float64: times at which the GPUs of a type become free
    lanes_held: np.ndarray  # (types,) int64: number of entries in ``lanes``


def new_mapping(s: State, work: Work, classes: Classes, rule: str) -> MappingState:
    """Return the initial ``MappingState``, in which no task is ready."""
    best_s = work.best_s
    group = profiles(work, best_s, 6)
    in_group = np.bincount(group)
    kind = np.zeros(len(in_group), np.int64)
    kind[group] = work.rows.kind
    gpus = classes.table.gpus * np.maximum(classes.table.gang, 1)
    types = len(s.types)
    length = 2 * len(s.runs) + int(s.nodes.gpus.sum()) + 32
    at = np.cumsum(in_group) - in_group
    return MappingState(
        count=one_record(MAPPING_COUNT, rule=MAPPING_RULES[rule]),
        best_s=best_s,
        width=np.where(gpus > 0, np.maximum(np.rint(gpus), 1), 0).astype(np.int64),
        group=group,
        kind=kind,
        by_length=records(ENTRY, 2 * len(best_s)),
        at=np.column_stack((at, len(best_s) + at)),
        left=np.zeros((len(in_group), 2), np.int64),
        passed=np.zeros(len(best_s), np.uint8),
        mapped=np.empty(AHEAD, np.int64),
        put_aside=records(ENTRY, 2 * AHEAD),
        held=np.zeros(types, np.int64),
        by_end=records(ENTRY, types * length),
        lanes=np.empty(types * length),
        lanes_held=np.zeros(types, np.int64),
    )


@outer
def advance_mapping(s: State, log: np.recarray, m: MappingState) -> bool:
    """Simulate until no event is left (return False), or until the log or the state needs more
    space (return True).
    """
    left = steps(s, log)
    while left > 0:
        if s.clock.phase == DECIDE:
            if not _decide(s, log, m):
                s.clock.phase = MOVE
        elif not move_on(s, log):
            return False
        left = left - 1 if left > 1 else steps(s, log)
    return True


@inner
def _decide(s: State, log: np.recarray, m: MappingState) -> bool:
    """Start one task. Return False if none can start."""
    _take_in(s, m)
    if not _any_fits(s, m):
        return False
    _lay_lanes(s, m)
    task, type_ = _mapped(s, m)
    _put_back(m)
    # If nothing is mapped, the tasks wait for runs to end. If nothing runs either, start a task now.
    if task < 0 and s.count.runs == 0:
        task, type_ = _oldest_that_fits(s, m), -1
    if task < 0:
        return False
    type_, node = choose(s, task, type_)
    start(s, log, task, type_, node)
    return True


@inner
def _start_of(m: MappingState, type_: int) -> int:
    """Return the position at which the entries of a type begin in ``by_end`` and in ``lanes``."""
    return type_ * (len(m.lanes) // len(m.held))


@inner
def _take_in(s: State, m: MappingState) -> None:
    """Add tasks that have become ready to their groups, and add runs that have started to the order
    of expected ends."""
    s.count.ended = 0
    for index in range(s.count.fresh):
        task = s.fresh[index]
        group = m.group[task]
        for heap in range(2):
            key = m.best_s[task] if heap == 0 else -m.best_s[task]
            push(m.by_length, m.at[group, heap], m.left[group, heap], key, task)
            m.left[group, heap] += 1
    s.count.fresh = 0
    s.count.early = 0
    for index in range(s.count.starts):
        if alive(s, s.starts[index]):
            _add_run(s, m, s.starts[index])
    s.count.starts = 0


@inner
def _add_run(s: State, m: MappingState, entry: int) -> None:
    """Insert a run into the order of expected ends."""
    run = slot_of(entry)
    type_ = int64(s.runs[run].type)
    if m.held[type_] > s.count.runs + 16:
        _drop_ended(s, m, type_)
    at, end_s = _start_of(m, type_), expected_end_s(s, run)
    place = m.held[type_]
    while place:
        other = m.by_end[at + place - 1].key
        if other < end_s or (other == end_s and m.by_end[at + place - 1].what < entry):
            break
        m.by_end[at + place].key = other
        m.by_end[at + place].what = m.by_end[at + place - 1].what
        place -= 1
    m.by_end[at + place].key = end_s
    m.by_end[at + place].what = entry
    m.held[type_] += 1


@inner
def _drop_ended(s: State, m: MappingState, type_: int) -> None:
    """Drop the runs of a type that have ended."""
    at, kept = _start_of(m, type_), int64(0)
    for place in range(m.held[type_]):
        if alive(s, m.by_end[at + place].what):
            m.by_end[at + kept].key = m.by_end[at + place].key
            m.by_end[at + kept].what = m.by_end[at + place].what
            kept += 1
    m.held[type_] = kept


@inner
def _lay_lanes(s: State, m: MappingState) -> None:
    """Compute when each GPU of each type is expected to become free, earliest first."""
    now = s.clock.now_s
    for type_ in range(len(m.held)):
        _drop_ended(s, m, type_)
        at, lanes = _start_of(m, type_), int64(0)
        for _ in range(s.types[type_].idle):
            m.lanes[at + lanes] = now
            lanes += 1
        for place in range(m.held[type_]):
            run = slot_of(m.by_end[at + place].what)
            gpus = s.classes[s.tasks[s.runs[run].task].kind].gpus * s.runs[run].count
            if gpus:
                for _ in range(max(int64(np.rint(gpus)), 1)):
                    m.lanes[at + lanes] = max(m.by_end[at + place].key, now)
                    lanes += 1
        m.lanes_held[type_] = lanes


@inner
def _mapped(s: State, m: MappingState) -> tuple[int, int]:
    """Map tasks until one of them can start. Return this task and its type, or -1 if no task can
    start."""
    for _ in range(AHEAD):
        best, best_type, best_key, best_s = int64(-1), int64(-1), 0.0, 0.0
        for group in range(len(m.kind)):
            for heap in range(2):
                task = _head(s, m, group, heap)
                if task < 0:
                    break
                key, type_, first_s = _completion(s, m, task)
                if type_ >= 0 and (best < 0 or key < best_key or (key == best_key and task < best)):
                    best, best_type, best_key, best_s = task, type_, key, first_s
        if best < 0:
            break
        kind = int64(s.tasks[best].kind)
        if fits_on(s, kind, best_type):
            return best, best_type
        m.passed[best] = 1
        m.mapped[m.count.mapped] = best
        m.count.mapped += 1
        _take_lanes(m, best_type, m.width[kind], best_s)
    return int64(-1), int64(-1)


@inner
def _head(s: State, m: MappingState, group: int, heap: int) -> int:
    """Return the first task in one of a group's heaps that has not been mapped in this decision, or
    -1 if there is none."""
    at = m.at[group, heap]
    while m.left[group, heap]:
        key, task = m.by_length[at].key, m.by_length[at].what
        if s.todo[task].waiting:
            if not m.passed[task]:
                return task
            m.put_aside[m.count.aside].key = key
            m.put_aside[m.count.aside].what = task << 1 | heap
            m.count.aside += 1
        pop(m.by_length, at, m.left[group, heap])
        m.left[group, heap] -= 1
    return int64(-1)


@inner
def _put_back(m: MappingState) -> None:
    """Return the entries of mapped tasks to their heaps."""
    for place in range(m.count.aside):
        key, task, heap = m.put_aside[place].key, m.put_aside[place].what >> 1, m.put_aside[place].what & 1
        group = m.group[task]
        push(m.by_length, m.at[group, heap], m.left[group, heap], key, task)
        m.left[group, heap] += 1
    for place in range(m.count.mapped):
        m.passed[m.mapped[place]] = 0
    m.count.mapped = 0
    m.count.aside = 0


@inner
def _completion(s: State, m: MappingState, task: int) -> tuple[float, int, float]:
    """Return the key of a task, the type on which the task can complete first, and the time of that
    completion. The type is -1 if the task cannot complete on any type."""
    kind = int64(s.tasks[task].kind)
    first_s, second_s, on, types = np.inf, np.inf, int64(-1), int64(0)
    for type_ in range(len(m.held)):
        if not s.may[kind, type_]:
            continue
        types += 1
        end_s = _free_at_s(s, m, kind, type_) + s.seconds[task, type_]
        if on < 0 or end_s < first_s:
            first_s, second_s, on = end_s, first_s, int64(type_)
        else:
            second_s = min(second_s, end_s)
    if on < 0 or first_s == np.inf:
        return 0.0, int64(-1), first_s
    if m.count.rule == MIN_MIN:
        return first_s, on, first_s
    if m.count.rule == MAX_MIN:
        return -first_s, on, first_s
    return first_s - (second_s if types > 1 else first_s), on, first_s


@inner
def _free_at_s(s: State, m: MappingState, kind: int, type_: int) -> float:
    """Return the time at which enough GPUs of a type are free for a class."""
    width = m.width[kind]
    if not width:
        return s.clock.now_s
    return m.lanes[_start_of(m, type_) + width - 1] if width <= m.lanes_held[type_] else np.inf


@inner
def _take_lanes(m: MappingState, type_: int, width: int, until_s: float) -> None:
    """Mark the GPUs of a type that become free first as taken until a given time."""
    at, place = _start_of(m, type_), int64(0)
    end = m.lanes_held[type_]
    while place + width < end and m.lanes[at + place + width] <= until_s:
        m.lanes[at + place] = m.lanes[at + place + width]
        place += 1
    for lane in range(place, place + width):
        m.lanes[at + lane] = until_s


@inner
def _any_fits(s: State, m: MappingState) -> bool:
    """Return True if the tasks of any group fit now."""
    for group in range(len(m.kind)):  # noqa: SIM110 (a generator cannot be compiled)
        if _head(s, m, group, 0) >= 0 and fits(s, m.kind[group]):
            return True
    return False


@inner
def _oldest_that_fits(s: State, m: MappingState) -> int:
    """Return the oldest task that fits among the shortest and the longest task of each group, or -1
    if none fits."""
    oldest = int64(-1)
    for group in range(len(m.kind)):
        for heap in range(2):
            task = _head(s, m, group, heap)
            if task >= 0 and (oldest < 0 or task < oldest) and fits(s, m.kind[group]):
                oldest = task
    return oldest
