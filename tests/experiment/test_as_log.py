"""A run written as Slurm's accounting: replayed as recorded, every job starts and ends when it did."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import fine, invoke

from dagsim.experiment.store import Store
from dagsim.model import Kind

LOG = """id,arrival_s,gpus,cpus,duration_s,estimate_s,instances
a,0,4,8,600,1200,2
b,50,8,4,900,900,1
c,75,2,2,3000,3600,1
d,75,8,8,250,300,3
e,500.5,1,1,77.25,100,1
f,900,0,12,1000,2000,2
"""
CLUSTER = "cluster:\n  groups:\n  - {name: big, count: 3, gpu: V100-16, gpus: 8, cpus: 32, memory_gb: 256}\n"


def run(*options: str) -> str:
    return fine(*options).output


def spans(folder: Path) -> list[tuple[str, float, float]]:
    """Start and end of each job, from the first arrival."""
    schedule = Store.open(folder).schedule(0)
    first_s = min(job.arrival_s for job in schedule.jobs)
    begun: dict[int, float] = {}
    ended = []
    for row in schedule.log:
        if row.kind == Kind.STARTED:
            begun.setdefault(row.run, row.time_s)
        elif row.kind == Kind.FINISHED and row.run in begun:
            ended.append((schedule.jobs[row.job].id, begun.pop(row.run) - first_s, row.time_s - first_s))
    return sorted(ended)


@pytest.mark.parametrize("algo", ["easy", "conservative", "sjf", "slurm-multifactor"])
def test_every_start_and_end_returns(tmp_path: Path, algo: str) -> None:
    (tmp_path / "log.csv").write_text(LOG)
    (tmp_path / "c.yaml").write_text(CLUSTER)
    out = ["--no-plots", "--quiet", "--config", str(tmp_path / "c.yaml"), "--out"]
    run("replay", "--trace", str(tmp_path / "log.csv"), "--algo", algo, *out, str(tmp_path / "one"))
    (first,) = (tmp_path / "one").iterdir()
    output = run("trace", "convert", str(first), str(tmp_path / "log.txt"), "--to-format", "sacct")
    assert "6 jobs" in output
    run("replay", "--trace", str(tmp_path / "log.txt"), "--algo", "recorded", *out, str(tmp_path / "two"))
    (second,) = (tmp_path / "two").iterdir()
    one, two = spans(first), spans(second)
    assert [job for job, *_ in one] == [job for job, *_ in two]
    assert [times for _, *times in two] == [pytest.approx(times, abs=1e-6) for _, *times in one]


def test_what_is_no_log_is_said(tmp_path: Path) -> None:
    out = ["--no-plots", "--quiet", "--out", str(tmp_path)]
    run(
        "eval",
        "--algo",
        "sjf",
        "--workload",
        "heterogeneous-dag",
        "--set",
        "workload.count=5",
        "--seeds",
        "1",
        "--name",
        "dag",
        *out,
    )
    (folder,) = tmp_path.iterdir()
    for options, text in (
        (["--to-format", "sacct"], "cannot be written as sacct"),
        ([], "a run can only be written as batsim"),
    ):
        ended = invoke("trace", "convert", folder, tmp_path / "x.txt", *options)
        assert ended.exit_code == 2
        assert text in " ".join(ended.output.split())


def test_the_first_run_of_a_folder_is_written(tmp_path: Path) -> None:
    many = ["--set", "workload.count=20", "--seeds", "2", "--workers", "1", "--no-plots", "--quiet"]
    run("eval", "--policy", "sjf", *many, "--out", str(tmp_path / "runs"))
    (folder,) = (tmp_path / "runs").iterdir()
    first, second = [line.seed for line in Store.open(folder).lines()]
    output = run("trace", "convert", str(folder), str(tmp_path / "log.csv"), "--to-format", "plain")
    assert f"seed {first}:" in output
    assert f"seed {second}:" not in output
