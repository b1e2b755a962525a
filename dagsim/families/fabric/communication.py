"""Gangs that communicate: what they send in each step, and the runtime of jobs that train language
models, whose step time follows from the placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from dagsim.errors import ModelError
from dagsim.families.fabric.collectives import Member, StepTraffic
from dagsim.families.fabric.llm import LlmTraining, compute_s, groups, is_measured
from dagsim.model import Task
from dagsim.model.arithmetic import bits
from dagsim.model.gpu import GpuType
from dagsim.registry import nearest
from dagsim.systems.cluster.models.runtime import Gpus, Runtime, _ByType
from dagsim.systems.cluster.network.base import Communication


class GangStep(NamedTuple):
    """A step of a gang on certain nodes: the arguments of ``GangCarrier.gang``."""

    traffic: StepTraffic
    step_s: float
    """Seconds of compute."""
    members: list[Member]
    gpu: GpuType | None
    """The GPUs that NVLink connects; None if each rank has less than one."""


def gang_step(
    communication: Communication,
    runtime: Runtime,
    task: Task,
    types: Gpus,
    gpu: GpuType | None,
    held: Iterable[tuple[int, int, int]],
) -> GangStep | None:
    """The step of a task on nodes with GPUs of one type, None if it sends nothing. ``types`` are those of the
    cluster, and ``held`` has each node with its number of instances and the bit mask of their GPUs (0: unknown).
    """
    if not task.gang and task.gpus < 2:
        return None
    traffic = communication.traffic(task, gpu)
    if traffic is None:
        return None
    ranks = int(task.gpus) or 1
    members = [Member(node, (count if task.gang else 1) * ranks, tuple(bits(mask))) for node, count, mask in held]
    step_s = traffic.step_s
    if not isinstance(runtime, Communication):
        seconds = runtime.seconds(task, types)
        if len(seconds) > 1 and min(seconds) > 0:
            step_s *= seconds[types.index(gpu)] / min(seconds)
    return GangStep(traffic, step_s, members, gpu if task.gpus >= 1 else None)


@dataclass(frozen=True, slots=True)
class ModelTraffic:
    """StepTraffic by the name of the model; ``default`` is that of all other gangs, None for none.

    A task's work is its time of compute alone: what a gang sends adds to it, wherever it runs.

    Raises:
        ModelError: Neither is given.
    """

    models: Mapping[str, StepTraffic] = field(default_factory=dict)
    default: StepTraffic | None = None
    kind: Literal["models"] = "models"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not self.models and self.default is None:
            raise ModelError("communication: give models (traffic by name) or default (traffic of every gang)")

    def traffic(self, task: Task, gpu: GpuType | None) -> StepTraffic | None:
        """See ``Communication``."""
        return self.default if task.model is None else self.models.get(task.model, self.default)


@dataclass(frozen=True, slots=True)
class Llm(_ByType):
    """Work in training steps. ``models`` names language models; ``task.model`` is one of them.

    A step computes for the seconds of ``dagsim.families.fabric.llm``, then waits for its collectives: their
    time follows from the placement and the gang's share of the links, so that this runtime needs a
    shared network. Only A100 and H100 GPUs are measured; tasks cannot run on others.

    Raises:
        ModelError: There are no models; on use, a task names another one.
    """

    models: Mapping[str, LlmTraining]
    kind: Literal["llm"] = "llm"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not self.models:
            raise ModelError("runtime llm: models must name at least one language model")
        object.__setattr__(self, "_known", {})

    def __str__(self) -> str:
        return f"steps of {', '.join(self.models)}; communication as the placement and the network have it"

    def _rate(self, task: Task, gpu: GpuType | None) -> float:
        training = self._training(task)
        return 0.0 if gpu is None or not is_measured(training, gpu) else 1.0 / compute_s(training, gpu)

    def traffic(self, task: Task, gpu: GpuType | None) -> StepTraffic | None:
        """The gathers of parameters, reductions and activations in a step."""
        training = self._training(task)
        if gpu is None or not is_measured(training, gpu):
            return None
        gpus = task.instances * max(int(task.gpus), 1)
        try:
            parts = groups(training, gpus)
        except ModelError as error:
            raise ModelError(f"task {task.name!r}: {error}") from None
        return StepTraffic(0.0, compute_s(training, gpu), calls=0, groups=parts) if parts else None

    def _training(self, task: Task) -> LlmTraining:
        training = self.models.get(task.model or "")
        if training is None:
            hint = nearest(task.model or "", self.models)
            raise ModelError(
                f"task {task.name!r}: runtime llm has no model {task.model!r}{hint}; models: {', '.join(self.models)}"
            )
        return training
