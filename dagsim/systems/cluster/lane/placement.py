"""Placement of a chosen task: the type, and the node or several of them."""

from __future__ import annotations

from dagsim.systems.cluster.lane.index import fits_on, pouring, set_leaf, top, tree_of
from dagsim.systems.cluster.lane.jit import inner, int64
from dagsim.systems.cluster.lane.kernel import SPREAD
from dagsim.systems.cluster.lane.machines import room
from dagsim.systems.cluster.lane.state import BEST, CONSOLIDATE, FIRST, NONE, PLACEMENT, WORST, State

__all__ = ["choose", "count_started", "spot"]

_TYPES = 1 << 32
"""Above any number of nodes."""


@inner
def choose(s: State, task: int, only: int) -> tuple[int, int]:
    """Choose type and node (or ``SPREAD``) for a task, -1 without room; ``only`` is the one type to look at, or -1.

    Types come fastest first. Best fit looks on among equally fast ones, first fit and consolidate among all.
    """
    kind = int64(s.tasks[task].kind)
    if len(s.types) == 1:
        only = 0
    found, node, least, seconds = -1, -1, NONE, 0.0
    type_ = only if only >= 0 else _next_type(s, kind, task, -1)
    while type_ >= 0:
        if found >= 0 and s.n[PLACEMENT] == BEST and s.seconds[task, type_] > seconds:
            break
        if fits_on(s, kind, type_):
            at = spot(s, task, type_)
            if only >= 0:
                return type_, at
            rank = _rank(s, task, type_, at)
            if rank < least:
                found, node, least, seconds = type_, at, rank, s.seconds[task, type_]
            if s.n[PLACEMENT] == WORST:
                break
        if only >= 0:
            break
        type_ = _next_type(s, kind, task, type_)
    return found, node


@inner
def spot(s: State, task: int, type_: int) -> int:
    """Find the node for a task on a type that has room, or ``SPREAD``; its tree must be up to date."""
    kind = int64(s.tasks[task].kind)
    tree, placement, gang = tree_of(s, kind, type_), s.n[PLACEMENT], s.classes[kind].gang
    at, width = s.trees[tree].at, s.trees[tree].width
    if gang and placement in (FIRST, WORST):
        return SPREAD
    needed = gang if gang else int64(s.todo[task].waiting)
    if placement == CONSOLIDATE and not gang and needed > 1:
        return _smallest_that_holds(s, tree, type_, needed)
    if s.leaves[at + 1] == NONE:
        return SPREAD
    return s.by_type[type_, top(s, at, width, placement == CONSOLIDATE)]


@inner
def count_started(s: State, task: int, type_: int, node: int) -> int:
    """Count the instances that a start of the task there would start."""
    kind = int64(s.tasks[task].kind)
    waiting = int64(s.todo[task].waiting)
    if s.classes[kind].gang or waiting == 1:
        return waiting
    return min(waiting, s.trees[tree_of(s, kind, type_)].total if node == SPREAD else room(s, kind, node))


@inner
def _next_type(s: State, kind: int, task: int, last: int) -> int:
    """Find the type behind ``last`` (-1: the first) in the order of (seconds, number), -1 behind the last."""
    found = -1
    for type_ in range(len(s.types)):
        if not s.may[kind, type_]:
            continue
        seconds = s.seconds[task, type_]
        if last >= 0 and (seconds < s.seconds[task, last] or (seconds == s.seconds[task, last] and type_ <= last)):
            continue
        if found < 0 or seconds < s.seconds[task, found]:
            found = type_
    return found


@inner
def _rank(s: State, task: int, type_: int, node: int) -> int:
    """Rank what was found on a type against other types, smaller first."""
    kind = int64(s.tasks[task].kind)
    tree = tree_of(s, kind, type_)
    if s.n[PLACEMENT] == CONSOLIDATE:
        if node != SPREAD:
            return 1 - count_started(s, task, type_, node) * _TYPES
        return _nodes_needed(s, task, type_) - count_started(s, task, type_, node) * _TYPES
    first = node
    if node == SPREAD:
        first = s.by_type[type_, top(s, pouring(s, tree), s.trees[tree].width, False)]
    return first if s.n[PLACEMENT] == FIRST else s.nodes[first].idle


@inner
def _smallest_that_holds(s: State, tree: int, type_: int, needed: int) -> int:
    """Find the node with the least room that holds them all, else ``SPREAD``. Of equals the last. O(nodes)."""
    wide, width = s.trees[tree].wide, s.trees[tree].width
    found, least = SPREAD, NONE
    if s.leaves[wide + 1] != NONE and -s.leaves[wide + 1] >= needed:
        for place in range(s.types[type_].count):
            fits = -s.leaves[wide + width + place]
            if needed <= fits <= least:
                found, least = s.by_type[type_, place], fits
    return found


@inner
def _nodes_needed(s: State, task: int, type_: int) -> int:
    """Count the nodes a start over several would take: pour in the tree, then put back what was taken out."""
    kind = int64(s.tasks[task].kind)
    tree = tree_of(s, kind, type_)
    wide, width = s.trees[tree].wide, s.trees[tree].width
    needed, nodes = int64(s.todo[task].waiting), 0
    while needed > 0 and s.leaves[wide + 1] != NONE:
        place = top(s, wide, width, False)
        fits = -s.leaves[wide + width + place]
        s.path[nodes] = place
        needed -= fits
        nodes += 1
        set_leaf(s, wide, width + place, NONE)
    for each in range(nodes):
        set_leaf(s, wide, width + s.path[each], -room(s, kind, s.by_type[type_, s.path[each]]))
    return nodes
