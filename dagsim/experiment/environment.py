"""The environment of an experiment: what ``gymnasium.make("dagsim.envs:dagsim/Scheduling-v0")`` calls."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dagsim.config.bundled import find_config
from dagsim.config.schema import Config, load_config
from dagsim.envs.config import EnvConfig
from dagsim.envs.scheduling import SchedulingEnv
from dagsim.experiment.training.maker import Maker
from dagsim.workload import PRESETS

__all__ = ["make_env"]


def make_env(
    config: Config | str | Path | None = None,
    settings: Iterable[str] = (),
    env: EnvConfig | None = None,
    render_mode: str | None = None,
    **changes: Any,
) -> SchedulingEnv:
    """The scheduling environment of an experiment.

    ``config`` is a configuration, a file, a name of ``dagsim list configs`` or of ``dagsim list workloads``;
    ``settings`` are as behind ``--set``. The fields of ``EnvConfig`` can be given one by one.

    Raises:
        InputError: Something of it cannot be.
    """
    return SchedulingEnv(Maker(_experiment(config, settings)), env or EnvConfig(**changes), render_mode)


def _experiment(config: Config | str | Path | None, settings: Iterable[str]) -> Config:
    if isinstance(config, Config):
        return config
    if isinstance(config, str) and config in PRESETS:
        return load_config(None, [f"workload={config}", *settings])
    return load_config(None if config is None else find_config(str(config)), settings)
