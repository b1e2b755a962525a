"""``dagsim/Decima-v0``: the executors of a Spark cluster as a Gymnasium environment (Mao et al. 2019).

``import dagsim.envs.decima`` registers it. A step gives executors of the present source to one stage; time passes when
none are left to give, or no stage wants any. The observation is a graph, padded to constant shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, get_args

import gymnasium
import numpy as np
from gymnasium import spaces

from dagsim.envs.decima_render import describe, picture
from dagsim.errors import ConfigError, IllegalDecision, Stalled
from dagsim.spark import (
    Action,
    Commit,
    JobTime,
    SparkJob,
    SparkSimulation,
    View,
    parity_sequence,
    sequence,
    synthetic_profiles,
)
from dagsim.spark.graph import StageGraph
from dagsim.streams import stream

__all__ = ["ENV_ID", "DecimaEnv"]

ENV_ID = "dagsim/Decima-v0"

Observation: TypeAlias = dict[str, np.ndarray]


class DecimaEnv(gymnasium.Env[Any, Any]):
    """Episodes of ``jobs`` Spark jobs on ``executors`` executors.

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
        executors: int = 50,
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
        if executors < 1 or jobs < 1 or most_stages < 1 or most_edges < 0:
            raise ConfigError("executors, jobs and most_stages must be at least 1, and most_edges 0 or more")
        if beta < 0 or (mean_time_limit_s is not None and not mean_time_limit_s > 0):
            raise ConfigError(f"beta must be 0 or more and a time limit positive, got {beta!r}, {mean_time_limit_s!r}")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ConfigError(f"render_mode must be one of {self.metadata['render_modes']}, got {render_mode!r}")
        if action not in get_args(Action):
            raise ConfigError(f"action must be one of {get_args(Action)}, got {action!r}")
        self.action: Action = action
        self.executors, self.jobs, self.batch, self.mean_gap_s = executors, jobs, batch, mean_gap_s
        self.pool = list(pool) if pool is not None else synthetic_profiles()
        self.parity, self.beta, self.mean_time_limit_s = parity, beta, mean_time_limit_s
        self.most_stages, self.most_edges = most_stages, most_edges
        self.render_mode = render_mode
        self.action_space = spaces.MultiDiscrete([most_stages + 1, executors])
        self.observation_space = spaces.Dict(
            {
                "stages": spaces.Box(-np.inf, np.inf, (most_stages, 6), np.float32),
                "job": spaces.Box(-1, most_stages, (most_stages,), np.int64),
                "edges": spaces.Box(-1, most_stages, (most_edges, 2), np.int64),
                "jobs": spaces.Box(-np.inf, np.inf, (most_stages, 3), np.float32),
                "context": spaces.Box(0, np.inf, (3,), np.float32),
                "action_mask": spaces.MultiBinary(most_stages + 1),
                "number_mask": spaces.MultiBinary(executors),
            }
        )
        self.simulation: SparkSimulation | None = None
        self._view: View | None = None
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
        self._conversation = self.simulation.decisions(limit_s * 1000)
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
        decision = self._decision(int(action[0]), int(action[1]) + 1)
        assert self.simulation is not None
        episode = self.simulation.episode
        try:
            self._view = self._conversation.send(decision)
            now_ms = self._view.now_ms
        except (StopIteration, Stalled):
            self._view, now_ms = None, self.simulation.cluster.now_ms
        reward = -self._cost.until(now_ms / 1000)
        over = self._view is None
        done = len(episode.jobs) == self._count and all(job.completed_ms is not None for job in episode.jobs)
        if self.render_mode == "human":
            self.render()
        return self._observation(), reward, over and done, over and not done, self._info()

    def _decision(self, row: int, number: int) -> Commit | None:
        if not (0 <= row < len(self._masks["action_mask"]) and self._masks["action_mask"][row]):
            raise IllegalDecision(f"row {row} cannot be chosen now: see action_mask")
        if row == self.most_stages:
            return None
        if not (1 <= number <= self.executors and self._masks["number_mask"][number - 1]):
            raise IllegalDecision(f"{self.action} {number} cannot be chosen now: see number_mask")
        place = self._rows[row]
        if self.action == "limit":
            number = min(max(number - int(self._kept[self._graph.job[place]]), 1), self._graph.committable)
        return Commit(self._graph.stages[place], number)

    @property
    def view(self) -> View | None:
        """What a heuristic would be shown now; ``None`` when the episode is over."""
        return self._view

    def action_of(self, decision: Commit | None) -> np.ndarray:
        """The action that stands for a heuristic's decision. (2,) int64. O(stages)."""
        if decision is None:
            return np.array([self.most_stages, 0])
        place = self._graph.stages.index(decision.stage)
        kept = int(self._kept[self._graph.job[place]]) if self.action == "limit" else 0
        return np.array([int(np.searchsorted(self._rows, place)), kept + decision.executors - 1])

    def action_masks(self) -> np.ndarray:
        """(most_stages + 1 + executors,) bool: both masks, as maskable agents want them."""
        return np.concatenate([self._masks["action_mask"], self._masks["number_mask"]]).astype(bool)

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

    def _simulation(self, seed: int, given: Sequence[SparkJob] | None) -> SparkSimulation:
        record, gap_ms = self.render_mode is not None, self.mean_gap_s * 1000
        if given is not None:
            return SparkSimulation(self.executors, given, parity=self.parity, record=record, seed=seed)
        if self.parity:
            drawn = parity_sequence(self.pool, seed, self.jobs, mean_gap_ms=gap_ms)
            return SparkSimulation(self.executors, drawn.jobs, parity=True, draws=drawn.draws, record=record, seed=seed)
        arriving = sequence(self.pool, seed, jobs=self.jobs, mean_gap_ms=gap_ms, batch=self.batch)
        return SparkSimulation(self.executors, arriving, record=record, seed=seed)

    def _observation(self) -> Observation:
        most = self.most_stages
        seen: Observation = {
            "stages": np.zeros((most, 6), np.float32),
            "job": np.full(most, -1, np.int64),
            "edges": np.full((self.most_edges, 2), -1, np.int64),
            "jobs": np.zeros((most, 3), np.float32),
            "context": np.zeros(3, np.float32),
            "action_mask": np.zeros(most + 1, np.int8),
            "number_mask": np.zeros(self.executors, np.int8),
        }
        self._masks = {name: seen[name] for name in ("action_mask", "number_mask")}
        if self._view is None:
            return seen
        graph = self._graph = self._view.graph()
        rows = self._rows = _rows(graph, most)
        count, jobs = len(rows), min(len(graph.supply), most)
        columns = (graph.remaining, graph.seen_ms / 1000, graph.demand, graph.executing, graph.ready, graph.height)
        for column, values in enumerate(columns):
            seen["stages"][:count, column] = values[rows]
        seen["job"][:count] = graph.job[rows]
        edges = _edges(graph, rows)[: self.most_edges]
        seen["edges"][: len(edges)] = edges
        seen["jobs"][:jobs, 0] = graph.supply[:jobs]
        seen["jobs"][:jobs, 1] = (graph.now_ms - graph.arrival_ms[:jobs]) / 1000
        if 0 <= graph.source < jobs:
            seen["jobs"][graph.source, 2] = 1
        seen["context"][:] = graph.committable, len(graph.supply), graph.now_ms / 1000
        seen["action_mask"][:count] = graph.schedulable[rows]
        assert self.simulation is not None
        seen["action_mask"][most] = bool(self.simulation.cluster.heap)
        self._kept = graph.kept()
        if self.action == "executors":
            seen["number_mask"][: graph.committable] = 1
        else:
            kept = self._kept[graph.job[graph.schedulable]]
            seen["number_mask"][kept.min() : kept.max() + graph.committable] = 1
        return seen

    def _info(self) -> dict[str, Any]:
        assert self.simulation is not None
        episode = self.simulation.episode
        info: dict[str, Any] = {**self._masks, "completed_jobs": len(episode.jct_s), "decisions": episode.decisions}
        if self._view is not None:
            info["kept"] = self._kept
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


def _rows(graph: StageGraph, most: int) -> np.ndarray:
    """(n,) int64: the stages to show, in order; those that can be chosen are the last to be left out."""
    count = len(graph.stages)
    if count <= most:
        return np.arange(count)
    return np.sort(np.argsort(~graph.schedulable, kind="stable")[:most])


def _edges(graph: StageGraph, rows: np.ndarray) -> np.ndarray:
    """(m, 2) int64: the edges between ``rows``, by place there."""
    place = np.full(len(graph.stages), -1, np.int64)
    place[rows] = np.arange(len(rows))
    edges = place[graph.edges]
    shown: np.ndarray = edges[(edges >= 0).all(axis=1)]
    return shown


if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, "dagsim.envs.decima:DecimaEnv")
