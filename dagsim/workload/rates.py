"""Rates of arrivals that swing: by the hour of the day, the day of the week, and by chance over hours and days."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp as exponential
from math import inf, sqrt

import numpy as np

from dagsim.errors import WorkloadError
from dagsim.workload.portable_math import exp
from dagsim.workload.sizes import Draws

__all__ = ["HOURS_PER_WEEK", "Rates", "Swing"]

HOURS_PER_WEEK = 168

_FORBID = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Swing:
    """A factor of mean 1 whose logarithm is a normal process: ``sigma`` wide, forgotten after some ``hours``.

    The correlation of the logarithm falls as exp(-lag / ``hours``) (Ornstein and Uhlenbeck).

    Raises:
        WorkloadError: A negative ``sigma``, or ``hours`` that are not positive.
    """

    sigma: float
    hours: float

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        if not 0 <= self.sigma < inf or not 0 < self.hours < inf:
            raise WorkloadError(f"swing: sigma must be 0 or more and hours above 0, got {self.sigma!r}, {self.hours!r}")

    def factors(self, rng: np.random.Generator, hours: int, last: float | None) -> tuple[np.ndarray, float]:
        """The factors of the hours after one at ``last``, and where the process ends."""
        kept = exponential(-1 / self.hours)
        fresh = rng.standard_normal(hours)
        path = np.empty(hours)
        state = fresh[0] if last is None else kept * last + sqrt(1 - kept * kept) * fresh[0]
        for hour in range(hours):
            if hour:
                state = kept * state + sqrt(1 - kept * kept) * fresh[hour]
            path[hour] = state
        return exp(self.sigma * path - self.sigma**2 / 2), float(state)


@dataclass(frozen=True, slots=True)
class Rates:
    """``per_hour`` arrivals in an average hour, times factors of hour, day and ``swings``.

    ``day`` has 24 factors and ``week`` 7, as multiples of their mean; left out, all are 1. Within an hour arrivals are
    a Poisson process (so a log-Gaussian Cox process over all). A seed begins anywhere in the week.

    Raises:
        WorkloadError: A rate or a factor below 0, or factors that are not 24 and 7.
    """

    per_hour: float = 60.0
    day: tuple[float, ...] = ()
    week: tuple[float, ...] = ()
    swings: tuple[Swing, ...] = ()

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        if not 0 < self.per_hour < inf:
            raise WorkloadError(f"rates: per_hour must be above 0, got {self.per_hour!r}")
        for name, wanted in (("day", 24), ("week", 7)):
            factors = getattr(self, name)
            if factors and (len(factors) != wanted or not min(factors) >= 0 or not 0 < sum(factors) < inf):
                raise WorkloadError(f"rates: {name} must be {wanted} factors of 0 or more, got {factors!r}")

    def weeks(self, rng: Draws) -> Iterator[np.ndarray]:
        """Sorted times of arrivals in seconds, week after week, for ever."""
        cycle = self._cycle()
        start = int(rng("rates/start").integers(HOURS_PER_WEEK))
        states: list[float | None] = [None] * len(self.swings)
        week = 0
        while True:
            hours = self.per_hour * np.roll(cycle, -start)
            for place, swing in enumerate(self.swings):
                factors, states[place] = swing.factors(rng(f"rates/swing-{place}"), HOURS_PER_WEEK, states[place])
                hours = hours * factors
            counts = rng("rates/counts").poisson(hours)
            places = np.repeat(np.arange(HOURS_PER_WEEK), counts) + rng("rates/places").random(int(counts.sum()))
            yield 3600.0 * (week * HOURS_PER_WEEK + np.sort(places))
            week += 1

    def _cycle(self) -> np.ndarray:
        """The factors of the hours of a week, of mean 1."""
        day = np.array(self.day or (1.0,) * 24)
        week = np.array(self.week or (1.0,) * 7)
        cycle = np.outer(week / week.mean(), day / day.mean()).ravel()
        return np.asarray(cycle / cycle.mean())
