"""Forecasts from past waits alone: history, and QBETS (Nurmi, Brevik and Wolski 2007)."""

from __future__ import annotations

from functools import cache
from math import log

import numpy as np

from dagsim.families.forecast.scores import LEVELS, log_wait

_EVERY = ""
_KEPT = 200
_LEAST = 8
_KEPT_AFTER_CHANGE = 59
"""The smallest number of waits for which the largest is an upper bound of the 0.95 quantile with
confidence 0.95."""
_MISSES = 3
_CONFIDENCE = 0.95
_ROUNDING = 1e-12


@cache
def binomial_quantile(confidence: float, n: int, level: float) -> int:
    """Return the smallest k with P(Binomial(n, level) <= k) >= confidence."""
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    k = np.arange(n + 1)
    logs = factorial[n] - factorial[k] - factorial[n - k] + k * log(level) + (n - k) * log(1 - level)
    return min(int(np.searchsorted(np.cumsum(np.exp(logs)), confidence - _ROUNDING)), n)


class History:
    """The waits of started jobs, by group (an account, a partition), in the order of their starts.

    If ``bounds`` is True, the forecasts are computed by QBETS. The quantile at a level above the
    median is then an upper bound with confidence 0.95, and the quantile at a level below the median
    is a lower bound. If three starts in a row exceed the bound for the 0.95 quantile, this is a
    change point, after which only the last 59 waits count.
    """

    def __init__(self, *, bounds: bool = False) -> None:
        self._bounds = bounds
        self._waits: dict[str, list[float]] = {}
        self._misses: dict[str, int] = {}

    def add(self, group: str, wait_s: float) -> None:
        """Add the wait of a job that has started."""
        listed = self._waits.setdefault(group, [])
        if self._bounds and len(listed) >= _KEPT_AFTER_CHANGE:
            place = binomial_quantile(_CONFIDENCE, len(listed), 0.95)
            bound_s = np.partition(listed, min(place, len(listed) - 1))[min(place, len(listed) - 1)]
            self._misses[group] = self._misses.get(group, 0) + 1 if wait_s > bound_s else 0
            if self._misses[group] >= _MISSES:
                del listed[:-_KEPT_AFTER_CHANGE]
                self._misses[group] = 0
        listed.append(max(0.0, wait_s))
        most = 10 * _KEPT if self._bounds else _KEPT
        if len(listed) > most:
            del listed[0]
        if group != _EVERY:
            self.add(_EVERY, wait_s)

    def quantiles(self, group: str, age_s: float) -> np.ndarray:
        """Return the quantiles, (19,), of the logarithm of the remaining wait of a job of this age.
        They are based on the waits in its group that were longer than this age. If there are fewer
        than eight of these, they are based on the longer waits in all groups."""
        left = self._left(group, age_s)
        if len(left) < _LEAST:
            left = self._left(_EVERY, age_s)
        if len(left) < 3:
            left = np.array([60.0, max(age_s, 600.0), 4 * max(age_s, 600.0)])
        if self._bounds:
            places = [
                binomial_quantile(0.05 if level < 0.5 else 0.5 if level == 0.5 else _CONFIDENCE, len(left), level)
                for level in LEVELS.tolist()
            ]
        else:
            places = (np.ceil(LEVELS * (len(left) + 1) - 1e-9).astype(int) - 1).tolist()
        return np.maximum.accumulate(log_wait(left[np.clip(places, 0, len(left) - 1)]))

    def _left(self, group: str, age_s: float) -> np.ndarray:
        waits = np.array(self._waits.get(group, ()))
        return np.sort(waits[waits > age_s] - age_s)
