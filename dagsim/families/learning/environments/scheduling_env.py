"""The Gymnasium environment for the GPU cluster, a thin wrapper around ``Episode``."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import fields
from functools import partial
from typing import Any, Self

import gymnasium
import numpy as np

from dagsim.errors import ConfigError
from dagsim.families.learning.codecs.codec import CandidatesConfig, Observation
from dagsim.families.learning.environments.env_settings import EnvConfig
from dagsim.families.learning.environments.episode_env import EnvState, EpisodeEnv, Screen, picture_of
from dagsim.families.learning.environments.observations import Levelled, Presets
from dagsim.families.learning.environments.vector_env import VectorSchedulingEnv, episode_seeds
from dagsim.families.learning.episode import Episode, RewardConfig
from dagsim.model import Decision, Kind
from dagsim.model.log import Schedule
from dagsim.sections import Registered
from dagsim.systems.cluster import services
from dagsim.systems.cluster.resources.cluster_state import ClusterState
from dagsim.systems.cluster.scenario import ClusterScenario, ClusterWorld, refused_engine
from dagsim.systems.cluster.view import ClusterView
from dagsim.systems.seam import Scenario


class SchedulingEnv(EpisodeEnv):
    """Every step is one choice: which task to start and where, or to wait for a change. Waiting is the
    last action, and is legal as long as any event is still to come. ``action_masks()``,
    ``info["action_mask"]`` and the observation (except ``flat``) indicate which actions are legal.
    A masked action is replaced by the first legal one and counted in ``info["illegal_actions"]``. The
    first one in an episode causes a warning.

    An episode is ``terminated`` when every job has left, and ``truncated`` at ``max_steps`` or
    ``horizon_s``. ``reset(seed=n)`` starts the job sequence with the seed n. ``info`` contains the
    time and, at the end of the episode, ``mean_jct_s``.

    Render modes: ``ansi`` (a line), ``rgb_array`` and ``human`` (queue and GPUs, one colour per
    job).
    """

    def __init__(self, scenario: Scenario, config: EnvConfig | None = None, render_mode: str | None = None) -> None:
        self.config = config or EnvConfig()
        if scenario.varied and isinstance(self.config.codec, CandidatesConfig):
            raise ConfigError(
                "env: the codec 'candidates' has a row for each GPU type, but in this scenario "
                "every seed has its own GPU types; use the codec 'relative'"
            )
        rewards = RewardConfig(self.config.reward, self.config.reward_scale)
        super().__init__(scenario, rewards, self._new_codec(), render_mode)
        self.random_seeds = episode_seeds(self.config)
        self._presets = Presets(self.config, len(scenario.kernel(0).machines.types))  # type: ignore[attr-defined]
        self.observation_space = self._presets.space
        self.action_space = gymnasium.spaces.Discrete(self.config.slots)
        self._legal = self._presets.legal(None)
        self._parts = {name: f"reward_{name}" for name in rewards.terms}
        """Key in ``info`` for each term of the reward."""

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        return tuple(part.name for part in fields(EnvConfig))

    @classmethod
    def of(
        cls, scenario: Scenario, env: EnvConfig | None = None, render_mode: str | None = None, **settings: Any
    ) -> Any:
        """Build the environment for a scenario; ``settings`` are fields of ``EnvConfig``. Its episodes
        run in the compiled engine if the engine supports the configuration and was compiled before.
        """
        config = env or _config_of(scenario, settings)
        at_hand = services.episodes_at_hand.offered()
        if cls is SchedulingEnv and at_hand and _is_plain(config) and isinstance(scenario, ClusterWorld):
            from dagsim.families.learning.environments.compiled_env import CompiledSchedulingEnv

            if not scenario.why_no_episodes(config.codec, config.reward) and at_hand():
                return CompiledSchedulingEnv(scenario, config, render_mode)
        return cls(scenario, config, render_mode)

    @classmethod
    def vector(
        cls, count: int, scenario: Scenario, env: EnvConfig | None, autoreset_mode: str, settings: Mapping[str, Any]
    ) -> Any:
        """Build ``count`` environments that are stepped together. They run in the compiled engine
        (``VectorSchedulingEnv``) if it supports the configuration.

        Raises:
            ConfigError: The compiled engine is requested but cannot run the environments.
        """
        own = {name: value for name, value in settings.items() if name != "render_mode"}
        config = env or _config_of(scenario, own)
        episodes: Any = "the compiled engine supports only the level task_type, and not the observation graph"
        if _is_plain(config):
            episodes = scenario.episodes(count, config.codec, config.reward, config.reward_scale)
        if not isinstance(episodes, str):
            render_mode = settings.get("render_mode")
            return VectorSchedulingEnv(
                episodes,
                config,
                count,
                len(ClusterState(scenario.cluster).types),
                autoreset_mode,
                again=partial(cls.vector, count, scenario, config, autoreset_mode, settings),
                single=partial(cls, scenario, config, render_mode),
                render_mode=render_mode,
            )
        if isinstance(scenario, ClusterScenario) and scenario.engine == "compiled":
            raise refused_engine(episodes)
        if episodes != "asked for":
            gymnasium.logger.warn(
                "the environments run one after another, with about a twentieth of the decisions per second, "
                f"because {episodes} (docs/learning.md)"
            )
        shown = {name: value for name, value in settings.items() if name == "render_mode"}
        return super().vector(count, scenario, config, autoreset_mode, shown)

    def _begin(self, seed: int, **options: Any) -> None:
        self.codec = self._new_codec()
        super()._begin(seed)

    def _choose(self, episode: Episode, action: np.int64 | int) -> None:
        episode.step(self._row(int(action)))

    def _ended(self, episode: Episode) -> tuple[bool, bool]:
        return self._flags(episode.observation is None, episode.now)

    def _flags(self, terminated: bool, now_s: float) -> tuple[bool, bool]:
        """Return ``terminated`` and ``truncated``."""
        over = self.config.max_steps is not None and self._steps >= self.config.max_steps
        return terminated, not terminated and (over or now_s >= self.config.horizon_s)

    def _another(self) -> Self:
        if not type(self).__module__.startswith("dagsim."):
            return super()._another()  # because a subclass may have additional parts
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        twin.action_space, twin.observation_space = deepcopy((self.action_space, self.observation_space))
        twin._np_random, twin._screen = None, Screen()
        twin._episode, twin.simulation = None, None
        return twin

    def _continue_from(self, state: EnvState) -> bool:
        continued = super()._continue_from(state)
        self._legal = self._presets.legal(self._observation)
        return continued

    def action_masks(self) -> np.ndarray:
        """Return a Boolean array, (slots,), that is True for the actions that are currently legal."""
        return self._presets.mask(self._presets.legal(self._observation)).astype(bool)

    def action_of(self, decision: Decision | None) -> int | None:
        """Return the action for a heuristic's decision (``None`` means waiting).
        Return ``None`` if there is no such action, or if there are more choices than slots."""
        row, observation = self.codec.choice_of(() if decision is None else (decision,)), self._observation
        if row is None or observation is None:
            return None
        last = self.config.slots - 1
        if observation.tokens[row, 0] == 1.0:
            return last
        return row if row < last else None

    def _picture(self) -> np.ndarray:
        return picture_of(self.simulation, f"{self._steps:,} choices")

    def _text(self) -> str:
        view: ClusterView | None = self.view
        if view is None:
            return self._without_view()
        machines = view.machines
        idle = ", ".join(
            f"{machines.idle_gpus(type_)} {gpu.name if gpu else 'CPU'}" for type_, gpu in enumerate(machines.types)
        )
        return f"{view.now:.0f} s: {len(view.ready)} ready, {len(view.running)} running, idle: {idle}"

    def _row(self, action: int) -> int:
        """Return the row that an action selects. For an illegal action, return the first legal
        row."""
        starts, wait = self._legal
        if 0 <= action < starts:
            return action
        if action == self.config.slots - 1 and wait is not None:
            return wait
        self._count_illegal(action)
        return 0

    def _count_illegal(self, action: int) -> None:
        """Count an illegal action. Warn about the first one in each episode."""
        if not self._illegal:
            gymnasium.logger.warn(
                f"action {action} is not legal now, so the first legal choice is taken; legal actions are "
                "True in info['action_mask']"
            )
        self._illegal += 1

    def _new_codec(self) -> Any:
        codec = self.config.codec
        return Levelled(codec, self.config.level) if isinstance(codec, CandidatesConfig) else codec.build()

    @property
    def _observation(self) -> Observation | None:
        return None if self._episode is None else self._episode.observation

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        """Return the observation in the form that the preset requires, and the info."""
        observation = self._observation
        legal = self._legal = self._presets.legal(observation)
        mask = self._presets.mask(legal)
        shown = self._presets.observe(observation, legal, mask)
        if self.config.observation == "graph":
            shown |= self._presets.graph(self.view)
        return shown, self._info(mask)

    def _info(self, mask: np.ndarray) -> dict[str, Any]:
        assert self._reward is not None
        info: dict[str, Any] = {"action_mask": mask, "illegal_actions": self._illegal, "time_s": self.simulation.now}
        for name, cost in self._reward.last.items():
            info[self._parts[name]] = -cost
        if self._observation is None:
            info["mean_jct_s"] = _mean_jct_s(self.simulation.schedule)
        return info


def _mean_jct_s(schedule: Schedule) -> float:
    """Compute the mean completion time in the same way as the metrics, but from the rows of the
    log. Converting the rows to an array would take ten times as long.
    """
    jct_s = np.full(len(schedule.jobs), np.nan)
    for kind, now_s, job, _, _, _, _, _, _ in schedule.log.since(0):
        if kind == Kind.COMPLETED:
            jct_s[job] = now_s - schedule.jobs[job].arrival_s
    return float(np.mean(jct_s))


def _is_plain(config: EnvConfig) -> bool:
    """Return True if the compiled engine supports the actions and the observations."""
    return config.level == "task_type" and config.observation != "graph"


def _config_of(scenario: Scenario, settings: Mapping[str, Any]) -> EnvConfig:
    """Return the settings. A codec that is given by name, or as a mapping with a ``kind``, is
    replaced by its settings."""
    codec = settings.get("codec")
    if isinstance(codec, str | Mapping):
        settings = {**settings, "codec": Registered(scenario.codecs, "candidates").read(codec)}
    elif codec is not None and not hasattr(codec, "build"):
        raise ConfigError(f"codec: must be a name, a mapping with a kind, or settings of a codec, got {codec!r}")
    return EnvConfig(**settings)
