"""Simulate episodes to their ends in compiled code, with choices made by heuristics or a network.
Search policies use these simulations.

A heuristic needs none of the sums in observations. A simulation with a heuristic therefore updates
only what the heuristic's proposals depend on (``_hear``). A network makes the first ``depth``
choices in an episode before a heuristic takes over.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dagsim.families.compiled.jit import by_pointer, inner, int64
from dagsim.families.compiled.rules import COMPLETED, DECIDE, MOVE, move_on, slot_of
from dagsim.families.episodes.episode_state import EpisodeState
from dagsim.families.episodes.features import show_relative, show_relative_state, show_wait
from dagsim.families.episodes.play import (
    add_run,
    forget_end,
    play_on,
    start_as_many,
    take_choice,
    types_with_room,
)
from dagsim.families.episodes.proposals import drop_ready, note_ends, note_ready, propose

AS_PROPOSED = -1
"""Used in place of a first choice: the choice that the heuristic or network would make."""
WAIT = 1 << 30
"""The choice to wait, whatever the number of other choices."""
NO_END_S = 1e15
"""Used as the completion time of a job that cannot complete."""


@by_pointer
class ScorerNet(NamedTuple):
    """The weights of a ``scorer`` network, (inputs, outputs), the bounds of its features, and
    scratch space.
    """

    low: np.ndarray  # (F,) float32: lower bounds of the features in a row
    high: np.ndarray  # (F,) float32
    context_low: np.ndarray  # (C,) float32
    context_high: np.ndarray  # (C,) float32
    embed: np.ndarray  # (F, H) float32
    embed_bias: np.ndarray  # (H,) float32
    around: np.ndarray  # (H + C, H) float32
    around_bias: np.ndarray  # (H,) float32
    own: np.ndarray  # (H, H) float32
    inner: np.ndarray  # (H, H) float32
    inner_bias: np.ndarray  # (H,) float32
    score: np.ndarray  # (H,) float32; the bias of the score is omitted because it does not change any choice
    tokens: np.ndarray  # (rows, F) float32
    context: np.ndarray  # (C,) float32
    gpus: np.ndarray  # (1, D) float32
    rows: np.ndarray  # (rows, H) float32
    shared: np.ndarray  # (H,) float32
    mixed: np.ndarray  # (H,) float32
    last: np.ndarray  # (H,) float32


def _no_net() -> ScorerNet:
    shapes = {"embed": 2, "around": 2, "own": 2, "inner": 2, "tokens": 2, "gpus": 2, "rows": 2}
    return ScorerNet(*[np.zeros((0,) * shapes.get(name, 1), np.float32) for name in ScorerNet._fields])


NO_NET = _no_net()
"""Used in place of a network, if there is none."""


@inner
def recall(e: EpisodeState) -> None:
    """Simulate the past of an episode up to its beginning. After this, the runs in flight are
    known, and no decision has been made yet.
    """
    s = e.state
    while s.clock.phase != DECIDE:
        move_on(s, e.log)
        if len(e.log) - s.count.rows < len(s.nodes) + 2:
            s.count.rows = 0
    for index in range(s.count.starts):
        add_run(e, s.starts[index])
    s.count.rows = 0
    s.count.starts = 0
    for job in range(s.count.jobs):
        e.in_system[job] = job
    e.tally.jobs = s.count.jobs
    e.tally.rate = s.count.jobs


@inner
def reconsider(e: EpisodeState, theta: float, order: int) -> None:
    """Make another heuristic the reference, and record the start that it would choose now."""
    e.tally.theta = theta
    e.tally.order = order
    propose(e)


@inner
def play_out(e: EpisodeState, net: ScorerNet, depth: int, theta: float, order: int) -> int:
    """Finish an episode that is waiting for a choice. The network makes the next ``depth``
    choices, and a heuristic makes all later ones. Return the number of choices.
    """
    s, plays, going = e.state, int64(0), True
    while going and plays < depth:
        take_choice(e, best_choice(e, net))
        plays += 1
        going = play_on(e)
    if not going:
        return plays
    reconsider(e, theta, order)
    if e.tally.proposed < 0:
        s.clock.phase = MOVE
    else:
        start_as_many(e, e.tally.proposed, e.tally.on)
    plays += 1
    while True:
        if s.clock.phase == DECIDE:
            _hear(e)
            if e.tally.ready:
                for place in range(e.tally.kinds):
                    e.room[e.kinds[place].listed] = -1
                for place in range(e.tally.ready):
                    types_with_room(e, int64(s.tasks[e.ready_tasks[place]].kind))
                propose(e)
                plays += 1
                if e.tally.proposed >= 0:
                    start_as_many(e, e.tally.proposed, e.tally.on)
                    continue
            s.clock.phase = MOVE
        if len(e.log) - s.count.rows < len(s.nodes) + 2:
            _hear(e)
        if not move_on(s, e.log):
            _hear(e)
            return plays


@inner
def _hear(e: EpisodeState) -> None:
    """Process the jobs, ends of runs, ready tasks and starts since the last choice. Unlike
    ``play.catch_up``, update only what proposals and ``done_s`` need.
    """
    s = e.state
    for index in range(e.tally.read, s.count.rows):
        if e.log[index].kind == COMPLETED:
            e.jobs[int64(e.log[index].job)].done_s = e.log[index].time_s
    e.tally.read = 0
    s.count.rows = 0
    for index in range(s.count.ended):
        forget_end(e, s.ended[index])
    note_ends(e)
    for index in range(s.count.fresh):
        note_ready(e, s.fresh[index])
    s.count.ended = 0
    s.count.fresh = 0
    # All starts since the last call are of one task. The slots of their runs are not reused before
    # the next start.
    if s.count.starts > e.tally.heard:
        task = s.runs[slot_of(s.starts[e.tally.heard])].task
        if not s.todo[task].waiting:
            drop_ready(e, task)
    for index in range(e.tally.heard, s.count.starts):
        add_run(e, s.starts[index])
    s.count.starts = 0
    e.tally.heard = 0


@inner
def best_choice(e: EpisodeState, net: ScorerNet) -> int:
    """Return the choice with the highest score. If several have this score, return the first of
    them."""
    choices, rows = e.tally.choices, e.tally.choices + e.tally.pending
    show_relative_state(e, net.context, net.gpus)
    show_relative(e, net.tokens, int64(0), choices)
    if e.tally.pending:
        show_wait(e, net.tokens, choices)
    hidden = len(net.embed_bias)
    for unit in range(hidden):
        net.shared[unit] = net.around_bias[unit]
    for row in range(rows):
        values, token = net.rows[row], net.tokens[row]
        for unit in range(hidden):
            values[unit] = net.embed_bias[unit]
        for column in range(len(token)):
            value = min(max(token[column], net.low[column]), net.high[column])
            if value != 0.0:
                _add_scaled(values, value, net.embed[column])
        for unit in range(hidden):
            values[unit] = max(values[unit], np.float32(0.0))
            net.last[unit] = values[unit] if row == 0 else net.last[unit] + values[unit]
    for unit in range(hidden):
        _add_scaled(net.shared, net.last[unit] / np.float32(rows), net.around[unit])
    for column in range(len(net.context)):
        value = min(max(net.context[column], net.context_low[column]), net.context_high[column])
        _add_scaled(net.shared, value, net.around[hidden + column])
    best, best_score = int64(0), -np.inf
    for row in range(rows):
        score = _score(net, row)
        if score > best_score:
            best, best_score = int64(row), score
    return best


@inner
def _score(net: ScorerNet, row: int) -> Any:
    """Return the score of a row."""
    hidden, score = len(net.shared), np.float32(0.0)
    for unit in range(hidden):
        net.mixed[unit] = net.shared[unit]
        net.last[unit] = net.inner_bias[unit]
    for unit in range(hidden):
        _add_scaled(net.mixed, net.rows[row, unit], net.own[unit])
    for unit in range(hidden):
        _add_scaled(net.last, max(net.mixed[unit], np.float32(0.0)), net.inner[unit])
    for unit in range(hidden):
        score += max(net.last[unit], np.float32(0.0)) * net.score[unit]
    return score


@inner
def _add_scaled(total: np.ndarray, factor: float, values: np.ndarray) -> None:
    for unit in range(len(total)):
        total[unit] += factor * values[unit]


@inner
def total_end_s(e: EpisodeState) -> float:
    """Return the sum of the completion times of all admitted jobs."""
    total = 0.0
    for job in range(len(e.jobs)):
        if not e.state.jobs[job].rejected:
            done_s = e.jobs[job].done_s
            total += NO_END_S if np.isnan(done_s) else done_s
    return total
