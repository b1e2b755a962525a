"""Gangs that communicate: the traffic that they send in each step, and a runtime model for the
training of language models. In that model, the step time depends on the placement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dagsim.errors import ModelError
from dagsim.families.fabric.collectives import StepTraffic
from dagsim.families.fabric.llm import LlmTraining, compute_s, groups, is_measured
from dagsim.model import Task
from dagsim.model.gpu import GpuType
from dagsim.spelling import nearest
from dagsim.systems.cluster.models.runtime import _ByType


@dataclass(frozen=True, slots=True)
class ModelTraffic:
    """The traffic that gangs send in each step, by the name of the model.

    A task's work is only its compute time. The time that its gang needs for communication is added,
    and depends on where the task runs.

    Raises:
        ModelError: Neither argument is given.
    """

    models: Mapping[str, StepTraffic] = field(default_factory=dict)
    """Traffic per step of a gang, by the name of the task's model."""
    default: StepTraffic | None = None
    """Traffic of gangs whose model is not listed. None means that they send nothing."""
    kind: Literal["models"] = "models"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not self.models and self.default is None:
            raise ModelError("communication: give models (traffic by model name) or default (traffic for every gang)")

    def traffic(self, task: Task, gpu: GpuType | None) -> StepTraffic | None:
        """Return the traffic of a step (see ``Communication``)."""
        return self.default if task.model is None else self.models.get(task.model, self.default)


@dataclass(frozen=True, slots=True)
class Llm(_ByType):
    """A runtime model for training language models, in which work is a number of training steps.

    A step first computes, for as long as ``dagsim.families.fabric.llm`` predicts, and then waits
    for its collectives. Their time depends on the placement and on the gang's share of the links,
    so this runtime model needs a shared network. Only A100 and H100 GPUs have been measured, so
    tasks cannot run on other types.

    Raises:
        ModelError: There are no models; or, during a simulation, a task names an unknown model.
    """

    models: Mapping[str, LlmTraining]
    """The language models, by name. A task refers to one of them as its ``model``."""
    kind: Literal["llm"] = "llm"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not self.models:
            raise ModelError("runtime llm: models must name at least one language model")
        object.__setattr__(self, "_known", {})

    def __str__(self) -> str:
        return f"steps of {', '.join(self.models)}; communication time depends on the placement and the network"

    def _rate(self, task: Task, gpu: GpuType | None) -> float:
        training = self._training(task)
        return 0.0 if gpu is None or not is_measured(training, gpu) else 1.0 / compute_s(training, gpu)

    def traffic(self, task: Task, gpu: GpuType | None) -> StepTraffic | None:
        """Return the parameter gathers, the gradient reductions and the activations in a step."""
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
