"""The entry point for learning environments. ``gymnasium.make("dagsim.envs:dagsim/Scheduling-v0",
config="heterogeneous-dag")`` imports this module, and the module registers the environments.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from dagsim.errors import ConfigError
from dagsim.family import family_entries, required

__all__ = ["SCHEDULING_ID", "make_env", "make_sb3_env", "make_torchrl_env", "make_vector_env", "record_episodes"]

SCHEDULING_ID = "dagsim/Scheduling-v0"


def make_env(*arguments: Any, **settings: Any) -> Any:
    """Build an environment for an experiment (see ``families/learning/environments/make_env.py``).

    Raises:
        InputError: The experiment or the environment cannot be built.
    """
    return required("make_env", "public")(*arguments, **settings)


def make_vector_env(*arguments: Any, **settings: Any) -> Any:
    """Build a vector environment, in which several environments for an experiment are stepped
    together.

    Raises:
        InputError: The experiment or the environment cannot be built.
    """
    return required("make_vector_env", "public")(*arguments, **settings)


def make_sb3_env(*arguments: Any, **settings: Any) -> Any:
    """Build several environments for an experiment as a ``VecEnv`` for Stable-Baselines3.

    Raises:
        ConfigError: Stable-Baselines3 is not installed.
        InputError: The experiment or the environment cannot be built.
    """
    return _of_extra("make_sb3_env", "sb3")(*arguments, **settings)


def make_torchrl_env(*arguments: Any, **settings: Any) -> Any:
    """Build several environments for an experiment as one batched environment for TorchRL.

    Raises:
        ConfigError: TorchRL is not installed.
        InputError: The experiment or the environment cannot be built.
    """
    return _of_extra("make_torchrl_env", "torchrl")(*arguments, **settings)


def record_episodes(*arguments: Any, **settings: Any) -> Any:
    """Record episodes of a policy as an offline data set (see ``families/learning/environments/data_set.py``).

    Raises:
        InputError: The policy, the experiment or the environment cannot be built.
    """
    return required("record_episodes", "public")(*arguments, **settings)


def _of_extra(name: str, extra: str) -> Any:
    """Return the public function ``name``, which needs a library from the optional extra ``extra``."""
    try:
        return required(name, "public")
    except ModuleNotFoundError as error:
        raise ConfigError(f"{name} needs {error.name}; run pip install -e '.[{extra}]' in the checkout") from None


gymnasium.register(SCHEDULING_ID, "dagsim.envs:make_env", vector_entry_point="dagsim.envs:make_vector_env")
for _home, _entry in family_entries("environments"):
    if _entry.id != SCHEDULING_ID:
        gymnasium.register(_entry.id, f"{_home}{_entry.target}")
