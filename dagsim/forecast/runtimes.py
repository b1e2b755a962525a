"""Run times of jobs that run or will run, drawn from those of ended jobs."""

from __future__ import annotations

from collections.abc import Iterable
from math import log2

import numpy as np

__all__ = ["RunTimes", "classes_of"]

_KEPT = 400
_K = {"all": 10.0, "user": 10.0, "band": 4.0, "user-band": 10.0, "user-limit": 4.0, "array": 2.0}
"""The number of ended jobs at which a class counts as much as all wider ones together."""
_PRIOR = np.linspace(0.02, 1.0, 12)
_LEAST, _MOST = 1e-4, 1.02

Class = tuple[str, object]


def classes_of(user: str, limit_s: float, array: str) -> list[Class]:
    """The classes of a job, from wide to narrow: all, the band of its limit (powers of two), user,
    both, user and exact limit, and its array if it has one.
    """
    band = round(log2(max(limit_s, 1.0) / 3600))
    listed: list[Class] = [
        ("all", 0), ("band", band), ("user", user), ("user-band", (user, band)), ("user-limit", (user, limit_s))
    ]  # fmt: skip
    return [*listed, ("array", array)] if array else listed


class RunTimes:
    """Run times as shares of the time limit: a mixture of the last 400 of each class. A narrower
    class with n ended jobs has the weight n / (n + k) against all wider ones, and a uniform prior
    lies below all. Jobs must be added in order of their ends.
    """

    def __init__(self) -> None:
        self._shares: dict[Class, list[float]] = {}

    def add(self, classes: Iterable[Class], share: float) -> None:
        """Add an ended job that took ``share`` of its limit."""
        for name in classes:
            listed = self._shares.setdefault(name, [])
            listed.append(min(_MOST, max(_LEAST, share)))
            if len(listed) > _KEPT:
                del listed[0]

    def table(self, classes: Iterable[Class]) -> tuple[np.ndarray, np.ndarray]:
        """The shares of the mixture and their weights, which sum to 1."""
        values, weights = [_PRIOR], [np.full(len(_PRIOR), 1 / len(_PRIOR))]
        for name in classes:
            listed = self._shares.get(name)
            if not listed:
                continue
            part = len(listed) / (len(listed) + _K[name[0]])
            weights = [weight * (1 - part) for weight in weights]
            values.append(np.array(listed))
            weights.append(np.full(len(listed), part / len(listed)))
        return np.concatenate(values), np.concatenate(weights)

    def draw(self, rng: np.random.Generator, classes: Iterable[Class], size: int, done: float = 0.0) -> np.ndarray:
        """(size,) shares of a job that has used the share ``done`` of its limit already: the mixture
        restricted to larger ones; if there are none, the limit, or a little more than ``done``.
        """
        values, weights = self.table(classes)
        larger = values > done
        if not larger.any():
            return np.full(size, max(1.0, done + 0.01))
        values, summed = values[larger], np.cumsum(weights[larger])
        places = np.searchsorted(summed, rng.random(size) * summed[-1])
        drawn: np.ndarray = values[np.minimum(places, len(values) - 1)]
        return drawn
