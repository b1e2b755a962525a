"""Calibrate forecasts by the outcomes of earlier forecasts, and pool the forecasts of several
methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dagsim.families.forecast.scores import CEILING, LEVELS, MEDIAN, crps

_WINDOW, _LEAST, _LEAST_JOBS = 400, 40, 20
_LEAST_SPREAD = 0.35
_LEAST_EVENTS = 10
_BEYOND = 0.5
"""Spread that is added if the level lies above the largest uncensored residual."""
_POOL_WINDOW, _POOL_LEAST, _POOL_POWER = 1500, 60, 4
_LEAST_LOSS = 1e-3


class Outcomes(NamedTuple):
    """The outcomes of n forecasts, in order of forecast time."""

    t: np.ndarray
    """(n,) float64: the time of the forecast."""
    job: np.ndarray
    """(n,) int64: number of the submission."""
    seen_s: np.ndarray
    """(n,) float64: when the outcome became known: the start, or the end of a wait without a start."""
    started: np.ndarray
    """(n,) bool: True if the job started."""

    @property
    def y(self) -> np.ndarray:
        """(n,) logarithm of the wait from the forecast to the start, or NaN if there was no start."""
        logs: np.ndarray = np.where(self.started, np.log1p(np.maximum(self.seen_s - self.t, 0.0)), np.nan)
        capped: np.ndarray = np.minimum(logs, CEILING)
        return capped


def kaplan_meier(
    values: np.ndarray, event: np.ndarray, weight: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate the distribution of values, some of which are only lower bounds (``event`` is
    False). Return the sorted values of the events, and the distribution function at these values
    (Kaplan and Meier 1958)."""
    order = np.lexsort((~event, values))
    values, event = values[order], event[order]
    weights = np.ones(len(values)) if weight is None else weight[order]
    at_risk = np.cumsum(weights[::-1])[::-1]
    survival = np.cumprod(np.where(event, 1 - weights / at_risk, 1.0))
    return values[event], 1 - survival[event]


def censoring_weights(waits_s: np.ndarray, started: np.ndarray) -> np.ndarray:
    """Return weights, (n,), for waits of which some ended without a start. Each start also
    represents cancelled waits that would have lasted as long (Robins and Rotnitzky 1992). Waits
    without a start have the weight 0.
    """
    ends_s, gone = kaplan_meier(waits_s, ~started)
    left = np.concatenate([[1.0], 1 - gone])[np.searchsorted(ends_s, waits_s)]
    weights: np.ndarray = np.where(started, 1 / np.maximum(left, 1 / len(waits_s)), 0.0)
    return weights


def _thinned(jobs: np.ndarray) -> np.ndarray:
    """Return weights for forecasts, (n,). The k forecasts of one submission together have the
    weight of sqrt(k) forecasts of different submissions, because they contain similar information.
    Equal weights per forecast would let long-waiting jobs dominate, and equal weights per
    submission would fit these jobs badly."""
    _, place, counts = np.unique(jobs, return_inverse=True, return_counts=True)
    weights: np.ndarray = 1.0 / np.sqrt(counts[place])
    return weights


def calibrated(outcomes: Outcomes, quantiles: np.ndarray, classes: Sequence[np.ndarray]) -> np.ndarray:
    """Return calibrated forecasts, (n, 19), with one column per quantile. In each of them, the
    residuals of up to 400 earlier forecasts of the same class replace the nominal distribution.

    A residual is (y - median) / spread, where the spread is the distance from the median to the 95%
    quantile (above the median) or to the 5% quantile. Waits that are still in progress at the time
    of the forecast, or that ended without a start, are censored. Forecasts are weighted by
    ``_thinned``. ``classes`` contains the numbers (n,) of classes, from narrow to wide. The
    narrowest class with at least 40 forecasts of 20 jobs is used. If no class has that many, the
    forecast is unchanged.
    """
    result = quantiles.copy()
    median = quantiles[:, MEDIAN]
    low, high = (np.maximum(gap, _LEAST_SPREAD) for gap in (median - quantiles[:, 0], quantiles[:, -1] - median))
    starts = np.unique(outcomes.t, return_index=True)[1].tolist()
    groups: list[dict[int, list[int]]] = [{} for _ in classes]
    for begin, end in zip(starts, [*starts[1:], len(outcomes.t)], strict=True):
        t = outcomes.t[begin]
        kept: dict[tuple[int, int], tuple[np.ndarray, np.ndarray] | None] = {}
        for row in range(begin, end):
            for number, column in enumerate(classes):
                key = (number, int(column[row]))
                if key not in kept:
                    past = np.array(groups[number].get(key[1], ())[-_WINDOW:], np.int64)
                    kept[key] = _residuals(outcomes, past, t, median, low, high)
                residuals = kept[key]
                if residuals is not None:
                    result[row] = _with(residuals, quantiles[row], low[row], high[row])
                    break
        for row in range(begin, end):
            for number, column in enumerate(classes):
                groups[number].setdefault(int(column[row]), []).append(row)
    return result


def _residuals(
    outcomes: Outcomes, past: np.ndarray, t: float, median: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the distribution of the residuals of the ``past`` forecasts, as far as it is known at
    time ``t``. Return None if there are too few."""
    if len(past) < _LEAST or len(np.unique(outcomes.job[past])) < _LEAST_JOBS:
        return None
    event = outcomes.started[past] & (outcomes.seen_s[past] <= t)
    until_s = np.minimum(outcomes.seen_s[past], t) - outcomes.t[past]
    y = np.minimum(np.log1p(np.maximum(until_s, 0.0)), CEILING)
    gap = y - median[past]
    ratios = gap / np.where(gap > 0, high[past], low[past])
    values, function = kaplan_meier(ratios, event, _thinned(outcomes.job[past]))
    return (values, function) if len(values) >= _LEAST_EVENTS else None


def _with(residuals: tuple[np.ndarray, np.ndarray], quantiles: np.ndarray, low: float, high: float) -> np.ndarray:
    """Calibrate one forecast with a distribution of residuals. If so many waits are unfinished that
    the residuals do not reach a level, extrapolate: the quantile at that level exceeds the largest
    residual by the distance between the nominal levels.
    """
    values, function = residuals
    gap = quantiles - quantiles[MEDIAN]
    nominal = np.where(gap > 0, gap / high, gap / low)
    places = np.searchsorted(function, LEVELS)
    beyond = places >= len(values)
    drawn = values[np.minimum(places, len(values) - 1)]
    if beyond.any():
        drawn = np.where(beyond, values[-1] + _BEYOND + nominal - nominal[np.argmax(beyond)], drawn)
    moved = np.where(drawn > 0, drawn * high, drawn * low) + quantiles[MEDIAN]
    return np.maximum.accumulate(np.clip(moved, 0.0, CEILING))


def pooled(
    outcomes: Outcomes, members: Sequence[np.ndarray], lag_s: float, key: np.ndarray | None = None
) -> np.ndarray:
    """Average the quantiles of several methods (``members``), (n, 19), level by level.

    A member's weight is inversely proportional to the fourth power of its CRPS. The CRPS is
    computed over the latest 1,500 forecasts that were issued at least ``lag_s`` before and have an
    outcome (weighted by ``_thinned``). All weights are equal until there are 60 forecasts with the
    same ``key``.
    """
    stacked = np.stack(members)
    waits = np.nan_to_num(outcomes.y)
    losses = np.stack([crps(member, waits) for member in members])
    result: np.ndarray = stacked.mean(axis=0)
    keys = np.zeros(len(waits), int) if key is None else key
    for t in np.unique(outcomes.t):
        resolved = (outcomes.t <= t - lag_s) & (outcomes.seen_s <= t) & outcomes.started
        for name in np.unique(keys[outcomes.t == t]):
            past = np.flatnonzero(resolved & (keys == name))[-_POOL_WINDOW:]
            if len(past) >= _POOL_LEAST:
                rows = np.flatnonzero((outcomes.t == t) & (keys == name))
                loss = np.average(losses[:, past], axis=1, weights=_thinned(outcomes.job[past]))
                weights = np.maximum(loss, _LEAST_LOSS) ** -_POOL_POWER
                result[rows] = np.tensordot(weights / weights.sum(), stacked[:, rows], 1)
    return result
