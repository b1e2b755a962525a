"""What ``docs/decima.md`` says is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from dagsim.experiment.simulate import make_policy
from dagsim.families.spark.scenario import SparkScenario

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "decima.md").read_text(encoding="utf-8")


def test_the_net_has_the_parameters_of_the_page() -> None:
    weights = torch.load(ROOT / "dagsim" / "families" / "decima" / "w2.pt", weights_only=True)["weights"]
    assert f"{sum(weight.numel() for weight in weights.values()):,} parameters" in PAGE


def test_the_example_runs() -> None:
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "docs/decima.md", "exec"), {})


@pytest.mark.parametrize("path", sorted((ROOT / "results" / "decima").glob("*.pt")), ids=lambda path: path.stem)
def test_the_networks_can_be_loaded(path: Path) -> None:
    make_policy(SparkScenario(), f"decima[checkpoint={path}]")
