"""Returns and advantages of whole episodes, discounted by the time that passes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dagsim.agents.rollouts import EpisodeSteps

__all__ = ["discounts", "gae", "replica_advantages", "return_rms", "returns"]


def discounts(steps: EpisodeSteps, time_constant_s: float) -> np.ndarray:
    """(T,) float64: exp(-seconds to the next choice / ``time_constant_s``) for each step (a semi-Markov process)."""
    return np.exp(-np.diff(steps.times_s) / time_constant_s)


def returns(steps: EpisodeSteps, time_constant_s: float) -> np.ndarray:
    """(T,) float64: the discounted reward from each step to the end of the episode."""
    gamma = discounts(steps, time_constant_s)
    following = np.zeros(len(steps.rewards) + 1)
    for index in range(len(steps.rewards) - 1, -1, -1):
        following[index] = steps.rewards[index] + gamma[index] * following[index + 1]
    return following[:-1]


def return_rms(episodes: Sequence[EpisodeSteps], time_constant_s: float) -> float:
    """The root mean square of all returns: the unit of values, so that they are about 1."""
    everything = np.concatenate([returns(steps, time_constant_s) for steps in episodes])
    return float(np.sqrt(np.mean(everything**2))) + 1e-9


def replica_advantages(replicas: Sequence[EpisodeSteps], time_constant_s: float) -> list[np.ndarray]:
    """(T_i,) float64 each: the return of every step less the mean return of the other replicas at the same time.

    All replicas saw the same job sequence, so its luck cancels (input-dependent baseline, Mao et al., ICLR 2019,
    section 4; leave-one-out, so that it stays unbiased); between choices of a replica its return is interpolated.
    Divided by the mean total return, so that every sequence weighs the same.
    """
    curves = [(np.asarray(steps.times_s[:-1]), returns(steps, time_constant_s)) for steps in replicas]
    scale = np.mean([abs(sum(steps.rewards)) for steps in replicas]) + 1e-9
    advantages = []
    for number, (times, own) in enumerate(curves):
        others = [np.interp(times, *curve) for other, curve in enumerate(curves) if other != number and len(curve[0])]
        advantages.append((own - np.mean(others, axis=0)) / scale if others else np.zeros(len(own)))
    return advantages


def gae(steps: EpisodeSteps, values: np.ndarray, time_constant_s: float, lambda_: float) -> np.ndarray:
    """(T,) float64: generalised advantage estimates (Schulman et al. 2016, equation 16) with ``values`` (T,) of the
    observations; the episode has ended, so what follows it is worth 0."""
    gamma = discounts(steps, time_constant_s)
    following = np.append(values[1:], 0.0)
    delta = np.asarray(steps.rewards) + gamma * following - values
    advantages = np.zeros(len(delta) + 1)
    for index in range(len(delta) - 1, -1, -1):
        advantages[index] = delta[index] + gamma[index] * lambda_ * advantages[index + 1]
    return advantages[:-1]
