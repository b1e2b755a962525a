"""Returns for whole episodes, and advantage estimators. The advantage of a choice is how much
better it was than an average choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from dagsim.errors import ConfigError
from dagsim.families.learning.devices import on_device
from dagsim.families.learning.episode import WitnessFactory
from dagsim.families.learning.nets.actor import Observations
from dagsim.families.learning.training.learner import LearnerContext
from dagsim.families.learning.training.rollouts import EpisodeSteps
from dagsim.model.arithmetic import ordered_sum
from dagsim.registry import Entry, Registry


def discounts(steps: EpisodeSteps, time_constant_s: float) -> np.ndarray:
    """Return the discount factor of each step, which is exp(-seconds to the next choice /
    ``time_constant_s``), as in a semi-Markov process. Shape (T,), float64.
    """
    return np.exp(-np.diff(steps.times_s) / time_constant_s)


def returns(steps: EpisodeSteps, time_constant_s: float) -> np.ndarray:
    """Return the discounted reward from each step to the end of the episode. Shape (T,), float64."""
    gamma = discounts(steps, time_constant_s)
    following = np.zeros(len(steps.rewards) + 1)
    for index in range(len(steps.rewards) - 1, -1, -1):
        following[index] = steps.rewards[index] + gamma[index] * following[index + 1]
    return following[:-1]


def return_rms(episodes: Sequence[EpisodeSteps], time_constant_s: float) -> float:
    """Return the root mean square of all returns. After division by this number, returns have a
    magnitude of about 1."""
    all_returns = np.concatenate([returns(steps, time_constant_s) for steps in episodes])
    return float(np.sqrt(np.mean(all_returns**2))) + 1e-9


def replica_advantages(replicas: Sequence[EpisodeSteps], time_constant_s: float) -> list[np.ndarray]:
    """Subtract from each step's return the mean return of the other replicas at the same simulated
    time.

    All replicas saw the same sequence of jobs, so the effect of the sequence cancels out
    (input-dependent baseline, Mao et al., ICLR 2019, section 4). The mean leaves out the step's own
    replica, which keeps the estimate unbiased. Between two choices, a replica's return is
    interpolated. The result is one (T_i,) float64 array per episode. It is divided by the mean
    total return of the replicas, so that every job sequence has the same weight.
    """
    curves = [(np.asarray(steps.times_s[:-1]), returns(steps, time_constant_s)) for steps in replicas]
    scale = np.mean([abs(ordered_sum(steps.rewards)) for steps in replicas]) + 1e-9
    advantages = []
    for number, (times, own_returns) in enumerate(curves):
        others = [np.interp(times, *curve) for other, curve in enumerate(curves) if other != number and len(curve[0])]
        advantages.append((own_returns - np.mean(others, axis=0)) / scale if others else np.zeros(len(own_returns)))
    return advantages


def gae(steps: EpisodeSteps, values: np.ndarray, time_constant_s: float, lambda_: float) -> np.ndarray:
    """Return the generalised advantage estimates of all steps (Schulman et al. 2016, equation 16).
    ``values`` (T,) are the values of the observations. The value after the last step is 0, because
    the episode has ended.
    """
    gamma = discounts(steps, time_constant_s)
    following = np.append(values[1:], 0.0)
    delta = np.asarray(steps.rewards) + gamma * following - values
    advantages = np.zeros(len(delta) + 1)
    for index in range(len(delta) - 1, -1, -1):
        advantages[index] = delta[index] + gamma[index] * lambda_ * advantages[index + 1]
    return advantages[:-1]


class Estimator(Protocol):
    """Estimates advantages from whole episodes. The replicas of one job sequence must be
    adjacent."""

    witness: WitnessFactory | None
    """Build the witness that takes notes during an episode, or ``None`` if no notes are needed."""

    def estimate(
        self, episodes: Sequence[EpisodeSteps], store: Observations, time_constant_s: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, float]]:
        """Return the advantage of every choice in all episodes, (T,) float64, and metrics for the
        log.
        """

    def state(self) -> dict[str, Any]:
        """Return the state that a resumed training run needs."""

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved ``state``."""


class StatelessEstimator:
    """An estimator without state: each iteration is independent of the others."""

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        pass


class ReplicaAdvantages(StatelessEstimator):
    """Compares each episode with the other episodes on the same job sequence, at the same simulated
    time. This needs no critic (Mao et al., ICLR 2019)."""

    witness: WitnessFactory | None = None

    def __init__(self, replicas: int) -> None:
        self._replicas = check_replicas(replicas, "replicas")

    def estimate(
        self, episodes: Sequence[EpisodeSteps], store: Observations, time_constant_s: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, float]]:
        groups = replica_groups(episodes, self._replicas)
        return np.concatenate(
            [advantages for group in groups for advantages in replica_advantages(group, time_constant_s)]
        ), {}


class CriticAdvantages:
    """Generalised advantage estimates (Schulman et al. 2016), with a critic that is fitted to the
    returns in every iteration."""

    witness: WitnessFactory | None = None

    def __init__(
        self,
        context: LearnerContext,
        lr: float = 2e-3,
        epochs: int = 3,
        minibatch: int = 1024,
        gae_lambda: float = 0.95,
    ) -> None:
        self.critic = context.critic()
        self.optimizer = torch.optim.Adam(self.critic.parameters(), lr)
        self._epochs, self._minibatch, self._lambda = epochs, minibatch, gae_lambda
        self._device = context.device
        self._scale = context.jct_s
        """The unit of values, so that they are about 1."""

    def estimate(
        self, episodes: Sequence[EpisodeSteps], store: Observations, time_constant_s: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, float]]:
        numbers, critic = np.arange(len(store)), self.critic
        targets = np.concatenate([returns(steps, time_constant_s) for steps in episodes])
        with torch.no_grad():
            batches = [on_device(store.batch(part), self._device) for part in np.array_split(numbers, 8)]
            parts = [critic(batch).cpu().numpy() for batch in batches]
        values = np.concatenate(parts) * self._scale
        ends = np.cumsum([len(steps.rewards) for steps in episodes])
        pieces = np.split(values, ends[:-1])
        advantages = np.concatenate(
            [gae(steps, piece, time_constant_s, self._lambda) for steps, piece in zip(episodes, pieces, strict=True)]
        )
        self._fit(store, (targets / self._scale).astype(np.float32), rng)
        unexplained = float(np.var(targets - values) / (np.var(targets) + 1e-9))
        return advantages, {"explained_variance": 1 - unexplained}

    def _fit(self, store: Observations, targets: np.ndarray, rng: np.random.Generator) -> None:
        for _ in range(self._epochs):
            order = rng.permutation(np.arange(len(store)))
            for begin in range(0, len(order), self._minibatch):
                minibatch = order[begin : begin + self._minibatch]
                value = self.critic(on_device(store.batch(minibatch), self._device))
                wanted = on_device(torch.from_numpy(targets[minibatch]), self._device)
                loss = nn.functional.mse_loss(value, wanted)
                self.optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(self.critic.parameters(), 1.0)
                self.optimizer.step()

    def state(self) -> dict[str, Any]:
        return {"critic": self.critic.state_dict(), "critic_optimizer": self.optimizer.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.critic.load_state_dict(state["critic"])
        self.optimizer.load_state_dict(state["critic_optimizer"])


ADVANTAGES: Registry[Estimator] = Registry(
    "advantage",
    [
        Entry("replicas", ".advantages:ReplicaAdvantages", "compares episodes on the same jobs at the same time"),
        Entry("critic", ".advantages:CriticAdvantages", "generalised advantage estimation with a learned value"),
    ],
    group="dagsim.advantages",
    listing="dagsim list advantages",
    home="dagsim.families.learning",
    method="estimate",
)
"""Every estimator by name. It is built with ``context`` and those settings of the algorithm that
its constructor takes as parameters."""


def replica_groups(episodes: Sequence[EpisodeSteps], replicas: int) -> list[Sequence[EpisodeSteps]]:
    """Group the episodes by job sequence. Each group contains the replicas of one sequence."""
    return [episodes[begin : begin + replicas] for begin in range(0, len(episodes), replicas)]


def check_replicas(replicas: int, advantage: str) -> int:
    """Check that there are enough replicas to compare each of them with the others. Return their
    number.

    Raises:
        ConfigError: There are fewer than 2 replicas.
    """
    if replicas < 2:
        raise ConfigError(f"advantage {advantage!r} needs at least 2 replicas, got {replicas!r}")
    return replicas
