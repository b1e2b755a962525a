"""Packing, as Tetris does it (Grandl et al. 2014), with executors as the only resource."""

from __future__ import annotations

from dagsim.errors import ModelError
from dagsim.spark.state import ActiveStage
from dagsim.spark.view import Commit, View
from dagsim.spark.work import work_left_ms

__all__ = ["Tetris"]


class Tetris:
    """The stage with the best score first: how much of what is free it fills, less ``weight`` times the job's work
    left (as a part of the largest)."""

    def __init__(self, weight: float = 1.0) -> None:
        if not weight >= 0:
            raise ModelError(f"weight must be 0 or more, got {weight!r}")
        self.weight = weight

    def decide(self, view: View) -> Commit | None:
        free = view.committable
        left = [work_left_ms(job) for job in view.jobs]
        most = max(left, default=0.0) or 1.0
        best: ActiveStage | None = None
        best_score = 0.0
        for job, work_ms in zip(view.jobs, left, strict=True):
            for stage in view.schedulable(job):
                score = min(stage.demand, free) / free - self.weight * work_ms / most
                if best is None or score > best_score:
                    best, best_score = stage, score
        return None if best is None else Commit(best, free)
