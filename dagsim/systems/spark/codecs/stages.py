"""The codec of Decima: stages that can get executors, and how many (or up to which limit)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from dagsim.errors import ConfigError
from dagsim.systems.spark.codecs.features import CONTEXT, JOB, OPTION, STAGE, StageObservation, observe
from dagsim.systems.spark.graph import StageGraph
from dagsim.systems.spark.view import Action, Commit, SparkView

__all__ = ["Stages", "StagesConfig"]


@dataclass(frozen=True, slots=True)
class StagesConfig:
    """A stage and a number. ``action`` says what the number is: ``executors`` to add, or a ``limit`` on those that the
    stage's job has, up to which they are added (parallelism limit, Mao et al. 2019, section 5.2)."""

    action: Action = "executors"
    kind: Literal["stages"] = "stages"

    version: ClassVar[int] = 1

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.action not in get_args(Action):
            raise ConfigError(f"codec: action must be one of {', '.join(get_args(Action))}, got {self.action!r}")

    @property
    def features(self) -> dict[str, tuple[str, ...]]:
        """The names of the columns of each part of an observation."""
        return {"stages": STAGE, "jobs": JOB, "context": CONTEXT, "options": OPTION}

    def build(self) -> Stages:
        """A codec for one simulation."""
        return Stages(self.action)


class Stages:
    """Choices are pairs: the place of a stage among those that can be chosen, and a number from 1 to its most."""

    def __init__(self, action: Action = "executors") -> None:
        self.action: Action = action
        self._graph: StageGraph | None = None
        self._observation: StageObservation | None = None

    def encode(self, view: SparkView) -> StageObservation:
        """The graph of all stages that are not complete. O(stages)."""
        self._graph = view.graph()
        self._observation = observe(self._graph, self.action)
        return self._observation

    def decode(self, view: SparkView, choice: tuple[int, int]) -> tuple[Commit, ...]:
        """Commit that many executors to the stage."""
        assert self._graph is not None
        assert self._observation is not None
        stage, number = choice
        return (Commit(self._graph.stages[self._observation.choices[stage]], int(number)),)

    def choice_of(self, decisions: Iterable[Commit]) -> tuple[int, int] | None:
        """The pair that stands for the first decision, cut to what its stage wants; ``None`` if there is none.
        O(stages)."""
        decision = next(iter(decisions), None)
        if decision is None:
            return None
        assert self._graph is not None
        assert self._observation is not None
        place = self._graph.stages.index(decision.stage)
        stage = int(np.searchsorted(self._observation.choices, place))
        return stage, int(min(decision.executors, self._observation.most[stage]))
