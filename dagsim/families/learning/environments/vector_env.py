"""The Gymnasium environment that runs many episodes on the GPU cluster side by side, in the
compiled engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from dagsim.errors import ConfigError
from dagsim.families.learning.codecs.codec import StackedObservations, StepOutcomes
from dagsim.families.learning.environments.env_settings import EnvConfig
from dagsim.families.learning.environments.episode_env import EnvState, EpisodeEnv
from dagsim.families.learning.environments.observations import Presets

_NO_ACTION = -(1 << 62)
_FORGET = 4096
"""Number of steps in ended episodes after which their actions are dropped."""


def episode_seeds(config: EnvConfig) -> range:
    """Return the range from which the seed of an episode is drawn if none is given."""
    return EpisodeEnv.random_seeds[: config.pool]


class VectorSchedulingEnv(VectorEnv[Any, Any, Any]):
    """``num_envs`` scheduling environments in the compiled engine.

    Spaces, observations, rewards, infos and seeds are the same as in a ``SyncVectorEnv`` of
    ``SchedulingEnv``: ``reset(seed=n)`` starts the job sequences n, n + 1, and so on. Every step
    returns new arrays. ``make_vec`` builds this class if the compiled engine supports the
    configuration.

    ``copy.deepcopy`` and ``get_state`` with ``set_state`` copy the memory of the simulations. After
    ``pickle``, the actions of the current episodes are repeated. ``render`` and ``call`` repeat
    them in a separate environment (``moment``).
    """

    def __init__(
        self,
        episodes: Any,
        config: EnvConfig,
        num_envs: int,
        types: int,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        *,
        again: Callable[[], VectorSchedulingEnv] | None = None,
        single: Callable[[], EpisodeEnv] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Wrap compiled ``episodes``. ``again`` builds the same environments again. ``single``
        builds one of them.
        """
        self.num_envs, self.config = num_envs, config
        self._again, self._single, self.render_mode = again, single, render_mode
        self._mode = AutoresetMode(autoreset_mode)
        self.metadata = {**EpisodeEnv.metadata, "autoreset_mode": self._mode}
        self._presets = Presets(config, types)
        self.single_observation_space = self._presets.space
        self.single_action_space = Discrete(config.slots)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._episodes, self._types, self._pool = episodes, types, episode_seeds(config)
        if config.pool is not None:
            episodes.keep(config.pool)
        self._term = next(iter(config.reward))
        self._generators = [np_random()[0] for _ in range(num_envs)]
        self._every = np.arange(num_envs)
        self._terminated = np.ones(num_envs, bool)
        self._truncated = np.zeros(num_envs, bool)
        self._steps, self._illegal = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        self._rewards = np.zeros(num_envs)
        self._mask = np.zeros((num_envs, config.slots), np.int8)
        self._seeds = np.full(num_envs, -1)
        self._taken: list[np.ndarray] = []
        """The actions of all steps since ``_dropped``; ``_NO_ACTION`` where none was taken."""
        self._first, self._dropped = np.zeros(num_envs, np.int64), 0
        """The step with which each present episode began, and the number of steps that were forgotten."""
        self._before: list[tuple[int, ...]] = [()] * num_envs
        """The actions of each episode before that step, if its state was restored."""

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start all episodes. If ``options["reset_mask"]``, (num_envs,) bool, is given, start only
        those for which it is True."""
        mask = (options or {}).get("reset_mask")
        which = self._every if mask is None else np.flatnonzero(mask)
        if seed is None or isinstance(seed, int):
            seeds = [None if seed is None else seed + number for number in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ConfigError(f"seed: expected {self.num_envs} seeds, one per environment, got {len(seeds)}")
        self._begin(which, [seeds[number] for number in which.tolist()])
        return self._observations(), self._infos(which)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Carry out one action per environment. In the mode ``NEXT_STEP``, an environment whose
        episode has ended starts the next episode instead."""
        over = self._terminated | self._truncated
        if over.any():
            if self._mode is not AutoresetMode.NEXT_STEP:
                raise ConfigError("some episodes are over: reset them with options={'reset_mask': ...}")
            ended = np.flatnonzero(over)
            self._begin(ended, [None] * len(ended))
        live = ~over
        observations = self._advance(live, np.ascontiguousarray(actions, np.int64))
        rewards = np.where(live, self._rewards, 0.0)
        terminated, truncated = self._terminated.copy(), self._truncated.copy()
        infos: dict[str, Any] = {}
        if self._mode is AutoresetMode.SAME_STEP and (ended := np.flatnonzero(terminated | truncated)).size:
            infos = self._final(ended, observations)
            self._begin(ended, [None] * len(ended))
            observations = self._observations()
        return observations, rewards, terminated, truncated, infos | self._infos(self._every)

    def get_state(self) -> tuple[EnvState, ...]:
        """Return the current state of each environment as plain values, which can be pickled."""
        return tuple(
            EnvState(
                None if self._seeds[number] < 0 else int(self._seeds[number]),
                {},
                self._actions_of(number),
                generator.bit_generator.state,
                int(self._illegal[number]),
                float(self._rewards[number]),
                None if self._seeds[number] < 0 else self._episodes.saved(number),
            )
            for number, generator in enumerate(self._generators)
        )

    def set_state(self, states: Sequence[EnvState]) -> Any:
        """Restore the states that ``get_state`` returned. Return the observations. A state may lack
        the memory of the simulation, because it was pickled or comes from a single environment. It
        is then restored by repeating its actions.

        Raises:
            ConfigError: The number of states differs from the number of environments.
        """
        if len(states) != self.num_envs:
            raise ConfigError(f"set_state: expected {self.num_envs} states, got {len(states)}")
        begun = [number for number, state in enumerate(states) if state.seed is not None]
        slow = [number for number in begun if not self._restore(number, states[number])]
        self._begin(np.array(slow, np.int64), [states[number].seed for number in slow])
        self._observations()
        for step in range(max((len(states[number].actions) for number in slow), default=0)):
            live, actions = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, np.int64)
            for number in slow:
                if step < len(states[number].actions):
                    live[number], actions[number] = True, states[number].actions[step]
            self._advance(live, actions)
        for generator, state in zip(self._generators, states, strict=True):
            generator.bit_generator.state = state.rng
        return self._observations()

    def moment(self, number: int) -> EpisodeEnv:
        """Return environment ``number`` in its current state, as a separate environment that uses
        the kernel.

        Raises:
            ConfigError: The environment was created without ``single``.
        """
        if self._single is None:
            raise ConfigError(
                "cannot create a single environment, because the vector environment was not created by make_vec"
            )
        env = self._single()
        env.set_state(self.get_state()[number])
        return env

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or read an attribute of each."""
        if name == "action_masks":
            return tuple(self._mask.astype(bool))
        values = [getattr(self.moment(number), name) for number in range(self.num_envs)]
        return tuple([value(*args, **kwargs) if callable(value) else value for value in values])

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Read an attribute of each environment."""
        return tuple([getattr(self.moment(number), name) for number in range(self.num_envs)])

    def render(self) -> tuple[Any, ...] | None:
        """Draw each environment in the render mode. Return None if there is none."""
        return None if self.render_mode is None else self.call("render")

    def __deepcopy__(self, memo: dict[int, Any]) -> VectorSchedulingEnv:
        """Return independent environments in the same states."""
        memo[id(self)] = twin = type(self)(
            self._episodes.beside(),
            self.config,
            self.num_envs,
            self._types,
            self._mode,
            again=self._again,
            single=self._single,
            render_mode=self.render_mode,
        )
        twin.set_state(self.get_state())
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return _at_state, (self._again, self.get_state())

    def _actions_of(self, number: int) -> tuple[int, ...]:
        """Return the actions in the current episode of an environment so far."""
        steps = self._taken[int(self._first[number]) - self._dropped :]
        return self._before[number] + tuple([int(step[number]) for step in steps if step[number] != _NO_ACTION])

    def _restore(self, number: int, state: EnvState) -> bool:
        """Restore an episode from the memory in its state. Return False if this is not possible."""
        over = None if state.arena is None else self._episodes.restore(number, state.seed, state.arena)
        if over is None:
            return False
        self._seeds[number], self._before[number] = state.seed, state.actions
        self._first[number] = self._dropped + len(self._taken)
        self._steps[number], self._illegal[number] = len(state.actions), state.illegal
        self._rewards[number], self._terminated[number] = state.reward, over
        self._truncated[number] = self._late()[number] and not over
        return True

    def _late(self) -> np.ndarray:
        """Return a mask of the episodes that have reached a limit, (num_envs,) bool, whether or not
        jobs are left.
        """
        most = np.inf if self.config.max_steps is None else self.config.max_steps
        late: np.ndarray = (self._steps >= most) | (self._episodes.now_s >= self.config.horizon_s)
        return late

    def _begin(self, which: np.ndarray, seeds: Sequence[int | None]) -> None:
        """Start episodes. An episode without a seed draws one from its environment's own generator."""
        pool, numbers = self._pool, []
        for number, seed in zip(which.tolist(), seeds, strict=True):
            if seed is not None:
                self._generators[number] = np_random(seed)[0]
            drawn = pool.start + int(self._generators[number].integers(len(pool))) if seed is None else seed
            numbers.append(drawn)
        for number in which.tolist():
            self._before[number] = ()
        self._seeds[which] = numbers
        self._first[which] = self._dropped + len(self._taken)
        if (old := int(self._first.min()) - self._dropped) > _FORGET:
            del self._taken[:old]
            self._dropped += old
        self._terminated[which] = self._episodes.begin(which, numbers)
        self._rewards[which] = self._episodes.first_rewards(len(which))
        self._truncated[which] = False
        self._steps[which] = self._illegal[which] = 0

    def _advance(self, live: np.ndarray, actions: np.ndarray) -> Any:
        """Carry out the actions of the live episodes. An illegal action is replaced by the first
        legal one. Return the observations of all episodes."""
        self._taken.append(np.where(live, actions, _NO_ACTION))
        observations = self._observations(live, actions)
        self._steps += live
        late = self._late() & ~self._terminated
        self._truncated = np.where(live, late, self._truncated)
        return observations

    def _observations(self, live: np.ndarray | None = None, actions: np.ndarray | None = None) -> Any:
        """Return the observations of all episodes in new arrays, in the form that the preset
        requires. First carry out the actions of the live episodes, if there are any."""
        count, slots, features = self.num_envs, self.config.slots, self.config.codec.features
        tokens = np.zeros((count, slots, self._presets.tokens), np.float32)
        context = np.zeros((count, len(features["context"])), np.float32)
        gpus = np.zeros((count, self._types, len(features["gpus"])), np.float32)
        legal, self._mask = self._mask, np.zeros((count, slots), np.int8)
        seen = StackedObservations(tokens, context, gpus, self._mask)
        if live is None or actions is None:
            self._episodes.fill(self._terminated, seen)
        else:
            outcome = StepOutcomes(self._rewards, self._terminated, self._illegal)
            self._episodes.step(live, actions, legal, outcome, seen)
        self._presets.spread(gpus)
        if self.config.observation == "candidates":
            return {"tokens": tokens, "context": context, "gpus": gpus, "action_mask": self._mask.copy()}
        flat = np.concatenate([tokens.reshape(count, -1), context, gpus.reshape(count, -1)], axis=1)
        if self.config.observation == "flat":
            return flat
        return {"observations": flat, "action_mask": self._mask.copy()}

    def _infos(self, which: np.ndarray) -> dict[str, Any]:
        """Return the infos of these episodes. For each key ``name``, the entry ``_name`` states for
        which episodes the value is set.
        """
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

    def _final(self, ended: np.ndarray, observations: Any) -> dict[str, Any]:
        """Return the last observations and infos of the episodes that have ended, if episodes
        restart in the same step."""
        here = np.zeros(self.num_envs, bool)
        here[ended] = True
        final = np.full(self.num_envs, None, object)
        for number in ended.tolist():
            is_parts = isinstance(observations, dict)
            final[number] = {k: v[number] for k, v in observations.items()} if is_parts else observations[number]
        return {"final_obs": final, "_final_obs": here, "final_info": self._infos(ended), "_final_info": here.copy()}


def _at_state(again: Callable[[], VectorSchedulingEnv] | None, states: Sequence[EnvState]) -> VectorSchedulingEnv:
    """Rebuild environments that were pickled."""
    if again is None:
        raise ConfigError("the environments were not created by make_vec, so it is unknown how to create them again")
    made = again()
    made.set_state(states)
    return made
