"""Damaged run folders are reported with the place of the damage; none is compared without a word."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.command_line import fine, invoke

from dagsim.experiment import executors
from dagsim.metrics import to_csv

SMALL = ("--set", "workload.count=10", "--no-plots", "-q")


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undamaged")
    fine("baseline", "--algo", "sjf", "--seeds", "4", *SMALL, "-o", folder)
    (path,) = folder.iterdir()
    return path


@pytest.fixture
def run(undamaged: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(undamaged, tmp_path / undamaged.name))


@pytest.mark.parametrize("damage", [b'x\xff\n{"a"', b"[1]\n", b'{"policy"\n'])
@pytest.mark.parametrize("command", [("compare",), ("report",), ("baseline", "--resume")])
def test_a_damaged_line_is_an_error_that_names_it(run: Path, damage: bytes, command: tuple[str, ...]) -> None:
    path = run / "runs.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + damage + b"".join(lines[1:]))
    ended = invoke(*command, run)
    assert ended.exit_code == 2, ended.output
    assert "runs.jsonl:2: damaged" in ended.stderr


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"seeds": ' + "9" * 5000 + "}"])
@pytest.mark.parametrize("name", ["manifest.json", "status.json", "runs.jsonl"])
@pytest.mark.parametrize("command", ["compare", "report"])
def test_json_without_end_is_an_error_that_names_the_file(run: Path, name: str, text: str, command: str) -> None:
    (run / name).write_text(text + "\n")
    ended = invoke(command, run)
    assert ended.exit_code == 2, ended.exception
    assert name in ended.stderr


@pytest.mark.parametrize(("old", "new"), [(r'"seed": \d+', '"seed": [0]'), (r'"policy": "sjf"', '"policy": {"a": 1}')])
def test_a_line_whose_seed_or_policy_is_something_else_is_an_error(run: Path, old: str, new: str) -> None:
    path = run / "runs.jsonl"
    text = path.read_text()
    assert re.search(old, text)
    path.write_text(re.sub(old, new, text))
    ended = invoke("compare", run)
    assert ended.exit_code == 2, ended.exception
    assert ": damaged: " in ended.stderr


@pytest.mark.parametrize("command", ["compare", "report"])
def test_a_truncated_folder_says_how_many_runs_are_there(run: Path, command: str) -> None:
    assert "contains only" not in invoke(command, run).stderr
    path = run / "runs.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:6]))
    ended = invoke(command, run)
    text = ended.stderr if command == "compare" else (run / "report.html").read_text()
    assert "contains only 6 of 8 runs" in text


def test_a_truncated_sweep_says_how_many_runs_are_there(tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text("set: {workload.count: 5}\nover: {policy: [fifo, sjf]}\nseeds: 5\n")
    fine("sweep", grid, "-q", "-o", tmp_path)
    path = tmp_path / "sweep-grid" / "runs.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:7]))
    assert "contains only 7 of 10 runs" in invoke("compare", tmp_path / "sweep-grid").stderr


def test_a_comparison_is_written_to_the_same_bytes_again(run: Path, tmp_path: Path) -> None:
    fine("baseline", "--config", run, "--algo", "sjf", "--no-plots", "-q", "-o", tmp_path / "b")
    (again,) = (tmp_path / "b").iterdir()
    assert (again / "comparison.csv").read_bytes() == (run / "comparison.csv").read_bytes()


def test_texts_that_a_spreadsheet_would_run_are_escaped_and_numbers_are_not() -> None:
    texts = ["=1+1", "+x", "-x", "@x", "-1.5", "+2", "a=b", ""]
    rows = list(csv.reader(to_csv({"=head": texts, "n": [-1] * len(texts)}).splitlines()))
    assert rows[0] == ["'=head", "n"]
    assert [row[0] for row in rows[1:]] == ["'=1+1", "'+x", "'-x", "'@x", "-1.5", "+2", "a=b", ""]
    assert {row[1] for row in rows[1:]} == {"-1"}


def test_a_sweep_that_was_killed_before_it_had_its_name_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "grid.yaml").write_text("set: {workload.count: 5}\nover: {policy: [fifo]}\nseeds: 1\n")

    def killed(*_: object, **__: object) -> None:
        raise SystemExit(137)

    with monkeypatch.context() as patch:
        patch.setattr("dagsim.experiment.store.rename_free", killed)
        invoke("sweep", tmp_path / "grid.yaml", "-q", "-o", tmp_path / "out")
    assert not (tmp_path / "out" / "sweep-grid").exists()
    fine("sweep", tmp_path / "grid.yaml", "-q", "-o", tmp_path / "out")
    status = json.loads((tmp_path / "out" / "sweep-grid" / "status.json").read_text())
    assert status["state"] == "done"
    fine("sweep", tmp_path / "out" / "sweep-grid", "-q")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("kind", 77, "row 0: kind must not be 77"),
        ("time_s", float("nan"), "row 0: time_s must not be nan"),
        ("value", float("inf"), "row 0: value must not be inf"),
        ("job", -5, "row 0: job must not be -5"),
        ("node", 999, "node must not be 999"),
        ("gpus", -1, "gpus must not be -1"),
        ("task", 9999, "task must not be 9999"),
    ],
)
@pytest.mark.parametrize("command", [("report",), ("plot", "--run", "0"), ("why", "#0"), ("record",)])
def test_a_schedule_that_was_edited_is_refused(
    run: Path, name: str, value: float, message: str, command: tuple[str, ...]
) -> None:
    path = run / "schedules" / "000.npy"
    rows = np.load(path)
    rows[name] = value
    np.save(path, rows)
    first, *options = command
    result = invoke(first, run, *options)
    assert result.exit_code == 2
    assert "not a schedule from a simulation of this cluster (" in result.stderr
    assert message in result.stderr


METRIC = """
import os

class Fragile:
    def of(self, schedule):
        if os.environ.get("FRAGILE"):
            raise ValueError("no value today")
        return 1.0
"""


def test_a_run_whose_metric_fails_goes_on_from_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text(METRIC)
    arguments = ("eval", "--policy", "sjf", *SMALL, "--seeds", "2", "--workers", "1", "--set")
    arguments = (*arguments, f"metrics=['{tmp_path / 'own.py'}:Fragile']", "-o")
    fine(*arguments, tmp_path / "whole")
    monkeypatch.setenv("FRAGILE", "1")
    result = invoke(*arguments, tmp_path / "failed")
    (folder,) = (tmp_path / "failed").iterdir()
    assert result.exit_code == 2
    assert "ValueError: no value today" in result.stderr
    assert f"0 finished runs and the logs of 1 more are kept in {folder}; continue with: dagsim eval --resume" in (
        result.stderr
    )
    monkeypatch.delenv("FRAGILE")
    simulated: list[int] = []
    real = executors.play_policy
    monkeypatch.setattr(
        executors, "play_policy", lambda *cell, **more: simulated.append(cell[2]) or real(*cell, **more)
    )
    fine("eval", "--resume", folder, "-q", "--no-plots", "--workers", "1")
    (whole,) = (tmp_path / "whole").iterdir()
    seeds = json.loads((whole / "manifest.json").read_text())["seeds"]
    assert simulated == seeds[1:]
    for file in ("runs.jsonl", "jobs.csv.gz", "tasks.csv.gz", "schedules/000.npy", "schedules/000.json.gz"):
        assert (folder / file).read_bytes() == (whole / file).read_bytes()
    assert not (folder / "aside").exists()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("policies", [0], "policies: damaged: expected a text, got 0"),
        ("seeds", ["x"], "seeds: damaged: expected a whole number, got 'x'"),
        ("trace", {}, "trace: a line has no 'path', so another version of dagsim must have written the file"),
        ("plan", "x", "plan: damaged: expected an object, got 'x'"),
        ("command", 1, "command: damaged: expected a text, got 1"),
        ("inputs", {"rates.csv": "x"}, "inputs: rates.csv: damaged: expected an object, got 'x'"),
    ],
)
@pytest.mark.parametrize("command", [("compare",), ("report",), ("baseline", "--resume")])
def test_a_manifest_that_was_edited_is_an_error_that_names_the_key(
    run: Path, key: str, value: object, message: str, command: tuple[str, ...]
) -> None:
    path = run / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    result = invoke(*command, run)
    assert result.exit_code == 2
    assert f"manifest.json: {message}" in result.stderr
