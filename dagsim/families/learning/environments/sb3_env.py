"""Many environments as a ``VecEnv`` for Stable-Baselines3, at the speed of the compiled engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env import VecEnv

from dagsim.errors import ConfigError
from dagsim.families.learning.environments.make_env import make_vector_env


def make_sb3_env(num_envs: int = 8, *arguments: Any, **settings: Any) -> Sb3VecEnv:
    """Build ``num_envs`` environments for Stable-Baselines3; all other arguments are the same as
    for ``make_env``.

    Raises:
        InputError: The experiment or the environment cannot be built.
    """
    return Sb3VecEnv(make_vector_env(num_envs, *arguments, **settings | {"autoreset_mode": "SameStep"}))


class Sb3VecEnv(VecEnv):
    """A ``VecEnv`` around environments from ``make_vector_env``. When an episode ends, its
    environment starts the next one in the same step. ``MaskablePPO`` from sb3-contrib calls
    ``env_method("action_masks")``.

    Raises:
        ConfigError: The environments would start a new episode only in the next step.
    """

    def __init__(self, envs: Any) -> None:
        """Wrap ``envs``, a Gymnasium vector environment with ``action_mask`` in its infos."""
        if envs.metadata.get("autoreset_mode") is not AutoresetMode.SAME_STEP:
            raise ConfigError("Stable-Baselines3 needs environments with autoreset_mode='SameStep'")
        self.envs: Any = envs
        self._actions: Any = None
        self._masks = np.zeros((envs.num_envs, 0), bool)
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> Any:
        """Begin all episodes. Seeds that were passed to ``seed`` apply only to these episodes."""
        seeds = [None if seed is None else int(seed) for seed in self._seeds]
        observations, infos = self.envs.reset(seed=seeds)
        self._reset_seeds()
        self._masks = infos["action_mask"].astype(bool)
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Store the actions, one per environment, for ``step_wait``."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Carry out the actions. The info for an episode that has ended contains its last
        observation and its mean JCT."""
        observations, rewards, terminated, truncated, infos = self.envs.step(self._actions)
        self._masks = infos["action_mask"].astype(bool)
        ended = terminated | truncated
        listed: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for number in np.flatnonzero(ended).tolist():
            final = infos["final_info"]
            listed[number] = {
                "terminal_observation": infos["final_obs"][number],
                "TimeLimit.truncated": bool(truncated[number] and not terminated[number]),
            }
            if terminated[number]:
                listed[number]["mean_jct_s"] = float(final["mean_jct_s"][number])
        return observations, rewards.astype(np.float32), ended, listed

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Read an attribute of some environments."""
        if attr_name == "action_masks":
            return [self._masks[number] for number in self._which(indices)]
        if attr_name == "render_mode":
            return [self.envs.render_mode for _ in self._which(indices)]
        values: Sequence[Any] = self.envs.get_attr(attr_name)
        return [values[number] for number in self._which(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Raise an error. Environments that are stepped together have no individual attributes.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(f"{attr_name}: attributes of a batch of environments cannot be set")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of some environments."""
        if method_name == "action_masks":
            return self.get_attr(method_name, indices)
        values: Sequence[Any] = self.envs.call(method_name, *method_args, **method_kwargs)
        return [values[number] for number in self._which(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return False for each environment, because none of them is wrapped."""
        return [False for _ in self._which(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Draw the environments."""
        return list(self.envs.render() or [])

    def _which(self, indices: Any) -> Iterable[int]:
        return self._get_indices(indices)
