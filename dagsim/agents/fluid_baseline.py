"""Advantages for Decima: what a decision changed, freed from the luck of the arrivals and from the backlog it met.

Replicas of one job sequence share its luck (input-dependent baseline, Mao et al., ICLR 2019), but soon differ in the
jobs they have left, which says more about the return than any decision. A linear model of that backlog, and of its cost
as a fluid, is fitted anew to every iteration and taken off, too; what is left is credited to the decisions shortly
before it (GAE, Schulman et al. 2016, by elapsed time).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dagsim.agents.fluid import fluid_cost
from dagsim.agents.returns import returns
from dagsim.agents.rollouts import EpisodeSteps
from dagsim.systems.spark.codecs import StageObservation

__all__ = ["backlog", "differential", "fluid_advantages"]

_RIDGE = 1e-3


def backlog(observation: StageObservation, time_constant_s: float) -> np.ndarray:
    """(6,) float64: how long the jobs left would take, at best, in several measures."""
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
    """(T_i,) float64 per episode, in order: by how much its decisions were better than those of the other replicas.

    ``horizon_s`` is how long after a decision its consequences are still credited to it, beyond those that the backlog
    shows at once.
    Returns that are not ``discounted`` want rewards less their mean rate (``differential``).
    """
    discount_s = time_constant_s if discounted else np.inf
    group_returns = [[returns(steps, discount_s) for steps in group] for group in groups]
    left = [[_left(steps, time_constant_s) for steps in group] for group in groups]
    excess_return, mean_return, excess_left = [], [], []
    for group, found, measured in zip(groups, group_returns, left, strict=True):
        for number, steps in enumerate(group):
            times = np.asarray(steps.times_s[:-1])
            others = [other for other in range(len(group)) if other != number]
            mean = np.mean([_at(times, group[other], found[other][:, None]) for other in others], axis=0)[:, 0]
            mean_return.append(mean)
            excess_return.append(found[number] - mean)
            excess_left.append(
                measured[number] - np.mean([_at(times, group[other], measured[other]) for other in others], axis=0)
            )
    x, y = np.concatenate(excess_left), np.concatenate(excess_return)
    weights = np.linalg.solve(x.T @ x + _RIDGE * len(x) * np.eye(x.shape[1]), x.T @ y)
    values = [mean + rows @ weights for mean, rows in zip(mean_return, excess_left, strict=True)]
    episodes = [steps for group in groups for steps in group]
    return [_spread(steps, value, discount_s, horizon_s) for steps, value in zip(episodes, values, strict=True)]


def differential(groups: Sequence[Sequence[EpisodeSteps]]) -> None:
    """Take the mean number of jobs, over all of ``groups``, from every second's reward. A return then tells by how much
    its future is better than usual, without any discount (Mao et al. 2019, appendix B)."""
    everything = [steps for group in groups for steps in group]
    rate = sum(sum(steps.rewards) for steps in everything) / sum(steps.times_s[-1] for steps in everything)
    for steps in everything:
        steps.rewards = (np.asarray(steps.rewards) - rate * np.diff(steps.times_s)).tolist()


def _left(steps: EpisodeSteps, time_constant_s: float) -> np.ndarray:
    """(T, 7) the work that is left in each state: the backlog, and its cost as a fluid."""
    rows = []
    for observation, now_s, left_s in zip(steps.observations, steps.times_s, steps.notes, strict=False):
        cost = fluid_cost(now_s, left_s, steps.hindsight, observation.executors, time_constant_s)
        rows.append(np.append(backlog(observation, time_constant_s), cost / time_constant_s))
    return np.stack(rows)


def _at(times: np.ndarray, steps: EpisodeSteps, curves: np.ndarray) -> np.ndarray:
    """(T, C) the columns of ``curves`` at ``times``; 0 after the end of the episode."""
    own = np.asarray(steps.times_s)
    padded = np.vstack([curves, np.zeros((1, curves.shape[1]))])
    return np.stack([np.interp(times, own, column) for column in padded.T], axis=1)


def _spread(steps: EpisodeSteps, values: np.ndarray, time_constant_s: float, horizon_s: float) -> np.ndarray:
    elapsed = np.diff(steps.times_s)
    gamma, kept = np.exp(-elapsed / time_constant_s), np.exp(-elapsed / horizon_s)
    delta = (np.asarray(steps.rewards) + gamma * np.append(values[1:], 0.0) - values).tolist()
    advantages, rest = np.empty(len(delta)), 0.0
    for at in range(len(delta) - 1, -1, -1):
        rest = advantages[at] = delta[at] + gamma[at] * kept[at] * rest
    return advantages
