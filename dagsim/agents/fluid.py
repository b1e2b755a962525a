"""The cost of the jobs that are left, if executors were a fluid: the best guess in hindsight at the value of a state.

A baseline may know what no policy does: who is still to come, and how long tasks last on average. With
work that can be divided and moved at will, serving the job with the least work left first is the best there is
(Schrage 1968), and its cost takes microseconds to compute. Waste shows in it at once, as work that is
left, long before it shows as jobs that are late.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import exp
from statistics import fmean
from typing import Any

from dagsim.errors import ConfigError
from dagsim.systems.seam import Kernel
from dagsim.systems.spark import RecordedDurations, SparkJobState, SparkKernel, StageState
from dagsim.systems.spark.job import SAME, bracket

__all__ = ["FluidWitness", "TaskSeconds", "fluid_cost"]

_HORIZON = 4.0
"""Time constants after which nothing counts."""


class TaskSeconds(dict[StageState, float]):
    """Mean seconds of a stage's tasks that are not their executor's first. They are those on a third of the cluster (5
    executors at least), worked out when first asked for."""

    def __init__(self, executors: int) -> None:
        super().__init__()
        self._level = bracket(executors // 3)[0]

    def __missing__(self, stage: StageState) -> float:
        durations = stage.job.job.durations[stage.index]
        samples = durations.ms if isinstance(durations, RecordedDurations) else durations.at[self._level][SAME]
        self[stage] = fmean(samples) / 1000
        return self[stage]

    def left(self, job: SparkJobState) -> float:
        """Executor-seconds left of a job: of the tasks to be launched, and half of each running one's."""
        return sum([(stage.remaining + 0.5 * stage.executing) * self[stage] for stage in job.active])

    def whole(self, job: SparkJobState) -> float:
        """Executor-seconds of all its tasks."""
        return sum([stage.tasks * self[stage] for stage in job.stages])


class FluidWitness:
    """Executor-seconds left of the jobs in the system, noted as the episode goes. In hindsight also those of all jobs
    that came.

    Raises:
        ConfigError: The kernel is of another system than Spark.
    """

    def __init__(self, kernel: Kernel[Any, Any]) -> None:
        if not isinstance(kernel, SparkKernel):
            raise ConfigError("advantage 'fluid' is for the system 'spark'; allowed elsewhere: replicas, critic")
        self._kernel = kernel
        self._task_s = TaskSeconds(len(kernel.cluster.executors))

    def note(self) -> list[float]:
        """(jobs,) executor-seconds left of each job in the system."""
        return [self._task_s.left(job) for job in self._kernel.cluster.jobs]

    def hindsight(self) -> list[tuple[float, float]]:
        """The arrival (s) and the executor-seconds of each job."""
        jobs = self._kernel.episode.jobs
        return [(job.arrival_ms / 1000, self._task_s.whole(job)) for job in jobs]


def fluid_cost(
    now_s: float,
    work_s: Iterable[float],
    arrivals: Sequence[tuple[float, float]],
    executors: int,
    time_constant_s: float,
) -> float:
    """Job-seconds from ``now_s`` on, discounted, with the shortest of ``work_s`` first; ``arrivals`` (when, work) are
    those of the whole episode, in order. O(jobs log jobs)."""
    left = list(work_s)
    heapify(left)
    coming = arrivals[bisect_right(arrivals, (now_s + 1e-9, 0.0)) :]
    end_s = now_s + _HORIZON * time_constant_s
    at_s, worth, cost = now_s, 1.0, 0.0
    for arrival_s, work in (*coming, (end_s, 0.0)):
        arrival_s = min(arrival_s, end_s)
        while left and (done_s := at_s + left[0] / executors) <= arrival_s:
            later = exp((now_s - done_s) / time_constant_s)
            cost += len(left) * (worth - later)
            at_s, worth = done_s, later
            heappop(left)
        later = exp((now_s - arrival_s) / time_constant_s)
        cost += len(left) * (worth - later)
        if arrival_s >= end_s:
            break
        if left:
            heapreplace(left, left[0] - (arrival_s - at_s) * executors)
        at_s, worth = arrival_s, later
        heappush(left, work)
    return cost * time_constant_s
