"""A run folder remembers the files that decided it, and a repetition notices when they have changed."""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dagsim.cli import app
from dagsim.families.learning.agents import shipped_agent
from dagsim.systems import system_named

POLICY = """
from dagsim import Start

class Newest:
    def decide(self, view):
        for task in list(view.ready)[::{sign}1]:
            if placement := view.fit(task):
                yield Start(task, placement)
                return
"""
SMALL = ("--set", "workload.count=12", "--seeds", "1", "--no-plots")


def dagsim(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def folder_in(root: Path) -> Path:
    (path,) = root.iterdir()
    return path


def manifest_of(folder: Path) -> dict[str, dict[str, dict[str, str]]]:
    text: dict[str, dict[str, dict[str, str]]] = json.loads((folder / "manifest.json").read_text())
    return text


def sha(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "own_newest.py"
    path.write_text(POLICY.format(sign=""))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_newest", raising=False)
    return path


def test_the_source_of_an_own_policy_is_recorded_and_a_change_is_reported(tmp_path: Path, own: Path) -> None:
    first = dagsim("eval", "--algo", "own_newest:Newest", *SMALL, "-o", tmp_path / "first")
    assert first.exit_code == 0, first.output
    run = folder_in(tmp_path / "first")
    assert manifest_of(run)["code"] == {"own_newest:Newest": {"file": str(own), "sha256": sha(own)}}
    same = dagsim("eval", "--config", run, "--no-plots", "-o", tmp_path / "same")
    assert (same.exit_code, "warning" in same.stderr) == (0, False)
    own.write_text(POLICY.format(sign="-"))
    other = dagsim("eval", "--config", run, "--no-plots", "-o", tmp_path / "other")
    assert "the source of own_newest:Newest has changed" in other.stderr
    assert dagsim("eval", "--config", run, "--algo", "sjf", "--no-plots", "-q", "-o", tmp_path / "sjf").stderr == ""


def test_a_run_is_not_resumed_with_another_source(tmp_path: Path, own: Path) -> None:
    dagsim("eval", "--algo", "own_newest:Newest", *SMALL, "-o", tmp_path / "runs")
    run = folder_in(tmp_path / "runs")
    own.write_text(POLICY.format(sign="-"))
    refused = dagsim("eval", "--resume", run)
    assert refused.exit_code == 2
    assert "cannot be resumed: the source of own_newest:Newest has changed" in refused.stderr


def test_a_repetition_takes_the_agent_that_was_recorded_not_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = shipped_agent("ppo", system_named("cluster"))
    dagsim("eval", "--algo", "ppo", *SMALL, "-o", "first")
    run = folder_in(tmp_path / "first")
    assert manifest_of(run)["checkpoints"] == {"ppo": {"file": str(shipped), "sha256": sha(shipped)}}
    newer = tmp_path / "results" / "20990101T000000Z-train-ppo-s0-000000" / "best.pt"
    newer.parent.mkdir(parents=True)
    newer.write_bytes(shipped.read_bytes())
    dagsim("eval", "--config", run, "--no-plots", "-o", "again")
    assert manifest_of(folder_in(tmp_path / "again"))["checkpoints"].keys() == {"ppo"}
    assert (run / "runs.jsonl").read_bytes() == (folder_in(tmp_path / "again") / "runs.jsonl").read_bytes()
    dagsim("eval", "--algo", "ppo", *SMALL, "-o", "fresh")
    (checkpoint,) = manifest_of(folder_in(tmp_path / "fresh"))["checkpoints"].values()
    assert Path(checkpoint["file"]) == newer


def test_a_changed_trace_is_reported(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("id,arrival_s,duration_s,gpus\na,0,10,1\nb,5,20,2\n")
    first = dagsim("replay", "--trace", trace, "--no-plots", "-o", tmp_path / "first")
    assert first.exit_code == 0, first.output
    run = folder_in(tmp_path / "first")
    assert manifest_of(run)["traces"] == {str(trace): {"file": str(trace), "sha256": sha(trace)}}
    trace.write_text(trace.read_text() + "c,9,30,1\n")
    assert "the trace" in dagsim("eval", "--config", run, "--no-plots", "-o", tmp_path / "again").stderr
