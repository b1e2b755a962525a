"""The shipped agent plays the same schedules as when it was published, to the last digit."""

from __future__ import annotations

import json
from pathlib import Path

from dagsim.experiment.simulate import make_policy
from dagsim.families.spark.scenario import SparkScenario

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SHIPPED = ROOT / "dagsim" / "families" / "decima" / "w2.pt"
GOLDEN: dict[str, float] = json.loads((HERE / "golden.json").read_text())


def test_the_shipped_decima_net_plays_the_same_schedules() -> None:
    scenario = SparkScenario(executors=10, jobs=15)
    for seed in (1, 2):
        episode = scenario.kernel(seed).run(make_policy(scenario, f'decima[checkpoint="{SHIPPED}"]'))
        assert episode.mean_jct_s == GOLDEN[f"decima/{SHIPPED.name} {seed}"]
