"""Estimators of the advantage: by how much a choice was better than usual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from dagsim.agents.fluid import FluidWitness
from dagsim.agents.fluid_baseline import differential, fluid_advantages
from dagsim.agents.learner import LearnerContext
from dagsim.agents.nets.actor import Observations
from dagsim.agents.returns import gae, replica_advantages, returns
from dagsim.agents.rollouts import EpisodeSteps
from dagsim.envs.episode import WitnessFactory
from dagsim.errors import ConfigError
from dagsim.registry import Entry, Registry

__all__ = ["ADVANTAGES", "CriticAdvantages", "Estimator", "FluidAdvantages", "ReplicaAdvantages"]


class Estimator(Protocol):
    """Estimates advantages from whole episodes, the replicas of one job sequence side by side."""

    witness: WitnessFactory | None
    """Makes what must be noted while an episode is played; ``None``: nothing."""

    def estimate(
        self, episodes: Sequence[EpisodeSteps], store: Observations, time_constant_s: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, float]]:
        """(T,) float64 advantages of all choices, end to end, and metrics for the log."""
        ...

    def state(self) -> dict[str, Any]:
        """Everything that a resumed training needs."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state`` was saved."""
        ...


class _Stateless:
    """An estimator that is made anew for every iteration."""

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        pass


class ReplicaAdvantages(_Stateless):
    """Each episode against the others of its job sequence at equal time. No critic (Mao et al., ICLR 2019)."""

    witness: WitnessFactory | None = None

    def __init__(self, replicas: int) -> None:
        self._replicas = _at_least_two(replicas, "replicas")

    def estimate(
        self, episodes: Sequence[EpisodeSteps], store: Observations, time_constant_s: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, float]]:
        groups = _groups(episodes, self._replicas)
        return np.concatenate([each for group in groups for each in replica_advantages(group, time_constant_s)]), {}


class FluidAdvantages(_Stateless):
    """Replicas, freed from what their backlogs explain (``fluid_baseline``); for the system ``spark``.

    For ``horizon`` time constants after a decision its consequences are credited to it. ``differential`` takes the mean
    rate from the rewards in place of a discount (Mao et al. 2019, appendix B).
    """

    witness: WitnessFactory | None = FluidWitness

    def __init__(self, replicas: int, horizon: float = 0.5, differential: bool = False) -> None:
        if not horizon > 0:
            raise ConfigError(f"advantage 'fluid': horizon must be positive, got {horizon!r}")
        self._replicas = _at_least_two(replicas, "fluid")
        self._horizon, self._differential = horizon, differential

    def estimate(
        self, episodes: Sequence[EpisodeSteps], store: Observations, time_constant_s: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, float]]:
        groups = _groups(episodes, self._replicas)
        if self._differential:
            differential(groups)
        horizon_s = self._horizon * time_constant_s
        advantages = fluid_advantages(groups, time_constant_s, horizon_s, discounted=not self._differential)
        return np.concatenate(advantages), {}


class CriticAdvantages:
    """Generalised advantage estimates (Schulman et al. 2016) by a critic, fitted to the returns of every iteration."""

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
        self._scale = context.jct_s
        """Values are in this unit, so that they are about 1."""

    def estimate(
        self, episodes: Sequence[EpisodeSteps], store: Observations, time_constant_s: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, float]]:
        everything, critic = np.arange(len(store)), self.critic
        targets = np.concatenate([returns(steps, time_constant_s) for steps in episodes])
        with torch.no_grad():
            parts = [critic(store.batch(part)).numpy() for part in np.array_split(everything, 8)]
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
                picked = order[begin : begin + self._minibatch]
                value = self.critic(store.batch(picked))
                loss = nn.functional.mse_loss(value, torch.from_numpy(targets[picked]))
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
        Entry("replicas", ".advantages:ReplicaAdvantages", "against other episodes on the same jobs at equal time"),
        Entry("critic", ".advantages:CriticAdvantages", "generalised advantage estimates by a learned value"),
        Entry("fluid", ".advantages:FluidAdvantages", "replicas less what the backlog explains (spark)"),
    ],
    group="dagsim.advantages",
    listing="dagsim list advantages",
    home="dagsim.agents",
    method="estimate",
)
"""Every estimator by name, made with the ``context`` and the settings of the algorithm that it names as parameters."""


def _groups(episodes: Sequence[EpisodeSteps], replicas: int) -> list[Sequence[EpisodeSteps]]:
    """The replicas of each job sequence."""
    return [episodes[begin : begin + replicas] for begin in range(0, len(episodes), replicas)]


def _at_least_two(replicas: int, advantage: str) -> int:
    if replicas < 2:
        raise ConfigError(f"advantage {advantage!r} needs 2 replicas or more, got {replicas!r}")
    return replicas
