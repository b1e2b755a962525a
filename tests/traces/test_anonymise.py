"""Logs and nodes without names: nothing of them is left, and the jobs are the same."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dagsim.cli import app
from dagsim.errors import TraceError
from dagsim.model import Job
from dagsim.traces import open_trace
from dagsim.traces.anonymise import anonymise
from dagsim.traces.nodes import read_nodes
from dagsim.traces.source import Source

SAMPLES = Path(__file__).parents[2] / "workloads" / "samples"


SUBMITTED = ("user", "account", "partition", "qos")


def nameless(jobs: list[Job]) -> list[Job]:
    unnamed = dict.fromkeys(("id", "tenant", *SUBMITTED), "")
    return [replace(job, observed_nodes=(), **unnamed) for job in jobs]


@pytest.mark.parametrize("file", ["sacct/jobs.txt", "sacct/jobs.json"])
def test_a_log_of_slurm_gives_the_same_jobs(tmp_path: Path, file: str) -> None:
    (made,) = anonymise([SAMPLES / file], tmp_path)
    before, after = (list(open_trace(path).jobs()) for path in (SAMPLES / file, made))
    assert nameless(after) == nameless(before)
    assert [job.id for job in after] == [job.id for job in before]
    for kind in ("tenant", *SUBMITTED):
        assert len({getattr(job, kind) for job in after}) == len({getattr(job, kind) for job in before})
    assert not {getattr(job, kind) for job in after for kind in SUBMITTED} & {
        getattr(job, kind) for job in before for kind in SUBMITTED if getattr(job, kind)
    }


def test_no_name_is_left(tmp_path: Path) -> None:
    (made,) = anonymise([SAMPLES / "sacct" / "jobs.txt"], tmp_path)
    words = set(re.findall(r"[A-Za-z][A-Za-z0-9]*", made.read_text()))
    assert not words & {"ines", "jon", "kai", "lea", "mia", "optics", "genes", "n01", "n03", "h", "c01", "high", "low"}
    assert "4242" not in made.read_text()  # CANCELLED by a user id


def test_the_same_name_is_the_same_in_all_files(tmp_path: Path) -> None:
    (tmp_path / "nodes.txt").write_text(
        "NodeName=n03 CPUTot=8 RealMemory=1024 Gres=gpu:t4:4 State=IDLE Partitions=gpu\n"
    )
    log, nodes = anonymise([SAMPLES / "sacct" / "jobs.txt", tmp_path / "nodes.txt"], tmp_path / "out")
    (node,) = read_nodes(Source(nodes))
    job = next(job for job in open_trace(log).jobs() if job.id == "501_1")
    assert job.observed_nodes == (node.name,)
    assert node.gpus == (("t4", 4),)


def test_nodes_keep_what_they_have(tmp_path: Path) -> None:
    (made,) = anonymise([SAMPLES / "nodes" / "scontrol.txt"], tmp_path)
    before, after = (read_nodes(Source(path)) for path in (SAMPLES / "nodes" / "scontrol.txt", made))
    assert [(node.gpus, node.cpus, node.usable) for node in after] == [
        (node.gpus, node.cpus, node.usable) for node in before
    ]
    assert not {node.name for node in before} & {node.name for node in after}
    assert "Xid" not in made.read_text()


@pytest.mark.parametrize("file", ["pbs/20260105", "kubernetes/pods.json"])
def test_other_logs_become_json_lines_of_the_same_jobs(tmp_path: Path, file: str) -> None:
    (made,) = anonymise([SAMPLES / file], tmp_path)
    before, after = (list(open_trace(path).jobs()) for path in (SAMPLES / file, made))
    assert [(job.arrival_s, job.observed_start_s, [task.demand for task in job.tasks]) for job in after] == [
        (job.arrival_s, job.observed_start_s, [task.demand for task in job.tasks]) for job in before
    ]
    text = gzip.decompress(made.read_bytes()).decode()
    assert not set(re.findall(r"\w+", text)) & {"noor", "omar", "pia", "optics", "genes", "q1", "q2", "fit", "lone"}


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello\n")
    with pytest.raises(TraceError, match="not recognised"):
        anonymise([tmp_path / "x"], tmp_path / "out")


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    arguments = ["trace", "anonymise", str(SAMPLES / "sacct" / "jobs.txt"), "--to", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert re.search(r"\d+ names replaced", result.output)


@pytest.mark.data
def test_real_runs_are_the_same_without_names(tmp_path: Path, data: Path) -> None:
    for run in ("states-24.11", "preempt-24.11", "multifactor-classic-22.05"):
        path = data / "golden" / "slurm" / run / "sacct-aDX.txt"
        (made,) = anonymise([path], tmp_path / run)
        assert nameless(list(open_trace(made).jobs())) == nameless(list(open_trace(path).jobs()))
