"""Microsoft Philly: the JSON log object by object, and the lists made from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from dagsim.errors import TraceError
from dagsim.traces import open_trace

Reading = Callable[..., Any]


@pytest.fixture(scope="module")
def log(read: Reading, samples: Path) -> Any:
    return read(samples / "philly" / "cluster_job_log")


def test_work_is_all_attempts_on_the_gpus_of_the_first(log: Any) -> None:
    assert log.trace.format == "philly"
    assert [(job.id, job.arrival_s) for job in log.jobs] == [("a1", 0), ("a2", 60), ("a6", 300)]
    (task,) = log.job("a2").tasks
    assert (task.work, task.instances, task.gang, task.gpus) == (90, 3, True, 1)  # 60 s and 30 s, on 2 + 1 GPUs
    assert log.job("a2").tenant == "v1"


def test_every_unusable_job_is_dropped_for_its_reason(log: Any) -> None:
    assert log.dropped == {
        "without submitted_time": 1,
        "with the same jobid as another job": 1,
        "without attempts": 1,
        "without end": 1,
        "with times out of order": 1,
        "without GPUs": 1,
    }
    assert log.noted == {
        "with several attempts (run times added up)": 2,
        "with attempts that lack a time (not counted)": 1,
    }
    assert any(detail.split(": ")[0].endswith("cluster_job_log:8") for detail in log.trace.report.details)


def test_a_log_that_breaks_off_names_its_line(samples: Path, tmp_path: Path) -> None:
    text = (samples / "philly" / "cluster_job_log").read_text()
    (tmp_path / "cluster_job_log").write_text(text[:-4])
    with pytest.raises(TraceError, match=r"cluster_job_log:\d+: invalid JSON"):
        list(open_trace(tmp_path / "cluster_job_log").jobs())


def test_equal_rows_of_a_list_are_kept_and_noted(read: Reading, samples: Path) -> None:
    got = read(samples / "philly" / "philly_list.csv")
    assert [(job.id, job.arrival_s, job.tasks[0].work) for job in got.jobs] == [
        ("row 3", 0, 30.5), ("row 2", 60, 60), ("row 4", 60, 60),
    ]  # fmt: skip
    assert got.noted == {"rows that are identical to another (kept)": 1}
    assert got.dropped == {
        "with an invalid date in timestamp": 1,
        "with a negative duration": 1,
        "with an invalid value for num_gpus": 1,
    }


@pytest.mark.data
def test_the_processed_list_has_the_measured_statistics(read: Reading, data: Path) -> None:
    got = read(data / "traces" / "philly" / "philly_pollux.csv.gz")
    tasks = [job.tasks[0] for job in got.jobs]
    assert len(tasks) == 82_247
    assert mean(task.work for task in tasks) == pytest.approx(13_136, abs=1)
    assert median(task.work for task in tasks) == 1144
    widths = Counter(task.instances for task in tasks)
    assert [round(100 * widths[gpus] / len(tasks), 1) for gpus in (1, 4, 2, 8)] == [93.2, 2.3, 2.2, 2.0]
    assert got.noted == {"rows that are identical to another (kept)": 65}
    assert len({job.tenant for job in got.jobs}) == 15


def test_the_earliest_of_the_jobs_of_one_id_is_kept(read: Reading, tmp_path: Path) -> None:
    jobs = [
        f'{{"jobid": "{id}", "submitted_time": "2017-10-09 {at}", "attempts": [{{"detail": [{{"gpus": ["g"]}}], '
        f'"start_time": "2017-10-09 {at}", "end_time": "2017-10-09 08:00:00"}}]}}'
        for id, at in (("a", "07:00:20"), ("b", "07:00:10"), ("a", "07:00:00"))
    ]
    (tmp_path / "cluster_job_log").write_text("[" + ",\n".join(jobs) + "]")
    got = read(tmp_path / "cluster_job_log")
    assert [(job.id, job.arrival_s) for job in got.jobs] == [("a", 0), ("b", 10)]
    assert got.dropped == {"with the same jobid as another job": 1}
