"""Shares in proportion to a power of the jobs' work. They also take executors back (Mao et al. 2019, section 7.1)."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Literal

from dagsim.errors import ModelError
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.spark.state import SparkJobState
from dagsim.systems.spark.view import Commit, SparkView
from dagsim.systems.spark.work import first_stage, total_work_ms, work_left_ms

__all__ = ["WeightedFair", "naive_weighted_fair"]

Order = Literal["deficit", "shortest"]


class WeightedFair:
    """Executors go to jobs below their share. It is in proportion to their work left to the power ``alpha``.

    A job that releases executors keeps them up to its share; the rest goes to the job that lacks most
    (``order="deficit"``) or the one with the least work left (``"shortest"``), and when nobody lacks any to whoever
    can use them. ``alpha=0`` is fair sharing, 1 gives large jobs more, -1 small ones. ``total=True`` weighs by the
    work of the whole job instead of what is left.
    """

    def __init__(self, alpha: float = 0.0, order: Order = "deficit", total: bool = False) -> None:
        if order not in ("deficit", "shortest"):
            raise ModelError(f"order must be 'deficit' or 'shortest', got {order!r}")
        self.alpha = alpha
        self.order = order
        self.work = total_work_ms if total else work_left_ms

    def decide(self, view: SparkView) -> Iterable[Commit]:
        source, free = view.source, view.committable
        lacks = self._lacks(view)
        if source is not None and ceil(lacks.get(source, 0.0)) > 0:
            stage = first_stage(view.schedulable(source))
            if stage is not None:
                return (Commit(stage, min(free, ceil(lacks[source]))),)
        by = work_left_ms if self.order == "shortest" else lambda job: -lacks[job]
        jobs = sorted(view.jobs, key=by)
        for job in jobs:
            lack = ceil(lacks[job])
            if lack > 0:
                stage = first_stage(view.schedulable(job))
                if stage is not None:
                    return (Commit(stage, min(free, lack)),)
        for job in jobs if source is None else (source, *jobs):
            stage = first_stage(view.schedulable(job))
            if stage is not None:
                return (Commit(stage, free),)
        return ()

    def _lacks(self, view: SparkView) -> dict[SparkJobState, float]:
        """Per job how many executors it has less than its share; what the source could give away it has not."""
        weights = [max(self.work(job), 1.0) ** self.alpha for job in view.jobs]
        per_weight = view.executors / ordered_sum(weights)
        lacks = {job: weight * per_weight - job.supply for job, weight in zip(view.jobs, weights, strict=True)}
        if view.source in lacks:
            lacks[view.source] += view.committable
        return lacks


def naive_weighted_fair() -> WeightedFair:
    """Shares in proportion to the work of the whole job."""
    return WeightedFair(alpha=1.0, total=True)
