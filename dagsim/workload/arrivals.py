"""Arrival times of jobs. They follow a pattern over a span, whose length the offered load
determines (``dagsim.workload.load``), or a rate that varies by hour, by weekday and at random.

``times(rng, count, span_s)`` returns ``count`` sorted arrival times in seconds (float64), spread
over ``span_s``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp as exponential
from math import inf, pi, sqrt
from typing import Annotated, Literal, TypeAlias

import numpy as np

from dagsim.errors import WorkloadError, require
from dagsim.model.arithmetic import DAY_S, ordered_sum
from dagsim.workload.distributions import exp
from dagsim.workload.sizes import Draws
from dagsim.workload.tagged_union import TaggedUnion

_FORBID = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Poisson:
    """A Poisson process: the times between arrivals are independent and exponentially distributed.
    The last arrival is close to ``span_s``, but not exactly at that time.
    """

    kind: Literal["poisson"] = "poisson"

    __pydantic_config__ = _FORBID

    def times(self, rng: np.random.Generator, count: int, span_s: float) -> np.ndarray:
        return np.cumsum(rng.exponential(span_s / count, count))


@dataclass(frozen=True, slots=True)
class Bursty:
    """A fraction ``share`` of the jobs arrives in ``bursts`` Gaussian bursts, and the other jobs are
    spread evenly.

    The centres of the bursts are uniformly distributed over the span. ``width`` is the standard
    deviation of a burst as a fraction of the span. Arrivals outside the span are reflected into it.
    The defaults come from MohammedYaseen97/gpu-optimizer.

    Raises:
        WorkloadError: There are no bursts, the share is outside 0..1, or the width is not positive.
    """

    bursts: int = 6
    """The number of bursts."""
    share: float = 0.8
    """The fraction of the jobs that arrives in bursts."""
    width: float = 0.03
    """The standard deviation of a burst as a fraction of the span."""
    kind: Literal["bursty"] = "bursty"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        require(self.bursts >= 1, "arrivals bursty: bursts must be at least 1", self.bursts, WorkloadError)
        require(0 <= self.share <= 1, "arrivals bursty: share must be between 0 and 1", self.share, WorkloadError)
        require(0 < self.width < 1, "arrivals bursty: width must be above 0 and below 1", self.width, WorkloadError)

    def times(self, rng: np.random.Generator, count: int, span_s: float) -> np.ndarray:
        centres = rng.random(self.bursts)
        floor = rng.random(count)
        burst = centres[rng.integers(self.bursts, size=count)] + self.width * rng.standard_normal(count)
        place = np.where(rng.random(count) < self.share, burst, floor)
        place = np.clip(1 - np.abs(1 - np.abs(place)), 0, 1)  # reflect values outside 0 to 1 at the nearer end
        return np.sort(place) * span_s


@dataclass(frozen=True, slots=True)
class Diurnal:
    """A Poisson process whose rate changes with the time of day, as a cosine.

    The highest rate is ``peak_to_trough`` times the lowest and occurs ``peak_s`` after the start of
    each period.

    Raises:
        WorkloadError: The ratio is below 1, or the period is not positive.
    """

    peak_to_trough: float = 3.0
    """The highest rate divided by the lowest."""
    period_s: float = DAY_S
    """Length of the cycle in seconds."""
    peak_s: float = 50400.0
    """Time in seconds at which the rate is highest in each cycle."""
    kind: Literal["diurnal"] = "diurnal"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        if not 1 <= self.peak_to_trough < inf:
            raise WorkloadError(f"arrivals diurnal: peak_to_trough must be at least 1, got {self.peak_to_trough!r}")
        require(0 < self.period_s < inf, "arrivals diurnal: period_s must be above 0", self.period_s, WorkloadError)

    def times(self, rng: np.random.Generator, count: int, span_s: float) -> np.ndarray:
        total = float(self._arrived(np.array([span_s]))[0])
        wanted = np.sort(rng.random(count)) * total
        low, high = np.zeros(count), np.full(count, float(span_s))
        for _ in range(60):  # bisect down to the precision of a float
            middle = (low + high) / 2
            early = self._arrived(middle) < wanted
            low, high = np.where(early, middle, low), np.where(early, high, middle)
        return high

    def _arrived(self, time_s: np.ndarray) -> np.ndarray:
        """Return the integral of the rate from 0 to ``time_s``, with a mean rate of 1."""
        swing = (self.peak_to_trough - 1) / (self.peak_to_trough + 1)
        turn = 2 * pi / self.period_s
        ahead = np.sin(turn * (time_s - self.peak_s)) + np.sin(turn * self.peak_s)
        return np.asarray(time_s + swing / turn * ahead)


@dataclass(frozen=True, slots=True)
class Batch:
    """All jobs arrive at time 0, regardless of the load."""

    kind: Literal["batch"] = "batch"

    __pydantic_config__ = _FORBID

    def times(self, rng: np.random.Generator, count: int, span_s: float) -> np.ndarray:
        return np.zeros(count)


Arrivals: TypeAlias = Annotated[Poisson | Bursty | Diurnal | Batch, TaggedUnion("bursty")]
"""Any arrival pattern; in YAML, ``kind`` selects it."""


HOURS_PER_WEEK = 168


@dataclass(frozen=True, slots=True)
class Swing:
    """A random factor with mean 1, by which the rate is multiplied. Its logarithm is a Gaussian
    process with standard deviation ``sigma`` and correlation time ``hours``.

    The correlation of the logarithm decreases as exp(-lag / ``hours``) (Ornstein and Uhlenbeck).

    Raises:
        WorkloadError: The standard deviation is negative, or the correlation time is not positive.
    """

    sigma: float
    """Standard deviation of the logarithm of the factor."""
    hours: float
    """Correlation time of the logarithm, in hours."""

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        if not 0 <= self.sigma < inf or not 0 < self.hours < inf:
            raise WorkloadError(f"swing: sigma must be 0 or more and hours above 0, got {self.sigma!r}, {self.hours!r}")

    def factors(self, rng: np.random.Generator, hours: int, last: float | None) -> tuple[np.ndarray, float]:
        """Return the factors for the next ``hours`` hours, and the final state of the process.
        ``last`` is the state in the preceding hour.
        """
        kept = exponential(-1 / self.hours)
        path = []
        for shock in rng.standard_normal(hours).tolist():
            last = shock if last is None else kept * last + sqrt(1 - kept * kept) * shock
            path.append(last)
        return exp(self.sigma * np.array(path) - self.sigma**2 / 2), path[-1]


@dataclass(frozen=True, slots=True)
class Rates:
    """Arrivals at a rate of ``per_hour``, multiplied by one factor for the hour of the day, one for
    the day of the week, and one from ``swings``.

    Within an hour, arrivals are a Poisson process, so overall they are a log-Gaussian Cox process.
    Each seed starts at a random time of the week.

    Raises:
        WorkloadError: A rate or a factor is negative, or there are not exactly 24 factors for hours
            and 7 for days.
    """

    per_hour: float = 60.0
    """The mean number of jobs per hour, before the factors."""
    day: tuple[float, ...] = ()
    """Factors for the 24 hours of the day, relative to their mean (default: 1)."""
    week: tuple[float, ...] = ()
    """Factors for the 7 days of the week, relative to their mean (default: 1)."""
    swings: tuple[Swing, ...] = ()
    """Random factors by which the rate is multiplied."""

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        require(0 < self.per_hour < inf, "rates: per_hour must be above 0", self.per_hour, WorkloadError)
        for name, wanted in (("day", 24), ("week", 7)):
            factors = getattr(self, name)
            if factors and (len(factors) != wanted or not min(factors) >= 0 or not 0 < ordered_sum(factors) < inf):
                raise WorkloadError(
                    f"rates: {name} must be a list of {wanted} factors, each 0 or more and at least one above 0, "
                    f"got {factors!r}"
                )

    def weeks(self, rng: Draws) -> Iterator[np.ndarray]:
        """Yield the sorted arrival times of one week after another, in seconds, without end."""
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
        """Return the factors for the hours of a week, with mean 1."""
        day = np.array(self.day or (1.0,) * 24)
        week = np.array(self.week or (1.0,) * 7)
        cycle = np.outer(week / week.mean(), day / day.mean()).ravel()
        return np.asarray(cycle / cycle.mean())
