"""Orders by waiting time. Among the ready tasks that fit, they choose the one with the largest
``rate x seconds waited``.

The compiled counterpart of ``policies.orders.LongestWait``. The rows of a demand class are in the
range of its queue. They are divided into blocks. Each block stores which of its rows is first, and
until when this row is certain to remain first. Most decisions therefore examine only one row per
block. Rows of tasks that have started keep their positions, with a negative rate. They are removed
when they make up half of the range.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dagsim.families.compiled.jit import by_pointer, inner, int64, outer
from dagsim.families.compiled.memory import State
from dagsim.families.compiled.node_trees import choose, fits
from dagsim.families.compiled.rules import DECIDE, MOVE, move_on, ready_at_s, start, steps
from dagsim.systems.cluster.policies.formulas import BLOCK, ROUNDING


@by_pointer
class WaitingRows(NamedTuple):
    """The ready tasks, in addition to the engine's state. Rows are in the ranges of
    ``State.queues``.
    """

    rates: np.ndarray  # (n,) float64: rate of each task, by which the seconds of its wait are multiplied
    since_s: np.ndarray  # (n,) float64: when each task's wait begins; (0,) if that is its ready time
    task: np.ndarray  # (n,) int64: task of each row
    rate: np.ndarray  # (n,) float64: rate of the row's task; -1 after the task has started
    from_s: np.ndarray  # (n,) float64: time from which the row's task waits
    gone: np.ndarray  # (K,) int64: rows of each class whose task has started
    first: np.ndarray  # (K,) int64: first block of each class
    leader: np.ndarray  # (blocks,) int64: row that is served first in each block
    until_s: np.ndarray  # (blocks,) float64: time until which this row is certain to remain first
    looked_s: np.ndarray  # (blocks,) float64: time of the last search for that row; NaN if the block has changed since


def new_waits(s: State, columns: np.ndarray) -> WaitingRows:
    """Return the initial ``WaitingRows``, in which no task is ready. ``columns`` contains the rate
    of each task. If the policy does not count from the time at which a task becomes ready, a second
    column contains the start of the task's wait."""
    tasks, blocks = len(columns), -(-s.queues.most // BLOCK)
    total = int(blocks.sum())
    return WaitingRows(
        rates=np.ascontiguousarray(columns[:, 0]),
        since_s=np.ascontiguousarray(columns[:, 1]) if columns.shape[1] > 1 else np.empty(0),
        task=np.empty(tasks, np.int64),
        rate=np.empty(tasks),
        from_s=np.empty(tasks),
        gone=np.zeros(len(s.queues), np.int64),
        first=np.cumsum(blocks) - blocks,
        leader=np.empty(total, np.int64),
        until_s=np.full(total, -np.inf),
        looked_s=np.full(total, np.nan),
    )


@outer
def advance_waits(s: State, log: np.recarray, w: WaitingRows) -> bool:
    """Simulate until no event is left (return False), or until the log or the state needs more
    space (return True).
    """
    left = steps(s, log)
    while left > 0:
        if s.clock.phase == DECIDE:
            if not _decide(s, log, w):
                s.clock.phase = MOVE
        elif not move_on(s, log):
            return False
        left = left - 1 if left > 1 else steps(s, log)
    return True


@inner
def _decide(s: State, log: np.recarray, w: WaitingRows) -> bool:
    """Start one task. Return False if none can start."""
    s.count.ended = 0
    s.count.starts = 0
    _take_in(s, w)
    row = _first(s, w)
    if row < 0:
        return False
    task = w.task[row]
    type_, node = choose(s, task, -1)
    start(s, log, task, type_, node)
    if not s.todo[task].waiting:
        _drop(s, w, int64(s.tasks[task].kind), row)
    return True


@inner
def _take_in(s: State, w: WaitingRows) -> None:
    """Append tasks that have become ready to the rows of their classes."""
    for index in range(s.count.fresh):
        task = s.fresh[index]
        queue = int64(s.tasks[task].kind)
        row = s.queues[queue].at + s.queues[queue].held
        w.task[row], w.rate[row] = task, w.rates[task]
        w.from_s[row] = w.since_s[task] if len(w.since_s) else ready_at_s(s, index)
        _change(w, w.first[queue] + s.queues[queue].held // BLOCK)
        s.queues[queue].held += 1
    s.count.fresh = 0
    s.count.early = 0


@inner
def _first(s: State, w: WaitingRows) -> int:
    """Return the first row among the classes that fit, or -1 if there is none."""
    best = int64(-1)
    for queue in range(len(s.queues)):
        if w.gone[queue] == s.queues[queue].held or not fits(s, queue):
            continue
        for number in range((s.queues[queue].held + BLOCK - 1) // BLOCK):
            block = w.first[queue] + number
            if w.until_s[block] <= s.clock.now_s and w.looked_s[block] != s.clock.now_s:
                _look_again(s, w, queue, number)
            if best < 0 or _before(s, w, w.leader[block], best):
                best = w.leader[block]
    return best


@inner
def _before(s: State, w: WaitingRows, one: int, other: int) -> bool:
    """Return True if one row comes before another."""
    mine = (s.clock.now_s - w.from_s[one]) * w.rate[one]
    theirs = (s.clock.now_s - w.from_s[other]) * w.rate[other]
    return mine > theirs or (mine == theirs and w.task[one] < w.task[other])


@inner
def _look_again(s: State, w: WaitingRows, queue: int, number: int) -> None:
    """Find the row of a block that is first now, and the time until which this row is certain to
    remain first.
    """
    begin = s.queues[queue].at + number * BLOCK
    end = min(begin + BLOCK, s.queues[queue].at + s.queues[queue].held)
    leader, farthest_s = begin, 0.0
    for row in range(begin, end):
        farthest_s = max(farthest_s, abs(w.from_s[row]))
        if _before(s, w, row, leader):
            leader = row
    block = w.first[queue] + number
    w.leader[block] = leader
    w.looked_s[block] = s.clock.now_s
    w.until_s[block] = _leads_until(s, w, leader, begin, end, farthest_s)


@inner
def _leads_until(s: State, w: WaitingRows, leader: int, begin: int, end: int, farthest_s: float) -> float:
    """Return the time until which a row is certain to remain first in its block, even with rounding
    errors. This is the compiled counterpart of ``orders._leads_until``."""
    from_s, rate = w.from_s[leader], w.rate[leader]
    until_s, second, falls = np.inf, 0.0, False
    for row in range(begin, end):
        if w.rate[row] > rate:  # the row's value grows faster, so it overtakes the leader where their lines cross
            gain = w.rate[row] - rate
            cross_s = (w.rate[row] * w.from_s[row] - rate * from_s) / gain
            until_s = min(until_s, cross_s - ROUNDING * w.rate[row] * (abs(cross_s) + farthest_s) / gain)
        elif w.rate[row] != rate or w.from_s[row] != from_s:  # the row falls behind, but rounding errors grow with time
            product = (s.clock.now_s - w.from_s[row]) * w.rate[row]
            second = max(second, product) if falls else product
            falls = True
    if falls:
        gap = (s.clock.now_s - from_s) * rate - second
        until_s = min(until_s, gap / (ROUNDING * abs(rate)) - farthest_s)
    return until_s


@inner
def _change(w: WaitingRows, block: int) -> None:
    """Mark a block, so that it is searched again before its next use."""
    w.until_s[block] = -np.inf
    w.looked_s[block] = np.nan


@inner
def _drop(s: State, w: WaitingRows, queue: int, row: int) -> None:
    """Mark the row of a started task. If half of the rows are marked, remove them."""
    at, held = s.queues[queue].at, s.queues[queue].held
    w.rate[row] = w.from_s[row] = -1.0
    _change(w, w.first[queue] + (row - at) // BLOCK)
    w.gone[queue] += 1
    if 2 * w.gone[queue] <= held:
        return
    kept = int64(0)
    for place in range(held):
        if w.rate[at + place] >= 0:
            w.task[at + kept], w.rate[at + kept] = w.task[at + place], w.rate[at + place]
            w.from_s[at + kept] = w.from_s[at + place]
            kept += 1
    for number in range((held + BLOCK - 1) // BLOCK):
        _change(w, w.first[queue] + number)
    s.queues[queue].held = kept
    w.gone[queue] = 0
