"""Gavel and Shockwave traces: three layouts, and throughput tables beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

Reading = Callable[..., Any]


def test_work_is_steps_by_the_table_beside_the_trace(read: Reading, samples: Path) -> None:
    got = read(samples / "gavel" / "physical.trace")
    job = got.jobs[1]
    (task,) = job.tasks
    assert got.trace.format == "gavel"
    assert (job.arrival_s, task.work, task.instances, task.gpus) == (3, 50, 1, 1)  # 1,000 steps at 20 per second
    assert task.speeds == {"V100-16": 1, "P100": 0.5, "K80": 0.25}
    assert (task.model, task.batch, job.weight, job.deadline_s) == ("ResNet-18", 64, 2, 3 + 1.5 * 50)


def test_a_deadline_may_leave_no_time_to_wait(read: Reading, samples: Path, tmp_path: Path) -> None:
    rows = (samples / "gavel" / "physical.trace").read_text().splitlines()
    (tmp_path / "a.trace").write_text(rows[0].replace("\t1.5\t", "\t1.0\t") + "\n")
    (job,) = read(tmp_path / "a.trace").jobs
    assert job.deadline_s == job.arrival_s + job.tasks[0].work


def test_scale_factors_have_rows_of_their_own(read: Reading, samples: Path) -> None:
    got = read(samples / "gavel" / "msr.trace")
    assert [(job.arrival_s, job.tasks[0].work, job.tasks[0].gang) for job in got.jobs] == [
        (0, 20, False),
        (5, 25, True),
    ]
    assert got.dropped == {"with an invalid value for scale factor": 1, "with a wrong number of fields": 1}


def test_shockwave_gives_durations_where_no_table_does(read: Reading, samples: Path) -> None:
    got = read(samples / "gavel" / "shockwave.trace")
    assert "first one throughout" in got.trace.assumptions["batch"]
    assert [job.tasks[0].work for job in got.jobs] == [450, 30]
    assert got.noted == {"with a model or scale factor that the table lacks": 2}


def test_without_a_table_a_step_is_a_second(read: Reading, samples: Path, tmp_path: Path) -> None:
    copy(samples / "gavel" / "msr.trace", tmp_path / "msr.trace")
    got = read(tmp_path / "msr.trace")
    assert [job.tasks[0].work for job in got.jobs] == [100, 1000]
    assert "one step per second" in got.trace.assumptions["work"]


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "jobs"),
    [("gpu-workloads-small/gavel_physical_artifact_evaluation.trace", 15),
     ("gpu-workloads-small/gavel_physical_minimize_makespan.trace", 100),
     ("philly/gavel_msr_seed0/0e4a51.trace.gz", 1181), ("philly/gavel_msr_seed0/11cb48.trace.gz", 2000)],
)  # fmt: skip
def test_every_line_is_a_job(read: Reading, data: Path, file: str, jobs: int) -> None:
    got = read(data / "traces" / file)
    assert (len(got.jobs), got.dropped) == (jobs, {})


@pytest.mark.data
def test_shockwave_durations_are_their_own(read: Reading, data: Path) -> None:
    folder = data / "traces" / "gpu-workloads-small"
    paths = sorted(folder.glob("shockwave_*.trace"))
    assert [len(read(path).jobs) for path in paths] == [120, 220, 460, 900, 900]
