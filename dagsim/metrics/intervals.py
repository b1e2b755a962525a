"""Intervals for a ratio of paired values and for their median, and the number of seeds that they need."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, inf, sqrt
from typing import NamedTuple

import numpy as np

from dagsim.metrics.columns import Floats
from dagsim.metrics.student import t_quantile

LARGE_JOB = 0.09
"""If a single job takes more than this share of a seed's job-seconds, the seeds cannot show the
tail.
"""
ENOUGH_FOR_TAILS = 300
"""Number of seeds that intervals of ratios need if there are such jobs."""
ENOUGH_FOR_T = 10
"""Number of seeds that intervals of ratios need if there are no such jobs."""
ENOUGH_FOR_MEAN = 30
"""Number of seeds that the interval of a policy's own mean needs if there are no such jobs."""
ENOUGH_WINDOWS = 300
"""From this number of windows of a real trace, intervals of means have enough coverage. With fewer
windows, the intervals are approximate.
"""
MOST_SEEDS = 1000
"""Largest number of seeds that is recommended for an approximate interval. If more would be needed,
use the median's interval.
"""

SAME = 1e-12
"""Log ratios that differ by less than this are considered equal, because the order of a sum changes
the last digits.
"""

_MEDIAN_SLACK = 1.4
"""Factor by which the median's interval may miss the true value more often than requested (7%
instead of 5%).

With a factor of 1, there would be no interval for 5 seeds.
"""


class Bounds(NamedTuple):
    """Values and their intervals, one for each sample. ``low`` and ``high`` are NaN if there is no
    interval.
    """

    value: Floats
    low: Floats
    high: Floats


def geometric_mean(logs: Floats, level: float = 0.95) -> Bounds:
    """Return exp(mean l +- t sd(l) / sqrt n), with l = ln(a / b): Student's t on the logs of the
    ratios.

    This is the interval of the paired t test. The interval excludes 1 if and only if the p-value of
    the test is below 1 - ``level``.
    """
    return _about(np.exp(logs.mean(axis=-1)), logs, level)


def ratio_of_means(values: Floats, reference: Floats, level: float = 0.95) -> Bounds:
    """Return the ratio of means r, and its interval by the delta method on the log: r exp(+- t
    sd(d) / sqrt n), d = (a - r b) / mean a.
    """
    mean = values.mean(axis=-1, keepdims=True)
    ratio = mean / reference.mean(axis=-1, keepdims=True)
    return _about(ratio[..., 0], (values - ratio * reference) / mean, level)


def _about(value: Floats, logs: Floats, level: float) -> Bounds:
    """Return the value with the interval value x exp(+- t sd(logs) / sqrt n). There is no interval
    if all logs are equal.
    """
    n = logs.shape[-1]
    if n < 2:
        return _no_interval(value)
    sd = standard_deviation(logs)
    factor = np.exp(np.where(sd > 0, t_quantile(level, n - 1) * sd / sqrt(n), np.nan))
    return Bounds(value, value / factor, value * factor)


def median(ratios: Floats, level: float = 0.95) -> Bounds:
    """Return the median and its interval from the k-th smallest to the k-th largest ratio. The
    coverage of this interval is exact for any distribution.
    """
    ordered = np.sort(ratios, axis=-1)
    n = ordered.shape[-1]
    value = (ordered[..., (n - 1) // 2] + ordered[..., n // 2]) / 2
    rank = median_rank(n, level)
    if rank is None:
        return _no_interval(value)
    return Bounds(value, ordered[..., rank - 1], ordered[..., n - rank])


@lru_cache(maxsize=4096)
def median_rank(n: int, level: float = 0.95) -> int | None:
    """Return k, where the k-th smallest and the k-th largest of ``n`` ratios bound their median.
    Return None if ``n`` is too small.

    k - 1 is the largest j with 2 P(Bin(n, 1/2) <= j) <= 1.4 (1 - ``level``). At a level of 95%, k
    is 1 for 5 to 8 pairs (5 pairs give 93.75%) and 2 for 9 pairs.
    """
    # number of sequences of n coin tosses with at most `rank` heads, and with exactly `rank` heads
    few, ways = 0, 1
    for rank in range(n // 2 + 1):
        few += ways
        if 2 * few / 2**n > _MEDIAN_SLACK * (1 - level):
            return rank or None
        ways = ways * (n - rank) // (rank + 1)
    return None


def standard_deviation(values: Floats) -> Floats:
    """Return the standard deviation with n - 1 in the denominator. It is exactly 0 if all values
    are equal up to rounding.
    """
    sd: Floats = values.std(axis=-1, ddof=1)
    return np.where(np.ptp(values, axis=-1) <= SAME, 0.0, sd)


def skewness(values: Floats) -> Floats:
    """Return the sample skewness m3 / m2 ** 1.5 of each sample, or 0 if all values are equal."""
    apart = values - values.mean(axis=-1, keepdims=True)
    variance = (apart**2).mean(axis=-1)
    third = (apart**3).mean(axis=-1)
    return np.where(variance > 0, third / np.where(variance > 0, variance, 1.0) ** 1.5, 0.0)


def largest_job(mean: Floats, p95: Floats, p99: Floats, jobs: Floats) -> Floats:
    """Return the fraction of all job-seconds that belongs to the largest of ``jobs`` jobs,
    estimated from the mean and two percentiles.

    If there are more than 100 jobs, the largest job is above the 99th percentile. Its size is then
    extrapolated with the Pareto distribution that fits the 95th and the 99th percentile.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse_index = np.log(p99 / p95) / np.log(5.0)
        share: Floats = p99 * np.maximum(jobs / 100.0, 1.0) ** inverse_index / (jobs * mean)
    return share


def seeds_for_interval(logs: Floats, largest_job: Floats | float = 0.0) -> Floats:
    """Return how many seeds each sample needs for its t interval to have nominal coverage, or 0 if it
    already has enough.

    ``largest_job`` is the fraction of a seed's job-seconds that its largest job takes. If it
    exceeds 9%, single jobs dominate the values. In this case, 300 seeds are needed, or more if the
    ratios are skewed (12.35 g^2 seeds keep the coverage within 2 points of 95%: Hall 1988, Annals
    of Statistics 16, 927). Otherwise, 10 seeds are enough, with one exception: if the ratios are so
    skewed that even 1,000 seeds would not be enough, one seed in a hundred dominates the ratio, and
    the number of seeds follows from the skewness.

    Weaker signs of skewness in the ratios are ignored, because they are misleading. A sample that
    happens to include the tail has a wide interval, which covers the ratio in 96 to 98% of cases. A
    sample that missed the tail appears well-behaved. If the warning depended on the sample's
    spread, it would therefore be shown with the wrong intervals, and the coverage of the others
    would be lower than without any rule.
    """
    n = logs.shape[-1]
    by_skewness = np.ceil(12.35 * skewness(logs) ** 2)
    tails = np.asarray(largest_job) > LARGE_JOB
    least = np.where(tails, ENOUGH_FOR_TAILS, ENOUGH_FOR_T)
    needed = np.where(tails | (by_skewness > MOST_SEEDS), np.maximum(least, by_skewness), least)
    return np.where(needed > n, needed, 0.0)


def seeds_for_mean(n: int, largest_job: float = 0.0) -> float:
    """Return how many seeds the t interval of a policy's own arithmetic mean needs for nominal
    coverage, or 0 if ``n`` is enough.

    The result is infinite if single jobs dominate a seed (see ``seeds_for_interval``). With
    Pareto(1.1) work, for example, 1,000 seeds only cover the mean in 72% of cases, because the
    variance of job times is infinite.
    """
    needed = inf if largest_job > LARGE_JOB else ENOUGH_FOR_MEAN
    return needed if needed > n else 0.0


def samples_needed(seeds_needed: float, n: int, unit: str) -> float:
    """Return how many samples an interval needs, or 0 if its ``n`` samples are enough. It needs
    ``seeds_needed`` seeds, or at least 300 windows.
    """
    return max(seeds_needed, ENOUGH_WINDOWS) if unit == "window" and n < ENOUGH_WINDOWS else seeds_needed


def enough_seeds(seeds: float, unit: str = "seed") -> str:
    """State how many seeds an interval needs."""
    if seeds > MOST_SEEDS:
        return f"no number of {unit}s up to {MOST_SEEDS:,} is enough"
    return f"about {_rounded(seeds):,} {unit}s are needed"


def _rounded(seeds: float) -> int:
    """Round up to the next ten or, from 300 onwards, to the next hundred."""
    step = 10 if seeds < 300 else 100
    return ceil(seeds / step) * step


def t_of_mean(logs: Floats) -> Floats:
    """Return the statistic of the paired t test, mean l / (sd(l) / sqrt n), or NaN if all values are
    equal."""
    sd = standard_deviation(logs)
    statistic: Floats = logs.mean(axis=-1) * sqrt(logs.shape[-1]) / np.where(sd > 0, sd, np.nan)
    return statistic


def _no_interval(value: Floats) -> Bounds:
    nothing = np.full_like(value, np.nan)
    return Bounds(value, nothing, nothing)
