"""Duelling double deep Q-learning with prioritised n-step replay, over ragged choices and in
continuous time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.agents.config import D3qnConfig
from dagsim.agents.learner import LearnerContext
from dagsim.agents.nets.actor import ObservationBatch, sample, scoring, segment_sum
from dagsim.agents.q_learning import QLearner
from dagsim.agents.replay import Drawn

__all__ = ["D3qn", "Duelling", "q_loss"]


class Duelling(nn.Module):
    """Q(s, a), (N,), by the duelling formula: V(s) + A(s, a) - mean of A over the legal choices
    (Wang et al. 2016, equation 9).
    """

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

    The online network picks the next choice, and the target network evaluates it (van Hasselt et
    al. 2016). Both see legal choices only, as there are no other rows. The discount depends on the
    elapsed time (semi-Markov process).
    """
    q = net(drawn.batch)[drawn.batch.first + drawn.choices]
    with torch.no_grad():
        after = drawn.following
        next_choices = sample(net(after).numpy(), after.first.numpy())
        values = target(after)[after.first + torch.from_numpy(next_choices)]
        targets = drawn.rewards + drawn.discounts * values
    errors = nn.functional.smooth_l1_loss(q, targets, reduction="none")
    return (drawn.weights * errors).mean(), (q - targets).detach()


class D3qn(QLearner[D3qnConfig, Duelling]):
    """Plays with a fraction of random choices, then learns from replay. ``net`` scores by Q, so its
    likeliest choice is the greedy one.
    """

    def __init__(self, context: LearnerContext) -> None:
        assert isinstance(context.config.algorithm, D3qnConfig)
        self.net = scoring(context.net(), "d3qn")
        super().__init__(context, context.config.algorithm, Duelling(self.net, context.critic()), self.net)

    def iterate(self, iteration: int, progress: float) -> dict[str, float]:
        context = self._context
        first, last = self.config.exploration
        exploration = max(last, first + (last - first) * 2 * progress)
        seeds = context.job_seeds(iteration, self.config.episodes)
        episodes = context.rollouts.play(self.net, seeds, context.rng_key(iteration), explore=exploration)
        return self.learn(episodes, iteration, progress) | {"exploration": exploration}

    def _loss(self, drawn: Drawn, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        return q_loss(self._q, self._target, drawn)

    def state(self) -> dict[str, Any]:
        return {"net": self.net.state_dict(), "q": self._q.state_dict(), **super().state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._q.load_state_dict(state["q"])
        super().load(state)
