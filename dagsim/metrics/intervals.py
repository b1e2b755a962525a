"""Three intervals for paired values: of the geometric mean ratio, of the ratio of means, of the median ratio.

Arrays hold one sample per last axis, so that many samples are done at once: ``(..., n)`` in, ``(...,)`` out. All values
are positive and finite; ``compare.paired`` checks that.
"""

from __future__ import annotations

from functools import lru_cache
from math import sqrt
from typing import NamedTuple

import numpy as np

from dagsim.metrics.columns import Floats
from dagsim.metrics.student import t_quantile

__all__ = [
    "SAME",
    "Bounds",
    "geometric_mean",
    "median",
    "median_rank",
    "ratio_of_means",
    "standard_deviation",
    "t_of_mean",
]

SAME = 1e-12
"""Logs of ratios that differ by less are equal: the order of a sum moves the last digits."""

_MEDIAN_SLACK = 1.4
"""The median's interval may miss 1.4 times as often as asked (7 % for 95 %), or 5 seeds would have none."""


class Bounds(NamedTuple):
    """Values and their intervals, one per sample; NaN where there is no interval."""

    value: Floats
    low: Floats
    high: Floats


def geometric_mean(logs: Floats, level: float = 0.95) -> Bounds:
    """exp(mean l +- t sd(l) / sqrt n), l = ln(a / b): Student's t on the logs of the ratios.

    The interval of the paired t test: it leaves out 1 exactly where the test's p is below 1 - ``level``.
    """
    value = np.exp(logs.mean(axis=-1))
    n = logs.shape[-1]
    if n < 2:
        return _no_interval(value)
    sd = standard_deviation(logs)
    factor = np.exp(np.where(sd > 0, t_quantile(level, n - 1) * sd / sqrt(n), np.nan))
    return Bounds(value, value / factor, value * factor)


def ratio_of_means(values: Floats, reference: Floats, level: float = 0.95) -> Bounds:
    """The ratio of means r with the delta method on its log: r exp(+- t sd(d) / sqrt n), d = (a - r b) / mean a."""
    mean = values.mean(axis=-1, keepdims=True)
    ratio = mean / reference.mean(axis=-1, keepdims=True)
    value = ratio[..., 0]
    n = values.shape[-1]
    if n < 2:
        return _no_interval(value)
    sd = standard_deviation((values - ratio * reference) / mean)
    factor = np.exp(np.where(sd > 0, t_quantile(level, n - 1) * sd / sqrt(n), np.nan))
    return Bounds(value, value / factor, value * factor)


def median(ratios: Floats, level: float = 0.95) -> Bounds:
    """The median and its order-statistic interval: the k-th ratio from each end, exact whatever the distribution."""
    ordered = np.sort(ratios, axis=-1)
    n = ordered.shape[-1]
    value = (ordered[..., (n - 1) // 2] + ordered[..., n // 2]) / 2
    rank = median_rank(n, level)
    if rank is None:
        return _no_interval(value)
    return Bounds(value, ordered[..., rank - 1], ordered[..., n - rank])


@lru_cache(maxsize=4096)
def median_rank(n: int, level: float = 0.95) -> int | None:
    """The k of the k-th ratio from each end that bounds the median of ``n``; ``None`` where even the ends are too near.

    k - 1 is the largest j with 2 P(Bin(n, 1/2) <= j) <= 1.4 (1 - ``level``): 1 for 5 to 8 pairs (5: 93.75 %), 2 for 9.
    """
    few, ways = 0, 1  # of n coins: ways with at most `rank` heads, and with exactly so many
    for rank in range(n // 2 + 1):
        few += ways
        if 2 * few / 2**n > _MEDIAN_SLACK * (1 - level):
            return rank or None
        ways = ways * (n - rank) // (rank + 1)
    return None


def standard_deviation(values: Floats) -> Floats:
    """The standard deviation with n - 1; exactly 0 where all are equal but for rounding."""
    sd: Floats = values.std(axis=-1, ddof=1)
    return np.where(np.ptp(values, axis=-1) <= SAME, 0.0, sd)


def t_of_mean(logs: Floats) -> Floats:
    """The statistic of the paired t test, mean l / (sd(l) / sqrt n); NaN where all are equal."""
    sd = standard_deviation(logs)
    statistic: Floats = logs.mean(axis=-1) * sqrt(logs.shape[-1]) / np.where(sd > 0, sd, np.nan)
    return statistic


def _no_interval(value: Floats) -> Bounds:
    nothing = np.full_like(value, np.nan)
    return Bounds(value, nothing, nothing)
