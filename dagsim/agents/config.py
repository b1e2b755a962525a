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
"""Episodes that are played side by side, unless a configuration says otherwise."""


class AlgorithmSettings(Protocol):
    """An algorithm as a configuration names it: a dataclass of its settings."""

    @property
    def kind(self) -> str:
        """Its name."""
        ...

    def build(self, context: LearnerContext) -> Learner:
        """The algorithm, ready to begin."""
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
    """Settings of an algorithm of dagsim. They name its learner, because only building one loads torch."""

    learner: ClassVar[str]

    __pydantic_config__ = {"extra": "forbid"}

    def build(self, context: LearnerContext) -> Learner:
        """The learner, ready to begin."""
        learner_class: Any = attribute(self.learner)
        learner: Learner = learner_class(context)
        return learner


@dataclass(frozen=True, slots=True)
class PpoConfig(_Algorithm):
    """Proximal policy optimisation (Schulman et al. 2017), on whole episodes.

    ``advantage``: ``replicas`` compares each episode with the others of the same job sequence at equal time
    (input-dependent baseline, Mao et al., ICLR 2019; no critic); ``critic`` learns a value and uses generalised
    advantage estimation (Schulman et al. 2016); ``fluid`` is ``replicas`` less what the backlog explains, for Spark.
    """

    kind: Literal["ppo"] = "ppo"
    advantage: str = "replicas"
    """``replicas``, ``critic``, ``fluid``, or ``module:attr``; with parameters as ``fluid[horizon=0.2]``."""
    sequences: int = 8
    """Job sequences per iteration."""
    replicas: int = 8
    """Episodes on each of them."""
    lr: float = 2e-3
    """Adam's step, falling to 0 over the training."""
    min_lr: float = 0.0
    """Added to it, so that it never is 0."""
    clip: float = 0.2
    target_kl: float = 0.03
    """An iteration's update stops where the policy has moved by 1.5 times this."""
    epochs: int = 3
    minibatch: int = 1024
    entropy: float = 0.003
    """Weight of the entropy bonus, falling to 0."""
    max_grad: float = 0.5
    gae_lambda: float = 0.95
    discount_jcts: tuple[float, float] = (10.0, 40.0)
    """Time constant of the discount in mean completion times of the reference, at the start and at the end of the
    training: what a decision does fades, and what is farther off is mostly noise."""

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
    """Choices per step of the gradient; left out: one step on all of them."""
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
    """Settings that all algorithms with a replay share."""

    episodes: int = 8
    """Episodes per iteration, each on a job sequence of its own."""
    lr: float = 5e-4
    updates: int = 60
    """Minibatches per iteration."""
    minibatch: int = 512
    replay: int = 200_000
    """Transitions kept."""
    n_step: int = 8
    target_rate: float = 0.02
    """Share of the way to the net that the target net moves at each update."""
    discount_jcts: tuple[float, float] = (0.5, 0.5)

    def _check(self, owner: str) -> None:
        _positive(owner, episodes=self.episodes, lr=self.lr, updates=self.updates, minibatch=self.minibatch)
        _positive(owner, replay=self.replay, n_step=self.n_step)
        _fraction(owner, target_rate=self.target_rate)
        _discount(owner, self.discount_jcts)


@dataclass(frozen=True, slots=True)
class D3qnConfig(_OffPolicy):
    """Double (van Hasselt et al. 2016), duelling (Wang et al. 2016) deep Q-learning with prioritised n-step replay
    (Schaul et al. 2016). Rewards are discounted by the time that passes, as in a semi-Markov process."""

    kind: Literal["d3qn"] = "d3qn"
    exploration: tuple[float, float] = (0.5, 0.02)
    """Share of random choices, at the start and from the middle of the training on."""
    priority: float = 0.6
    importance: float = 0.4

    learner: ClassVar[str] = "dagsim.agents.d3qn:D3qn"

    def __post_init__(self) -> None:
        self._check("d3qn")
        _fraction("d3qn", priority=self.priority, importance=self.importance)


@dataclass(frozen=True, slots=True)
class SacConfig(_OffPolicy):
    """Discrete soft actor-critic (Christodoulou 2019), masked: expectations run over legal choices only, and the
    target entropy of a state is ``target_entropy`` x log(number of its legal choices)."""

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
    """Rainbow (Hessel et al. 2018): ``d3qn`` with distributions of returns, and noisy layers that explore by
    themselves. It has a net of its own, as wide as ``net.hidden``."""

    kind: Literal["rainbow"] = "rainbow"
    atoms: int = 51
    """Values that a distribution of returns is spread over."""
    support: tuple[float, float] = (-6.0, 1.0)
    """The lowest and the highest of them, in root mean squares of the first returns."""
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
    """Behaviour cloning: a net first learns to choose as a heuristic does."""

    policy: str
    """The heuristic that is imitated."""
    episodes: int = 60
    epochs: int = 3
    minibatch: int = 512
    lr: float = 2e-3
    final_lr: float | None = None
    """Adam's step falls to this; left out: it stays."""
    smoothing: float = 0.2
    """Probability spread over all choices, so that the net stays ready to learn otherwise."""
    max_grad: float | None = None
    """Limit on the norm of gradients; left out: none."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _positive("warm_start", episodes=self.episodes, epochs=self.epochs, minibatch=self.minibatch, lr=self.lr)
        _fraction("warm_start", smoothing=self.smoothing)


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """A training: what learns, on what reward, for how long, and how it is judged."""

    algorithm: AlgorithmSettings = field(default_factory=PpoConfig)
    net: NetSettings = field(default_factory=ScorerConfig)
    codec: CodecSettings = field(default_factory=CandidatesConfig)
    reward: Mapping[str, float] = field(default_factory=lambda: {"shaped_job_seconds": 1.0})
    """Terms and weights (``dagsim list rewards``)."""
    iterations: int = 100
    minutes: float | None = None
    """The training ends after so much wall time, too, if it is given; resumed ones go on counting."""
    time_constant_s: tuple[float, float] | None = None
    """Time constant of the discount at the start and at the end, in the place of the algorithm's ``discount_jcts``."""
    first_jobs: int | None = None
    """Curriculum: episodes begin with so many jobs and grow to all of them over the first half (Spark)."""
    ema_decay: float = 0.0
    """The net that is judged is an average over iterations, of which so much is kept in each; 0: the net itself."""
    reference: str = "best"
    """The heuristic that progress is told against; ``best`` is the best cheap non-preemptive one, tuned ones included,
    on validation seeds."""
    rivals: tuple[str, ...] = ("fifo", "sjf", "eft-wait")
    """Heuristics beside it in the report."""
    linear_iterations: int = 12
    """Iterations that a linear policy on the same features learns for, to stand in the report; 0 leaves it out."""
    warm_start: str | WarmStart | None = None
    """A heuristic whose choices are imitated first (behaviour cloning), or how it is imitated."""
    lockstep: int = LOCKSTEP
    """Episodes that are played side by side, one pass of the net for all of them. Workers share an iteration in such
    parts, so that their number changes nothing."""
    validate_every: int = 5
    """Iterations between validations."""
    validation_seeds: int = 50
    report_seeds: int = 200
    report_from: int | None = None
    """First seed of the report, to repeat that of another training (its run folder records it in
    ``report_seeds.yaml``). Left out: the next seeds that no training in the same results folder has reported on."""

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
            raise ConfigError(f"train: ema_decay must lie in 0..1, below 1, got {self.ema_decay!r}")
        RewardConfig(self.reward)

    @property
    def cloned(self) -> WarmStart | None:
        """The imitation of a heuristic at first, spelled out; ``None`` if none is."""
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
