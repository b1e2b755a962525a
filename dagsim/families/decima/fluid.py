"""Advantages for the system ``spark``. Each episode is compared with its replicas, and the part of
the difference that the backlog explains is subtracted.

Replicas of a job sequence have its random variation in common (input-dependent baseline, Mao et
al., ICLR 2019). However, different jobs soon remain in each replica, which affects the return more
than any single decision does. In each iteration, a linear model is fitted that predicts the return
from the backlog and its fluid cost. The prediction is then subtracted. What is left of the return
is credited to the decisions shortly before it (GAE, Schulman et al. 2016, by elapsed time).

In hindsight, the fluid cost is the best estimate of the value of a state. A baseline may use
information that policies do not have: the future jobs, and the mean durations of tasks. Suppose
that work could be divided and moved freely. It would then be optimal to serve the job with the
least remaining work first (Schrage 1968). The cost of doing so is the *fluid cost*, which takes
microseconds to compute. Waste increases this cost immediately, because more work remains. Its
effect on the ends of jobs comes much later.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import exp
from statistics import fmean
from typing import Any

import numpy as np

from dagsim.errors import ConfigError
from dagsim.families.learning.advantages import StatelessEstimator, check_replicas, replica_groups, returns
from dagsim.families.learning.episode import WitnessFactory
from dagsim.families.learning.nets.actor import Observations
from dagsim.families.learning.training.rollouts import EpisodeSteps
from dagsim.families.spark.api import RecordedDurations, SparkJobState, SparkKernel, StageState
from dagsim.families.spark.codecs import StageObservation
from dagsim.families.spark.spark_job import SAME, bracket
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.seam import Kernel

_HORIZON = 4.0
"""Number of time constants after which costs are ignored."""


class TaskSeconds(dict[StageState, float]):
    """The mean duration of a stage's tasks in seconds, excluding the first task on each executor.
    It is measured with a third of the cluster (at least 5 executors), and computed on first use.
    """

    def __init__(self, executors: int) -> None:
        super().__init__()
        self._level = bracket(executors // 3)[0]

    def __missing__(self, stage: StageState) -> float:
        durations = stage.job.job.durations[stage.index]
        samples = durations.ms if isinstance(durations, RecordedDurations) else durations.at[self._level][SAME]
        self[stage] = fmean(samples) / 1000
        return self[stage]

    def left(self, job: SparkJobState) -> float:
        """Return the remaining executor-seconds of a job. Tasks that have not been launched count
        in full, and running tasks by half.
        """
        return ordered_sum([(stage.remaining + 0.5 * stage.executing) * self[stage] for stage in job.active])

    def whole(self, job: SparkJobState) -> float:
        """Return the executor-seconds of all tasks in the job."""
        return ordered_sum([stage.tasks * self[stage] for stage in job.stages])


class FluidWitness:
    """Records how many executor-seconds each job in the system has left during an episode. In
    hindsight, it also records the executor-seconds of all jobs that arrived.

    Raises:
        ConfigError: The kernel belongs to a system other than Spark.
    """

    def __init__(self, kernel: Kernel[Any, Any]) -> None:
        if not isinstance(kernel, SparkKernel):
            raise ConfigError("advantage 'fluid' requires the system 'spark'; elsewhere, use replicas or critic")
        self._kernel = kernel
        self._task_s = TaskSeconds(len(kernel.cluster.executors))

    def note(self) -> list[float]:
        """Return the remaining executor-seconds of each job in the system. Shape (jobs,)."""
        return [self._task_s.left(job) for job in self._kernel.cluster.jobs]

    def hindsight(self) -> list[tuple[float, float]]:
        """Return the arrival in seconds and the executor-seconds of each job in the episode."""
        jobs = self._kernel.episode.jobs
        return [(job.arrival_ms / 1000, self._task_s.whole(job)) for job in jobs]


class FluidAdvantages(StatelessEstimator):
    """Compares replicas, and subtracts the part of the difference that their backlogs explain. For
    the system ``spark``.

    Each decision is credited with what happens during ``horizon`` time constants after it.
    With ``differential``, rewards are not discounted. Instead, the mean rate is subtracted from
    them (Mao et al. 2019, appendix B).
    """

    witness: WitnessFactory | None = FluidWitness

    def __init__(self, replicas: int, horizon: float = 0.5, differential: bool = False) -> None:
        if not horizon > 0:
            raise ConfigError(f"advantage 'fluid': horizon must be positive, got {horizon!r}")
        self._replicas = check_replicas(replicas, "fluid")
        self._horizon, self._differential = horizon, differential

    def estimate(
        self, episodes: Sequence[EpisodeSteps], store: Observations, time_constant_s: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, float]]:
        groups = replica_groups(episodes, self._replicas)
        if self._differential:
            differential(groups)
        horizon_s = self._horizon * time_constant_s
        advantages = fluid_advantages(groups, time_constant_s, horizon_s, discounted=not self._differential)
        return np.concatenate(advantages), {}


def fluid_cost(
    now_s: float,
    work_s: Iterable[float],
    arrivals: Sequence[tuple[float, float]],
    executors: int,
    time_constant_s: float,
) -> float:
    """Return the discounted job-seconds from ``now_s`` on, if the smallest amount in ``work_s`` is
    always served first. ``arrivals`` (time, work) contains all arrivals of the episode, in order.
    The cost is O(jobs log jobs).
    """
    left = list(work_s)
    heapify(left)
    coming = arrivals[bisect_right(arrivals, (now_s + 1e-9, 0.0)) :]
    end_s = now_s + _HORIZON * time_constant_s
    at_s, worth, cost = now_s, 1.0, 0.0
    for arrival_s, work in (*coming, (end_s, 0.0)):
        arrival_s = min(arrival_s, end_s)
        while left and (done_s := at_s + left[0] / executors) <= arrival_s:
            later = exp((now_s - done_s) / time_constant_s)
            cost += len(left) * (worth - later)
            at_s, worth = done_s, later
            heappop(left)
        later = exp((now_s - arrival_s) / time_constant_s)
        cost += len(left) * (worth - later)
        if arrival_s >= end_s:
            break
        if left:
            heapreplace(left, left[0] - (arrival_s - at_s) * executors)
        at_s, worth = arrival_s, later
        heappush(left, work)
    return cost * time_constant_s


_RIDGE = 1e-3


def backlog(observation: StageObservation, time_constant_s: float) -> np.ndarray:
    """Return six measures of the remaining work, such as the number of jobs and lower bounds on the
    times that they still take, as float64.
    """
    work = np.sort(np.expm1(8.0 * observation.jobs[:, 0].astype(np.float64)))
    ends_s = np.cumsum(work) / observation.executors
    paths_s = np.expm1(8.0 * observation.jobs[:, 1].astype(np.float64))
    return np.array(
        (
            len(work),
            (1 - np.exp(-ends_s / time_constant_s)).sum(),
            (1 - np.exp(-4 * ends_s / time_constant_s)).sum(),
            (1 - np.exp(-paths_s / time_constant_s)).sum(),
            np.log1p(work).sum() / 8,
            ends_s[-1] / time_constant_s,
        )
    )


def fluid_advantages(
    groups: Sequence[Sequence[EpisodeSteps]], time_constant_s: float, horizon_s: float, *, discounted: bool = True
) -> list[np.ndarray]:
    """Return, for each episode, an array that states how much better each of its decisions was than
    those in the other replicas.

    Each decision is credited with what happens during ``horizon_s`` seconds after it, in addition
    to what the backlog shows immediately. Unless ``discounted``, the mean rate must already be
    subtracted from the rewards (``differential``).
    """
    discount_s = time_constant_s if discounted else np.inf
    group_returns = [[returns(steps, discount_s) for steps in group] for group in groups]
    left = [[_left(steps, time_constant_s) for steps in group] for group in groups]
    excess_return, mean_return, excess_left = [], [], []
    for group, own_returns, own_left in zip(groups, group_returns, left, strict=True):
        for number, steps in enumerate(group):
            times = np.asarray(steps.times_s[:-1])
            others = [other for other in range(len(group)) if other != number]
            mean = np.mean([_at(times, group[other], own_returns[other][:, None]) for other in others], axis=0)[:, 0]
            mean_return.append(mean)
            excess_return.append(own_returns[number] - mean)
            excess_left.append(
                own_left[number] - np.mean([_at(times, group[other], own_left[other]) for other in others], axis=0)
            )
    x, y = np.concatenate(excess_left), np.concatenate(excess_return)
    weights = np.linalg.solve(x.T @ x + _RIDGE * len(x) * np.eye(x.shape[1]), x.T @ y)
    values = [mean + rows @ weights for mean, rows in zip(mean_return, excess_left, strict=True)]
    episodes = [steps for group in groups for steps in group]
    return [_spread(steps, value, discount_s, horizon_s) for steps, value in zip(episodes, values, strict=True)]


def differential(groups: Sequence[Sequence[EpisodeSteps]]) -> None:
    """Subtract the mean number of jobs in the system, over all of ``groups``, from the reward of
    every second. Without any discount, a return then tells how much better than average the rest of
    the episode is (Mao et al. 2019, appendix B).
    """
    all_steps = [steps for group in groups for steps in group]
    seconds = ordered_sum(steps.times_s[-1] for steps in all_steps)
    rate = ordered_sum(ordered_sum(steps.rewards) for steps in all_steps) / seconds
    for steps in all_steps:
        steps.rewards = (np.asarray(steps.rewards) - rate * np.diff(steps.times_s)).tolist()


def _left(steps: EpisodeSteps, time_constant: float) -> np.ndarray:
    """Return the remaining work in each state, described by the backlog and by its fluid cost.
    Shape (T, 7). ``time_constant`` has the same unit as ``steps.times_s``.
    """
    rows, time_constant_s = [], time_constant * steps.unit_s
    for observation, now, left_s in zip(steps.observations, steps.times_s, steps.notes, strict=False):
        cost = fluid_cost(now * steps.unit_s, left_s, steps.hindsight, observation.executors, time_constant_s)
        rows.append(np.append(backlog(observation, time_constant_s), cost / time_constant_s))
    return np.stack(rows)


def _at(times: np.ndarray, steps: EpisodeSteps, curves: np.ndarray) -> np.ndarray:
    """Return the columns of ``curves`` at ``times``, and 0 after the end of the episode. Shape (T,
    C).
    """
    own_times = np.asarray(steps.times_s)
    padded = np.vstack([curves, np.zeros((1, curves.shape[1]))])
    return np.stack([np.interp(times, own_times, column) for column in padded.T], axis=1)


def _spread(steps: EpisodeSteps, values: np.ndarray, time_constant_s: float, horizon_s: float) -> np.ndarray:
    elapsed = np.diff(steps.times_s)
    gamma, kept = np.exp(-elapsed / time_constant_s), np.exp(-elapsed / horizon_s)
    delta = (np.asarray(steps.rewards) + gamma * np.append(values[1:], 0.0) - values).tolist()
    advantages, rest = np.empty(len(delta)), 0.0
    for at in range(len(delta) - 1, -1, -1):
        rest = advantages[at] = delta[at] + gamma[at] * kept[at] * rest
    return advantages
