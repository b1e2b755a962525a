"""Metrics of single jobs: completion time, waiting, slowdown, deadlines, restarts."""

from __future__ import annotations

import numpy as np

from dagsim.metrics.columns import Floats, ScheduleColumns, Source, columns, distinct, job_columns, total
from dagsim.model import Kind

__all__ = [
    "bounded_slowdown",
    "bounded_slowdown_hpc",
    "failures",
    "jct",
    "makespan",
    "node_failures",
    "preemptions",
    "restarts",
    "running",
    "slo_attainment",
    "slowdown",
    "tardiness",
    "throughput",
    "wait",
]


_TAU_S = 10.0
"""Jobs shorter than this count as this long in bounded slowdowns (Feitelson et al. 1997)."""


def jct(source: Source) -> Floats:
    """Job completion time in s: completed - arrived."""
    jobs = job_columns(source)
    return jobs.completed_s - jobs.arrival_s


def wait(source: Source) -> Floats:
    """Waiting time in s: how long the job was in the system with none of its runs running.

    That is before its first run, between tasks and after a preemption; runs side by side count once (their union, not
    their sum). A run that fetches its inputs or is being set up is running.
    """
    return _in_phase(columns(source), waiting=True)


def running(source: Source) -> Floats:
    """Running time in s: how long at least one run of the job was running; wait + running = JCT."""
    return _in_phase(columns(source), waiting=False)


def slowdown(source: Source) -> Floats:
    """JCT / ideal time: the job's critical path with each task on its fastest allowed GPU type.

    At least 1. Infinite for a job without work that had to wait; 1 for one that had not.
    """
    return _ratio(jct(source), columns(source).jobs.ideal_s)


def bounded_slowdown(source: Source, tau_s: float = _TAU_S) -> Floats:
    """max(1, JCT / max(ideal time, ``tau_s``)): a slowdown whose mean short jobs cannot dominate.

    After Feitelson et al. 1997, with the ideal in place of the run time: running on a slow GPU counts as slow.
    """
    return _bounded(jct(source), columns(source).jobs.ideal_s, tau_s)


def bounded_slowdown_hpc(source: Source, tau_s: float = _TAU_S) -> Floats:
    """max(1, (wait + running) / max(running, ``tau_s``)): bounded slowdown as batch systems report it.

    Feitelson et al. 1997, "Theory and practice in parallel job scheduling".
    """
    return _bounded(jct(source), running(source), tau_s)


def makespan(source: Source) -> float:
    """Last completion - first arrival in s, over the jobs let in; NaN while one is unfinished or if there are none."""
    jobs = columns(source).jobs
    completed_s = jobs.completed_s[jobs.accepted]
    return float(completed_s.max() - jobs.arrival_s[jobs.accepted].min()) if len(completed_s) else float("nan")


def throughput(source: Source) -> float:
    """Jobs completed per hour of the window (first arrival to the end of the log)."""
    cols = columns(source)
    done = cols.jobs.completed_s[cols.jobs.finished]
    count = np.count_nonzero((done >= cols.start_s) & (done <= cols.end_s))
    return float(3600.0 * count / cols.horizon_s) if cols.horizon_s > 0 else float("nan")


def _in_phase(cols: ScheduleColumns, *, waiting: bool) -> Floats:
    phases = cols.phases
    chosen = (phases.running == 0) == waiting
    length = phases.end_s[chosen] - phases.start_s[chosen]
    in_phase_s = total(phases.job[chosen], length, len(cols.jobs))
    return np.where(cols.jobs.finished, in_phase_s, np.nan)


def _ratio(above: Floats, below: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((above == 0) & (below == 0), 1.0, above / below)


def _bounded(above: Floats, below: Floats, tau_s: float) -> Floats:
    return np.maximum(1.0, above / np.maximum(below, tau_s))


def slo_attainment(source: Source) -> float:
    """Jobs that completed by their deadline / jobs that have one; a rejected job has missed it. NaN if no job has one.

    An unfinished job has missed its deadline if that has passed, and is left out if not.
    """
    cols = columns(source)
    jobs = cols.jobs
    decided = ~np.isnan(jobs.deadline_s) & ~(jobs.unfinished & (jobs.deadline_s >= cols.log_end_s))
    met = jobs.completed_s[decided] <= jobs.deadline_s[decided]
    return float(met.mean()) if len(met) else float("nan")


def tardiness(source: Source) -> Floats:
    """Per job max(0, completed - deadline) in s; NaN without a deadline, or where rejected or unfinished."""
    jobs = columns(source).jobs
    return np.maximum(jobs.completed_s - jobs.deadline_s, 0.0)


def preemptions(source: Source) -> int:
    """Runs stopped by a decision; a run that spans nodes counts once."""
    return _ended(source, Kind.PREEMPTED)


def failures(source: Source) -> int:
    """Runs stopped because a node went down; a run that spans nodes counts once."""
    return _ended(source, Kind.FAILED)


def restarts(source: Source) -> int:
    """Runs of a task that started after one of its runs was preempted or failed.

    For a task of one instance, that is how often it was started again. Of a task with many instances, every run after
    the first stop counts, because the log does not distinguish instances.
    """
    runs = columns(source).runs
    task = runs.job * (int(runs.task.max(initial=0)) + 1) + runs.task
    stopped = np.isin(runs.outcome, (Kind.PREEMPTED, Kind.FAILED))
    order = np.flatnonzero(stopped)[np.argsort(runs.end_s[stopped], kind="stable")]
    stopped_task, first = np.unique(task[order], return_index=True)
    stop = order[first]  # per task that was ever stopped, the run that was stopped first
    place = np.searchsorted(stopped_task, task)
    known = place < len(stopped_task)
    known[known] = stopped_task[place[known]] == task[known]
    stop_of = stop[place[known]]
    again = (runs.start_s[known] >= runs.end_s[stop_of]) & (runs.run[known] > runs.run[stop_of])
    return distinct(runs.run[known][again])


def node_failures(source: Source) -> int:
    """The number of times that a node went down, whatever the cause."""
    return len(columns(source).outages.node)


def _ended(source: Source, kind: Kind) -> int:
    runs = columns(source).runs
    return distinct(runs.run[runs.outcome == kind])
