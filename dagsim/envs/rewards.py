"""Rewards: minus what a simulation has cost since the last choice, as a weighted sum of the terms of its system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagsim.errors import ConfigError
from dagsim.registry import Registry, Spec
from dagsim.systems.seam import Kernel, RewardTerm

__all__ = ["Reward", "RewardConfig"]


@dataclass(frozen=True, slots=True)
class RewardConfig:
    """A weighted sum of terms to minimise, and a divisor.

    ``terms`` are names of the system's registry (with parameters in brackets), ``module:attr`` or names of entry
    points, each with its weight.

    Raises:
        ConfigError: No terms at all, or a scale that is not positive.
    """

    terms: Mapping[str, float]
    scale: float = 1.0

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not self.terms:
            raise ConfigError("reward: needs at least one term")
        if not self.scale > 0:
            raise ConfigError(f"reward: scale must be positive, got {self.scale!r}")

    def check(self, registry: Registry[RewardTerm]) -> None:
        """Look up every term.

        Raises:
            UnknownName: There is no such term.
        """
        for name in self.terms:
            registry.get(Spec.parse(name).name)


class Reward:
    """The reward of one simulation, step by step. Rewards add up to minus the cost of the whole, whatever the steps."""

    def __init__(self, config: RewardConfig, kernel: Kernel[Any, Any], registry: Registry[RewardTerm]) -> None:
        self.config = config
        self.last: dict[str, float] = dict.fromkeys(config.terms, 0.0)
        """What each term (times its weight, over the scale) took off the last reward."""
        self._kernel = kernel
        schedule = kernel.schedule
        self._terms = {name: registry.create(name, kernel=kernel, schedule=schedule) for name in config.terms}
        self._takers = [taker for term in self._terms.values() if (taker := getattr(term, "take", None)) is not None]
        self._log = schedule.log
        self._read = 0

    def step(self) -> float:
        """The reward since the last call: minus what the terms have cost since then."""
        now, weights, scale = self._kernel.now, self.config.terms, self.config.scale
        if self._takers:
            rows = self._log.since(self._read)
            self._read += len(rows)
            for take in self._takers:
                for row in rows:
                    take(row)
        reward = 0.0
        for name, term in self._terms.items():
            self.last[name] = cost = term.cost(now) * weights[name] / scale
            reward -= cost
        return reward
