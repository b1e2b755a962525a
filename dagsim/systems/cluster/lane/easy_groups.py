"""The ready tasks of EASY in groups: same demand, same ratios of speed between types, as many waiting instances.

All tasks of a group go to the same type and need the same there, so one question per group is enough. Which tasks of a
group take at most so many seconds is asked of a tree over all tasks that can be in it from the start, oldest first,
with the seconds of those that are. Tasks of which some instances have been started are few and stand in a list.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dagsim.systems.cluster.lane import state
from dagsim.systems.cluster.lane.columns import Classes, Work, record_type, records
from dagsim.systems.cluster.lane.jit import by_pointer, inner, int64
from dagsim.systems.cluster.lane.state import State

__all__ = [
    "ACTIVE",
    "BY_LENGTH",
    "BY_ORDER",
    "BY_SLOWDOWN",
    "GROUPS",
    "STAMP",
    "Groups",
    "add",
    "before",
    "first_of",
    "new_groups",
    "remove",
]

BY_ORDER, BY_LENGTH, BY_SLOWDOWN = range(3)
"""Who comes first in a group: the oldest, the shortest, the one with the largest slowdown."""

GROUPS, ACTIVE, LOOSE, RANK, STAMP, COUNTERS = range(6)
"""Places in ``Groups.n``: groups there are, groups with tasks, partly started tasks, the rank, searches so far."""

GROUP = record_type(i8="profile waiting behind at width members held active stuck named")
"""``behind``: the next group of the same profile, or -1. Its tree of ``width`` leaves begins ``at`` (-1: none), its
tasks at ``members``. It holds ``held`` tasks and stands at ``active`` among those with any. ``stuck`` is the search in
which it was given up; ``named`` is set once its ratios are known."""

_SHORTEST_S = 1e-9
"""Tasks that take no time at all count as this long."""


@by_pointer
class Groups(NamedTuple):
    """The ready tasks as EASY groups them."""

    n: np.ndarray  # (COUNTERS,) int64
    best_s: np.ndarray  # (n,) float64
    ready_s: np.ndarray  # (n,) float64: when each became ready
    group: np.ndarray  # (n,) int64: the group of each task
    leaf: np.ndarray  # (n,) int64: its leaf there while all its instances wait
    task: np.ndarray  # (n,) int64: tasks by group and leaf
    trees: np.ndarray  # float64: seconds of the tasks in each group, inf for those that are not
    first: np.ndarray  # (profiles,) int64: the first group of each profile
    groups: np.recarray  # GROUP
    ratios: np.ndarray  # (groups, types) float64: seconds over those on the fastest type
    active: np.ndarray  # (groups,) int64: those with tasks
    loose: np.ndarray  # (n,) int64: partly started tasks


def new_groups(work: Work, classes: Classes, rank: int) -> Groups:
    """The groups before anything is ready: one per profile and number of instances."""
    best_s, rows = work.best_s, work.rows
    waiting = rows.instances.astype(np.int64)
    profile = _profiles(work, best_s)
    pairs, group = np.unique(np.stack([profile, waiting], axis=1), axis=0, return_inverse=True)
    group = group.reshape(-1)
    sizes = np.bincount(group, minlength=len(pairs))
    widths = np.array([1 << int(size - 1).bit_length() for size in sizes], np.int64)
    members = np.cumsum(sizes) - sizes
    task = np.argsort(group, kind="stable")
    leaf = np.empty(len(group), np.int64)
    leaf[task] = np.arange(len(group)) - np.repeat(members, sizes)
    first, behind = _chains(pairs[:, 0])
    room = len(pairs) + state.SPARE
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
    n = np.zeros(COUNTERS, np.int64)
    n[GROUPS], n[RANK] = len(pairs), rank
    return Groups(
        n=n,
        best_s=best_s,
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


def _profiles(work: Work, best_s: np.ndarray) -> np.ndarray:
    """(n,) int64: tasks of one demand class with the same ratios, to 9 digits; those of no length are alike."""
    ratios = np.zeros_like(work.seconds)
    long = best_s > 0
    with np.errstate(invalid="ignore"):
        ratios[long] = work.seconds[long] / best_s[long][:, None]
    raw, which = np.unique(ratios, axis=0, return_inverse=True)
    numbers: dict[tuple[float, ...], int] = {}
    rounded = [tuple([round(ratio, 9) for ratio in row]) for row in raw.tolist()]
    alike = np.array([numbers.setdefault(row, len(numbers)) for row in rounded], np.int64)[which.reshape(-1)]
    keys = work.rows.kind.astype(np.int64) * (2 * len(numbers) + 2) + 2 * alike + long
    _, profile = np.unique(keys, return_inverse=True)
    return profile.reshape(-1)


def _chains(profile: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first group of each profile, and the next one behind each group; groups stand by profile."""
    first = np.flatnonzero(np.diff(profile, prepend=-1))
    behind = np.arange(1, len(profile) + 1)
    behind[np.append(first[1:], len(profile)) - 1] = -1
    return first, behind


@inner
def add(s: State, g: Groups, task: int) -> None:
    """Take in a task that has become ready."""
    g.ready_s[task] = s.now[0]
    group = g.group[task]
    _name(s, g, group, task)
    _write(g, group, g.leaf[task], g.best_s[task])
    _count(g, group, 1)


@inner
def remove(s: State, g: Groups, task: int) -> None:
    """Note that instances of a task were started: it is gone, or in the group of those with as many waiting."""
    group = g.group[task]
    if g.leaf[task] >= 0:
        _write(g, group, g.leaf[task], np.inf)
        g.leaf[task] = -1
    else:
        for place in range(g.n[LOOSE]):
            if g.loose[place] == task:
                g.n[LOOSE] -= 1
                g.loose[place] = g.loose[g.n[LOOSE]]
                break
    _count(g, group, -1)
    waiting = int64(s.todo[task].waiting)
    if waiting:
        group = _group_of(g, g.groups[group].profile, waiting)
        g.group[task] = group
        _name(s, g, group, task)
        g.loose[g.n[LOOSE]] = task
        g.n[LOOSE] += 1
        _count(g, group, 1)


@inner
def first_of(s: State, g: Groups, group: int, most_s: float) -> int:
    """Find the first task of a group of those that take at most ``most_s``, or -1."""
    found = int64(-1)
    at, width = g.groups[group].at, g.groups[group].width
    if at >= 0 and g.trees[at + 1] <= most_s and g.trees[at + 1] < np.inf:
        if g.n[RANK] == BY_SLOWDOWN:
            found = _slowest(s, g, group, most_s)
        else:
            limit = most_s if g.n[RANK] == BY_ORDER else g.trees[at + 1]
            place = 1
            while place < width:
                place *= 2
                if not (g.trees[at + place] <= limit and g.trees[at + place] < np.inf):
                    place += 1
            found = g.task[g.groups[group].members + place - width]
    for each in range(g.n[LOOSE]):
        task = g.loose[each]
        if g.group[task] == group and g.best_s[task] <= most_s and (found < 0 or before(s, g, task, found)):
            found = task
    return found


@inner
def before(s: State, g: Groups, one: int, other: int) -> bool:
    """True if one task comes before another by the rank, then first come, first served."""
    mine, its = _rank(s, g, one), _rank(s, g, other)
    return mine < its or (mine == its and one < other)


@inner
def _rank(s: State, g: Groups, task: int) -> float:
    if g.n[RANK] == BY_LENGTH:
        return g.best_s[task]
    if g.n[RANK] == BY_SLOWDOWN:
        return (g.ready_s[task] - s.now[0]) * (1.0 / max(g.best_s[task], _SHORTEST_S))
    return 0.0


@inner
def _slowest(s: State, g: Groups, group: int, most_s: float) -> int:
    """Find the task with the largest slowdown among the leaves: a walk over all that are short enough."""
    at, width = g.groups[group].at, g.groups[group].width
    found = int64(-1)
    place = 1
    while place:
        if g.trees[at + place] <= most_s and g.trees[at + place] < np.inf:
            if place < width:
                place *= 2
                continue
            task = g.task[g.groups[group].members + place - width]
            if found < 0 or before(s, g, task, found):
                found = task
        while place & 1:
            place >>= 1
        if place:
            place += 1
    return found


@inner
def _write(g: Groups, group: int, leaf: int, seconds: float) -> None:
    """Write a leaf of the group's tree, and what follows from it above."""
    at = g.groups[group].at
    place = g.groups[group].width + leaf
    while place and g.trees[at + place] != seconds:
        g.trees[at + place] = seconds
        if place > 1:
            seconds = min(seconds, g.trees[at + (place ^ 1)])
        place >>= 1


@inner
def _count(g: Groups, group: int, change: int) -> None:
    """Count the tasks of a group, and keep the list of groups with any."""
    held = g.groups[group].held
    g.groups[group].held = held + change
    if held == 0:
        g.groups[group].active = g.n[ACTIVE]
        g.active[g.n[ACTIVE]] = group
        g.n[ACTIVE] += 1
    elif held + change == 0:
        g.n[ACTIVE] -= 1
        last = g.active[g.n[ACTIVE]]
        place = g.groups[group].active
        g.active[place] = last
        g.groups[last].active = place


@inner
def _group_of(g: Groups, profile: int, waiting: int) -> int:
    """Find the group of a profile with so many waiting instances, or make it."""
    group = g.first[profile]
    while g.groups[group].waiting != waiting:
        if g.groups[group].behind < 0:
            new = g.n[GROUPS]
            g.n[GROUPS] += 1
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
    """Take the ratios of the group from the first task it ever gets."""
    if g.groups[group].named:
        return
    g.groups[group].named = 1
    for type_ in range(len(s.types)):
        seconds = s.seconds[task, type_]
        if g.best_s[task]:
            g.ratios[group, type_] = seconds / g.best_s[task]
        else:
            g.ratios[group, type_] = 1.0 if seconds == np.inf else 0.0
