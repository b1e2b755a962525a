"""Scores for forecasts of starts: coverage, CRPS, the median error and shares within minutes, with
intervals from a block bootstrap."""

from __future__ import annotations

from math import log1p
from typing import NamedTuple

import numpy as np

from dagsim.families.forecast.time_spans import WEEK_S, WITHIN_S

LEVELS = np.arange(1, 20) / 20.0
"""The 19 levels of a forecast: 0.05, 0.10 ... 0.95."""
CEILING = log1p(WEEK_S)
"""The largest logarithm of a wait, which means "not within a week"."""
Q05, Q25, MEDIAN, Q75, Q90, Q95 = 0, 4, 9, 14, 17, 18
"""Indices of these levels."""
_DRAWS = 500


class Score(NamedTuple):
    """The scores of a set of rows. Each interval extends from the 5th to the 95th percentile."""

    n: int
    coverage_90: float
    crps_log: float
    median_abs_log: float
    within: tuple[float, ...]
    """The shares of starts within the times of ``WITHIN_S``."""
    intervals: dict[str, tuple[float, float]] = {}

    def to_dict(self) -> dict[str, object]:
        """Return the scores as a dictionary (None if there are no rows), with their intervals if
        they were computed.
        """
        names = ("coverage_90", "crps_log", "median_abs_log")
        values = {name: getattr(self, name) if self.n else None for name in names}
        values |= {name: share if self.n else None for name, share in zip(WITHIN_S, self.within, strict=True)}
        return {"n": self.n, **values, "intervals": {name: list(pair) for name, pair in self.intervals.items()}}


def log_wait(seconds: np.ndarray) -> np.ndarray:
    """Return log(1 + seconds), but at most ``CEILING``. Infinite and unknown waits become
    ``CEILING``."""
    waits = np.where(np.isnan(seconds), np.inf, seconds)
    logs: np.ndarray = np.log1p(np.clip(waits, 0.0, WEEK_S))
    return logs


def quantiles_of(sample: np.ndarray) -> np.ndarray:
    """Return quantiles, (n, 19), of a sample of logarithms, (R, n), with one column per level in
    ``LEVELS``. They are the order statistics with index ceil(level (R + 1)).
    """
    ordered = np.sort(sample, axis=0)
    places = np.clip(np.ceil(LEVELS * (len(ordered) + 1) - 1e-9).astype(int) - 1, 0, len(ordered) - 1)
    quantiles: np.ndarray = ordered[places].T
    return quantiles


def crps(quantiles: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the continuous ranked probability scores, (n,), of forecasts, (n, 19) with one column
    per quantile, for outcomes, (n,). They are computed as twice the mean pinball loss over the
    levels (Gneiting and Raftery 2007). The score of a single-valued forecast is its absolute
    error."""
    gaps = y[:, None] - quantiles
    scores: np.ndarray = 2 * np.mean(np.maximum(LEVELS * gaps, (LEVELS - 1) * gaps), axis=1)
    return scores


def score(
    quantiles: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None, block: np.ndarray | None = None
) -> Score:
    """Score forecasts, (n, 19) with one column per quantile, against outcomes, (n,). Both are
    logarithms of waits. If ``block`` is given, intervals are computed from 500 bootstrap samples of
    whole blocks.
    """
    if not len(y):
        return Score(0, np.nan, np.nan, np.nan, (np.nan,) * len(WITHIN_S))
    weights = np.ones(len(y)) if weight is None else weight
    inside = (y >= quantiles[:, 0] - _TINY) & (y <= quantiles[:, -1] + _TINY)
    error, off_s = np.abs(y - quantiles[:, MEDIAN]), np.abs(np.expm1(y) - np.expm1(quantiles[:, MEDIAN]))
    near = [off_s <= most_s + _TINY_S for most_s in WITHIN_S.values()]
    losses = np.stack([inside.astype(float), crps(quantiles, y), *near])
    covered, loss, *within = np.average(losses, axis=1, weights=weights).tolist()
    values = Score(len(y), covered, loss, float(_medians(error, weights[None])[0]), tuple(within))
    if block is None:
        return values
    place, draws = _drawn(block)
    sums = [np.bincount(place, column) for column in (weights, *(losses * weights))]
    total, *others = [draws @ column for column in sums]
    medians = np.concatenate([_medians(error, weights * part[:, place]) for part in np.array_split(draws, _PARTS)])
    columns = [*[other / total for other in others], medians]
    low, high = np.quantile(columns, [0.05, 0.95], axis=1).tolist()
    names = ("coverage_90", "crps_log", *WITHIN_S, "median_abs_log")
    return values._replace(intervals=dict(zip(names, zip(low, high, strict=True), strict=True)))


def ratio(ours: np.ndarray, theirs: np.ndarray, block: np.ndarray) -> tuple[float, float, float]:
    """Return the ratio of two mean scores over the same rows, and its interval from the same
    blocks."""
    place, draws = _drawn(block)
    drawn = (draws @ np.bincount(place, ours)) / (draws @ np.bincount(place, theirs))
    low, high = np.quantile(drawn, [0.05, 0.95]).tolist()
    return float(ours.sum() / theirs.sum()), low, high


def _medians(error: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the weighted medians of errors (n,), one for each of d sets of weights (d, n)."""
    order = np.argsort(error, kind="stable")
    summed = np.cumsum(weights[:, order], axis=1)
    places = np.argmax(summed >= summed[:, -1:] / 2, axis=1)
    medians: np.ndarray = error[order][places]
    return medians


def _drawn(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of each row's block (n,), and how often each of 500 bootstrap samples
    contains each block (500, blocks). The random numbers are the same in every call."""
    names, place = np.unique(block, return_inverse=True)
    drawn = np.random.default_rng(0).integers(len(names), size=(_DRAWS, len(names)))
    return place, np.stack([np.bincount(days, minlength=len(names)) for days in drawn])


_PARTS = 10
"""Number of parts in which the medians of the bootstrap samples are computed, to save memory."""
_TINY = 1e-9
_TINY_S = 1e-3
"""Rounding error of a wait that is kept as a logarithm."""
