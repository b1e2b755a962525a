"""REINFORCE (Williams 1992) with input-dependent baselines, the training method of Decima (Mao et
al., SIGCOMM 2019)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.agents.learner import LearnerContext
from dagsim.agents.on_policy import ReinforceConfig
from dagsim.agents.on_policy.policy_gradient import Choices, PolicyGradient, shuffled

__all__ = ["Reinforce", "policy_gradient_loss"]


_PART = 4096
"""Number of choices whose gradient is summed at a time."""


def policy_gradient_loss(log_p: Tensor, entropy: Tensor, advantages: Tensor, entropy_weight: float) -> Tensor:
    """The loss of the policy gradient with entropy, summed over the batch. Its gradient is that of
    -E[log p(choice) x advantage] - ``entropy_weight`` x entropy. All tensors are (B,).
    """
    return -(log_p * advantages).sum() - entropy_weight * entropy.sum()


class Reinforce(PolicyGradient[ReinforceConfig]):
    """Makes one gradient step per iteration on the whole batch, or one for each ``minibatch``."""

    def __init__(self, context: LearnerContext) -> None:
        assert isinstance(context.config.algorithm, ReinforceConfig)
        super().__init__(context, context.config.algorithm)

    def _update(self, batch: Choices, entropy_weight: float, rng: np.random.Generator) -> dict[str, float]:
        config, net, free = self.config, self.net, batch.free
        entropies = []
        for rows in [free] if config.minibatch is None else shuffled(free, config.minibatch, rng):
            self.optimizer.zero_grad()
            for begin in range(0, len(rows), _PART):
                part = rows[begin : begin + _PART]
                log_p, entropy = net.evaluate(batch.observations.batch(part), batch.choices[part])
                advantages = torch.from_numpy(batch.advantages[part])
                loss = policy_gradient_loss(log_p, entropy, advantages, entropy_weight)
                (loss / len(rows)).backward()  # type: ignore[no-untyped-call]
                entropies.append(float(entropy.detach().sum()))
            nn.utils.clip_grad_norm_(net.parameters(), config.max_grad)
            self.optimizer.step()
        return {"entropy": sum(entropies) / max(len(free), 1)}
