"""Is A better than B? Paired comparisons, one value per seed and scheduler, with a bootstrap interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dagsim.errors import InputError
from dagsim.metrics.columns import Floats

__all__ = ["Ratio", "paired_ratio", "win_rate"]

_CHUNK = 1 << 22
"""Resampled values held at once; more are done in turns, with the same result."""


class Ratio(NamedTuple):
    """A ratio of means and its bootstrap interval. NaN where it cannot be known."""

    value: float
    low: float
    high: float

    @property
    def is_tie(self) -> bool:
        """The interval holds 1 or is not known: the data do not tell the two apart."""
        return not (self.high < 1 or self.low > 1)


def paired_ratio(
    values: Sequence[float] | Floats,
    reference: Sequence[float] | Floats,
    *,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Ratio:
    """mean(``values``) / mean(``reference``), with a percentile interval over resampled pairs.

    ``values[i]`` and ``reference[i]`` come from the same seed and are drawn together (Efron & Tibshirani 1993, ch. 13).
    The ratio of means, not the mean of ratios: a seed weighs by how long its jobs take. The bounds are NaN with fewer
    than two pairs or a NaN among them.

    Raises:
        InputError: The two differ in length or are empty, or the level does not lie between 0 and 1.
    """
    a, b = _pairs(values, reference)
    if not 0 < level < 1:
        raise InputError(f"bootstrap: level must lie between 0 and 1, got {level!r}")
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(a.mean() / b.mean())
    if len(a) < 2 or np.isnan(value):
        return Ratio(value, float("nan"), float("nan"))
    tail = (1 - level) / 2
    low, high = np.quantile(_resampled_ratios(a, b, resamples, seed), [tail, 1 - tail])
    return Ratio(value, float(low), float(high))


def win_rate(values: Sequence[float] | Floats, reference: Sequence[float] | Floats) -> float:
    """The fraction of pairs with ``values`` below ``reference``, draws counting one half; NaN if any value is.

    Raises:
        InputError: The two differ in length or are empty.
    """
    a, b = _pairs(values, reference)
    if np.isnan(a).any() or np.isnan(b).any():
        return float("nan")
    return float(np.mean(a < b) + np.mean(a == b) / 2)


def _pairs(values: Sequence[float] | Floats, reference: Sequence[float] | Floats) -> tuple[Floats, Floats]:
    a, b = np.asarray(values, float), np.asarray(reference, float)
    if a.ndim != 1 or a.shape != b.shape or not len(a):
        raise InputError(
            f"paired comparison: needs two equally long lists of values, got shapes {a.shape} and {b.shape}"
        )
    return a, b


def _resampled_ratios(a: Floats, b: Floats, resamples: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    n = len(a)
    at_once = max(_CHUNK // n, 1)
    ratios = []
    for done in range(0, resamples, at_once):
        pick = rng.integers(0, n, (min(at_once, resamples - done), n), np.int32)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios.append(a[pick].sum(axis=1) / b[pick].sum(axis=1))
    return np.concatenate(ratios)
