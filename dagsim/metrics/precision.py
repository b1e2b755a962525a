"""A sequential rule for the number of seeds: add seeds and look again, until the interval is as
narrow as requested.

Starting at 20 seeds and looking at every tenth keeps the interval's coverage. Looking after every
seed from the second on loses up to 9 points on generated workloads and 47 on a trace
(``scripts/validate_intervals.py`` measures the rule).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import ceil, expm1, inf, isfinite, log, sqrt
from statistics import NormalDist

from dagsim.errors import InputError
from dagsim.metrics.columns import Floats
from dagsim.metrics.intervals import (
    SAME,
    enough_seeds,
    samples_needed,
    seeds_for_interval,
    standard_deviation,
    t_quantile,
)

__all__ = ["MUST_DIFFER", "Ending", "Look", "Precision"]

MUST_DIFFER = 5
"""Minimum number of seeds with a difference. With fewer, the interval may be narrow by accident."""


class Ending(StrEnum):
    """State of a comparison after a look."""

    GOES_ON = "goes on"
    ENOUGH = "precise enough"
    IDENTICAL = "identical"
    HOPELESS = "needs too many seeds"
    USED_UP = "seeds used up"


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a comparison."""

    ending: Ending
    n: int
    more: int
    """Seeds to add before the next look; 0 if the comparison has ended."""
    half_width: float
    """Half-width of the interval, as a fraction: .02 if it extends from 1 / 1.02 to 1.02 times the
    ratio.
    """
    needs: float
    """Estimate of the seeds needed, from the spread so far; infinite if no seed differs."""
    approximate: str = ""
    """Number of seeds that the interval needs, in words; empty if ``n`` is enough."""

    def __str__(self) -> str:
        return "; approximate: ".join(filter(None, (self._state(), self.approximate)))

    def _state(self) -> str:
        match self.ending:
            case Ending.GOES_ON if not isfinite(self.half_width):
                return f"{self.n} seeds; {self.more} more before the first look"
            case Ending.GOES_ON:
                return f"+-{100 * self.half_width:.1f} % after {self.n} seeds; {self.more} more"
            case Ending.ENOUGH:
                return f"+-{100 * self.half_width:.1f} % after {self.n} seeds"
            case Ending.IDENTICAL:
                return f"identical in {self.n} seeds"
            case _:
                about = f"needs about {self.needs:,.0f} seeds" if isfinite(self.needs) else "too few seeds differ"
                return f"+-{100 * self.half_width:.1f} % after {self.n} seeds; {about}"


@dataclass(frozen=True, slots=True)
class Precision:
    """The rule: stop when the half-width of the interval on the logs is at most ln(1 + ``within``).

    If the first ``start`` seeds predict that more than ``cap`` are needed, the comparison ends
    there with the forecast.
    """

    within: float
    """Target half-width as a fraction of the ratio, .02 for 2 %."""
    start: int = 20
    step: int = 10
    cap: int = 500
    """Maximum number of seeds; on a trace, at most its number of disjoint windows."""
    level: float = 0.95
    unit: str = "seed"
    """``seed``, or ``window`` of a real trace."""

    def __post_init__(self) -> None:
        if not 0 < self.within < 1:
            raise InputError(f"precision: must lie between 0 % and 100 %, got {100 * self.within:g} %")
        if self.start < MUST_DIFFER or self.step < 1:
            raise InputError(
                f"precision: start must be {MUST_DIFFER} or more and step 1 or more, got {self.start} and {self.step}"
            )
        if self.cap < self.start:
            raise InputError(f"precision: needs {self.start} seeds or windows to start with, there are {self.cap}")

    def look(self, logs: Floats, largest_job: float = 0.0) -> Look:
        """Return the state after ``logs``, the log ratios of all seeds in the order drawn.
        ``largest_job`` is that of ``seeds_for_interval``.
        """
        n = len(logs)
        if n < self.start:
            return Look(Ending.GOES_ON, n, self.start - n, inf, inf)
        sd, differ = float(standard_deviation(logs)), _differ(logs)
        needs = self._forecast(sd, differ, n)
        first = needs if n == self.start else self.forecast(logs[: self.start])
        half_width = t_quantile(self.level, n - 1) * sd / sqrt(n)
        ending = self._ending(n, half_width, differ, first)
        more = min(self.step, self.cap - n) if ending is Ending.GOES_ON else 0
        needed = samples_needed(int(seeds_for_interval(logs, largest_job)), n, self.unit) if sd > 0 else 0
        return Look(ending, n, more, expm1(half_width), needs, enough_seeds(needed, self.unit) if needed else "")

    def forecast(self, logs: Floats) -> float:
        """Estimate seeds: (1.96 sd / ln(1 + within))^2, and enough for 5 to differ; infinite if
        none differs.
        """
        return self._forecast(float(standard_deviation(logs)), _differ(logs), len(logs))

    def _forecast(self, sd: float, differ: int, n: int) -> float:
        if not differ:
            return inf
        narrow = (_normal_quantile(self.level) * sd / log(1 + self.within)) ** 2
        return ceil(max(narrow, MUST_DIFFER * n / differ, self.start))

    def _ending(self, n: int, half_width: float, differ: int, first_forecast: float) -> Ending:
        if not differ:
            return Ending.IDENTICAL
        if half_width <= log(1 + self.within) and differ >= MUST_DIFFER:
            return Ending.ENOUGH
        if first_forecast > self.cap:
            return Ending.HOPELESS
        return Ending.USED_UP if n >= self.cap else Ending.GOES_ON


def _differ(logs: Floats) -> int:
    return int((abs(logs) > SAME).sum())


@lru_cache
def _normal_quantile(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)
