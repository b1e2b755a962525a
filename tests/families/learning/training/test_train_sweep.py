"""A sweep over keys of ``train`` is a training run for each point and seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command_line import fine, invoke
from typer.testing import Result

from dagsim.experiment.store import Store
from dagsim.experiment.training_log import read_log

SWEEP = """
base: train/ppo
set:
  workload.count: 8
  train.iterations: 4
  train.reference: sjf
  train.algorithm.sequences: 2
  train.algorithm.replicas: 2
  train.validation_seeds: 2
  train.validate_every: 1
over:
  train.algorithm.lr: [0.003, {second}]
  train.net.hidden: [4, 8]
seeds: 2
"""


def swept(folder: Path, text: str, *options: str) -> Result:
    file = folder / "grid.yaml"
    file.write_text(text)
    return invoke("sweep", file, "--out", folder, *options)


def test_each_point_is_trained_with_each_seed_and_only_once(tmp_path: Path) -> None:
    text = SWEEP.format(second=0.001)
    ended = swept(tmp_path, text, "--json")
    assert ended.exit_code == 0, ended.output
    facts = json.loads(ended.stdout)
    assert len(facts["standings"]) == 4
    runs = [Store.read(Path(path)) for path in facts["runs"]]
    assert len({run.path for run in runs}) == 8
    assert {run.state for run in runs} == {"done"}
    assert not list(tmp_path.glob("sweep-grid/*/report.csv"))
    best = min(read_log(run.path)[-1]["best_ratio"] or 9.0 for run in runs)
    assert read_log(Path(facts["agent"]).parent)[-1]["best_ratio"] == best
    again = swept(tmp_path, text, "--json")
    assert json.loads(again.stdout) == facts
    fine("config", "check", facts["best"])
    manifest = Path(facts["runs"][0]) / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"code_sha256": "0" * 64}))
    refused = swept(tmp_path, text, "--json")
    assert refused.exit_code == 2
    assert "the code of dagsim has changed" in " ".join(refused.output.split())


def test_training_runs_that_are_worse_than_the_median_end_early(tmp_path: Path) -> None:
    text = SWEEP.format(second=0.0003).replace("count: 8", "count: 15").replace("iterations: 4", "iterations: 8")
    text = text.replace("validation_seeds: 2", "validation_seeds: 3").replace("[4, 8]", "[8, 16]")
    facts = json.loads(swept(tmp_path, text + "stop: median\n", "--json").stdout)
    lengths = [len(read_log(Path(path))) for path in facts["runs"]]
    assert lengths[:3] == [8, 8, 8]  # there is no median of fewer than three
    assert facts["ended_early"] == sum(length < 8 for length in lengths) > 0


@pytest.mark.parametrize(
    ("more", "options", "message"),
    [
        ("stop: mean\n", (), "stop: must be median"),
        ("", ("--metric", "jct_s.p95"), "--metric: does not apply to a sweep over training runs"),
        ("", ("--max-cells", "2"), "--max-cells: does not apply"),
    ],
)
def test_what_does_not_apply_to_training_runs_is_refused(
    tmp_path: Path, more: str, options: tuple[str, ...], message: str
) -> None:
    ended = swept(tmp_path, SWEEP.format(second=0.001) + more, *options)
    assert ended.exit_code == 2
    assert message in " ".join(ended.output.split())


def test_the_same_training_run_twice_is_refused(tmp_path: Path) -> None:
    ended = swept(tmp_path, SWEEP.replace("[0.003, {second}]", "{one: 0.003, other: 0.003}"))
    assert ended.exit_code == 2
    assert "keep one of them" in ended.output


def test_a_dry_run_lists_the_training_runs(tmp_path: Path) -> None:
    ended = swept(tmp_path, SWEEP.format(second=0.001), "--dry-run", "--json")
    assert len(json.loads(ended.stdout)) == 8
    assert not (tmp_path / "sweep-grid").exists()
