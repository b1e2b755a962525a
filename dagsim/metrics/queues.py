"""Jobs in the system over time, and how many of them wait."""

from __future__ import annotations

from dagsim.metrics.columns import ScheduleColumns, Source, columns
from dagsim.metrics.steps import Steps

__all__ = ["jobs_in_system", "jobs_running", "jobs_waiting", "littles_law", "present"]


def jobs_in_system(source: Source) -> Steps:
    """Jobs let in that have arrived and not completed, over the window."""
    made = columns(source)
    return present(made, made.start_s, made.end_s)


def jobs_waiting(source: Source) -> Steps:
    """The queue length: jobs in the system of which no run is running, over the window."""
    return _in_phase(source, waiting=True)


def jobs_running(source: Source) -> Steps:
    """Jobs of which at least one run is running, over the window; waiting + running = in system."""
    return _in_phase(source, waiting=False)


def littles_law(source: Source) -> tuple[float, float]:
    """Both sides of Little's law in job-seconds: the integral of the jobs in the system, and the sum of their JCTs.

    They are equal up to rounding on every schedule (Little 1961, over the whole log). An unfinished job counts up to
    the end of the log on both sides.
    """
    made = columns(source)
    jobs = made.at_horizon().jobs
    sum_jct_s = float((jobs.completed_s - jobs.arrival_s)[jobs.accepted].sum())
    return present(made, 0.0, made.log_end_s).integral(), sum_jct_s


def present(made: ScheduleColumns, start_s: float, end_s: float) -> Steps:
    """``jobs_in_system`` over any stretch of time."""
    jobs = made.at_horizon().jobs
    accepted = jobs.accepted
    return Steps.of(jobs.arrival_s[accepted], jobs.completed_s[accepted], window=(start_s, end_s))


def _in_phase(source: Source, *, waiting: bool) -> Steps:
    made = columns(source)
    phases = made.phases
    chosen = (phases.running == 0) == waiting
    return Steps.of(phases.start_s[chosen], phases.end_s[chosen], window=(made.start_s, made.end_s))
