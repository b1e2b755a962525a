"""The iteration of PPO and REINFORCE: play whole episodes, estimate advantages, learn from them
once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Generic, TypeVar
import numpy as np
import torch
from dagsim.agents.advantages import ADVANTAGES
from dagsim.agents.config import PpoConfig, ReinforceConfig
from dagsim.agents.learner import LearnerContext
from dagsim.agents.rollouts import EpisodeSteps

__all__ = ["PolicyGradient", "normalized"]


ConfigT = TypeVar("ConfigT", PpoConfig, ReinforceConfig)


def normalized(advantages: np.ndarray, free: np.ndarray) -> np.ndarray:
    """(T,) float32: the advantages, standardised by the mean and deviation of the steps ``free``,
    which had a choice.
    """
    deviation = advantages[free].std() + 1e-8
    scaled: np.ndarray = ((advantages - advantages[free].mean()) / deviation).astype(np.float32)
    return scaled


class PolicyGradient(ABC, Generic[ConfigT]):
    """Plays ``replicas`` episodes on each of ``sequences`` job sequences per iteration, and learns
    from them.
    """

    def __init__(self, context: LearnerContext, config: ConfigT) -> None:
        self.config: ConfigT = config
        self._context = context
        self.net = context.net()
        self.optimizer = torch.optim.Adam(self.net.parameters(), config.lr)
        self.estimator = ADVANTAGES.create(config.advantage, context=context, **asdict(config))

    def iterate(self, iteration: int, progress: float) -> dict[str, float]:
        config, context = self.config, self._context
        seeds = [seed for seed in context.job_seeds(iteration, config.sequences) for _ in range(config.replicas)]
        episodes = context.rollouts.play(
            self.net,
            seeds,
            context.rng_key(iteration),
            jobs=context.jobs_at(progress),
            witness=self.estimator.witness,
        )
        metrics = {
            "reward": float(np.mean([sum(steps.rewards) for steps in episodes])),
            "samples": float(sum(len(steps.choices) for steps in episodes)),
        }
        return metrics | self.learn(episodes, progress, context.rng(iteration, 1), context.rng(iteration, 2))

    @abstractmethod
    def learn(
        self,
        episodes: Sequence[EpisodeSteps],
        progress: float,
        rng: np.random.Generator,
        critic_rng: np.random.Generator,
    ) -> dict[str, float]:
        """Learn from episodes. The replicas of one job sequence are adjacent."""

    def state(self) -> dict[str, Any]:
        return {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict(), **self.estimator.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.estimator.load(state)
