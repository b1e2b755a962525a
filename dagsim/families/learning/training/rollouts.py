"""Roll-outs: episodes in which a network makes the choices. They run in one or more processes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from dagsim.errors import SimulationError
from dagsim.families.learning.codecs.codec import Observation
from dagsim.families.learning.episode import Episode, EpisodeFactory, WitnessFactory
from dagsim.families.learning.nets.actor import ActorNet, ObservationBatch, ScoreNet
from dagsim.families.learning.nets.net_settings import NetSettings
from dagsim.families.learning.observation_bounds import BoundsRecorder, ObservationBounds
from dagsim.families.learning.training.train_config import LOCKSTEP
from dagsim.model import Kind
from dagsim.model.log import Schedule
from dagsim.systems.seam import Codec
from dagsim.workers import end_with_parent, kill_workers, leave_to_workers, starting


class RngPurpose(IntEnum):
    """The purposes of random numbers. A seed contains the number of its purpose, so drawing for one
    purpose does not change what is drawn for another."""

    EPISODES = 0
    """The choices in episodes."""
    POLICY = 1
    """The minibatches on which a policy learns."""
    CRITIC = 2
    """The minibatches on which a critic learns."""
    IMITATION = 3
    """Behaviour cloning."""
    REPLAY = 5
    """The transitions from a replay buffer."""


@dataclass(slots=True)
class EpisodeSteps:
    """One episode as a sequence of choices."""

    observations: list[Any] = field(default_factory=list)
    choices: list[Any] = field(default_factory=list)
    """One number per choice, or a tuple with one number per head."""
    log_p: list[float] = field(default_factory=list)
    """Log-probability of each choice when it was made."""
    times_s: list[float] = field(default_factory=list)
    """Time of each choice, and of the end of the episode."""
    rewards: list[float] = field(default_factory=list)
    """Reward from each choice to the next; for the last choice, until the end of the episode."""
    notes: list[Any] = field(default_factory=list)
    """The witness's note on each choice, if there was a witness."""
    hindsight: Any = field(default=None, kw_only=True)
    """The witness's note on the whole episode."""
    jct_s: float = field(default=float("nan"), kw_only=True)
    """The mean completion time of the jobs that completed, or NaN if none did."""
    unit_s: float = field(default=1.0, kw_only=True)
    """The unit of ``times_s`` and ``rewards``, in seconds."""


def choices_of(episodes: Sequence[EpisodeSteps]) -> np.ndarray:
    """Return the choices of all episodes, concatenated. Shape (T,) or (T, heads), int64."""
    return np.array([choice for steps in episodes for choice in steps.choices], np.int64)


class Stage(Protocol):
    """Several episodes that run side by side. ``live`` contains the numbers of the episodes that
    are not over."""

    live: list[int]

    def look(self, net: ActorNet, keep: bool) -> tuple[list[Any], Any]:
        """Return the observations of the live episodes, and a batch of them for ``net``. Without
        ``keep``, the observations may be missing."""

    def step(self, choices: np.ndarray) -> Sequence[float] | np.ndarray:
        """Carry out one choice in each live episode. Return the rewards that each of them receives
        until its next choice. Finished episodes are removed from ``live``."""

    def times_s(self) -> Sequence[float] | np.ndarray:
        """Return the current time of each live episode."""

    def end_s(self, number: int) -> float:
        """Return the end time of a finished episode."""

    def jct_s(self, number: int) -> float:
        """Return the mean completion time of the completed jobs in a finished episode, or NaN if
        there are none."""

    def notes(self) -> Sequence[Any]:
        """Return what the witness (``Witness``) notes about the current state of each live episode.
        Without a witness, return no notes.
        """

    def hindsight(self, number: int) -> Any:
        """Return the note of the witness on a whole episode, or ``None`` without a witness."""


class _SimulatedStage:
    """Episodes in the system's own kernels."""

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self.episodes = episodes
        self.live = [number for number, episode in enumerate(episodes) if episode.observation is not None]

    def look(self, net: ActorNet, keep: bool) -> tuple[list[Any], Any]:
        observations = [self.episodes[number].observation for number in self.live]
        return observations, net.stack(observations)

    def step(self, choices: np.ndarray) -> Sequence[float]:
        rewards = []
        for number, choice in zip(self.live, choices.tolist(), strict=True):
            self.episodes[number].step(choice)
            rewards.append(self.episodes[number].reward())
        self.live = [number for number in self.live if self.episodes[number].observation is not None]
        return rewards

    def times_s(self) -> Sequence[float]:
        return [self.episodes[number].now for number in self.live]

    def end_s(self, number: int) -> float:
        return self.episodes[number].now

    def jct_s(self, number: int) -> float:
        return _mean_jct_s(self.episodes[number].kernel.schedule)

    def notes(self) -> Sequence[Any]:
        witnesses = [self.episodes[number].witness for number in self.live]
        return [witness.note() for witness in witnesses if witness is not None]

    def hindsight(self, number: int) -> Any:
        witness = self.episodes[number].witness
        return None if witness is None else witness.hindsight()


def _mean_jct_s(schedule: Schedule) -> float:
    """Return the mean completion time of the completed jobs, or NaN if there are none."""
    rows = schedule.log.rows()
    completed = rows[rows["kind"] == Kind.COMPLETED]
    if not len(completed):
        return float("nan")
    arrival_s = np.array([job.arrival_s for job in schedule.jobs])
    return float(np.mean(completed["time_s"] - arrival_s[completed["job"]]))


class _CompiledStage:
    """Episodes in the compiled engine. The observations of a step share their arrays."""

    def __init__(self, lane: Any, seeds: Sequence[int], bounds: ObservationBounds | None = None) -> None:
        self._lane, self._bounds = lane, bounds
        every = np.arange(len(seeds))
        self._which = every[~lane.begin(every, seeds)]
        self.live = self._which.tolist()

    def look(self, net: ActorNet, keep: bool) -> tuple[list[Any], Any]:
        shown = self._lane.observe(self._which)
        tokens, context, gpus, first = (
            part.copy() if keep else part for part in (shown.tokens, shown.context, shown.gpus, shown.first)
        )
        if self._bounds is not None:
            self._bounds.widen(Observation(tokens, context, gpus))
        observations: list[Any] = []
        if keep or type(net).stack is not ScoreNet.stack:
            rows = [tokens[begin:end] for begin, end in pairwise(first.tolist())]
            observations = list(map(Observation, rows, context, gpus))
        if type(net).stack is not ScoreNet.stack:
            return observations, net.stack(observations)
        parts = (tokens, context, gpus, np.arange(len(context)).repeat(first[1:] - first[:-1]), first[:-1])
        return observations, ObservationBatch(*map(torch.from_numpy, parts))

    def step(self, choices: np.ndarray) -> np.ndarray:
        overwritten, over = self._lane.advance(self._which, choices)
        rewards: np.ndarray = overwritten.copy()  # copy the array, because the next step overwrites it
        if over.any():
            self._which = self._which[~over]
            self.live = self._which.tolist()
        return rewards

    def times_s(self) -> np.ndarray:
        times_s: np.ndarray = self._lane.now_s[self._which]
        return times_s

    def end_s(self, number: int) -> float:
        return float(self._lane.now_s[number])

    def jct_s(self, number: int) -> float:
        times_s = self._lane.jct_s(number)
        completed = ~np.isnan(times_s)
        return float(times_s[completed].mean()) if completed.any() else float("nan")

    def notes(self) -> Sequence[Any]:
        return []

    def hindsight(self, number: int) -> Any:
        return None


def play(
    net: ActorNet,
    episodes: Sequence[Episode],
    rng: np.random.Generator | None,
    *,
    explore: float | None = None,
    keep: bool = True,
) -> list[EpisodeSteps]:
    """Run all episodes to their end. In each step, every running episode makes one choice, and one
    forward pass computes all of them.

    ``rng`` and ``explore`` are as in ``ActorNet.act``. Without ``keep``, the
    result contains only the simulations.
    """
    return play_stage(net, _SimulatedStage(episodes), len(episodes), rng, explore=explore, keep=keep)


def play_stage(
    net: ActorNet,
    stage: Stage,
    count: int,
    rng: np.random.Generator | None,
    *,
    explore: float | None = None,
    keep: bool = True,
) -> list[EpisodeSteps]:
    """Do the same as ``play`` for the ``count`` episodes on a stage, in any engine."""
    moments: list[_Moment] = []
    while stage.live:
        live = stage.live
        observations, batch = stage.look(net, keep)
        choices, log_p = net.act(batch, rng, explore)
        if keep:
            times_s, notes = stage.times_s(), stage.notes()
            moments.append(_Moment(live, observations, choices, log_p, times_s, stage.step(choices), notes))
        else:
            stage.step(choices)
    all_steps = _by_episode(moments, count)
    for number, steps in enumerate(all_steps):
        steps.times_s.append(stage.end_s(number))
        if keep:
            steps.hindsight = stage.hindsight(number)
            steps.jct_s = stage.jct_s(number)
    return all_steps


class _Moment(NamedTuple):
    """One step of a stage, in which each running episode makes a choice. All fields except the
    first one are as in ``EpisodeSteps``.
    """

    live: Sequence[int]
    observations: Sequence[Any]
    choices: np.ndarray
    log_p: np.ndarray
    times_s: Sequence[float] | np.ndarray
    rewards: Sequence[float] | np.ndarray
    notes: Sequence[Any]


def _by_episode(moments: Sequence[_Moment], count: int) -> list[EpisodeSteps]:
    """Return the steps of each of the ``count`` episodes, without the times at which the episodes
    end."""
    if not moments:
        return [EpisodeSteps() for _ in range(count)]
    numbers = np.concatenate([moment.live for moment in moments])
    order = np.argsort(numbers, kind="stable").tolist()
    ends = np.cumsum(np.bincount(numbers, minlength=count)).tolist()
    columns: dict[str, Any] = {}
    for place, name in enumerate(_Moment._fields[1:], 1):
        parts = [moment[place] for moment in moments]
        values = [value for part in parts for value in (part.tolist() if isinstance(part, np.ndarray) else part)]
        columns[name] = [values[number] for number in order] if values else []
    return [
        EpisodeSteps(**{name: column[begin:end] for name, column in columns.items()})
        for begin, end in zip([0, *ends[:-1]], ends, strict=True)
    ]


def evaluate_greedy(
    net: ActorNet,
    factory: EpisodeFactory,
    seeds: Sequence[int],
    wrap: Callable[[Codec], Codec] | None = None,
    at_once: int = 50,
    bounds: ObservationBounds | None = None,
) -> list[Schedule]:
    """Simulate one episode per seed to its end. The most likely choice is always taken. ``wrap`` is
    applied to the codecs. ``bounds`` is widened so that it includes all observations.
    """
    schedules: list[Schedule] = []
    lane = _lane_of(factory, min(at_once, len(seeds)), recorded=True) if wrap is None else None
    for begin in range(0, len(seeds), at_once):
        part = seeds[begin : begin + at_once]
        if lane is not None:
            play_stage(net, _CompiledStage(lane, part, bounds), len(part), None, keep=False)
            schedules += [lane.schedule(number) for number in range(len(part))]
            continue
        episodes = []
        for seed in part:
            codec = factory.codec.build()
            if bounds is not None:
                codec = BoundsRecorder(codec, bounds)
            episodes.append(Episode(factory.kernel(seed), codec if wrap is None else wrap(codec)))
        play(net, episodes, None, keep=False)
        schedules += [episode.kernel.schedule for episode in episodes]
    return schedules


class Rollouts(Protocol):
    """Runs episodes. Their choices are sampled with the probabilities that the network computes."""

    factory: EpisodeFactory

    def play(
        self,
        net: ActorNet,
        seeds: Sequence[int],
        rng_key: Sequence[int],
        *,
        explore: float | None = None,
        jobs: int | None = None,
        witness: WitnessFactory | None = None,
    ) -> list[EpisodeSteps]:
        """Run one episode for each entry of ``seeds``, in that order. ``rng_key`` is the seed of
        the choices. ``explore`` is as in ``ActorNet.act``, and ``jobs`` and ``witness`` are as in
        ``EpisodeFactory.episode``."""


class InProcessRollouts:
    """Runs episodes in the current process."""

    def __init__(self, factory: EpisodeFactory, lockstep: int = LOCKSTEP) -> None:
        self.factory = factory
        self._lockstep = lockstep
        self._player = EpisodePlayer(factory)

    def play(
        self,
        net: ActorNet,
        seeds: Sequence[int],
        rng_key: Sequence[int],
        *,
        explore: float | None = None,
        jobs: int | None = None,
        witness: WitnessFactory | None = None,
    ) -> list[EpisodeSteps]:
        all_steps = []
        for part in parts_of_rollout(seeds, rng_key, self._lockstep):
            all_steps += self._player.play(net, part, explore, jobs, witness)
        return all_steps


class ProcessRollouts:
    """Runs episodes in ``count`` processes with one thread each. The result is the same as with
    ``InProcessRollouts``, bit for bit. The processes end with the ``with`` statement."""

    def __init__(self, factory: EpisodeFactory, count: int, lockstep: int = LOCKSTEP) -> None:
        self.factory = factory
        self._lockstep = lockstep
        self._pool = ProcessPoolExecutor(
            count, mp_context=get_context("spawn"), initializer=_begin, initargs=(factory,)
        )
        with starting(main=True):
            for _ in range(count):  # no process is idle yet, so each submission starts a new process
                self._pool.submit(_nothing)
        leave_to_workers(self._pool)

    def __enter__(self) -> ProcessRollouts:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def play(
        self,
        net: ActorNet,
        seeds: Sequence[int],
        rng_key: Sequence[int],
        *,
        explore: float | None = None,
        jobs: int | None = None,
        witness: WitnessFactory | None = None,
    ) -> list[EpisodeSteps]:
        run = partial(_play, net.settings, weights_of(net), explore, jobs, witness)
        try:
            parts = self._pool.map(run, parts_of_rollout(seeds, rng_key, self._lockstep))
            return [steps for all_steps in parts for steps in all_steps]
        except BrokenProcessPool:
            kill_workers(self._pool)  # from Python 3.12 on, the executor would wait for the remaining workers forever
            raise SimulationError(
                "a worker process was killed, perhaps for lack of memory; --workers 1 needs the least memory"
            ) from None


class EpisodePart(NamedTuple):
    """A part of a roll-out: episodes that run in lock-step, and the seed of their choices."""

    seeds: Sequence[int]
    rng_key: tuple[int, ...]


def parts_of_rollout(seeds: Sequence[int], rng_key: Sequence[int], size: int) -> list[EpisodePart]:
    """Divide a roll-out into parts. The parts do not depend on the number of workers, because the
    size of a batch affects how a network rounds its sums."""
    begins = range(0, len(seeds), size)
    key = (*rng_key, RngPurpose.EPISODES)
    return [EpisodePart(seeds[begin : begin + size], (*key, number)) for number, begin in enumerate(begins)]


class EpisodePlayer:
    """Runs parts of roll-outs. The compiled engine is used if the factory requests it. A player is
    kept between roll-outs, so that a pool of jobs is read only once.
    """

    def __init__(self, factory: EpisodeFactory) -> None:
        self.factory = factory
        self._lane: Any | None = None
        self._room = 0

    def play(
        self, net: ActorNet, part: EpisodePart, explore: float | None, jobs: int | None, witness: WitnessFactory | None
    ) -> list[EpisodeSteps]:
        rng, count = np.random.default_rng(part.rng_key), len(part.seeds)
        if jobs is None and witness is None:
            if self._room < count:
                self._lane, self._room = _lane_of(self.factory, count), count
            if self._lane is not None:
                return play_stage(net, _CompiledStage(self._lane, part.seeds), count, rng, explore=explore)
        episodes = [self.factory.episode(seed, jobs, witness) for seed in part.seeds]
        return play(net, episodes, rng, explore=explore)

    def play_weights(
        self,
        settings: NetSettings,
        weights: Mapping[str, np.ndarray],
        explore: float | None,
        jobs: int | None,
        witness: WitnessFactory | None,
        part: EpisodePart,
    ) -> list[EpisodeSteps]:
        """Do the same as ``play``, for a network that is given by its settings and its weights
        (from ``weights_of``)."""
        net = settings.build(self.factory.codec)
        net.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
        return self.play(net, part, explore, jobs, witness)


def weights_of(net: ActorNet) -> dict[str, np.ndarray]:
    """Return the weights of a network by name, in the form that workers receive."""
    return {name: value.numpy() for name, value in net.state_dict().items()}


def _lane_of(factory: EpisodeFactory, count: int, *, recorded: bool = False) -> Any | None:
    """Return episodes in the compiled engine if the factory requests them and the engine supports
    them. Otherwise, return ``None``."""
    if not factory.compiled:
        return None
    reward = factory.reward
    lane = factory.scenario.episodes(count, factory.codec, reward.terms, reward.scale, recorded=recorded)
    return None if isinstance(lane, str) else lane


_player: EpisodePlayer
"""The player of a worker process."""


def _begin(factory: EpisodeFactory) -> None:
    global _player
    end_with_parent()
    one_thread()
    gc.freeze()
    _player = EpisodePlayer(factory)


def _nothing() -> None:
    """Do nothing. Submitting this function starts a worker."""


def _play(*arguments: Any) -> list[EpisodeSteps]:
    return _player.play_weights(*arguments)


def one_thread() -> None:
    """Limit torch to one thread in this process. Networks are so small here that several threads
    only slow each other down."""
    torch.set_num_threads(1)


@contextmanager
def spared() -> Iterator[None]:
    """Inside the ``with`` statement, exclude all existing objects from full garbage collections.
    Torch alone creates 300,000 objects. Scanning them would take about 17% of the sampling time
    between two collections.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
