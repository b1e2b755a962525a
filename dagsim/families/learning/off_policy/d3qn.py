"""Deep Q-learning with replay, for any number of choices and in continuous time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.families.learning.nets.actor import chosen_rows, sample, scoring
from dagsim.families.learning.off_policy import D3qnConfig
from dagsim.families.learning.off_policy.q_learning import Duelling, QLearner
from dagsim.families.learning.off_policy.replay import Drawn
from dagsim.families.learning.training.learner import LearnerContext


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
