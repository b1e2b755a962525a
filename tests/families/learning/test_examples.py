"""The examples on learning run, and do what they say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

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
