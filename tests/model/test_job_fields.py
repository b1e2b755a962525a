"""Every field of a job reaches columns, records and plain tables."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dagsim.model import Attempt, InFlight, Job, Request, Share, Task
from dagsim.model.job_fields import JOB_FIELDS
from dagsim.traces import open_trace
from dagsim.traces.export import export
from dagsim.workload.arrays import JobArrays
from dagsim.workload.records import job_of, record_of

STRUCTURES: dict[str, Any] = {
    "observed_nodes": ("n1",),
    "observed_attempts": (Attempt(1.0, 2.5, 4.0, ("n1",)), Attempt(7.0, 8.0, 9.5)),
    "in_flight": (InFlight(0.0, (Share(0, 1, None),), 0),),
    "request": Request(constraint="a100"),
}
KINDS = {field.name: field.kind for field in JOB_FIELDS}
OPTIONAL = [field.name for field in fields(Job) if field.name not in ("id", "graph", "arrival_s")]


def job_with(name: str) -> Job:
    value = STRUCTURES.get(name, 7.5 if KINDS[name].startswith("float") else f"some {name}")
    return Job.single("a", Task("task", 60.0, gpus=1, cpus=1), **{name: value})


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_field_survives_columns_and_records(name: str) -> None:
    job = job_with(name)
    assert list(JobArrays.of([job]).jobs()) == [job]
    assert getattr(JobArrays.of([job]), name) is not None
    assert job_of(json.loads(json.dumps(record_of(job)))) == job


@pytest.mark.parametrize("name", [field.name for field in JOB_FIELDS if field.in_tables])
def test_a_number_or_a_word_survives_a_plain_table(tmp_path: Path, name: str) -> None:
    job = job_with(name)
    export("plain", tmp_path / "jobs.csv", [job], None)
    (read,) = open_trace(tmp_path / "jobs.csv").jobs()
    assert getattr(read, name) == getattr(job, name)
