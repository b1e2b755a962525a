"""``dagsim/Decima-v0``: the executors of a Spark cluster as a Gymnasium environment (Mao et al.
2019).

The environment is a thin wrapper around ``Episode``, and ``import dagsim.envs`` registers it. In
each step, executors of the current source are given to one stage. Time passes when there are no
executors left to give, or no stage that needs executors. The observation is a graph, which is
padded to constant shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any, get_args

import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from dagsim.errors import ConfigError, Stalled
from dagsim.families.decima.padded_stages import PaddedObservation, PaddedStages
from dagsim.families.decima.pictures import describe, picture
from dagsim.families.learning.environments.episode_env import EpisodeEnv
from dagsim.families.learning.episode import Episode, RewardConfig
from dagsim.families.spark.api import Action, Commit, ExecutorType, SparkJob, SparkKernel
from dagsim.families.spark.scenario import SparkScenario
from dagsim.model.streams import stream


class DecimaEnv(EpisodeEnv):
    """Episodes of ``jobs`` Spark jobs on ``executors`` executors, of one or several types.

    If the number of executors or ``mean_gap_s`` is a range, a value is drawn from it for each
    episode, as in ``SparkScenario``; below, ``executors`` is then the largest number.

    The observation contains all jobs and stages in the system, in the order of the jobs' arrivals,
    but at most ``most_stages`` stages (stages that can be chosen are never omitted). Unused rows
    are 0, and unused indices are -1:

    - ``stages`` (most_stages, 6) float32: tasks not launched, estimated seconds per task, executors
      that the stage could use, running tasks, 1 if the stage's parents are complete, edges on the
      longest path to the end of the job;
    - ``job`` (most_stages,) int64: the index of the stage's job among those in the system;
    - ``edges`` (most_edges, 2) int64: rows of parent and child;
    - ``jobs`` (most_stages, 3) float32: executors, seconds since the job arrived, 1 if the job is
      the source;
    - ``context`` (3,) float32: executors to give, jobs in the system, seconds since the start;
    - ``action_mask`` (most_stages + 1,) int8 and ``number_mask`` (executors,) int8: the legal
      choices.

    An action is the row of a stage, and the number of executors to add minus 1. A number larger
    than the stage can use is reduced to what it can use. Row ``most_stages`` leaves the remaining
    executors idle, which is legal while a task is running or an executor is moving. The masks are
    also in ``info`` and, concatenated, in ``action_masks()``.

    With ``action="limit"``, an action contains, in place of the number of executors to add, a limit
    on the executors of the stage's job (again minus 1). Executors from the source are added up to
    the limit. The limit should exceed the number of executors that the job keeps without the source
    (``kept`` in ``info``, by job); if it does not, at least one executor is given. ``number_mask``
    allows every limit that at least one job can reach.

    The reward is minus the job-seconds until the next decision, discounted at the rate ``beta`` per
    second from now on. Without a discount, rewards add up to minus the sum of all completion times.
    An episode is terminated when all jobs are complete. It is truncated when all executors are left
    idle, or at a time drawn for each episode from an exponential distribution with mean
    ``mean_time_limit_s``.

    ``reset(options={"jobs": [...]})`` simulates these ``SparkJob``s, in order of arrival.

    Render modes: ``ansi`` (a table of the jobs), ``rgb_array`` and ``human`` (executors over time,
    coloured by job).
    """

    random_seeds = range(2**31)

    def __init__(
        self,
        executors: int | tuple[int, int] | tuple[ExecutorType, ...] = 50,
        jobs: int = 20,
        *,
        pool: Sequence[SparkJob] | None = None,
        batch: int = 1,
        mean_gap_s: float | tuple[float, float] = 25.0,
        parity: bool = False,
        beta: float = 0.0,
        mean_time_limit_s: float | None = None,
        action: Action = "executors",
        reward: Mapping[str, float] | None = None,
        scenario: SparkScenario | None = None,
        most_stages: int = 400,
        most_edges: int = 800,
        render_mode: str | None = None,
    ) -> None:
        if jobs < 1 or most_stages < 1 or most_edges < 0:
            raise ConfigError(
                "jobs and most_stages must be 1 or more, and most_edges must be 0 or more; "
                f"got {jobs!r}, {most_stages!r}, {most_edges!r}"
            )
        if beta < 0 or (mean_time_limit_s is not None and not mean_time_limit_s > 0):
            raise ConfigError(
                f"beta must be 0 or more and mean_time_limit_s must be positive, got {beta!r}, {mean_time_limit_s!r}"
            )
        if action not in get_args(Action):
            raise ConfigError(f"action must be one of {get_args(Action)}, got {action!r}")
        scenario = scenario or SparkScenario(executors, jobs, mean_gap_s=mean_gap_s, batch=batch, parity=parity)
        if pool is not None:
            scenario = scenario.drawing_from(pool)
        count = scenario.most_executors
        rewards = RewardConfig(reward or {f"job_seconds[beta={beta}]": 1.0})
        super().__init__(scenario, rewards, PaddedStages(count, most_stages, most_edges, action), render_mode)
        self.mean_time_limit_s, self.most_stages = mean_time_limit_s, most_stages
        self.action_space = spaces.MultiDiscrete([most_stages + 1, count])
        self.observation_space = _space(count, most_stages, most_edges)

    def _begin(self, seed: int, **options: Any) -> None:
        limit_s, jobs = inf, options.get("jobs")
        if self.mean_time_limit_s is not None:
            limit_s = float(stream(seed, "time-limit").exponential(self.mean_time_limit_s))
        self._count = self.scenario.jobs if jobs is None else len(jobs)
        self._play(self.scenario.kernel(seed, record=self.render_mode is not None, jobs=jobs), limit_s)

    def _choose(self, episode: Episode, action: np.ndarray) -> None:
        with suppress(Stalled):  # raised if the agent leaves all executors idle
            episode.step(action)

    def _ended(self, episode: Episode) -> tuple[bool, bool]:
        jobs, over = self.simulation.episode.jobs, episode.observation is None
        done = len(jobs) == self._count and all(job.completed_ms is not None for job in jobs)
        return over and done, over and not done

    def action_of(self, decision: Commit | None) -> np.ndarray:
        """Return the action that stands for a heuristic's decision. Shape (2,), int64. The cost is
        O(stages).
        """
        choice: np.ndarray = self.codec.choice_of(() if decision is None else (decision,))
        return choice

    def action_masks(self) -> np.ndarray:
        """Return both masks in one Boolean array, for agents that use masks. Shape (most_stages + 1
        + executors,).
        """
        return np.concatenate(list(self.codec.masks.values())).astype(bool)

    def _text(self) -> str:
        return describe(self._begun())

    def _picture(self) -> np.ndarray:
        return picture(self._begun())

    def _begun(self) -> SparkKernel:
        if self.simulation is None:
            raise ResetNeeded("there is nothing to draw yet; call reset() first")
        kernel: SparkKernel = self.simulation
        return kernel

    def _seen(self) -> tuple[PaddedObservation, dict[str, Any]]:
        present = None if self._episode is None else self._episode.observation
        if present is None:
            present = self.codec.ended()
        episode = self.simulation.episode
        info = {**self.codec.masks, "completed_jobs": len(episode.jct_s), "decisions": episode.decisions}
        if self.view is not None:
            info["kept"] = self.codec.kept
        elif len(episode.jct_s):
            info["mean_jct_s"] = episode.mean_jct_s
        return present, info


def _space(executors: int, stages: int, edges: int) -> spaces.Dict:
    """Return the space of the observations that ``PaddedStages`` builds."""
    return spaces.Dict(
        {
            "stages": spaces.Box(-np.inf, np.inf, (stages, 6), np.float32),
            "job": spaces.Box(-1, stages, (stages,), np.int64),
            "edges": spaces.Box(-1, stages, (edges, 2), np.int64),
            "jobs": spaces.Box(-np.inf, np.inf, (stages, 3), np.float32),
            "context": spaces.Box(0, np.inf, (3,), np.float32),
            "action_mask": spaces.MultiBinary(stages + 1),
            "number_mask": spaces.MultiBinary(executors),
        }
    )
