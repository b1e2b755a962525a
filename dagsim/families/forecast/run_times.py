"""Run times drawn from the run times of ended jobs."""

from __future__ import annotations

from collections.abc import Iterable
from math import log2

import numpy as np

from dagsim.families.forecast.job_log import JobLog

_KEPT_TIMES = 400
"""Number of run times that count in each class, the latest ones."""
_WEIGHING = {"all": 10.0, "user": 10.0, "band": 4.0, "user-band": 10.0, "user-limit": 4.0, "array": 2.0}
"""A class with this number of ended jobs has as much weight as all wider classes together."""
_PRIOR = np.linspace(0.02, 1.0, 12)
"""Shares of the limit that are equally likely as long as no job has ended."""
_LEAST_SHARE, _MOST_SHARE = 1e-4, 1.02
"""Bounds of the shares: a scheduler ends jobs somewhat after their limits."""

Class = tuple[str, object]


def classes_of(user: str, limit_s: float, array: str) -> list[Class]:
    """Return the classes of a job, from wide to narrow: all jobs, jobs whose limits are in the same
    band (powers of two), jobs of the same user, the user's jobs in the same band, the user's jobs
    with the same limit, and, if the job belongs to an array, the jobs of that array.
    """
    band = round(log2(max(limit_s, 1.0) / 3600))
    listed: list[Class] = [
        ("all", 0), ("band", band), ("user", user), ("user-band", (user, band)), ("user-limit", (user, limit_s))
    ]  # fmt: skip
    return [*listed, ("array", array)] if array else listed


def run_time_classes(log: JobLog, job: int) -> list[Class]:
    """Return the classes of run times to which a job belongs, from wide to narrow."""
    array = log.array[job]
    return classes_of(log.user[job], float(log.limit_s[job]), "" if array == log.jobs.ids[job] else array)


class RunTimes:
    """Run times as shares of the time limit: a mixture of the last 400 jobs of each class. Compared
    with all wider classes together, a class with n ended jobs has the weight n / (n + k), where k
    depends on the kind of class. The widest class is mixed with a uniform prior. Jobs must be added
    in order of their ends."""

    def __init__(self) -> None:
        self._shares: dict[Class, list[float]] = {}

    def add(self, classes: Iterable[Class], share: float) -> None:
        """Add an ended job that took ``share`` of its limit."""
        for name in classes:
            listed = self._shares.setdefault(name, [])
            listed.append(min(_MOST_SHARE, max(_LEAST_SHARE, share)))
            if len(listed) > _KEPT_TIMES:
                del listed[0]

    def table(self, classes: Iterable[Class]) -> tuple[np.ndarray, np.ndarray]:
        """Return the shares in the mixture and their weights, which sum to 1."""
        values, weights = [_PRIOR], [np.full(len(_PRIOR), 1 / len(_PRIOR))]
        for name in classes:
            listed = self._shares.get(name)
            if not listed:
                continue
            part = len(listed) / (len(listed) + _WEIGHING[name[0]])
            weights = [weight * (1 - part) for weight in weights]
            values.append(np.array(listed))
            weights.append(np.full(len(listed), part / len(listed)))
        return np.concatenate(values), np.concatenate(weights)

    def draw(self, levels: np.ndarray, classes: Iterable[Class], done: float = 0.0) -> np.ndarray:
        """Draw (n,) shares for a job that has already used the share ``done`` of its limit, one for
        each random number in ``levels`` (n,), from [0, 1). Shares come from the part of the mixture
        above ``done``. If that part is empty, all shares are 1 or, if it is larger, ``done`` plus
        0.01."""
        values, weights = self.table(classes)
        larger = values > done
        if not larger.any():
            return np.full(len(levels), max(1.0, done + 0.01))
        values, summed = values[larger], np.cumsum(weights[larger])
        places = np.searchsorted(summed, levels * summed[-1])
        drawn: np.ndarray = values[np.minimum(places, len(values) - 1)]
        return drawn


def run_times_at(log: JobLog, ended: Iterable[int], into: RunTimes) -> RunTimes:
    """Add the run times of ended jobs, which are given by their indices in the log, in order of
    their ends. Requeued runs are left out, because it is not known how long they would have run.
    """
    for job in ended:
        if log.requeued[job]:
            continue
        into.add(run_time_classes(log, job), float(log.run_s[job] / log.limit_s[job]))
    return into
