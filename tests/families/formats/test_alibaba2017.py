"""Alibaba v2017: bags of tasks, and the quirks of the official rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from dagsim.traces import recognise

Reading = Callable[..., Any]


@pytest.fixture(scope="module")
def sample(read: Reading, samples: Path) -> Any:
    return read(samples / "alibaba2017" / "batch_task.csv")


def test_a_job_is_a_bag_of_independent_instances(sample: Any) -> None:
    # created 115, 115 and 120; 60 s is the first arrival of the window after the early job at 0
    job = sample.job("11")
    assert sample.trace.format == "alibaba2017"
    assert job.arrival_s == 115
    assert [(task.name, task.work, task.instances) for task in job.tasks] == [
        ("101", 30, 3),
        ("103", 100, 9000),
        ("104", 0, 1),
    ]
    assert job.graph.edges == ()
    assert [(task.cpus, task.memory_gb, task.gpus) for task in job.tasks] == [(0.5, 0.2, 0), (1, 0.4, 0), (0, 0, 0)]


def test_jobs_from_before_the_window_arrive_at_its_start(sample: Any) -> None:
    assert [(job.id, job.arrival_s) for job in sample.jobs] == [("13", 0), ("12", 60), ("11", 115), ("24", 500)]
    assert [task.work for task in sample.job("13").tasks] == [70, 70]
    assert sample.noted["jobs submitted before the window (taken to arrive at its start)"] == 1


def test_every_dirty_row_is_dropped_for_its_reason(sample: Any) -> None:
    assert sample.dropped == {
        "of tasks that did not terminate": 3,
        "of jobs that did not finish as a whole": 1,
        "with an end before the start": 1,
        "with an unknown status": 1,
        "without modify_timestamp": 1,
        "with an invalid value for instance_num": 1,
        "with a non-numeric value for instance_num": 1,
        "with a negative demand": 1,
        "with a wrong number of fields": 1,
        "given twice": 1,
    }


def test_partial_jobs_and_gpus_are_options(read: Reading, samples: Path) -> None:
    got = read(samples / "alibaba2017" / "batch_task.csv", keep_partial=True, gpus_per_task=1)
    assert [task.demand for task in got.job("14").tasks] == [(1, 0, 0, None)]


@pytest.mark.parametrize("status", ["Ready", "Waiting", "Running", "Failed", "Cancelled"])
def test_every_state_of_a_task_that_has_not_ended_well_is_known(status: str, read: Reading, tmp_path: Path) -> None:
    file = tmp_path / "batch_task.csv"
    file.write_text(f"100,160,1,1,1,Terminated,50,0.01\n100,160,2,1,1,{status},50,0.01\n")
    assert read(file).dropped == {"of tasks that did not terminate": 1}


@pytest.mark.parametrize("status", ["Ready", "Waiting", "Running", "Terminated", "Failed", "Cancelled"])
def test_a_file_is_recognised_by_any_state(status: str, tmp_path: Path) -> None:
    file = tmp_path / "tasks.csv"
    file.write_text(f"100,160,1,1,1,{status},50,0.01\n")
    assert recognise(file) == "alibaba2017"


@pytest.mark.data
def test_the_real_file_has_the_published_statistics(read: Reading, data: Path) -> None:
    got = read(data / "traces" / "alibaba-v2017" / "batch_task.csv.gz", keep_partial=True)
    works = [task.work for job in got.jobs for task in job.tasks]
    assert got.trace.report.rows == 80_553
    assert len(works) == 67_013 - 1  # one ends before it begins
    assert got.dropped["with an end before the start"] == 1
    assert mean(works) == pytest.approx(191.6, abs=0.05)
    assert median(works) == 28
    assert works.count(0) == 30


@pytest.mark.data
def test_whole_jobs_of_the_real_file(read: Reading, data: Path) -> None:
    assert len(read(data / "traces" / "alibaba-v2017" / "batch_task.csv.gz").jobs) == 10_777 - 1


def test_a_demand_too_large_for_a_number_is_dropped(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("0,9,1,1,1,Terminated,100,1e308\n0,9,2,1,1,Terminated,100,0.5\n")
    got = read(tmp_path / "a.csv", "alibaba2017")  # memory is given as a share of 100 GB
    assert [job.id for job in got.jobs] == ["2"]
    assert got.dropped == {"that describe an impossible job": 1}
