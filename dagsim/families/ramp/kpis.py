"""Statistics of a simulation under the names that ddls gives them, computed from the outcome of each
job.

Times are in seconds, sizes in bytes and rates in bytes per second, and fractions are between 0 and
1 (``UNITS``). Means over time are weighted by time. The utilisation of a job is the busy fraction
of the GPU time that it holds. The values of ddls are smaller: they are divided by the number of
training steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from dagsim.families.ramp.kernel import JobOutcome, RampKernel
from dagsim.model import RejectReason

_INFO = ("compute", "dep", "flow", "cluster", "demand_compute", "demand_dep", "demand_total")

UNITS: dict[str, str] = {
    "num_jobs_arrived": "jobs",
    "num_jobs_completed": "jobs",
    "num_jobs_blocked": "jobs",
    "blocking_rate": "of jobs arrived",
    "acceptance_rate": "of jobs arrived",
    "job_completion_time": "s",
    "job_completion_time_speedup": "x one GPU",
    "job_communication_overhead_time": "s",
    "job_computation_overhead_time": "s",
    "mean_communication_overhead_frac": "of the completion time",
    "mean_compute_overhead_frac": "of the completion time",
    "mean_mounted_worker_utilisation_frac": "of the GPU time held",
    "mean_cluster_worker_utilisation_frac": "of all GPU time",
    "mean_num_jobs_running": "jobs",
    "mean_num_mounted_workers": "servers",
    "mean_load_rate": "B/s",
    "episode_time": "s",
    **{f"{info}_info_processed": "B" for info in _INFO},
    **{f"mean_{info}_throughput": "B/s" for info in _INFO},
}
"""Units of the statistics that ``kpis`` returns for whole episodes."""

_CAUSES = {RejectReason.BY_POLICY: "declined", RejectReason.NO_PLACE: "no_place", RejectReason.TOO_SLOW: "too_slow"}


class JobRow(NamedTuple):
    """Statistics of one job. A field that does not apply is None."""

    number: int
    model: str
    arrival_s: float
    beta: float
    sequential_s: float
    acceptable_s: float
    demand_memory_bytes: float
    """Totals of the unsplit graph, both passes."""
    demand_dep_bytes: float
    status: str
    """``completed``, ``blocked``, ``running`` (at the end) or ``undecided`` (it arrived at the end)."""
    cause: str | None
    degree: int | None = None
    servers: int | None = None
    channels: int | None = None
    jct_s: float | None = None
    speedup: float | None = None
    communication_s: float | None = None
    computation_s: float | None = None
    utilisation: float | None = None
    """Fraction of the held GPU time during which the job computed."""
    ops: int | None = None
    deps: int | None = None
    memory_bytes: float | None = None
    dep_bytes: float | None = None
    flow_bytes: float | None = None
    """Totals of the dependencies that go over channels."""


def cause(outcome: JobOutcome) -> str | None:
    """Return the reason why a job was blocked: ``declined``, ``no_place``, ``too_slow``, or
    ``unfinished`` if the job was still running at the end. Return None if the job was not blocked.
    """
    if outcome.reason is not None:
        return _CAUSES[outcome.reason]
    return "unfinished" if outcome.started and outcome.completed_s is None else None


def job_rows(kernel: RampKernel) -> Iterator[JobRow]:
    """Yield one row for each job that arrived."""
    for number, outcome in enumerate(kernel.outcomes):
        job = outcome.job
        row = JobRow(
            number=number,
            model=job.graph.model,
            arrival_s=job.arrival_s,
            beta=job.beta,
            sequential_s=job.sequential_s,
            acceptable_s=job.acceptable_s,
            demand_memory_bytes=job.graph.memory_bytes,
            demand_dep_bytes=job.graph.dep_bytes,
            status=_status(outcome),
            cause=cause(outcome),
        )
        outlook = outcome.outlook
        if not outcome.started or outlook is None:
            yield row
            continue
        traffic = kernel.planner.traffic(outlook.parts, outlook.placement)
        servers = len(outlook.placement.servers)
        yield row._replace(
            degree=outlook.parts.degree,
            servers=servers,
            channels=traffic.channels,
            jct_s=outlook.jct_s,
            speedup=job.sequential_s / outlook.jct_s if outlook.jct_s else 1.0,
            communication_s=outlook.communication_s,
            computation_s=outlook.computation_s,
            utilisation=outlook.busy_s / (servers * outlook.jct_s) if outlook.jct_s else 0.0,
            ops=outlook.parts.ops,
            deps=outlook.parts.deps,
            memory_bytes=outlook.parts.total_memory_bytes,
            dep_bytes=outlook.parts.total_dep_bytes,
            flow_bytes=traffic.flow_bytes,
        )


def kpis(kernel: RampKernel) -> dict[str, float]:
    """Return all statistics of an episode: values for the whole episode, means over completed jobs,
    and means over blocked jobs.

    As in ddls, a job that is still running at the end counts as blocked. The work that it has done
    still counts. A mean is omitted if there are no jobs to average over.
    """
    rows = list(job_rows(kernel))
    end_s = kernel.schedule.ended_s
    completed = [row for row in rows if row.status == "completed"]
    blocked = [row for row in rows if row.status in ("blocked", "running")]
    figures: dict[str, float] = {
        "num_jobs_arrived": len(rows),
        "num_jobs_completed": len(completed),
        "num_jobs_blocked": len(blocked),
        "episode_time": end_s,
    }
    if rows:
        figures["blocking_rate"] = len(blocked) / len(rows)
        figures["acceptance_rate"] = len(completed) / len(rows)
        for name in (*_CAUSES.values(), "unfinished"):
            figures[f"blocking_rate_{name}"] = sum(row.cause == name for row in blocked) / len(rows)
    figures |= _of_completed(completed) | _of_blocked(blocked) | _load(rows)
    if end_s > 0:
        figures |= _over_time([row for row in rows if row.jct_s is not None], end_s, kernel.planner.fabric.servers)
    return figures


def _status(outcome: JobOutcome) -> str:
    if not outcome.degrees:
        return "undecided"
    if outcome.reason is not None:
        return "blocked"
    return "running" if outcome.completed_s is None else "completed"


def _of_completed(rows: list[JobRow]) -> dict[str, float]:
    means = _means(
        rows,
        {
            "job_completion_time": "jct_s",
            "job_completion_time_speedup": "speedup",
            "job_communication_overhead_time": "communication_s",
            "job_computation_overhead_time": "computation_s",
            "mean_mounted_worker_utilisation_frac": "utilisation",
            "jobs_completed_max_partitions_per_op": "degree",
            "jobs_completed_num_mounted_workers": "servers",
            "jobs_completed_num_mounted_channels": "channels",
            "jobs_completed_num_nodes": "ops",
            "jobs_completed_num_edges": "deps",
            "jobs_completed_total_operation_memory_cost": "memory_bytes",
            "jobs_completed_total_dependency_size": "dep_bytes",
            **_asked("jobs_completed"),
        },
    )
    if rows:
        means["mean_communication_overhead_frac"] = fmean(_part(row.communication_s, row.jct_s) for row in rows)
        means["mean_compute_overhead_frac"] = fmean(_part(row.computation_s, row.jct_s) for row in rows)
    return means


def _of_blocked(rows: list[JobRow]) -> dict[str, float]:
    return _means(rows, _asked("jobs_blocked"))


def _asked(prefix: str) -> dict[str, str]:
    """Return the statistics that every job has, regardless of its outcome: the fields of
    ``JobRow``, by the names that ddls gives them.
    """
    return {
        f"{prefix}_job_sequential_completion_time": "sequential_s",
        f"{prefix}_max_acceptable_job_completion_time": "acceptable_s",
        f"{prefix}_max_acceptable_job_completion_time_frac": "beta",
        f"{prefix}_original_demand_total_operation_memory_cost": "demand_memory_bytes",
        f"{prefix}_original_demand_total_dependency_size": "demand_dep_bytes",
    }


def _load(rows: list[JobRow]) -> dict[str, float]:
    """Return the offered load: the bytes of each job divided by the time to the next arrival."""
    rates = [
        (row.demand_memory_bytes + row.demand_dep_bytes) / (following.arrival_s - row.arrival_s)
        for row, following in pairwise(rows)
        if following.arrival_s > row.arrival_s
    ]
    return {"mean_load_rate": fmean(rates)} if rates else {}


def _over_time(rows: list[JobRow], end_s: float, servers: int) -> dict[str, float]:
    """Return the bytes processed until ``end_s``, and the utilisation of servers and channels."""
    info = dict.fromkeys(_INFO, 0.0)
    running_s = held_s = busy_s = 0.0
    for row in rows:
        assert row.jct_s is not None
        ran_s = min(row.jct_s, end_s - row.arrival_s)
        part = ran_s / row.jct_s if row.jct_s else 1.0
        memory, deps, flows = row.memory_bytes or 0.0, row.dep_bytes or 0.0, row.flow_bytes or 0.0
        info["compute"] += part * memory
        info["dep"] += part * deps
        info["flow"] += part * flows
        info["cluster"] += part * (memory + deps)
        info["demand_compute"] += part * row.demand_memory_bytes
        info["demand_dep"] += part * row.demand_dep_bytes
        info["demand_total"] += part * (row.demand_memory_bytes + row.demand_dep_bytes)
        running_s += ran_s
        held_s += ran_s * (row.servers or 0)
        busy_s += ran_s * (row.servers or 0) * (row.utilisation or 0.0)
    figures = {f"{name}_info_processed": total for name, total in info.items()}
    figures |= {f"mean_{name}_throughput": total / end_s for name, total in info.items()}
    figures["mean_num_jobs_running"] = running_s / end_s
    figures["mean_num_mounted_workers"] = held_s / end_s
    figures["mean_cluster_worker_utilisation_frac"] = busy_s / (servers * end_s)
    return figures


def _means(rows: Iterable[JobRow], fields: dict[str, str]) -> dict[str, float]:
    rows = list(rows)
    return {name: fmean(getattr(row, field) for row in rows) for name, field in fields.items()} if rows else {}


def _part(of: float | None, whole: float | None) -> float:
    return of / whole if of and whole else 0.0
