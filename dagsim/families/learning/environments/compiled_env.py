"""A single scheduling environment whose episodes run in the compiled engine."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from dagsim.families.learning.codecs.codec import StackedObservations
from dagsim.families.learning.environments.episode_env import EnvState
from dagsim.families.learning.environments.scheduling_env import SchedulingEnv
from dagsim.model import Decision

_ONE = np.zeros(1, np.int64)


class CompiledSchedulingEnv(SchedulingEnv):
    """A faster ``SchedulingEnv`` with identical observations, rewards and infos. If the simulation
    itself is needed (for ``view``, ``simulation``, ``action_of`` or ``render``), the episode
    continues in the SimPy kernel. The actions so far are repeated there first.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self._kernel: Any = None
        super().__init__(*arguments, **settings)
        self._in_kernel = True
        """True if the episode is in the SimPy kernel. ``_begin`` sets this for each episode."""
        config = self.config
        episodes = self.scenario.episodes(1, config.codec, config.reward, config.reward_scale)
        self._episodes: Any = None if isinstance(episodes, str) else episodes
        if self._episodes is not None and config.pool is not None:
            self._episodes.keep(config.pool)
        self._chosen, self._over = np.zeros(1, np.int64), True
        self._mask = np.zeros(config.slots, np.int8)
        (self._term,) = config.reward
        self._cost = 0.0

    @property
    def simulation(self) -> Any:
        """The kernel of the current episode, or ``None`` before the first episode."""
        self._continue_in_kernel()
        return self._kernel

    @simulation.setter
    def simulation(self, kernel: Any) -> None:
        self._kernel = kernel

    @property
    def view(self) -> Any | None:
        """Return the view that a heuristic would see now, or ``None`` when the episode is over."""
        self._continue_in_kernel()
        return super().view

    def action_of(self, decision: Decision | None) -> int | None:
        """Return the action for a heuristic's decision (see ``SchedulingEnv``)."""
        self._continue_in_kernel()
        return super().action_of(decision)

    def action_masks(self) -> np.ndarray:
        """Return a Boolean array, (slots,), that is True for the actions that are currently legal."""
        return super().action_masks() if self._in_kernel else self._mask.astype(bool)

    @property
    def _is_over(self) -> bool:
        return super()._is_over if self._in_kernel else self._over

    def _carry_out(self, action: Any) -> tuple[float, bool, bool]:
        if self._in_kernel:
            return super()._carry_out(action)
        self._chosen[0] = self._choice_of(int(action))
        rewards, over = self._episodes.advance(_ONE, self._chosen)
        reward, self._over = float(rewards[0]), bool(over[0])
        self._cost = -reward
        return reward, *self._flags(self._over, float(self._episodes.now_s[0]))

    def _state(self) -> EnvState:
        state = super()._state()
        return state if self._in_kernel else state._replace(reward=-self._cost, arena=self._episodes.saved(0))

    def _continue_from(self, state: EnvState) -> bool:
        if state.arena is None or self._episodes is None:
            self._in_kernel = True
            return super()._continue_from(state)
        over = self._episodes.restore(0, state.seed, state.arena)
        if over is None:
            return False
        self._in_kernel, self._kernel, self._episode = False, None, None
        self._over, self._cost = over, -state.reward
        return True

    def _another(self) -> Self:
        twin = super()._another()
        if self._episodes is not None and twin._episodes is self._episodes:
            twin._episodes, twin._chosen = self._episodes.beside(), np.zeros(1, np.int64)
        return twin

    def _choice_of(self, action: int) -> int:
        """Return the engine's choice for an action. For an illegal action, return the first legal
        choice."""
        if not (0 <= action < len(self._mask) and self._mask[action]):
            self._count_illegal(action)
            return 0
        return int(self._episodes.wait) if action == len(self._mask) - 1 else action

    def _begin(self, seed: int, **options: Any) -> None:
        # The compiled engine does not support these episodes, for example because of their
        # placement.
        if self._episodes is None:
            return super()._begin(seed)
        self._in_kernel, self._kernel, self._episode = False, None, None
        self._over = bool(self._episodes.begin(_ONE, [seed])[0])
        self._cost = -float(self._episodes.first_rewards(1)[0])

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        """Return the observation in the form of the preset, and the info."""
        if self._in_kernel:
            return super()._seen()
        parts = self._presets.blank()
        mask = self._mask = np.zeros(self.config.slots, np.int8)
        seen = StackedObservations(parts.tokens[None], parts.context[None], parts.gpus[None], mask[None])
        self._episodes.fill(np.array([self._over]), seen)
        self._presets.spread(parts.gpus)
        info: dict[str, Any] = {
            "action_mask": mask,
            "illegal_actions": self._illegal,
            "time_s": float(self._episodes.now_s[0]),
            self._parts[self._term]: -self._cost,
        }
        if self._over:
            info["mean_jct_s"] = float(np.mean(self._episodes.jct_s(0)))
        return self._presets.form(parts, mask), info

    def _continue_in_kernel(self) -> None:
        """Begin the episode again in the SimPy kernel, and repeat its actions there. Do nothing if
        the episode is already in that kernel.
        """
        if self._in_kernel:
            return
        self._in_kernel = True
        assert self._seed is not None
        # only the first illegal action causes a warning, so with a count above 0, repeated actions cause none
        illegal, self._illegal = self._illegal, 1
        super()._begin(self._seed)
        episode = self._episode
        assert episode is not None
        for action in self._actions:
            self._legal = self._presets.legal(episode.observation)
            self._choose(episode, action)
            episode.reward()
        self._legal = self._presets.legal(episode.observation)
        self._illegal = illegal
