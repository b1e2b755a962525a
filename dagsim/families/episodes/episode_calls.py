"""The compiled functions that Python calls with the addresses of many episodes (``images``)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dagsim.families.compiled import jit
from dagsim.families.compiled.jit import by_pointer, inner, int64, outer
from dagsim.families.episodes.episode_state import EpisodeState
from dagsim.families.episodes.features import (
    show_choices,
    show_relative,
    show_relative_state,
    show_state,
    show_types,
    show_wait,
)
from dagsim.families.episodes.images import begin_episode, episode_at, example_episode
from dagsim.families.episodes.play import play_on, reward, take_choice
from dagsim.families.episodes.playout import (
    AS_PROPOSED,
    NO_NET,
    WAIT,
    ScorerNet,
    best_choice,
    play_out,
    recall,
    reconsider,
    total_end_s,
)
from dagsim.families.learning.codecs.codec import StackedObservations, StepOutcomes


@by_pointer
class EpisodeBatch(NamedTuple):
    """The observations of several episodes, with all rows in one array. The arrays are views, and
    the next call overwrites them.
    """

    tokens: np.ndarray
    """(rows, F) float32: one row per choice, episode by episode. If waiting is allowed, it is the last
    row of the episode."""
    context: np.ndarray
    """(N, C) float32."""
    gpus: np.ndarray
    """(N, types, D) float32; for the codec ``relative`` (N, 1, D)."""
    first: np.ndarray
    """(N + 1,) int64: index of the first row of each episode, and the end."""
    waits: np.ndarray
    """(N,) bool: True if the last row of the episode means to wait."""


@by_pointer
class TrialColumns(NamedTuple):
    """N trials: copies of episodes that have stopped at a choice, and how each of them continues."""

    source: np.ndarray
    """(N,) int64: number of the episode that is copied."""
    which: np.ndarray
    """(N,) int64: number of the copy."""
    first: np.ndarray
    """(N,) int64: first choice, or ``AS_PROPOSED``."""
    depth: np.ndarray
    """(N,) int64: number of choices that the network makes next."""
    theta: np.ndarray
    """(N,) float64: threshold of the heuristic that makes all later choices."""
    order: np.ndarray
    """(N,) int64: order of this heuristic."""
    end_s: np.ndarray
    """(N,) float64, written: the sum of completion times."""


by_pointer(StackedObservations)
by_pointer(StepOutcomes)


@outer
def advance_episodes(
    which: np.ndarray,
    choices: np.ndarray,
    addresses: np.ndarray,
    rewards: np.ndarray,
    over: np.ndarray,
    now_s: np.ndarray,
) -> None:
    """Carry out one choice in each of the episodes ``which``, and continue to the next choice. The
    choice is -1 in a new episode. ``rewards`` and ``over`` are in the order of ``which``, and
    ``now_s`` is indexed by episode number.
    """
    for place in range(len(which)):
        number = which[place]
        e = episode_at(addresses[number])
        if choices[place] >= 0:
            take_choice(e, choices[place])
        over[place] = not play_on(e)
        rewards[place] = reward(e)
        now_s[number] = e.state.clock.now_s


@outer
def observe_episodes(which: np.ndarray, addresses: np.ndarray, batch: EpisodeBatch) -> None:
    """Fill the observations of the episodes ``which``, in that order. An episode that has ended has
    no rows.
    """
    tokens, row = batch.tokens, int64(0)
    for place in range(len(which)):
        e = episode_at(addresses[which[place]])
        choices, batch.waits[place], batch.first[place] = e.tally.choices, e.tally.pending, row
        if choices:
            _show(e, tokens, row, choices, batch.context[place], batch.gpus[place])
            row += choices
        if e.tally.pending:
            show_wait(e, tokens, row)
            row += 1
    batch.first[len(which)] = row


@outer
def step_episodes(
    live: np.ndarray,
    actions: np.ndarray,
    legal: np.ndarray,
    outcomes: StepOutcomes,
    seen: StackedObservations,
    addresses: np.ndarray,
    now_s: np.ndarray,
) -> None:
    """Carry out one action in each ``live`` episode, and continue to its next choice. Then fill the
    observations of all episodes into ``seen``, whose arrays are zero.

    If there are too few rows, the remaining choices are left out. An action is the number of a
    row. If it is not ``legal``, it is counted and replaced by the first row. An episode is observed
    right after its action, while its arena is in the processor's cache.
    """
    tokens, mask, over = seen.tokens, seen.mask, outcomes.over
    rows = tokens.shape[1]
    last = rows - 1
    for number in range(len(live)):
        if not addresses[number]:  # it has not begun
            mask[number, last] = 1
            continue
        e = episode_at(addresses[number])
        if live[number]:
            action = actions[number]
            if action < 0 or action >= rows or not legal[number, action]:
                outcomes.illegal[number] += 1
                action = int64(0)
            elif action == last:
                action = int64(WAIT)
            take_choice(e, action)
            over[number] = not play_on(e)
            outcomes.rewards[number] = reward(e)
            now_s[number] = e.state.clock.now_s
        choices = min(e.tally.choices, last)
        if choices:
            _show(e, tokens[number], int64(0), choices, seen.context[number], seen.gpus[number])
        for row in range(choices):
            mask[number, row] = 1
        if e.tally.pending:
            show_wait(e, tokens[number], int64(last))
        if e.tally.pending or over[number]:
            mask[number, last] = 1


@outer
def play_out_episodes(addresses: np.ndarray, arenas: np.ndarray, trials: TrialColumns, net: ScorerNet) -> int:
    """Copy the episodes of the trials, and run the copies to their ends. ``arenas`` is (episodes,
    bytes) uint8. Return the number of choices.
    """
    plays = int64(0)
    for place in range(len(trials.which)):
        source, number, first = trials.source[place], trials.which[place], trials.first[place]
        for byte in range(arenas.shape[1]):
            arenas[number, byte] = arenas[source, byte]
        e = episode_at(addresses[number])
        going = True
        if first != AS_PROPOSED:
            take_choice(e, first)
            going = play_on(e)
            plays += 1
        if going:
            plays += play_out(e, net, trials.depth[place], trials.theta[place], trials.order[place])
        trials.end_s[place] = total_end_s(e)
    return plays


@outer
def recall_in(addresses: np.ndarray, which: np.ndarray) -> None:
    """Simulate the past of the episodes ``which`` up to their beginnings."""
    for place in range(len(which)):
        recall(episode_at(addresses[which[place]]))


@outer
def propose_in(
    addresses: np.ndarray, which: np.ndarray, theta: np.ndarray, order: np.ndarray, net: ScorerNet, choices: np.ndarray
) -> None:
    """Write each heuristic's choice in the episodes ``which``, which have stopped at a choice,
    followed by the network's choice (-1 without a network). ``choices`` is (N, heuristics + 1)
    int64, with ``WAIT`` for waiting.
    """
    for place in range(len(which)):
        e = episode_at(addresses[which[place]])
        theta_before, order_before = e.tally.theta, e.tally.order
        best = best_choice(e, net) if len(net.embed) else int64(-1)
        choices[place, len(theta)] = best if best < e.tally.choices else int64(WAIT)
        for member in range(len(theta)):
            reconsider(e, theta[member], order[member])
            choices[place, member] = _place_of(e, e.tally.proposed, e.tally.on)
        reconsider(e, theta_before, order_before)


@inner
def _place_of(e: EpisodeState, task: int, type_: int) -> int:
    """Return the choice that starts a task on a type. If there is no such choice, add it. If there
    is no space for it, return ``WAIT``.
    """
    if task < 0:
        return int64(WAIT)
    for choice in range(e.tally.choices):
        if e.choice[choice, 0] == task and e.choice[choice, 1] == type_:
            return choice
    if e.tally.choices == len(e.choice):
        return int64(WAIT)
    e.choice[e.tally.choices, 0] = task
    e.choice[e.tally.choices, 1] = type_
    e.tally.choices += 1
    return e.tally.choices - 1


@inner
def _show(e: EpisodeState, tokens: np.ndarray, first: int, choices: int, context: np.ndarray, gpus: np.ndarray) -> None:
    """Fill the observation of one episode."""
    if e.tally.relative:
        show_relative_state(e, context, gpus)
        show_relative(e, tokens, first, choices)
        return
    show_types(e)
    show_state(e, context)
    for type_ in range(gpus.shape[0]):
        for column in range(gpus.shape[1]):
            gpus[type_, column] = e.shown[type_, column]
    show_choices(e, tokens, first, choices)


_EPISODES = ("begin_episode", "advance_episodes", "observe_episodes", "step_episodes")
_TRIALS = ("begin_episode", "advance_episodes", "play_out_episodes", "propose_in", "recall_in")


def are_warm() -> bool:
    """Return True if the functions for episodes are already compiled."""
    return all(map(jit.is_kept, _EPISODES))


def compile_episodes(*, trials: bool = False) -> bool:
    """Compile and cache the functions for episodes or, if ``trials`` is True, the functions with
    which a policy tries its choices. Return True if they were not compiled before.
    """
    names = _TRIALS if trials else _EPISODES
    if not jit.jitted() or all(map(jit.is_kept, names)):
        return False
    with jit.alone():
        if all(map(jit.is_kept, names)):
            return False
        begin_episode(example_episode())
        none, first, flags = np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, bool)
        flat, deep, real = np.zeros((0, 0), np.float32), np.zeros((0, 0, 0), np.float32), np.zeros(0)
        advance_episodes(none, none, none, real, flags, real)
        if not trials:
            observe_episodes(none, none, EpisodeBatch(flat, flat, deep, first, flags))
            legal = np.zeros((0, 0), np.int8)
            outcomes, seen = StepOutcomes(real, flags, none), StackedObservations(deep, flat, deep, legal)
            step_episodes(flags, none, legal, outcomes, seen, none, real)
            return True
        columns = TrialColumns(none, none, none, none, real, none, real)
        play_out_episodes(none, np.zeros((0, 0), np.uint8), columns, NO_NET)
        recall_in(none, none)
        propose_in(none, none, real, none, NO_NET, np.zeros((0, 1), np.int64))
    return True
