"""Kept agents play the same schedules as when they were published, to the last digit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dagsim.experiment.simulate import make_policy
from dagsim.families.spark.scenario import SparkScenario

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SHIPPED = ROOT / "dagsim" / "families" / "decima" / "w2.pt"
KEPT = [SHIPPED, *sorted((ROOT / "results" / "decima").glob("*.pt"))]
GOLDEN: dict[str, float] = json.loads((HERE / "golden.json").read_text())


@pytest.mark.parametrize(
    "path", [SHIPPED, *sorted((ROOT / "results" / "decima").glob("*.pt"))], ids=lambda path: path.stem
)
def test_kept_decima_nets_play_the_same_schedules(path: Path) -> None:
    scenario = SparkScenario(executors=10, jobs=15)
    for seed in (1, 2):
        episode = scenario.kernel(seed).run(make_policy(scenario, f'decima[checkpoint="{path}"]'))
        assert episode.mean_jct_s == GOLDEN[f"decima/{path.name} {seed}"]
