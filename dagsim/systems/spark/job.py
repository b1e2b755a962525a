"""Spark applications: DAGs of stages, each of many short tasks, and how long those tasks last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeAlias

from dagsim.errors import ModelError
from dagsim.model import Edge, Job, Task, TaskGraph
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.spark.waves import Waves

__all__ = ["Durations", "RecordedDurations", "SparkJob"]


@dataclass(frozen=True, slots=True)
class RecordedDurations:
    """The k-th task of the stage to be launched lasts ``ms[k]``, whoever runs it."""

    ms: tuple[float, ...]
    rough_ms: float
    """The estimate that policies see until a task of the stage has been seen."""

    def __post_init__(self) -> None:
        if not self.ms or not all(0 <= each < inf for each in self.ms):
            raise ModelError("a stage needs at least one duration, each 0 ms or more")

    @property
    def tasks(self) -> int:
        """The number of tasks of the stage."""
        return len(self.ms)


Durations: TypeAlias = RecordedDurations | Waves
"""How long the tasks of a stage last."""


@dataclass(frozen=True, slots=True)
class SparkJob:
    """A DAG whose vertices are stages; ``durations[n]`` belongs to ``graph.tasks[n]``, whose instances are its tasks.

    Times are milliseconds, as in the profiles, so that sums of whole numbers stay exact.

    Raises:
        ModelError: A negative arrival, or durations that do not fit the graph.
    """

    id: str
    graph: TaskGraph
    durations: tuple[Durations, ...]
    arrival_ms: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.arrival_ms < inf:
            raise ModelError(f"job {self.id!r}: arrival_ms must be 0 or more, got {self.arrival_ms!r}")
        if [task.instances for task in self.graph.tasks] != [each.tasks for each in self.durations]:
            raise ModelError(f"job {self.id!r}: its durations do not fit the tasks of its stages")

    @classmethod
    def of(
        cls,
        id: str,
        durations: Sequence[Durations],
        edges: Iterable[tuple[int, int]] = (),
        arrival_ms: float = 0.0,
    ) -> SparkJob:
        """A job from the durations of its stages and edges (parent, child) between their places."""
        tasks = tuple(
            Task(str(place), each.rough_ms / 1000, instances=each.tasks) for place, each in enumerate(durations)
        )
        graph = TaskGraph(tasks, tuple(Edge(parent, child) for parent, child in edges))
        return cls(id, graph, tuple(durations), arrival_ms)

    @classmethod
    def of_job(cls, job: Job) -> SparkJob:
        """A job of any other workload: tasks are stages and instances are tasks. They all last as recorded."""
        stages = [RecordedDurations((task.work * 1000,) * task.instances, task.work * 1000) for task in job.graph.tasks]
        return cls(job.id, job.graph, tuple(stages), job.arrival_s * 1000)

    def at(self, arrival_ms: float, id: str | None = None) -> SparkJob:
        """The same job, arriving at another time; shares its graph."""
        return replace(self, arrival_ms=arrival_ms, id=self.id if id is None else id)

    @property
    def tasks(self) -> int:
        """Tasks of all stages."""
        return sum(each.tasks for each in self.durations)

    @property
    def work_ms(self) -> float:
        """Roughly the executor-milliseconds of all tasks."""
        return ordered_sum(each.tasks * each.rough_ms for each in self.durations)
