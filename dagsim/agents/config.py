"""Settings of a training: plain values, so that reading a configuration does not load torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from dagsim.agents.nets.config import NetSettings, ScorerConfig
from dagsim.envs.episode import RewardConfig
from dagsim.errors import ConfigError
from dagsim.own_code import attribute
from dagsim.registry import Entry, Registry, Spec
from dagsim.systems.cluster.codecs.codec import CandidatesConfig
from dagsim.systems.seam import CodecSettings

if TYPE_CHECKING:
    from dagsim.agents.learner import Learner, LearnerContext

__all__ = [
    "ALGORITHMS",
    "LOCKSTEP",
    "AlgorithmSettings",
    "D3qnConfig",
    "PpoConfig",
    "RainbowConfig",
    "ReinforceConfig",
    "SacConfig",
    "TrainConfig",
    "WarmStart",
    "algorithm_name",
]


LOCKSTEP = 16
"""Default number of episodes that are played side by side."""


class AlgorithmSettings(Protocol):
    """An algorithm as a configuration names it: a dataclass of its settings."""

    @property
    def kind(self) -> str:
        """Its name."""
        ...

    def build(self, context: LearnerContext) -> Learner:
        """Build the algorithm, ready to begin."""
        ...


def _positive(owner: str, **values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ConfigError(f"{owner}: {name} must be positive, got {value!r}")


def _fraction(owner: str, **values: float) -> None:
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise ConfigError(f"{owner}: {name} must lie in 0..1, got {value!r}")


@dataclass(frozen=True, slots=True)
class _Algorithm:
    """Settings of one of dagsim's algorithms. They name its learner, because torch is loaded only
    when one is built.
    """

    learner: ClassVar[str]

    __pydantic_config__ = {"extra": "forbid"}

    def build(self, context: LearnerContext) -> Learner:
        """Build the learner, ready to begin."""
        learner_class: Any = attribute(self.learner)
        learner: Learner = learner_class(context)
        return learner


@dataclass(frozen=True, slots=True)
class PpoConfig(_Algorithm):
    """Proximal policy optimisation (Schulman et al. 2017), on whole episodes.

    ``advantage`` is one of:

    - ``replicas``: compares each episode with the others of the same job sequence at equal time
      (input-dependent baseline, Mao et al., ICLR 2019; no critic);
    - ``critic``: learns a value and uses generalised advantage estimation (Schulman et al. 2016);
    - ``fluid``: ``replicas`` minus the part that the backlog explains, for Spark.
    """

    kind: Literal["ppo"] = "ppo"
    advantage: str = "replicas"
    """``replicas``, ``critic``, ``fluid``, or ``module:attr``, with parameters in brackets:
    ``fluid[horizon=0.2]``.
    """
    sequences: int = 8
    """Job sequences per iteration."""
    replicas: int = 8
    """Episodes on each of them."""
    lr: float = 2e-3
    """Adam's learning rate, which falls to 0 over the training."""
    min_lr: float = 0.0
    """Added to the learning rate, so that it never reaches 0."""
    clip: float = 0.2
    target_kl: float = 0.03
    """The update of an iteration stops when the policy has moved by 1.5 times this divergence."""
    epochs: int = 3
    minibatch: int = 1024
    entropy: float = 0.003
    """Weight of the entropy bonus, which falls to 0 over the training."""
    max_grad: float = 0.5
    gae_lambda: float = 0.95
    discount_jcts: tuple[float, float] = (10.0, 40.0)
    """Time constant of the discount, in mean completion times of the reference, at the start and at
    the end of the training. The effect of a decision fades, and later rewards are mostly noise.
    """

    learner: ClassVar[str] = "dagsim.agents.ppo:Ppo"

    def __post_init__(self) -> None:
        _positive("ppo", sequences=self.sequences, lr=self.lr, epochs=self.epochs, minibatch=self.minibatch)
        _positive("ppo", clip=self.clip, target_kl=self.target_kl, max_grad=self.max_grad)
        _fraction("ppo", gae_lambda=self.gae_lambda)
        _discount("ppo", self.discount_jcts)
        _at_least(self, "min_lr", 0)
        _advantage("ppo", self.advantage, self.replicas)


@dataclass(frozen=True, slots=True)
class ReinforceConfig(_Algorithm):
    """The policy gradient with input-dependent baselines (Williams 1992; Mao et al., SIGCOMM 2019)."""

    kind: Literal["reinforce"] = "reinforce"
    advantage: str = "replicas"
    """As for ``ppo``."""
    sequences: int = 4
    replicas: int = 8
    minibatch: int | None = None
    """Choices per gradient step. Default: one step on all of them."""
    lr: float = 2e-3
    min_lr: float = 0.0
    entropy: float = 0.01
    max_grad: float = 0.5
    discount_jcts: tuple[float, float] = (2.0, 20.0)

    learner: ClassVar[str] = "dagsim.agents.reinforce:Reinforce"

    def __post_init__(self) -> None:
        _positive("reinforce", sequences=self.sequences, lr=self.lr, max_grad=self.max_grad)
        _discount("reinforce", self.discount_jcts)
        _at_least(self, "min_lr", 0)
        if self.minibatch is not None:
            _positive("reinforce", minibatch=self.minibatch)
        _advantage("reinforce", self.advantage, self.replicas)


@dataclass(frozen=True, slots=True)
class _OffPolicy(_Algorithm):
    """Settings of all algorithms with a replay."""

    episodes: int = 8
    """Episodes per iteration, each on its own job sequence."""
    lr: float = 5e-4
    updates: int = 60
    """Minibatches per iteration."""
    minibatch: int = 512
    replay: int = 200_000
    """Capacity of the replay, in transitions."""
    n_step: int = 8
    target_rate: float = 0.02
    """Fraction of the distance to the net by which each update moves the target net."""
    discount_jcts: tuple[float, float] = (0.5, 0.5)

    def _check(self, owner: str) -> None:
        _positive(owner, episodes=self.episodes, lr=self.lr, updates=self.updates, minibatch=self.minibatch)
        _positive(owner, replay=self.replay, n_step=self.n_step)
        _fraction(owner, target_rate=self.target_rate)
        _discount(owner, self.discount_jcts)


@dataclass(frozen=True, slots=True)
class D3qnConfig(_OffPolicy):
    """Deep Q-learning: double (van Hasselt et al. 2016) and duelling (Wang et al. 2016), with
    prioritised n-step replay (Schaul et al. 2016). Rewards are discounted by elapsed time, as in
    a semi-Markov process.
    """

    kind: Literal["d3qn"] = "d3qn"
    exploration: tuple[float, float] = (0.5, 0.02)
    """Fraction of random choices: at the start, and from the middle of the training on."""
    priority: float = 0.6
    importance: float = 0.4

    learner: ClassVar[str] = "dagsim.agents.d3qn:D3qn"

    def __post_init__(self) -> None:
        self._check("d3qn")
        _fraction("d3qn", priority=self.priority, importance=self.importance)


@dataclass(frozen=True, slots=True)
class SacConfig(_OffPolicy):
    """Discrete soft actor-critic (Christodoulou 2019) with masks: expectations run over legal
    choices only, and the target entropy of a state is ``target_entropy`` x log(number of its
    legal choices).
    """

    kind: Literal["sac"] = "sac"
    target_entropy: float = 0.05
    temperature: float = 0.05
    """Initial temperature."""

    learner: ClassVar[str] = "dagsim.agents.sac:Sac"

    def __post_init__(self) -> None:
        self._check("sac")
        _positive("sac", temperature=self.temperature)
        _fraction("sac", target_entropy=self.target_entropy)


@dataclass(frozen=True, slots=True)
class RainbowConfig(_OffPolicy):
    """Rainbow (Hessel et al. 2018): ``d3qn`` with distributions of returns, and with noisy layers
    instead of random choices for exploration. It has its own net, as wide as ``net.hidden``.
    """

    kind: Literal["rainbow"] = "rainbow"
    atoms: int = 51
    """Number of values in the support of a distribution of returns."""
    support: tuple[float, float] = (-6.0, 1.0)
    """The lowest and the highest value of the support, in root mean squares of the first returns."""
    priority: float = 0.6
    importance: float = 0.4

    learner: ClassVar[str] = "dagsim.agents.rainbow:Rainbow"

    def __post_init__(self) -> None:
        self._check("rainbow")
        _fraction("rainbow", priority=self.priority, importance=self.importance)
        _at_least(self, "atoms", 2)
        if not self.support[0] < self.support[1]:
            raise ConfigError(f"rainbow: support must be a low and a higher value, got {self.support!r}")


ALGORITHMS: Registry[AlgorithmSettings] = Registry(
    "algorithm",
    [
        Entry("ppo", ".config:PpoConfig", "proximal policy optimisation on whole episodes"),
        Entry("reinforce", ".config:ReinforceConfig", "the policy gradient with input-dependent baselines"),
        Entry("d3qn", ".config:D3qnConfig", "duelling double deep Q-learning with prioritised n-step replay"),
        Entry("rainbow", ".config:RainbowConfig", "d3qn with distributions of returns and noisy layers"),
        Entry("sac", ".config:SacConfig", "discrete soft actor-critic"),
    ],
    group="dagsim.algorithms",
    listing="dagsim list algorithms",
    home="dagsim.agents",
    method="build",
)
"""Every algorithm by name, as the dataclass of its settings."""


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Behaviour cloning: a net learns to imitate a heuristic before its training."""

    policy: str
    """The heuristic to imitate."""
    episodes: int = 60
    epochs: int = 3
    minibatch: int = 512
    lr: float = 2e-3
    final_lr: float | None = None
    """Final value of Adam's learning rate. Default: it stays constant."""
    smoothing: float = 0.2
    """Probability spread evenly over all choices, so that the net can still learn others."""
    max_grad: float | None = None
    """Limit on the norm of gradients. Default: no limit."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _positive("warm_start", episodes=self.episodes, epochs=self.epochs, minibatch=self.minibatch, lr=self.lr)
        _fraction("warm_start", smoothing=self.smoothing)


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """A training: the algorithm, its reward, its length, and how it is validated."""

    algorithm: AlgorithmSettings = field(default_factory=PpoConfig)
    net: NetSettings = field(default_factory=ScorerConfig)
    codec: CodecSettings = field(default_factory=CandidatesConfig)
    reward: Mapping[str, float] = field(default_factory=lambda: {"shaped_job_seconds": 1.0})
    """Terms and weights (``dagsim list rewards``)."""
    iterations: int = 100
    minutes: float | None = None
    """Limit on the wall time in minutes, in addition to the number of iterations. A resumed
    training continues the count.
    """
    time_constant_s: tuple[float, float] | None = None
    """Time constant of the discount at the start and at the end of the training, instead of the
    algorithm's ``discount_jcts``.
    """
    first_jobs: int | None = None
    """Curriculum: episodes begin with this number of jobs and grow to all of them over the first
    half (Spark).
    """
    ema_decay: float = 0.0
    """Decay of the average over iterations that is validated: the fraction kept in each. If 0, the
    net itself is validated.
    """
    reference: str = "best"
    """The heuristic against which progress is measured. ``best`` is the best cheap non-preemptive
    one on validation seeds, tuned ones included.
    """
    rivals: tuple[str, ...] = ("fifo", "sjf", "eft-wait")
    """Further heuristics in the report."""
    linear_iterations: int = 12
    """Iterations of training for a linear policy on the same features, which the report includes.
    If 0, it is left out.
    """
    warm_start: str | WarmStart | None = None
    """A heuristic to imitate before the training (behaviour cloning), or the settings of the
    imitation.
    """
    lockstep: int = LOCKSTEP
    """Number of episodes that are played side by side, with one pass of the net for all of them.
    Workers receive an iteration in parts of this size, so their number does not change the
    result.
    """
    validate_every: int = 5
    """Iterations between validations."""
    validation_seeds: int = 50
    report_seeds: int = 200
    report_from: int | None = None
    """First seed of the report, to repeat the report of another training (its run folder records
    the seeds in ``report_seeds.yaml``). Default: the next seeds that no training in the same
    results folder has reported on.
    """

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _positive("train", iterations=self.iterations, lockstep=self.lockstep, validate_every=self.validate_every)
        _positive("train", validation_seeds=self.validation_seeds, report_seeds=self.report_seeds)
        if self.minutes is not None:
            _positive("train", minutes=self.minutes)
        if self.first_jobs is not None:
            _positive("train", first_jobs=self.first_jobs)
        if self.time_constant_s is not None:
            _discount("train", self.time_constant_s, "time_constant_s")
        if not 0 <= self.ema_decay < 1:
            raise ConfigError(f"train: ema_decay must be at least 0 and below 1, got {self.ema_decay!r}")
        RewardConfig(self.reward)

    @property
    def cloned(self) -> WarmStart | None:
        """Settings of the initial imitation of a heuristic; ``None`` if there is no imitation."""
        return WarmStart(self.warm_start) if isinstance(self.warm_start, str) else self.warm_start


def algorithm_name(settings: AlgorithmSettings) -> str:
    """The short name of an algorithm, for labels: its ``kind``, or the name of a user's class."""
    return str(getattr(settings, "kind", type(settings).__name__))


def _discount(owner: str, values: tuple[float, float], name: str = "discount_jcts") -> None:
    if not min(values) > 0:
        raise ConfigError(f"{owner}: {name} must be positive, got {values!r}")


def _at_least(settings: Any, name: str, least: float) -> None:
    if not getattr(settings, name) >= least:
        raise ConfigError(f"{settings.kind}: {name} must be {least} or more, got {getattr(settings, name)!r}")


def _advantage(owner: str, spec: str, replicas: int) -> None:
    name = Spec.parse(spec).name
    if replicas < (2 if name in ("replicas", "fluid") else 1):
        raise ConfigError(f"{owner}: advantage {name!r} needs 2 replicas or more, got {replicas!r}")
