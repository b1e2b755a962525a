"""The core does its own work whatever families are there: none of these tests may ask for one."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import fine

SMALL = ["--set", "workload.count=8", "--seeds", "2", "--no-plots", "--quiet", "--workers", "1"]
GRID = "seeds: 1\nset: {workload.count: 5}\nover: {policy: [fifo, sjf]}\n"


def succeeded(*words: str) -> str:
    return fine(*words).output


def test_schedulers_run_and_are_compared(tmp_path: Path) -> None:
    for policy in ("sjf", "heft"):
        succeeded("eval", "--policy", policy, *SMALL, "-o", str(tmp_path))
    folders = [str(path) for path in tmp_path.iterdir() if (path / "manifest.json").exists()]
    assert "sjf" in succeeded("compare", *folders)


def test_a_grid_of_settings_runs(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(GRID)
    assert "fifo" in succeeded("sweep", str(tmp_path / "grid.yaml"), "-o", str(tmp_path))


def test_a_grid_that_states_no_training_needs_no_family(tmp_path: Path) -> None:
    """As the grids of whatif and plan do, which write out a whole configuration."""
    (tmp_path / "grid.yaml").write_text(GRID.replace("workload.count: 5", "workload.count: 5, train: null"))
    assert "fifo" in succeeded("sweep", str(tmp_path / "grid.yaml"), "-o", str(tmp_path))


@pytest.mark.parametrize("words", [("list", "policies"), ("config", "schema"), ("config", "show"), ("--help",)])
def test_what_there_is_can_be_listed(words: tuple[str, ...]) -> None:
    assert succeeded(*words)
