"""Discrete soft actor-critic (Christodoulou 2019) with masks, for any number of choices and in
continuous time."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.families.learning.nets.actor import ObservationBatch, entropy, log_softmax, scoring, segment_sum
from dagsim.families.learning.off_policy import SacConfig
from dagsim.families.learning.off_policy.q_learning import Duelling, ReplayLearner, follow
from dagsim.families.learning.off_policy.replay import Drawn, ReplayBuffer
from dagsim.families.learning.training.learner import LearnerContext


def critic_loss(q: nn.Module, drawn: Drawn, target: Tensor) -> Tensor:
    """Return the mean squared error between one Q network and the soft ``target`` (B,)."""
    return nn.functional.mse_loss(q(drawn.batch)[drawn.batch.first + drawn.choices], target)


def actor_loss(scores: Tensor, batch: ObservationBatch, q: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the actor's loss and the entropy (B,). The loss is the expectation of temperature x
    log p - Q over the legal choices, averaged over the observations (equation 12)."""
    log_p = log_softmax(scores, batch.segment, batch.size)
    p = torch.exp(log_p)
    expected = segment_sum(p * (temperature * log_p - q), batch.segment, batch.size)
    return expected.mean(), entropy(log_p, batch.segment, batch.size)


def temperature_loss(log_temperature: Tensor, policy_entropy: Tensor, wanted: Tensor) -> Tensor:
    """Return the loss for the temperature. It raises the temperature if the entropy (B,) of the
    policy is below the target entropy (B,). This is the entropy of the whole policy, in which each
    choice is weighted by its probability (equation 11)."""
    return (torch.exp(log_temperature) * (policy_entropy - wanted).detach()).mean()


class Sac(ReplayLearner[SacConfig]):
    """The learner: two Q networks, a policy and a temperature, which all learn from the replay
    buffer."""

    def __init__(self, context: LearnerContext) -> None:
        assert isinstance(context.config.algorithm, SacConfig)
        config = context.config.algorithm
        self.net = scoring(context.net(), "sac")
        self.q = nn.ModuleList([Duelling(scoring(context.net(), "sac"), context.critic()) for _ in range(2)])
        self.targets = deepcopy(self.q)
        start = float(np.log(config.temperature))
        self._log_temperature = torch.tensor(start, device=context.device, requires_grad=True)
        trained = (self.net.parameters(), self.q.parameters(), [self._log_temperature])
        optimizers = [torch.optim.Adam(parameters, config.lr) for parameters in trained]
        super().__init__(context, config, ReplayBuffer(config.replay, net=self.net), optimizers)

    def iterate(self, iteration: int, progress: float) -> dict[str, float]:
        context = self._context
        seeds = context.job_seeds(iteration, self.config.episodes)
        metrics = self.learn(context.play(self.net, seeds, context.rng_key(iteration)), iteration, progress)
        return metrics | {"temperature": float(torch.exp(self._log_temperature.detach()))}

    def _update(self, drawn: Drawn, rng: np.random.Generator) -> dict[str, float]:
        """Make one gradient step each for the critics, the policy and the temperature. Return
        the critics' loss and the entropy."""
        temperature = float(torch.exp(self._log_temperature.detach()))
        actor, critics, temperature_optimizer = self.optimizers
        loss = torch.stack([critic_loss(q, drawn, self._target(drawn, temperature)) for q in self.q]).sum()
        critics.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        critics.step()
        batch = drawn.batch
        with torch.no_grad():
            q = torch.minimum(*(q_net(batch) for q_net in self.q))
        policy_loss, policy_entropy = actor_loss(self.net(batch), batch, q, temperature)
        actor.zero_grad()
        policy_loss.backward()  # type: ignore[no-untyped-call]
        actor.step()
        lengths = segment_sum(torch.ones_like(q), batch.segment, batch.size)
        target_entropy = self.config.target_entropy * torch.log(lengths)
        temperature_optimizer.zero_grad()
        loss_of_temperature = temperature_loss(self._log_temperature, policy_entropy, target_entropy)
        loss_of_temperature.backward()  # type: ignore[no-untyped-call]
        temperature_optimizer.step()
        follow(self.targets, self.q, self.config.target_rate)
        return {"loss": float(loss.detach()), "entropy": float(policy_entropy.detach().mean())}

    def _target(self, drawn: Drawn, temperature: float) -> Tensor:
        """Return the soft target of each transition. Shape (B,). It is reward + discount x the
        expectation, over the legal choices, of (minimum target Q - temperature x log p).
        """
        with torch.no_grad():
            after = drawn.following
            log_p = log_softmax(self.net(after), after.segment, after.size)
            q = torch.minimum(*(target(after) for target in self.targets))
            values = segment_sum(torch.exp(log_p) * (q - temperature * log_p), after.segment, after.size)
            return drawn.rewards + drawn.discounts * values

    def state(self) -> dict[str, Any]:
        return {
            "net": self.net.state_dict(),
            "q": self.q.state_dict(),
            "targets": self.targets.state_dict(),
            "log_temperature": self._log_temperature.detach(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "scale": self._scale,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.q.load_state_dict(state["q"])
        self.targets.load_state_dict(state["targets"])
        self._scale = state["scale"]
        with torch.no_grad():
            self._log_temperature.copy_(state["log_temperature"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
