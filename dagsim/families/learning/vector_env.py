"""The Gymnasium environment for many episodes on the GPU cluster at once, in the compiled engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from dagsim.errors import ConfigError
from dagsim.families.learning.env_settings import EnvConfig
from dagsim.families.learning.episode_env import EpisodeEnv
from dagsim.families.learning.observations import Presets

_HIDDEN = 1 << 40
"""The choice to wait; it is not a row of the observation."""


class VectorSchedulingEnv(VectorEnv[Any, Any, Any]):
    """``num_envs`` scheduling environments in the compiled engine.

    Spaces, observations, rewards, infos and seeds are those of a ``SyncVectorEnv`` of
    ``SchedulingEnv``: ``reset(seed=n)`` starts the job sequences n, n + 1, and so on. Each step
    returns new arrays. ``make_vec`` builds this environment if the compiled engine supports the
    configuration.
    """

    def __init__(
        self,
        episodes: Any,
        config: EnvConfig,
        num_envs: int,
        types: int,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        self.num_envs, self.config = num_envs, config
        self._mode = AutoresetMode(autoreset_mode)
        self.metadata = {**EpisodeEnv.metadata, "autoreset_mode": self._mode}
        self.single_observation_space = Presets(config, types).space
        self.single_action_space = Discrete(config.slots)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._episodes, self._types = episodes, types
        self._term = next(iter(config.reward))
        self._generators = [np_random()[0] for _ in range(num_envs)]
        self._every = np.arange(num_envs)
        self._terminated = np.ones(num_envs, bool)
        self._truncated = np.zeros(num_envs, bool)
        self._steps, self._illegal = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        self._rewards = np.zeros(num_envs)
        self._mask = np.zeros((num_envs, config.slots), np.int8)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start all episodes, or those that ``options["reset_mask"]``, (num_envs,) bool, selects."""
        mask = (options or {}).get("reset_mask")
        which = self._every if mask is None else np.flatnonzero(mask)
        if seed is None or isinstance(seed, int):
            seeds = [None if seed is None else seed + number for number in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ConfigError(f"seed: needs one seed per environment, {self.num_envs}, got {len(seeds)}")
        self._begin(which, [seeds[number] for number in which.tolist()])
        return self._observations(), self._infos(which)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Carry out one action per environment. In the mode ``NEXT_STEP``, a finished episode is
        restarted instead."""
        over = self._terminated | self._truncated
        live = np.flatnonzero(~over)
        if self._mode is AutoresetMode.NEXT_STEP:
            if over.any():
                ended = np.flatnonzero(over)
                self._begin(ended, [None] * len(ended))
        elif over.any():
            raise ConfigError("some episodes are over: reset them with options={'reset_mask': ...}")
        rewards = np.zeros(self.num_envs)
        if len(live):
            self._advance(live, np.asarray(actions, np.int64)[live])
            rewards[live] = self._rewards[live]
        terminated, truncated = self._terminated.copy(), self._truncated.copy()
        infos: dict[str, Any] = {}
        ended = np.flatnonzero(terminated | truncated)
        if self._mode is AutoresetMode.SAME_STEP and len(ended):
            infos = self._final(ended)
            self._begin(ended, [None] * len(ended))
        observations = self._observations()
        return observations, rewards, terminated, truncated, infos | self._infos(self._every)

    def _begin(self, which: np.ndarray, seeds: Sequence[int | None]) -> None:
        """Start episodes. An episode without a seed draws one from its environment's own generator."""
        pool, numbers = EpisodeEnv.random_seeds, []
        for number, seed in zip(which.tolist(), seeds, strict=True):
            if seed is not None:
                self._generators[number] = np_random(seed)[0]
            drawn = pool.start + int(self._generators[number].integers(len(pool))) if seed is None else seed
            numbers.append(drawn)
        self._terminated[which] = self._episodes.begin(which, numbers)
        self._rewards[which] = self._episodes.first_rewards(len(which))
        self._truncated[which] = False
        self._steps[which] = self._illegal[which] = 0

    def _advance(self, live: np.ndarray, actions: np.ndarray) -> None:
        """Carry out the actions of these episodes. An illegal action is replaced by the first legal
        one."""
        inside = (actions >= 0) & (actions < self.config.slots)
        legal = inside & (self._mask[live, np.where(inside, actions, 0)] > 0)
        self._illegal[live] += ~legal
        choices = np.where(actions == self.config.slots - 1, _HIDDEN, actions)
        self._rewards[live], self._terminated[live] = self._episodes.advance(live, np.where(legal, choices, 0))
        self._steps[live] += 1
        most = np.inf if self.config.max_steps is None else self.config.max_steps
        late = (self._steps >= most) | (self._episodes.now_s >= self.config.horizon_s)
        self._truncated[live] = (late & ~self._terminated)[live]

    def _observations(self) -> Any:
        """Return the observations of all episodes in the preset's form, in new arrays."""
        count, slots, features = self.num_envs, self.config.slots, self.config.codec.features
        tokens = np.zeros((count, slots, len(features["tokens"]) + 1), np.float32)
        context = np.zeros((count, len(features["context"])), np.float32)
        gpus = np.zeros((count, self._types, len(features["gpus"])), np.float32)
        self._mask = np.zeros((count, slots), np.int8)
        self._episodes.fill(self._every, tokens, context, gpus, self._mask)
        if self.config.observation == "candidates":
            return {"tokens": tokens, "context": context, "gpus": gpus, "action_mask": self._mask.copy()}
        flat = np.concatenate([tokens.reshape(count, -1), context, gpus.reshape(count, -1)], axis=1)
        if self.config.observation == "flat":
            return flat
        return {"observations": flat, "action_mask": self._mask.copy()}

    def _infos(self, which: np.ndarray) -> dict[str, Any]:
        """Return the infos of these episodes; for each key, ``_key`` tells for which episodes the
        value is set."""
        here = np.zeros(self.num_envs, bool)
        here[which] = True
        values: dict[str, np.ndarray] = {
            "action_mask": self._mask,
            "illegal_actions": self._illegal,
            "time_s": self._episodes.now_s,
            f"reward_{self._term}": self._rewards,
        }
        infos: dict[str, Any] = {}
        for name, value in values.items():
            infos[name] = value.copy()
            infos[name][~here] = 0
            infos[f"_{name}"] = here.copy()
        if (ended := here & self._terminated).any():
            infos["mean_jct_s"], infos["_mean_jct_s"] = np.zeros(self.num_envs), ended
            for number in np.flatnonzero(ended).tolist():
                infos["mean_jct_s"][number] = float(np.mean(self._episodes.jct_s(number)))
        return infos

    def _final(self, ended: np.ndarray) -> dict[str, Any]:
        """Return the last observations and infos of episodes that restart in the same step."""
        here = np.zeros(self.num_envs, bool)
        here[ended] = True
        observations = self._observations()
        final = np.full(self.num_envs, None, object)
        for number in ended.tolist():
            is_parts = isinstance(observations, dict)
            final[number] = {k: v[number] for k, v in observations.items()} if is_parts else observations[number]
        return {"final_obs": final, "_final_obs": here, "final_info": self._infos(ended), "_final_info": here.copy()}
