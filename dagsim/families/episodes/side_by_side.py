"""Run many episodes side by side in compiled code.

    episodes = CompiledEpisodes(scenario, 64, CandidatesConfig(), EpisodeReward())
    episodes.begin(every, seeds)  # every = np.arange(64)
    while ...:
        batch = episodes.observe(every)
        rewards, over = episodes.advance(every, choices)

An episode consists of an *arena*, which contains the bytes of all changing arrays, and a row of
``tables``, which contains the addresses and lengths of all its arrays (``pointers``). A sequence of
jobs has an ``Image``: the arena before the first event, and the constants. A new episode or a fork
is therefore created by copying bytes once. Compiled code receives the addresses of the tables.
Episodes may have different sizes.

In this module alone, the addresses of episodes are kept from one call to the next, because building
a table for each call would take longer than the decision itself. They remain valid, because
``_put`` replaces the image, arena, log and table of an episode together and keeps references to all
four, and because none of these arrays is ever resized.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dagsim.errors import ConfigError
from dagsim.families.compiled import jit
from dagsim.families.compiled.choice import too_much
from dagsim.families.compiled.drive import placement_number
from dagsim.families.compiled.jit import by_pointer, inner, int64, outer
from dagsim.families.compiled.memory import BEST, State
from dagsim.families.compiled.reading import EngineScenario, read_scenario
from dagsim.families.episodes.episode_state import (
    EpisodeCodec,
    EpisodeReward,
    EpisodeState,
    new_episode,
    scratch,
    too_large,
    whole_log_of,
)
from dagsim.families.episodes.features import (
    PROPOSED,
    show_choices,
    show_relative,
    show_relative_state,
    show_state,
    show_types,
)
from dagsim.families.episodes.play import play_on, prepare, reward, take_choice
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
from dagsim.families.learning.codecs.codec import CandidatesConfig, RelativeConfig, StackedObservations, StepOutcomes
from dagsim.families.learning.codecs.further import DerivedColumns
from dagsim.families.learning.column_rewards import ColumnReward, gathered
from dagsim.model import Cluster, Job, Task
from dagsim.model.log import Schedule, ScheduleLog
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.policies.look_ahead import EftWait
from dagsim.systems.cluster.policies.placement import placing
from dagsim.systems.cluster.scenario import refused_engine
from dagsim.workload.arrays import JobArrays

_KEPT = 64
"""Number of job sequences whose images are kept."""
_LINE_B = 64
"""Arrays begin at multiples of this many bytes."""
_STATE_CONSTANTS = {"past", "tasks", "child", "truth", "seconds", "key", "classes", "may", "by_type", "queues", "ready"}
_STATE_MOVES = frozenset(State._fields) - _STATE_CONSTANTS - {"origin", "work_left"}
_MOVES = frozenset(EpisodeState._fields[EpisodeState._fields.index("tally") :])
"""The fields that change during an episode."""


def _example() -> EpisodeState:
    """Build a small episode, from which numba infers the type of all episodes."""
    jobs = JobArrays.of([Job.single("j", Task("t", 1.0))])
    scene = read_scenario(Cluster.of({"V100": 1}), jobs, Recorded(), Estimates(), 0)
    return new_episode(scene, EpisodeCodec(BEST), EpisodeReward(), scratch(1))


_at, _plain = jit.at_address(_example)


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
def begin_episode(e: EpisodeState) -> None:
    """Compute the constants of a new episode."""
    prepare(e)


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
        e = _at(addresses[number])
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
        e = _at(addresses[which[place]])
        choices, batch.waits[place], batch.first[place] = e.tally.choices, e.tally.pending, row
        if choices:
            _show(e, tokens, row, choices, batch.context[place], batch.gpus[place])
            row += choices
        if e.tally.pending:
            for column in range(tokens.shape[1]):
                tokens[row, column] = 0.0
            tokens[row, 0] = 1.0
            if e.tally.relative:
                tokens[row, PROPOSED] = 1.0 if e.tally.proposed < 0 else 0.0
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
        e = _at(addresses[number])
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
            tokens[number, last, 0] = 1.0
            if e.tally.relative:
                tokens[number, last, PROPOSED] = 1.0 if e.tally.proposed < 0 else 0.0
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
        e = _at(addresses[number])
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
        recall(_at(addresses[which[place]]))


@outer
def propose_in(
    addresses: np.ndarray, which: np.ndarray, theta: np.ndarray, order: np.ndarray, net: ScorerNet, choices: np.ndarray
) -> None:
    """Write each heuristic's choice in the episodes ``which``, which have stopped at a choice,
    followed by the network's choice (-1 without a network). ``choices`` is (N, heuristics + 1)
    int64, with ``WAIT`` for waiting.
    """
    for place in range(len(which)):
        e = _at(addresses[which[place]])
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


class Image:
    """A sequence of jobs, prepared for episodes."""

    def __init__(
        self,
        cluster: Cluster,
        scene: EngineScenario,
        codec: EpisodeCodec,
        terms: EpisodeReward,
        log: np.recarray,
        recorded: bool,
    ) -> None:
        self.cluster, self.scene, self.recorded = cluster, scene, recorded
        self.state = new_episode(scene, codec, terms, log)
        self.state.tally.recorded = recorded
        begin = jit.BoundCall(begin_episode, self.state)
        begin()
        self.words = np.array(begin.words, np.int64)
        moving = [value for value, moves in _members(self.state) if moves]
        pieces = [value.tobytes() for value in moving]
        sizes = [-(-len(piece) // _LINE_B) * _LINE_B for piece in pieces]
        self.offset = np.cumsum([0, *sizes[:-1]])
        self.places = dict(zip(_NAMES_OF_MOVES, zip(self.offset.tolist(), moving, strict=True), strict=True))
        padded = bytearray().join(piece.ljust(size, b"\0") for piece, size in zip(pieces, sizes, strict=True))
        self.bytes = np.frombuffer(padded, np.uint8)

    def table(self, arena: np.ndarray, log: np.recarray) -> np.ndarray:
        """Return the words of the table for an episode whose changing arrays are in ``arena``."""
        words = self.words.copy()
        words[_MOVING] = self.offset + arena.ctypes.data
        words[_LOG_WORD] = log.ctypes.data
        words[_LOG_WORD + 1] = len(log)
        return words

    def part(self, arenas: np.ndarray, name: str) -> np.ndarray:
        """Return one of the changing arrays for all episodes in ``arenas``, (..., bytes). The
        result has the shape (..., rows). ``name`` is the name of the field, with the prefix
        ``state.`` for fields of ``State``. A single record is an array without axes.
        """
        begin, value = self.places[name]
        shape = (*arenas.shape[:-1], *np.shape(value))
        strides = (*arenas.strides[:-1], *getattr(value, "strides", ()))
        return np.ndarray(shape, value.dtype, arenas, begin, strides)

    def on(self, arena: np.ndarray, log: np.recarray) -> EpisodeState:
        """Return the episode as named tuples that use the arrays in ``arena``."""
        offsets = iter(self.offset.tolist())
        values = []
        for value, moves in _members(self.state):
            if moves:
                begin = next(offsets)
                there = arena[begin : begin + value.nbytes].view(value.dtype)
                if not isinstance(value, np.ndarray):
                    value = there.view(np.recarray)[0]
                else:
                    value = there.reshape(value.shape).view(type(value))
            values.append(value)
        count = len(State._fields)
        return EpisodeState(State(*values[:count]), *values[count:])._replace(log=log)


def _members(e: EpisodeState) -> Iterator[tuple[Any, bool]]:
    """Yield all arrays and records in the order of the table, and whether they change."""
    for name, value in zip(e.state._fields, e.state, strict=True):
        yield value, name in _STATE_MOVES
    for name, value in zip(e._fields[1:], e[1:], strict=True):
        yield value, name in _MOVES


_NAMES_OF_MOVES = (
    *(f"state.{name}" for name in State._fields if name in _STATE_MOVES),
    *(name for name in EpisodeState._fields[1:] if name in _MOVES),
)

_LENGTHS = [1 + (value.ndim if isinstance(value, np.ndarray) else 0) for value, _ in _members(_example())]
"""Number of words of each member in a table."""
_BEGINS = np.cumsum([0, *_LENGTHS[:-1]])
_MOVING = _BEGINS[[moves for _, moves in _members(_example())]]
"""Indices of the words with the addresses of the changing arrays."""
_LOG_WORD = int(_BEGINS[len(State._fields)])
"""Index of the word with the address of the log, which follows the state."""


class CompiledEpisodes:
    """``count`` episodes of a scenario that the compiled engine supports (``choice.why_not_live``),
    or of a mixture of such scenarios. If ``recorded`` is True, ``schedule`` returns the whole log.
    ``own`` is the user's own reward. It replaces the built-in reward, and only the weight and the
    scale of ``terms`` are then used.

    Raises:
        ConfigError: The engine does not support the codec's placement or reference; or, in
            ``begin``, an episode is too large.
    """

    def __init__(
        self,
        scenario: Any,
        count: int,
        codec: CandidatesConfig | RelativeConfig | DerivedColumns,
        terms: EpisodeReward,
        *,
        recorded: bool = False,
        own: ColumnReward | None = None,
    ) -> None:
        self._derived = codec if isinstance(codec, DerivedColumns) else None
        base = CandidatesConfig() if isinstance(codec, DerivedColumns) else codec
        self._codec, self._features = compiled_codec(base), base.features
        compile_episodes()
        self._scenario, self._terms, self._recorded = scenario, terms, recorded or own is not None
        self._own = own
        self._image = lru_cache(_KEPT)(self._new_image)
        self._allocate(count)

    def _allocate(self, count: int) -> None:
        self._priced = np.zeros(count, np.int64)
        """Number of rows of each log that are already in the user's own reward."""
        self._scratch = scratch(1)
        self._playing: list[Image | None] = [None] * count
        self._seed_of = [0] * count
        self._arenas = [np.zeros(0, np.uint8)] * count
        self._logs = [self._scratch] * count
        self._tables = [np.zeros(0, np.int64)] * count
        self._addresses = np.zeros(count, np.int64)
        self._rewards, self._over = np.zeros(count), np.zeros(count, bool)
        self.now_s = np.zeros(count)
        """(count,) float64: seconds since the start of each episode."""
        self._advance = jit.BoundCall(advance_episodes, self._addresses, self._rewards, self._over, self.now_s)
        self._step = jit.BoundCall(step_episodes, self._addresses, self.now_s)
        flat = np.zeros((0, 0), np.float32)
        self._use_rows(flat, flat, np.zeros((0, 0, 0), np.float32))

    def _use_rows(self, tokens: np.ndarray, context: np.ndarray, gpus: np.ndarray) -> None:
        """Use these arrays for observations from now on."""
        count = len(self._playing)
        self._batch = EpisodeBatch(tokens, context, gpus, np.zeros(count + 1, np.int64), np.zeros(count, bool))
        self._observe = jit.BoundCall(observe_episodes, self._addresses, self._batch)

    def beside(self) -> CompiledEpisodes:
        """Return the same number of new episodes of the same scenario. They share the job sequences
        that are kept."""
        twin = copy(self)
        twin._allocate(len(self._playing))
        return twin

    def saved(self, number: int) -> bytes | None:
        """Return the memory of an episode and, if it is kept, its log. ``restore`` can restore the
        episode from them. Return None if no episode has begun."""
        image = self._playing[number]
        if image is None:
            return None
        memory, rows = (
            self._arenas[number][: len(image.bytes)].tobytes(),
            self._rows_of(number) if self._recorded else 0,
        )
        return memory + self._logs[number][:rows].tobytes()

    def restore(self, number: int, seed: int, content: bytes) -> bool | None:
        """Restore an episode on the job sequence ``seed`` from its memory (``saved``). Return True if it
        is over, and None if the memory does not fit.
        """
        image = self._image(seed)
        memory, rows = content[: len(image.bytes)], content[len(image.bytes) :]
        if len(memory) != len(image.bytes) or (rows and not self._recorded):
            return None
        self._make_room(image.state)
        self._seed_of[number] = seed
        log = whole_log_of(image.scene) if self._recorded else self._log_for(image)
        self._put(number, image, np.frombuffer(memory, np.uint8), log)
        if self._recorded:
            self._priced[number] = self._rows_of(number)
            if len(rows) != self._priced[number] * log.itemsize:
                return None
            log[: self._priced[number]] = np.frombuffer(rows, log.dtype)
        arena = self._arenas[number]
        self.now_s[number] = image.part(arena, "state.clock")["now_s"]
        tally = image.part(arena, "tally")
        return not (tally["choices"] or tally["pending"])

    def _rows_of(self, number: int) -> int:
        """Return the number of rows in the log of an episode."""
        image = self._playing[number]
        assert image is not None
        return int(image.part(self._arenas[number], "state.count")["rows"])

    def keep(self, sequences: int) -> None:
        """Keep the images of at least this many job sequences, so that each is built only once."""
        self._image = lru_cache(max(sequences, _KEPT))(self._new_image)

    def begin(self, which: np.ndarray, seeds: Iterable[int]) -> np.ndarray:
        """Begin the episodes ``which`` on the job sequences with these seeds.

        Return (N,) bool: True for episodes that are over because they have no choice at all.
        """
        for number, seed in zip(which.tolist(), seeds, strict=True):
            image = self._image(int(seed))
            log = whole_log_of(image.scene) if self._recorded else self._log_for(image)
            self._make_room(image.state)
            self._seed_of[number], self._priced[number] = int(seed), 0
            self._put(number, image, image.bytes, log)
        return self.advance(which, np.full(len(which), -1))[1]

    def first_rewards(self, count: int) -> np.ndarray:
        """Return the rewards before the first choices of the episodes in the last ``begin``,
        (count,) float64. They do not follow from any choice, so a learner ignores them.
        """
        return self._rewards[:count]

    def fork(self, number: int, to: int) -> None:
        """Make episode ``to`` a copy of episode ``number`` that continues independently."""
        image = self._playing[number]
        assert image is not None
        log = self._logs[number].copy() if self._recorded else self._logs[number]
        self._seed_of[to], self._priced[to] = self._seed_of[number], self._priced[number]
        self._put(to, image, self._arenas[number][: len(image.bytes)], log)
        self.now_s[to] = self.now_s[number]

    def advance(self, which: np.ndarray, choices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Carry out a choice in each of the episodes ``which``, and continue to the next choice. A
        choice is the index of a row in the episode's last observation.

        Returns (N,) float64 rewards, and (N,) bool: True for episodes that are over. Both are views
        that the next call overwrites.
        """
        count = len(which)
        self._advance(which, choices)
        if self._own is not None:
            self._rewards[:count] = 0.0 - self._own_costs(self._own, which) * self._terms.weight / self._terms.scale
        return self._rewards[:count], self._over[:count]

    def _own_costs(self, own: ColumnReward, which: np.ndarray) -> np.ndarray:
        """Return the costs of the rows that were added to the logs since the last call, (N,)
        float64.
        """
        logs, facts = [], []
        for number in which.tolist():
            image, rows = self._playing[number], self._rows_of(number)
            assert image is not None
            logs.append(self._logs[number][self._priced[number] : rows])
            facts.append(image.scene.facts)
            self._priced[number] = rows
        return gathered(own, logs, facts)

    def observe(self, which: np.ndarray) -> EpisodeBatch:
        """Return the observations of the episodes ``which``, in that order."""
        count = len(which)
        self._observe(which)
        batch = self._batch
        first = batch.first[: count + 1]
        tokens, context = batch.tokens[: first[-1]], batch.context[:count]
        if self._derived is not None:
            owners = np.repeat(np.arange(count), np.diff(first))
            tokens = np.hstack([tokens, self._derived.of_rows(tokens, context, owners)])
        return EpisodeBatch(tokens, context, batch.gpus[:count], first, batch.waits[:count])

    def step(
        self,
        live: np.ndarray,
        actions: np.ndarray,
        legal: np.ndarray,
        outcomes: StepOutcomes,
        seen: StackedObservations,
    ) -> None:
        """Carry out an action in each ``live`` episode, and observe all episodes (``step_episodes``).

        Only the outcomes of live episodes change. The arrays in ``seen`` must be zero. An additional
        column of ``tokens`` is 1 for starts.
        """
        self._step(live, actions, legal, outcomes, seen)
        if self._own is not None and (which := np.flatnonzero(live)).size:
            costs = self._own_costs(self._own, which)
            outcomes.rewards[which] = 0.0 - costs * self._terms.weight / self._terms.scale
        if self._derived is not None:
            # observations of ended episodes are all zeros
            owners, rows = np.nonzero(seen.mask * ~outcomes.over[:, None])
            derived = self._derived.of_rows(seen.tokens[owners, rows], seen.context, owners)
            seen.tokens[owners, rows, -len(self._derived.names) :] = derived

    def fill(self, over: np.ndarray, seen: StackedObservations) -> None:
        """Observe all episodes, as ``step`` does without a live episode."""
        none = np.zeros(len(over), np.int64)
        self.step(none > 0, none, seen.mask, StepOutcomes(none.astype(float), over, none), seen)

    def jct_s(self, number: int) -> np.ndarray:
        """Return the completion times of an episode's jobs so far, (J,) float64, with NaN for jobs
        that are not complete.
        """
        image = self._playing[number]
        assert image is not None
        times_s: np.ndarray = image.part(self._arenas[number], "jobs")["done_s"] - image.scene.work.jobs.arrival_s
        return times_s

    def schedule(self, number: int) -> Schedule:
        """Return the schedule of an episode, which must have been recorded."""
        image, log = self._playing[number], self._logs[number]
        assert image is not None
        assert self._recorded
        state = image.on(self._arenas[number], log).state
        rows = ScheduleLog.of(np.asarray(log[: int(state.count.rows)]))
        return Schedule(image.cluster, image.scene.facts, rows, self._seed_of[number], ended_s=float(state.clock.now_s))

    def _put(self, number: int, image: Image, content: np.ndarray, log: np.recarray) -> None:
        """Set up an episode from an image, with these bytes as its arena."""
        arena, before = self._arenas[number], self._playing[number]
        if before is image and log is self._logs[number]:
            arena[: len(content)] = content
            return
        if len(arena) < len(content):
            arena = self._arenas[number] = aligned(len(content) * 5 // 4)
        arena[: len(content)] = content
        table = self._tables[number] = image.table(arena, log)
        self._playing[number], self._logs[number] = image, log
        _plain.pop(int(self._addresses[number]), None)
        self._addresses[number] = table.ctypes.data
        if not jit.jitted():
            _plain[table.ctypes.data] = image.on(arena, log)

    def _new_image(self, seed: int) -> Image:
        scenario = self._scenario
        if world := getattr(scenario, "world", None):
            scenario = world(seed)
        arrays = scenario.jobs(seed).arrays()
        scene = read_scenario(scenario.cluster, arrays, scenario.runtime, scenario.estimates, seed, scenario.queues)
        if why := too_much(scene, "") or too_large(scene):
            raise refused_engine(why)
        return Image(scenario.cluster, scene, self._codec, self._terms, self._scratch, self._recorded)

    def _make_room(self, e: EpisodeState) -> None:
        """Enlarge the buffers for observations if an episode may have more rows than any episode so
        far.
        """
        count, most = len(self._playing), len(e.choice) + 1
        if len(self._batch.tokens) < count * most:
            features, types = self._features, 1 if self._codec.relative else len(e.shown)
            self._use_rows(
                np.empty((count * most, len(features["tokens"])), np.float32),
                np.zeros((count, len(features["context"])), np.float32),
                np.zeros((count, types, len(features["gpus"])), np.float32),
            )

    def _log_for(self, image: Image) -> np.recarray:
        """Return a log with space for only a few rows, which the episodes share. If an episode has
        too many nodes for it, the log is replaced with a larger one.
        """
        if len(self._scratch) < 4 * len(image.cluster.nodes):
            self._scratch = scratch(len(image.cluster.nodes))
        return self._scratch


def compiled_codec(codec: CandidatesConfig | RelativeConfig) -> EpisodeCodec:
    """Return the codec in the form that the compiled engine uses.

    Raises:
        ConfigError: The engine does not support the codec's placement or reference.
    """
    placement = placement_number(placing(codec.placement))
    if isinstance(codec, CandidatesConfig):
        return EpisodeCodec(placement)
    reference = POLICIES.create(codec.reference)
    if type(reference) is not EftWait or reference.order != "work":
        raise ConfigError(f"the reference {codec.reference!r} is not compiled; use eft-wait with order=work")
    return EpisodeCodec(placement, True, reference.theta)


def put_at(image: Image, arenas: np.ndarray, log: np.recarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the tables of the episodes in ``arenas`` (episodes, bytes), which all have the same
    image, and the addresses of the tables.
    """
    tables = np.tile(image.table(arenas[0], log), (len(arenas), 1))
    tables[:, _MOVING] += arenas.shape[1] * np.arange(len(arenas))[:, None]
    addresses = tables.ctypes.data + tables.strides[0] * np.arange(len(arenas))
    if not jit.jitted():
        _plain.update(
            (address, image.on(arena, log)) for address, arena in zip(addresses.tolist(), arenas, strict=True)
        )
    return tables, addresses


def aligned(size: int) -> np.ndarray:
    """Return an array of bytes whose address is a multiple of ``_LINE_B``."""
    array = np.zeros(size + _LINE_B, np.uint8)
    return array[-array.ctypes.data % _LINE_B :][:size]


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
        begin_episode(_example())
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
