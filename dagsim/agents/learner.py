"""What every algorithm has in common: a network, a place to play, and one iteration at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from dagsim.agents.config import D3qnConfig, PpoConfig, ReinforceConfig, SacConfig, TrainConfig
from dagsim.agents.field import Field
from dagsim.agents.nets import Sizes, build

__all__ = ["Learner", "Start", "learner"]


class Start(NamedTuple):
    """What a learner begins with."""

    config: TrainConfig
    field: Field
    sizes: Sizes
    seed: int
    jct_s: float
    """Mean completion time of the reference heuristic: the unit of time constants."""
    seeds: Sequence[int]
    """The job sequences to learn on, each used once; after the last it begins again."""

    def take(self, iteration: int, count: int) -> list[int]:
        """The ``count`` job sequences of an iteration."""
        begin = iteration * count
        return [self.seeds[(begin + place) % len(self.seeds)] for place in range(count)]

    def chance(self, iteration: int) -> tuple[int, int]:
        """What seeds the choices of an iteration."""
        return self.seed, iteration

    def time_constant_s(self, jcts: tuple[float, float], progress: float) -> float:
        """The discount's time constant at ``progress`` (0 to 1) of the training."""
        first, last = jcts
        return float(self.jct_s * first * (last / first) ** progress)

    def net(self) -> nn.Module:
        """A new network; the seed decides its weights."""
        torch.manual_seed(self.seed)
        return build(self.config.net, self.sizes)


class Learner(Protocol):
    """An algorithm under way."""

    net: nn.Module
    """Scores choices; its greedy policy is what is judged."""

    def iterate(self, iteration: int, progress: float) -> dict[str, float]:
        """Play and learn once; ``progress`` runs from 0 to 1 over the training. Returns what is to be logged."""
        ...

    def state(self) -> dict[str, Any]:
        """Everything that a resumed training needs, as tensors and plain values."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Take up where ``state`` was saved."""
        ...


def learner(start: Start) -> Learner:
    """The algorithm that the configuration names."""
    match start.config.algorithm:
        case PpoConfig():
            from dagsim.agents.ppo import Ppo

            return Ppo(start)
        case ReinforceConfig():
            from dagsim.agents.reinforce import Reinforce

            return Reinforce(start)
        case D3qnConfig():
            from dagsim.agents.d3qn import D3qn

            return D3qn(start)
        case SacConfig():
            from dagsim.agents.sac import Sac

            return Sac(start)
