"""The cost of waiting: the number of jobs in the system, integrated over time. Decima's reward is
minus this cost.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

from dagsim.families.spark.schedule import SparkEpisode
from dagsim.registry import Entry, Registry
from dagsim.systems.seam import RewardTerm

if TYPE_CHECKING:
    from dagsim.families.spark.kernel import SparkKernel


class JobTime:
    """The job-seconds between two calls during a running episode.

    With ``beta`` (per second), job-seconds that accrue ``t`` seconds after the previous call are
    multiplied by ``exp(-beta t)``. Without ``beta``, the costs of an episode add up to the sum of
    all completion times. The lowest cost then gives the lowest mean completion time (Little's law).
    """

    def __init__(self, episode: SparkEpisode, beta: float = 0.0) -> None:
        self._episode = episode
        self._beta = beta
        self._seen = 0
        self._jobs = 0
        self._last_s = 0.0

    def until(self, now_s: float) -> float:
        """Return the job-seconds between the previous call (or the start of the episode) and
        ``now_s``.
        """
        start_s, cost = self._last_s, 0.0
        population = self._episode.population
        while self._seen < len(population) and population[self._seen][0] / 1000 <= now_s:
            time_ms, jobs = population[self._seen]
            cost += self._jobs * self._span(start_s, time_ms / 1000)
            start_s, self._jobs = time_ms / 1000, jobs
            self._seen += 1
        cost += self._jobs * self._span(start_s, now_s)
        self._last_s = now_s
        return cost

    cost = until

    def _span(self, from_s: float, to_s: float) -> float:
        """Return the discounted seconds of an interval."""
        if not self._beta:
            return to_s - from_s
        since = self._last_s
        return (exp(-self._beta * (from_s - since)) - exp(-self._beta * (to_s - since))) / self._beta


def job_seconds(kernel: SparkKernel, beta: float = 0.0) -> JobTime:
    """Build the cost in job-seconds for a running kernel, discounted at the rate ``beta`` per second
    since the last call.
    """
    return JobTime(kernel.episode, beta)


SPARK_TERMS: Registry[RewardTerm] = Registry(
    "reward term",
    [Entry("job_seconds", ".rewards:job_seconds", "the number of jobs in the system, integrated over time")],
    group="dagsim.spark_rewards",
    listing="dagsim list rewards",
    home="dagsim.families.spark",
    method="cost",
)
"""Reward terms for Spark executors, by name; each is built with ``kernel``."""
