"""Sharing by number of executors: fair and first come, first served, as spark-sched-sim and decima-sim have them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from dagsim.errors import ModelError
from dagsim.systems.spark.state import SparkJobState
from dagsim.systems.spark.view import Commit, SparkView
from dagsim.systems.spark.work import first_stage

__all__ = ["FairShare", "fifo"]

Counted = Literal["active", "wanting"]


class FairShare:
    """Jobs in order of arrival get executors up to an equal share; a job that releases some keeps all it can use.

    The executors are shared among all ``active`` jobs (spark-sched-sim) or among those ``wanting`` more, with a stage
    that could use an executor (decima-sim). ``dynamic=False`` makes every share the whole cluster: first come, first
    served.
    """

    def __init__(self, counts: Counted = "active", dynamic: bool = True) -> None:
        if counts not in ("active", "wanting"):
            raise ModelError(f"counts must be 'active' or 'wanting', got {counts!r}")
        self.counts = counts
        self.dynamic = dynamic

    def decide(self, view: SparkView) -> Iterable[Commit]:
        source = view.source
        if source is not None:
            stage = first_stage(view.schedulable(source))
            if stage is not None:
                return (Commit(stage, view.committable),)
        share = self._share(view)
        for job in view.jobs:
            if job.supply < share and job is not source:
                stage = first_stage(view.schedulable(job))
                if stage is not None:
                    return (Commit(stage, min(view.committable, share - job.supply)),)
        return ()

    def _share(self, view: SparkView) -> int:
        if not self.dynamic:
            return view.executors
        jobs = len(view.jobs) if self.counts == "active" else sum(map(_wants, view.jobs))
        return -(-view.executors // max(1, jobs))


def fifo() -> FairShare:
    """First come, first served."""
    return FairShare(dynamic=False)


def _wants(job: SparkJobState) -> bool:
    return any(stage.remaining > stage.inbound for stage in job.active)
