"""A small configuration of every system."""

from __future__ import annotations

from dagsim.config.schema import load_config
from dagsim.experiment.scenario import scenario_of
from dagsim.systems.seam import Scenario

SETTINGS = {
    "cluster": (["workload=heterogeneous-dag", "workload.count=20"], "sjf"),
    "mixture": (["system.kind=mixture", "system.jobs=[10, 20]"], "sjf"),
    "ramp": (["system.kind=ramp", "system.jobs=30", "system.gap_s=0.02"], "acceptable_jct"),
    "spark": (["system.kind=spark", "system.executors=10", "system.jobs=6"], "fair"),
}
"""A small configuration of every system, and a policy for it."""


def scenario(system: str) -> Scenario:
    return scenario_of(load_config(None, SETTINGS[system][0]))
