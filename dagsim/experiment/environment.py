"""The environment of an experiment, which ``gymnasium.make("dagsim.envs:dagsim/Scheduling-v0")``
builds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagsim.config.bundled import WORKLOADS, find_config
from dagsim.config.registered import Registered
from dagsim.config.schema import Config, load_config
from dagsim.envs.config import EnvConfig
from dagsim.envs.episode import RewardConfig
from dagsim.envs.ramp import PartitionEnv
from dagsim.envs.scheduling import SchedulingEnv
from dagsim.envs.spark import DecimaEnv
from dagsim.envs.vector import VectorSchedulingEnv, compiled_episodes, one_by_one
from dagsim.experiment.scenario import scenario_of
from dagsim.systems.cluster.choice import refuse
from dagsim.systems.cluster.codecs import CODECS
from dagsim.systems.cluster.nodes import ClusterState
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.ramp.scenario import RampScenario
from dagsim.systems.spark.scenario import SparkScenario

if TYPE_CHECKING:
    from dagsim.systems.cluster.lane.episodes import CompiledEpisodes


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
    return _env_of(scenario_of(_experiment(config, settings)), env, render_mode, changes)


def make_vector_env(
    num_envs: int = 1,
    config: Config | str | Path | None = None,
    settings: Iterable[str] = (),
    env: EnvConfig | None = None,
    autoreset_mode: str = "NextStep",
    **changes: Any,
) -> Any:
    """Build ``num_envs`` environments of an experiment that are played together, a
    ``gymnasium.vector.VectorEnv``. ``autoreset_mode`` is Gymnasium's; the other arguments are those of
    ``make_env``.

    They are played in the compiled engine (``VectorSchedulingEnv``), or, if that does not know
    something in the experiment, one after another (``SyncVectorEnv``). Both give the same observations
    and rewards. ``--set engine=compiled`` refuses the latter, ``engine=simpy`` the former.

    Raises:
        InputError: The experiment or the environment cannot be built.
        ConfigError: The compiled engine is requested, and cannot play the experiment.
    """
    scenario = scenario_of(_experiment(config, settings))
    if isinstance(scenario, ClusterScenario):
        chosen = env or _env_config(changes)
        episodes = _compiled(scenario, chosen, num_envs)
        if not isinstance(episodes, str):
            types = len(ClusterState(scenario.cluster).types)
            return VectorSchedulingEnv(episodes, chosen, num_envs, types, autoreset_mode)
        if scenario.engine == "compiled":
            raise refuse(episodes)
    return one_by_one(num_envs, partial(_env_of, scenario, env, None, changes), autoreset_mode)


def _compiled(scenario: ClusterScenario, config: EnvConfig, count: int) -> CompiledEpisodes | str:
    """The episodes in the compiled engine, or the reason against it."""
    if config.level != "task_type" or config.observation == "graph":
        return "only the level task_type is compiled, without the observation graph"
    return compiled_episodes(scenario, config.codec, RewardConfig(config.reward, config.reward_scale), count)


def _env_of(
    scenario: Any, env: EnvConfig | None, render_mode: str | None, changes: Mapping[str, Any]
) -> SchedulingEnv | DecimaEnv | PartitionEnv:
    if isinstance(scenario, SparkScenario):
        return DecimaEnv(scenario=scenario, render_mode=render_mode, **changes)
    if isinstance(scenario, RampScenario):
        return PartitionEnv(scenario, render_mode=render_mode, **changes)
    return SchedulingEnv(scenario, env or _env_config(changes), render_mode)


def _env_config(changes: Mapping[str, Any]) -> EnvConfig:
    codec = changes.get("codec")
    named = {"codec": Registered(CODECS, "candidates").read(codec)} if isinstance(codec, str | Mapping) else {}
    return EnvConfig(**{**changes, **named})


def _experiment(config: Config | str | Path | None, settings: Iterable[str]) -> Config:
    if isinstance(config, Config):
        return config
    if isinstance(config, str) and config in WORKLOADS:
        return load_config(None, [f"workload={config}", *settings])
    return load_config(None if config is None else find_config(str(config)), settings)
