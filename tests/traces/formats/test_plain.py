"""The plain CSV for logs of one's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagsim.errors import TraceError
from dagsim.model import Request
from dagsim.traces import open_trace, recognise

Reading = Callable[..., Any]


@pytest.fixture(scope="module")
def sample(read: Reading, samples: Path) -> Any:
    return read(samples / "plain" / "jobs.csv")


def test_four_columns_are_enough(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("id,arrival_s,gpus,duration_s\n7,100,2,30\n8,90,1,15.5\n")
    assert recognise(tmp_path / "log.csv") == "plain"
    got = read(tmp_path / "log.csv")
    assert [(job.id, job.arrival_s, job.tasks[0].gpus, job.tasks[0].work) for job in got.jobs] == [
        ("8", 0, 1, 15.5), ("7", 10, 2, 30),
    ]  # fmt: skip


def test_every_column_has_its_place_in_the_job(sample: Any) -> None:
    job = sample.job("a")
    (task,) = job.tasks
    assert (job.arrival_s, job.priority, job.tenant, job.deadline_s, job.weight) == (0, 2, "red", 490, 2.5)
    assert (task.gpu_types, task.cpus, task.memory_gb, task.estimate) == (("V100-16", "A100-40"), 4, 16, 90)
    wide = sample.job("c").tasks[0]
    assert (wide.instances, wide.gang, wide.gpus, wide.model, wide.batch) == (4, True, 8, "BERT", 11)
    assert sample.job("d").tasks[0].gang is False
    assert sample.job("o, quoted").tasks[0].gpus == 0


def test_jobs_come_by_arrival_and_ties_in_the_order_of_the_file(sample: Any) -> None:
    assert [job.id for job in sample.jobs] == ["a", "b", "c", "d", "o, quoted", "a#2"]


def test_every_dirty_row_is_dropped_for_its_reason(sample: Any) -> None:
    assert sample.dropped == {
        "without arrival_s": 1,
        "with a negative duration_s": 1,
        "that describe an impossible job": 2,
        "given twice": 1,
        "with a negative arrival_s": 1,
        "with a non-numeric value for gpus": 1,
        "with an invalid value for instances": 1,
        "with a gang that is neither yes nor no": 1,
        "with a wrong number of fields": 1,
        "without an id": 1,
        "with a non-numeric value for duration_s": 1,
    }


def test_rows_of_tasks_make_a_dag(read: Reading, samples: Path) -> None:
    got = read(samples / "plain" / "tasks.csv")
    assert [job.id for job in got.jobs] == ["lone", "join"]
    join = got.job("join")
    assert [task.name for task in join.tasks] == ["right", "left", "both"]
    assert join.graph.parents == ((), (), (1, 0))
    assert join.graph.critical_path([task.work for task in join.tasks]) == 50
    assert got.dropped == {
        "of jobs that are not a DAG": 3,
        "without duration_s": 1,
        "of jobs from which another row was dropped": 2,
        "with the same task as another row": 1,
    }


def test_a_column_misspelt_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("id,arrival_s,gpus,duration_s,priorty\n7,100,2,30,1\n")
    with pytest.raises(TraceError, match=r"log\.csv:1: unknown column 'priorty'; did you mean 'priority'\?"):
        list(open_trace(tmp_path / "log.csv").jobs())


def test_work_of_one_type_is_counted_on_the_reference(read: Reading, samples: Path) -> None:
    got = read(samples / "plain" / "jobs.csv", reference_gpu="V100-16", floor_s=15)
    assert got.job("c").tasks[0].work == pytest.approx(600 * 8.14 / 15.67)
    assert got.job("d").tasks[0].work == 15


@pytest.mark.parametrize(
    ("name", "type_"),
    [("a100", "A100-40"), ("h100", "H100"), ("A100_80", "A100-80"), ("a100_80gb", "A100-80"), ("t4", "T4")],
)
def test_names_of_gpus_are_read_as_sacct_reads_them(read: Reading, tmp_path: Path, name: str, type_: str) -> None:
    (tmp_path / "log.csv").write_text(f"id,arrival_s,gpus,duration_s,gpu_type\n7,100,2,30,{name}\n")
    assert read(tmp_path / "log.csv").jobs[0].tasks[0].gpu_types == (type_,)


def test_levels_and_segments_have_columns(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "id,arrival_s,gpus,duration_s,instances,level,level_required,segment,constraint\n"
        "a,0,8,10,4,rack,,,\nb,0,8,10,4,rack,no,2,a100\nc,0,8,10,4,,,,\n"
        "d,0,8,10,4,rack,maybe,,\ne,0,8,10,4,rack,,1.5,\n"
    )
    got = read(tmp_path / "log.csv")
    assert [job.request for job in got.jobs] == [
        Request(level="rack"), Request("a100", level="rack", level_required=False, segment=2), None
    ]  # fmt: skip
    assert got.dropped == {
        "with a level_required that is neither yes nor no": 1,
        "with an invalid value for segment": 1,
    }


def test_a_table_of_a_cpu_cluster_needs_no_column_of_gpus(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("id,arrival_s,cpus,duration_s\na,0,16,9\n")
    assert recognise(tmp_path / "log.csv") == "plain"
    got = read(tmp_path / "log.csv")
    assert (got.jobs[0].tasks[0].gpus, got.jobs[0].tasks[0].cpus) == (0, 16)
    assert got.trace.assumptions["gpus"] == "none: the table has no column for them"


def test_totals_can_be_spread_over_nodes(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "id,arrival_s,gpus,cpus,memory_gb,duration_s\na,0,0,96,48,9\nb,1,6,24,60,9\nc,2,0.5,3,3,9\nd,3,0,1,1,9\n"
    )
    jobs = read(tmp_path / "log.csv", spread=True).jobs
    shapes = [(task.instances, task.gang, task.gpus, task.cpus, task.memory_gb) for job in jobs for task in job.tasks]
    assert shapes == [(96, True, 0, 1, 0.5), (6, True, 1, 4, 10), (1, False, 0.5, 3, 3), (1, False, 0, 1, 1)]


@pytest.mark.parametrize("head", ["id,arrival_s,gpus,gpus,duration_s", "id,GPUs,gpus,arrival_s,duration_s"])
def test_a_column_that_is_there_twice_is_refused(tmp_path: Path, head: str) -> None:
    (tmp_path / "log.csv").write_text(f"{head}\n1,2,3,4,5\n")
    with pytest.raises(TraceError, match=r"log\.csv:1: there are two columns 'gpus'; rename or remove one"):
        open_trace(tmp_path / "log.csv", "plain").arrays()


def test_a_column_that_is_not_read_may_be_there_twice(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("n,x,x,at,s\na,1,2,3,4\n")
    assert read(tmp_path / "log.csv", map="id=n,arrival_s=at,duration_s=s,gpus=1").jobs[0].tasks[0].work == 4


def test_times_that_contradict_each_other_are_noted_and_possible_ones_taken(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "id,arrival_s,eligible_s,start_s,end_s,gpus,duration_s\n"
        "early,2000,2000,1700,1760,1,60\nheld,2000,2600,2020,2080,1,60\n"
        "back,2000,2000,2020,2005,1,60\nlong,2000,2000,2020,5000,1,60\nfine,2000,2000,2020,2080,1,60\n"
    )
    got = read(tmp_path / "log.csv")
    assert got.noted == {
        "that start before they arrive (taken to start on arrival)": 1,
        "that become eligible after their start (taken as eligible at the start)": 1,
        "with an end before the start (the run time counts)": 1,
        "whose elapsed time differs from the time between start and end (the elapsed time counts)": 1,
    }
    assert [(job.observed_start_s, job.eligible_s, job.tasks[0].work) for job in got.jobs] == [
        (0, 0, 60), (20, 20, 60), (20, 0, 60), (20, 0, 60), (20, 0, 60),
    ]  # fmt: skip
    (times,) = got.trace.report.contradictions.values()
    assert (times.count, len(times.reasons), round(times.hours.gpus * 60, 3)) == (4, 4, 4)


def test_rows_of_one_id_that_arrive_at_different_times_are_jobs_of_their_own(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "id,arrival_s,gpus,duration_s\n9,0,1,10\n9,700,2,20\n9,700,2,20\n4,5,1,1\n9,0,1,11\n9,900,3,30\n"
    )
    got = read(tmp_path / "log.csv")
    assert [(job.id, job.arrival_s, job.tasks[0].gpus) for job in got.jobs] == [
        ("9", 0, 1), ("4", 5, 1), ("9#2", 700, 2), ("9#3", 900, 3),
    ]  # fmt: skip
    assert got.dropped == {"given twice": 1, "with the same id as another row": 1}
    assert got.trace.report.contradictions["ids"].count == 3


def test_the_repeated_hour_is_read_by_order_and_duration(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "id,arrival_s,gpus,start_s,end_s,duration_s\n"
        "a,2027-10-31T02:40:00,1,2027-10-31T02:05:00,2027-10-31T02:35:00,1800\n"  # starts in the second 02:05
        "b,2027-10-31T02:40:00,1,2027-10-31T02:50:00,2027-10-31T02:20:00,1800\n"  # ends in the second 02:20
        "c,2027-03-28T01:45:00,1,2027-03-28T01:55:00,2027-03-28T03:15:00,1200\n"  # 02:00 to 03:00 is not there
        "d,2027-03-28T02:30:00,1,2027-03-28T03:50:00,2027-03-28T04:00:00,600\n"
    )
    got = read(tmp_path / "log.csv", timezone="Europe/Berlin")
    waits = {job.id: (job.observed_start_s - job.arrival_s, job.tasks[0].work) for job in got.jobs}
    assert waits == {"a": (1500, 1800), "b": (600, 1800), "c": (600, 1200), "d": (1200, 600)}
    assert got.noted == {"with a time in an hour that does not exist in their time zone (check timezone)": 1}


def test_a_row_with_two_faults_in_its_times_counts_once(read: Any, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "id,arrival_s,start_s,end_s,duration_s,gpus\na,5,3,103,50,1\nb,6,6,106,100,1\nc,7,8,108,100,1\n"
    )
    report = read(tmp_path / "log.csv").trace.report
    assert (report.contradictions["times"].count, sum(report.noted.values())) == (1, 2)
