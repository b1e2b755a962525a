"""The learners of the two policy-gradient algorithms. They work with every network and every
advantage estimator. The algorithms are proximal policy optimisation (Schulman et al. 2017), and
REINFORCE (Williams 1992) with input-dependent baselines, which was used to train Decima (Mao et
al., SIGCOMM 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.families.learning.devices import on_device
from dagsim.families.learning.on_policy import PpoConfig, ReinforceConfig
from dagsim.families.learning.on_policy.policy_gradient import Choices, PolicyGradient, shuffled
from dagsim.families.learning.training.learner import LearnerContext
from dagsim.model.arithmetic import ordered_sum

_PART = 4096
"""Number of choices for which REINFORCE computes gradients at a time."""


class Update(NamedTuple):
    """The loss of one minibatch, the estimated KL divergence, the mean entropy, and the fraction of
    choices whose probability ratio is clipped.
    """

    loss: Tensor
    kl: float
    entropy: float
    clipped: float


def policy_loss(
    log_p: Tensor, entropy: Tensor, old_log_p: Tensor, advantages: Tensor, clip: float, entropy_weight: float
) -> Update:
    """Return the loss: the negated clipped surrogate (Schulman et al. 2017, equation 7) minus
    ``entropy_weight`` times the entropy. All tensors have shape (B,).

    ``kl`` estimates how far the policy has moved: E[(r - 1) - log r] (Schulman's note on the
    approximation of the KL divergence).
    """
    log_ratio = log_p - old_log_p
    ratio = torch.exp(log_ratio)
    surrogate = torch.minimum(ratio * advantages, torch.clamp(ratio, 1 - clip, 1 + clip) * advantages)
    mean_entropy = entropy.mean()
    with torch.no_grad():
        kl = float(((ratio - 1) - log_ratio).mean())
        clipped = float((torch.abs(ratio - 1) > clip).float().mean())
    return Update(-surrogate.mean() - entropy_weight * mean_entropy, kl, float(mean_entropy.detach()), clipped)


class Ppo(PolicyGradient[PpoConfig]):
    """Learns from whole episodes: ``replicas`` episodes on each of ``sequences`` job sequences."""

    def __init__(self, context: LearnerContext) -> None:
        assert isinstance(context.config.algorithm, PpoConfig)
        super().__init__(context, context.config.algorithm)

    def _update(self, batch: Choices, entropy_weight: float, rng: np.random.Generator) -> dict[str, float]:
        config, net, device = self.config, self.net, self._context.device
        updates: list[Update] = []
        for _ in range(config.epochs):
            for rows in shuffled(batch.free, config.minibatch, rng):
                log_p, entropy = net.evaluate(on_device(batch.observations.batch(rows), device), batch.choices[rows])
                before = torch.from_numpy(batch.log_p[rows]), torch.from_numpy(batch.advantages[rows])
                old_log_p, advantages = on_device(before, device)
                update = policy_loss(log_p, entropy, old_log_p, advantages, config.clip, entropy_weight)
                updates.append(update)
                if update.kl > 1.5 * config.target_kl:
                    return _means(updates)
                self.optimizer.zero_grad()
                update.loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(net.parameters(), config.max_grad)
                self.optimizer.step()
        return _means(updates)


def _means(updates: Sequence[Update]) -> dict[str, float]:
    return {
        "kl": updates[-1].kl,
        "entropy": float(np.mean([update.entropy for update in updates])),
        "clipped": float(np.mean([update.clipped for update in updates])),
    }


def policy_gradient_loss(log_p: Tensor, entropy: Tensor, advantages: Tensor, entropy_weight: float) -> Tensor:
    """Return the policy-gradient loss, with an entropy bonus, as a sum over the batch. It has the
    same gradient as -E[log p(choice) x advantage] - ``entropy_weight`` x entropy. All tensors have
    shape (B,).
    """
    return -(log_p * advantages).sum() - entropy_weight * entropy.sum()


class Reinforce(PolicyGradient[ReinforceConfig]):
    """Makes one gradient step per iteration, on the whole batch, or one step for each
    ``minibatch``."""

    def __init__(self, context: LearnerContext) -> None:
        assert isinstance(context.config.algorithm, ReinforceConfig)
        super().__init__(context, context.config.algorithm)

    def _update(self, batch: Choices, entropy_weight: float, rng: np.random.Generator) -> dict[str, float]:
        config, net, free, device = self.config, self.net, batch.free, self._context.device
        entropies = []
        for rows in [free] if config.minibatch is None else shuffled(free, config.minibatch, rng):
            self.optimizer.zero_grad()
            for begin in range(0, len(rows), _PART):
                part = rows[begin : begin + _PART]
                log_p, entropy = net.evaluate(on_device(batch.observations.batch(part), device), batch.choices[part])
                advantages = on_device(torch.from_numpy(batch.advantages[part]), device)
                loss = policy_gradient_loss(log_p, entropy, advantages, entropy_weight)
                (loss / len(rows)).backward()  # type: ignore[no-untyped-call]
                entropies.append(float(entropy.detach().sum()))
            nn.utils.clip_grad_norm_(net.parameters(), config.max_grad)
            self.optimizer.step()
        return {"entropy": ordered_sum(entropies) / max(len(free), 1)}
