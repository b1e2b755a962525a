"""Three iterations from fixed seeds give the weights that they gave before (once checked bit for bit against the two
former stacks), and kept agents play the same schedules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dagsim.config.schema import load_config
from dagsim.experiment.agents import make_policy
from dagsim.experiment.simulate import run_policy
from dagsim.systems.spark.scenario import SparkScenario

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GOLDEN: dict[str, Any] = json.loads((HERE / "golden.json").read_text())
SAME_ON_ANY_CPU = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "1"}
"""Otherwise torch and MKL choose their instructions by the CPU, and round by them."""


@pytest.fixture(scope="module")
def learned() -> Any:
    """What ``learned.py`` prints."""
    done = subprocess.run(
        [sys.executable, HERE / "learned.py"], env=os.environ | SAME_ON_ANY_CPU, stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", GOLDEN["cluster"])
def test_the_cluster_learns_as_it_did(name: str, learned: Any) -> None:
    assert learned["cluster"][name]["weights"] == pytest.approx(GOLDEN["cluster"][name]["weights"], rel=1e-6, abs=1e-7)
    assert learned["cluster"][name]["best"] == pytest.approx(GOLDEN["cluster"][name]["best"], rel=1e-9)


@pytest.mark.parametrize("name", GOLDEN["decima"])
def test_decima_learns_as_it_did(name: str, learned: Any) -> None:
    assert learned["decima"][name] == pytest.approx(GOLDEN["decima"][name], rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("path", sorted((ROOT / "results" / "agents").glob("*.pt")), ids=lambda path: path.stem)
def test_kept_agents_play_the_same_schedules(path: Path) -> None:
    workload = "heterogeneous-dag" if "dag" in path.stem else "heterogeneous"
    config = load_config(None, [f"workload={workload}", "workload.count=60"])
    for seed in (1, 2):
        result = run_policy(config, f'ppo[checkpoint="{path}"]', seed)
        assert result.summary.jct_s.mean == GOLDEN["schedules"][f"agents/{path.name} {seed}"]


@pytest.mark.parametrize("path", sorted((ROOT / "results" / "decima").glob("*.pt")), ids=lambda path: path.stem)
def test_kept_decima_nets_play_the_same_schedules(path: Path) -> None:
    scenario = SparkScenario(executors=10, jobs=15)
    for seed in (1, 2):
        episode = scenario.kernel(seed).run(make_policy(scenario, f'decima[checkpoint="{path}"]'))
        assert episode.mean_jct_s == GOLDEN["schedules"][f"decima/{path.name} {seed}"]
