"""The state of a queue at one time: which jobs of a log run, and which wait."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from dagsim.families.forecast.job_log import JobLog
from dagsim.families.forecast.time_spans import HOUR_S, WEEK_S

_LEAST_HORIZON_S, MOST_HORIZON_S = 12 * HOUR_S, WEEK_S
"""Bounds of the length of a simulation."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """The jobs in the system at time ``t``: indices into the log, in order of submission."""

    log: JobLog
    t: float
    running: np.ndarray
    waiting: np.ndarray

    @classmethod
    def at(cls, log: JobLog, t: float) -> QueueState:
        """Return the jobs that were running and waiting at time ``t`` according to a log."""
        submitted = np.arange(int(np.searchsorted(log.submit_s, t, "right")))
        started = log.start_s[submitted] <= t
        gone = log.end_s[submitted] <= t
        return cls(log, t, submitted[started & ~gone], submitted[~started & ~gone])

    @property
    def eligible_s(self) -> np.ndarray:
        """(n,) float64: the time from which each waiting job could start, or infinity if it cannot
        start yet."""
        seen_s = self.log.eligible_s[self.waiting]
        return np.where(seen_s <= self.t, seen_s, inf)

    @property
    def age_s(self) -> np.ndarray:
        """(n,) float64: how long each waiting job has been eligible to start, or 0 if it is not
        eligible yet.
        """
        ages: np.ndarray = np.where(np.isinf(self.eligible_s), 0.0, self.t - self.eligible_s)
        return ages

    @property
    def horizon_s(self) -> float:
        """Length of a simulation: twice the longest wait among the jobs in the system and the last
        1,000 jobs that started, at least 12 h and at most a week."""
        log, t = self.log, self.t
        first = np.searchsorted(log.submit_s, t, "right")
        latest = slice(max(0, int(first) - 1000), int(first))
        until_s = np.where(log.start_s[latest] <= t, log.start_s[latest], np.where(log.end_s[latest] <= t, 0.0, t))
        longest_s = float(np.max(until_s - log.submit_s[latest], initial=0.0))
        return min(max(2 * longest_s, _LEAST_HORIZON_S), MOST_HORIZON_S)
