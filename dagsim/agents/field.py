"""Where episodes are played: in this process, or in several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import nn

from dagsim.agents.config import NetConfig
from dagsim.agents.episode import Episode, Maker, Steps, play
from dagsim.agents.nets import Sizes, build
from dagsim.envs.rewards import RewardConfig
from dagsim.systems.cluster.codecs.candidates import Candidates
from dagsim.systems.cluster.codecs.codec import Codec
from dagsim.systems.cluster.codecs.config import CandidatesConfig
from dagsim.systems.cluster.kernel import ClusterKernel

__all__ = ["Field", "Ground", "Here", "Workers", "one_thread", "sizes_of"]


class Ground(NamedTuple):
    """What an episode is made of; can be sent to another process where ``maker`` can."""

    maker: Maker
    codec: CandidatesConfig
    reward: RewardConfig

    def episode(self, seed: int) -> Episode:
        """A new episode on the job sequence with that seed."""
        return Episode(self.maker(seed), Candidates(self.codec), self.reward)

    def judged(
        self, net: nn.Module, seeds: Sequence[int], wrap: Callable[[Codec], Codec] | None = None, at_once: int = 50
    ) -> list[ClusterKernel]:
        """The finished simulations of a greedy policy, one per seed; ``wrap`` is put around its codecs."""
        done: list[ClusterKernel] = []
        for begin in range(0, len(seeds), at_once):
            codecs: list[Codec] = [Candidates(self.codec) for _ in seeds[begin : begin + at_once]]
            if wrap is not None:
                codecs = list(map(wrap, codecs))
            episodes = [Episode(self.maker(seed), codec) for seed, codec in zip(seeds[begin:], codecs, strict=False)]
            play(net, episodes, None, keep=False)
            done += [episode.simulation for episode in episodes]
        return done


class Field(Protocol):
    """Plays episodes with drawn choices."""

    ground: Ground

    def play(
        self, net: nn.Module, seeds: Sequence[int], chance: Sequence[int], explore: float | None = None
    ) -> list[Steps]:
        """An episode per entry of ``seeds``, in that order; ``chance`` seeds the choices, ``explore`` is that of
        ``episode.play``."""
        ...


class Here:
    """In this process."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground

    def play(
        self, net: nn.Module, seeds: Sequence[int], chance: Sequence[int], explore: float | None = None
    ) -> list[Steps]:
        episodes = [self.ground.episode(seed) for seed in seeds]
        return play(net, episodes, np.random.default_rng(list(chance)), explore=explore)


class Workers:
    """In ``count`` processes of one thread each; used as a context, so that they end with it."""

    def __init__(self, ground: Ground, net: NetConfig, count: int) -> None:
        self.ground = ground
        self._net = net
        self._count = count
        self._pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=one_thread)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def play(
        self, net: nn.Module, seeds: Sequence[int], chance: Sequence[int], explore: float | None = None
    ) -> list[Steps]:
        weights = {name: value.numpy() for name, value in net.state_dict().items()}
        share = -(-len(seeds) // self._count)
        parts = [seeds[begin : begin + share] for begin in range(0, len(seeds), share)]
        run: Callable[..., list[Steps]] = partial(_play, self.ground, self._net, weights, explore)
        chances = [(*chance, number) for number in range(len(parts))]
        return [steps for played in self._pool.map(run, parts, chances) for steps in played]


def sizes_of() -> Sizes:
    """The columns of the candidates codec."""
    return Sizes(len(Candidates.token_features), len(Candidates.context_features), len(Candidates.gpu_features))


def _play(
    ground: Ground,
    config: NetConfig,
    weights: dict[str, np.ndarray],
    explore: float | None,
    seeds: Sequence[int],
    chance: Sequence[int],
) -> list[Steps]:
    net = build(config, sizes_of())
    net.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    return Here(ground).play(net, seeds, chance, explore)


def one_thread() -> None:
    """Let torch use one thread in this process: more only get into each other's way on networks this small."""
    torch.set_num_threads(1)
