"""Episodes: simulations that stop wherever there is something to choose, and many of them played side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch
from torch import nn

from dagsim.agents.ragged import log_softmax, sample, stack
from dagsim.envs.rewards import Reward, RewardConfig
from dagsim.systems.cluster.codecs.codec import Codec, Observation
from dagsim.systems.cluster.kernel import ClusterKernel

__all__ = ["Episode", "Maker", "Steps", "play"]

Maker: TypeAlias = Callable[[int], ClusterKernel]
"""Makes a new simulation of the job sequence with that seed; the same seed gives the same jobs."""


@dataclass(slots=True)
class Steps:
    """What happened in one episode, choice by choice."""

    observations: list[Observation] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)
    log_p: list[float] = field(default_factory=list)
    """Log-probability of each choice as it was made."""
    times_s: list[float] = field(default_factory=list)
    """When each choice was made, and when the episode ended."""
    rewards: list[float] = field(default_factory=list)
    """Reward from each choice to the next, the last until the end."""


class Episode:
    """One simulation under way. ``observation`` is what there is to choose from now, ``None`` when it is over."""

    def __init__(self, simulation: ClusterKernel, codec: Codec, reward: RewardConfig | None = None) -> None:
        self.simulation = simulation
        self.codec = codec
        self.observation: Observation | None = None
        self._reward = None if reward is None else Reward(reward, simulation)
        self._conversation = simulation.decisions()
        self._view = next(self._conversation, None)
        self._to_next_choice()
        self.reward()

    @property
    def now(self) -> float:
        """Seconds since the start of the simulation."""
        return self.simulation.now

    def reward(self) -> float:
        """The reward since this was last asked."""
        return 0.0 if self._reward is None else self._reward.step()

    def step(self, choice: int) -> None:
        """Carry out the choice and go on to the next."""
        assert self._view is not None
        decision = self.codec.decode(self._view, choice)
        self._send(() if decision is None else (decision,))
        self._to_next_choice()

    def _to_next_choice(self) -> None:
        while self._view is not None:
            self.observation = self.codec.encode(self._view)
            if self.observation is not None:
                return
            self._send(())
        self.observation = None

    def _send(self, decisions: Iterable[object]) -> None:
        try:
            self._view = self._conversation.send(decisions)  # type: ignore[arg-type]
        except StopIteration:
            self._view = None


def play(
    net: nn.Module,
    episodes: Sequence[Episode],
    rng: np.random.Generator | None,
    *,
    explore: float | None = None,
    keep: bool = True,
) -> list[Steps]:
    """Play all episodes to their ends in lock-step, one pass of the network for all of them at a time.

    With ``rng`` choices are drawn, else the likeliest is taken; with ``explore`` it is the likeliest, too, but for that
    share of choices, which may be any. Without ``keep`` only the simulations remain.
    """
    played = [Steps() for _ in episodes]
    live = [number for number, episode in enumerate(episodes) if episode.observation is not None]
    while live:
        observations = [episodes[number].observation for number in live]
        batch = stack(observations)  # type: ignore[arg-type]
        with torch.no_grad():
            log_p = log_softmax(net(batch), batch.segment, batch.size).numpy()
        first = batch.first.numpy()
        chosen = sample(log_p, first, None if explore is not None else rng)
        if explore is not None and rng is not None:
            anything = sample(np.zeros(len(log_p)), first, rng)
            chosen = np.where(rng.random(len(chosen)) < explore, anything, chosen)
        for number, choice, likely in zip(live, chosen.tolist(), log_p[first + chosen].tolist(), strict=True):
            episode, steps = episodes[number], played[number]
            if keep:
                steps.observations.append(episode.observation)  # type: ignore[arg-type]
                steps.choices.append(choice)
                steps.log_p.append(likely)
                steps.times_s.append(episode.now)
            episode.step(choice)
            if keep:
                steps.rewards.append(episode.reward())
        live = [number for number in live if episodes[number].observation is not None]
    for episode, steps in zip(episodes, played, strict=True):
        steps.times_s.append(episode.now)
    return played
