"""Spark applications: DAGs of stages with many short tasks, and the durations of these tasks."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeAlias

from dagsim.errors import ModelError, require
from dagsim.model import Edge, Job, Task, TaskGraph
from dagsim.model.arithmetic import ordered_sum, whole_sum

LEVELS = (5, 10, 20, 40, 50, 60, 80, 100)
"""Numbers of executors at which a profile is sampled; a number between two of them uses either, by
chance."""

FRESH, NEW, SAME = 0, 1, 2
"""State of an executor before a task: idle or moving, at another stage of the job, or at the same
stage."""

Samples: TypeAlias = Mapping[int, Sequence[int]]
"""Observed durations in ms, by number of executors."""


def bracket(executors: int) -> tuple[int, int]:
    """Return the profiled numbers of executors (*levels*) just below and just above a number of
    executors. If the number is itself a level, or is outside the range of the levels, both are the
    same level.
    """
    if executors <= LEVELS[0]:
        return LEVELS[0], LEVELS[0]
    if executors >= LEVELS[-1]:
        return LEVELS[-1], LEVELS[-1]
    above = bisect_left(LEVELS, executors)
    return (LEVELS[above], LEVELS[above]) if LEVELS[above] == executors else (LEVELS[above - 1], LEVELS[above])


@dataclass(frozen=True, slots=True)
class Waves:
    """A stage's profile. ``at[level]`` contains three lists of durations in ms: on a fresh
    executor, in the first wave, and in later waves.

    Raises:
        ModelError: There are no tasks, or a level has no durations.
    """

    tasks: int
    rough_ms: float
    """Mean of all observations; policies see it until a task of the stage has been observed."""
    at: Mapping[int, tuple[list[float], list[float], list[float]]] = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        require(self.tasks >= 1, "a stage needs at least one task", self.tasks, ModelError)
        if missing := [level for level in LEVELS if not all(self.at.get(level, ((),)))]:
            raise ModelError(f"a stage has no durations for {missing[0]} executors")

    @classmethod
    def of(cls, first: Samples, rest: Samples, fresh: Samples, *, warmup_ms: float = 1000.0) -> Waves:
        """Build a profile from samples of the three kinds of waves, by the rules of decima-sim and
        spark-sched-sim.

        - Samples for fresh executors are removed from the first wave.
        - An empty first wave inherits the samples for the next smaller number of executors.
        - A fresh executor without samples needs ``warmup_ms`` more than the first wave.
        - Levels above the largest sampled number of executors use the samples for that number.
        """
        clean = _without(first, fresh)
        every = [ms for wave in (fresh, clean, rest) for samples in wave.values() for ms in samples]
        if not every:
            raise ModelError("a stage needs at least one observed duration")
        at: dict[int, tuple[list[float], list[float], list[float]]] = {}
        for level in LEVELS:
            key = level if level in clean else max(clean)
            new = clean[key] or fresh.get(key) or ()
            cold: Sequence[float] = fresh.get(key) or [ms + warmup_ms for ms in clean[key]]
            at[level] = (list(cold), list(new), list(rest.get(key) or new))
        start = next(iter(first))
        return cls(len(first[start]) + len(rest.get(start, ())), ordered_sum(every) / len(every), at)


def _without(first: Samples, fresh: Samples) -> dict[int, list[int]]:
    """Return the first wave without the samples for fresh executors. Each sample is removed as
    often as it occurs there. If a number of executors has no samples left, it gets those of the next
    smaller number.
    """
    clean: dict[int, list[int]] = {}
    for key, samples in first.items():
        left = Counter(fresh.get(key, ()))
        clean[key] = []
        for ms in samples:
            if left[ms]:
                left[ms] -= 1
            else:
                clean[key].append(ms)
    last: list[int] = []
    for key in sorted(clean):
        last = clean[key] = clean[key] or last
    return clean


@dataclass(frozen=True, slots=True)
class RecordedDurations:
    """Recorded durations. The k-th task of the stage to be launched lasts ``ms[k]`` on any
    executor."""

    ms: tuple[float, ...]
    rough_ms: float
    """Estimate that policies see until a task of the stage has been observed."""

    def __post_init__(self) -> None:
        if not self.ms or not all(0 <= duration < inf for duration in self.ms):
            raise ModelError("a stage needs at least one duration, each 0 ms or more")

    @property
    def tasks(self) -> int:
        """The number of tasks in the stage."""
        return len(self.ms)


Durations: TypeAlias = RecordedDurations | Waves
"""Durations of the tasks of a stage."""


@dataclass(frozen=True, slots=True)
class SparkJob:
    """A DAG of stages. ``durations[n]`` belongs to ``graph.tasks[n]``, whose instances are the
    tasks of the stage.

    Times are in milliseconds, as in the profiles, so that sums of whole numbers are exact.

    Raises:
        ModelError: The arrival is negative, or the durations do not match the graph.
    """

    id: str
    graph: TaskGraph
    durations: tuple[Durations, ...]
    arrival_ms: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.arrival_ms < inf:
            raise ModelError(f"job {self.id!r}: arrival_ms must be 0 or more, got {self.arrival_ms!r}")
        if [task.instances for task in self.graph.tasks] != [duration.tasks for duration in self.durations]:
            raise ModelError(f"job {self.id!r}: the durations do not match the numbers of tasks in the stages")

    @classmethod
    def of(
        cls,
        id: str,
        durations: Sequence[Durations],
        edges: Iterable[tuple[int, int]] = (),
        arrival_ms: float = 0.0,
    ) -> SparkJob:
        """Build a job from the durations of its stages and from edges (parent, child) by index."""
        tasks = tuple(
            Task(str(place), stage.rough_ms / 1000, instances=stage.tasks) for place, stage in enumerate(durations)
        )
        graph = TaskGraph(tasks, tuple(Edge(parent, child) for parent, child in edges))
        return cls(id, graph, tuple(durations), arrival_ms)

    @classmethod
    def of_job(cls, job: Job) -> SparkJob:
        """Convert a job from another workload. Its tasks become stages, and its instances become
        tasks with equal, recorded durations."""
        stages = [RecordedDurations((task.work * 1000,) * task.instances, task.work * 1000) for task in job.graph.tasks]
        return cls(job.id, job.graph, tuple(stages), job.arrival_s * 1000)

    def at(self, arrival_ms: float, id: str | None = None) -> SparkJob:
        """Return the same job with a different arrival time. Both jobs share the graph."""
        return replace(self, arrival_ms=arrival_ms, id=self.id if id is None else id)

    @property
    def tasks(self) -> int:
        """The number of tasks in all stages."""
        return whole_sum(duration.tasks for duration in self.durations)

    @property
    def work_ms(self) -> float:
        """The approximate duration of all tasks, in executor-milliseconds."""
        return ordered_sum(duration.tasks * duration.rough_ms for duration in self.durations)
