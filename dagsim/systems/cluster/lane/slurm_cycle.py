"""A cycle of Slurm's backfill: the twin of ``SlurmMultifactor._backfill``.

Waiting jobs that differ only in their time limits are of one *kind*. A kind asks one or more
*questions*: when is there room on these nodes? ``policies.slurm_cycle`` fills the columns, carries out
the starts, and enlarges what is too small.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dagsim.systems.cluster.lane.jit import by_pointer, inner, outer
from dagsim.systems.cluster.policies import slurm_times
from dagsim.systems.cluster.policies.slurm_cycle import AT_LIMIT, GONE, PASSED, TESTED

__all__ = [
    "ENDS",
    "STARTS",
    "WIDEN",
    "CycleJobs",
    "CycleKinds",
    "CycleNodes",
    "CycleScratch",
    "cycle",
]

ENDS, STARTS, WIDEN = range(3)
"""Why ``cycle`` returns: the cycle is over, the job at ``AT`` starts, or an array is too small."""
AT, COUNT, HOPE, SLOTS, WINDOWS, KEPT = range(6)
"""Places in ``CycleScratch.state``: index of the job, jobs tested, index of the first job that may still
start, rows of steps and of windows in use, and the most reservations of a node.
"""

# As ``slurm_backfill`` compiles them: numba keeps one compiled form of a function.
_fill_rooms = outer(slurm_times.fill_rooms)
_fill_windows = outer(slurm_times.fill_windows)
_earliest = outer(slurm_times.earliest)


@by_pointer
class CycleNodes(NamedTuple):
    """The runs and reservations of each node, as in ``slurm_backfill.RunTable``."""

    ends: np.ndarray
    gives: np.ndarray
    runs: np.ndarray
    free: np.ndarray
    whole: np.ndarray  # (nodes,) int64: 1 if an exclusive run holds it
    weight: np.ndarray  # (nodes,) int64: rank of its weight, -1 in place of all if they are taken in order
    begins: np.ndarray
    untils: np.ndarray
    owners: np.ndarray
    kept: np.ndarray


@by_pointer
class CycleKinds(NamedTuple):
    """The kinds of jobs, and the questions of each."""

    needs: np.ndarray  # (kinds, 3) float64: GPUs, CPUs and memory of an instance, in millionths but for GPUs
    wanted: np.ndarray  # (kinds,) int64: instances that start together
    alone: np.ndarray  # (kinds,) int64: 1 if it shares no node
    spread: np.ndarray  # (kinds,) int64: 1 if each instance takes a node of its own
    fits: np.ndarray  # (kinds,) int64: 1 if machines may have room now
    row: np.ndarray  # (kinds,) int64: row of its open nodes
    is_open: np.ndarray  # (rows, nodes) int64: 1 if it may start there now
    question: np.ndarray  # (kinds + 1,) int64: its first question
    first: np.ndarray  # (questions,) int64: its first member
    last: np.ndarray  # (questions,) int64: the place after its last member
    windows: np.ndarray  # (questions,) int64: number of its set of nodes
    own: np.ndarray  # (questions,) int64: its reservation of the site, or -2
    least_s: np.ndarray  # (questions,) float64
    until_s: np.ndarray  # (questions,) float64
    never_s: np.ndarray  # (questions,) float64: the shortest limit for which there was no time
    member: np.ndarray  # int64: nodes by question, group by group
    group: np.ndarray  # int64: number of the group of each


@by_pointer
class CycleJobs(NamedTuple):
    """The jobs of a cycle in the order in which they are tested."""

    kind: np.ndarray  # (jobs,) int64
    mode: np.ndarray  # (jobs,) int64
    limit_s: np.ndarray  # (jobs, most questions) float64


@by_pointer
class CycleScratch(NamedTuple):
    """What a cycle works out, valid until a job starts, and its position."""

    state: np.ndarray  # (6,) int64
    slot: np.ndarray  # (kinds,) int64: row of its steps, or -1
    times: np.ndarray  # (slots, nodes * (stride + 1)) float64
    rooms: np.ndarray  # likewise
    counts: np.ndarray  # (slots, nodes) int64
    windows_slot: np.ndarray  # (sets of nodes,) int64: row of its windows, or -1
    windows: np.ndarray  # (slots, runs) float64
    windows_count: np.ndarray  # (slots,) int64
    out: np.ndarray  # (nodes,) float64
    best: np.ndarray  # (nodes,) int64: 1 if the job reserves it
    opened: np.ndarray  # (nodes,) int64: 1 if it may be chosen
    used: np.ndarray  # (nodes,) int64: 1 if it is in a block that may be chosen


@outer
def cycle(
    n: CycleNodes,
    k: CycleKinds,
    j: CycleJobs,
    s: CycleScratch,
    stride: int,
    kept_stride: int,
    count: int,
    tests: int,
    now: float,
    resolution_s: float,
    linear_s: float,
    ties: bool,
) -> int:
    """Test the jobs from ``state[AT]`` on until one starts; at most ``tests``, of ``count`` jobs."""
    state = s.state
    while state[AT] < count and state[COUNT] < tests:
        at = state[AT]
        mode, kind = j.mode[at], j.kind[at]
        if mode in (AT_LIMIT, GONE):
            state[AT] += 1
            continue
        questions = k.question[kind + 1] - k.question[kind]
        if state[KEPT] >= kept_stride or state[SLOTS] >= len(s.times) or state[WINDOWS] + questions > len(s.windows):
            return WIDEN
        if mode == PASSED:
            state[AT] += 1
            state[COUNT] += 1
            continue
        if state[HOPE] <= at and k.fits[kind] and _could(n, k, j, s, at, stride, kept_stride, now, ties):
            return STARTS
        state[AT] += 1
        state[COUNT] += 1
        if not _any_fits(k, j, state[AT], min(state[AT] + tests - state[COUNT], count)):
            return ENDS
        hope = max(state[HOPE], state[AT])
        while hope < count:
            may = j.mode[hope] == TESTED and k.fits[j.kind[hope]] != 0
            if may and _could(n, k, j, s, hope, stride, kept_stride, now, ties):
                break
            hope += 1
        state[HOPE] = hope
        if hope < count:
            _make_room(n, k, j, s, at, stride, kept_stride, now, resolution_s, linear_s)
    return ENDS


@inner
def _any_fits(k: CycleKinds, j: CycleJobs, at: int, last: int) -> bool:
    """True if machines may have room for one of the jobs, whatever their limits."""
    fits = False
    for place in range(at, last):
        fits = fits or k.fits[j.kind[place]] != 0
    return fits


@inner
def _could(
    n: CycleNodes,
    k: CycleKinds,
    j: CycleJobs,
    s: CycleScratch,
    at: int,
    stride: int,
    kept_stride: int,
    now: float,
    ties: bool,
) -> bool:
    """True if a job can start now without delaying a reservation; ``out`` gets the room of each node
    where it may.
    """
    kind = j.kind[at]
    need_gpus, need_cpus, need_memory = k.needs[kind, 0], k.needs[kind, 1], k.needs[kind, 2]
    row, wanted, base, starts = k.row[kind], k.wanted[kind], k.question[kind], False
    for node in range(len(n.kept)):
        s.out[node] = 0.0
    for question in range(base, k.question[kind + 1]):
        total, end_s = 0.0, now + j.limit_s[at, question - base]
        for place in range(k.first[question], k.last[question]):
            node = k.member[place]
            if k.is_open[row, node] == 0 or n.whole[node] != 0 or (k.alone[kind] != 0 and n.runs[node] > 0):
                continue
            room = slurm_times.MANY
            if need_gpus > 0:
                room = n.free[3 * node] // need_gpus
            if need_cpus > 0:
                room = min(room, n.free[3 * node + 1] // need_cpus)
            if need_memory > 0:
                room = min(room, n.free[3 * node + 2] // need_memory)
            if room <= 0:
                continue
            for kept in range(node * kept_stride, node * kept_stride + n.kept[node]):
                ahead = n.owners[kept] == -1 and n.untils[kept] > now
                if ahead and (n.begins[kept] < end_s or (ties and n.begins[kept] == end_s)):
                    room = 0.0
                    break
            if room > 0:
                s.out[node] = room
                total += 1.0 if k.spread[kind] != 0 else room
        if total >= wanted:
            starts = True
        else:
            for place in range(k.first[question], k.last[question]):
                s.out[k.member[place]] = 0.0
    return starts


@inner
def _make_room(
    n: CycleNodes,
    k: CycleKinds,
    j: CycleJobs,
    s: CycleScratch,
    at: int,
    stride: int,
    kept_stride: int,
    now: float,
    resolution_s: float,
    linear_s: float,
) -> None:
    """Reserve nodes for the earliest possible start of a job."""
    kind = j.kind[at]
    base, slot, best_s, end_s = k.question[kind], s.slot[kind], np.inf, 0.0
    spread = k.spread[kind] != 0
    for question in range(base, k.question[kind + 1]):
        limit_s = j.limit_s[at, question - base]
        if k.never_s[question] <= limit_s:
            continue
        if slot < 0:
            slot = s.slot[kind] = s.state[SLOTS]
            s.state[SLOTS] += 1
            for own in range(base, k.question[kind + 1]):
                _fill_rooms(
                    k.member[k.first[own] : k.last[own]], n.ends, n.gives, n.runs, stride, n.free,
                    k.is_open[k.row[kind]], n.whole, k.needs[kind], k.alone[kind] != 0, now,
                    s.times[slot], s.rooms[slot], s.counts[slot],
                )  # fmt: skip
        members = k.member[k.first[question] : k.last[question]]
        nodes = k.windows[question]
        windows = s.windows_slot[nodes]
        if windows < 0:
            windows = s.windows_slot[nodes] = s.state[WINDOWS]
            s.state[WINDOWS] += 1
            s.windows_count[windows] = _fill_windows(members, n.ends, n.runs, stride, now, linear_s, s.windows[windows])
        begin_s, first = _earliest(
            members, s.times[slot], s.rooms[slot], s.counts[slot], stride + 1,
            s.windows[windows][: s.windows_count[windows]], now, n.begins, n.untils, n.owners, n.kept, kept_stride,
            k.own[question], k.least_s[question], k.until_s[question], limit_s, float(k.wanted[kind]), spread, s.out,
        )  # fmt: skip
        if begin_s == np.inf:
            k.never_s[question] = limit_s
            continue
        if begin_s >= best_s:
            continue
        best_s, end_s = begin_s, begin_s + limit_s
        for node in range(len(n.kept)):
            s.best[node] = 0
        if n.weight[0] < 0 and k.wanted[kind] == 1:
            s.best[first] = 1
            continue
        group = -1
        for node in range(len(n.kept)):
            s.opened[node] = 0
        for place in range(k.first[question], k.last[question]):
            node = k.member[place]
            if s.out[node] > 0 and (group < 0 or k.group[place] == group):
                group = k.group[place]
                s.opened[node] = 1
        if n.weight[0] < 0:
            _first_nodes(s, k.wanted[kind], spread)
        else:
            _tightest(n, s, k.wanted[kind], spread)
    if best_s < np.inf:
        begin_s = max(np.floor(best_s / resolution_s) * resolution_s, now)
        end_s = max(np.floor(end_s / resolution_s) * resolution_s, begin_s + resolution_s)
        for node in range(len(n.kept)):
            if s.best[node] != 0:
                row = node * kept_stride + n.kept[node]
                n.begins[row], n.untils[row], n.owners[row] = begin_s, end_s, -1
                n.kept[node] += 1
                s.state[KEPT] = max(s.state[KEPT], n.kept[node])


@inner
def _first_nodes(s: CycleScratch, wanted: int, spread: bool) -> None:
    """Choose the first open nodes that hold ``wanted`` instances; the twin of ``slurm_times._in_order``."""
    left = float(wanted)
    for node in range(len(s.opened)):
        if s.opened[node] != 0 and left > 0:
            s.best[node] = 1
            left -= 1.0 if spread else s.out[node]


@inner
def _tightest(n: CycleNodes, s: CycleScratch, wanted: int, spread: bool) -> None:
    """Choose among the open nodes of the smallest weights; the twin of ``NodeChoice``."""
    total, left, rank, last = 0.0, float(wanted), 0, 0
    for node in range(len(s.opened)):
        s.used[node] = 0
        last = max(last, n.weight[node])
    while total < left and rank <= last:
        for node in range(len(s.opened)):
            if s.opened[node] != 0 and n.weight[node] == rank:
                s.used[node] = 1
                total += 1.0 if spread else s.out[node]
        rank += 1
    while left > 0:
        begin, end = _best_block(s, left, spread)
        if begin < 0:
            return
        alone = -1
        if left == 1 or not spread:
            for node in range(begin, end):
                if s.out[node] >= left and (alone < 0 or s.out[node] < s.out[alone]):
                    alone = node
        if alone >= 0:
            s.best[alone] = 1
            return
        for node in range(begin, end):
            if left > 0:
                s.best[node] = 1
                left -= 1.0 if spread else s.out[node]
            s.used[node] = 0


@inner
def _best_block(s: CycleScratch, left: float, spread: bool) -> tuple[int, int]:
    """The block of consecutive nodes with the least room among those with enough, else the one with the
    most; -1 if there is none.
    """
    best, best_end, best_room, best_enough, node = -1, -1, 0.0, False, 0
    while node < len(s.used):
        if s.used[node] == 0:
            node += 1
            continue
        begin, held, room = node, 0.0, 0.0
        while node < len(s.used) and s.used[node] != 0:
            held += 1.0 if spread else s.out[node]
            room += s.out[node]
            node += 1
        enough = held >= left
        tighter = enough and (not best_enough or room < best_room)
        if tighter or (not enough and not best_enough and (best < 0 or room > best_room)):
            best, best_end, best_room, best_enough = begin, node, room, enough
    return best, best_end
