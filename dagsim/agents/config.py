"""How an agent learns: plain values, so that reading a configuration does not load torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from dagsim.envs.rewards import RewardConfig
from dagsim.errors import ConfigError
from dagsim.systems.cluster.codecs.config import CandidatesConfig
from dagsim.workload.tagged_union import TaggedUnion

__all__ = ["Algorithm", "D3qnConfig", "NetConfig", "PpoConfig", "ReinforceConfig", "SacConfig", "TrainConfig"]


def _positive(owner: str, **values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ConfigError(f"{owner}: {name} must be positive, got {value!r}")


def _fraction(owner: str, **values: float) -> None:
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise ConfigError(f"{owner}: {name} must lie in 0..1, got {value!r}")


@dataclass(frozen=True, slots=True)
class NetConfig:
    """The network. ``scorer``: a score per candidate from its own features, the mean of all and the context.
    ``attention``: candidates attend to the GPU types, too. ``graph``: messages pass between candidates and
    the GPU types they would run on. ``mlp``: one flat network over the first ``slots`` rows.
    ``linear``: one weight per feature."""

    kind: Literal["scorer", "attention", "graph", "mlp", "linear"] = "scorer"
    hidden: int = 64
    """Units of each hidden layer."""
    slots: int = 64
    """Rows that ``mlp`` sees; further ones cannot be chosen."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _positive("net", hidden=self.hidden, slots=self.slots)


@dataclass(frozen=True, slots=True)
class PpoConfig:
    """Proximal policy optimisation (Schulman et al. 2017), on whole episodes.

    ``advantage``: ``replicas`` compares each episode with the others of the same job sequence at equal time
    (input-dependent baseline, Mao et al., ICLR 2019; no critic); ``critic`` learns a value and uses generalised
    advantage estimation (Schulman et al. 2016).
    """

    kind: Literal["ppo"] = "ppo"
    advantage: Literal["replicas", "critic"] = "replicas"
    sequences: int = 8
    """Job sequences per iteration."""
    replicas: int = 8
    """Episodes on each of them."""
    lr: float = 2e-3
    """Adam's step, falling to 0 over the training."""
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

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _positive("ppo", sequences=self.sequences, lr=self.lr, epochs=self.epochs, minibatch=self.minibatch)
        _positive("ppo", clip=self.clip, target_kl=self.target_kl, max_grad=self.max_grad)
        _fraction("ppo", gae_lambda=self.gae_lambda)
        _discount("ppo", self.discount_jcts)
        if self.replicas < (2 if self.advantage == "replicas" else 1):
            raise ConfigError(f"ppo: advantage {self.advantage!r} needs more replicas than {self.replicas!r}")


@dataclass(frozen=True, slots=True)
class ReinforceConfig:
    """The policy gradient with input-dependent baselines (Williams 1992; Mao et al., SIGCOMM 2019)."""

    kind: Literal["reinforce"] = "reinforce"
    sequences: int = 4
    replicas: int = 8
    lr: float = 2e-3
    entropy: float = 0.01
    max_grad: float = 0.5
    discount_jcts: tuple[float, float] = (2.0, 20.0)

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _positive("reinforce", sequences=self.sequences, lr=self.lr, max_grad=self.max_grad)
        _discount("reinforce", self.discount_jcts)
        if self.replicas < 2:
            raise ConfigError(f"reinforce: needs at least 2 replicas, got {self.replicas!r}")


@dataclass(frozen=True, slots=True)
class D3qnConfig:
    """Double (van Hasselt et al. 2016), duelling (Wang et al. 2016) deep Q-learning with prioritised n-step replay
    (Schaul et al. 2016). Rewards are discounted by the time that passes, as in a semi-Markov process."""

    kind: Literal["d3qn"] = "d3qn"
    episodes: int = 8
    """Episodes per iteration, each on a job sequence of its own."""
    lr: float = 5e-4
    updates: int = 60
    """Minibatches per iteration."""
    minibatch: int = 512
    replay: int = 200_000
    """Transitions kept."""
    n_step: int = 8
    exploration: tuple[float, float] = (0.5, 0.02)
    """Share of random choices, at the start and from the middle of the training on."""
    target_rate: float = 0.02
    """How far the target network follows at each update."""
    priority: float = 0.6
    importance: float = 0.4
    discount_jcts: tuple[float, float] = (0.5, 0.5)

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _positive("d3qn", episodes=self.episodes, lr=self.lr, updates=self.updates, minibatch=self.minibatch)
        _positive("d3qn", replay=self.replay, n_step=self.n_step)
        _fraction("d3qn", target_rate=self.target_rate, priority=self.priority, importance=self.importance)
        _discount("d3qn", self.discount_jcts)


@dataclass(frozen=True, slots=True)
class SacConfig:
    """Discrete soft actor-critic (Christodoulou 2019), masked: expectations run over legal choices only, the target
    entropy of a state is ``target_entropy`` x log(its legal choices)."""

    kind: Literal["sac"] = "sac"
    episodes: int = 8
    lr: float = 5e-4
    updates: int = 60
    minibatch: int = 512
    replay: int = 200_000
    n_step: int = 8
    target_rate: float = 0.02
    target_entropy: float = 0.05
    temperature: float = 0.05
    """Temperature to begin with."""
    discount_jcts: tuple[float, float] = (0.5, 0.5)

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _positive("sac", episodes=self.episodes, lr=self.lr, updates=self.updates, minibatch=self.minibatch)
        _positive("sac", replay=self.replay, n_step=self.n_step, temperature=self.temperature)
        _fraction("sac", target_rate=self.target_rate, target_entropy=self.target_entropy)
        _discount("sac", self.discount_jcts)


Algorithm: TypeAlias = Annotated[PpoConfig | ReinforceConfig | D3qnConfig | SacConfig, TaggedUnion("ppo")]


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """A training: what learns, on what reward, for how long, and how it is judged."""

    algorithm: Algorithm = field(default_factory=PpoConfig)
    net: NetConfig = field(default_factory=NetConfig)
    codec: CandidatesConfig = field(default_factory=CandidatesConfig)
    reward: Mapping[str, float] = field(default_factory=lambda: {"shaped_job_seconds": 1.0})
    """Terms and weights (``dagsim.envs.rewards``)."""
    iterations: int = 100
    reference: str = "best"
    """The heuristic that progress is told against; ``best`` is the best of all, tuned ones included, on validation
    seeds."""
    rivals: tuple[str, ...] = ("fifo", "sjf", "eft-wait")
    """Heuristics beside it in the report."""
    linear_iterations: int = 12
    """Iterations that a linear policy on the same features learns for, to stand in the report; 0 leaves it out."""
    warm_start: str | None = None
    """A heuristic whose choices are imitated first (behaviour cloning)."""
    warm_start_epochs: int = 3
    validate_every: int = 5
    """Iterations between validations."""
    validation_seeds: int = 50
    report_seeds: int = 200

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _positive("train", iterations=self.iterations, validate_every=self.validate_every)
        _positive("train", validation_seeds=self.validation_seeds, report_seeds=self.report_seeds)
        RewardConfig(self.reward)


def _discount(owner: str, jcts: tuple[float, float]) -> None:
    if not min(jcts) > 0:
        raise ConfigError(f"{owner}: discount_jcts must be positive, got {jcts!r}")
