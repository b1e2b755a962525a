"""Runs of published tables, kept as they end."""

from __future__ import annotations

from pathlib import Path

import pytest
from kept import KeptRuns

from dagsim.config.schema import load_config
from dagsim.errors import InputError

CONFIG = load_config(None, ["workload.count=5"])
POLICIES = {"first come": "fifo", "shortest": "sjf"}


def test_what_ran_is_not_run_again(tmp_path: Path) -> None:
    told: list[str] = []
    first = KeptRuns(tmp_path / "runs.jsonl").run("cell", CONFIG, POLICIES, [1, 2], lambda run: told.append(run.policy))
    again = KeptRuns(tmp_path / "runs.jsonl").run("cell", CONFIG, POLICIES, [1, 2], lambda run: told.append(run.policy))
    assert again == first
    assert told == ["first come", "shortest"] * 2
    assert [(run.policy, run.seed) for run in first] == [(p, seed) for seed in (1, 2) for p in POLICIES]


def test_a_torn_last_line_is_run_again_and_the_rest_kept(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    whole = KeptRuns(path).run("cell", CONFIG, POLICIES, [1])
    path.write_bytes(path.read_bytes()[:-7])
    kept = KeptRuns(path)
    assert [run.policy for run in kept.of("cell", tuple(POLICIES), [1])] == ["first come"]
    assert [run.metrics["jct_s.mean"] for run in kept.run("cell", CONFIG, POLICIES, [1])] == [
        run.metrics["jct_s.mean"] for run in whole
    ]
    assert len(path.read_text().splitlines()) == 2
    assert len(KeptRuns(path).of("cell", tuple(POLICIES), [1])) == 2


def test_cells_are_told_apart(tmp_path: Path) -> None:
    kept = KeptRuns(tmp_path / "runs.jsonl")
    kept.run("one", CONFIG, POLICIES, [1])
    assert not kept.of("other", tuple(POLICIES), [1])


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"cell": 1}\n{}\n')
    with pytest.raises(InputError, match=r"runs.jsonl:1: no run"):
        KeptRuns(path)
