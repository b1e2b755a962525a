"""``dagsim/Decima-v0``: the executors of a Spark cluster as a Gymnasium environment (Mao et al. 2019).

``import dagsim.envs.decima`` registers it. A step gives executors of the present source to one stage; time passes when
none are left to give, or no stage wants any. The observation is a graph, padded to constant shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import gymnasium
import numpy as np

from dagsim.envs.decima_codec import GraphCodec, Observation
from dagsim.envs.decima_render import describe, picture
from dagsim.errors import ConfigError, IllegalDecision, Stalled
from dagsim.model.streams import stream
from dagsim.systems.spark import (
    Action,
    Commit,
    ExecutorType,
    JobTime,
    SparkJob,
    SparkKernel,
    SparkView,
    parity_sequence,
    sequence,
    synthetic_profiles,
)
from dagsim.systems.spark.executors import executor_types

__all__ = ["ENV_ID", "DecimaEnv"]

ENV_ID = "dagsim/Decima-v0"


class DecimaEnv(gymnasium.Env[Any, Any]):
    """Episodes of ``jobs`` Spark jobs on ``executors`` executors, all alike or of several types.

    Observation, rows beyond those in use being 0 (places: -1); all jobs and stages in the system, by job in order of
    arrival, at most ``most_stages`` of them (those that can be chosen are never the ones left out):

    - ``stages`` (most_stages, 6) float32: tasks not launched, seconds a task lasts as far as is known, executors it
      could use, tasks that run, 1 where its parents are complete, edges on the longest path to the job's end;
    - ``job`` (most_stages,) int64: the number of its job among those in the system;
    - ``edges`` (most_edges, 2) int64: rows of parent and child;
    - ``jobs`` (most_stages, 3) float32: executors, seconds since it arrived, 1 for the source;
    - ``context`` (3,) float32: executors to give, jobs in the system, seconds since the start;
    - ``action_mask`` (most_stages + 1,) int8 and ``number_mask`` (executors,) int8: what can be chosen now.

    Action: the row of a stage, and the number of executors to add less 1. More than it wants is cut to that. With
    ``action="limit"`` the number is, less 1, how many executors the stage's job may have: those of the source are added
    up to that; the limit is above what the job keeps without them (``kept`` in ``info``, by job), and at least one is
    given if it is not. Row ``most_stages`` leaves the rest idle, which can be chosen while anything is under way. The
    masks are also in ``info`` and, end to end, in ``action_masks()``; the one for limits allows what some job can get.

    Reward: minus the job-seconds until the next decision, discounted from now at ``beta`` per second. Without discount
    their sum is minus the sum of all completion times. Terminated when all jobs are complete; truncated at a time drawn
    anew for every episode from an exponential distribution, with ``mean_time_limit_s``, or when all is left idle.

    Render modes: ``ansi`` (a table of the jobs), ``rgb_array`` and ``human`` (executors over time, coloured by job).
    """

    metadata = {"render_modes": ["ansi", "rgb_array", "human"], "render_fps": 4}

    def __init__(
        self,
        executors: int | tuple[ExecutorType, ...] = 50,
        jobs: int = 20,
        *,
        pool: Sequence[SparkJob] | None = None,
        batch: int = 1,
        mean_gap_s: float = 25.0,
        parity: bool = False,
        beta: float = 0.0,
        mean_time_limit_s: float | None = None,
        action: Action = "executors",
        most_stages: int = 400,
        most_edges: int = 800,
        render_mode: str | None = None,
    ) -> None:
        if jobs < 1 or most_stages < 1 or most_edges < 0:
            raise ConfigError("jobs and most_stages must be at least 1, and most_edges 0 or more")
        if beta < 0 or (mean_time_limit_s is not None and not mean_time_limit_s > 0):
            raise ConfigError(f"beta must be 0 or more and a time limit positive, got {beta!r}, {mean_time_limit_s!r}")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ConfigError(f"render_mode must be one of {self.metadata['render_modes']}, got {render_mode!r}")
        if action not in get_args(Action):
            raise ConfigError(f"action must be one of {get_args(Action)}, got {action!r}")
        if parity and not isinstance(executors, int):
            raise ConfigError("parity knows no executors of several speeds")
        self.types = executor_types(executors)
        self.jobs, self.batch, self.mean_gap_s = jobs, batch, mean_gap_s
        self.pool = list(pool) if pool is not None else synthetic_profiles()
        self.parity, self.beta, self.mean_time_limit_s = parity, beta, mean_time_limit_s
        self.most_stages, self.render_mode = most_stages, render_mode
        self._codec = GraphCodec(sum(type_.count for type_ in self.types), most_stages, most_edges, action)
        self.action_space, self.observation_space = self._codec.actions, self._codec.observations
        self.simulation: SparkKernel | None = None
        self._view: SparkView | None = None
        self._window: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """A new episode; its jobs follow from ``seed``, or without one from the episode before.

        ``options={"jobs": [...]}`` plays these ``SparkJob``s instead, in order of arrival.
        """
        super().reset(seed=seed)
        number = int(self.np_random.integers(2**31)) if seed is None else seed
        limit_s = np.inf
        if self.mean_time_limit_s is not None:
            limit_s = float(stream(number, "time-limit").exponential(self.mean_time_limit_s))
        given = (options or {}).get("jobs")
        self.simulation = self._simulation(number, given)
        self._count = self.jobs if given is None else len(given)
        self._cost = JobTime(self.simulation.episode, self.beta)
        self._conversation = self.simulation.decisions(limit_s)
        self._view = next(self._conversation, None)
        if self._view is not None:
            self._cost.until(self._view.now_ms / 1000)
        return self._observation(), self._info()

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Give executors to a stage.

        Raises:
            IllegalDecision: The episode is over, or the masks forbid the action.
        """
        if self._view is None:
            raise IllegalDecision("the episode is over (or none has begun): call reset()")
        decision = self._codec.decode(int(action[0]), int(action[1]) + 1)
        assert self.simulation is not None
        episode = self.simulation.episode
        try:
            self._view = self._conversation.send(() if decision is None else (decision,))
            now_ms = self._view.now_ms
        except (StopIteration, Stalled):
            self._view, now_ms = None, self.simulation.cluster.now_ms
        reward = -self._cost.until(now_ms / 1000)
        over = self._view is None
        done = len(episode.jobs) == self._count and all(job.completed_ms is not None for job in episode.jobs)
        if self.render_mode == "human":
            self.render()
        return self._observation(), reward, over and done, over and not done, self._info()

    @property
    def view(self) -> SparkView | None:
        """What a heuristic would be shown now; ``None`` when the episode is over."""
        return self._view

    def action_of(self, decision: Commit | None) -> np.ndarray:
        """The action that stands for a heuristic's decision. (2,) int64. O(stages)."""
        return self._codec.action_of(decision)

    def action_masks(self) -> np.ndarray:
        """(most_stages + 1 + executors,) bool: both masks, as maskable agents want them."""
        return np.concatenate(list(self._codec.masks.values())).astype(bool)

    def render(self) -> Any:
        """The present, as the render mode says."""
        assert self.simulation is not None, "call reset() first"
        if self.render_mode == "ansi":
            return describe(self.simulation)
        if self.render_mode is None:
            return None
        image = picture(self.simulation)
        if self.render_mode == "rgb_array":
            return image
        self._show(image)
        return None

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            from matplotlib import pyplot

            pyplot.close(self._window)
            self._window = None

    def _simulation(self, seed: int, given: Sequence[SparkJob] | None) -> SparkKernel:
        record, gap_ms = self.render_mode is not None, self.mean_gap_s * 1000
        if given is not None:
            return SparkKernel(self.types, given, parity=self.parity, record=record, seed=seed)
        if self.parity:
            drawn = parity_sequence(self.pool, seed, self.jobs, mean_gap_ms=gap_ms)
            return SparkKernel(self.types, drawn.jobs, parity=True, draws=drawn.draws, record=record, seed=seed)
        arriving = sequence(self.pool, seed, jobs=self.jobs, mean_gap_ms=gap_ms, batch=self.batch)
        return SparkKernel(self.types, arriving, record=record, seed=seed)

    def _observation(self) -> Observation:
        if self._view is None:
            return self._codec.blank()
        assert self.simulation is not None
        return self._codec.encode(self._view.graph(), may_idle=bool(self.simulation.cluster.heap))

    def _info(self) -> dict[str, Any]:
        assert self.simulation is not None
        episode = self.simulation.episode
        info: dict[str, Any] = {
            **self._codec.masks,
            "completed_jobs": len(episode.jct_s),
            "decisions": episode.decisions,
        }
        if self._view is not None:
            info["kept"] = self._codec.kept
        if self._view is None and len(episode.jct_s):
            info["mean_jct_s"] = episode.mean_jct_s
        return info

    def _show(self, image: np.ndarray) -> None:
        from matplotlib import pyplot

        if self._window is None:
            self._window, axes = pyplot.subplots(figsize=(11, 5))
            axes.axis("off")
            self._shown = axes.imshow(image)
        self._shown.set_data(image)
        pyplot.pause(1 / self.metadata["render_fps"])


if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, "dagsim.envs.decima:DecimaEnv")
