"""Duelling double deep Q-learning with prioritised n-step replay, over ragged choices and in continuous time."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.agents.config import D3qnConfig
from dagsim.agents.learner import Start
from dagsim.agents.nets import Critic
from dagsim.agents.ragged import Batch, sample, segment_sum
from dagsim.agents.replay import Drawn, Replay
from dagsim.agents.returns import discounts, typical

__all__ = ["D3qn", "Duelling", "q_loss"]


class Duelling(nn.Module):
    """Q(s, a) = V(s) + A(s, a) - mean of A over the legal choices (Wang et al. 2016, equation 9): (N,)."""

    def __init__(self, advantage: nn.Module, value: Critic) -> None:
        super().__init__()
        self.advantage = advantage
        self.value = value

    def forward(self, batch: Batch) -> Tensor:
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
        worth = target(after)[after.first + torch.from_numpy(picked)]
        goal = drawn.rewards + drawn.discounts * worth
    errors = nn.functional.smooth_l1_loss(q, goal, reduction="none")
    return (drawn.weights * errors).mean(), (q - goal).detach()


class D3qn:
    """Plays with a share of random choices, then learns from replay. ``net`` scores by Q: the greedy policy is its
    maximum."""

    def __init__(self, start: Start) -> None:
        assert isinstance(start.config.algorithm, D3qnConfig)
        self.config = start.config.algorithm
        self._start = start
        self.net = start.net()
        self._value = Critic(start.sizes, start.config.net.hidden)
        self._q = Duelling(self.net, self._value)
        self._target = deepcopy(self._q)
        self.optimizer = torch.optim.Adam(self._q.parameters(), self.config.lr)
        self._replay = Replay(self.config.replay, self.config.priority, self.config.importance)
        self._scale = 0.0

    def iterate(self, iteration: int, progress: float) -> dict[str, float]:
        config, start = self.config, self._start
        first, last = config.exploration
        exploration = max(last, first + (last - first) * 2 * progress)
        seeds = start.take(iteration, config.episodes)
        episodes = start.field.play(self.net, seeds, start.chance(iteration), exploration)
        time_s = start.time_constant_s(config.discount_jcts, progress)
        self._scale = self._scale or typical(episodes, time_s)
        for steps in episodes:
            self._replay.add(steps, discounts(steps, time_s), config.n_step, self._scale)
        rng = np.random.default_rng([*start.chance(iteration), 5])
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
