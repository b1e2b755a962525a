"""The iteration of D3QN and Rainbow: play, keep the transitions, learn Q from a sample of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.agents.advantages import discounts, return_rms
from dagsim.agents.config import D3qnConfig, RainbowConfig
from dagsim.agents.learner import LearnerContext
from dagsim.agents.nets.actor import ScoreNet
from dagsim.agents.replay import Drawn, ReplayBuffer
from dagsim.agents.rollouts import EpisodeSteps

__all__ = ["QLearner", "follow"]

ConfigT = TypeVar("ConfigT", D3qnConfig, RainbowConfig)
QT = TypeVar("QT", bound=nn.Module)


def follow(target: nn.Module, net: nn.Module, rate: float) -> None:
    """Move the target network's weights towards the network's by ``rate`` (Polyak averaging)."""
    with torch.no_grad():
        for old, new in zip(target.parameters(), net.parameters(), strict=True):
            old.lerp_(new, rate)


class QLearner(ABC, Generic[ConfigT, QT]):
    """Learns ``q`` from prioritised n-step replay, with a target network that follows it."""

    def __init__(self, context: LearnerContext, config: ConfigT, q: QT, net: ScoreNet) -> None:
        self.config: ConfigT = config
        self._context = context
        self._q = q
        self._target = deepcopy(q)
        self.optimizer = torch.optim.Adam(q.parameters(), config.lr)
        self.replay = ReplayBuffer(config.replay, config.priority, config.importance, net)
        self._scale = 0.0

    @abstractmethod
    def _loss(self, drawn: Drawn, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """The weighted loss of the sampled transitions, and the error (B,) of each, which sets its
        new priority.
        """

    def learn(self, episodes: Sequence[EpisodeSteps], iteration: int, progress: float) -> dict[str, float]:
        """Add the episodes' transitions to the replay, and make ``updates`` steps on minibatches
        from it.
        """
        config, context = self.config, self._context
        time_s = context.time_constant_s(config.discount_jcts, progress)
        self._scale = self._scale or return_rms(episodes, time_s)
        for steps in episodes:
            self.replay.add(steps, discounts(steps, time_s), config.n_step, self._scale)
        rng, lr = context.rng(iteration, 5), config.lr * (1 - 0.9 * progress)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        losses = []
        for _ in range(config.updates):
            drawn = self.replay.draw(config.minibatch, rng)
            loss, errors = self._loss(drawn, rng)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self._q.parameters(), 10.0)
            self.optimizer.step()
            self.replay.update(drawn.places, errors.numpy())
            follow(self._target, self._q, config.target_rate)
            losses.append(float(loss.detach()))
        return {
            "reward": float(np.mean([sum(steps.rewards) for steps in episodes])),
            "samples": float(sum(len(steps.choices) for steps in episodes)),
            "loss": float(np.mean(losses)),
            "lr": lr,
        }

    def state(self) -> dict[str, Any]:
        return {
            "target": self._target.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scale": self._scale,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._target.load_state_dict(state["target"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._scale = state["scale"]
