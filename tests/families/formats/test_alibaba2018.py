"""Alibaba v2018: the DAG in the names, the effective work, and every quirk of the official rows."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from dagsim.errors import ConfigError, TraceError
from dagsim.model import Job
from dagsim.traces import TraceOptions, open_trace, recognise

Reading = Callable[..., Any]


@pytest.fixture(scope="module")
def sample(read: Reading, samples: Path) -> Any:
    return read(samples / "alibaba2018" / "batch_task.csv")


def span(job: Job) -> float:
    return job.graph.critical_path([task.work for task in job.tasks])


def test_the_sample_is_recognised(samples: Path) -> None:
    assert recognise(samples / "alibaba2018" / "batch_task.csv") == "alibaba2018"


def test_whole_numbers_of_instances_are_recognised_too(tmp_path: Path) -> None:
    (tmp_path / "batch_task.csv").write_text("M1,3,j_1,1,Terminated,10,20,100,0.5\n")
    assert recognise(tmp_path / "batch_task.csv") == "alibaba2018"


def test_work_begins_when_the_last_parent_ends(sample: Any) -> None:
    # M1 100..130; R2_1 registered at 105, begins at 130, ends at 150; J3_1_2 ends at 145, before R2 does: no work
    job = sample.job("j_7")
    assert [task.work for task in job.tasks] == [30, 20, 0]
    assert job.graph.parents == ((), (0,), (0, 1))
    assert span(job) == 50


def test_demands_are_per_instance_and_instances_independent(sample: Any) -> None:
    first, second, _ = sample.job("j_7").tasks
    assert (first.instances, first.gpus, first.cpus, first.memory_gb, first.gang) == (4, 0, 1.0, 0.5, False)
    assert (second.instances, second.cpus) == (2, 0.5)
    assert sample.job("j_10").tasks[0].instances == 97_890


def test_independent_and_unnumbered_tasks_wait_for_none(sample: Any) -> None:
    assert sample.job("j_9").graph.parents == ((),)
    assert [task.name for task in sample.job("j_22").tasks] == ["M1", "R2_1", "MergeTask"]
    assert sample.job("j_22").graph.parents == ((), (0,), ())


def test_stg_tokens_and_a_trailing_underscore_are_no_parents(sample: Any) -> None:
    assert sample.job("j_10").graph.parents == ((), (0,), (1, 0), (2,))
    assert sample.noted["task names with a Stg token (ignored)"] == 2
    assert sample.noted["task names with an underscore too many (ignored)"] == 1


def test_a_missing_parent_counts_as_done(sample: Any) -> None:
    assert sample.job("j_10").tasks[3].name == "R5_3_9"
    assert sample.noted["jobs with a missing parent (taken as done)"] == 1


def test_invalid_plan_columns_ask_for_nothing_and_are_noted(sample: Any) -> None:
    assert [(task.cpus, task.memory_gb) for task in sample.job("j_10").tasks] == [(8, 1.5), (1, 0), (0, 0), (1, 0.2)]
    assert sample.noted["tasks without a usable plan_cpu (taken as no cores)"] == 1
    assert sample.noted["tasks without a usable plan_mem (taken as no memory)"] == 2


def test_jobs_come_by_arrival_from_rows_in_any_order(sample: Any) -> None:
    # starts 40, 90, 100, 300, 500 and 600; the first counts as 0
    arrivals = [(job.id, job.arrival_s) for job in sample.jobs]
    assert arrivals == [("j_23", 0), ("j_9", 50), ("j_7", 60), ("j_10", 260), ("j_15", 460), ("j_22", 560)]
    assert sample.trace.meta == {"origin_s": 40}
    assert sample.job("j_23").graph.parents == ((1,), ())  # the child's row comes first


def test_every_dirty_row_is_dropped_for_its_reason(sample: Any) -> None:
    assert sample.dropped == {
        "of tasks that did not terminate": 3,
        "of jobs that did not finish as a whole": 1,
        "cyclic": 3,
        "with an end before the start": 1,
        "without end": 1,
        "given twice": 1,
        "with an invalid value for number of instances": 1,
        "with a non-numeric value for number of instances": 1,
        "with an unknown status": 1,
        "with an impossible time": 1,
        "with a wrong number of fields": 1,
    }
    report = sample.trace.report
    assert (report.rows, report.kept) == (29, 14)
    assert any(
        text.endswith(":14: dropped, cyclic: job j_12: task 'M1_1' depends on itself") for text in report.details
    )


def test_partial_jobs_can_be_kept(read: Reading, samples: Path) -> None:
    job = read(samples / "alibaba2018" / "batch_task.csv", keep_partial=True).job("j_8")
    assert [(task.name, task.work) for task in job.tasks] == [("M1", 30)]


def test_gpus_per_task_replaces_all_other_demands(read: Reading, samples: Path) -> None:
    sample = read(samples / "alibaba2018" / "batch_task.csv", gpus_per_task=0.5, floor_s=2.0)
    assert {task.demand for job in sample.jobs for task in job.tasks} == {(0.5, 0, 0, None)}
    assert min(task.work for job in sample.jobs for task in job.tasks) == 2.0
    assert "0.5 GPUs" in sample.trace.assumptions["demand"]
    assert sample.trace.cluster() is None


def test_the_machines_beside_the_tasks_are_the_cluster(sample: Any) -> None:
    cluster = sample.trace.cluster()
    assert [(node.name, node.cpus, node.memory_gb) for node in cluster.nodes] == [("m_1", 96, 100), ("m_2", 64, 50)]


def test_strict_reading_names_file_and_line(samples: Path) -> None:
    trace = open_trace(samples / "alibaba2018" / "batch_task.csv", options=TraceOptions(strict=True))
    with pytest.raises(TraceError, match=r"batch_task\.csv:23: strict .* with a wrong number of fields \(7\)"):
        list(trace.jobs())


def test_window_and_time_scale(read: Reading, samples: Path) -> None:
    part = read(samples / "alibaba2018" / "batch_task.csv", start=1, limit=2, time_scale=0.5)
    assert [(job.id, job.arrival_s) for job in part.jobs] == [("j_9", 0), ("j_7", 5)]
    assert part.trace.report.skipped["before the window"] == 2
    assert part.trace.report.kept == 4


def test_header_crlf_and_gzip_change_nothing(read: Reading, samples: Path, sample: Any, tmp_path: Path) -> None:
    text = (samples / "alibaba2018" / "batch_task.csv").read_text().replace("\n", "\r\n")
    header = "task_name,instance_num,job_name,task_type,status,start_time,end_time,plan_cpu,plan_mem\r\n"
    (tmp_path / "tasks.csv.gz").write_bytes(gzip.compress((header + text).encode()))
    again = read(tmp_path / "tasks.csv.gz")
    assert again.jobs == sample.jobs
    assert again.trace.report.to_dict() == sample.trace.report.to_dict()


def test_an_option_of_other_formats_is_refused(samples: Path) -> None:
    with pytest.raises(ConfigError, match="'alibaba2018' does not have the option 'protocol'"):
        open_trace(samples / "alibaba2018" / "batch_task.csv", options=TraceOptions(protocol="rlscheduler"))


def test_a_table_joined_with_instances_reads_as_the_tasks_alone(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "measured.csv").write_text(
        "job_name,task_name,instance_num,start_time,end_time,task_span_s,mean_instance_duration_s,plan_cpu,more,plan_mem\n"
        "j_1,R2_1,2,105,150,45,20,50,7,0.25\n"
        "j_1,M1,4,100,130,30,25,100,7,0.5\n"
    )
    (job,) = read(tmp_path / "measured.csv").jobs
    assert [(task.name, task.work, task.instances, task.cpus) for task in job.tasks] == [
        ("R2_1", 20, 2, 0.5),
        ("M1", 30, 4, 1),
    ]


@pytest.mark.data
def test_the_measured_table_holds_the_same_jobs_as_the_official_one(read: Reading, data: Path) -> None:
    folder = data / "traces" / "alibaba-v2018"
    measured, official = (read(folder / f"{name}.csv.gz") for name in ("medium3690_measured", "batch_task_medium3690"))
    assert len(measured.jobs) == len(official.jobs) == 3690
    assert sorted(span(job) for job in measured.jobs) == sorted(span(job) for job in official.jobs)


@pytest.mark.data
def test_the_published_spans_on_an_infinite_cluster(read: Reading, data: Path) -> None:
    random6600 = read(data / "traces" / "alibaba-v2018" / "batch_task_random6600.csv.gz")
    spans = [span(job) for job in random6600.jobs]
    assert len(spans) == 6535
    assert mean(spans) == pytest.approx(95.4, abs=0.05)
    assert median(spans) == 6
    assert random6600.trace.report.kept == 24_729
    assert random6600.noted["tasks that end before one of their parents (taken as no work)"] == 118


@pytest.mark.data
@pytest.mark.parametrize("name", ["chains10k", "chains7k_min4", "medium3690", "random6600", "union"])
def test_exactly_the_terminated_jobs_of_the_real_files_are_kept(read: Reading, data: Path, name: str) -> None:
    path = data / "traces" / "alibaba-v2018" / f"batch_task_{name}.csv.gz"
    statuses: dict[str, set[str]] = {}
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        statuses.setdefault(line.split(",")[2], set()).add(line.split(",")[4])
    got = read(path)
    assert {job.id for job in got.jobs} == {job for job, seen in statuses.items() if seen == {"Terminated"}}


def test_headings_among_the_rows_of_joined_files_are_no_rows(read: Reading, tmp_path: Path) -> None:
    heading = "task_name,instance_num,job_name,task_type,status,start_time,end_time,plan_cpu,plan_mem\n"
    rows = ["M1,3,j_1,1,Terminated,10,20,100,0.5\n", "M1,1,j_2,1,Terminated,30,40,100,0.5\n"]
    ragged = "M1,1,j_3,1,Terminated\n"  # rows of several widths are read one by one
    for name, texts in {"plain": [*rows, ragged], "joined": [heading, rows[0], heading, rows[1], ragged]}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "batch_task.csv").write_text("".join(texts))
    plain, joined = (read(tmp_path / name / "batch_task.csv", "alibaba2018") for name in ("plain", "joined"))
    assert joined.jobs == plain.jobs
    assert (joined.dropped, joined.trace.report.rows) == (plain.dropped, 3)
