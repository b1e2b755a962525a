"""How much a job has left, from what a policy may see: tasks not launched and how long one lasts."""

from __future__ import annotations

from collections.abc import Iterable

from dagsim.spark.state import ActiveJob, ActiveStage

__all__ = ["critical_stage", "path_ms", "total_work_ms", "work_left_ms"]


def work_left_ms(job: ActiveJob) -> float:
    """Executor-milliseconds of the tasks that are not launched. O(stages that are not complete)."""
    return sum([stage.remaining * stage.seen_ms for stage in job.active])


def total_work_ms(job: ActiveJob) -> float:
    """Executor-milliseconds of the whole job, as it was estimated when it arrived."""
    return job.job.work_ms


def path_ms(job: ActiveJob) -> dict[ActiveStage, float]:
    """Per stage that is not complete the largest sum of work left on a path from it to the job's end, itself
    included. O(stages + edges)."""
    longest: dict[ActiveStage, float] = {}
    for index in reversed(job.job.graph.order):
        stage = job.stages[index]
        if stage.remaining or stage.executing:
            behind = 0.0
            for child in stage.children:
                if longest[child] > behind:
                    behind = longest[child]
            longest[stage] = behind + stage.remaining * stage.seen_ms
    return longest


def critical_stage(job: ActiveJob, choice: Iterable[ActiveStage]) -> ActiveStage | None:
    """Among ``choice``, stages of ``job``, the first one on the longest path; ``None`` if there is no choice."""
    stages = list(choice)
    if len(stages) < 2:
        return stages[0] if stages else None
    longest = path_ms(job)
    return max(stages, key=longest.__getitem__)
