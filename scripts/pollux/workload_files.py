"""The workloads of Pollux and Sia."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path

from dagsim.errors import TraceError
from dagsim.families.elastic.profiles import TrainingProfile, table_rows
from dagsim.families.elastic.training_jobs import ElasticJob

_NUMBERS = ("time", "num_replicas", "batch_size")


def read_workload(path: Path | str, profiles: Mapping[str, TrainingProfile]) -> list[ElasticJob]:
    """Read a workload from Pollux or Sia: a CSV file, plain or gzip, with the columns ``name, time,
    application, num_replicas, batch_size``.

    Raises:
        TraceError: The file is malformed, repeats a job, or names an application without a profile.
    """
    jobs: dict[str, ElasticJob] = {}
    for where, (name, application), numbers in table_rows(Path(path), ("name", "application"), _NUMBERS):
        arrival_s, replicas, batch = numbers
        if application not in profiles:
            raise TraceError(f"{where}: there is no profile for the application {application!r}")
        if name in jobs:
            raise TraceError(f"{where}: the job {name!r} occurs twice")
        if not (isfinite(arrival_s) and arrival_s >= 0 and replicas >= 1 and batch >= 1):
            raise TraceError(
                f"{where}: a job needs a time of 0 or more, at least one replica and at least one sample, got {numbers}"
            )
        jobs[name] = ElasticJob(name, profiles[application], arrival_s, int(replicas), int(batch))
    return list(jobs.values())
