"""Jobs of real traces as Spark jobs: Alibaba's DAGs, and whatever else the readers know."""

from __future__ import annotations

from pathlib import Path

from dagsim.errors import TraceError
from dagsim.systems.spark.job import SparkJob
from dagsim.traces import TraceOptions, open_trace

__all__ = ["trace_jobs"]


def trace_jobs(
    path: Path, format: str | None = None, *, limit: int | None = None, most_tasks: int | None = None
) -> list[SparkJob]:
    """Jobs of a trace in order of arrival (``format``: ``"alibaba2018"``; ``None`` recognises it).

    A task of the trace becomes a stage, its instances that stage's tasks, which all last as recorded (at least a
    second, the resolution of most traces). Jobs of more than ``most_tasks`` tasks are left out. With ``sequence`` the
    list serves as a pool to draw from; simulated as it is, the jobs arrive when they did.

    Raises:
        TraceError: The trace cannot be read, or no job of it remains.
    """
    trace = open_trace(path, format, TraceOptions(limit=limit, floor_s=1.0))
    jobs = [
        SparkJob.of_job(job)
        for job in trace.jobs()
        if most_tasks is None or sum(task.instances for task in job.tasks) <= most_tasks
    ]
    if not jobs:
        raise TraceError(f"{path}: no job remains to be simulated")
    return jobs
