"""The base class of the environments. It runs one episode at a time, and renders the episode as an
array or in a window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from inspect import signature
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import gymnasium
import gymnasium.vector
import numpy as np
from gymnasium.error import ResetNeeded

from dagsim.errors import ConfigError
from dagsim.families.learning.episode import Episode, Reward, RewardConfig
from dagsim.systems.seam import Kernel, Scenario

if TYPE_CHECKING:
    from dagsim.families.learning.environments.env_settings import EnvConfig

_RENDER_MODES = ["ansi", "rgb_array", "human"]
_FRAMES_PER_S = 4
_INSTANT_S = 1e-6


class EnvState(NamedTuple):
    """The state of an environment as plain values. ``set_state`` can restore it in the same process
    or in another one.
    """

    seed: int | None
    """The job sequence, or None before the first episode."""
    options: Mapping[str, Any]
    """The options of ``reset``."""
    actions: tuple[Any, ...]
    """The actions since the episode began."""
    rng: Mapping[str, Any]
    """The random stream that draws the seeds of further episodes."""
    illegal: int = 0
    """Number of illegal actions among them."""
    reward: float = 0.0
    """The last reward, if the compiled engine computed it."""
    arena: bytes | None = None
    """The memory of the simulation in the compiled engine, from which the engine can restore the
    state immediately. It is left out of pickles, because another version of dagsim could not read
    it.
    """
    episode: Episode | None = None
    """The episode in the SimPy kernel, which restores it at once. It cannot be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return EnvState, tuple(self[:-2])


class EpisodeEnv(ABC, gymnasium.Env[Any, Any]):
    """The base class of environments, a thin wrapper around ``Episode``. The subclass for a system
    adds spaces, choices and ``info``.

    ``reset(seed=n)`` starts the job sequence with the seed n. Render modes are ``ansi`` (text),
    ``rgb_array`` and ``human`` (a window).

    The current state can be saved and restored with ``copy.deepcopy``, with ``pickle``, or with
    ``get_state`` and ``set_state``. The simulation is forked if its kernel, the codec and the terms of
    the reward have a method ``fork``. Otherwise, and after ``pickle``, a restored environment repeats
    the actions of the episode. The result is exact either way, but repeating takes as long as the
    original steps.

    Raises:
        ConfigError: The render mode is unknown.
        UnknownName: The system has no such reward.
    """

    metadata = {"render_modes": _RENDER_MODES, "render_fps": _FRAMES_PER_S}

    random_seeds = range(1_000_000, 2_000_000)
    """Seeds of episodes that are started without a seed. Validation and final tests never use them."""

    _made_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *arguments: Any, **settings: Any) -> Self:
        """Record how the environment is created, so that it can be copied."""
        made = super().__new__(cls)
        made._made_with = arguments, settings
        return made

    def __init__(self, scenario: Scenario, rewards: RewardConfig, codec: Any, render_mode: str | None) -> None:
        if render_mode is not None and render_mode not in _RENDER_MODES:
            raise ConfigError(f"render_mode must be one of {_RENDER_MODES}, got {render_mode!r}")
        rewards.check(scenario.terms)
        self.scenario: Any = scenario
        self.codec = codec
        self.render_mode = render_mode
        self.simulation: Any = None
        """The kernel of the current episode, or ``None`` before the first."""
        self._rewards = rewards
        self._reward: Reward | None = None
        self._episode: Episode | None = None
        self._screen = Screen()
        self._steps = self._illegal = 0
        self._seed: int | None = None
        self._options: Mapping[str, Any] = {}
        self._actions: list[Any] = []

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        """Return the names of the settings that ``of`` accepts."""
        return tuple(name for name in signature(cls).parameters if name not in ("scenario", "render_mode"))

    @classmethod
    def of(
        cls, scenario: Scenario, env: EnvConfig | None = None, render_mode: str | None = None, **settings: Any
    ) -> Any:
        """Build the environment for a scenario. Its settings are given one by one or, if the
        environment has an ``EnvConfig``, as one object ``env``.

        Raises:
            InputError: The environment cannot be built.
        """
        if env is not None:
            raise ConfigError(f"env: {cls.__name__} has no EnvConfig, so pass the settings one by one")
        make: Any = cls
        return make(scenario=scenario, render_mode=render_mode, **settings)

    @classmethod
    def vector(
        cls, count: int, scenario: Scenario, env: EnvConfig | None, autoreset_mode: str, settings: Mapping[str, Any]
    ) -> Any:
        """Build ``count`` environments that are stepped together, as a
        ``gymnasium.vector.VectorEnv``.

        Raises:
            InputError: The environments cannot be built.
        """
        make = [partial(cls.of, scenario, env, **settings)] * count
        return gymnasium.vector.SyncVectorEnv(make, autoreset_mode=autoreset_mode)

    @property
    def view(self) -> Any | None:
        """Return the view that a heuristic would see now, or ``None`` when the episode is over."""
        return None if self._episode is None else self._episode.view

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode on the job sequence with ``seed``. Without a seed, the environment draws
        one from its own generator."""
        super().reset(seed=seed)
        pool = self.random_seeds
        number = pool.start + int(self.np_random.integers(len(pool))) if seed is None else seed
        self._steps = self._illegal = 0
        self._seed, self._options, self._actions = number, options or {}, []
        self._begin(number, **self._options)
        return self._seen()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Carry out the choice and advance to the next one.

        Raises:
            ResetNeeded: The episode is over, or none has begun.
            IllegalDecision: The action is masked, and the environment does not replace it.
        """
        if self._is_over:
            raise ResetNeeded("no episode is in progress; call reset() first")
        self._steps += 1
        self._actions.append(action)
        reward, terminated, truncated = self._carry_out(action)
        if self.render_mode == "human":
            self.render()
        observation, info = self._seen()
        return observation, reward, terminated, truncated, info

    def get_state(self) -> EnvState:
        """Return the current state as plain values, which can be pickled."""
        state = self._state()
        return state if state.episode is None else state._replace(episode=state.episode.fork())

    def _state(self) -> EnvState:
        """Return the current state without copying the episode, so later steps change it."""
        rng = self.np_random.bit_generator.state
        return EnvState(self._seed, self._options, tuple(self._actions), rng, self._illegal, episode=self._episode)

    def set_state(self, state: EnvState) -> tuple[Any, dict[str, Any]] | None:
        """Restore a state from ``get_state``. Return the observation and the info, or None if no
        episode had begun. A state that contains no simulation is restored by repeating its actions.
        """
        seen = None
        if state.seed is not None and self._continue_from(state):
            self._seed, self._options, self._actions = state.seed, dict(state.options), list(state.actions)
            self._steps, self._illegal = len(state.actions), state.illegal
            seen = self._seen()
        elif state.seed is not None:
            seen = self.reset(seed=state.seed, options=dict(state.options))
            mode, self.render_mode = self.render_mode, None
            for action in state.actions:
                observation, *_, info = self.step(action)
                seen = observation, info
            self.render_mode = mode
        self.np_random.bit_generator.state = state.rng
        return seen

    def _continue_from(self, state: EnvState) -> bool:
        """Continue from the simulation in a state. Return False if the state contains none, or one that
        cannot be forked.
        """
        episode = None if state.episode is None else state.episode.fork()
        if episode is None:
            return False
        self._episode, self.simulation = episode, episode.kernel
        self.codec, self._reward = episode.codec, episode.accrued
        return True

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return another environment in the same state, which is then independent of this one. Both
        environments share the scenario, which never changes."""
        memo[id(self)] = twin = self._another()
        twin.set_state(self._state())
        return twin

    def _another(self) -> Self:
        """Return a new environment with the same settings."""
        arguments, settings = self._made_with
        return type(self)(*arguments, **settings)

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), *self._made_with, self._state())

    def render(self) -> Any:
        """Render the current state according to the render mode: as text, as a (540, 960, 3) uint8
        array, or in a window.

        Raises:
            ResetNeeded: The episode has not begun.
        """
        match self.render_mode:
            case "ansi":
                return self._text()
            case "rgb_array":
                return self._picture()
            case "human":
                self._screen.show(self._picture())
        return None

    def close(self) -> None:
        """Close the window if there is one."""
        self._screen.close()

    def _begin(self, seed: int, **options: Any) -> None:
        """Begin an episode. ``options`` is as in ``reset``."""
        self._play(self.scenario.kernel(seed, **options))

    def _play(self, kernel: Any, until_s: float = inf) -> None:
        """Make the simulation of ``kernel`` the current episode."""
        self.simulation = kernel
        self._reward = Reward(self._rewards, kernel, self.scenario.terms)
        self._episode = Episode(kernel, self.codec, self._reward, until_s=until_s)

    @property
    def _is_over(self) -> bool:
        """True if there is no choice to make."""
        return self._episode is None or self._episode.observation is None

    def _carry_out(self, action: Any) -> tuple[float, bool, bool]:
        """Carry out a choice. Return the reward and the flags ``terminated`` and ``truncated``."""
        episode = self._episode
        assert episode is not None
        self._choose(episode, action)
        return episode.reward(), *self._ended(episode)

    @abstractmethod
    def _choose(self, episode: Episode, action: Any) -> None:
        """Carry out the choice that an action represents."""

    @abstractmethod
    def _ended(self, episode: Episode) -> tuple[bool, bool]:
        """Return the current values of the flags ``terminated`` and ``truncated``."""

    @abstractmethod
    def _seen(self) -> tuple[Any, dict[str, Any]]:
        """Return the observation and the info for the current state."""

    @abstractmethod
    def _picture(self) -> np.ndarray:
        """Draw the current state as a (540, 960, 3) uint8 array."""

    @abstractmethod
    def _text(self) -> str:
        """Describe the current state in words."""

    def _without_view(self) -> str:
        """Describe the current state in words while there is no choice to make."""
        return "not begun" if self.simulation is None else "over"


def _remade(kind: type[EpisodeEnv], arguments: Any, settings: Any, state: EnvState) -> EpisodeEnv:
    """Rebuild an environment that was pickled."""
    made = kind(*arguments, **settings)
    made.set_state(state)
    return made


def picture_of(kernel: Kernel[Any, Any] | None, title: str) -> np.ndarray:
    """Draw the cluster at the current time of an episode, as a (540, 960, 3) uint8 array.

    Raises:
        ResetNeeded: The episode has not begun.
    """
    from dagsim.metrics.columns import ScheduleColumns
    from dagsim.pictures import Scene

    if kernel is None:
        raise ResetNeeded("there is nothing to draw yet; call reset() first")
    now_s = kernel.now
    # End slightly after the current time, to include runs that start now.
    after_s = now_s + max(_INSTANT_S, now_s * 1e-9)
    columns = ScheduleColumns.of(kernel.schedule, start_s=0.0, end_s=after_s)
    return Scene(columns, title).array(now_s)


class Screen:
    """The window of ``render_mode="human"``, which opens on the first frame."""

    def __init__(self) -> None:
        self._window: Any = None

    def show(self, image: np.ndarray) -> None:
        """Show the image in the window."""
        from matplotlib import pyplot

        if self._window is None:
            self._window, axes = pyplot.subplots(figsize=(9.6, 5.4), layout="constrained")
            axes.axis("off")
            self._shown = axes.imshow(image)
        self._shown.set_data(image)
        pyplot.pause(1 / _FRAMES_PER_S)

    def close(self) -> None:
        """Close the window if there is one."""
        if self._window is not None:
            from matplotlib import pyplot

            pyplot.close(self._window)
            self._window = None
