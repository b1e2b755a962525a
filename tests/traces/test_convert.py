"""Converting a trace keeps its jobs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dagsim.errors import ConfigError, TraceError, WorkloadError
from dagsim.model import Edge, Job, Task, TaskGraph
from dagsim.traces import convert as parquet
from dagsim.traces import open_trace
from dagsim.traces.convert import convert, write_parquet
from dagsim.workload.records import read_jobs

SAMPLES = Path(__file__).parents[2] / "workloads" / "samples"


@pytest.mark.family("formats")
@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_the_jobs_are_those_of_the_trace(tmp_path: Path, ending: str) -> None:
    source = next(path for path in sorted((SAMPLES / "swf").iterdir()) if ".swf" in path.name)
    report, _ = convert(source, tmp_path / f"out{ending}", "swf")
    jobs = list(read_jobs(tmp_path / f"out{ending}"))
    assert jobs == list(open_trace(source, "swf").jobs())
    assert report.jobs == len(jobs) > 0


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="jsonl"):
        convert(SAMPLES / "swf", tmp_path / "out.csv")


@pytest.mark.family("formats")
def test_jobs_are_counted_as_they_are_written(tmp_path: Path) -> None:
    seen: list[Job] = []

    def counted(jobs: Any) -> Any:
        for job in jobs:
            seen.append(job)
            yield job

    convert(SAMPLES / "itp" / "cluster01.csv", tmp_path / "out.jsonl", "itp", counted)
    assert seen == list(read_jobs(tmp_path / "out.jsonl"))


@pytest.mark.family("formats")
def test_without_pyarrow_it_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[parquet\]'"):
        convert(SAMPLES / "itp" / "cluster01.csv", tmp_path / "out.parquet", "itp")
    assert not list(tmp_path.iterdir())


class TestParquet:
    """Where pyarrow is installed."""

    @pytest.fixture(autouse=True)
    def _pyarrow(self) -> None:
        pytest.importorskip("pyarrow")

    def rows(self, path: Path) -> list[dict[str, Any]]:
        import pyarrow.parquet

        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
        return rows

    def test_a_row_is_a_task_with_its_job(self, tmp_path: Path) -> None:
        first = Task("map", 30.0, instances=4, gpus=0.5, gpu_types=("T4", "A100"), speeds={"T4": 1.0, "A100": 2.5})
        second = Task("reduce", 9.0, gang=True, cpus=2.0, memory_gb=1.5, model="bert", batch=8, estimate=12.0)
        graph = TaskGraph((first, second), (Edge(0, 1, 2e6),))
        job = Job("j", graph, 12.5, priority=2.0, tenant="vc", deadline_s=99.0, weight=3.0)
        write_parquet(tmp_path / "out.parquet", [Job.single("i", Task("only", 1.0)), job], {"note": "here"})
        of_job = {"job_id": "j", "arrival_s": 12.5, "priority": 2.0, "tenant": "vc", "deadline_s": 99.0, "weight": 3.0}
        only, *rows = self.rows(tmp_path / "out.parquet")
        assert (only["job_id"], only["deadline_s"], only["gpu_types"], only["parents"]) == ("i", None, None, [])
        assert rows == [
            of_job
            | {"task": 0, "name": "map", "work": 30.0, "instances": 4, "gang": False, "gpus": 0.5, "cpus": 0.0}
            | {"memory_gb": 0.0, "gpu_types": ["T4", "A100"], "speeds": [("T4", 1.0), ("A100", 2.5)], "model": None}
            | {"batch": None, "estimate": None, "parents": [], "parent_bytes": []},
            of_job
            | {"task": 1, "name": "reduce", "work": 9.0, "instances": 1, "gang": True, "gpus": 1.0, "cpus": 2.0}
            | {"memory_gb": 1.5, "gpu_types": None, "speeds": None, "model": "bert", "batch": 8, "estimate": 12.0}
            | {"parents": [0], "parent_bytes": [2e6]},
        ]

    def test_it_is_written_in_groups_and_says_where_it_comes_from(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import pyarrow.parquet

        monkeypatch.setattr(parquet, "_GROUP", 4)
        source = SAMPLES / "alibaba2018" / "batch_task.csv"
        report, _ = convert(source, tmp_path / "out.parquet", "alibaba2018")
        file = pyarrow.parquet.ParquetFile(tmp_path / "out.parquet")
        assert file.metadata.num_rows == report.kept == 14
        assert [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] == [4, 4, 4, 2]
        assert json.loads(file.metadata.metadata[b"dagsim"])["format"] == "alibaba2018"
        jobs = list(open_trace(source, "alibaba2018").jobs())
        tasks = [(job.id, task.name, task.work) for job in jobs for task in job.tasks]
        assert [(row["job_id"], row["name"], row["work"]) for row in self.rows(tmp_path / "out.parquet")] == tasks

    def test_pandas_reads_it(self, tmp_path: Path) -> None:
        import pandas

        convert(SAMPLES / "itp" / "cluster01.csv", tmp_path / "out.parquet", "itp")
        frame = pandas.read_parquet(tmp_path / "out.parquet")
        assert list(frame["job_id"]) == [job.id for job in open_trace(SAMPLES / "itp" / "cluster01.csv", "itp").jobs()]

    def test_a_number_too_large_leaves_nothing_behind(self, tmp_path: Path) -> None:
        with pytest.raises(WorkloadError, match="cannot be written"):
            write_parquet(tmp_path / "out.parquet", [Job.single("i", Task("only", 1.0, instances=10**30))], {})
        assert not list(tmp_path.iterdir())

    def test_a_trace_that_breaks_off_leaves_nothing_behind(self, tmp_path: Path) -> None:
        (tmp_path / "cut.jsonl").write_text('{"format":"dagsim-workload","version":1,"meta":{}}\n{"id":')
        with pytest.raises(TraceError, match=r"cut\.jsonl:2"):
            convert(tmp_path / "cut.jsonl", tmp_path / "out.parquet", "jsonl")
        assert [path.name for path in tmp_path.iterdir()] == ["cut.jsonl"]
