"""Learning from a replay buffer with D3QN, Rainbow and SAC. This module contains the settings. The
learners are in the modules next to it.

The settings contain only the names of their learners, so reading a configuration does not require
torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dagsim.errors import ConfigError
from dagsim.families.learning.settings import Algorithm

__all__ = ["D3qnConfig", "RainbowConfig", "SacConfig"]


@dataclass(frozen=True, slots=True)
class _OffPolicy(Algorithm):
    """Settings shared by all algorithms with a replay buffer."""

    episodes: int = 8
    """Number of episodes per iteration. Each episode has its own sequence of jobs."""
    lr: float = 5e-4
    """Initial learning rate of Adam. It falls to a tenth of this value over training."""
    updates: int = 60
    """Minibatches per iteration."""
    minibatch: int = 512
    """Number of transitions per update."""
    replay: int = 200_000
    """Capacity of the replay buffer, in transitions."""
    n_step: int = 8
    """Number of steps whose rewards are summed before the estimated value of the next state is
    added (n-step returns).
    """
    target_rate: float = 0.02
    """How far each update moves the target network towards the online network, as a fraction of the
    distance between them.
    """
    discount_jcts: tuple[float, float] = (0.5, 0.5)
    """Time constants of the discount at the start and at the end of training, as multiples of the
    reference policy's mean completion time.
    """

    def lr_at(self, progress: float) -> float:
        """Return the learning rate at ``progress`` (0 to 1) of training."""
        return self.lr * (1 - 0.9 * progress)

    def _check(self) -> None:
        self._positive("episodes", "lr", "updates", "minibatch")
        self._positive("replay", "n_step")
        self._fraction("target_rate")
        self._time_constants("discount_jcts")


@dataclass(frozen=True, slots=True)
class D3qnConfig(_OffPolicy):
    """Deep Q-learning with double estimation (van Hasselt et al. 2016), a duelling network (Wang et
    al. 2016) and prioritised n-step replay (Schaul et al. 2016). Rewards are discounted by elapsed
    time instead of by step, as in a semi-Markov process.
    """

    kind: Literal["d3qn"] = "d3qn"
    exploration: tuple[float, float] = (0.5, 0.02)
    """Fraction of choices that are random: first at the start of training, then from the middle of
    training onwards.
    """
    priority: float = 0.6
    """Exponent of the priorities with which transitions are sampled. With 0, all transitions are
    equally likely.
    """
    importance: float = 0.4
    """Exponent of the importance weights that compensate for prioritised sampling."""

    learner: ClassVar[str] = "dagsim.families.learning.off_policy.d3qn:D3qn"

    def __post_init__(self) -> None:
        self._check()
        self._fraction("priority", "importance")


@dataclass(frozen=True, slots=True)
class SacConfig(_OffPolicy):
    """Discrete soft actor-critic (Christodoulou 2019) with masks. Expectations are taken over legal
    choices only.
    """

    kind: Literal["sac"] = "sac"
    target_entropy: float = 0.05
    """Target entropy in a state, divided by the logarithm of the number of legal choices there."""
    temperature: float = 0.05
    """Initial temperature."""

    learner: ClassVar[str] = "dagsim.families.learning.off_policy.sac:Sac"

    def __post_init__(self) -> None:
        self._check()
        self._positive("temperature")
        self._fraction("target_entropy")


@dataclass(frozen=True, slots=True)
class RainbowConfig(_OffPolicy):
    """Rainbow (Hessel et al. 2018): ``d3qn`` that learns distributions of returns and explores with
    noisy layers instead of random choices. It uses a separate network, whose width is
    ``net.hidden``.
    """

    kind: Literal["rainbow"] = "rainbow"
    atoms: int = 51
    """Number of values in the support of a distribution of returns."""
    support: tuple[float, float] = (-6.0, 1.0)
    """Lowest and highest value of the support, as multiples of the root mean square of the first
    returns.
    """
    priority: float = 0.6
    """Exponent of the priorities with which transitions are sampled. With 0, all transitions are
    equally likely.
    """
    importance: float = 0.4
    """Exponent of the importance weights that compensate for prioritised sampling."""

    learner: ClassVar[str] = "dagsim.families.learning.off_policy.rainbow:Rainbow"

    def __post_init__(self) -> None:
        self._check()
        self._fraction("priority", "importance")
        self._at_least(2, "atoms")
        if not self.support[0] < self.support[1]:
            raise ConfigError(f"rainbow: support must be two values, the lower one first, got {self.support!r}")
