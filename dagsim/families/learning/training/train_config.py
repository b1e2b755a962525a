"""Settings of a training run, as plain values. Reading a configuration therefore does not require
torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from dagsim.errors import ConfigError
from dagsim.families.learning.algorithms import ALGORITHMS
from dagsim.families.learning.episode import RewardConfig
from dagsim.families.learning.nets import NETS
from dagsim.families.learning.nets.net_settings import NetSettings, ScorerConfig
from dagsim.families.learning.on_policy import PpoConfig
from dagsim.families.learning.settings import AlgorithmSettings, CheckedSettings
from dagsim.registry import Registry
from dagsim.sections import Registered
from dagsim.systems import all_systems
from dagsim.systems.default import DefaultSystem
from dagsim.systems.seam import CodecSettings

LOCKSTEP = 16
"""Default number of episodes that are simulated side by side."""


@dataclass(frozen=True, slots=True)
class WarmStart(CheckedSettings):
    """Behaviour cloning, in which a network learns to imitate a heuristic before reinforcement
    learning starts."""

    policy: str
    """The heuristic to imitate."""
    episodes: int = 60
    """Number of recorded episodes of the heuristic, from which the network learns."""
    epochs: int = 3
    """Number of passes over the recorded episodes."""
    minibatch: int = 512
    """Batch size: the number of choices per gradient step."""
    lr: float = 2e-3
    """Initial value of Adam's learning rate."""
    final_lr: float | None = None
    """Final value of Adam's learning rate. Default: the learning rate stays constant."""
    smoothing: float = 0.2
    """Probability that is spread evenly over all choices, so that the network can still learn to
    choose other actions than the heuristic would.
    """
    max_grad: float | None = None
    """Maximum norm of the gradient. Default: no limit."""

    section: ClassVar[str] = "warm_start"

    def __post_init__(self) -> None:
        self._positive("episodes", "epochs", "minibatch", "lr")
        self._fraction("smoothing")


def all_codecs() -> Registry[Any]:
    """Return the codecs of all systems. If a codec belongs to another system, ``check_training``
    rejects it later. If two systems have codecs of the same name, ``for_system`` takes that of its system."""
    entries = {entry.name: entry for system in all_systems().values() for entry in system.codecs.describe()}
    return Registry("codec", entries.values(), group="dagsim.codecs", listing="dagsim list codecs", method="build")


ALL_CODECS = all_codecs()


@dataclass(frozen=True, slots=True)
class TrainConfig(CheckedSettings):
    """The settings of a training run: the agent, its reward, the length of training, and the
    evaluation."""

    algorithm: Annotated[AlgorithmSettings, Registered(ALGORITHMS, "ppo")] = field(default_factory=PpoConfig)
    """How the agent learns (``dagsim list algorithms``)."""
    net: Annotated[NetSettings, Registered(NETS, "scorer")] = field(default_factory=ScorerConfig)
    """The neural network (``dagsim list nets``)."""
    codec: Annotated[CodecSettings, Registered(ALL_CODECS, DefaultSystem.codecs.names()[0])] = field(
        default_factory=lambda: DefaultSystem.codecs.create(DefaultSystem.codecs.names()[0])
    )
    """How the agent observes and decides (``dagsim list codecs``)."""
    reward: Mapping[str, float] = field(default_factory=lambda: {"shaped_job_seconds": 1.0})
    """Terms of the reward (``dagsim list rewards``), each with its weight."""
    iterations: int = 100
    """Number of training iterations."""
    minutes: float | None = None
    """Limit on the wall time in minutes, in addition to the number of iterations. If a training run
    is resumed, the time before the interruption also counts.
    """
    time_constant_s: tuple[float, float] | None = None
    """Time constants of the discount at the start and at the end of training. It replaces the
    algorithm's ``discount_jcts``.
    """
    first_jobs: int | None = None
    """Curriculum for Spark: the first episodes have this number of jobs, and over the first half of
    training, the number grows until all jobs are used.
    """
    ema_decay: float = 0.0
    """Decay of the moving average of the network's weights: the fraction of the average that each
    iteration keeps. Validation uses the averaged network or, with 0, the network itself.
    """
    reference: str = "best"
    """The heuristic against which progress is measured. ``best`` stands for the cheap
    non-preemptive heuristic that is best on the validation seeds, including tuned heuristics.
    """
    rivals: tuple[str, ...] = ("fifo", "sjf", "eft-wait")
    """Additional heuristics for the final comparison."""
    linear_iterations: int = 12
    """Number of iterations for training a linear policy on the same features, for the final
    comparison. With 0, no linear policy is trained.
    """
    warm_start: str | WarmStart | None = None
    """A heuristic to imitate before training (behaviour cloning), or the settings of the imitation."""
    lockstep: int = LOCKSTEP
    """Number of episodes that are simulated side by side, so that one forward pass of the network
    serves all of them. An iteration is divided into parts of this size for the workers, so the
    number of workers does not change the result.
    """
    validate_every: int = 5
    """Number of iterations between two validations."""
    validation_seeds: int = 50
    """Number of seeds on which checkpoints are compared."""
    report_seeds: int = 200
    """Number of seeds for the final test."""
    report_from: int | None = None
    """First test seed. Set it to repeat the final test of another training run, whose test seeds
    are recorded in ``report_seeds.yaml`` in its run folder. By default, the test uses the next
    seeds on which no training run in the same results folder has been tested.
    """

    tracker: str | None = None
    """Your own class (``module:attr``) that records the training run (see ``Tracker``)."""

    section: ClassVar[str] = "train"

    def __post_init__(self) -> None:
        self._positive("iterations", "lockstep", "validate_every")
        self._positive("validation_seeds", "report_seeds")
        if self.minutes is not None:
            self._positive("minutes")
        if self.first_jobs is not None:
            self._positive("first_jobs")
        if self.time_constant_s is not None:
            self._time_constants("time_constant_s")
        if not 0 <= self.ema_decay < 1:
            raise ConfigError(f"train: ema_decay must be at least 0 and below 1, got {self.ema_decay!r}")
        RewardConfig(self.reward)

    @property
    def cloned(self) -> WarmStart | None:
        """The settings for the imitation of a heuristic before training, or ``None`` if there is no
        imitation."""
        return WarmStart(self.warm_start) if isinstance(self.warm_start, str) else self.warm_start
