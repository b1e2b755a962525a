"""The work that a job has left, from what a policy may see: tasks not launched, and the seconds of one."""

from __future__ import annotations

from collections.abc import Iterable

from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.spark.state import SparkJobState, StageState

__all__ = ["critical_stage", "first_stage", "path_ms", "total_work_ms", "work_left_ms"]


def work_left_ms(job: SparkJobState) -> float:
    """Executor-milliseconds of the tasks that are not launched. O(stages that are not complete)."""
    return ordered_sum([stage.remaining * stage.seen_ms for stage in job.active])


def total_work_ms(job: SparkJobState) -> float:
    """Executor-milliseconds of the whole job, as it was estimated when it arrived."""
    return job.job.work_ms


def first_stage(choice: Iterable[StageState]) -> StageState | None:
    """The first of ``choice`` that can run at once, else the first of all; ``None`` if there is none."""
    first = None
    for stage in choice:
        if not stage.blockers:
            return stage
        if first is None:
            first = stage
    return first


def critical_stage(choice: Iterable[StageState]) -> StageState | None:
    """The first stage on the path with the most work left; ``None`` without a choice. It is among stages of one job
    that can run at once, or among all if none can."""
    stages = list(choice)
    ready = [stage for stage in stages if not stage.blockers] or stages
    if len(ready) < 2:
        return ready[0] if ready else None
    return max(ready, key=path_ms(ready[0].job).__getitem__)


def path_ms(job: SparkJobState) -> dict[StageState, float]:
    """Per incomplete stage the largest work left on a path to the job's end. The stage itself is included. O(stages +
    edges)."""
    longest: dict[StageState, float] = {}
    for index in reversed(job.job.graph.order):
        stage = job.stages[index]
        if stage.remaining or stage.executing:
            behind = 0.0
            for child in stage.children:
                if longest[child] > behind:
                    behind = longest[child]
            longest[stage] = behind + stage.remaining * stage.seen_ms
    return longest
