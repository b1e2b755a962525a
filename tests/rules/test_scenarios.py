"""Kernels are built by scenarios only, and one seed gives one log, whoever asks."""

from __future__ import annotations

import ast

import pytest
from support.sources import PACKAGE, trees

from dagsim.config.schema import Config, load_config
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.simulate import run_policy
from dagsim.families.learning.environments.env_settings import EnvConfig
from dagsim.families.learning.environments.make_env import make_env
from dagsim.model.log import Schedule
from dagsim.systems.seam import drive

ROOT = PACKAGE.parent
KERNELS = {"ClusterKernel", "SparkKernel", "RampKernel"}
BUILDERS = {
    "dagsim/systems/cluster/scenario.py",
    "dagsim/families/spark/scenario.py",
    "dagsim/families/ramp/scenario.py",
    "dagsim/families/ramp/kernel.py",  # its fork
}


def test_only_scenarios_build_kernels() -> None:
    builders = set()
    for folder in ("dagsim", "scripts"):
        for path, tree in trees(ROOT / folder).items():
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KERNELS:
                    builders.add(str(path.relative_to(ROOT)))
    assert builders == BUILDERS


def through_gymnasium(config: Config, seed: int) -> Schedule:
    """The same jobs, played by a heuristic through the environment."""
    env = make_env(config, env=EnvConfig(slots=256))
    env.reset(seed=seed)
    policy = scenario_of(config).policies.create("sjf")
    while env.view is not None:
        action = env.action_of(next(iter(policy.decide(env.view)), None))
        assert action is not None
        env.step(action)
    assert env.simulation is not None
    return env.simulation.schedule


@pytest.mark.family("formats")
def test_a_traces_outages_hit_everybody_who_asks() -> None:
    """Training and Gymnasium once ran without the outages that heuristics in the same table suffered."""
    sample = ROOT / "workloads" / "samples" / "google2011"
    trace = f"workload={{kind: trace, path: {sample}}}"
    config = load_config(None, [trace, "cluster={name: trace, from_trace: true}"])
    scenario = scenario_of(config)
    asked = drive(scenario.kernel(3), scenario.policies.create("sjf"))
    assert len(asked.log) > 0
    assert asked.log == run_policy(config, "sjf", 3).schedule.log == through_gymnasium(config, 3).log
    assert {"DOWN", "UP"} & {row.kind.name for row in asked.log}  # type: ignore[attr-defined]
