"""WfCommons: executions of workflows in three versions of the format."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagsim.errors import TraceError
from dagsim.traces import open_trace

Reading = Callable[..., Any]


def test_specification_and_execution_are_joined(read: Reading, samples: Path) -> None:
    got = read(samples / "wfcommons" / "v15.json")
    (job,) = got.jobs
    assert got.trace.format == "wfcommons"
    assert [(task.name, task.work, task.cpus, task.gpus) for task in job.tasks] == [
        ("t1", 3.5, 4, 0), ("t2", 10, 1, 0), ("t3", 0, 1, 0),
    ]  # fmt: skip
    assert {tuple(edge) for edge in job.graph.edges} == {(0, 1, 120), (0, 2, 20)}
    assert got.noted == {"edges to tasks that are not there (taken as satisfied)": 1}


def test_older_versions_keep_everything_with_the_task(read: Reading, samples: Path) -> None:
    (job,) = read(samples / "wfcommons" / "v13.json").jobs
    assert [(task.name, task.work, task.cpus) for task in job.tasks] == [("a", 2, 2), ("b", 5, 1)]
    assert [tuple(edge) for edge in job.graph.edges] == [(0, 1, 50)]


def test_a_task_without_runtime_loses_the_job(tmp_path: Path, samples: Path) -> None:
    text = (samples / "wfcommons" / "v15.json").read_text()
    (tmp_path / "a.json").write_text(text.replace('"runtimeInSeconds": 10, ', ""))
    trace = open_trace(tmp_path / "a.json")
    with pytest.raises(TraceError, match="dropped 2 of jobs that lost another task, 1 without runtime"):
        list(trace.jobs())


def test_broken_json_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"schemaVersion": "1.5",\n "workflow": {,}}\n')
    with pytest.raises(TraceError, match=r"a\.json:2: not JSON"):
        list(open_trace(tmp_path / "a.json").jobs())


@pytest.mark.data
def test_every_file_has_the_measured_critical_path(read: Reading, data: Path) -> None:
    folder = data / "traces" / "wfcommons"
    with (folder / "STATS.csv").open() as file:
        rows = list(csv.DictReader(file, skipinitialspace=True))
    assert rows
    for row in rows[::3]:  # validate_wfcommons.py reads all
        if not (folder / row["file"]).exists():
            continue
        (job,) = read(folder / row["file"]).jobs
        seconds = [task.work for task in job.tasks]
        assert len(seconds) == int(row["tasks"]), row["file"]
        assert len(job.graph.edges) == int(row["edges"]), row["file"]
        assert job.graph.depth() == int(row["depth"]), row["file"]
        assert job.graph.critical_path(seconds) == pytest.approx(float(row["critical_path_s"]), abs=0.06), row["file"]
