"""Schedules written down by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dagsim.model import Cluster, JobFacts, Kind, RejectReason
from dagsim.model.log import LogRow, Record, Schedule, ScheduleLog


class ScheduleWriter:
    """Writes a schedule from what happened, told in any order; the log sorts it by time."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.jobs: list[JobFacts] = []
        self.rows: list[LogRow] = []
        self.runs = 0

    def job(
        self, arrival_s: float = 0.0, *, ideal_s: float = 1.0, completed_s: float | None = None, **facts: Any
    ) -> int:
        """A job that arrives, and completes if a time is given."""
        number = len(self.jobs)
        defaults: dict[str, Any] = {
            "id": f"job{number}",
            "priority": 0.0,
            "tenant": "",
            "deadline_s": None,
            "weight": 1.0,
            "ideal_gpu_s": ideal_s,
            "gpus": 1.0,
            "tasks": ("train", "test"),
        }
        self.jobs.append(JobFacts(arrival_s=arrival_s, ideal_s=ideal_s, **{**defaults, **facts}))
        self.row(Kind.ARRIVED, arrival_s, number)
        if completed_s is not None:
            self.row(Kind.COMPLETED, completed_s, number)
        return number

    def reject(self, job: int, time_s: float, reason: RejectReason) -> None:
        self.row(Kind.REJECTED, time_s, job, value=float(reason))

    def run(
        self,
        job: int,
        start_s: float,
        end_s: float | None,
        on: Mapping[int, Iterable[int]] | None = None,
        *,
        task: int = 0,
        held: float | None = None,
        outcome: Kind = Kind.FINISHED,
        computing_s: float | None = None,
    ) -> int:
        """A run that holds GPUs on nodes, ``{node: GPUs}``; it still runs if it has no end."""
        run, self.runs = self.runs, self.runs + 1
        for node, gpus in (on if on is not None else {0: (0,)}).items():
            mask = sum(1 << gpu for gpu in gpus)
            value = float(mask.bit_count()) if held is None else held
            for kind, time_s in ((Kind.STARTED, start_s), (Kind.COMPUTING, computing_s), (outcome, end_s)):
                if time_s is not None:
                    self.rows.append(Record(kind, time_s, job, task, run, node, instances=1, gpus=mask, value=value))
        return run

    def down(self, node: int, start_s: float, end_s: float | None = None) -> None:
        self.row(Kind.DOWN, start_s, node=node)
        if end_s is not None:
            self.row(Kind.UP, end_s, node=node)

    def row(self, kind: Kind, time_s: float, job: int = -1, *, node: int = -1, value: float = 0.0) -> None:
        self.rows.append(Record(kind, time_s, job, node=node, value=value))

    def schedule(self, **rest: Any) -> Schedule:
        log = ScheduleLog()
        last = {Kind.COMPLETED: 1, Kind.REJECTED: 1}  # written before the runs by ``job``, but the end of them
        for row in sorted(self.rows, key=lambda row: (row[1], last.get(Kind(row[0]), 0))):
            log.append(row)
        return Schedule(self.cluster, self.jobs, log, **rest)
