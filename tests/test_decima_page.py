"""What ``docs/decima.md`` says is so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dagsim.experiment.agents import make_policy
from dagsim.systems.spark.scenario import SparkScenario

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "decima.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\S+) \| `([^`]+)` \| ([\d.]+) \| ([\d.]+) \(([\d.]+) to ([\d.]+)\) \|$", PAGE, re.MULTILINE)


def test_the_example_runs() -> None:
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "docs/decima.md", "exec"), {})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
def test_the_figures_are_those_of_the_results(row: tuple[str, ...]) -> None:
    file, policy, *figures = row
    lines = json.loads((ROOT / "results" / "decima" / f"{file}.json").read_text())["lines"]
    (line,) = [each for each in lines if each["policy"] == policy]
    assert [f"{line['mean_s']:.1f}", *(f"{each:.3f}" for each in line["ratio"])] == figures


@pytest.mark.parametrize("path", sorted((ROOT / "results" / "decima").glob("*.pt")), ids=lambda path: path.stem)
def test_the_networks_can_be_loaded(path: Path) -> None:
    make_policy(SparkScenario(), f"decima[checkpoint={path}]")
