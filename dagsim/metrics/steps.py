"""Quantities that change in steps: a step function, and the jobs in the system over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dagsim.metrics.columns import Floats, ScheduleColumns, Source, columns

__all__ = ["Steps", "jobs_in_system", "jobs_running", "jobs_waiting", "littles_law", "present"]


_DECIMALS = 9
"""Number of decimals of values, so that fractions of GPUs taken and returned leave exactly 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Step function: ``value[i]`` holds from ``time_s[i]`` to ``time_s[i + 1]``, the last one to
    ``end_s``.
    """

    time_s: Floats
    value: Floats
    end_s: float

    @classmethod
    def of(
        cls,
        start_s: Floats,
        end_s: Floats,
        weight: Floats | None = None,
        *,
        window: tuple[float, float],
    ) -> Steps:
        """Add the weights (default: 1 each) of intervals in any order, at each moment of
        ``window``. O(n log n).
        """
        weight = np.ones(len(start_s)) if weight is None else weight
        first, last = window
        on, off = np.clip(start_s, first, last), np.clip(end_s, first, last)
        longer = off > on
        on, off, weight = on[longer], off[longer], weight[longer]
        time_s = np.concatenate(([first], on, off))
        change = np.concatenate(([0.0], weight, -weight))
        order = np.argsort(time_s, kind="stable")
        time_s, change = time_s[order], change[order]
        new = np.append(True, time_s[1:] != time_s[:-1])
        value = np.round(np.cumsum(np.add.reduceat(change, np.flatnonzero(new))), _DECIMALS)
        time_s = time_s[new]
        step = np.append(True, (value[1:] != value[:-1]) & (time_s[1:] < last))
        return cls(time_s[step], value[step], last)

    def integral(self) -> float:
        """Integral of the value over all of the time."""
        return float(self.value @ np.diff(self.time_s, append=self.end_s))

    def mean(self) -> float:
        """Time average; NaN if no time passed."""
        length = self.end_s - float(self.time_s[0])
        return self.integral() / length if length > 0 else float("nan")

    def max(self) -> float:
        """Highest value that held for more than 0 s."""
        return float(self.value.max())

    def until(self, time_s: Floats) -> Floats:
        """Integral of the value from the first step to each of the moments."""
        edges = np.append(self.time_s, self.end_s)
        so_far = np.append(0.0, np.cumsum(self.value * np.diff(edges)))
        reached: Floats = np.interp(time_s, edges, so_far)
        return reached

    def binned(self, edges_s: Floats) -> Floats:
        """Time average between each pair of consecutive edges."""
        averages: Floats = np.diff(self.until(edges_s)) / np.diff(edges_s)
        return averages


def jobs_in_system(source: Source) -> Steps:
    """Accepted jobs that have arrived and not completed, over the window."""
    cols = columns(source)
    return present(cols, cols.start_s, cols.end_s)


def jobs_waiting(source: Source) -> Steps:
    """Queue length over the window: jobs in the system without a running run."""
    return _in_phase(source, waiting=True)


def jobs_running(source: Source) -> Steps:
    """Jobs with at least one running run, over the window; waiting + running = in system."""
    return _in_phase(source, waiting=False)


def littles_law(source: Source) -> tuple[float, float]:
    """Both sides of Little's law in job-seconds: the integral of the jobs in the system, and the
    sum of their JCTs.

    They are equal up to rounding on every schedule (Little 1961, over the whole log). On both
    sides, an unfinished job counts up to the end of the log.
    """
    cols = columns(source)
    jobs = cols.at_horizon().jobs
    sum_jct_s = float((jobs.completed_s - jobs.arrival_s)[jobs.accepted].sum())
    return present(cols, 0.0, cols.log_end_s).integral(), sum_jct_s


def present(cols: ScheduleColumns, start_s: float, end_s: float) -> Steps:
    """``jobs_in_system`` over any interval of time."""
    jobs = cols.at_horizon().jobs
    accepted = jobs.accepted
    return Steps.of(jobs.arrival_s[accepted], jobs.completed_s[accepted], window=(start_s, end_s))


def _in_phase(source: Source, *, waiting: bool) -> Steps:
    cols = columns(source)
    phases = cols.phases
    chosen = (phases.running == 0) == waiting
    return Steps.of(phases.start_s[chosen], phases.end_s[chosen], window=(cols.start_s, cols.end_s))
