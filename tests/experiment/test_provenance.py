"""A run folder remembers the files that decided it, and a repetition notices when they have changed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from experiment.manifests import SMALL, folder_in, manifest_of, sha
from support.command_line import fine, invoke

POLICY = """
from dagsim import Start

class Newest:
    def decide(self, view):
        for task in list(view.ready)[::{sign}1]:
            if placement := view.fit(task):
                yield Start(task, placement)
                return
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "own_newest.py"
    path.write_text(POLICY.format(sign=""))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_newest", raising=False)
    return path


def test_the_source_of_an_own_policy_is_recorded_and_a_change_is_reported(tmp_path: Path, own: Path) -> None:
    fine("eval", "--algo", "own_newest:Newest", *SMALL, "-o", tmp_path / "first")
    run = folder_in(tmp_path / "first")
    assert manifest_of(run)["code"] == {"own_newest:Newest": {"file": str(own), "sha256": sha(own)}}
    same = invoke("eval", "--config", run, "--no-plots", "-o", tmp_path / "same")
    assert (same.exit_code, "warning" in same.stderr) == (0, False)
    own.write_text(POLICY.format(sign="-"))
    other = invoke("eval", "--config", run, "--no-plots", "-o", tmp_path / "other")
    assert "the source of own_newest:Newest has changed" in other.stderr
    assert invoke("eval", "--config", run, "--algo", "sjf", "--no-plots", "-q", "-o", tmp_path / "sjf").stderr == ""


def test_a_run_is_not_resumed_with_another_source(tmp_path: Path, own: Path) -> None:
    invoke("eval", "--algo", "own_newest:Newest", *SMALL, "-o", tmp_path / "runs")
    run = folder_in(tmp_path / "runs")
    own.write_text(POLICY.format(sign="-"))
    refused = invoke("eval", "--resume", run)
    assert refused.exit_code == 2
    assert "cannot be resumed: the source of own_newest:Newest has changed" in refused.stderr


def test_a_changed_trace_is_reported(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("id,arrival_s,duration_s,gpus\na,0,10,1\nb,5,20,2\n")
    fine("replay", "--trace", trace, "--no-plots", "-o", tmp_path / "first")
    run = folder_in(tmp_path / "first")
    assert manifest_of(run)["traces"] == {str(trace): {"file": str(trace), "sha256": sha(trace)}}
    trace.write_text(trace.read_text() + "c,9,30,1\n")
    assert "the trace" in invoke("eval", "--config", run, "--no-plots", "-o", tmp_path / "again").stderr
