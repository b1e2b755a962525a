"""Search for nodes: how many instances fit on each node, the trees that find the next node, and the
choice of a type and a node for a task.

The compiled counterpart of ``ClusterState`` (``nodes``) and of four placement rules. A placement
rule is a score for each node (``_score``). The node with the smallest score comes first. If a gang
spans several nodes, it uses the nodes on which the most instances fit. Each of their classes
therefore has a second tree next to the first. It contains the negative number of instances that fit
on each node, and the sum of these numbers.
"""

from __future__ import annotations

import numpy as np

from dagsim.families.compiled.jit import inner, int64
from dagsim.families.compiled.memory import BEST, CONSOLIDATE, FIRST, MICRO, NAMED_GPUS, NONE, WORST, State

SPREAD = -2
"""Used instead of a node number if a task starts on several nodes."""
_ENOUGH = 1 << 40
"""Number of instances that are assumed to fit if a task needs no resources."""


@inner
def room(s: State, kind: int, node: int) -> int:
    """Count the instances of a demand class that could start on a node now."""
    return room_among(s, s.nodes, s.left, kind, node)


@inner
def room_among(s: State, nodes: np.recarray, left: np.ndarray, kind: int, node: int) -> int:
    """Count the instances that could start on a node whose free resources and shared GPUs are
    given."""
    whole, share = s.classes[kind].whole, s.classes[kind].share
    if whole:
        count = nodes[node].idle if whole == 1 else nodes[node].idle // whole
    elif share:
        count = nodes[node].idle * (MICRO // share)
        if nodes[node].partly:
            for gpu in range(nodes[node].gpus):
                if left[node, gpu] > 0:
                    count += left[node, gpu] // share
    else:
        count = _ENOUGH
    if s.classes[kind].cpus:
        count = min(count, nodes[node].cpus // s.classes[kind].cpus)
    if s.classes[kind].memory:
        count = min(count, nodes[node].memory // s.classes[kind].memory)
    return count


@inner
def free_cores(s: State, node: int) -> int:
    """Return the number of cores that are entirely free. Numbers above 4,095 count as 4,095."""
    return min(s.nodes[node].cpus // MICRO, 4095)


@inner
def tightest(s: State, node: int, share: int) -> int:
    """Return the partly used GPU on which ``share`` fits with the least free share left, or -1 if
    it fits on none."""
    best, least = -1, MICRO + 1
    if s.nodes[node].partly:
        for gpu in range(s.nodes[node].gpus):
            if share <= s.left[node, gpu] < least:
                best, least = gpu, s.left[node, gpu]
    return best


@inner
def take(s: State, kind: int, node: int, count: int, run: int, gpus: int) -> int:
    """Occupy a node with ``count`` instances of ``run``, and return the bit mask of the GPUs that
    they hold. ``gpus`` is the bit mask of GPUs to use. If it is 0, the GPUs are chosen here."""
    held = int64(0)
    if s.classes[kind].share:
        last = -1
        for _ in range(count):
            gpu = _take_share(s, node, s.classes[kind].share, gpus)
            if gpu == last:
                s.holds[s.runs[run].last].count += 1
            else:
                bit = int64(1) << gpu
                _note(s, run, node, 1, bit, gpu)
                held |= bit
                last = gpu
    else:
        held = _take_whole(s, node, s.classes[kind].whole * count, gpus)
        _note(s, run, node, count, held, -1)
    s.nodes[node].cpus -= s.classes[kind].cpus * count
    s.nodes[node].memory -= s.classes[kind].memory * count
    s.types[s.nodes[node].type].cpus -= s.classes[kind].cpus * count
    s.types[s.nodes[node].type].memory -= s.classes[kind].memory * count
    _changed(s, node)
    return held


@inner
def give_back(s: State, kind: int, hold: int) -> None:
    """Release the resources of a hold, and free its record."""
    node, count, held, gpu = s.holds[hold].node, s.holds[hold].count, s.holds[hold].mask, s.holds[hold].gpu
    whole, share = s.classes[kind].whole * count, s.classes[kind].share * count
    if whole:
        s.nodes[node].free |= held
        s.nodes[node].idle += whole
        s.types[s.nodes[node].type].idle += whole
    elif share:
        s.left[node, gpu] += share
        if s.left[node, gpu] == MICRO:
            s.left[node, gpu] = -1
            s.nodes[node].free |= held
            s.nodes[node].partly -= 1
            s.nodes[node].idle += 1
            s.types[s.nodes[node].type].idle += 1
    s.nodes[node].cpus += s.classes[kind].cpus * count
    s.nodes[node].memory += s.classes[kind].memory * count
    s.types[s.nodes[node].type].cpus += s.classes[kind].cpus * count
    s.types[s.nodes[node].type].memory += s.classes[kind].memory * count
    s.holds[hold].next = s.count.holds_free
    s.count.holds_free = hold
    s.count.holds -= 1
    _changed(s, node)


@inner
def _take_whole(s: State, node: int, needed: int, gpus: int) -> int:
    """Take ``needed`` idle GPUs and return their bit mask. These are the GPUs in ``gpus`` or, if it
    is 0, those with the lowest numbers.
    """
    free = s.nodes[node].free
    held = gpus
    if not gpus and needed == s.nodes[node].idle:
        held = free
    elif not gpus and s.nodes[node].gpus <= NAMED_GPUS:
        for _ in range(needed):
            held |= (free ^ held) & -(free ^ held)
    s.nodes[node].free = free ^ held
    s.nodes[node].idle -= needed
    s.types[s.nodes[node].type].idle -= needed
    return held


@inner
def _take_share(s: State, node: int, share: int, gpus: int) -> int:
    """Take a share of a GPU and return the number of the GPU. This is the GPU in ``gpus``. If
    ``gpus`` is 0, it is the partly used GPU with the least free share that is sufficient, or else
    the first idle GPU.
    """
    gpu = -1 if gpus else tightest(s, node, share)
    if gpu < 0:
        among = gpus if gpus else s.nodes[node].free
        gpu = 0
        while not among >> gpu & 1:
            gpu += 1
    if s.left[node, gpu] < 0:
        s.nodes[node].free ^= int64(1) << gpu
        s.left[node, gpu] = MICRO
        s.nodes[node].partly += 1
        s.nodes[node].idle -= 1
        s.types[s.nodes[node].type].idle -= 1
    s.left[node, gpu] -= share
    return gpu


@inner
def _note(s: State, run: int, node: int, count: int, held: int, gpu: int) -> None:
    """Append a hold to the list of a run's holds."""
    hold = s.count.holds_free
    if hold < 0:
        hold = s.count.holds_top
        s.count.holds_top += 1
    else:
        s.count.holds_free = s.holds[hold].next
    s.count.holds += 1
    s.holds[hold].node = node
    s.holds[hold].count = count
    s.holds[hold].mask = held
    s.holds[hold].gpu = gpu
    s.holds[hold].next = -1
    if s.runs[run].first < 0:
        s.runs[run].first = hold
    else:
        s.holds[s.runs[run].last].next = hold
    s.runs[run].last = hold


@inner
def _changed(s: State, node: int) -> None:
    """Record that a node has changed, so that the trees are updated before their next use."""
    s.ring[s.count.changes & (len(s.ring) - 1)] = node
    s.count.changes += 1


_TYPES = 1 << 32
"""A number larger than the number of nodes in any cluster."""


@inner
def choose(s: State, task: int, only: int) -> tuple[int, int]:
    """Choose a type and a node (or ``SPREAD``) for a task. Return -1 if it does not fit. ``only``
    restricts the choice to one type, and -1 allows all types.

    Types are tried in order of speed, fastest first. Best fit compares equally fast types, and
    first fit and consolidate compare all types.
    """
    kind = int64(s.tasks[task].kind)
    if len(s.types) == 1:
        only = 0
    best_type, best_node, best_rank, best_s = -1, -1, NONE, 0.0
    type_ = only if only >= 0 else _next_type(s, kind, task, -1)
    while type_ >= 0:
        if best_type >= 0 and s.rule.placement == BEST and s.seconds[task, type_] > best_s:
            break
        if fits_on(s, kind, type_):
            at = spot(s, task, type_)
            if only >= 0:
                return type_, at
            rank = _rank(s, task, type_, at)
            if rank < best_rank:
                best_type, best_node, best_rank, best_s = type_, at, rank, s.seconds[task, type_]
            if s.rule.placement == WORST:
                break
        if only >= 0:
            break
        type_ = _next_type(s, kind, task, type_)
    return best_type, best_node


@inner
def spot(s: State, task: int, type_: int) -> int:
    """Find the node for a task on a type on which the task fits, or return ``SPREAD``. The tree
    must be up to date."""
    kind = int64(s.tasks[task].kind)
    tree, placement, gang = tree_of(s, kind, type_), s.rule.placement, s.classes[kind].gang
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
    """Return how many instances would start if the task were started on that type and node."""
    kind = int64(s.tasks[task].kind)
    waiting = int64(s.todo[task].waiting)
    if s.classes[kind].gang or waiting == 1:
        return waiting
    return min(waiting, s.trees[tree_of(s, kind, type_)].total if node == SPREAD else room(s, kind, node))


@inner
def _next_type(s: State, kind: int, task: int, last: int) -> int:
    """Find the GPU type that follows ``last`` if types are sorted by the seconds of the task and
    then by number. If ``last`` is -1, find the first type. Return -1 after the last type."""
    next_type = -1
    for type_ in range(len(s.types)):
        if not s.may[kind, type_]:
            continue
        seconds = s.seconds[task, type_]
        if last >= 0 and (seconds < s.seconds[task, last] or (seconds == s.seconds[task, last] and type_ <= last)):
            continue
        if next_type < 0 or seconds < s.seconds[task, next_type]:
            next_type = type_
    return next_type


@inner
def _rank(s: State, task: int, type_: int, node: int) -> int:
    """Return a rank for the node that was chosen on a type, which can be compared between types.
    Smaller is better."""
    kind = int64(s.tasks[task].kind)
    tree = tree_of(s, kind, type_)
    if s.rule.placement == CONSOLIDATE:
        if node != SPREAD:
            return 1 - count_started(s, task, type_, node) * _TYPES
        return _nodes_needed(s, task, type_) - count_started(s, task, type_, node) * _TYPES
    first = node
    if node == SPREAD:
        first = s.by_type[type_, top(s, pouring(s, tree), s.trees[tree].width, False)]
    return first if s.rule.placement == FIRST else s.nodes[first].idle


@inner
def _smallest_that_holds(s: State, tree: int, type_: int, needed: int) -> int:
    """Find the node on which the fewest instances fit, among those on which enough fit. Return
    ``SPREAD`` if there is none. If several nodes are equally good, the last of them is chosen.
    O(nodes).
    """
    wide, width = s.trees[tree].wide, s.trees[tree].width
    best, least = SPREAD, NONE
    if s.leaves[wide + 1] != NONE and -s.leaves[wide + 1] >= needed:
        for place in range(s.types[type_].count):
            fits = -s.leaves[wide + width + place]
            if needed <= fits <= least:
                best, least = s.by_type[type_, place], fits
    return best


@inner
def _nodes_needed(s: State, task: int, type_: int) -> int:
    """Return the number of nodes that the task would occupy if it started on several nodes. The
    tree is changed during the count, and then restored.
    """
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
        set_leaf(s.leaves, wide, width + place, NONE)
    for index in range(nodes):
        set_leaf(s.leaves, wide, width + s.path[index], -room(s, kind, s.by_type[type_, s.path[index]]))
    return nodes


@inner
def tree_of(s: State, kind: int, type_: int) -> int:
    """Return the index (in ``trees``) of the search tree of a demand class on a type."""
    return kind * len(s.types) + type_


@inner
def fits_on(s: State, kind: int, type_: int) -> bool:
    """Return True if an instance (or the whole gang) could start on a type now."""
    if not s.may[kind, type_]:
        return False
    sync(s, kind, type_)
    return has_room(s, kind, type_)


@inner
def fits(s: State, kind: int) -> bool:
    """Return True if an instance (or the whole gang) could start on some type now."""
    for type_ in range(len(s.types)):  # noqa: SIM110 (a generator cannot be compiled)
        if fits_on(s, kind, type_):
            return True
    return False


@inner
def has_room(s: State, kind: int, type_: int) -> bool:
    """Return the result of ``fits_on`` for a tree that is already up to date."""
    tree = tree_of(s, kind, type_)
    if s.classes[kind].gang:
        return s.trees[tree].total >= s.classes[kind].gang
    return s.leaves[s.trees[tree].at + 1] != NONE


@inner
def pouring(s: State, tree: int) -> int:
    """Return the offset of the tree that is used for tasks that start on several nodes."""
    by_room = s.rule.placement in (BEST, CONSOLIDATE)
    return s.trees[tree].wide if by_room else s.trees[tree].at


@inner
def top(s: State, at: int, width: int, last: bool) -> int:
    """Return the position of the best leaf. If several are equally good, return the first (or the
    last) of them. At least one instance must fit on some node.
    """
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
    """Bring the tree of a class and a type up to date. The class must be allowed to run on the
    type."""
    tree = tree_of(s, kind, type_)
    changes, seen, count = s.count.changes, s.trees[tree].seen, s.types[type_].count
    if seen == changes:
        return
    anew = seen < 0 or changes - seen > min(len(s.ring), count)
    if seen < 0:
        for place in range(2 * s.trees[tree].width):
            s.leaves[s.trees[tree].at + place] = NONE
            if s.trees[tree].wide >= 0:
                s.leaves[s.trees[tree].wide + place] = NONE
    for index in range(0 if anew else seen, count if anew else changes):
        node = s.by_type[type_, index] if anew else s.ring[index & (len(s.ring) - 1)]
        if s.nodes[node].type == type_:
            _update(s, kind, tree, node)
    s.trees[tree].seen = changes


@inner
def set_leaf(leaves: np.ndarray, at: int, place: int, value: float) -> None:
    """Write a leaf of the tree that begins at ``at``, and update the minima up to the root."""
    while place and leaves[at + place] != value:
        leaves[at + place] = value
        if place > 1:
            value = min(value, leaves[at + (place ^ 1)])
        place >>= 1


@inner
def _update(s: State, kind: int, tree: int, node: int) -> None:
    fits = room(s, kind, node)
    leaf = s.trees[tree].width + s.nodes[node].place
    wide = s.trees[tree].wide
    if wide >= 0:
        before = s.leaves[wide + leaf]
        s.trees[tree].total += fits + (0 if before == NONE else before)
        set_leaf(s.leaves, wide, leaf, -fits if fits else NONE)
    set_leaf(s.leaves, s.trees[tree].at, leaf, _score(s, kind, node, fits))


@inner
def _score(s: State, kind: int, node: int, fits: int) -> int:
    """Return the score by which the placement rule ranks a node on which ``fits`` instances fit."""
    placement, gang = s.rule.placement, s.classes[kind].gang
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
