"""Many environments as one batched ``EnvBase`` for TorchRL, at the speed of the compiled engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Binary, Categorical, Composite, TensorSpec, Unbounded
from torchrl.envs import EnvBase

from dagsim.errors import ConfigError
from dagsim.families.learning.environments.make_env import make_vector_env

MASK = "action_mask"


def make_torchrl_env(num_envs: int = 8, *arguments: Any, **settings: Any) -> TorchRLEnv:
    """Build ``num_envs`` environments as one TorchRL environment with ``batch_size`` (num_envs,);
    all other arguments are the same as for ``make_env``.

    Raises:
        InputError: The experiment or the environment cannot be built.
    """
    return TorchRLEnv(make_vector_env(num_envs, *arguments, **settings | {"autoreset_mode": "SameStep"}))


class TorchRLEnv(EnvBase):  # type: ignore[misc]  # EnvBase has no types
    """A TorchRL environment around environments from ``make_vector_env``.

    Observations are under ``observation``, or under their own keys if they consist of several
    arrays. ``action_mask`` (num_envs, actions) bool is True for legal actions; TorchRL's
    ``ActionMask`` transform and ``MaskedCategorical`` read it.

    The environments begin a new episode in the step in which the last one ends. The entry ``next``
    of that step contains the last observation of the ended episode, and the reset that TorchRL
    requests afterwards returns the first observation of the new episode.

    Raises:
        ConfigError: The environments would start a new episode only in the next step.
    """

    def __init__(self, envs: Any) -> None:
        """Wrap ``envs``, a Gymnasium vector environment with ``action_mask`` in its infos."""
        if envs.metadata.get("autoreset_mode") is not AutoresetMode.SAME_STEP:
            raise ConfigError("TorchRL needs environments with autoreset_mode='SameStep'")
        super().__init__(device="cpu", batch_size=[envs.num_envs])
        self._envs = envs
        self._seed: int | None = None
        self._current: dict[str, torch.Tensor] = {}
        """The entries of the present state of all environments."""
        space, number = envs.single_observation_space, envs.num_envs
        parts = dict(space.items()) if isinstance(space, spaces.Dict) else {"observation": space}
        actions = int(envs.single_action_space.n)
        entries = {name: _spec(part, number) for name, part in parts.items() if name != MASK}
        entries[MASK] = Binary(actions, shape=(number, actions), dtype=torch.bool)
        self.observation_spec = Composite(entries, shape=(number,))
        self.action_spec = Categorical(actions, shape=(number,))
        self.reward_spec = Unbounded(shape=(number, 1), dtype=torch.float32)
        ends = {name: Binary(1, shape=(number, 1), dtype=torch.bool) for name in ("done", "terminated", "truncated")}
        self.done_spec = Composite(ends, shape=(number,))

    def close(self, **settings: Any) -> None:
        """Close the environments."""
        super().close(**settings)
        self._envs.close()

    def _set_seed(self, seed: int | None) -> None:
        self._seed = seed

    def _reset(self, tensordict: TensorDictBase | None = None, **_: Any) -> TensorDictBase:
        asked = None if tensordict is None else tensordict.get("_reset", None)
        if asked is None or not self._current or self._seed is not None:
            observations, infos = self._envs.reset(seed=self._seed)
            self._seed = None
            self._current = self._entries(observations, infos[MASK])
            self._ended = torch.zeros(self.batch_size, dtype=torch.bool)
        elif bool((asked.reshape(self.batch_size) & ~self._ended).any()):
            raise ConfigError("a single environment can be reset only when its episode has ended")
        ends = {name: torch.zeros((*self.batch_size, 1), dtype=torch.bool) for name in self.done_keys}
        return TensorDict(self._current | ends, self.batch_size)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        observations, rewards, terminated, truncated, infos = self._envs.step(tensordict["action"].numpy())
        self._current = self._entries(observations, infos[MASK])
        ended = terminated | truncated
        self._ended = torch.from_numpy(ended.copy())
        last = dict(self._current)
        if ended.any():
            places = np.flatnonzero(ended)
            final = infos["final_obs"]
            last = {name: part.clone() for name, part in last.items()}
            for place in places.tolist():
                parts = final[place] if isinstance(final[place], dict) else {"observation": final[place]}
                for name, part in parts.items():
                    last[name][place] = torch.as_tensor(np.asarray(part)).to(last[name].dtype)
            last[MASK][places] = torch.from_numpy(infos["final_info"][MASK][places].astype(bool))
        facts = {"reward": rewards.astype(np.float32), "terminated": terminated, "truncated": truncated, "done": ended}
        return TensorDict(
            last | {name: torch.from_numpy(np.array(fact)).unsqueeze(-1) for name, fact in facts.items()},
            self.batch_size,
        )

    def _entries(self, observations: Any, mask: np.ndarray) -> dict[str, torch.Tensor]:
        parts = observations if isinstance(observations, dict) else {"observation": observations}
        # copied, because a later step may write to the same arrays
        entries = {name: torch.from_numpy(np.array(part)) for name, part in parts.items() if name != MASK}
        return entries | {MASK: torch.from_numpy(mask.astype(bool))}


def _spec(space: spaces.Space[Any], number: int) -> TensorSpec:
    """Return the specification of one array of the observations of ``number`` environments."""
    sample = np.asarray(space.sample())
    return Unbounded(shape=(number, *sample.shape), dtype=torch.as_tensor(sample).dtype)
