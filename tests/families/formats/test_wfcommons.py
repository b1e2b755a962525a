"""WfCommons: executions of workflows in three versions of the format."""

from __future__ import annotations

import csv
import json
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
    assert got.noted == {"edges to missing tasks (taken as satisfied)": 1}


def test_older_versions_keep_everything_with_the_task(read: Reading, samples: Path) -> None:
    (job,) = read(samples / "wfcommons" / "v13.json").jobs
    assert [(task.name, task.work, task.cpus) for task in job.tasks] == [("a", 2, 2), ("b", 5, 1)]
    assert [tuple(edge) for edge in job.graph.edges] == [(0, 1, 50)]


def test_a_task_without_runtime_loses_the_job(tmp_path: Path, samples: Path) -> None:
    text = (samples / "wfcommons" / "v15.json").read_text()
    (tmp_path / "a.json").write_text(text.replace('"runtimeInSeconds": 10, ', ""))
    trace = open_trace(tmp_path / "a.json")
    with pytest.raises(TraceError, match="dropped 2 of jobs from which another task was dropped, 1 without runtime"):
        list(trace.jobs())


def test_broken_json_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"schemaVersion": "1.5",\n "workflow": {,}}\n')
    with pytest.raises(TraceError, match=r"a\.json:2: invalid JSON"):
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


@pytest.mark.parametrize("version", [{"schemaVersion": "1.2"}, {}], ids=["stated", "not stated"])
def test_the_oldest_versions_list_jobs(read: Reading, tmp_path: Path, version: dict[str, str]) -> None:
    jobs = [
        {"name": "cut", "type": "compute", "runtime": 4, "cores": 2,
         "files": [{"name": "x", "size": 7, "link": "output"}]},
        {"name": "paste", "type": "compute", "runtime": 9, "parents": ["cut"],
         "files": [{"name": "x", "size": 7, "link": "input"}]},
    ]  # fmt: skip
    (tmp_path / "old.json").write_text(
        json.dumps({"name": "old", **version, "workflow": {"makespan": 15, "jobs": jobs}})
    )
    (job,) = read(tmp_path / "old.json").jobs
    assert [(task.name, task.work, task.cpus) for task in job.tasks] == [("cut", 4, 2), ("paste", 9, 1)]
    assert [tuple(edge) for edge in job.graph.edges] == [(0, 1, 7)]


@pytest.mark.parametrize("by", ["id", "name"])
def test_parents_are_ids_or_names(read: Reading, tmp_path: Path, by: str) -> None:
    tasks = [{"id": f"T{at}", "name": f"step{at}_T{at}", "runtimeInSeconds": 5 * at + 1} for at in range(4)]
    for parent, child in ((0, 1), (0, 2), (1, 3), (2, 3)):
        tasks[parent].setdefault("children", []).append(tasks[child][by])  # type: ignore[union-attr,attr-defined]
        tasks[child].setdefault("parents", []).append(tasks[parent][by])  # type: ignore[union-attr,attr-defined]
    (tmp_path / "w.json").write_text(
        json.dumps({"name": "w", "schemaVersion": "1.4", "workflow": {"makespanInSeconds": 40, "tasks": tasks}})
    )
    got = read(tmp_path / "w.json")
    assert [edge[:2] for edge in got.jobs[0].graph.edges] == [(0, 1), (0, 2), (1, 3), (2, 3)]
    assert got.noted == {}
