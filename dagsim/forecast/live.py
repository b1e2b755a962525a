"""Forecasts of the jobs that wait now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dagsim.forecast.backtest import Backtest, Forecasts, played
from dagsim.forecast.log import JobLog
from dagsim.forecast.members import Forecaster
from dagsim.forecast.rows import KINDS
from dagsim.forecast.scores import LEVELS

__all__ = ["Expected", "expected"]

_INSTANTS = 24
_FUTURES = 10
"""Number of futures at earlier instants, which only calibrate."""
_BACK_S = 7 * 86400.0


class Expected(NamedTuple):
    """The forecast of one waiting job, or of the next task of a waiting array."""

    job: str
    user: str
    partition: str
    waits_for: str
    """A kind of ``KINDS``."""
    quantiles_s: tuple[float, ...]
    """The 19 quantiles of the seconds until it starts; a week stands for a week or longer."""
    within_1h: float
    within_24h: float

    def to_dict(self) -> dict[str, Any]:
        """The forecast by name, for JSON."""
        named = {f"q{round(100 * level):02}": wait for level, wait in zip(LEVELS, self.quantiles_s, strict=True)}
        chances = {"within_1h": self.within_1h, "within_24h": self.within_24h}
        row = {"job": self.job, "user": self.user, "partition": self.partition, "waits_for": self.waits_for}
        return row | chances | {"median_s": self.quantiles_s[9], "quantiles_s": named}


def expected(log: JobLog, forecaster: Forecaster, t: float, instants: int = _INSTANTS) -> Iterator[list[Expected]]:
    """Yield the forecasts at ``t``: first from the present state alone, then calibrated by forecasts
    at earlier instants of the log, if it goes back.
    """
    yield _expected(log, forecaster, [t])
    first_s = max(float(log.submit_s[0]), t - _BACK_S)
    ended = np.count_nonzero(log.end_s <= t)
    if ended and t > first_s:
        grid = np.linspace(first_s, t, instants + 1)[1:-1].tolist()
        yield _expected(log, forecaster, [*grid, t])


def _expected(log: JobLog, forecaster: Forecaster, instants: list[float]) -> list[Expected]:
    fewer = replace(forecaster, futures=min(forecaster.futures, _FUTURES))
    several = list(played(log, None, fewer, instants[:-1]))
    several += played(log, None, forecaster, instants[-1:], len(several))
    present = several[-1]
    if not len(present.t):
        return []
    test = Backtest(Forecasts.joined([each for each in several if len(each.t)]), log)
    forecasts = []
    for row in range(len(test.forecast) - len(present.t), len(test.forecast)):
        logs, job = test.forecast[row], test.forecasts.job[row]
        waits_s = tuple(np.expm1(logs).tolist())
        kind = KINDS[test.forecasts.kind[row]]
        within = [_chance(logs, span_s) for span_s in (3600.0, 86400.0)]
        forecasts.append(Expected(log.array[job], log.user[job], log.partition[job], kind, waits_s, *within))
    return sorted(forecasts, key=lambda each: each.quantiles_s[9])


def _chance(logs: np.ndarray, span_s: float) -> float:
    """The chance of a start within a span, between the levels of the quantiles on either side; outside
    them, the middle of the outermost twentieth.
    """
    return float(np.interp(np.log1p(span_s), logs, LEVELS, left=0.025, right=0.975))
