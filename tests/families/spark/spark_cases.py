"""Random Spark jobs, and a policy that decides at random."""

from __future__ import annotations

import random

from dagsim.families.spark.api import Commit, RecordedDurations, SparkJob, SparkView

__all__ = ["Anything", "random_jobs"]


def random_jobs(seed: int, jobs: int = 12, stages: int = 6, tasks: int = 9) -> list[SparkJob]:
    """Jobs of random DAGs whose tasks last whole tens of milliseconds, so that many things happen at once."""
    rng = random.Random(seed)
    dags, now_ms = [], 0.0
    for number in range(jobs):
        count = rng.randint(1, stages)
        durations = []
        for _ in range(count):
            ms = tuple(float(rng.choice((0, 10, 10, 20, 50))) for _ in range(rng.randint(1, tasks)))
            durations.append(RecordedDurations(ms, 10.0))
        edges = [(parent, child) for child in range(count) for parent in range(child) if rng.random() < 0.4]
        dags.append(SparkJob.of(str(number), durations, edges, now_ms))
        now_ms += rng.choice((0, 0, 30, 100))
    return dags


class Anything:
    """Any stage, any number of executors. Unless ``parity``, where what is declined may be lost for good, it now and
    then wants nothing while something is under way."""

    def __init__(self, seed: int, parity: bool) -> None:
        self.rng = random.Random(seed)
        self.declines = 0.0 if parity else 0.1

    def decide(self, view: SparkView) -> tuple[Commit, ...]:
        stages = [stage for job in view.jobs for stage in view.schedulable(job)]
        busy = any(stage.executing or stage.inbound for job in view.jobs for stage in job.stages)
        if busy and self.rng.random() < self.declines:
            return ()
        return (Commit(self.rng.choice(stages), self.rng.randint(1, view.committable)),)
