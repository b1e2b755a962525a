"""Preemptive policies that prefer the least remaining time or service: pieces, the search for runs
to stop, and the simulation loop.

The compiled counterpart of ``policies.preemption.LeastRemaining`` and ``make_room``. A ready task
that does not fit may replace the runs with the most remaining time or service. Each of these runs
must have more left than the task needs on its type. There is one heap per weight, because among
runs of equal weight the one that ends last always has the most left. The search works on copies of
the nodes. It removes one run after another from the copies until the task fits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dagsim.families.compiled.jit import by_pointer, inner, int64, outer
from dagsim.families.compiled.list_scheduling import AllTasks, KeyColumns, first_task, take_in
from dagsim.families.compiled.memory import ENTRY, MICRO, State, one_record, record_type, records
from dagsim.families.compiled.node_trees import choose, room, room_among, sync, tree_of
from dagsim.families.compiled.rules import (
    DECIDE,
    MOVE,
    PREEMPTED,
    alive,
    drop_over,
    expected_end_s,
    move_on,
    origin_of,
    pop,
    push,
    slot_of,
    start,
    steps,
    stop,
)
from dagsim.model.queues import OVERDUE_S
from dagsim.systems.cluster.policies.preemption import Weight

SEARCH_COUNT = record_type(i8="doomed chosen searches")
"""Number of runs to be stopped, of runs examined in this search, and of searches so far."""


@by_pointer
class RoomSearch(NamedTuple):
    """Working space for the search for runs to stop."""

    count: Any  # SEARCH_COUNT
    nodes: np.recarray  # (N,) NODE: copies of the nodes, as if the examined runs had stopped
    left: np.ndarray  # (N, largest number of GPUs) int64: the same as State.left, for the copies
    touched: np.ndarray  # (N,) int64: number of the search in which each node was last copied
    fits: np.ndarray  # (N,) int64: number of instances that fit on the copy.
    # (types,) int64: number of additional instances that would fit on the nodes of a type if the
    # examined runs stopped
    gain: np.ndarray
    chosen: np.ndarray  # (runs,) int64: slots of the examined runs
    doomed: np.ndarray  # (runs,) int64: slots of the runs to be stopped


def new_room(s: State) -> RoomSearch:
    """Return the initial working space."""
    nodes, runs = len(s.nodes), len(s.runs)
    return RoomSearch(
        count=one_record(SEARCH_COUNT),
        nodes=s.nodes.copy(),
        left=s.left.copy(),
        touched=np.zeros(nodes, np.int64),
        fits=np.zeros(nodes, np.int64),
        gain=np.zeros(len(s.types), np.int64),
        chosen=np.empty(runs, np.int64),
        doomed=np.empty(runs, np.int64),
    )


@inner
def enough_pieces(s: State) -> bool:
    """Return True if there is space for one more piece, and for all newly ready tasks in each
    queue."""
    if s.count.pieces >= len(s.origin):
        return False
    if s.count.fresh:
        for queue in range(len(s.queues)):
            if s.queues[queue].held + s.count.fresh > s.queues[queue].most:
                return False
    return True


@inner
def drop_stopped(s: State) -> None:
    """Drop the end events of stopped runs from the front of the heap."""
    while s.count.ends and not alive(s, s.ends[0].what):
        pop(s.ends, 0, s.count.ends)
        s.count.ends -= 1


@inner
def preempt(s: State, log: np.recarray, run: int, keeps: bool, weight: float) -> None:
    """Stop a run. Its instances become ready again. If ``keeps`` is set, they have only the
    remaining work left to do.

    The key of the new piece is ``weight`` times its seconds. A weight of 0 means that keys are not
    used.
    """
    task, count = s.runs[run].task, s.runs[run].count
    origin, left = origin_of(s, task), 1.0
    if keeps:
        seconds = s.runs[run].seconds
        done = (s.clock.now_s - s.runs[run].start_s) / seconds if seconds else 0.0
        left = s.work_left[task] * max(0.0, 1.0 - done)
    stop(s, log, run, PREEMPTED)
    place = s.count.pieces
    piece = len(s.fresh) - len(s.origin) + place
    s.count.pieces += 1
    s.origin[place] = origin
    s.tasks[piece].job = s.tasks[task].job
    s.tasks[piece].kind = s.tasks[task].kind
    s.todo[piece].waiting = count
    s.work_left[piece] = left
    kept = left / s.work_left[task] if left != s.work_left[task] else 1.0
    for type_ in range(len(s.types)):
        s.truth[piece, type_] = s.truth[origin, type_] * left
        s.seconds[piece, type_] = s.seconds[task, type_] * kept
        if s.rule.limits and left != s.work_left[task] and s.seconds[origin, type_] < np.inf:
            limit_s = s.seconds[origin, type_]  # as in TaskState.limit_left_s
            rest_s = np.floor(1e6 * (limit_s - (1.0 - left) * s.truth[origin, type_]) + 0.5) / 1e6
            s.seconds[piece, type_] = max(rest_s, min(limit_s, OVERDUE_S))
        if weight:
            s.key[piece, type_] = weight * s.seconds[piece, type_]
    s.fresh[s.count.fresh] = piece
    s.count.fresh += 1


@inner
def seek_room(r: RoomSearch) -> None:
    """Begin a search for runs to stop."""
    r.count.searches += 1
    r.count.chosen = 0
    r.count.doomed = 0
    for type_ in range(len(r.gain)):
        r.gain[type_] = 0


@inner
def consider(s: State, r: RoomSearch, task: int, run: int) -> bool:
    """Examine one more run. Return True if the task would fit without some of the examined runs,
    which are then marked for stopping.

    An independent instance gets the first node on which it fits.
    """
    kind, type_ = int64(s.tasks[task].kind), s.runs[run].type
    if not s.may[kind, type_]:
        return False
    r.chosen[r.count.chosen] = run
    r.count.chosen += 1
    _free(s, r, kind, run)
    node = _recount(s, r, kind, run)
    gang = s.classes[kind].gang
    if gang:
        sync(s, kind, type_)
        if s.trees[tree_of(s, kind, type_)].total + r.gain[type_] < gang:
            return False
        node = -1
    elif node < 0:
        return False
    for index in range(r.count.chosen):
        other = r.chosen[index]
        if s.runs[other].type == type_ and (gang or _is_on(s, other, node)):
            r.doomed[r.count.doomed] = other
            r.count.doomed += 1
    return True


@inner
def next_doomed(r: RoomSearch) -> int:
    """Remove and return the first of the runs that are marked for stopping."""
    run = r.doomed[0]
    r.count.doomed -= 1
    for place in range(r.count.doomed):
        r.doomed[place] = r.doomed[place + 1]
    return run


@inner
def _free(s: State, r: RoomSearch, kind: int, run: int) -> None:
    """Remove a run from the copies of the nodes that it runs on."""
    held = int64(s.tasks[s.runs[run].task].kind)
    hold = s.runs[run].first
    while hold >= 0:
        node, count, gpu = s.holds[hold].node, s.holds[hold].count, s.holds[hold].gpu
        if r.touched[node] != r.count.searches:
            r.touched[node] = r.count.searches
            r.nodes[node] = s.nodes[node]
            for number in range(s.left.shape[1]):
                r.left[node, number] = s.left[node, number]
            r.fits[node] = room(s, kind, node)
        r.nodes[node].idle += s.classes[held].whole * count
        r.nodes[node].cpus += s.classes[held].cpus * count
        r.nodes[node].memory += s.classes[held].memory * count
        if s.classes[held].share:
            r.left[node, gpu] += s.classes[held].share * count
            if r.left[node, gpu] == MICRO:
                r.left[node, gpu] = -1
                r.nodes[node].partly -= 1
                r.nodes[node].idle += 1
        hold = s.holds[hold].next


@inner
def _recount(s: State, r: RoomSearch, kind: int, run: int) -> int:
    """Recount how many instances fit on the copies of a run's nodes. Return the first of these
    nodes on which an instance fits, or -1 if there is none."""
    first = int64(-1)
    hold = s.runs[run].first
    while hold >= 0:
        node = s.holds[hold].node
        fits = room_among(s, r.nodes, r.left, kind, node)
        r.gain[s.runs[run].type] += fits - r.fits[node]
        r.fits[node] = fits
        if fits and (first < 0 or node < first):
            first = node
        hold = s.holds[hold].next
    return first


@inner
def _is_on(s: State, run: int, node: int) -> bool:
    """Return True if a run occupies anything on a node."""
    hold = s.runs[run].first
    while hold >= 0:
        if s.holds[hold].node == node:
            return True
        hold = s.holds[hold].next
    return False


_SPARE = 64

SRTF_RULE = record_type(i8="keeps seen")
"""``keeps`` is set if a preempted run keeps the work that it has done. ``seen`` is the number of
weights that runs have had so far."""


@by_pointer
class Srtf(NamedTuple):
    """The state of a policy that prefers the least remaining time or service, in addition to the
    engine's state."""

    r: RoomSearch
    rule: Any  # SRTF_RULE
    weights: np.ndarray  # (weights,) float64: the distinct weights.
    # (K,) int64: the weight of each demand class, as an index into ``weights``
    weight_of: np.ndarray
    # (weights,) int64: indices of the weights that occur among the runs, in order of first
    # occurrence
    seen: np.ndarray
    held: np.ndarray  # (weights,) int64
    heaps: np.recarray  # (weights * length,) ENTRY: one heap per weight, with runs sorted by (-expected end, number).
    # (length,) ENTRY: entries that are removed during a search and put back afterwards
    aside: np.recarray
    aside_of: np.ndarray  # (length,) int64: the heap from which each entry of ``aside`` came


def new_srtf(s: State, weight: Weight, columns: KeyColumns, keeps: bool) -> Srtf:
    """Build the initial ``Srtf``. ``weight`` is the weight of a task according to the policy. It is
    computed for all tasks together."""
    by_class = np.ones(len(s.classes))
    by_class[columns.kind] = weight(AllTasks(columns))  # type: ignore[arg-type]
    weights, weight_of = np.unique(by_class, return_inverse=True)
    length = 2 * len(s.runs) + _SPARE
    return Srtf(
        r=new_room(s),
        rule=one_record(SRTF_RULE, keeps=keeps),
        weights=weights,
        weight_of=weight_of.reshape(-1).astype(np.int64),
        seen=np.zeros(len(weights), np.int64),
        held=np.zeros(len(weights), np.int64),
        heaps=records(ENTRY, len(weights) * length),
        aside=records(ENTRY, length),
        aside_of=np.empty(length, np.int64),
    )


@outer
def advance_srtf(s: State, log: np.recarray, p: Srtf) -> bool:
    """Simulate until no event is left (return False), or until the log or the state needs more
    space (return True).
    """
    while steps(s, log) and enough_pieces(s):
        if s.clock.phase == DECIDE:
            if not _decide(s, log, p):
                s.clock.phase = MOVE
        else:
            drop_stopped(s)
            if not move_on(s, log):
                return False
    return True


@inner
def _decide(s: State, log: np.recarray, p: Srtf) -> bool:
    """Stop the next run that is marked for stopping. If there is none, start a task, or mark runs
    for stopping. Return False if nothing can be done."""
    s.count.ended = 0
    if p.r.count.doomed:
        run = next_doomed(p.r)
        preempt(s, log, run, p.rule.keeps, p.weights[p.weight_of[s.tasks[s.runs[run].task].kind]])
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
    return p.r.count.doomed > 0


@inner
def _look(s: State, p: Srtf) -> None:
    """Add the runs that started since the last call to the heaps, newest first."""
    length = len(p.aside)
    for index in range(s.count.starts - 1, -1, -1):
        entry = s.starts[index]
        if not alive(s, entry):
            continue
        run = slot_of(entry)
        task = s.runs[run].task
        weight = p.weight_of[s.tasks[task].kind]
        if p.held[weight] > 2 * s.count.runs + 16:
            p.held[weight] = drop_over(s, p.heaps, weight * length, p.held[weight])
        push(p.heaps, weight * length, p.held[weight], -expected_end_s(s, run), entry)
        p.held[weight] += 1
        _note_weight(p, weight)
    s.count.starts = 0


@inner
def _note_weight(p: Srtf, weight: int) -> None:
    """Record the order in which weights were first seen, because it breaks ties."""
    count = p.rule.seen
    for index in range(count):
        if p.seen[index] == weight:
            return
    p.seen[count] = weight
    p.rule.seen = count + 1


@inner
def _make_room(s: State, p: Srtf, task: int) -> None:
    """Mark the runs that must stop so that a task fits. Only runs that have more left than the task
    needs may be stopped. If stopping all of them is not enough, no run is marked."""
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
        run = slot_of(entry)
        if s.runs[run].start_s == s.clock.now_s:
            # Do not stop a run that has just started. Otherwise, two tasks could displace each
            # other forever.
            continue
        type_ = s.runs[run].type
        if s.may[s.tasks[task].kind, type_] and most > weight * s.seconds[task, type_] and consider(s, p.r, task, run):
            break
    for index in range(aside):
        which = p.aside_of[index]
        push(p.heaps, which * length, p.held[which], p.aside[index].key, p.aside[index].what)
        p.held[which] += 1


@inner
def _most_left(s: State, p: Srtf, least: float) -> tuple[int, float]:
    """Find the heap whose first run has the most left, if this is more than ``least``. Return the
    heap and this amount, or -1 if there is none.
    """
    length, best, most = len(p.aside), int64(-1), least
    for index in range(p.rule.seen):
        which = p.seen[index]
        at = which * length
        while p.held[which] and not alive(s, p.heaps[at].what):
            pop(p.heaps, at, p.held[which])
            p.held[which] -= 1
        if p.held[which] and p.weights[which] * (-p.heaps[at].key - s.clock.now_s) > most:
            best, most = which, p.weights[which] * (-p.heaps[at].key - s.clock.now_s)
    return best, most
