"""Student's t: quantiles and p-values from the incomplete beta function, without the cost of importing scipy.

Two-sided throughout: P(|T| > t) = I_x(df / 2, 1 / 2) with x = df / (df + t^2) (Abramowitz & Stegun 26.5.27). The
function is evaluated by its continued fraction (DLMF 8.17.22) with Lentz's method.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from dagsim.errors import InputError
from dagsim.metrics.columns import Floats

__all__ = ["t_quantile", "two_sided_p"]

_TERMS = 10_000
"""More than the fraction needs: about the square root of the degrees of freedom."""
_TINY = 1e-300
"""Stands for 0 in a denominator (Lentz)."""


def two_sided_p(t: ArrayLike, df: int) -> Floats:
    """P(|T| > |t|) for Student's t with ``df`` degrees of freedom, per element; NaN stays NaN."""
    squared = np.square(np.asarray(t, float))
    with np.errstate(invalid="ignore"):
        rest = np.where(np.isinf(squared), 1.0, squared / (df + squared))
    return _incomplete_beta(df / 2, 0.5, df / (df + squared), rest)


@lru_cache(maxsize=4096)
def t_quantile(level: float, df: int) -> float:
    """The bound that |T| keeps with probability ``level``: 12.706 for .95 and 1 degree of freedom.

    Raises:
        InputError: The level does not lie between 0 and 1, or there is no degree of freedom.
    """
    if not 0 < level < 1 or df < 1:
        raise InputError(f"Student's t: level must lie between 0 and 1 and df be 1 or more, got {level!r} and {df!r}")
    tail = 1 - level
    log_norm = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    normal = NormalDist().inv_cdf(1 - tail / 2)
    bound = normal + (normal**3 + normal) / (4 * df)  # Fisher's expansion, cut short: still below the quantile
    for _ in range(200):  # the tail is convex: from the left Newton climbs and cannot overshoot
        density = math.exp(log_norm - (df + 1) / 2 * math.log1p(bound * bound / df))
        step = (float(two_sided_p(bound, df)) - tail) / (2 * density)
        bound += step
        if abs(step) <= 1e-11 * bound:
            break
    return bound


def _incomplete_beta(a: float, b: float, x: Floats, rest: Floats) -> Floats:
    """I_x(a, b), regularised; ``rest`` is 1 - x, given apart so that neither loses its digits."""
    with np.errstate(divide="ignore"):
        front = np.exp(
            math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * np.log(x) + b * np.log(rest)
        )  # 0 at both ends
    direct = x < (a + 1) / (a + b + 2)  # the fraction converges fast on this side, on the other by I_x = 1 - I_rest
    near = front * _fraction(a, b, np.where(direct, x, 0.0)) / a
    far = 1 - front * _fraction(b, a, np.where(direct, 0.0, rest)) / b
    return np.where(np.isnan(x), np.nan, np.where(direct, near, far))


def _fraction(a: float, b: float, x: Floats) -> Floats:
    """1 / (1 + d1 / (1 + d2 / ...)) of DLMF 8.17.22."""
    value, c, d = np.ones_like(x), np.full_like(x, np.inf), np.ones_like(x)
    for term in range(1, _TERMS):
        m = term // 2
        if term % 2:
            numerator = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            numerator = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        c = _never_zero(1 + numerator / c)
        d = 1 / _never_zero(1 + numerator * d)
        value = value * c * d
        if np.all(np.abs(c * d - 1) <= 1e-15):
            break
    return value


def _never_zero(values: Floats) -> Floats:
    return np.where(np.abs(values) < _TINY, _TINY, values)
