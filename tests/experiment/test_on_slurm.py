"""``--on slurm`` writes the bytes of ``--on local``; ``submitit`` runs its jobs as processes of this machine."""

from __future__ import annotations

import builtins
import gc
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dagsim.errors import ConfigError, SimulationError, UnknownName
from dagsim.experiment import on_slurm
from dagsim.experiment.cell import Cell
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.executors import CellWork, executor_for
from dagsim.experiment.on_slurm import OnSlurm, SubmitSettings
from dagsim.experiment.plan import Plan

submitit = pytest.importorskip("submitit")
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # submitit leaves processes
SMALL = ["--set", "workload.count=15", "--seeds", "5", "-q", "--no-plots"]


@pytest.fixture(autouse=True)
def _collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Collect the processes that submitit leaves, lest they warn in a later test. It waits 1 s, not
    15, for the results of a job that has gone.
    """
    monkeypatch.setattr(submitit.Job, "_results_timeout_s", 1)
    yield
    gc.collect()


def tables(root: Path, on: str) -> dict[str, bytes]:
    from support.command_line import fine  # not above: the jobs load this module without the folder of the tests

    command = ["baseline", "--algo", "sjf", "--algo", "fifo", *SMALL, "--on", on, "-o", str(root)]
    fine(*command)
    (run,) = root.iterdir()
    return {name: (run / name).read_bytes() for name in ("runs.jsonl", "summary.json")}


def test_a_baseline_in_two_jobs_is_that_of_this_machine(tmp_path: Path) -> None:
    on = f"slurm:cluster=local,jobs=2,folder={tmp_path / 'jobs'}"
    assert tables(tmp_path / "slurm", on) == tables(tmp_path / "local", "local:1")


def cells() -> tuple[Cell, ...]:
    from dagsim.config.schema import load_config

    return Plan.of("baseline", load_config(None, ["workload.count=5", "seeds=4"]), ("fifo",)).cells


class Killed(CellWork):
    """Work whose process is killed when it gets to seed 2, until ``marks`` files are there."""

    def __call__(self, cell: Cell, tell: Any) -> CellRun:
        folder = Path(self.trace or "")
        if cell.seed == cells()[2].seed and len(list(folder.iterdir())) < int(folder.name):
            (folder / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return CellRun(cell.policy, cell.seed)


def run_with_kills(tmp_path: Path, kills: int) -> list[CellRun]:
    """Run four cells in a process that is killed ``kills`` times."""
    (tmp_path / str(kills)).mkdir()
    executor = OnSlurm(f"cluster=local,jobs=1,folder={tmp_path / 'jobs'}")
    return list(executor.run(Killed(trace=str(tmp_path / str(kills))), cells()))


def test_a_job_that_is_killed_runs_again(tmp_path: Path) -> None:
    runs = run_with_kills(tmp_path, 1)
    assert sorted(run.seed for run in runs) == sorted(cell.seed for cell in cells())


def test_a_job_that_is_killed_again_and_again_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_slurm, "_TRIES", 0)
    with pytest.raises(SimulationError, match=r"job \d+ was lost 1 times: .*; its log is .*\.err"):
        run_with_kills(tmp_path, 1)


def test_cells_that_are_not_wanted_are_left_out(tmp_path: Path) -> None:
    executor = OnSlurm(f"cluster=local,folder={tmp_path}")
    first = cells()[0]
    assert [run.seed for run in executor.run(CellWork(), cells(), wanted=lambda cell: cell.seed == first.seed)] == [
        first.seed
    ]
    assert list(executor.run(CellWork(), cells(), wanted=lambda cell: False)) == []


def test_an_error_of_a_cell_is_raised_as_it_is(tmp_path: Path) -> None:
    executor = OnSlurm(f"cluster=local,folder={tmp_path}")
    wrong = [replace(cell, policy="no-such-policy") for cell in cells()]
    with pytest.raises(UnknownName, match="no-such-policy"):
        list(executor.run(CellWork(), wanted=None, cells=wrong))


def test_settings_are_read() -> None:
    assert SubmitSettings.parse("partition=short,jobs=50,minutes=5") == SubmitSettings(
        partition="short", jobs=50, minutes=5
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("partitions=short", r"'partitions=short'.*did you mean 'partition'"),
        ("short", "expected settings NAME=VALUE separated by commas, got 'short'"),
        ("jobs=0", "jobs=0: expected a number from 1 to 1000000"),
        ("minutes=x", "minutes=x: expected a number"),
        ("cluster=pbs", "cluster must be slurm or local, got pbs"),
        ("", "this machine has no command sbatch"),
    ],
)
def test_wrong_settings_are_refused(text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match=message):
        executor_for(f"slurm:{text}")


def test_without_submitit_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any, **options: Any) -> Any:
        if name == "submitit":
            raise ImportError(name)
        return real(name, *more, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[slurm\]'"):
        executor_for("slurm")
