"""The iteration that PPO and REINFORCE share. It runs whole episodes, estimates advantages, and
learns from each episode once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch

from dagsim.families.learning.advantages import ADVANTAGES, replica_groups
from dagsim.families.learning.nets.actor import Observations
from dagsim.families.learning.on_policy import PpoConfig, ReinforceConfig
from dagsim.families.learning.training.learner import LearnerContext
from dagsim.families.learning.training.rollouts import EpisodeSteps, RngPurpose, choices_of
from dagsim.model.arithmetic import ordered_sum

ConfigT = TypeVar("ConfigT", PpoConfig, ReinforceConfig)


def normalized(advantages: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return the standardised advantages. Their mean and standard deviation are taken over the
    steps ``free``, which have more than one choice. Shape (T,), float32.
    """
    deviation = advantages[free].std() + 1e-8
    scaled: np.ndarray = ((advantages - advantages[free].mean()) / deviation).astype(np.float32)
    return scaled


def in_own_unit(replicas: Sequence[EpisodeSteps]) -> list[EpisodeSteps]:
    """Return the episodes of one job sequence. Times and rewards are divided by the mean completion
    time of this sequence."""
    times_s = [steps.jct_s for steps in replicas if steps.jct_s > 0]
    unit_s = float(np.mean(times_s)) if times_s else 1.0
    return [
        replace(
            steps,
            times_s=[time_s / unit_s for time_s in steps.times_s],
            rewards=[reward / unit_s for reward in steps.rewards],
            unit_s=unit_s,
        )
        for steps in replicas
    ]


def equal_weights(advantages: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    """Return the advantages of all job sequences in one array. Each sequence is scaled to a
    standard deviation of 1."""
    parts = np.split(advantages, np.cumsum(lengths)[:-1])
    return np.concatenate([part / (part.std() + 1e-8) if len(part) else part for part in parts])


class Choices(NamedTuple):
    """All choices in several episodes."""

    observations: Observations
    choices: np.ndarray
    log_p: np.ndarray
    """(T,) log-probability of each choice when it was made."""
    advantages: np.ndarray
    free: np.ndarray
    """Indices of the choices that had an alternative."""


def shuffled(rows: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield the numbers of all rows, in a new random order, ``size`` at a time."""
    order = rng.permutation(rows)
    for begin in range(0, len(order), size):
        yield order[begin : begin + size]


class PolicyGradient(ABC, Generic[ConfigT]):
    """Runs ``replicas`` episodes on each of ``sequences`` job sequences in each iteration, and
    learns from them."""

    def __init__(self, context: LearnerContext, config: ConfigT) -> None:
        self.config: ConfigT = config
        self._context = context
        self.net = context.net()
        self.optimizer = torch.optim.Adam(self.net.parameters(), config.lr)
        self.estimator = ADVANTAGES.create(config.advantage, context=context, **asdict(config))

    def iterate(self, iteration: int, progress: float) -> dict[str, float]:
        config, context = self.config, self._context
        seeds = [seed for seed in context.job_seeds(iteration, config.sequences) for _ in range(config.replicas)]
        episodes = context.play(
            self.net,
            seeds,
            context.rng_key(iteration),
            jobs=context.jobs_at(progress),
            witness=self.estimator.witness,
        )
        metrics = {
            "reward": float(np.mean([ordered_sum(steps.rewards) for steps in episodes])),
            "samples": float(sum(len(steps.choices) for steps in episodes)),
        }
        rng, critic_rng = (context.rng(iteration, purpose) for purpose in (RngPurpose.POLICY, RngPurpose.CRITIC))
        return metrics | self.learn(episodes, progress, rng, critic_rng)

    def learn(
        self,
        episodes: Sequence[EpisodeSteps],
        progress: float,
        rng: np.random.Generator,
        critic_rng: np.random.Generator,
    ) -> dict[str, float]:
        """Learn from episodes. The replicas of a job sequence are adjacent."""
        config, varied = self.config, self._context.varied
        if varied:
            episodes = [steps for group in replica_groups(episodes, config.replicas) for steps in in_own_unit(group)]
        store = self.net.store([observation for steps in episodes for observation in steps.observations])
        time_s = self._context.time_constant_s(config.discount_jcts, progress)
        raw, metrics = self.estimator.estimate(episodes, store, time_s, critic_rng)
        # leave out steps with a single choice, because nothing can be learned from them
        free = np.flatnonzero(store.is_free)
        if varied:
            raw = equal_weights(
                raw,
                [
                    sum(map(len, (steps.rewards for steps in group)))
                    for group in replica_groups(episodes, config.replicas)
                ],
            )
        log_p = np.concatenate([steps.log_p for steps in episodes]).astype(np.float32)
        lr = config.lr * (1 - progress) + config.min_lr
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        batch = Choices(store, choices_of(episodes), log_p, normalized(raw, free), free)
        return metrics | self._update(batch, config.entropy * (1 - progress), rng) | {"lr": lr}

    @abstractmethod
    def _update(self, batch: Choices, entropy_weight: float, rng: np.random.Generator) -> dict[str, float]:
        """Make the gradient steps for one iteration."""

    def state(self) -> dict[str, Any]:
        return {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict(), **self.estimator.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.estimator.load(state)
