"""Roll-outs: episodes played by a net, in one or several processes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from dagsim.agents.config import LOCKSTEP
from dagsim.agents.nets.actor import ActorNet
from dagsim.agents.nets.config import NetSettings
from dagsim.envs.episode import Episode, EpisodeFactory, WitnessFactory
from dagsim.errors import SimulationError
from dagsim.processes import end_with_parent, starting
from dagsim.systems.seam import Codec, Kernel

__all__ = [
    "EpisodeSteps",
    "InProcessRollouts",
    "ProcessRollouts",
    "Rollouts",
    "choices_of",
    "evaluate_greedy",
    "one_thread",
    "play",
    "spared",
]


@dataclass(slots=True)
class EpisodeSteps:
    """One episode, choice by choice."""

    observations: list[Any] = field(default_factory=list)
    choices: list[Any] = field(default_factory=list)
    """One number each, or a tuple of one number per head."""
    log_p: list[float] = field(default_factory=list)
    """Log-probability of each choice when it was made."""
    times_s: list[float] = field(default_factory=list)
    """Time of each choice, and of the end of the episode."""
    rewards: list[float] = field(default_factory=list)
    """Reward from each choice to the next; the last one lasts until the end."""
    notes: list[Any] = field(default_factory=list)
    """The witness's note on each choice, if there was a witness."""
    hindsight: Any = None
    """The witness's note on the whole episode."""


def choices_of(episodes: Sequence[EpisodeSteps]) -> np.ndarray:
    """(T,) or (T, heads) int64: the choices of all episodes, concatenated."""
    return np.array([choice for steps in episodes for choice in steps.choices], np.int64)


def play(
    net: ActorNet,
    episodes: Sequence[Episode],
    rng: np.random.Generator | None,
    *,
    explore: float | None = None,
    keep: bool = True,
) -> list[EpisodeSteps]:
    """Play all episodes to their ends in lock-step, with one pass of the net per step.

    ``rng`` and ``explore`` are those of ``ActorNet.act``. Without ``keep``, only the simulations
    are returned.
    """
    all_steps = [EpisodeSteps() for _ in episodes]
    live = [number for number, episode in enumerate(episodes) if episode.observation is not None]
    while live:
        batch = net.stack([episodes[number].observation for number in live])
        choices, log_p = net.act(batch, rng, explore)
        for number, choice, likely in zip(live, choices.tolist(), log_p.tolist(), strict=True):
            episode, steps = episodes[number], all_steps[number]
            if keep:
                steps.observations.append(episode.observation)
                steps.choices.append(choice)
                steps.log_p.append(likely)
                steps.times_s.append(episode.now)
                if episode.witness is not None:
                    steps.notes.append(episode.witness.note())
            episode.step(choice)
            if keep:
                steps.rewards.append(episode.reward())
        live = [number for number in live if episodes[number].observation is not None]
    for episode, steps in zip(episodes, all_steps, strict=True):
        steps.times_s.append(episode.now)
        if keep and episode.witness is not None:
            steps.hindsight = episode.witness.hindsight()
    return all_steps


def evaluate_greedy(
    net: ActorNet,
    factory: EpisodeFactory,
    seeds: Sequence[int],
    wrap: Callable[[Codec], Codec] | None = None,
    at_once: int = 50,
) -> list[Kernel[Any, Any]]:
    """Simulate the greedy policy to the end, once per seed. ``wrap`` is applied to the codecs."""
    kernels: list[Kernel[Any, Any]] = []
    for begin in range(0, len(seeds), at_once):
        episodes = []
        for seed in seeds[begin : begin + at_once]:
            codec = factory.codec.build()
            episodes.append(Episode(factory.kernel(seed), codec if wrap is None else wrap(codec)))
        play(net, episodes, None, keep=False)
        kernels += [episode.kernel for episode in episodes]
    return kernels


class Rollouts(Protocol):
    """Plays episodes in which choices are drawn by their probabilities."""

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
        """Play one episode per entry of ``seeds``, in that order. ``rng_key`` seeds the choices,
        ``explore`` is that of ``ActorNet.act``, and ``jobs`` and ``witness`` are those of
        ``EpisodeFactory.episode``.
        """
        ...


class InProcessRollouts:
    """Plays episodes in the current process."""

    def __init__(self, factory: EpisodeFactory, lockstep: int = LOCKSTEP) -> None:
        self.factory = factory
        self._lockstep = lockstep

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
        for part in _parts(seeds, rng_key, self._lockstep):
            episodes = [self.factory.episode(seed, jobs, witness) for seed in part.seeds]
            all_steps += play(net, episodes, np.random.default_rng(part.rng_key), explore=explore)
        return all_steps


class ProcessRollouts:
    """Plays episodes in ``count`` processes of one thread each. The result is the same as that of
    ``InProcessRollouts``, bit for bit. It is a context manager, at the end of which the
    processes stop.
    """

    def __init__(self, factory: EpisodeFactory, count: int, lockstep: int = LOCKSTEP) -> None:
        self.factory = factory
        self._lockstep = lockstep
        self._pool = ProcessPoolExecutor(
            count, mp_context=get_context("spawn"), initializer=_begin, initargs=(factory,)
        )
        with starting(main=True):
            for _ in range(count):  # each call starts a process, as none is idle yet
                self._pool.submit(_nothing)

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
        weights = {name: value.numpy() for name, value in net.state_dict().items()}
        run = partial(_play, net.settings, weights, explore, jobs, witness)
        try:
            parts = self._pool.map(run, _parts(seeds, rng_key, self._lockstep))
            return [steps for all_steps in parts for steps in all_steps]
        except BrokenProcessPool:
            raise SimulationError(
                "a worker process was killed, perhaps for lack of memory; --workers 1 needs the least"
            ) from None


class _Part(NamedTuple):
    """Episodes that are played in lock-step."""

    seeds: Sequence[int]
    rng_key: tuple[int, ...]


def _parts(seeds: Sequence[int], rng_key: Sequence[int], size: int) -> list[_Part]:
    """Divide a roll-out into parts, independently of the number of workers: a net rounds its sums
    differently for another batch size.
    """
    begins = range(0, len(seeds), size)
    return [_Part(seeds[begin : begin + size], (*rng_key, 0, number)) for number, begin in enumerate(begins)]


_episodes: EpisodeFactory
"""The factory of a worker process, kept so that a pool of jobs is read once."""


def _begin(factory: EpisodeFactory) -> None:
    global _episodes
    end_with_parent()
    one_thread()
    gc.freeze()
    _episodes = factory


def _nothing() -> None:
    """Do nothing; submitting this function starts a worker."""


def _play(
    settings: NetSettings,
    weights: dict[str, np.ndarray],
    explore: float | None,
    jobs: int | None,
    witness: WitnessFactory | None,
    part: _Part,
) -> list[EpisodeSteps]:
    net = settings.build(_episodes.codec)
    net.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    episodes = [_episodes.episode(seed, jobs, witness) for seed in part.seeds]
    return play(net, episodes, np.random.default_rng(part.rng_key), explore=explore)


def one_thread() -> None:
    """Limit torch to one thread in this process. With nets this small, more threads only slow each
    other down.
    """
    torch.set_num_threads(1)


@contextmanager
def spared() -> Iterator[None]:
    """Exclude all existing objects from full passes of the garbage collector. torch alone has
    300,000 of them, and scanning them takes about 17 % of the sampling time between two passes.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
