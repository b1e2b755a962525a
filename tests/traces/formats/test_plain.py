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
    assert [job.id for job in sample.jobs] == ["a", "b", "c", "d", "o, quoted"]


def test_every_dirty_row_is_dropped_for_its_reason(sample: Any) -> None:
    assert sample.dropped == {
        "without arrival_s": 1,
        "with a negative duration_s": 1,
        "that describe an impossible job": 2,
        "whose id another row has": 1,
        "given twice": 1,
        "with a negative arrival_s": 1,
        "whose gpus is not a number": 1,
        "whose instances is impossible": 1,
        "whose gang is neither yes nor no": 1,
        "with a wrong number of fields": 1,
        "without an id": 1,
        "whose duration_s is not a number": 1,
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
        "of jobs that lost another row": 2,
        "whose task another row has": 1,
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
    assert got.dropped == {"whose level_required is neither yes nor no": 1, "whose segment is impossible": 1}
