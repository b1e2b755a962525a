"""The result of an episode of the Spark system."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dagsim.systems.spark.executors import ExecutorType
from dagsim.systems.spark.pools import Launch
from dagsim.systems.spark.state import SparkJobState

__all__ = ["SparkEpisode"]


@dataclass(slots=True)
class SparkEpisode:
    """Jobs in order of arrival, with when they were completed; ``launches`` only where they were recorded."""

    executors: tuple[ExecutorType, ...]
    jobs: list[SparkJobState] = field(default_factory=list)
    decisions: int = 0
    ended_ms: float = 0.0
    seed: int = 0
    launches: list[Launch] | None = None
    population: list[tuple[float, int]] = field(default_factory=list)
    """How many jobs are in the system from which time (ms) on; a pair per arrival and completion."""

    @property
    def jct_s(self) -> np.ndarray:
        """Completion times of the completed jobs, in order of arrival. (completed jobs,) float64."""
        done = [(job.completed_ms - job.arrival_ms) / 1000 for job in self.jobs if job.completed_ms is not None]
        return np.array(done, float)

    @property
    def mean_jct_s(self) -> float:
        """Mean completion time of the completed jobs."""
        return float(self.jct_s.mean())

    @property
    def makespan_s(self) -> float:
        """The time when the last job was completed."""
        return max((job.completed_ms or 0.0) for job in self.jobs) / 1000

    @property
    def tasks(self) -> int:
        """Tasks launched."""
        return sum(stage.tasks - stage.remaining for job in self.jobs for stage in job.stages)
