"""Run many episodes side by side in compiled code.

    episodes = CompiledEpisodes(scenario, 64, CandidatesConfig(), EpisodeReward())
    episodes.begin(every, seeds)  # every = np.arange(64)
    while ...:
        batch = episodes.observe(every)
        rewards, over = episodes.advance(every, choices)

In this module alone, the addresses of episodes are kept from one call to the next, because building
a table for each call would take longer than the decision itself. They remain valid, because
``_put`` replaces the image, arena, log and table of an episode together and keeps references to all
four, and because none of these arrays is ever resized.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from functools import lru_cache
from typing import Any

import numpy as np

from dagsim.errors import ConfigError
from dagsim.families.compiled import jit
from dagsim.families.compiled.choice import too_much
from dagsim.families.compiled.drive import placement_number
from dagsim.families.compiled.reading import read_scenario
from dagsim.families.episodes.episode_calls import (
    EpisodeBatch,
    advance_episodes,
    compile_episodes,
    observe_episodes,
    step_episodes,
)
from dagsim.families.episodes.episode_state import (
    EpisodeCodec,
    EpisodeReward,
    EpisodeState,
    scratch,
    too_large,
    whole_log_of,
)
from dagsim.families.episodes.images import Image, aligned, by_address
from dagsim.families.episodes.playout import WAIT
from dagsim.families.learning.codecs.codec import CandidatesConfig, RelativeConfig, StackedObservations, StepOutcomes
from dagsim.families.learning.codecs.further import DerivedColumns
from dagsim.families.learning.column_rewards import ColumnReward, gathered
from dagsim.model.log import Schedule, ScheduleLog
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.policies.look_ahead import EftWait
from dagsim.systems.cluster.policies.placement import placing
from dagsim.systems.cluster.scenario import refused_engine

_KEPT = 64
"""Number of job sequences whose images are kept."""


class CompiledEpisodes:
    """``count`` episodes of a scenario that the compiled engine supports (``choice.why_not_live``),
    or of a mixture of such scenarios. If ``recorded`` is True, ``schedule`` returns the whole log.
    ``own`` is the user's own reward. It replaces the built-in reward, and only the weight and the
    scale of ``terms`` are then used.

    Raises:
        ConfigError: The engine does not support the codec's placement or reference; or, in
            ``begin``, an episode is too large.
    """

    wait = WAIT
    """The choice to wait in ``advance``. It needs no row."""

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
        choice is the index of a row in the episode's last observation, or ``wait``.

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
        by_address.pop(int(self._addresses[number]), None)
        self._addresses[number] = table.ctypes.data
        if not jit.jitted():
            by_address[table.ctypes.data] = image.on(arena, log)

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
