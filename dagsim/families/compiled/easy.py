"""EASY backfilling: the oldest task gets a reservation, and other tasks may start before it if they
do not delay it.

The compiled counterpart of ``policies.backfilling`` (``Easy``, ``Backlog``, ``AlikeTasks``) and
``ExpectedFree``. Ready tasks are grouped by their demand, by their ratios of speed between GPU
types, and by their number of waiting instances. All tasks in a group would run on the same type and
need the same resources there, so each group is examined only once. Each group has a tree whose
leaves are its potential members, oldest first. A leaf contains the task's seconds, or ``inf`` while
the task does not wait, so the tree can find the tasks that take at most t seconds. The few tasks
that have already started some of their instances are kept in a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dagsim.families.compiled import memory
from dagsim.families.compiled.jit import by_pointer, inner, int64, outer
from dagsim.families.compiled.memory import ENTRY, MICRO, Classes, State, Work, one_record, record_type, records
from dagsim.families.compiled.node_trees import choose, count_started, fits_on, set_leaf, spot
from dagsim.families.compiled.rules import (
    DECIDE,
    MOVE,
    alive,
    drop_over,
    expected_end_s,
    move_on,
    pop,
    push,
    ready_at_s,
    slot_of,
    start,
    steps,
)
from dagsim.systems.cluster.policies.backfilling import by_order, most_slowed_first, shortest_first
from dagsim.systems.cluster.policies.formulas import slowed
from dagsim.systems.cluster.policies.orders import slowness
from dagsim.workload.array_tools import distinct_rows, places_of

BY_ORDER, BY_LENGTH, BY_SLOWDOWN = range(3)
"""Order within a group: the oldest, the shortest, or the largest slowdown first."""

GROUP_COUNT = record_type(i8="groups active loose rank searches")
"""The numbers of groups, of groups with tasks, and of partly started tasks, the rank of candidates,
and the number of searches so far."""

GROUP = record_type(i8="profile waiting behind at width members held active stuck named")
"""Fields of a group.

- ``behind``: the next group of the same profile, or -1.
- ``at``: the start of its tree of ``width`` leaves, or -1 without one. ``members``: the start of its
  tasks.
- ``held``: its number of tasks. ``active``: its index among the groups with tasks.
- ``stuck``: the search in which it was given up.
- ``named``: set once its ratios are known.
"""

_slowed = inner(slowed)

_RATIO_ERROR, _ROUNDING = 1e-8, 1e-15
"""Bounds on relative errors: of a group's ratios, which are equal to 9 digits, and of a sum of two
times."""


@by_pointer
class Groups(NamedTuple):
    """The ready tasks in the groups that EASY examines."""

    count: Any  # GROUP_COUNT
    best_s: np.ndarray  # (n,) float64
    slowness: np.ndarray  # (n,) float64: 1 / seconds on the fastest type
    ready_s: np.ndarray  # (n,) float64: when each task became ready
    group: np.ndarray  # (n,) int64: group of each task
    leaf: np.ndarray  # (n,) int64: index of the task's leaf in the group's tree, valid while all its instances wait
    task: np.ndarray  # (n,) int64: the tasks, sorted by group and then by leaf.
    # Float64: the search trees, one per group. A leaf contains the seconds of its task, or inf
    # while the task is not in the group.
    trees: np.ndarray
    first: np.ndarray  # (profiles,) int64: the first group of each profile
    groups: np.recarray  # GROUP
    ratios: np.ndarray  # (groups, types) float64: run time on each type divided by the run time on the fastest type
    active: np.ndarray  # (groups,) int64: the groups that contain tasks
    loose: np.ndarray  # (n,) int64: tasks of which some instances have already started


def new_groups(work: Work, rank: int) -> Groups:
    """Return the initial groups: one for each profile and number of instances, without ready
    tasks."""
    best_s, waiting = work.best_s, work.waiting
    profile = profiles(work, best_s, 9)
    pairs, group = distinct_rows(np.stack([profile, waiting], axis=1))
    sizes = np.bincount(group, minlength=len(pairs))
    widths = np.array([1 << int(size - 1).bit_length() for size in sizes], np.int64)
    members = np.cumsum(sizes) - sizes
    task = np.argsort(group, kind="stable")
    leaf = np.empty(len(group), np.int64)
    leaf[task] = np.arange(len(group)) - np.repeat(members, sizes)
    first, behind = _chains(pairs[:, 0])
    room = len(pairs) + memory.SPARE
    groups = records(
        GROUP,
        room,
        profile=pairs[:, 0],
        waiting=pairs[:, 1],
        behind=behind,
        at=np.cumsum(2 * widths) - 2 * widths,
        width=widths,
        members=members,
    )
    return Groups(
        count=one_record(GROUP_COUNT, groups=len(pairs), rank=rank),
        best_s=best_s,
        slowness=slowness(best_s),
        ready_s=np.empty(len(best_s)),
        group=group,
        leaf=leaf,
        task=task,
        trees=np.full(int(2 * widths.sum()), np.inf),
        first=first,
        groups=groups,
        ratios=np.empty((room, work.truth.shape[1])),
        active=np.empty(room, np.int64),
        loose=np.empty(len(best_s), np.int64),
    )


def profiles(work: Work, best_s: np.ndarray, digits: int) -> np.ndarray:
    """Return (n,) int64: the profile of each task. Tasks with the same profile have the same demand
    class and the same ratios, rounded to ``digits`` digits. All tasks of zero length count as
    having the same ratios."""
    ratios = np.zeros_like(work.seconds)
    long = best_s > 0
    with np.errstate(invalid="ignore"):
        ratios[long] = work.seconds[long] / best_s[long][:, None]
    raw, which = distinct_rows(ratios)
    numbers: dict[tuple[float, ...], int] = {}
    rounded = [tuple([round(ratio, digits) for ratio in row]) for row in raw.tolist()]
    alike = np.array([numbers.setdefault(row, len(numbers)) for row in rounded], np.int64)[which]
    return places_of(work.rows.kind.astype(np.int64) * (2 * len(numbers) + 2) + 2 * alike + long)


def _chains(profile: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first group of each profile and, for each group, the next one with the same
    profile. The groups must be sorted by profile."""
    first = np.flatnonzero(np.diff(profile, prepend=-1))
    behind = np.arange(1, len(profile) + 1)
    behind[np.append(first[1:], len(profile)) - 1] = -1
    return first, behind


@inner
def add(s: State, g: Groups, task: int, ready_s: float) -> None:
    """Add a task that became ready at ``ready_s``."""
    g.ready_s[task] = ready_s
    group = g.group[task]
    _name(s, g, group, task)
    set_leaf(g.trees, g.groups[group].at, g.groups[group].width + g.leaf[task], g.best_s[task])
    _count(g, group, 1)


@inner
def remove(s: State, g: Groups, task: int) -> None:
    """Update the groups after instances of a task have started: remove the task, or move it to the
    group with the number of instances that still wait."""
    group = g.group[task]
    if g.leaf[task] >= 0:
        set_leaf(g.trees, g.groups[group].at, g.groups[group].width + g.leaf[task], np.inf)
        g.leaf[task] = -1
    else:
        for place in range(g.count.loose):
            if g.loose[place] == task:
                g.count.loose -= 1
                g.loose[place] = g.loose[g.count.loose]
                break
    _count(g, group, -1)
    waiting = int64(s.todo[task].waiting)
    if waiting:
        group = _group_of(g, g.groups[group].profile, waiting)
        g.group[task] = group
        _name(s, g, group, task)
        g.loose[g.count.loose] = task
        g.count.loose += 1
        _count(g, group, 1)


@inner
def first_of(s: State, g: Groups, group: int, type_: int, until_s: float) -> int:
    """Find the first task of a group that would end by ``until_s`` if it started on this type now.
    Return -1 if there is none.

    The compiled counterpart of ``AlikeTasks.first``.
    """
    best = int64(-1)
    at = g.groups[group].at
    if at >= 0 and g.trees[at + 1] < np.inf:
        limit_s, certain_s = np.inf, np.inf
        if until_s < np.inf:
            # The tree contains run times on the fastest type, so convert the limit to that type.
            # The division by the group's ratio is rounded. The search therefore goes slightly
            # beyond the limit, and checks the exact end of each task it visits.
            span_s = until_s - s.clock.now_s
            slack_s = _RATIO_ERROR * span_s + _ROUNDING * until_s
            limit_s = (span_s + slack_s) / g.ratios[group, type_]
            certain_s = (span_s - slack_s) / g.ratios[group, type_]
        if g.count.rank == BY_LENGTH and g.trees[at + 1] <= certain_s:
            limit_s = g.trees[at + 1]
        best = _first_leaf(s, g, group, limit_s, type_, until_s)
    for place in range(g.count.loose):
        task = g.loose[place]
        if g.group[task] == group and _ends_by(s, task, type_, until_s) and (best < 0 or before(s, g, task, best)):
            best = task
    return best


@inner
def _ends_by(s: State, task: int, type_: int, until_s: float) -> bool:
    """Return True if a task that starts now on a type ends by ``until_s``. Like the kernel, compare
    end times, not durations."""
    return s.clock.now_s + s.seconds[task, type_] <= until_s


@inner
def before(s: State, g: Groups, one: int, other: int) -> bool:
    """Return True if one task comes before another. The order is by rank, and first come, first
    served among equal ranks."""
    one_rank, other_rank = _rank(s, g, one), _rank(s, g, other)
    return one_rank < other_rank or (one_rank == other_rank and one < other)


@inner
def _rank(s: State, g: Groups, task: int) -> float:
    if g.count.rank == BY_LENGTH:
        return g.best_s[task]
    if g.count.rank == BY_SLOWDOWN:
        return _slowed(g.ready_s[task], s.clock.now_s, g.slowness[task])
    return 0.0


@inner
def _first_leaf(s: State, g: Groups, group: int, limit_s: float, type_: int, until_s: float) -> int:
    """Among the tasks that take at most ``limit_s``, find the task with the lowest rank that ends
    by ``until_s``. Return -1 if there is none.

    The leaves are sorted by age. The search visits the subtrees that contain such a leaf from left
    to right.
    """
    at, width = g.groups[group].at, g.groups[group].width
    best = int64(-1)
    place = 1
    while place:
        if g.trees[at + place] <= limit_s and g.trees[at + place] < np.inf:
            if place < width:
                place *= 2
                continue
            task = g.task[g.groups[group].members + place - width]
            if _ends_by(s, task, type_, until_s) and (best < 0 or before(s, g, task, best)):
                best = task
                if g.count.rank == BY_ORDER or (g.count.rank == BY_LENGTH and limit_s == g.trees[at + 1]):
                    # This is the best task, because the remaining ones are younger and none of them
                    # is shorter.
                    return best
        while place & 1:
            place >>= 1
        if place:
            place += 1
    return best


@inner
def _count(g: Groups, group: int, change: int) -> None:
    """Change the number of tasks in a group, and keep the list of groups with tasks up to date."""
    held = g.groups[group].held
    g.groups[group].held = held + change
    if held == 0:
        g.groups[group].active = g.count.active
        g.active[g.count.active] = group
        g.count.active += 1
    elif held + change == 0:
        g.count.active -= 1
        last = g.active[g.count.active]
        place = g.groups[group].active
        g.active[place] = last
        g.groups[last].active = place


@inner
def _group_of(g: Groups, profile: int, waiting: int) -> int:
    """Return the group for tasks with this profile and this number of waiting instances. Create it
    if it does not exist."""
    group = g.first[profile]
    while g.groups[group].waiting != waiting:
        if g.groups[group].behind < 0:
            new = g.count.groups
            g.count.groups += 1
            g.groups[group].behind = new
            g.groups[new].profile = profile
            g.groups[new].waiting = waiting
            g.groups[new].behind = -1
            g.groups[new].at = -1
            g.groups[new].width = 0
            g.groups[new].held = 0
            g.groups[new].stuck = 0
            g.groups[new].named = 0
            return new
        group = g.groups[group].behind
    return group


@inner
def _name(s: State, g: Groups, group: int, task: int) -> None:
    """Set the ratios of a new group to those of its first task."""
    if g.groups[group].named:
        return
    g.groups[group].named = 1
    for type_ in range(len(s.types)):
        seconds = s.seconds[task, type_]
        if g.best_s[task]:
            g.ratios[group, type_] = seconds / g.best_s[task]
        else:
            g.ratios[group, type_] = 1.0 if seconds == np.inf else 0.0


_SPARE = 32


@by_pointer
class Ends(NamedTuple):
    """Heaps of ``(expected end, run)``. Entries of ended runs are dropped when they reach the top."""

    heaps: np.recarray  # (types * length,) ENTRY
    held: np.ndarray  # (types,) int64: number of entries in each heap.
    # (length,) ENTRY: entries that a search removes temporarily
    aside: np.recarray
    gpus: np.ndarray  # (K,) int64: GPUs per instance, in millionths


def new_ends(types: int, runs: int, classes: Classes) -> Ends:
    """Return empty heaps with space for ``runs`` runs, the number of slots in a state."""
    length = 2 * runs + _SPARE
    gpus = np.array([round(gpus * MICRO) for gpus in classes.table.gpus.tolist()], np.int64)
    return Ends(records(ENTRY, types * length), np.zeros(types, np.int64), records(ENTRY, length), gpus)


@inner
def look(s: State, e: Ends) -> None:
    """Add the runs that started since the last call to the heaps of expected ends."""
    for index in range(s.count.starts):
        entry = s.starts[index]
        if alive(s, entry):
            run = slot_of(entry)
            type_ = s.runs[run].type
            if e.held[type_] > 2 * s.count.runs + 16:
                e.held[type_] = drop_over(s, e.heaps, type_ * len(e.aside), e.held[type_])
            push(e.heaps, type_ * len(e.aside), e.held[type_], expected_end_s(s, run), entry)
            e.held[type_] += 1
    s.count.starts = 0


class Surplus(NamedTuple):
    """The amounts of each resource that the reserved task leaves on its type for other tasks, in
    millionths. For resources that the reserved task does not need, the amount is very large."""

    gpus: int
    cpus: int
    memory: int


_PLENTY = int64(1 << 62)


@inner
def _exceeds(s: State, e: Ends, kind: int, count: int, extra: Surplus) -> bool:
    """Return True if ``count`` instances of a class need more than the surplus."""
    if e.gpus[kind] * count > extra.gpus:
        return True
    return s.classes[kind].cpus * count > extra.cpus or s.classes[kind].memory * count > extra.memory


@inner
def reservation(s: State, e: Ends, head: int) -> tuple[float, int, Surplus]:
    """Find the earliest time at which a task fits, the type on which it then fits, and the surplus
    on that type."""
    kind = int64(s.tasks[head].kind)
    soonest, on, extra = np.inf, -1, Surplus(int64(0), int64(0), int64(0))
    for type_ in range(len(s.types)):
        if s.may[kind, type_]:
            time_s, left = _shadow(s, e, kind, type_)
            if on < 0 or time_s < soonest:
                soonest, on, extra = time_s, type_, left
    return soonest, on, extra


@inner
def _shadow(s: State, e: Ends, kind: int, type_: int) -> tuple[float, Surplus]:
    """Return the time at which enough resources of a type are free for the class, and the surplus
    at that time.

    Like the SimPy kernel, add up GPUs as floating-point numbers, and cores and memory in
    millionths.
    """
    together = int64(max(s.classes[kind].gang, 1))
    gpus = s.classes[kind].gpus * together - s.types[type_].idle if s.classes[kind].gpus > 0 else -np.inf
    cpus = s.classes[kind].cpus * together - s.types[type_].cpus if s.classes[kind].cpus > 0 else -_PLENTY
    memory = s.classes[kind].memory * together - s.types[type_].memory if s.classes[kind].memory > 0 else -_PLENTY
    at, aside = type_ * len(e.aside), 0
    lacks = gpus > 0 or cpus > 0 or memory > 0
    shadow_s = np.inf if lacks else s.clock.now_s
    while e.held[type_]:
        end_s, entry = e.heaps[at].key, e.heaps[at].what
        if not lacks and end_s > shadow_s:
            break
        pop(e.heaps, at, e.held[type_])
        e.held[type_] -= 1
        if not alive(s, entry):
            continue
        e.aside[aside].key = end_s
        e.aside[aside].what = entry
        aside += 1
        if lacks:
            shadow_s = max(end_s, s.clock.now_s)
        run = slot_of(entry)
        other, count = s.tasks[s.runs[run].task].kind, int64(s.runs[run].count)
        if s.classes[kind].gpus > 0:
            gpus -= s.classes[other].gpus * count
        if s.classes[kind].cpus > 0:
            cpus -= s.classes[other].cpus * count
        if s.classes[kind].memory > 0:
            memory -= s.classes[other].memory * count
        lacks = gpus > 0 or cpus > 0 or memory > 0
    for index in range(aside):
        push(e.heaps, at, e.held[type_], e.aside[index].key, e.aside[index].what)
        e.held[type_] += 1
    if lacks:
        return np.inf, Surplus(int64(0), int64(0), int64(0))
    spare = int64(np.rint(-gpus * MICRO)) if s.classes[kind].gpus > 0 else _PLENTY
    return shadow_s, Surplus(spare, -cpus, -memory)


RANKS: Mapping[Any, int] = {by_order: BY_ORDER, shortest_first: BY_LENGTH, most_slowed_first: BY_SLOWDOWN}
"""The compiled ranks of candidates (``_rank``), by the functions in ``policies.backfilling`` that
they copy."""


@by_pointer
class EasyState(NamedTuple):
    """The state of EASY, in addition to the engine's state."""

    g: Groups
    e: Ends


def new_easy(s: State, work: Work, classes: Classes, rank: int) -> EasyState:
    """Build the initial state of EASY."""
    return EasyState(new_groups(work, rank), new_ends(len(s.types), len(s.runs), classes))


@outer
def advance_easy(s: State, log: np.recarray, b: EasyState) -> bool:
    """Simulate until no event is left (return False), or until the log or the state needs more
    space (return True).
    """
    while steps(s, log) and b.g.count.groups < len(b.g.groups):
        if s.clock.phase == DECIDE:
            if not _decide(s, log, b):
                s.clock.phase = MOVE
        elif not move_on(s, log):
            return False
    return True


@inner
def _decide(s: State, log: np.recarray, b: EasyState) -> bool:
    """Start one task. Return False if none can start."""
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
    """Add tasks that have become ready to the queue and to the groups."""
    s.count.ended = 0
    for index in range(s.count.fresh):
        task = s.fresh[index]
        push(s.ready, 0, s.queues[0].held, 0.0, task)
        s.queues[0].held += 1
        add(s, g, task, ready_at_s(s, index))
    s.count.fresh = 0
    s.count.early = 0


@inner
def _oldest(s: State) -> int:
    """Return the oldest waiting task, or -1 if no task is waiting."""
    while s.queues[0].held:
        task = s.ready[0].what
        if s.todo[task].waiting:
            return task
        pop(s.ready, 0, s.queues[0].held)
        s.queues[0].held -= 1
    return int64(-1)


@inner
def _filler(s: State, b: EasyState, head: int) -> tuple[int, int, int]:
    """Find the first task by rank that fits and does not delay ``head``. Return it with its type
    and node, or -1 if there is none.
    """
    shadow_s, shadow_type, extra = np.inf, -1, Surplus(int64(0), int64(0), int64(0))
    b.g.count.searches += 1
    reserved = False
    while True:
        candidate = int64(-1)
        for index in range(b.g.count.active):
            group = b.g.active[index]
            if b.g.groups[group].stuck == b.g.count.searches:
                continue
            any_of = first_of(s, b.g, group, 0, np.inf)
            type_ = _fastest_with_room(s, b.g, group, s.tasks[any_of].kind)
            if type_ < 0:
                b.g.groups[group].stuck = b.g.count.searches
                continue
            if not reserved:
                shadow_s, shadow_type, extra = reservation(s, b.e, head)
                reserved = True
            until_s, takes_time = np.inf, b.g.ratios[group, type_] > 0
            if (
                takes_time
                and type_ == shadow_type
                and _takes_more(s, b.e, any_of, type_, spot(s, any_of, type_), extra)
            ):
                until_s = shadow_s
            task = any_of if until_s == np.inf else first_of(s, b.g, group, type_, until_s)
            if task >= 0 and (candidate < 0 or before(s, b.g, task, candidate)):
                candidate = task
        if candidate < 0:
            return int64(-1), -1, -1
        on, node = choose(s, candidate, -1)
        if (
            on != shadow_type
            or _ends_by(s, candidate, on, shadow_s)
            or not _takes_more(s, b.e, candidate, on, node, extra)
        ):
            return candidate, on, node
        b.g.groups[b.g.group[candidate]].stuck = b.g.count.searches


@inner
def _fastest_with_room(s: State, g: Groups, group: int, kind: int) -> int:
    """Return the type on which the group's tasks fit and are fastest, or -1 if they fit on none."""
    fastest = -1
    for type_ in range(len(s.types)):
        if (fastest < 0 or g.ratios[group, type_] < g.ratios[group, fastest]) and fits_on(s, int64(kind), type_):
            fastest = type_
    return fastest


@inner
def _takes_more(s: State, e: Ends, task: int, type_: int, node: int, extra: Surplus) -> bool:
    """Return True if a task that starts now would take more of a type than the surplus."""
    return _exceeds(s, e, int64(s.tasks[task].kind), int64(count_started(s, task, type_, node)), extra)
