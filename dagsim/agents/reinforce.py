"""REINFORCE (Williams 1992) with input-dependent baselines, as Decima is trained (Mao et al., SIGCOMM 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.agents.config import ReinforceConfig
from dagsim.agents.learner import Start
from dagsim.agents.ragged import Batch, Store, entropy, log_softmax
from dagsim.agents.returns import replica_advantages

__all__ = ["Reinforce", "policy_gradient_loss"]

_PART = 4096
"""Choices whose gradient is summed at a time."""


def policy_gradient_loss(
    scores: Tensor, batch: Batch, choices: Tensor, advantages: Tensor, weight: float
) -> tuple[Tensor, Tensor]:
    """Its gradient is that of -E[log p(choice) x advantage] - ``weight`` x entropy, summed over the batch; and the
    entropy (B,). ``choices`` (B,) are rows within each observation."""
    log_p = log_softmax(scores, batch.segment, batch.size)
    spread = entropy(log_p, batch.segment, batch.size)
    return -(log_p[batch.first + choices] * advantages).sum() - weight * spread.sum(), spread


class Reinforce:
    """One step of the gradient per iteration, on the whole batch."""

    def __init__(self, start: Start) -> None:
        assert isinstance(start.config.algorithm, ReinforceConfig)
        self.config = start.config.algorithm
        self._start = start
        self.net = start.net()
        self.optimizer = torch.optim.Adam(self.net.parameters(), self.config.lr)

    def iterate(self, iteration: int, progress: float) -> dict[str, float]:
        config, start = self.config, self._start
        seeds = [seed for seed in start.take(iteration, config.sequences) for _ in range(config.replicas)]
        episodes = start.field.play(self.net, seeds, start.chance(iteration))
        store = Store([each for steps in episodes for each in steps.observations])
        time_s = start.time_constant_s(config.discount_jcts, progress)
        advantages = np.concatenate(
            [
                advantage
                for begin in range(0, len(episodes), config.replicas)
                for advantage in replica_advantages(episodes[begin : begin + config.replicas], time_s)
            ]
        )
        real = np.flatnonzero(store.lengths > 1)
        advantages = ((advantages - advantages[real].mean()) / (advantages[real].std() + 1e-8)).astype(np.float32)
        choices = np.concatenate([steps.choices for steps in episodes]).astype(np.int64)
        for group in self.optimizer.param_groups:
            group["lr"] = config.lr * (1 - progress)
        self.optimizer.zero_grad()
        spread = 0.0
        for begin in range(0, len(real), _PART):
            picked = real[begin : begin + _PART]
            batch = store.batch(picked)
            loss, entropies = policy_gradient_loss(
                self.net(batch),
                batch,
                torch.from_numpy(choices[picked]),
                torch.from_numpy(advantages[picked]),
                config.entropy * (1 - progress),
            )
            (loss / len(real)).backward()  # type: ignore[no-untyped-call]
            spread += float(entropies.detach().sum())
        nn.utils.clip_grad_norm_(self.net.parameters(), config.max_grad)
        self.optimizer.step()
        return {
            "reward": float(np.mean([sum(steps.rewards) for steps in episodes])),
            "samples": float(len(store)),
            "entropy": spread / max(len(real), 1),
            "lr": config.lr * (1 - progress),
        }

    def state(self) -> dict[str, Any]:
        return {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
