"""The function with which ``gymnasium.make("dagsim.envs:dagsim/Scheduling-v0")`` builds the
environment of an experiment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dagsim.config.bundled import WORKLOADS, find_config
from dagsim.config.schema import Config, load_config
from dagsim.config.yaml import as_listed
from dagsim.errors import ConfigError, UnknownName
from dagsim.experiment.scenario import scenario_of
from dagsim.families.learning.environments.env_settings import EnvConfig
from dagsim.families.learning.environments.episode_env import EpisodeEnv
from dagsim.family import family_entries, refuse_missing
from dagsim.own_code import attribute
from dagsim.spelling import check_arguments
from dagsim.systems.seam import Scenario


def make_env(
    config: Config | str | Path | None = None,
    settings: Iterable[str] = (),
    env: EnvConfig | None = None,
    render_mode: str | None = None,
    **changes: Any,
) -> Any:
    """Build the environment for an experiment. This is a ``SchedulingEnv`` for the GPU cluster, a
    ``DecimaEnv`` for the system ``spark``, and a ``PartitionEnv`` for ``ramp``.

    ``config`` is a configuration, a file, or a name from ``dagsim list configs`` or ``dagsim list
    workloads``; ``settings`` has the same form as ``--set``. The fields of ``EnvConfig`` (or of
    ``DecimaEnv`` or ``PartitionEnv``) can be given individually. A codec is specified by its
    settings, by its name or ``module:attr``, or by a mapping with its ``kind``.

    Raises:
        InputError: The experiment or the environment cannot be built.
    """
    scenario = scenario_of(_experiment(config, settings))
    kind = _class_of(scenario)
    _check(kind, "make_env", env, changes)
    return kind.of(scenario, env, render_mode, **changes)


def make_vector_env(
    num_envs: int = 1,
    config: Config | str | Path | None = None,
    settings: Iterable[str] = (),
    env: EnvConfig | None = None,
    autoreset_mode: str = "NextStep",
    **changes: Any,
) -> Any:
    """Build ``num_envs`` environments for an experiment that are stepped together, as a
    ``gymnasium.vector.VectorEnv``. ``autoreset_mode`` has the same meaning as in Gymnasium; the
    other arguments are the same as for ``make_env``.

    The environments run in the compiled engine (``VectorSchedulingEnv``) or, if the engine does not
    support some part of the experiment, one after another (``SyncVectorEnv``). Both return the same
    observations and rewards. ``--set engine=compiled`` enforces the compiled engine, and
    ``engine=simpy`` enforces the SimPy kernel.

    Raises:
        InputError: The experiment or the environment cannot be built.
        ConfigError: The compiled engine is requested but cannot run the experiment.
    """
    scenario = scenario_of(_experiment(config, settings))
    kind = _class_of(scenario)
    _check(kind, "make_vector_env", env, {key: value for key, value in changes.items() if key != "render_mode"})
    return kind.vector(num_envs, scenario, env, autoreset_mode, changes)


def _check(kind: type[EpisodeEnv], call: str, env: EnvConfig | None, changes: Mapping[str, Any]) -> None:
    if env is not None and not isinstance(env, EnvConfig):
        raise ConfigError(f"env: must be an EnvConfig, got {env!r}; pass its fields one by one instead")
    if env is not None and changes:
        raise ConfigError(f"{call}: give either env or its fields one by one, but got env and {', '.join(changes)}")
    if "workload" in changes and "workload" not in kind.settings():
        raise UnknownName(f"{call}: no argument 'workload'; pass the workload's name as config=")
    check_arguments(call, changes, *kind.settings())


def _class_of(scenario: Scenario) -> type[EpisodeEnv]:
    targets = [
        f"{home}{entry.target}" for home, entry in family_entries("environments") if entry.name == scenario.system
    ]
    target = scenario.environment or next(iter(targets), None)
    if target is None:
        refuse_missing("environments", scenario.system)
        raise ConfigError(f"the system {scenario.system!r} has no Gymnasium environment")
    environment: type[EpisodeEnv] = attribute(target)
    return environment


def _experiment(config: Config | str | Path | None, settings: Iterable[str]) -> Config:
    if isinstance(config, Config):
        return config
    if isinstance(config, str) and config in WORKLOADS:
        return load_config(None, [f"workload={config}", *as_listed(settings)])
    return load_config(None if config is None else find_config(str(config), workload=""), settings)
