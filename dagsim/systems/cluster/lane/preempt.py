"""Preemption: stop a run, and find the runs that must go so that a task fits.

Instances that were stopped come back as a further *piece* of their task: one more row in all columns of tasks, with the
work that is left. To see which runs must go, they are taken off copies of their nodes, one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dagsim.systems.cluster.lane import state
from dagsim.systems.cluster.lane.columns import MICRO, records
from dagsim.systems.cluster.lane.heap import pop
from dagsim.systems.cluster.lane.index import sync, tree_of
from dagsim.systems.cluster.lane.jit import by_pointer, inner, int64
from dagsim.systems.cluster.lane.kernel import PREEMPTED, alive, origin_of, stop
from dagsim.systems.cluster.lane.machines import room, room_among
from dagsim.systems.cluster.lane.state import ENDS, FRESH, PIECES, State, grown

__all__ = [
    "DOOMED",
    "RoomSearch",
    "consider",
    "drop_stopped",
    "enough_pieces",
    "grown_pieces",
    "grown_room",
    "new_room",
    "preempt",
    "seek_room",
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
