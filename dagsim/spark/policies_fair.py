"""Sharing by number of executors: fair and first come, first served."""

from __future__ import annotations

from dagsim.spark.state import ActiveJob, ActiveStage
from dagsim.spark.view import Commit, View

__all__ = ["FairShare", "best_stage", "fifo"]


def best_stage(view: View, job: ActiveJob) -> ActiveStage | None:
    """The first stage of ``job`` that can run at once, else the first one that can be chosen."""
    first = None
    for stage in view.schedulable(job):
        if not stage.blockers:
            return stage
        if first is None:
            first = stage
    return first


class FairShare:
    """Jobs in order of arrival get executors up to their share; a job that releases some keeps all it can use.

    ``dynamic=False`` makes the share the whole cluster, which is first come, first served.
    """

    def __init__(self, dynamic: bool = True) -> None:
        self.dynamic = dynamic

    def decide(self, view: View) -> Commit | None:
        source, jobs, executors = view.source, view.jobs, view.executors
        if source is not None:
            stage = best_stage(view, source)
            if stage is not None:
                return Commit(stage, view.committable)
        share = -(-executors // max(1, len(jobs))) if self.dynamic else executors
        for job in jobs:
            if job.supply < share and job is not source:
                stage = best_stage(view, job)
                if stage is not None:
                    return Commit(stage, min(view.committable, share - job.supply))
        return None


def fifo() -> FairShare:
    """First come, first served: everyone's share is the whole cluster."""
    return FairShare(dynamic=False)
