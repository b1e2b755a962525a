"""Policy gradients on whole episodes: PPO and REINFORCE. This module contains the settings. The
learners are in the other modules of this package.

The settings contain only the names of their learners, so reading a configuration does not require
torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dagsim.errors import ConfigError
from dagsim.families.learning.settings import Algorithm
from dagsim.specs import Spec

__all__ = ["PpoConfig", "ReinforceConfig"]


@dataclass(frozen=True, slots=True)
class PpoConfig(Algorithm):
    """Proximal policy optimisation (Schulman et al. 2017), which learns from whole episodes.

    ``advantage`` is one of:

    - ``replicas``: compares each episode with the others on the same job sequence at the same time
      (input-dependent baseline, Mao et al., ICLR 2019; no critic);
    - ``critic``: learns a value function and uses generalised advantage estimation (Schulman et
      al. 2016);
    - ``fluid``: the same as ``replicas``, minus the part that is explained by the backlog; for
      Spark.
    """

    kind: Literal["ppo"] = "ppo"
    advantage: str = "replicas"
    """How advantages are estimated: ``replicas``, ``critic``, ``fluid`` or ``module:attr``, with
    parameters in brackets (``fluid[horizon=0.2]``).
    """
    sequences: int = 8
    """Job sequences per iteration."""
    replicas: int = 8
    """Episodes on each job sequence."""
    lr: float = 2e-3
    """Initial learning rate of Adam. It falls to 0 over training."""
    min_lr: float = 0.0
    """Constant that is added to the learning rate, so that the rate never reaches 0."""
    clip: float = 0.2
    """Clipping range: the largest relative change of an action's probability that the objective
    still rewards.
    """
    target_kl: float = 0.03
    """Target KL divergence. An iteration's update stops when the policy has moved by 1.5 times this
    value.
    """
    epochs: int = 3
    """Number of passes over the choices that an iteration has collected."""
    minibatch: int = 1024
    """Batch size: the number of choices per gradient step."""
    entropy: float = 0.003
    """Initial weight of the entropy bonus. It falls to 0 over training."""
    max_grad: float = 0.5
    """Maximum norm of the gradient."""
    gae_lambda: float = 0.95
    """Parameter lambda of generalised advantage estimation, which the advantage ``critic`` uses."""
    discount_jcts: tuple[float, float] = (10.0, 40.0)
    """Time constants of the discount at the start and at the end of training, as multiples of the
    reference policy's mean completion time. Rewards are discounted because the effect of a decision
    fades, so rewards long after the decision are mostly noise.
    """

    learner: ClassVar[str] = "dagsim.families.learning.on_policy.learners:Ppo"

    def __post_init__(self) -> None:
        self._positive("sequences", "lr", "epochs", "minibatch")
        self._positive("clip", "target_kl", "max_grad")
        self._fraction("gae_lambda")
        self._time_constants("discount_jcts")
        self._at_least(0, "min_lr")
        _check_advantage(self)


@dataclass(frozen=True, slots=True)
class ReinforceConfig(Algorithm):
    """The REINFORCE policy gradient (Williams 1992) with input-dependent baselines (Mao et al.,
    SIGCOMM 2019).
    """

    kind: Literal["reinforce"] = "reinforce"
    advantage: str = "replicas"
    """How advantages are estimated, as for ``ppo``: ``replicas``, ``critic``, ``fluid`` or ``module:attr``."""
    sequences: int = 4
    """Job sequences per iteration."""
    replicas: int = 8
    """Episodes on each job sequence."""
    minibatch: int | None = None
    """Batch size: the number of choices per gradient step. By default, there is one step with all
    choices.
    """
    lr: float = 2e-3
    """Initial learning rate of Adam. It falls to 0 over training."""
    min_lr: float = 0.0
    """Constant that is added to the learning rate, so that the rate never reaches 0."""
    entropy: float = 0.01
    """Initial weight of the entropy bonus. It falls to 0 over training."""
    max_grad: float = 0.5
    """Maximum norm of the gradient."""
    discount_jcts: tuple[float, float] = (2.0, 20.0)
    """Time constants of the discount at the start and at the end of training, as multiples of the
    reference policy's mean completion time.
    """

    learner: ClassVar[str] = "dagsim.families.learning.on_policy.learners:Reinforce"

    def __post_init__(self) -> None:
        self._positive("sequences", "lr", "max_grad")
        self._time_constants("discount_jcts")
        self._at_least(0, "min_lr")
        if self.minibatch is not None:
            self._positive("minibatch")
        _check_advantage(self)


def _check_advantage(settings: PpoConfig | ReinforceConfig) -> None:
    name = Spec.parse(settings.advantage).name
    if settings.replicas < (2 if name in ("replicas", "fluid") else 1):
        raise ConfigError(f"{settings.kind}: advantage {name!r} needs at least 2 replicas, got {settings.replicas!r}")
