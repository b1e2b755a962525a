"""Learning for Decima: imitation of a heuristic first, then PPO with the replicas of a job sequence as its baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.agents.decima_baseline import advantages, differential
from dagsim.agents.decima_net import DecimaNet, collate, options
from dagsim.agents.decima_play import Steps
from dagsim.agents.ragged import entropy, log_softmax

__all__ = ["DecimaLearner", "LearnConfig", "imitate", "likelihood"]


@dataclass(frozen=True, slots=True)
class LearnConfig:
    """How an iteration learns. ``loss="reinforce"`` takes one unclipped step per minibatch and epoch 1 alone."""

    loss: Literal["ppo", "reinforce"] = "ppo"
    lr: float = 1e-3
    epochs: int = 2
    minibatch: int = 2048
    clip: float = 0.2
    target_kl: float = 0.03
    entropy: float = 0.003
    """At the beginning; it falls to 0 with the training, as does the learning rate."""
    max_grad: float = 1.0
    differential: bool = False
    """Rewards less their mean rate over the iteration, and no discount (Mao et al. 2019, appendix B)."""

    __pydantic_config__ = {"extra": "forbid"}


def likelihood(net: DecimaNet, steps: Sequence[tuple[Steps, int]]) -> tuple[Tensor, Tensor]:
    """Of B decisions, each named by its episode and place: log-probability (B,) and entropy of both heads (B,)."""
    seen = [episode.seen[at] for episode, at in steps]
    stages = np.array([episode.stages[at] for episode, at in steps])
    added = np.array([episode.numbers[at] for episode, at in steps])
    graphs = collate(seen)
    embedded = net.embed(graphs)
    which = log_softmax(net.stage_scores(embedded), graphs.segment, len(seen))
    rows = graphs.first + torch.from_numpy(stages)
    numbers = options(seen, stages)
    many = log_softmax(net.number_scores(embedded[rows], numbers), numbers.segment, len(seen))
    log_p = which[rows] + many[numbers.first + torch.from_numpy(added - 1)]
    spread = entropy(which, graphs.segment, len(seen)) + entropy(many, numbers.segment, len(seen))
    return log_p, spread


def imitate(
    net: DecimaNet, episodes: Sequence[Steps], rng: np.random.Generator, *, epochs: int, lr: float, minibatch: int = 128
) -> float:
    """Cross entropy towards what ``episodes`` decided; returns that of the last epoch."""
    optimizer = torch.optim.Adam(net.parameters(), lr)
    index = _index(episodes)
    total = float("nan")
    for epoch in range(epochs):
        losses = []
        for group in optimizer.param_groups:
            group["lr"] = lr * (1 - epoch / epochs) + 1e-4
        for picked in _minibatches(len(index), minibatch, rng):
            log_p, _ = likelihood(net, [index[at] for at in picked])
            loss = -log_p.mean()
            _step(net, optimizer, loss, 1.0)
            losses.append(float(loss.detach()))
        total = float(np.mean(losses))
    return total


class DecimaLearner:
    """The network, its optimizer, and one iteration at a time."""

    def __init__(self, net: DecimaNet, config: LearnConfig) -> None:
        self.net = net
        self.config = config
        self.optimizer = torch.optim.Adam(net.parameters(), config.lr)

    def learn(
        self,
        groups: Sequence[Sequence[Steps]],
        time_constant_s: float,
        credit_s: float,
        progress: float,
        rng: np.random.Generator,
    ) -> dict[str, float]:
        """Learn from ``groups`` of replicas, each of one job sequence; ``progress`` runs from 0 to 1."""
        config = self.config
        if config.differential:
            differential(groups)
        gains = np.concatenate(advantages(groups, time_constant_s, credit_s, discounted=not config.differential))
        index = _index([steps for group in groups for steps in group])
        real = np.array([at for at, (steps, t) in enumerate(index) if steps.seen[t].most.sum() > 1])
        gains = ((gains - gains[real].mean()) / (gains[real].std() + 1e-8)).astype(np.float32)
        old = np.array([steps.log_p[t] for steps, t in index], np.float32)
        for param_group in self.optimizer.param_groups:
            param_group["lr"] = config.lr * (1 - progress) + 1e-5
        told: list[tuple[float, float]] = []
        for _ in range(config.epochs if config.loss == "ppo" else 1):
            for picked in _minibatches(len(real), config.minibatch, rng):
                rows = real[picked]
                log_p, spread = likelihood(self.net, [index[at] for at in rows])
                log_ratio = log_p - torch.from_numpy(old[rows])
                ratio, gain = torch.exp(log_ratio), torch.from_numpy(gains[rows])
                if config.loss == "ppo":
                    clipped = torch.clamp(ratio, 1 - config.clip, 1 + config.clip)
                    surrogate = torch.minimum(ratio * gain, clipped * gain).mean()
                else:
                    surrogate = (log_p * gain).mean()
                kl = float(((ratio - 1) - log_ratio).mean().detach())
                told.append((kl, float(spread.mean().detach())))
                if kl > 1.5 * config.target_kl:
                    break
                loss = -surrogate - config.entropy * (1 - progress) * spread.mean()
                _step(self.net, self.optimizer, loss, config.max_grad)
            if told[-1][0] > 1.5 * config.target_kl:
                break
        return {"kl": told[-1][0], "entropy": float(np.mean([each for _, each in told])), "updates": len(told)}


def _index(episodes: Sequence[Steps]) -> list[tuple[Steps, int]]:
    return [(steps, at) for steps in episodes for at in range(len(steps.seen))]


def _minibatches(count: int, size: int, rng: np.random.Generator) -> list[np.ndarray]:
    order = rng.permutation(count)
    return [order[begin : begin + size] for begin in range(0, count, size)]


def _step(net: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor, max_grad: float) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(net.parameters(), max_grad)
    optimizer.step()
