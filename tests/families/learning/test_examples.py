"""The examples on learning run, and do what they say."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dagsim import simulate
from dagsim.envs import make_env, record_episodes
from dagsim.errors import ConfigError
from dagsim.families.learning.sb3 import load_sb3
from dagsim.families.learning.training.trainer import Progress

ROOT = Path(__file__).parents[3]


def loaded(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    return module


def test_an_own_reward_codec_net_and_curriculum_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = loaded("own_learning", monkeypatch, "--out", str(tmp_path))
    monkeypatch.setattr(example, "CURRICULUM", ((3, 1), (4, 1)))
    example.main()
    first, second = (line.rpartition("; ")[2] for line in capsys.readouterr().out.splitlines())
    assert f'"init": "{first}/best.pt"' in (Path(second) / "manifest.json").read_text()
    assert (Path(second) / "report.csv").exists()


def test_a_search_over_copies_is_no_worse_than_the_first_legal_action(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded("tree_search", monkeypatch, "--jobs", "4", "--seed", "3").main()
    plain, searched = (float(part.rpartition(": ")[2]) for part in capsys.readouterr().out.split(";"))
    assert plain <= searched <= 0


def test_a_data_set_is_recorded_and_cloned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "data" / "steps.npz"
    example = loaded("behaviour_cloning", monkeypatch, "--episodes", "2", "--epochs", "1", "--out", str(path))
    example.main()
    assert capsys.readouterr().out.count("clone: ") == 2
    with np.load(path) as file:
        data = dict(file)
    assert data["terminals"].sum() == 2
    assert np.flatnonzero(data["terminals"]).tolist() == [
        *(np.flatnonzero(np.diff(data["seeds"]))),
        len(data["seeds"]) - 1,
    ]
    assert data["action_masks"][np.arange(len(data["actions"])), data["actions"]].all()
    env = make_env(**example.ENVIRONMENT)
    outcome = simulate("heterogeneous", policy="eft-wait", seed=1_000_000)
    env.reset(seed=1_000_000)
    for action in data["actions"][data["seeds"] == 1_000_000].tolist():
        *_, info = env.step(action)
    assert info["mean_jct_s"] == outcome.summary.jct_s.mean


def test_a_policy_whose_decisions_are_no_actions_is_refused(tmp_path: Path) -> None:
    common = {"config": "heterogeneous", "settings": ["workload.count=60"]}
    with pytest.raises(ConfigError, match=r"no action for .*more slots"):
        record_episodes(tmp_path / "a.npz", "las", [1], **common)
    with pytest.raises(ConfigError, match=r"must end with \.npz"):
        record_episodes(tmp_path / "a.parquet", "sjf", [1], **common)


def test_maskable_ppo_trains_a_model_that_dagsim_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sb3_contrib")
    out = tmp_path / "model.zip"
    options = ("--steps", "256", "--envs", "2", "--jobs", "5", "--pool", "4", "--out", str(out))
    loaded("sb3_maskable_ppo", monkeypatch, *options).main()
    assert load_sb3(out, 3).decide is not None


def test_optuna_ends_a_training_run_that_is_worse_than_the_median(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    example = loaded("optuna_training", monkeypatch)
    for name, value in (("OUT", tmp_path), ("TRIALS", 3), ("ITERATIONS", 4)):
        monkeypatch.setattr(example, name, value)
    ratios, done = iter((0.9, 0.9, 0.8, 0.8, 1.0)), []

    def train(config: None, settings: list[str], *, watch: Callable[[Progress], bool], **_: object) -> SimpleNamespace:
        ratio = next(ratios)
        assert not watch(Progress("reference", 1, 1))
        done.append(next((step for step in range(1, 5) if watch(Progress("training", step, 4, ratio))), 4))
        return SimpleNamespace(validation_ratio=ratio)

    monkeypatch.setattr(example, "train", train)
    example.main()
    assert done == [4, 4, 4, 4, 2]
    assert capsys.readouterr().out.startswith("0.800 times sjf")
