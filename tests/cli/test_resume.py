"""Commands that are stopped and go on: kill -9, signals, several processes, policies that fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.command_line import fine, invoke
from support.process_states import alive, children

from dagsim.experiment.store import Store

ROOT = Path(__file__).parents[2]
SMALL = ["--set", "cluster.groups=[{name: t4, gpu: T4, gpus: 8}]", "--set", "workload.count=10"]
TRACE = ROOT / "workloads" / "samples" / "plain" / "jobs.csv"
SAME = ("config.yaml", "runs.jsonl", "jobs.csv.gz", "tasks.csv.gz", "summary.json")


def begun(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from dagsim.cli import main; main()", *map(str, arguments)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True)


def folder_in(root: Path) -> Store:
    (path,) = root.iterdir()
    return Store.open(path)


def lines_in(root: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in root.glob("*/runs.jsonl"))


def wait_for_lines(root: Path, number: int) -> None:
    for _ in range(3000):  # Ray takes seconds to start
        if lines_in(root) >= number:
            return
        time.sleep(0.02)
    raise AssertionError("no run was finished")


def contents(path: Path) -> dict[str, bytes]:
    files = [path / name for name in SAME] + sorted((path / "schedules").iterdir())
    return {file.name: file.read_bytes() for file in files}


COMMANDS = {
    "eval": ["eval", "--policy", "sjf", *SMALL, "--seeds", 60],
    "baseline": ["baseline", "-a", "sjf", "-a", "heft", *SMALL, "--seeds", 30],
    "replay": ["replay", "--trace", TRACE, "--policy", "sjf", "--cluster", "sized", "--seeds", 60],
    "tune": ["tune", "--policy", "eft-wait", "--param", "theta=0.8,0.9", *SMALL, "--seeds", 25],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_killed_it_goes_on_to_the_bytes_of_one_that_was_not(tmp_path: Path, name: str) -> None:
    quiet = ["--quiet"] if name == "tune" else ["--quiet", "--no-plots"]
    process = begun(*COMMANDS[name], *quiet, "--workers", 1, "--out", tmp_path / "killed")
    wait_for_lines(tmp_path / "killed", 3)
    process.kill()
    process.communicate()
    folder = folder_in(tmp_path / "killed")
    assert folder.state == "interrupted"
    assert 3 <= len(folder.lines()) < 60
    fine(name, "--resume", folder.path, *quiet)
    fine(*COMMANDS[name], *quiet, "--out", tmp_path / "whole")
    assert folder.state == "done"
    assert contents(folder.path) == contents(folder_in(tmp_path / "whole").path)


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_killed_on_ray_it_goes_on_there_to_the_bytes_of_one_that_was_not(tmp_path: Path) -> None:
    arguments = ["baseline", "-a", "sjf", "-a", "fifo", *SMALL, "--seeds", 30, "--quiet", "--no-plots"]
    process = begun(*arguments, "--executor", "ray", "--out", tmp_path / "killed")
    wait_for_lines(tmp_path / "killed", 3)
    process.kill()
    process.communicate()
    folder = folder_in(tmp_path / "killed")
    assert folder.state == "interrupted"
    assert 3 <= len(folder.lines()) < 60
    resumed = begun("baseline", "--resume", folder.path, "--executor", "ray", "--quiet", "--no-plots")
    _, errors = resumed.communicate()
    assert resumed.returncode == 0, errors
    fine(*arguments, "--workers", 1, "--out", tmp_path / "whole")
    assert folder.state == "done"
    assert contents(folder.path) == contents(folder_in(tmp_path / "whole").path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_with_its_code_and_says_how_to_go_on(tmp_path: Path, number: int, code: int) -> None:
    process = begun("eval", *SMALL, "--seeds", 100_000, "--out", tmp_path, "--no-plots", "--workers", 1)
    wait_for_lines(tmp_path, 1)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    folder = folder_in(tmp_path)
    assert process.returncode == code
    assert folder.state == "interrupted"
    assert f"continue with: dagsim eval --resume {folder.path}" in stderr


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    process = begun("eval", *SMALL, "--seeds", 100_000, "--out", tmp_path, "--no-plots", "--workers", 2)
    wait_for_lines(tmp_path, 1)
    workers: list[int] = []
    for _ in range(600):
        workers = children(process.pid)
        if len(workers) >= 2 and lines_in(tmp_path) > 150:  # well after the start of the workers
            break
        time.sleep(0.05)
    assert len(workers) >= 2
    process.kill()
    process.communicate()
    for _ in range(200):
        if not any(alive(pid) for pid in workers):
            return
        time.sleep(0.05)
    raise AssertionError("workers live on")


def test_options_that_the_folder_answers_are_refused_beside_resume(tmp_path: Path) -> None:
    fine("eval", *SMALL, "--seeds", 1, "--no-plots", "--out", tmp_path)
    path = folder_in(tmp_path).path
    result = invoke("eval", "--resume", path, "--policy", "sjf", "--seeds", 3)
    assert result.exit_code == 2
    assert "leave out --policy, --seeds" in result.stderr
    result = invoke("baseline", "--resume", path)
    assert result.exit_code == 2
    assert f"was created by dagsim eval; to continue it, run dagsim eval --resume {path}" in result.stderr


FAILING = """
from dagsim.systems.cluster.policies import POLICIES

class Dies:
    def __init__(self):
        self.fifo = POLICIES.create("fifo")
        self.asked = 0

    def decide(self, view):
        self.asked += 1
        if self.asked > 5:
            raise ZeroDivisionError("no luck today")
        yield from self.fifo.decide(view)

class NeverMade:
    def __init__(self):
        raise RuntimeError("not made")

    def decide(self, view):
        return ()
"""


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing_policies.py").write_text(FAILING)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("failing")
def test_a_policy_that_raises_is_named_without_a_traceback(tmp_path: Path) -> None:
    result = invoke("eval", "--policy", "failing_policies:Dies", *SMALL, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "policy 'failing_policies:Dies' raised ZeroDivisionError: no luck today (" in result.stderr
    assert "failing_policies.py:12 in decide)" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    result = invoke("eval", "--policy", "failing_policies:NeverMade", *SMALL, "--out", tmp_path / "out")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert "raised RuntimeError: not made" in result.stderr


@pytest.mark.usefixtures("failing")
def test_a_traceback_is_shown_on_demand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSIM_DEBUG", "1")
    result = invoke("eval", "--policy", "failing_policies:Dies", *SMALL, "--out", tmp_path / "out")
    assert "Traceback" in result.stderr
    assert 'raise ZeroDivisionError("no luck today")' in result.stderr


@pytest.mark.usefixtures("failing")
def test_baseline_reports_the_policies_that_fail_and_goes_on(tmp_path: Path) -> None:
    chosen = ["-a", "sjf", "-a", "failing_policies:Dies", "-a", "failing_policies:NeverMade", "-a", "heft"]
    command = ["baseline", *chosen, *SMALL, "--seeds", 2, "--out", tmp_path / "out", "--no-plots"]
    result = invoke(*command, "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert {row["policy"] for row in answer["standings"]} == {"fifo", "sjf", "heft"}
    assert [(failure["policy"], failure["error"].partition(":")[0]) for failure in answer["failures"]] == [
        ("failing_policies:Dies", "PolicyFailed"),
        ("failing_policies:NeverMade", "PolicyFailed"),
    ]
    assert answer["state"] == "failed"
    assert "failed: failing_policies:Dies, seed 0: " in result.stderr
    table = invoke("baseline", "--resume", answer["run"])
    assert (table.exit_code, "heft" in table.stdout, "failed" in table.stdout) == (1, True, True)
