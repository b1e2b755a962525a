"""SRTF and SRSF, compiled: victims, and the loop."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dagsim.systems.cluster.lane import state
from dagsim.systems.cluster.lane.heap import pop, push
from dagsim.systems.cluster.lane.jit import by_pointer, inner, int64, outer
from dagsim.systems.cluster.lane.kernel import DECIDE, MOVE, PREEMPTED, alive, move_on, origin_of, start, steps, stop
from dagsim.systems.cluster.lane.orders import AllTasks, KeyColumns, first_task, take_in
from dagsim.systems.cluster.lane.placement import choose, room, room_among, sync, tree_of
from dagsim.systems.cluster.lane.state import (
    ENDED,
    ENDS,
    ENTRY,
    FRESH,
    MICRO,
    PHASE,
    PIECES,
    RUNS,
    SLOTS,
    STARTS,
    State,
    grown,
    records,
)
from dagsim.systems.cluster.policies.preemption import Weight

__all__ = [
    "DOOMED",
    "RoomSearch",
    "Srtf",
    "advance_srtf",
    "consider",
    "drop_stopped",
    "enough_pieces",
    "grown_pieces",
    "grown_room",
    "grown_srtf",
    "new_room",
    "new_srtf",
    "preempt",
    "seek_room",
    "with_pieces",
]


DOOMED, CHOSEN, SEARCH, COUNTERS = range(4)
"""Places in ``Room.n``: runs to be stopped, runs looked at in this search, searches so far."""


@by_pointer
class RoomSearch(NamedTuple):
    """Working space of the search for room."""

    n: np.ndarray  # (COUNTERS,) int64
    nodes: np.recarray  # (N,) NODE: copies without the runs looked at
    left: np.ndarray  # (N, most GPUs) int64: theirs of State.left
    touched: np.ndarray  # (N,) int64: the search in which a node was copied
    fits: np.ndarray  # (N,) int64: instances that its copy has room for
    gain: np.ndarray  # (types,) int64: what all copies of a type have more room for than their nodes
    chosen: np.ndarray  # (runs,) int64: slots of the runs looked at
    doomed: np.ndarray  # (runs,) int64: slots of those to be stopped


def new_room(s: State) -> RoomSearch:
    """Nothing searched yet."""
    nodes, runs = len(s.nodes), len(s.runs)
    return RoomSearch(
        n=np.zeros(COUNTERS, np.int64),
        nodes=s.nodes.copy(),
        left=s.left.copy(),
        touched=np.zeros(nodes, np.int64),
        fits=np.zeros(nodes, np.int64),
        gain=np.zeros(len(s.types), np.int64),
        chosen=np.empty(runs, np.int64),
        doomed=np.empty(runs, np.int64),
    )


def grown_room(s: State, r: RoomSearch) -> RoomSearch:
    """The same with space for the runs of a state that has grown."""
    chosen, doomed = (np.resize(each, len(s.runs)) for each in (r.chosen, r.doomed))
    return r._replace(chosen=chosen, doomed=doomed)


def grown_pieces(s: State) -> State:
    """The same state with space for twice the runs, for more pieces, and for longer queues."""
    s = grown(s)
    more = max(state.SPARE, len(s.origin))
    wider: Any = {
        name: _longer(getattr(s, name), more)
        for name in ("tasks", "todo", "truth", "seconds", "key", "origin", "work_left", "fresh")
    }
    queues, ready = s.queues.copy(), records(s.ready.dtype, 2 * len(s.ready) + 64 * len(s.queues))
    queues.most = 2 * s.queues.most + 64
    queues.at = np.cumsum(queues.most) - queues.most
    for before, after in zip(s.queues, queues, strict=True):
        ready[after.at : after.at + after.held] = s.ready[before.at : before.at + before.held]
    return s._replace(queues=queues, ready=ready, **wider)


def _longer(array: np.ndarray, more: int) -> np.ndarray:
    longer = np.empty((len(array) + more, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer.view(type(array))


@inner
def enough_pieces(s: State) -> bool:
    """True if there is space for one more piece, and for all ready tasks queued."""
    if s.n[PIECES] >= len(s.origin):
        return False
    if s.n[FRESH]:
        for queue in range(len(s.queues)):
            if s.queues[queue].held + s.n[FRESH] > s.queues[queue].most:
                return False
    return True


@inner
def drop_stopped(s: State) -> None:
    """Drop the ends of runs that were stopped, as far as they come next."""
    while s.n[ENDS] and not alive(s, s.ends[0].what):
        pop(s.ends, 0, s.n[ENDS])
        s.n[ENDS] -= 1


@inner
def preempt(s: State, log: np.recarray, run: int, keeps: bool, weight: float) -> None:
    """Stop a run; its instances become ready again, with the work that is left if it ``keeps`` what it has done.

    The key of the new piece is ``weight`` times its seconds; with 0 keys are not used.
    """
    task, count = s.runs[run].task, s.runs[run].count
    origin, left = origin_of(s, task), 1.0
    if keeps:
        seconds = s.runs[run].seconds
        done = (s.now[0] - s.runs[run].start_s) / seconds if seconds else 0.0
        left = s.work_left[task] * max(0.0, 1.0 - done)
    stop(s, log, run, PREEMPTED)
    place = s.n[PIECES]
    piece = len(s.fresh) - len(s.origin) + place
    s.n[PIECES] += 1
    s.origin[place] = origin
    s.tasks[piece].job = s.tasks[task].job
    s.tasks[piece].kind = s.tasks[task].kind
    s.todo[piece].waiting = count
    s.work_left[piece] = left
    kept = left / s.work_left[task] if left != s.work_left[task] else 1.0
    for type_ in range(len(s.types)):
        s.truth[piece, type_] = s.truth[origin, type_] * left
        s.seconds[piece, type_] = s.seconds[task, type_] * kept
        if weight:
            s.key[piece, type_] = weight * s.seconds[piece, type_]
    s.fresh[s.n[FRESH]] = piece
    s.n[FRESH] += 1


@inner
def seek_room(r: RoomSearch) -> None:
    """Begin a search."""
    r.n[SEARCH] += 1
    r.n[CHOSEN] = 0
    r.n[DOOMED] = 0
    for type_ in range(len(r.gain)):
        r.gain[type_] = 0


@inner
def consider(s: State, r: RoomSearch, task: int, run: int) -> bool:
    """Look at one more run; True if the task would fit without some of those looked at: they are doomed then.

    An independent instance gets the first node that has room for it.
    """
    kind, type_ = int64(s.tasks[task].kind), s.runs[run].type
    if not s.may[kind, type_]:
        return False
    r.chosen[r.n[CHOSEN]] = run
    r.n[CHOSEN] += 1
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
    for each in range(r.n[CHOSEN]):
        other = r.chosen[each]
        if s.runs[other].type == type_ and (gang or _is_on(s, other, node)):
            r.doomed[r.n[DOOMED]] = other
            r.n[DOOMED] += 1
    return True


@inner
def _free(s: State, r: RoomSearch, kind: int, run: int) -> None:
    """Take a run off the copies of its nodes."""
    held = int64(s.tasks[s.runs[run].task].kind)
    hold = s.runs[run].first
    while hold >= 0:
        node, count, gpu = s.holds[hold].node, s.holds[hold].count, s.holds[hold].gpu
        if r.touched[node] != r.n[SEARCH]:
            r.touched[node] = r.n[SEARCH]
            r.nodes[node] = s.nodes[node]
            for each in range(s.left.shape[1]):
                r.left[node, each] = s.left[node, each]
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
    """Count the room on the copies of a run's nodes again; returns the first of them with any, or -1."""
    found = int64(-1)
    hold = s.runs[run].first
    while hold >= 0:
        node = s.holds[hold].node
        fits = room_among(s, r.nodes, r.left, kind, node)
        r.gain[s.runs[run].type] += fits - r.fits[node]
        r.fits[node] = fits
        if fits and (found < 0 or node < found):
            found = node
        hold = s.holds[hold].next
    return found


@inner
def _is_on(s: State, run: int, node: int) -> bool:
    """True if a run holds something on a node."""
    hold = s.runs[run].first
    while hold >= 0:
        if s.holds[hold].node == node:
            return True
        hold = s.holds[hold].next
    return False


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


def with_pieces(s: State) -> State:
    """The state with columns of its own, and room for pieces."""
    return grown_pieces(s._replace(work_left=np.ones(len(s.fresh))))


def new_srtf(s: State, weight: Weight, columns: KeyColumns, keeps: bool) -> Srtf:
    """Before anything has happened. The policy's own ``weight`` is asked of all tasks at once."""
    by_class = np.ones(len(s.classes))
    by_class[columns.kind] = weight(AllTasks(columns))  # type: ignore[arg-type]
    weights, weight_of = np.unique(by_class, return_inverse=True)
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
