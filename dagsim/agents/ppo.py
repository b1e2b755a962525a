"""Proximal policy optimisation (Schulman et al. 2017) over ragged choices, with two estimators of the advantage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.agents.config import PpoConfig
from dagsim.agents.episode import Steps
from dagsim.agents.learner import Start
from dagsim.agents.nets import Critic
from dagsim.agents.ragged import Batch, Store, entropy, log_softmax
from dagsim.agents.returns import gae, replica_advantages, returns

__all__ = ["Ppo", "Update", "policy_loss"]


class Update(NamedTuple):
    """The parts of one minibatch's loss."""

    loss: Tensor
    kl: float
    entropy: float
    clipped: float


def policy_loss(
    scores: Tensor, batch: Batch, choices: Tensor, old_log_p: Tensor, advantages: Tensor, clip: float, weight: float
) -> Update:
    """The clipped surrogate (equation 7) less ``weight`` x entropy; ``choices`` (B,) are rows within each observation.

    ``kl`` is the estimate E[(r - 1) - log r] of how far the policy has moved (Schulman's note on approximating KL).
    """
    log_p = log_softmax(scores, batch.segment, batch.size)
    log_ratio = log_p[batch.first + choices] - old_log_p
    ratio = torch.exp(log_ratio)
    surrogate = torch.minimum(ratio * advantages, torch.clamp(ratio, 1 - clip, 1 + clip) * advantages)
    spread = entropy(log_p, batch.segment, batch.size).mean()
    with torch.no_grad():
        kl = float(((ratio - 1) - log_ratio).mean())
        clipped = float((torch.abs(ratio - 1) > clip).float().mean())
    return Update(-surrogate.mean() - weight * spread, kl, float(spread.detach()), clipped)


class Ppo:
    """Learns from whole episodes: ``sequences`` job sequences, ``replicas`` episodes on each."""

    def __init__(self, start: Start) -> None:
        assert isinstance(start.config.algorithm, PpoConfig)
        self.config = start.config.algorithm
        self._start = start
        self.net = start.net()
        self.optimizer = torch.optim.Adam(self.net.parameters(), self.config.lr)
        self.critic: Critic | None = None
        if self.config.advantage == "critic":
            self.critic = Critic(start.sizes, start.config.net.hidden)
            self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), self.config.lr)

    def iterate(self, iteration: int, progress: float) -> dict[str, float]:
        config = self.config
        sequences = self._start.take(iteration, config.sequences)
        seeds = [seed for seed in sequences for _ in range(config.replicas)]
        episodes = self._start.field.play(self.net, seeds, self._start.chance(iteration))
        told = self._learn(episodes, iteration, progress)
        return told | {
            "reward": float(np.mean([sum(steps.rewards) for steps in episodes])),
            "samples": float(sum(len(steps.choices) for steps in episodes)),
        }

    def state(self) -> dict[str, Any]:
        state = {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}
        if self.critic is not None:
            state |= {"critic": self.critic.state_dict(), "critic_optimizer": self.critic_optimizer.state_dict()}
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])
            self.critic_optimizer.load_state_dict(state["critic_optimizer"])

    def _learn(self, episodes: Sequence[Steps], iteration: int, progress: float) -> dict[str, float]:
        config, store = self.config, Store([each for steps in episodes for each in steps.observations])
        time_s = self._start.time_constant_s(config.discount_jcts, progress)
        told: dict[str, float] = {}
        if self.critic is None:
            advantages = np.concatenate(
                [
                    advantage
                    for begin in range(0, len(episodes), config.replicas)
                    for advantage in replica_advantages(episodes[begin : begin + config.replicas], time_s)
                ]
            )
        else:
            advantages, told = self._criticise(self.critic, store, episodes, time_s, iteration)
        choices = np.concatenate([steps.choices for steps in episodes]).astype(np.int64)
        old_log_p = np.concatenate([steps.log_p for steps in episodes]).astype(np.float32)
        real = np.flatnonzero(store.lengths > 1)  # where there was only one choice there is nothing to learn
        spread = advantages[real].std() + 1e-8
        advantages = ((advantages - advantages[real].mean()) / spread).astype(np.float32)
        for group in self.optimizer.param_groups:
            group["lr"] = config.lr * (1 - progress)
        rng, updates = np.random.default_rng([*self._start.chance(iteration), 1]), []
        for _ in range(config.epochs):
            order = rng.permutation(real)
            for begin in range(0, len(order), config.minibatch):
                picked = order[begin : begin + config.minibatch]
                batch = store.batch(picked)
                update = policy_loss(
                    self.net(batch),
                    batch,
                    torch.from_numpy(choices[picked]),
                    torch.from_numpy(old_log_p[picked]),
                    torch.from_numpy(advantages[picked]),
                    config.clip,
                    config.entropy * (1 - progress),
                )
                updates.append(update)
                if update.kl > 1.5 * config.target_kl:
                    break
                self.optimizer.zero_grad()
                update.loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(self.net.parameters(), config.max_grad)
                self.optimizer.step()
            if updates[-1].kl > 1.5 * config.target_kl:
                break
        return told | {
            "kl": updates[-1].kl,
            "entropy": float(np.mean([update.entropy for update in updates])),
            "clipped": float(np.mean([update.clipped for update in updates])),
            "lr": config.lr * (1 - progress),
        }

    def _criticise(
        self, critic: Critic, store: Store, episodes: Sequence[Steps], time_s: float, iteration: int
    ) -> tuple[np.ndarray, dict[str, float]]:
        """Advantages by the critic as it was; the critic is then fitted to the returns, in units of ``jct_s``."""
        config, everything = self.config, np.arange(len(store))
        targets = np.concatenate([returns(steps, time_s) for steps in episodes])
        scale = self._start.jct_s
        with torch.no_grad():
            values = (
                np.concatenate([critic(store.batch(part)).numpy() for part in np.array_split(everything, 8)]) * scale
            )
        ends = np.cumsum([len(steps.rewards) for steps in episodes])
        pieces = np.split(values, ends[:-1])
        advantages = np.concatenate(
            [gae(steps, piece, time_s, config.gae_lambda) for steps, piece in zip(episodes, pieces, strict=True)]
        )
        goal = (targets / scale).astype(np.float32)
        rng = np.random.default_rng([*self._start.chance(iteration), 2])
        for _ in range(config.epochs):
            order = rng.permutation(everything)
            for begin in range(0, len(order), config.minibatch):
                picked = order[begin : begin + config.minibatch]
                loss = torch.nn.functional.mse_loss(critic(store.batch(picked)), torch.from_numpy(goal[picked]))
                self.critic_optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
                self.critic_optimizer.step()
        unexplained = float(np.var(targets - values) / (np.var(targets) + 1e-9))
        return advantages, {"explained_variance": 1 - unexplained}
