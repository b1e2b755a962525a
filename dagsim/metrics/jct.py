"""Completion times, waits, slowdowns and fairness of jobs, and tables of all jobs and runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from dagsim.metrics.columns import AnySchedule, Floats, Ints, ScheduleColumns, columns, distinct, job_columns, total
from dagsim.metrics.utilization import present
from dagsim.model import Kind, RejectReason
from dagsim.model.arithmetic import dot, numbered
from dagsim.model.log import Schedule

_TAU_S = 10.0
"""Lower bound of the run time in bounded slowdowns, in seconds (Feitelson et al. 1997)."""


def jct(source: AnySchedule) -> Floats:
    """Return the job completion time in s: completion - arrival."""
    jobs = job_columns(source)
    return jobs.completed_s - jobs.arrival_s


def wait(source: AnySchedule) -> Floats:
    """Return the waiting time in s, as batch systems report it: start of the job's first run -
    submission.

    A run counts as started even while it fetches its inputs or is being set up. The wait of a job
    without any run ends when the job leaves. The wait is NaN for jobs that did not complete.
    """
    cols = columns(source)
    return np.minimum(cols.first_start_s, cols.jobs.completed_s) - cols.jobs.arrival_s


def queueing(source: AnySchedule) -> Floats:
    """Return the queueing time in s: the time that the job was in the system with none of its runs
    running.

    This is the wait, plus the time between tasks and after preemptions or failures.
    """
    return _in_phase(columns(source), waiting=True)


def running(source: AnySchedule) -> Floats:
    """Return the running time in s: the time during which at least one run of the job is in
    progress. The JCT is the sum of the queueing time and the running time."""
    return _in_phase(columns(source), waiting=False)


def stretch(source: AnySchedule) -> Floats:
    """Return the JCT divided by the ideal time, which is the job's critical path with each task on
    its fastest allowed GPU type.

    The stretch is at least 1. For a job without work, it is 1 if the job did not wait, and
    otherwise infinite.
    """
    return _ratio(jct(source), columns(source).jobs.ideal_s)


def bounded_stretch(source: AnySchedule, tau_s: float = _TAU_S) -> Floats:
    """Return max(1, JCT / max(ideal time, ``tau_s``)), a stretch whose mean cannot be dominated by
    short jobs.

    This is the bounded slowdown with the ideal time instead of the running time, so that running on
    a slow GPU counts as a slowdown.
    """
    return _bounded(jct(source), columns(source).jobs.ideal_s, tau_s)


def bounded_slowdown(source: AnySchedule, tau_s: float = _TAU_S) -> Floats:
    """Return max(1, (wait + run) / max(run, ``tau_s``)), the bounded slowdown as batch systems
    report it.

    wait + run is the JCT, and run is the running time. The queueing time of a preempted job
    therefore counts as waiting.

    Source: Feitelson et al. 1997, "Theory and practice in parallel job scheduling".
    """
    return _bounded(jct(source), running(source), tau_s)


def makespan(source: AnySchedule) -> float:
    """Return the time from the first arrival to the last completion in s, over the accepted jobs.

    The result is NaN if a job is unfinished or if no job was accepted.
    """
    jobs = columns(source).jobs
    completed_s = jobs.completed_s[jobs.accepted]
    return float(completed_s.max() - jobs.arrival_s[jobs.accepted].min()) if len(completed_s) else float("nan")


def throughput(source: AnySchedule) -> float:
    """Return the number of jobs completed per hour of the window (first arrival to the end of the
    log)."""
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


def deadline_hit_rate(source: AnySchedule) -> float:
    """Return the number of jobs that completed by their deadline, divided by the number of jobs
    with a deadline. The result is NaN if no job has a deadline.

    A rejected job has missed its deadline. An unfinished job has missed its deadline if the
    deadline has passed, and is left out otherwise.
    """
    cols = columns(source)
    jobs = cols.jobs
    decided = ~np.isnan(jobs.deadline_s) & ~(jobs.unfinished & (jobs.deadline_s >= cols.log_end_s))
    met = jobs.completed_s[decided] <= jobs.deadline_s[decided]
    return float(met.mean()) if len(met) else float("nan")


def tardiness(source: AnySchedule) -> Floats:
    """Return max(0, completion - deadline) in s for each job. The result is NaN for jobs without a
    deadline, and for rejected or unfinished jobs.
    """
    jobs = columns(source).jobs
    return np.maximum(jobs.completed_s - jobs.deadline_s, 0.0)


def preemptions(source: AnySchedule) -> int:
    """Return the number of runs stopped by a decision. A run that spans several nodes counts
    once."""
    return _ended(source, Kind.PREEMPTED)


def failures(source: AnySchedule) -> int:
    """Return the number of runs stopped because a node went down. A run that spans several nodes
    counts once."""
    return _ended(source, Kind.FAILED)


def restarts(source: AnySchedule) -> int:
    """Return the number of runs that started after an earlier run of the same task was preempted or
    failed.

    For a task with one instance, this is the number of restarts. For a task with many instances,
    every run after the first stop counts, because the log does not distinguish between instances.
    """
    runs = columns(source).runs
    task = runs.job.astype(np.int64) * (int(runs.task.max(initial=0)) + 1) + runs.task
    stopped = runs.stopped
    order = np.flatnonzero(stopped)[np.argsort(runs.end_s[stopped], kind="stable")]
    stopped_task, first = np.unique(task[order], return_index=True)
    stop = order[first]  # the first stopped run of each task that was ever stopped
    place = np.searchsorted(stopped_task, task)
    was_stopped = place < len(stopped_task)
    was_stopped[was_stopped] = stopped_task[place[was_stopped]] == task[was_stopped]
    stop_of = stop[place[was_stopped]]
    again = (runs.start_s[was_stopped] >= runs.end_s[stop_of]) & (runs.run[was_stopped] > runs.run[stop_of])
    return distinct(runs.run[was_stopped][again])


def node_failures(source: AnySchedule) -> int:
    """Return the number of times that a node went down for any reason other than being powered
    off.
    """
    return int(columns(source).outages.failed.sum())


def _ended(source: AnySchedule, kind: Kind) -> int:
    runs = columns(source).runs
    return distinct(runs.run[runs.outcome == kind])


def jain_fairness_index(values: Iterable[float]) -> float:
    """Return Jain's index (sum x)^2 / (n sum x^2) (Jain, Chiu & Hawe 1984).

    The index is 1 if all values are equal, even if all are 0. It is 1/n if all values but one are
    0, and NaN if there are no values.
    """
    x = np.fromiter(values, float)
    if not len(x):
        return float("nan")
    most = float(x.max())
    if not most:
        return 1.0
    x = x / most  # avoids overflow, because no square is above 1
    return float(x.sum()) ** 2 / (len(x) * dot(x, x))


def tenant_gpu_seconds(source: AnySchedule) -> dict[str, float]:
    """Return the GPU-seconds held by the accepted jobs of each tenant, in order of first arrival.
    Tenants without accepted jobs are left out.
    """
    cols = columns(source)
    per_job = total(cols.runs.job, cols.runs.gpu_s, len(cols.jobs))
    place, tenants = numbered(cols.jobs.tenant)
    accepted = cols.jobs.accepted
    place, gpu_s = place[accepted], total(place[accepted], per_job[accepted], len(tenants)).tolist()
    return {tenants[index]: gpu_s[index] for index in dict.fromkeys(place.tolist())}


def isolated_s(source: AnySchedule, contention: float | Literal["lifetime"] = "lifetime") -> Floats:
    """Return the time that each job would take by itself on 1/N of the cluster: max(ideal time,
    ideal GPU-seconds x N / GPUs).

    ``contention`` sets N:

    - ``"lifetime"``: the time average of the number of jobs in the system while the job was in it,
      as in Themis (NSDI 2020) and Shockwave (NSDI 2023).
    - A number: this N for every job (a static partition, for example into as many parts as there
      are tenants).

    The ideal times are those on the fastest allowed GPU type, so this is a lower bound on a mixed
    cluster.
    """
    cols = columns(source)
    jobs = cols.jobs
    if contention == "lifetime":
        count, jct_s = present(cols, 0.0, cols.log_end_s), jct(cols)
        together = count.until(jobs.completed_s) - count.until(jobs.arrival_s)
        share = np.divide(together, jct_s, out=np.ones(len(jobs)), where=jct_s > 0)
    else:
        share = np.full(len(jobs), float(contention))
    return np.maximum(jobs.ideal_s, jobs.ideal_gpu_s * share / max(cols.cluster.gpus, 1))


def finish_time_fairness(source: AnySchedule, contention: float | Literal["lifetime"] = "lifetime") -> Floats:
    """Return the finish-time fairness rho = JCT / ``isolated_s`` per job. If it is above 1, the job
    would have been better off with its own share.

    Published systems define N and the isolated time in different ways. This variant uses
    ``isolated_s``. The result is NaN for rejected or unfinished jobs.
    """
    return _ratio(jct(source), isolated_s(source, contention))


def exclusive_fairness(source: AnySchedule, round_s: float | None = None) -> Floats:
    """Return the finish-time fairness as measured by Shockwave (NSDI 2023): JCT / (time alone x
    contention).

    The time alone is how long the job takes on the GPUs that it requests. The contention, at least
    1, is the number of jobs in the log per GPU. If ``round_s`` is given, it is instead the number
    of jobs in the system per GPU, averaged over the job's rounds. These begin with the round in
    which the job arrives and end with the round before its completion. The result is NaN for
    rejected or unfinished jobs.
    """
    cols = columns(source)
    jobs, gpus = cols.jobs, max(cols.cluster.gpus, 1)
    if round_s is None:
        contention = np.full(len(jobs), max(1.0, len(jobs) / gpus))
    else:
        first = np.floor(jobs.arrival_s / round_s).astype(np.int64)
        done = np.isfinite(jobs.completed_s)
        ends_s = np.where(done, jobs.completed_s, np.where(jobs.accepted, cols.log_end_s, jobs.arrival_s))
        last = np.maximum(np.floor(ends_s / round_s).astype(np.int64), first)
        rounds = int(last.max(initial=0)) + 1
        changes = np.bincount(first, minlength=rounds) - np.bincount(last, minlength=rounds)
        # Jobs in the system, summed over all preceding rounds.
        until = np.concatenate([[0], changes.cumsum().cumsum()])
        contention = np.maximum(1.0, (until[last] - until[first]) / np.maximum(last - first, 1) / gpus)
    return _ratio(jct(cols), jobs.ideal_s * contention)


def unfair_job_fraction(rho: Floats) -> float:
    """Return the fraction of jobs whose rho exceeds 1 by more than a rounding error. The result is
    NaN if any value is NaN or there are no jobs.
    """
    if not len(rho) or np.isnan(rho).any():
        return float("nan")
    return float(np.mean(rho > 1 + 1e-9))


PlainTable: TypeAlias = dict[str, Sequence[Any] | np.ndarray]
"""Columns of equal length by name, in order. NaN means "none" or "unknown"."""

_OUTCOMES = {Kind.FINISHED: "finished", Kind.PREEMPTED: "preempted", Kind.FAILED: "failed", -1: "running"}


def jobs_table(source: AnySchedule) -> PlainTable:
    """Return one row per job in order of arrival.

    - ``start_s`` is the first start of a run.
    - ``status`` is completed, rejected or unfinished; ``reason`` is the reason for a rejection.
    - Times that depend on completion are NaN for jobs that did not complete.
    - ``gpu_seconds`` counts GPUs held up to the end of the log.
    """
    cols = columns(source)
    jobs, runs, start_s = cols.jobs, cols.runs, cols.first_start_s
    reasons = {0: "", **{int(reason): reason.name.lower() for reason in RejectReason}}
    status = np.where(jobs.finished, "completed", np.where(jobs.accepted, "unfinished", "rejected"))
    return {
        "job": jobs.ids,
        "arrival_s": jobs.arrival_s,
        "start_s": np.where(np.isinf(start_s), np.nan, start_s),
        "completed_s": jobs.completed_s,
        "jct_s": jct(cols),
        "wait_s": wait(cols),
        "queueing_s": queueing(cols),
        "running_s": running(cols),
        "bounded_slowdown": bounded_slowdown(cols),
        "stretch": stretch(cols),
        "bounded_stretch": bounded_stretch(cols),
        "priority": jobs.priority,
        "tenant": jobs.tenant,
        "weight": jobs.weight,
        "deadline_s": jobs.deadline_s,
        "gpus": jobs.gpus,
        "gpu_seconds": total(runs.job, runs.gpu_s, len(jobs)),
        "ideal_s": jobs.ideal_s,
        "ideal_gpu_s": jobs.ideal_gpu_s,
        "preemptions": _runs_that(cols, Kind.PREEMPTED),
        "failures": _runs_that(cols, Kind.FAILED),
        "status": status.tolist(),
        "reason": [reasons[reason] for reason in jobs.rejected.tolist()],
    }


def runs_table(schedule: Schedule) -> PlainTable:
    """Return one row per run and node in order of start.

    ``gpus`` lists the numbers of the GPUs held on the node, such as ``0;1;3`` (empty if the log
    does not name them). ``held`` is the number of GPUs, which is a fraction for shared GPUs.
    ``computing_s`` is NaN without set-up or transfers, and ``end_s`` is NaN for a run that is still
    in progress.
    """
    cols = columns(schedule)
    runs, nodes = cols.runs, cols.cluster.nodes
    places = {mask: _places(mask) for mask in set(runs.gpus.tolist())}
    names = [facts.tasks for facts in schedule.jobs]
    job, node = runs.job.tolist(), runs.node.tolist()
    return {
        "job": [cols.jobs.ids[number] for number in job],
        "task": [names[number][task] for number, task in zip(job, runs.task.tolist(), strict=True)],
        "run": runs.run,
        "node": [nodes[number].name for number in node],
        "gpu_type": [gpu.name if (gpu := nodes[number].gpu) else "" for number in node],
        "gpus": [places[mask] for mask in runs.gpus.tolist()],
        "held": runs.held,
        "instances": runs.instances,
        "start_s": runs.start_s,
        "computing_s": runs.computing_s,
        "end_s": np.where(runs.running, np.nan, runs.end_s),
        "outcome": [_OUTCOMES[kind] for kind in runs.outcome.tolist()],
    }


def _places(mask: int) -> str:
    """Format the set bits of a mask: 11 gives ``0;1;3``."""
    return ";".join(str(bit) for bit in range(mask.bit_length()) if mask >> bit & 1)


def _runs_that(cols: ScheduleColumns, outcome: Kind) -> Ints:
    """Return, for each job, the number of its runs that have the outcome ``outcome``. A run that
    spans several nodes counts once.
    """
    ended = cols.runs.outcome == outcome
    _, first = np.unique(cols.runs.run[ended], return_index=True)
    return np.bincount(cols.runs.job[ended][first], minlength=len(cols.jobs))
