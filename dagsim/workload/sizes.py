"""Sizes of tasks: work, instances, GPUs, CPUs, memory, and the model that is trained.

``draw(rng, tasks)`` returns columns with one entry per task. ``rng`` maps names to random
generators, one per quantity, so that a change in one quantity leaves the others unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dagsim.errors import WorkloadError
from dagsim.workload.distributions import (
    AnyDistribution,
    Choice,
    Constant,
    LogNormal,
    LogUniform,
    Mixture,
    Part,
    Uniform,
)
from dagsim.workload.tagged_union import TaggedUnion

Draws: TypeAlias = Callable[[str], np.random.Generator]

MEASURED_MODELS = ("bert", "cifar10", "deepspeech2", "imagenet", "yolov3")
"""Models with measured throughput on A100, V100 and T4 (``dagsim.systems.cluster.models.throughputs``)."""

GANGS = Choice((1, 2, 4, 8), (0.65, 0.17, 0.14, 0.04))
"""Number of instances of a task: most tasks have one, few have eight."""

_SECONDS = LogNormal(600.0, 1.3, 20.0, 20000.0)
_SHORT_AND_LONG = Mixture((Part(0.85, Uniform(100.0, 800.0)), Part(0.15, LogUniform(800.0, 10000.0))))
_ONE, _NONE = Constant(1.0), Constant(0.0)

_FORBID = {"extra": "forbid"}


class SizeColumns(NamedTuple):
    """Sizes that were drawn, with one entry per task, and the values that all tasks share."""

    work: np.ndarray  # shape (n,), float64
    instances: np.ndarray  # shape (n,), int64
    gpus: np.ndarray  # shape (n,), float64
    cpus: np.ndarray  # shape (n,), float64
    memory_gb: np.ndarray  # shape (n,), float64
    gang: np.ndarray  # shape (n,), bool
    model: np.ndarray  # shape (n,), int64: index in models
    estimate: np.ndarray | None = None  # shape (n,), float64
    priority: np.ndarray | None = None  # shape (n,), float64; None unless sizes determine the priority
    models: tuple[str | None, ...] = (None,)
    gpu_types: tuple[str, ...] | None = None

    @classmethod
    def joined(cls, parts: Sequence[SizeColumns]) -> SizeColumns:
        """Concatenate tasks that were drawn by the same rule."""
        if len(parts) == 1:
            return parts[0]
        columns: Any = {name: [getattr(part, name) for part in parts] for name in _PER_TASK}
        joined: dict[str, Any] = {
            name: None if listed[0] is None else np.concatenate(listed) for name, listed in columns.items()
        }
        return parts[0]._replace(**joined)


_PER_TASK = ("work", "instances", "gpus", "cpus", "memory_gb", "gang", "model", "estimate", "priority")
"""The fields of ``SizeColumns`` with one entry per task."""


@dataclass(frozen=True, slots=True)
class Independent:
    """Sizes of tasks in which each quantity is drawn from its own distribution, independently of
    the others.

    Raises:
        WorkloadError: A size that is drawn is negative, or a task has no instances.
    """

    work: AnyDistribution = _SECONDS
    """Work of a task, in the unit of the runtime model: seconds on its reference GPU type, or TFLOP."""
    instances: AnyDistribution = GANGS
    """Number of instances of each task."""
    gang: bool = True
    """True if the instances of a task start together."""
    gpus: AnyDistribution = _ONE
    """GPUs per instance."""
    cpus: AnyDistribution = _NONE
    """CPU cores per instance."""
    memory_gb: AnyDistribution = _NONE
    """Memory per instance in GB."""
    models: tuple[str, ...] = MEASURED_MODELS
    """Names of the models that tasks train. All names are equally likely."""
    gpu_types: tuple[str, ...] | None = None
    """GPU types that each task may use."""
    requested_factor: AnyDistribution | None = None
    """The users' estimate of the work (a requested time), as a multiple of the work."""
    kind: Literal["independent"] = "independent"

    __pydantic_config__ = _FORBID

    def draw(self, rng: Draws, tasks: int) -> SizeColumns:
        work = _sizes("work", self.work, rng, tasks)
        instances = counts(_sizes("instances", self.instances, rng, tasks))
        return SizeColumns(
            work=work,
            instances=instances,
            gpus=_sizes("gpus", self.gpus, rng, tasks),
            cpus=_sizes("cpus", self.cpus, rng, tasks),
            memory_gb=_sizes("memory_gb", self.memory_gb, rng, tasks),
            gang=self.gang & (instances > 1),
            model=_models(self.models, rng, tasks),
            estimate=None
            if self.requested_factor is None
            else work * _sizes("requested_factor", self.requested_factor, rng, tasks),
            priority=None,
            models=self.models or (None,),
            gpu_types=self.gpu_types,
        )


@dataclass(frozen=True, slots=True)
class Correlated:
    """Longer tasks use more GPUs and have lower priorities, as in the project
    MohammedYaseen97/gpu-optimizer.

    With x = work / ``longest``, capped at 1, both of the following are rounded:

    - GPUs: the weighted mean of 1 + floor(x ** 0.6 * (most_gpus - 1)), with weight ``gpus_follow``,
      and a random whole number from 1 to ``most_gpus``
    - priority: the weighted mean of 1 + floor((1 - x) ** 0.8 * (top_priority - 1)), with weight
      ``priority_follows``, and a random whole number from 1 to ``top_priority``

    The GPUs form a gang of instances with one GPU each. A job has the priority of its first task.

    Raises:
        WorkloadError: A weight is outside 0..1, a bound is below 1, or work that is drawn is
            negative.
    """

    work: AnyDistribution = _SHORT_AND_LONG
    """Work of a task, in the unit of the runtime model."""
    longest: float = 10000.0
    """Work from which a task counts as one of the longest, in the same unit."""
    most_gpus: int = 8
    """Largest number of GPUs of a task."""
    gpus_follow: float = 0.7
    """How closely the number of GPUs follows the work, from 0 (random) to 1 (fully determined)."""
    top_priority: int = 10
    """Highest priority of a job."""
    priority_follows: float = 0.6
    """How closely the priority follows the work, from 0 (random) to 1 (fully determined)."""
    models: tuple[str, ...] = MEASURED_MODELS
    """Names of the models that tasks train. All names are equally likely."""
    kind: Literal["correlated"] = "correlated"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        for name in ("gpus_follow", "priority_follows"):
            if not 0 <= getattr(self, name) <= 1:
                raise WorkloadError(
                    f"sizes (kind: correlated): {name} must be between 0 and 1, got {getattr(self, name)!r}"
                )
        for name in ("longest", "most_gpus", "top_priority"):
            if not getattr(self, name) >= 1:
                raise WorkloadError(f"sizes (kind: correlated): {name} must be at least 1, got {getattr(self, name)!r}")

    def draw(self, rng: Draws, tasks: int) -> SizeColumns:
        work = _sizes("work", self.work, rng, tasks)
        part = np.minimum(work / self.longest, 1.0)
        wide = 1 + np.floor(part**0.6 * (self.most_gpus - 1))
        urgent = 1 + np.floor((1 - part) ** 0.8 * (self.top_priority - 1))
        any_gpus = rng("sizes/gpus").integers(1, self.most_gpus, tasks, endpoint=True)
        any_priority = rng("sizes/priority").integers(1, self.top_priority, tasks, endpoint=True)
        gpus = np.rint(self.gpus_follow * wide + (1 - self.gpus_follow) * any_gpus)
        priority = np.rint(self.priority_follows * urgent + (1 - self.priority_follows) * any_priority)
        instances, zeros = counts(gpus), np.zeros(tasks)
        return SizeColumns(
            work=work,
            instances=instances,
            gpus=np.ones(tasks),
            cpus=zeros,
            memory_gb=zeros,
            gang=instances > 1,
            model=_models(self.models, rng, tasks),
            priority=priority,
            models=self.models or (None,),
        )


AnySizes: TypeAlias = Annotated[Independent | Correlated, TaggedUnion("independent")]
"""Any rule for sizes; in YAML, ``kind`` selects it."""


def _sizes(name: str, distribution: AnyDistribution, rng: Draws, count: int) -> np.ndarray:
    # Do not create a generator for a constant: this takes longer than drawing values for 100 jobs.
    if isinstance(distribution, Constant):
        drawn = np.full(count, float(distribution.value))
    else:
        drawn = distribution.draw(rng(f"sizes/{name}"), count)
    if count and not drawn.min() >= 0:
        raise WorkloadError(f"sizes: {name} must be 0 or more, but {distribution!r} gave {float(drawn.min())!r}")
    return drawn


def counts(drawn: np.ndarray) -> np.ndarray:
    """Round the values ``drawn`` to whole numbers of at least 1. Shape (n,), int64."""
    return np.asarray(np.maximum(np.rint(drawn), 1).astype(np.int64))


def _models(models: tuple[str, ...], rng: Draws, count: int) -> np.ndarray:
    if not models:
        return np.zeros(count, np.int64)
    return rng("sizes/models").integers(len(models), size=count)
