"""What gangs send in each step, by the model that they train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dagsim.errors import ModelError
from dagsim.model import Task
from dagsim.model.gpu import GpuType
from dagsim.network.collectives import StepTraffic

__all__ = ["ModelTraffic"]


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
