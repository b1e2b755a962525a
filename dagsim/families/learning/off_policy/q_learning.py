"""The parts that deep Q-learning and the soft actor-critic share: the iteration with a replay buffer,
target networks and duelling networks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.families.learning.advantages import discounts, return_rms
from dagsim.families.learning.devices import on_device
from dagsim.families.learning.nets.actor import ObservationBatch, ScoreNet, segment_sum
from dagsim.families.learning.off_policy import D3qnConfig, RainbowConfig, SacConfig
from dagsim.families.learning.off_policy.replay import Drawn, ReplayBuffer
from dagsim.families.learning.training.learner import LearnerContext
from dagsim.families.learning.training.rollouts import EpisodeSteps, RngPurpose
from dagsim.model.arithmetic import ordered_sum

SettingsT = TypeVar("SettingsT", bound=D3qnConfig | RainbowConfig | SacConfig)
ConfigT = TypeVar("ConfigT", bound=D3qnConfig | RainbowConfig)
QT = TypeVar("QT", bound=nn.Module)


class ReplayLearner(ABC, Generic[SettingsT]):
    """Learns from n-step transitions in a replay buffer."""

    def __init__(
        self,
        context: LearnerContext,
        config: SettingsT,
        replay: ReplayBuffer,
        optimizers: Sequence[torch.optim.Optimizer],
    ) -> None:
        self.config: SettingsT = config
        self._context = context
        self.replay = replay
        self.optimizers = optimizers
        self._scale = 0.0

    @abstractmethod
    def _update(self, drawn: Drawn, rng: np.random.Generator) -> dict[str, float]:
        """Make a gradient step with the sampled transitions. Return metrics."""

    def learn(self, episodes: Sequence[EpisodeSteps], iteration: int, progress: float) -> dict[str, float]:
        """Add the transitions of the episodes to the replay buffer. Then make ``updates`` gradient
        steps on minibatches from the buffer. Return the means of their metrics."""
        config, context = self.config, self._context
        time_s = context.time_constant_s(config.discount_jcts, progress)
        self._scale = self._scale or return_rms(episodes, time_s)
        for steps in episodes:
            self.replay.add(steps, discounts(steps, time_s), config.n_step, self._scale)
        rng, lr = context.rng(iteration, RngPurpose.REPLAY), config.lr_at(progress)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr
        updates = []
        for _ in range(config.updates):
            drawn = on_device(self.replay.draw(config.minibatch, rng), context.device)
            updates.append(self._update(drawn, rng))
        return {
            "reward": float(np.mean([ordered_sum(steps.rewards) for steps in episodes])),
            "samples": float(sum(len(steps.choices) for steps in episodes)),
            **{name: float(np.mean([update[name] for update in updates])) for name in updates[0]},
            "lr": lr,
        }


def follow(target: nn.Module, net: nn.Module, rate: float) -> None:
    """Move the target network's weights towards the online network's weights by the fraction
    ``rate`` (Polyak averaging).
    """
    with torch.no_grad():
        for old, new in zip(target.parameters(), net.parameters(), strict=True):
            old.lerp_(new, rate)


class QLearner(ReplayLearner[ConfigT], Generic[ConfigT, QT]):
    """Learns ``q`` from prioritised n-step replay. A target network slowly follows ``q``."""

    def __init__(self, context: LearnerContext, config: ConfigT, q: QT, net: ScoreNet) -> None:
        self.q = q
        self.target = deepcopy(q)
        self.optimizer = torch.optim.Adam(q.parameters(), config.lr)
        replay = ReplayBuffer(config.replay, config.priority, config.importance, net)
        super().__init__(context, config, replay, [self.optimizer])

    @abstractmethod
    def _loss(self, drawn: Drawn, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Return the weighted loss of the sampled transitions. Also return the error (B,) of each
        transition, which becomes its new priority."""

    def _update(self, drawn: Drawn, rng: np.random.Generator) -> dict[str, float]:
        loss, errors = self._loss(drawn, rng)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.q.parameters(), 10.0)
        self.optimizer.step()
        self.replay.update(drawn.places, errors.cpu().numpy())
        follow(self.target, self.q, self.config.target_rate)
        return {"loss": float(loss.detach())}

    def state(self) -> dict[str, Any]:
        return {"target": self.target.state_dict(), "optimizer": self.optimizer.state_dict(), "scale": self._scale}

    def load(self, state: Mapping[str, Any]) -> None:
        self.target.load_state_dict(state["target"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._scale = state["scale"]


class Duelling(nn.Module):
    """A network that computes Q(s, a), (N,), by the duelling formula: V(s) + A(s, a) - mean of A
    over the legal choices (Wang et al. 2016, equation 9)."""

    def __init__(self, advantage: nn.Module, value: nn.Module) -> None:
        super().__init__()
        self.advantage = advantage
        self.value = value

    def forward(self, batch: ObservationBatch) -> Tensor:
        advantage = self.advantage(batch)
        lengths = segment_sum(torch.ones_like(advantage), batch.segment, batch.size)
        mean = segment_sum(advantage, batch.segment, batch.size) / lengths
        return (self.value(batch) - mean)[batch.segment] + advantage  # type: ignore[no-any-return]
