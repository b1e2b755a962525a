"""The networks in the package play the same schedules as when they were published, to the last digit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dagsim.experiment.simulate import make_policy
from dagsim.families.learning.agents import shipped_agent
from dagsim.families.spark.scenario import SparkScenario
from dagsim.systems import all_systems

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
NETWORKS = ROOT / "dagsim" / "families" / "decima"
GOLDEN: dict[str, float] = json.loads((HERE / "golden.json").read_text())


@pytest.mark.parametrize("name", ["balanced", "w2"])
def test_the_networks_play_the_same_schedules(name: str) -> None:
    scenario = SparkScenario(executors=10, jobs=15)
    for seed in (1, 2):
        episode = scenario.kernel(seed).run(make_policy(scenario, f'decima[checkpoint="{NETWORKS / name}.pt"]'))
        assert episode.mean_jct_s == GOLDEN[f"decima/{name}.pt {seed}"]


def test_the_network_for_any_number_of_executors_ships_as_decima() -> None:
    assert shipped_agent("decima", all_systems()["spark"]) == NETWORKS / "balanced.pt"
