"""``--on ray`` writes the bytes of ``--on local``, whatever the order in which cells end.

Ray itself is checked by ``scripts/check_ray.py`` and, where it is installed, by ``tests/test_resume.py``; here a
stand-in answers the latest cell first.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from dagsim.cli import app


class Remote:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def options(self, **_: object) -> Remote:
        return self

    def remote(self, work: bytes, cell: Any, *more: Any) -> bytes:
        return pickle.dumps(self.function(pickle.loads(work), pickle.loads(pickle.dumps(cell)), *more))


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> None:
    module, exceptions = ModuleType("ray"), ModuleType("ray.exceptions")
    exceptions.RayError = exceptions.RayTaskError = type("RayError", (Exception,), {})
    module.__dict__.update(
        exceptions=exceptions,
        is_initialized=lambda: False,
        init=lambda **_: None,
        shutdown=lambda: None,
        put=pickle.dumps,
        get=pickle.loads,
        cluster_resources=lambda: {"CPU": 2},
        remote=Remote,
        wait=lambda pending, num_returns: (pending[-1:], pending[:-1]),
    )
    monkeypatch.setitem(sys.modules, "ray", module)
    monkeypatch.setitem(sys.modules, "ray.exceptions", exceptions)


def tables(root: Path, on: str, *arguments: object) -> dict[str, bytes]:
    command = [*arguments, "--on", on, "-q", "-o", root / on.replace(":", "")]
    ended = CliRunner().invoke(app, [str(each) for each in command])
    assert ended.exit_code == 0, ended.output
    (run,) = (root / on.replace(":", "")).iterdir()
    return {name: (run / name).read_bytes() for name in ("runs.jsonl", "summary.json")} | {
        path.name: path.read_bytes() for path in [*run.glob("*.csv*"), *run.glob("schedules/*")]
    }


@pytest.mark.usefixtures("ray")
def test_a_baseline_on_ray_is_kept_in_the_order_of_its_plan(tmp_path: Path) -> None:
    arguments = ("baseline", "--algo", "sjf", "--algo", "fifo", "--seeds", 5, "--set", "workload.count=15")
    assert tables(tmp_path, "ray", *arguments, "--no-plots") == tables(tmp_path, "local:1", *arguments, "--no-plots")


@pytest.mark.usefixtures("ray")
def test_a_trace_is_sent_to_the_workers(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("id,arrival_s,gpus,duration_s\n" + "".join(f"j{n},{n},{1 + n % 4},{9 + n}\n" for n in range(20)))
    arguments = ("replay", "--trace", log, "--algo", "sjf", "--no-plots")
    runs = tmp_path / "runs"
    assert tables(runs, "ray", *arguments) == tables(runs, "local:1", *arguments)


@pytest.mark.usefixtures("ray")
def test_a_plan_on_ray_finds_the_size_that_it_finds_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"j{n},{50 * n},1,{90 + 7 * n % 40}\n" for n in range(80))
    Path("log.csv").write_text("id,arrival_s,gpus,duration_s\n" + rows, encoding="utf-8")
    Path("c.yaml").write_text("cluster: {groups: [{name: n, gpu: T4, gpus: 1, count: 2}]}\n", encoding="utf-8")
    answers = []
    for on in ("ray", "local:1"):
        command = ["plan", "--trace", "log.csv", "--cluster", "c.yaml", "--target", "wait_s.p95<60", "--price", "none"]
        ended = CliRunner().invoke(app, [*command, "--on", on, "-o", on[:3], "--json"])
        assert ended.exit_code == 0, ended.output
        answers.append({key: value for key, value in json.loads(ended.stdout).items() if key != "run"})
    assert answers[0]["best"]["gpus"] >= 2
    assert answers[0] == answers[1]


@pytest.mark.usefixtures("ray")
def test_the_report_of_a_training_on_ray_is_that_of_this_machine(tmp_path: Path) -> None:
    settings = [f"train.{key}" for key in ("algorithm.sequences=2", "algorithm.replicas=2", "net.hidden=8")]
    settings += [f"train.{key}" for key in ("linear_iterations=0", "validation_seeds=2", "report_seeds=3")]
    settings += ["train.reference=sjf", "train.rivals=[fifo]", "workload.count=6"]
    words = [word for setting in settings for word in ("--set", setting)]
    reports = []
    for on in ("ray", "local:1"):
        out = tmp_path / on[:3]
        ended = CliRunner().invoke(app, ["train", *words, "--iterations", "1", "--on", on, "-q", "-o", str(out)])
        assert ended.exit_code == 0, ended.output
        reports += [report.read_text(encoding="utf-8") for report in out.glob("*/report.csv")]
    assert reports[0].count("\n") == 4
    assert reports == [reports[0]] * 2


@pytest.mark.usefixtures("ray")
def test_workers_are_not_counted_on_ray(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["eval", "--on", "ray", "--workers", "2", "-o", str(tmp_path)])
    assert ended.exit_code == 2
    assert "--workers 2: goes with --on local only" in ended.stderr
    assert not list(tmp_path.iterdir())
