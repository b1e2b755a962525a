"""Standard Task Graph set: graphs with dummies, alone and as members of an archive."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Reading = Callable[..., Any]


def test_a_graph_is_a_job_with_its_dummies(read: Reading, samples: Path) -> None:
    got = read(samples / "stg" / "rand0.stg")
    (job,) = got.jobs
    assert got.trace.format == "stg"
    assert [task.work for task in job.tasks] == [0, 4, 2.5, 1, 0]
    assert {(task.gpus, task.cpus) for task in job.tasks} == {(0, 1)}
    assert job.graph.critical_path([task.work for task in job.tasks]) == 5  # 0 + 4 + 1 + 0


def test_every_file_of_a_folder_is_a_job(read: Reading, samples: Path) -> None:
    assert [job.id for job in read(samples / "stg").jobs] == ["rand0", "rand1"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1\n0 0 0\n1 x 1 0\n2 0 1 1\n", "with a non-numeric value for processing time"),
        ("1\n0 0 0\n1 4 2 0\n2 0 1 1\n", "with a different number of predecessors than stated"),
        ("1\n0 0 0\n1 4 1 0\n1 4 1 0\n", "with the same id as another row"),
        ("5\n0 0 0\n1 4 1 0\n2 0 1 1\n", "with a different number of rows than stated"),
        ("1\n0 0 0\n1 4 2 0 2\n2 0 1 1\n", "of jobs that are not a DAG"),
    ],
)
def test_a_damaged_graph_is_dropped_whole(read: Reading, samples: Path, tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "a.stg").write_text((samples / "stg" / "rand0.stg").read_text())
    (tmp_path / "b.stg").write_text(text)
    got = read(tmp_path)
    assert [job.id for job in got.jobs] == ["a"]
    assert reason in got.dropped
    assert got.trace.report.kept == 5


@pytest.mark.data
def test_no_critical_path_is_longer_than_the_optimum(read: Reading, data: Path) -> None:
    folder = data / "traces" / "stg"
    got = read(folder / "stg-50.tar.gz")
    assert len(got.jobs) == 180
    assert {len(job.tasks) for job in got.jobs} == {52}
    with (folder / "optimal" / "Case50_16_OPT.csv").open() as file:
        optimal = {Path(name).stem: float(length) for name, _, length in csv.reader(file)}
    for job in got.jobs:
        assert job.graph.critical_path([task.work for task in job.tasks]) <= optimal[job.id]
