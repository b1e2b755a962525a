"""Anything that can be chosen, at random."""

from __future__ import annotations

from collections.abc import Iterable

from dagsim.systems.spark.view import Commit, SparkView
from dagsim.systems.spark.work import first_stage

__all__ = ["RandomJob"]


class RandomJob:
    """A uniform job of those with a stage to choose, and a uniform number of executors. It is that of
    spark-sched-sim."""

    def decide(self, view: SparkView) -> Iterable[Commit]:
        rng = view.stream("policy")
        jobs = list(view.jobs)
        while jobs:
            stage = first_stage(view.schedulable(jobs.pop(int(rng.integers(len(jobs))))))
            if stage is not None:
                return (Commit(stage, 1 + int(rng.integers(view.committable))),)
        return ()
