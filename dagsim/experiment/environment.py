"""The environment of an experiment, which ``gymnasium.make("dagsim.envs:dagsim/Scheduling-v0")``
builds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dagsim.config.bundled import WORKLOADS, find_config
from dagsim.config.registered import Registered
from dagsim.config.schema import Config, load_config
from dagsim.envs.config import EnvConfig
from dagsim.envs.ramp import PartitionEnv
from dagsim.envs.scheduling import SchedulingEnv
from dagsim.envs.spark import DecimaEnv
from dagsim.experiment.scenario import scenario_of
from dagsim.systems.cluster.codecs import CODECS
from dagsim.systems.ramp.scenario import RampScenario
from dagsim.systems.spark.scenario import SparkScenario

__all__ = ["make_env"]


def make_env(
    config: Config | str | Path | None = None,
    settings: Iterable[str] = (),
    env: EnvConfig | None = None,
    render_mode: str | None = None,
    **changes: Any,
) -> SchedulingEnv | DecimaEnv | PartitionEnv:
    """Build the environment of an experiment: a ``DecimaEnv`` for the system ``spark``, a
    ``PartitionEnv`` for ``ramp``.

    ``config`` is a configuration, a file, a name of ``dagsim list configs`` or of ``dagsim list
    workloads``; ``settings`` are those of ``--set``. The fields of ``EnvConfig`` (or of
    ``DecimaEnv``, ``PartitionEnv``) can be given one by one. A codec is given by its settings, its
    name or ``module:attr``, or a mapping with its ``kind``.

    Raises:
        InputError: The experiment or the environment cannot be built.
    """
    scenario = scenario_of(_experiment(config, settings))
    if isinstance(scenario, SparkScenario):
        return DecimaEnv(scenario=scenario, render_mode=render_mode, **changes)
    if isinstance(scenario, RampScenario):
        return PartitionEnv(scenario, render_mode=render_mode, **changes)
    if isinstance(changes.get("codec"), str | Mapping):
        changes["codec"] = Registered(CODECS, "candidates").read(changes["codec"])
    return SchedulingEnv(scenario, env or EnvConfig(**changes), render_mode)


def _experiment(config: Config | str | Path | None, settings: Iterable[str]) -> Config:
    if isinstance(config, Config):
        return config
    if isinstance(config, str) and config in WORKLOADS:
        return load_config(None, [f"workload={config}", *settings])
    return load_config(None if config is None else find_config(str(config)), settings)
