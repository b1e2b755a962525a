"""Observations of the GPU cluster, and the settings of the codecs that produce them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol, get_args

import numpy as np

from dagsim.errors import ConfigError, require
from dagsim.model import Decision
from dagsim.systems.cluster.api import ClusterView

Floats32 = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


class Observation(NamedTuple):
    """The current choices, and the state in which they are made."""

    tokens: Floats32
    """(n, F) float32: one row per choice. If waiting is allowed, it is the last row."""
    context: Floats32
    """(C,) float32: the state of queue and cluster."""
    gpus: Floats32
    """(g, D) float32: one row per GPU type."""

    @property
    def is_forced(self) -> bool:
        """True if there is only one choice."""
        return len(self.tokens) <= 1


class StackedObservations(NamedTuple):
    """The observations of N episodes with the same number of rows, for vector environments. The last
    row represents waiting.
    """

    tokens: Floats32
    """(N, rows, F or more) float32."""
    context: Floats32
    """(N, C) float32."""
    gpus: Floats32
    """(N, g, D) float32."""
    mask: np.ndarray
    """(N, rows) int8: 1 for choices and, if the episode is over, for waiting."""


class StepOutcomes(NamedTuple):
    """The outcomes of one action in each of N episodes."""

    rewards: np.ndarray
    """(N,) float64."""
    over: np.ndarray
    """(N,) bool."""
    illegal: np.ndarray
    """(N,) int64: number of illegal actions so far."""


class ClusterCodec(Protocol):
    """Translates views into arrays, and choices into decisions, for a single simulation. It may
    keep state about this simulation."""

    token_features: tuple[str, ...]
    """Names of the F columns of ``Observation.tokens``."""
    context_features: tuple[str, ...]
    """Names of the C entries of ``Observation.context``."""
    gpu_features: tuple[str, ...]
    """Names of the D columns of ``Observation.gpus``."""

    def encode(self, view: ClusterView) -> Observation | None:
        """Encode the choices. Return ``None`` if waiting is the only choice."""

    def decode(self, view: ClusterView, choice: int) -> Iterable[Decision]:
        """Return the decisions that row ``choice`` of the last observation represents. An empty
        list means that the agent waits until something changes."""

    def choice_of(self, decisions: Iterable[Decision]) -> int | None:
        """Return the row of the last observation that stands for a heuristic's decisions, or
        ``None`` if there is none."""


LookAhead = Literal["off", "per_gpu", "sorted", "cdf"]
Select = Literal["heads", "oldest", "mixed"]
ExtraAction = Literal["preempt", "migrate", "admit"]


@dataclass(frozen=True, slots=True)
class CandidatesConfig:
    """Settings that determine which tasks the agent can choose, and which features describe them.

    ``select`` is one of:

    - ``heads``: the first tasks in each group of similar tasks;
    - ``oldest``: the ``window`` tasks that have been ready for the longest time;
    - ``mixed``: half of the window is for the oldest tasks, so that every task is offered at some
      point, and half is for the shortest tasks.

    ``look_ahead`` selects how the expected ends of runs are represented; the columns are always the
    same:

    - ``off``: they are not shown (the columns are 0);
    - ``sorted``: the time until 1, 2, 4 and 8 GPUs of the type will be idle;
    - ``per_gpu``: the expected ends of the four runs that started first;
    - ``cdf``: the fraction of the type's GPUs that will be idle within 1, 5, 15 and 60 minutes.
    """

    look_ahead: LookAhead = "sorted"
    """Which features tell the agent when running tasks are expected to end: none (``off``), the
    times until 1, 2, 4 and 8 GPUs are idle (``sorted``), the expected ends of the four runs that
    started first (``per_gpu``), or the fractions of GPUs that will be idle within 1 to 60 minutes
    (``cdf``).
    """
    select: Select = "heads"
    """Which tasks the agent may choose: the first tasks in each group of similar tasks (``heads``),
    the oldest ``window`` tasks (``oldest``), or half of the oldest and half of the shortest
    (``mixed``)."""
    window: int = 32
    """Number of tasks that ``oldest`` and ``mixed`` consider."""
    placement: str = "best-fit"
    """The placement of tasks within a type: one of ``dagsim list placements``."""
    kind: Literal["candidates"] = "candidates"

    version: ClassVar[int] = 1
    bounded: ClassVar[bool] = True
    """True if agents record the bounds of the codec's features and clip to them."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.look_ahead not in ("off", "per_gpu", "sorted", "cdf"):
            raise ConfigError(f"codec: look_ahead must be off, per_gpu, sorted or cdf, got {self.look_ahead!r}")
        if self.select not in ("heads", "oldest", "mixed"):
            raise ConfigError(f"codec: select must be heads, oldest or mixed, got {self.select!r}")
        require(self.window >= 2, "codec: window must be 2 or more", self.window)

    @property
    def features(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the columns in each part of an observation."""
        from dagsim.families.learning.codecs.candidates import Candidates

        return {
            "tokens": Candidates.token_features,
            "context": Candidates.context_features,
            "gpus": Candidates.gpu_features,
        }

    def build(self) -> ClusterCodec:
        """Build a codec for one simulation."""
        from dagsim.families.learning.codecs.candidates import Candidates

        return Candidates(self)


@dataclass(frozen=True, slots=True)
class RelativeConfig:
    """Settings for choices with unit-free features. They suit agents that are used on clusters and
    workloads other than those on which they were trained. Decisions stay the same if all times are
    multiplied by a constant."""

    reference: str = "eft-wait[theta=0.7,order=work]"
    """A heuristic that makes one decision at a time (``dagsim list policies``). The heuristic's
    choice is always among the agent's choices, and a feature marks it.
    """
    placement: str = "best-fit"
    """The placement of tasks within a type: one of ``dagsim list placements``."""
    actions: tuple[ExtraAction, ...] = ()
    """Actions that the agent has in addition to starting a task and waiting: ``preempt``,
    ``migrate`` and, in scenarios with admission, ``admit``. If you add actions, include their cost
    in the reward (``lost_gpu_seconds`` and ``rejections``).
    """
    beliefs: bool = False
    """Where durations are hidden, estimate run times in two ways: from how long each task has
    already run, and from ended tasks with the same tenant, model and width. Both estimates become
    features (``codecs.belief``).
    """
    kind: Literal["relative"] = "relative"

    version: ClassVar[int] = 1
    bounded: ClassVar[bool] = False
    """True if agents record bounds; not needed here, because each feature has fixed bounds."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        for action in self.actions:
            if action not in get_args(ExtraAction):
                raise ConfigError(f"codec: actions may only contain {', '.join(get_args(ExtraAction))}, got {action!r}")

    @property
    def features(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the columns in each part of an observation."""
        from dagsim.families.learning.codecs.acting import ACTION_FEATURES
        from dagsim.families.learning.codecs.relative import BELIEF_FEATURES, Relative

        further = (BELIEF_FEATURES if self.beliefs else ()) + (ACTION_FEATURES if self.actions else ())
        return {
            "tokens": Relative.token_features + further,
            "context": Relative.context_features,
            "gpus": Relative.gpu_features,
        }

    def build(self) -> ClusterCodec:
        """Build a codec for one simulation."""
        from dagsim.families.learning.codecs.acting import Acting
        from dagsim.families.learning.codecs.relative import Relative

        return Acting(self) if self.actions else Relative(self)
