"""REINFORCE (Williams 1992) with input-dependent baselines, the training method of Decima (Mao et
al., SIGCOMM 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import numpy as np
import torch
from torch import Tensor, nn
from dagsim.agents.config import ReinforceConfig
from dagsim.agents.learner import LearnerContext
from dagsim.agents.policy_gradient import PolicyGradient, normalized
from dagsim.agents.rollouts import EpisodeSteps, choices_of

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
        free = np.flatnonzero(store.is_free)
        advantages, choices = normalized(raw, free), choices_of(episodes)
        for group in self.optimizer.param_groups:
            group["lr"] = config.lr * (1 - progress) + config.min_lr
        entropies = []
        for rows in self._minibatches(free, rng):
            self.optimizer.zero_grad()
            for begin in range(0, len(rows), _PART):
                part = rows[begin : begin + _PART]
                log_p, entropy = net.evaluate(store.batch(part), choices[part])
                weight = config.entropy * (1 - progress)
                loss = policy_gradient_loss(log_p, entropy, torch.from_numpy(advantages[part]), weight)
                (loss / len(rows)).backward()  # type: ignore[no-untyped-call]
                entropies.append(float(entropy.detach().sum()))
            nn.utils.clip_grad_norm_(net.parameters(), config.max_grad)
            self.optimizer.step()
        return metrics | {"entropy": sum(entropies) / max(len(free), 1), "lr": self.optimizer.param_groups[0]["lr"]}

    def _minibatches(self, rows: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Yield all rows at once, or in a new random order, ``minibatch`` at a time."""
        size = self.config.minibatch
        if size is None:
            yield rows
            return
        order = rng.permutation(rows)
        for begin in range(0, len(order), size):
            yield order[begin : begin + size]
