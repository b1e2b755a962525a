"""Decima's TPC-H profiles: queries as jobs, stages as tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

Reading = Callable[..., Any]


def test_a_stage_is_a_task_of_its_spark_tasks(read: Reading, samples: Path) -> None:
    got = read(samples / "tpch" / "tpch_dags.json")
    (job,) = got.jobs
    assert got.trace.format == "tpch"
    assert [(task.name, task.work, task.instances, task.gang) for task in job.tasks] == [
        ("stage-0", 1.5005, 12, False), ("stage-1", 0.2, 3, False), ("stage-2", 0, 1, False),
    ]  # fmt: skip
    assert [tuple(edge) for edge in job.graph.edges] == [(0, 1, 0), (1, 2, 0)]
    assert got.dropped == {
        "with an invalid value for num_tasks": 1,
        "of queries from which another stage was dropped": 1,
        "of jobs that are not a DAG": 2,
    }


@pytest.mark.data
def test_the_profiles_have_the_measured_figures(read: Reading, data: Path) -> None:
    got = read(data / "traces" / "tpch-decima" / "tpch_dags.json.gz")
    tasks = [task for job in got.jobs for task in job.tasks]
    assert (len(got.jobs), len(tasks), sum(task.instances for task in tasks)) == (154, 1414, 177_890)
    for size, seconds in (("2g", 203), ("100g", 2209)):
        works = [sum(t.work * t.instances for t in job.tasks) for job in got.jobs if job.id.endswith(f"-{size}")]
        assert mean(works) == pytest.approx(seconds, abs=1)
