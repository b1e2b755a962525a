"""Workload files: jobs with every task's duration, in JSON, to be replayed by any simulator.

``{"meta": {"num_executors", "moving_delay_ms", ...}, "jobs": [{"id", "arrival_ms", "stages": [{"durations": [ms],
"rough_duration_ms"}], "edges": [[parent, child]]}]}``, plain or compressed by gzip.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dagsim.errors import ModelError, TraceError
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.spark.job import RecordedDurations, SparkJob

__all__ = ["Dump", "read_dump", "write_dump"]

_GZIP = b"\x1f\x8b"


class Dump(NamedTuple):
    """Jobs in order of arrival, and the cluster they were made for; ``None`` where the file does not say."""

    jobs: list[SparkJob]
    executors: int | None
    moving_delay_ms: float | None


def read_dump(path: Path) -> Dump:
    """Read a workload file.

    Raises:
        TraceError: ``path`` cannot be read, or is no workload of this form.
    """
    try:
        raw = path.read_bytes()
        document = json.loads(gzip.decompress(raw) if raw.startswith(_GZIP) else raw)
        jobs = [_job(each) for each in document["jobs"]]
        meta = document.get("meta", {})
        executors, delay_ms = meta.get("num_executors"), meta.get("moving_delay_ms")
        dump = Dump(
            sorted(jobs, key=lambda job: job.arrival_ms),
            None if executors is None else int(executors),
            None if delay_ms is None else float(delay_ms),
        )
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError, AttributeError, EOFError) as error:
        raise TraceError(f"{path}: not a Spark workload ({type(error).__name__}: {error})") from None
    if not dump.jobs:
        raise TraceError(f"{path}: a Spark workload without jobs")
    return dump


def write_dump(path: Path, jobs: Sequence[SparkJob], executors: int, moving_delay_ms: float = 2000.0) -> None:
    """Write jobs whose durations are recorded; compressed where ``path`` ends in ``.gz``.

    Raises:
        ModelError: A job's durations are drawn, not recorded.
    """
    document = {
        "meta": {"num_executors": executors, "moving_delay_ms": moving_delay_ms},
        "jobs": [_written(job) for job in jobs],
    }
    text = json.dumps(document).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def _job(found: Any) -> SparkJob:
    stages = []
    for stage in found["stages"]:
        durations = tuple(stage["durations"])
        if stage.get("num_tasks", len(durations)) != len(durations):
            raise ModelError(f"job {found['id']!r} has {len(durations)} durations for {stage['num_tasks']} tasks")
        rough_ms = stage.get("rough_duration_ms")
        stages.append(
            RecordedDurations(durations, ordered_sum(durations) / len(durations) if rough_ms is None else rough_ms)
        )
    edges = [(parent, child) for parent, child in found.get("edges", ())]
    return SparkJob.of(str(found["id"]), stages, edges, found["arrival_ms"])


def _written(job: SparkJob) -> dict[str, object]:
    stages = []
    for place, durations in enumerate(job.durations):
        if not isinstance(durations, RecordedDurations):
            raise ModelError(f"job {job.id!r}: the durations of its stages are drawn, not recorded")
        stages.append(
            {
                "id": place,
                "num_tasks": durations.tasks,
                "durations": list(durations.ms),
                "rough_duration_ms": durations.rough_ms,
            }
        )
    return {
        "id": job.id,
        "arrival_ms": job.arrival_ms,
        "stages": stages,
        "edges": [[edge.parent, edge.child] for edge in job.graph.edges],
    }
