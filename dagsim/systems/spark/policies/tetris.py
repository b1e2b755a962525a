"""Packing, as Tetris does it (Grandl et al. 2014), with executors as the only resource."""

from __future__ import annotations

from collections.abc import Iterable

from dagsim.errors import ModelError
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.spark.state import SparkJobState
from dagsim.systems.spark.view import Commit, SparkView
from dagsim.systems.spark.work import work_left_ms

__all__ = ["SparkTetris"]


class SparkTetris:
    """The stage with the best score first: how much of what is free it fills (``a``), less its job's work left (``p``)
    times ``weight`` times the mean of ``a`` over the mean of ``p`` (section 3.3.2 there, epsilon).

    ``cap`` limits the executors of a job, unless all jobs are at it.
    """

    def __init__(self, weight: float = 1.0, cap: int | None = None) -> None:
        if not weight >= 0:
            raise ModelError(f"weight must be 0 or more, got {weight!r}")
        if cap is not None and cap < 1:
            raise ModelError(f"cap must be at least 1, got {cap!r}")
        self.weight = weight
        self.cap = cap

    def decide(self, view: SparkView) -> Iterable[Commit]:
        free, source = view.committable, view.source
        cap = view.executors if self.cap is None else self.cap
        room = {job: cap - job.supply + (free if job is source else 0) for job in view.jobs}
        below = self._best(view, [job for job in view.jobs if room[job] > 0])
        if below is not None:
            return (Commit(below.stage, min(free, room[below.stage.job])),)
        best = self._best(view, view.jobs)
        return () if best is None else (best,)

    def _best(self, view: SparkView, jobs: Iterable[SparkJobState]) -> Commit | None:
        free = view.committable
        choice = [
            (stage, min(stage.demand, free) / free, work_ms)
            for job, work_ms in [(job, work_left_ms(job)) for job in jobs]
            for stage in view.schedulable(job)
        ]
        if not choice:
            return None
        per_work = ordered_sum(filled for _, filled, _ in choice) / max(
            ordered_sum(work_ms for *_, work_ms in choice), 1.0
        )
        stage, *_ = max(choice, key=lambda each: each[1] - self.weight * per_work * each[2])
        return Commit(stage, free)
