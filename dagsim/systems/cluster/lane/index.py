"""The next node: one tournament tree per demand class and type over the nodes of the type.

A leaf is the node's *score*, the smaller the better, ``NONE`` without room. Each inner place holds the smaller of the
two below it, so the root is the best score and the way down to it, left where both are equal, the first node that has
it. A placement is nothing but another score. Gangs over several nodes want those with the most room first: their
classes have a second tree, of minus the room, and keep its sum.

Trees are brought up to date when they are asked: each replays the nodes that changed since, O(log nodes) a change.
"""

from __future__ import annotations

from dagsim.systems.cluster.lane.columns import MICRO
from dagsim.systems.cluster.lane.jit import inner
from dagsim.systems.cluster.lane.machines import free_cores, room, tightest
from dagsim.systems.cluster.lane.state import BEST, CHANGES, CONSOLIDATE, FIRST, NONE, PLACEMENT, RING, WORST, State

__all__ = ["fits_on", "has_room", "pouring", "set_leaf", "sync", "top", "tree_of"]


@inner
def tree_of(s: State, kind: int, type_: int) -> int:
    """The tree of a demand class on a type."""
    return kind * len(s.types) + type_


@inner
def fits_on(s: State, kind: int, type_: int) -> bool:
    """True if an instance, or the whole gang, could start on a type now."""
    if not s.may[kind, type_]:
        return False
    sync(s, kind, type_)
    return has_room(s, kind, type_)


@inner
def has_room(s: State, kind: int, type_: int) -> bool:
    """As ``fits_on``, of a tree that is up to date."""
    tree = tree_of(s, kind, type_)
    if s.classes[kind].gang:
        return s.trees[tree].total >= s.classes[kind].gang
    return s.leaves[s.trees[tree].at + 1] != NONE


@inner
def pouring(s: State, tree: int) -> int:
    """The beginning of the tree whose order a start over several nodes goes by."""
    by_room = s.n[PLACEMENT] in (BEST, CONSOLIDATE)
    return s.trees[tree].wide if by_room else s.trees[tree].at


@inner
def top(s: State, at: int, width: int, last: bool) -> int:
    """The place of the best leaf, the first (or the last) of equals; there must be one with room."""
    best = s.leaves[at + 1]
    place = 1
    while place < width:
        place *= 2
        if last:
            if s.leaves[at + place + 1] == best:
                place += 1
        elif s.leaves[at + place] != best:
            place += 1
    return place - width


@inner
def sync(s: State, kind: int, type_: int) -> None:
    """Bring the tree of a class and type that may run it up to date."""
    tree = tree_of(s, kind, type_)
    changes, seen, count = s.n[CHANGES], s.trees[tree].seen, s.types[type_].count
    if seen == changes:
        return
    anew = seen < 0 or changes - seen > min(RING, count)
    if seen < 0:
        for place in range(2 * s.trees[tree].width):
            s.leaves[s.trees[tree].at + place] = NONE
            if s.trees[tree].wide >= 0:
                s.leaves[s.trees[tree].wide + place] = NONE
    for each in range(0 if anew else seen, count if anew else changes):
        node = s.by_type[type_, each] if anew else s.ring[each & (RING - 1)]
        if s.nodes[node].type == type_:
            _update(s, kind, tree, node)
    s.trees[tree].seen = changes


@inner
def set_leaf(s: State, at: int, place: int, value: int) -> None:
    """Write a leaf of the tree that begins at ``at``, and what follows from it above."""
    while place and s.leaves[at + place] != value:
        s.leaves[at + place] = value
        if place > 1:
            value = min(value, s.leaves[at + (place ^ 1)])
        place >>= 1


@inner
def _update(s: State, kind: int, tree: int, node: int) -> None:
    fits = room(s, kind, node)
    leaf = s.trees[tree].width + s.nodes[node].place
    wide = s.trees[tree].wide
    if wide >= 0:
        before = s.leaves[wide + leaf]
        s.trees[tree].total += fits + (0 if before == NONE else before)
        set_leaf(s, wide, leaf, -fits if fits else NONE)
    set_leaf(s, s.trees[tree].at, leaf, _score(s, kind, node, fits))


@inner
def _score(s: State, kind: int, node: int, fits: int) -> int:
    """The rank of a node that has room for ``fits`` instances."""
    placement, gang = s.n[PLACEMENT], s.classes[kind].gang
    if not fits:
        return NONE
    if placement == FIRST:
        return 0
    if placement == CONSOLIDATE:
        return fits if fits >= gang else NONE
    on_gpus = s.classes[kind].whole or s.classes[kind].share
    level = s.nodes[node].idle if on_gpus else free_cores(s, node)
    if placement == WORST:
        return -level
    if fits < gang:
        return NONE
    if not s.classes[kind].share:
        return level
    if not s.nodes[node].partly:
        return MICRO + level
    if gang:
        return 0
    gpu = tightest(s, node, s.classes[kind].share)
    return MICRO if gpu < 0 else s.left[node, gpu]
