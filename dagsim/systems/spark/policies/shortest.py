"""The shortest job first, its critical path first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dagsim.errors import ModelError
from dagsim.systems.spark.state import SparkJobState
from dagsim.systems.spark.view import Commit, SparkView
from dagsim.systems.spark.work import critical_stage, total_work_ms, work_left_ms

__all__ = ["ShortestFirst", "sjf_cp", "srpt_cp"]


class ShortestFirst:
    """The job with the least work gets executors first, at most ``cap`` (``None``: all), on the stage at the head of
    its critical path. All executors of the source are given anew. When all jobs are at the cap, it is lifted.
    """

    def __init__(self, work: Callable[[SparkJobState], float], cap: int | None = None) -> None:
        if cap is not None and cap < 1:
            raise ModelError(f"cap must be at least 1, got {cap!r}")
        self.work = work
        self.cap = cap

    def decide(self, view: SparkView) -> Iterable[Commit]:
        source, free = view.source, view.committable
        cap = view.executors if self.cap is None else self.cap
        jobs = sorted(view.jobs, key=self.work)
        for job in jobs:
            room = cap - job.supply + (free if job is source else 0)
            if room > 0:
                stage = critical_stage(view.schedulable(job))
                if stage is not None:
                    return (Commit(stage, min(free, room)),)
        for job in jobs:
            stage = critical_stage(view.schedulable(job))
            if stage is not None:
                return (Commit(stage, free),)
        return ()


def sjf_cp(cap: int | None = None) -> ShortestFirst:
    """The job with the least work in all first."""
    return ShortestFirst(total_work_ms, cap)


def srpt_cp(cap: int | None = None) -> ShortestFirst:
    """The job with the least work left first."""
    return ShortestFirst(work_left_ms, cap)
