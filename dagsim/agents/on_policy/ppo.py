"""Proximal policy optimisation (Schulman et al. 2017) on whole episodes, for every net and
estimator of advantages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
import numpy as np
import torch
from torch import Tensor, nn
from dagsim.agents.config import PpoConfig
from dagsim.agents.learner import LearnerContext
from dagsim.agents.policy_gradient import PolicyGradient, normalized
from dagsim.agents.rollouts import EpisodeSteps, choices_of

__all__ = ["Ppo", "Update", "policy_loss"]


class Update(NamedTuple):
    """The parts of one minibatch's loss."""

    loss: Tensor
    kl: float
    entropy: float
    clipped: float


def policy_loss(
    log_p: Tensor, entropy: Tensor, old_log_p: Tensor, advantages: Tensor, clip: float, entropy_weight: float
) -> Update:
    """The clipped surrogate (equation 7) minus ``entropy_weight`` x entropy. All tensors are (B,).

    ``kl`` estimates how far the policy has moved: E[(r - 1) - log r] (Schulman's note on
    approximating KL).
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
    """Learns from whole episodes: ``sequences`` job sequences, with ``replicas`` episodes on each."""

    def __init__(self, context: LearnerContext) -> None:
        assert isinstance(context.config.algorithm, PpoConfig)
        super().__init__(context, context.config.algorithm)

    def learn(
        self,
        episodes: Sequence[EpisodeSteps],
        progress: float,
        rng: np.random.Generator,
        critic_rng: np.random.Generator,
    ) -> dict[str, float]:
        config, net = self.config, self.net
        store = net.store([observation for steps in episodes for observation in steps.observations])
        time_s = self._context.time_constant_s(config.discount_jcts, progress)
        raw, metrics = self.estimator.estimate(episodes, store, time_s, critic_rng)
        choices = choices_of(episodes)
        old_log_p = np.concatenate([steps.log_p for steps in episodes]).astype(np.float32)
        free = np.flatnonzero(store.is_free)  # a single choice teaches nothing
        advantages = normalized(raw, free)
        for group in self.optimizer.param_groups:
            group["lr"] = config.lr * (1 - progress) + config.min_lr
        updates: list[Update] = []
        for minibatch in _minibatches(free, config.epochs, config.minibatch, rng):
            log_p, entropy = net.evaluate(store.batch(minibatch), choices[minibatch])
            update = policy_loss(
                log_p,
                entropy,
                torch.from_numpy(old_log_p[minibatch]),
                torch.from_numpy(advantages[minibatch]),
                config.clip,
                config.entropy * (1 - progress),
            )
            updates.append(update)
            if update.kl > 1.5 * config.target_kl:
                break
            self.optimizer.zero_grad()
            update.loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(net.parameters(), config.max_grad)
            self.optimizer.step()
        return metrics | {
            "kl": updates[-1].kl,
            "entropy": float(np.mean([update.entropy for update in updates])),
            "clipped": float(np.mean([update.clipped for update in updates])),
            "lr": self.optimizer.param_groups[0]["lr"],
        }


def _minibatches(rows: np.ndarray, epochs: int, size: int, rng: np.random.Generator) -> Any:
    """Yield all rows in a new random order for every epoch, ``size`` at a time."""
    for _ in range(epochs):
        order = rng.permutation(rows)
        for begin in range(0, len(order), size):
            yield order[begin : begin + size]
