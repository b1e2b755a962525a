"""Duelling double deep Q-learning with prioritised n-step replay, over ragged choices and in continuous time."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.agents.config import D3qnConfig
from dagsim.agents.learner import LearnerContext
from dagsim.agents.nets.actor import scoring
from dagsim.agents.ragged import ObservationBatch, sample, segment_sum
from dagsim.agents.replay import Drawn, ReplayBuffer
from dagsim.agents.returns import discounts, return_rms

__all__ = ["D3qn", "Duelling", "q_loss"]


class Duelling(nn.Module):
    """Q(s, a) = V(s) + A(s, a) - mean of A over the legal choices (Wang et al. 2016, equation 9): (N,)."""

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
    """The weighted Huber loss of the double-Q error, and the errors (B,).

    The online network picks the next choice, the target network says what it is worth (van Hasselt et al. 2016); both
    only ever see legal choices, as no other row exists. The discount is that of the time that passed (SMDP).
    """
    q = net(drawn.batch)[drawn.batch.first + drawn.choices]
    with torch.no_grad():
        after = drawn.following
        picked = sample(net(after).numpy(), after.first.numpy())
        values = target(after)[after.first + torch.from_numpy(picked)]
        targets = drawn.rewards + drawn.discounts * values
    errors = nn.functional.smooth_l1_loss(q, targets, reduction="none")
    return (drawn.weights * errors).mean(), (q - targets).detach()


class D3qn:
    """Plays with a share of random choices, then learns from replay. ``net`` scores by Q: the greedy policy is its
    maximum."""

    def __init__(self, context: LearnerContext) -> None:
        assert isinstance(context.config.algorithm, D3qnConfig)
        self.config = context.config.algorithm
        self._context = context
        self.net = scoring(context.net(), "d3qn")
        self._value = context.critic()
        self._q = Duelling(self.net, self._value)
        self._target = deepcopy(self._q)
        self.optimizer = torch.optim.Adam(self._q.parameters(), self.config.lr)
        self._replay = ReplayBuffer(self.config.replay, self.config.priority, self.config.importance)
        self._scale = 0.0

    def iterate(self, iteration: int, progress: float) -> dict[str, float]:
        config, context = self.config, self._context
        first, last = config.exploration
        exploration = max(last, first + (last - first) * 2 * progress)
        seeds = context.job_seeds(iteration, config.episodes)
        episodes = context.rollouts.play(self.net, seeds, context.rng_key(iteration), explore=exploration)
        time_s = context.time_constant_s(config.discount_jcts, progress)
        self._scale = self._scale or return_rms(episodes, time_s)
        for steps in episodes:
            self._replay.add(steps, discounts(steps, time_s), config.n_step, self._scale)
        rng = context.rng(iteration, 5)
        for group in self.optimizer.param_groups:
            group["lr"] = config.lr * (1 - 0.9 * progress)
        losses = []
        for _ in range(config.updates):
            drawn = self._replay.draw(config.minibatch, rng)
            loss, errors = q_loss(self._q, self._target, drawn)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self._q.parameters(), 10.0)
            self.optimizer.step()
            self._replay.update(drawn.places, errors.numpy())
            follow(self._target, self._q, config.target_rate)
            losses.append(float(loss.detach()))
        return {
            "reward": float(np.mean([sum(steps.rewards) for steps in episodes])),
            "samples": float(sum(len(steps.choices) for steps in episodes)),
            "loss": float(np.mean(losses)),
            "exploration": exploration,
            "lr": config.lr * (1 - 0.9 * progress),
        }

    def state(self) -> dict[str, Any]:
        return {
            "net": self.net.state_dict(),
            "q": self._q.state_dict(),
            "target": self._target.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scale": self._scale,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """The replay is not kept: a resumed training fills it again."""
        self._q.load_state_dict(state["q"])
        self._target.load_state_dict(state["target"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._scale = state["scale"]


def follow(target: nn.Module, net: nn.Module, rate: float) -> None:
    """Move the target network's weights towards the network's by ``rate`` (Polyak averaging)."""
    with torch.no_grad():
        for old, new in zip(target.parameters(), net.parameters(), strict=True):
            old.lerp_(new, rate)
