"""Scores of forecasts of starts: coverage, CRPS and the median error, with intervals by blocks."""

from __future__ import annotations

from math import log1p
from typing import NamedTuple

import numpy as np

__all__ = ["CEILING", "LEVELS", "WEEK_S", "Score", "crps", "log_wait", "quantiles_of", "ratio", "score"]

LEVELS = np.arange(1, 20) / 20.0
"""The 19 levels of a forecast: .05, .10 ... .95."""
WEEK_S = 7 * 86400.0
CEILING = log1p(WEEK_S)
"""The largest logarithm of a wait: it stands for "not within a week"."""
_HALF = 9
"""Place of the median among the levels."""
_DRAWS = 500


class Score(NamedTuple):
    """The scores of some rows; each interval is from the 5th to the 95th percentile."""

    n: int
    coverage_90: float
    crps_log: float
    median_abs_log: float
    intervals: dict[str, tuple[float, float]] = {}

    def to_dict(self) -> dict[str, object]:
        """The scores by name, and their intervals where they were drawn."""
        values: dict[str, object] = {
            "n": self.n,
            "coverage_90": self.coverage_90,
            "crps_log": self.crps_log,
            "median_abs_log": self.median_abs_log,
        }
        return values | {"intervals": {name: list(pair) for name, pair in self.intervals.items()}}


def log_wait(seconds: np.ndarray) -> np.ndarray:
    """log(1 + seconds), at most ``CEILING``; infinite and unknown waits are the ceiling."""
    waits = np.where(np.isnan(seconds), np.inf, seconds)
    logs: np.ndarray = np.log1p(np.clip(waits, 0.0, WEEK_S))
    return logs


def quantiles_of(sample: np.ndarray) -> np.ndarray:
    """(n, 19) quantiles of a sample (R, n) of logarithms: order statistics of place
    ceil(level (R + 1)).
    """
    ordered = np.sort(sample, axis=0)
    places = np.clip(np.ceil(LEVELS * (len(ordered) + 1) - 1e-9).astype(int) - 1, 0, len(ordered) - 1)
    quantiles: np.ndarray = ordered[places].T
    return quantiles


def crps(quantiles: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(n,) continuous ranked probability scores of forecasts (n, 19) of outcomes (n,), as twice the
    mean pinball loss over the levels (Gneiting and Raftery 2007). A forecast of a single value gets
    its absolute error.
    """
    gaps = y[:, None] - quantiles
    scores: np.ndarray = 2 * np.mean(np.maximum(LEVELS * gaps, (LEVELS - 1) * gaps), axis=1)
    return scores


class _Rows(NamedTuple):
    inside: np.ndarray
    crps: np.ndarray
    error: np.ndarray
    weight: np.ndarray

    def values(self, rows: np.ndarray) -> tuple[float, float, float]:
        weight, order = self.weight[rows], np.argsort(self.error[rows], kind="stable")
        summed = np.cumsum(weight[order])
        middle = order[min(int(np.searchsorted(summed, summed[-1] / 2)), len(order) - 1)]
        return (
            float(np.average(self.inside[rows], weights=weight)),
            float(np.average(self.crps[rows], weights=weight)),
            float(self.error[rows][middle]),
        )


def score(
    quantiles: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None, block: np.ndarray | None = None
) -> Score:
    """Scores of forecasts (n, 19) of outcomes (n,), both logarithms. With ``block``, the intervals
    come from 500 bootstraps of whole blocks.
    """
    if not len(y):
        return Score(0, np.nan, np.nan, np.nan)
    weights = np.ones(len(y)) if weight is None else weight
    inside = ((y >= quantiles[:, 0] - _TINY) & (y <= quantiles[:, -1] + _TINY)).astype(float)
    rows = _Rows(inside, crps(quantiles, y), np.abs(y - quantiles[:, _HALF]), weights)
    values = rows.values(np.arange(len(y)))
    if block is None:
        return Score(len(y), *values)
    drawn = np.array([rows.values(places) for places in _blocks(block)])
    low, high = np.quantile(drawn, [0.05, 0.95], axis=0).tolist()
    names = ("coverage_90", "crps_log", "median_abs_log")
    return Score(len(y), *values, dict(zip(names, zip(low, high, strict=True), strict=True)))


def ratio(ours: np.ndarray, theirs: np.ndarray, block: np.ndarray) -> tuple[float, float, float]:
    """The ratio of two mean scores over the same rows, and its interval from the same blocks."""
    drawn = [ours[places].sum() / theirs[places].sum() for places in _blocks(block)]
    low, high = np.quantile(drawn, [0.05, 0.95]).tolist()
    return float(ours.sum() / theirs.sum()), low, high


def _blocks(block: np.ndarray) -> list[np.ndarray]:
    """Rows of 500 draws of whole blocks, always the same."""
    rng = np.random.default_rng(0)
    names, place = np.unique(block, return_inverse=True)
    rows = [np.flatnonzero(place == number) for number in range(len(names))]
    return [np.concatenate([rows[number] for number in rng.integers(len(rows), size=len(rows))]) for _ in range(_DRAWS)]


_TINY = 1e-9
