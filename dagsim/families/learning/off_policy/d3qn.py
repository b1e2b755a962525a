"""Deep Q-learning with replay, for any number of choices and in continuous time. This module
contains D3QN itself, and the iteration that D3QN and Rainbow share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.families.learning.advantages import discounts, return_rms
from dagsim.families.learning.nets.actor import ObservationBatch, ScoreNet, chosen_rows, sample, scoring, segment_sum
from dagsim.families.learning.off_policy import D3qnConfig, RainbowConfig
from dagsim.families.learning.off_policy.replay import Drawn, ReplayBuffer
from dagsim.families.learning.training.devices import device_of, on_device
from dagsim.families.learning.training.learner import LearnerContext
from dagsim.families.learning.training.rollouts import EpisodeSteps, RngPurpose
from dagsim.model.arithmetic import ordered_sum

ConfigT = TypeVar("ConfigT", D3qnConfig, RainbowConfig)
QT = TypeVar("QT", bound=nn.Module)


def follow(target: nn.Module, net: nn.Module, rate: float) -> None:
    """Move the target network's weights towards the online network's weights by the fraction
    ``rate`` (Polyak averaging).
    """
    with torch.no_grad():
        for old, new in zip(target.parameters(), net.parameters(), strict=True):
            old.lerp_(new, rate)


class QLearner(ABC, Generic[ConfigT, QT]):
    """Learns ``q`` from prioritised n-step replay. A target network slowly follows ``q``."""

    def __init__(self, context: LearnerContext, config: ConfigT, q: QT, net: ScoreNet) -> None:
        self.config: ConfigT = config
        self._context = context
        self.q = q
        self.target = deepcopy(q)
        self.optimizer = torch.optim.Adam(q.parameters(), config.lr)
        self.replay = ReplayBuffer(config.replay, config.priority, config.importance, net)
        self._scale = 0.0

    @abstractmethod
    def _loss(self, drawn: Drawn, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Return the weighted loss of the sampled transitions. Also return the error (B,) of each
        transition, which becomes its new priority."""

    def learn(self, episodes: Sequence[EpisodeSteps], iteration: int, progress: float) -> dict[str, float]:
        """Add the transitions of the episodes to the replay buffer. Then make ``updates`` gradient
        steps on minibatches from the buffer."""
        config, context = self.config, self._context
        time_s = context.time_constant_s(config.discount_jcts, progress)
        self._scale = self._scale or return_rms(episodes, time_s)
        for steps in episodes:
            self.replay.add(steps, discounts(steps, time_s), config.n_step, self._scale)
        rng, lr = context.rng(iteration, RngPurpose.REPLAY), config.lr_at(progress)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        losses = []
        for _ in range(config.updates):
            drawn = on_device(self.replay.draw(config.minibatch, rng), device_of(self.q))
            loss, errors = self._loss(drawn, rng)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.q.parameters(), 10.0)
            self.optimizer.step()
            self.replay.update(drawn.places, errors.cpu().numpy())
            follow(self.target, self.q, config.target_rate)
            losses.append(float(loss.detach()))
        return {
            "reward": float(np.mean([ordered_sum(steps.rewards) for steps in episodes])),
            "samples": float(sum(len(steps.choices) for steps in episodes)),
            "loss": float(np.mean(losses)),
            "lr": lr,
        }

    def state(self) -> dict[str, Any]:
        return {"target": self.target.state_dict(), "optimizer": self.optimizer.state_dict(), "scale": self._scale}

    def load(self, state: Mapping[str, Any]) -> None:
        self.target.load_state_dict(state["target"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._scale = state["scale"]


class Duelling(nn.Module):
    """A network that computes Q(s, a), (N,), by the duelling formula: V(s) + A(s, a) - mean of A
    over the legal choices (Wang et al. 2016, equation 9)."""

    def __init__(self, advantage: nn.Module, value: nn.Module) -> None:
        super().__init__()
        self.advantage = advantage
        self.value = value

    def forward(self, batch: ObservationBatch) -> Tensor:
        advantage = self.advantage(batch)
        lengths = segment_sum(torch.ones_like(advantage), batch.segment, batch.size)
        mean = segment_sum(advantage, batch.segment, batch.size) / lengths
        return (self.value(batch) - mean)[batch.segment] + advantage  # type: ignore[no-any-return]


def q_loss(net: nn.Module, target: nn.Module, drawn: Drawn) -> tuple[Tensor, Tensor]:
    """Return the weighted Huber loss of the double-Q error, and the errors (B,).

    The online network selects the next choice, and the target network evaluates it (van Hasselt et
    al. 2016). Both networks see only legal choices, because observations contain no other rows. The
    discount depends on how much time has passed (semi-Markov process).
    """
    q = net(drawn.batch)[drawn.batch.first + drawn.choices]
    with torch.no_grad():
        after = drawn.following
        next_choices = sample(net(after).cpu().numpy(), after.first.cpu().numpy())
        values = target(after)[chosen_rows(after, next_choices)]
        targets = drawn.rewards + drawn.discounts * values
    errors = nn.functional.smooth_l1_loss(q, targets, reduction="none")
    return (drawn.weights * errors).mean(), (q - targets).detach()


class D3qn(QLearner[D3qnConfig, Duelling]):
    """Runs episodes in which a fraction of the choices is random, and then learns from the replay
    buffer. ``net`` uses Q as the score of a choice, so its most likely choice is the greedy one."""

    def __init__(self, context: LearnerContext) -> None:
        assert isinstance(context.config.algorithm, D3qnConfig)
        self.net = scoring(context.net(), "d3qn")
        super().__init__(context, context.config.algorithm, Duelling(self.net, context.critic()), self.net)

    def iterate(self, iteration: int, progress: float) -> dict[str, float]:
        context = self._context
        first, last = self.config.exploration
        exploration = max(last, first + (last - first) * 2 * progress)
        seeds = context.job_seeds(iteration, self.config.episodes)
        episodes = context.play(self.net, seeds, context.rng_key(iteration), explore=exploration)
        return self.learn(episodes, iteration, progress) | {"exploration": exploration}

    def _loss(self, drawn: Drawn, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        return q_loss(self.q, self.target, drawn)

    def state(self) -> dict[str, Any]:
        return {"net": self.net.state_dict(), "q": self.q.state_dict(), **super().state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.q.load_state_dict(state["q"])
        super().load(state)
