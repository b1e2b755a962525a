"""Summary of a schedule: every metric as a single number, overall and by priority, tenant and GPU
type."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Literal, NamedTuple, TypeVar, get_type_hints

import numpy as np

from dagsim.errors import InputError
from dagsim.metrics.columns import AnySchedule, Flags, Floats, Ints, ScheduleColumns, columns, distinct, total
from dagsim.metrics.jct import (
    bounded_slowdown,
    bounded_stretch,
    deadline_hit_rate,
    failures,
    finish_time_fairness,
    jain_fairness_index,
    jct,
    makespan,
    node_failures,
    preemptions,
    queueing,
    restarts,
    stretch,
    tenant_gpu_seconds,
    throughput,
    unfair_job_fraction,
    wait,
)
from dagsim.metrics.utilization import (
    DEFAULT_POWER,
    OnDemandUse,
    PowerModel,
    availability,
    energy,
    goodput,
    gpu_allocation_ratio,
    gpu_node_fragmentation_ratio,
    gpu_seconds,
    gpu_utilization,
    jobs_in_system,
    jobs_waiting,
    on_demand_use,
    peak_weighted_utilization,
    scheduling_occupancy_rate,
    utilization_by_type,
)
from dagsim.model import RejectReason
from dagsim.model.arithmetic import column_sum, dot, in_turn, numbered
from dagsim.spelling import nearest
from dagsim.text import count_of

Label = TypeVar("Label", float, str)

_GROUPS = 32
"""Maximum number of priorities, and of tenants, that are listed individually. The ones with the
most jobs are listed, and the others are pooled.
"""
_OTHER = "(other)"
_WAIT = "the time from submission to the start of the job's first run"
_BOUNDED_SLOWDOWN = (
    "max(1, JCT / max(run time, 10 s)), where the run time is the time during which at least one task of the job is "
    "running"
)


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution of a per-job metric. All fields are NaN if a value is NaN or there are no jobs.

    Percentiles are interpolated linearly.
    """

    mean: Annotated[float, "", "mean"]
    p50: Annotated[float, "", "median"]
    p95: Annotated[float, "", "95th percentile"]
    p99: Annotated[float, "", "99th percentile"]

    @classmethod
    def of(cls, values: Floats) -> Distribution:
        """Return the distribution of ``values``."""
        if not len(values) or np.isnan(values).any():
            return cls(*[math.nan] * 4)
        # a percentile may be interpolated between two infinities
        with np.errstate(invalid="ignore"):
            return cls(float(values.mean()), *np.percentile(values, [50, 95, 99]).tolist())


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Results for the jobs that have the same priority or tenant."""

    arrived: Annotated[int, "jobs", "jobs that arrived"]
    completed: Annotated[int, "jobs", "jobs that completed"]
    rejected: Annotated[int, "jobs", "jobs rejected or killed"]
    unfinished: Annotated[int, "jobs", "jobs accepted but not completed by the end of the log"]
    jct_s: Annotated[Distribution, "s", "the job completion time (completion - arrival)"]
    wait_s: Annotated[Distribution, "s", _WAIT]
    bounded_slowdown: Annotated[Distribution, "", _BOUNDED_SLOWDOWN]
    gpu_hours: Annotated[float, "h", "GPU-hours allocated to jobs"]


@dataclass(frozen=True, slots=True)
class GpuGroup:
    """Utilisation of the GPUs of one type."""

    gpus: Annotated[int, "GPUs", "GPUs of this type"]
    utilization: Annotated[float, "", "GPU-seconds allocated / (GPUs x horizon)"]
    gpu_hours: Annotated[float, "h", "GPU-hours allocated to jobs"]
    energy_kwh: Annotated[float, "kWh", "energy drawn by these GPUs, both allocated and idle"]


class PerJob(NamedTuple):
    """Per-job metrics that are computed both for groups and for the whole schedule."""

    jct_s: Floats
    wait_s: Floats
    bounded_slowdown: Floats
    gpu_s: Floats

    @classmethod
    def of(cls, cols: ScheduleColumns) -> PerJob:
        """Compute the metrics of all jobs that arrived."""
        gpu_s = total(cols.runs.job, cols.runs.gpu_s, len(cols.jobs))
        return cls(jct(cols), wait(cols), bounded_slowdown(cols), gpu_s)


def job_groups(
    cols: ScheduleColumns, per_job: PerJob, counted: Flags, of: Iterable[Label], measured: Flags
) -> dict[str, JobGroup]:
    """Return one group for each priority or tenant of the ``measured`` jobs, sorted by name.

    The distributions cover the ``counted`` jobs.
    """
    group, keys = numbered(of)
    names = sorted(keys)
    group = np.array([names.index(name) for name in keys], np.int64)[group]
    labels = [_label(name) for name in names]
    if len(names) > _GROUPS:
        smaller_last = np.argsort(-np.bincount(group), kind="stable")
        group[~np.isin(group, smaller_last[:_GROUPS])] = len(names)
        labels.append(_OTHER)
    order = np.argsort(group, kind="stable")
    order = order[measured[order]]
    present, first = np.unique(group[order], return_index=True)
    return {
        labels[which]: _job_group(cols, per_job, counted, members)
        for which, members in zip(present.tolist(), np.split(order, first)[1:], strict=True)
    }


def gpu_groups(cols: ScheduleColumns, power: PowerModel) -> dict[str, GpuGroup]:
    """Return one group per GPU type, in the order of the nodes."""
    by_type_kwh = energy(cols, power).by_type_kwh
    spent, utilization = gpu_seconds(cols), utilization_by_type(cols)
    return {
        gpu.name: GpuGroup(int(count), utilization[gpu.name], float(held / 3600.0), by_type_kwh[gpu.name])
        for gpu, count, held in zip(spent.types, spent.gpus, spent.held, strict=True)
    }


def _label(name: float | str) -> str:
    return str(int(name)) if isinstance(name, float) and name.is_integer() else str(name)


def _job_group(cols: ScheduleColumns, per_job: PerJob, counted: Flags, members: Ints) -> JobGroup:
    jobs, chosen = cols.jobs, members[counted[members]]
    return JobGroup(
        arrived=len(members),
        completed=int(jobs.finished[members].sum()),
        rejected=int((~jobs.accepted)[members].sum()),
        unfinished=int(jobs.unfinished[members].sum()),
        jct_s=Distribution.of(per_job.jct_s[chosen]),
        wait_s=Distribution.of(per_job.wait_s[chosen]),
        bounded_slowdown=Distribution.of(per_job.bounded_slowdown[chosen]),
        gpu_hours=float(per_job.gpu_s[members].sum() / 3600.0),
    )


Unfinished = Literal["refuse", "horizon", "drop"]


@dataclass(frozen=True, slots=True)
class Summary:
    """Every metric of one schedule. ``glossary()`` lists the meaning and unit of each field.

    If any job is unfinished, the makespan and all metrics of jobs (``jct_s`` to
    ``bounded_stretch``, rho, joules per job) are NaN, unless ``unfinished`` selects another way to
    count such jobs. ``jobs_unfinished`` is the number of these jobs.
    """

    unfinished: Annotated[Unfinished, "", "how unfinished jobs were counted: refuse, horizon or drop"]
    jobs_arrived: Annotated[int, "jobs", "jobs that arrived"]
    jobs_completed: Annotated[int, "jobs", "jobs that completed"]
    jobs_unfinished: Annotated[int, "jobs", "jobs accepted but not completed by the end of the log"]
    rejected_too_large: Annotated[int, "jobs", "jobs rejected because a task requests more than the whole cluster has"]
    rejected_no_such_gpu: Annotated[
        int, "jobs", "jobs rejected because a task allows only GPU types that the cluster lacks"
    ]
    rejected_by_policy: Annotated[int, "jobs", "jobs rejected by the policy"]
    rejected_no_place: Annotated[int, "jobs", "jobs rejected because they did not fit on arrival (RAMP)"]
    rejected_too_slow: Annotated[int, "jobs", "jobs rejected because they would take longer than acceptable (RAMP)"]
    jobs_killed: Annotated[
        int, "jobs", "jobs stopped before they were done, at a time limit or because they were cancelled"
    ]
    blocking_rate: Annotated[float, "", "(jobs rejected + jobs started but unfinished) / jobs that arrived"]
    jct_s: Annotated[Distribution, "s", "the job completion time (completion - arrival)"]
    weighted_jct_s: Annotated[float, "s", "sum of weight x JCT / sum of weights"]
    area_weighted_jct_s: Annotated[
        float,
        "s",
        "sum of area x JCT / sum of areas, where the area of a job is its GPU-seconds if each task runs on its "
        "fastest allowed GPU type",
    ]
    wait_s: Annotated[Distribution, "s", _WAIT]
    queueing_s: Annotated[Distribution, "s", "the time that the job is in the system without a running task"]
    bounded_slowdown: Annotated[Distribution, "", _BOUNDED_SLOWDOWN]
    stretch: Annotated[
        Distribution, "", "JCT / ideal time (the critical path, with each task on its fastest allowed GPU type)"
    ]
    bounded_stretch: Annotated[Distribution, "", "max(1, JCT / max(ideal time, 10 s))"]
    makespan_s: Annotated[
        float, "s", "last completion - first arrival, over the accepted jobs (neither rejected nor killed)"
    ]
    horizon_s: Annotated[float, "s", "end of the log - first arrival"]
    throughput_per_h: Annotated[float, "jobs/h", "jobs completed / horizon"]
    utilization: Annotated[float, "", "GPU-seconds allocated / (GPUs x horizon)"]
    peak_weighted_utilization: Annotated[float, "", "utilization with each GPU weighted by its FP32 TFLOPS"]
    availability: Annotated[float, "", "GPU-seconds up / (GPUs x horizon)"]
    gpu_allocation_ratio: Annotated[
        float, "", "GAR (Kant, arXiv:2510.01256): time average of (GPUs allocated / GPUs up)"
    ]
    scheduling_occupancy_rate: Annotated[float, "", "SOR (Kant): GPU-seconds allocated / GPU-seconds up"]
    gpu_node_fragmentation_ratio: Annotated[
        float,
        "",
        "GFR (Kant): node-seconds with some but not all GPUs allocated / node-seconds up, for nodes with GPUs",
    ]
    goodput: Annotated[
        float,
        "",
        "lower bound on useful GPU-seconds / GPU-seconds allocated (cf. arXiv:2410.21680). Useful GPU-seconds are "
        "those in which finished runs computed (without set-up). For each completed job, they are at least its "
        "GPU-seconds on its fastest allowed GPU types",
    ]
    mean_queue_length: Annotated[
        float, "jobs", "time average of the number of accepted jobs that are in the system and not running"
    ]
    max_queue_length: Annotated[float, "jobs", "largest number of accepted jobs that waited at the same time"]
    mean_jobs_in_system: Annotated[float, "jobs", "time average of the number of accepted jobs in the system"]
    runs: Annotated[int, "runs", "runs started"]
    preemptions: Annotated[int, "runs", "runs stopped by a decision"]
    failures: Annotated[int, "runs", "runs stopped by the failure of a node"]
    restarts: Annotated[int, "runs", "runs that continue or repeat a task after an earlier run was preempted or failed"]
    node_failures: Annotated[int, "times", "number of times that a node went down"]
    energy_kwh: Annotated[float, "kWh", "energy drawn by all GPUs that were up"]
    energy_allocated_kwh: Annotated[float, "kWh", "the part of energy_kwh that GPUs drew while they were allocated"]
    energy_idle_kwh: Annotated[float, "kWh", "the part of energy_kwh that GPUs drew while they were not allocated"]
    joules_per_job: Annotated[float, "J", "energy drawn by all GPUs / jobs completed"]
    jain_fairness_index: Annotated[float, "", "Jain's index over the GPU-seconds of each tenant's accepted jobs"]
    max_ftf: Annotated[
        float,
        "",
        "largest rho, where rho is JCT / the time that the job would take on 1/N of the cluster, and N is the mean "
        "number of jobs in the system while the job is there",
    ]
    unfair_job_fraction: Annotated[float, "", "fraction of accepted jobs with rho above 1"]
    deadline_hit_rate: Annotated[
        float,
        "",
        "jobs completed by their deadline / jobs with a deadline, excluding unfinished jobs whose deadline has "
        "not passed",
    ]
    decision_time_us: Annotated[float, "microseconds", "CPU time of the policy for each decision that was carried out"]
    by_priority: Annotated[dict[str, JobGroup], "", "per priority"]
    by_tenant: Annotated[dict[str, JobGroup], "", "per tenant"]
    by_gpu: Annotated[dict[str, GpuGroup], "", "per GPU type"]
    on_demand: Annotated[OnDemandUse | None, "", ""] = None
    """Use of the nodes that are powered on demand, or None if there are none."""
    own: Annotated[Mapping[str, float], "", "metrics of your own (dagsim.metrics.own)"] = field(default_factory=dict)

    def to_dict(self) -> dict[str, int | float | str | None]:
        """Return flat data for JSON: ``jct_s.p99``, ``tenant[ann].wait_s.mean``. NaN and infinity
        become None.
        """
        return dict(_flat(self))


def summarize(
    source: AnySchedule,
    *,
    unfinished: Unfinished = "refuse",
    power: PowerModel = DEFAULT_POWER,
    measured: tuple[int, int | None] | None = None,
) -> Summary:
    """Compute every metric of a schedule. The cost is O(n log n) for n rows in the log.

    ``unfinished`` determines how to count jobs that were accepted but have not completed:

    - ``"refuse"``: every mean over jobs is NaN.
    - ``"horizon"``: these jobs count as completed at the end of the log (a lower bound).
    - ``"drop"``: these jobs are left out, which favours schedulers that never finish long jobs.

    ``measured`` restricts the metrics to a slice of the jobs in order of arrival, from
    ``measured[0]`` up to ``measured[1]``. Metrics over time (GPUs in use, queue lengths, energy,
    throughput) then cover the time between the first and the last arrival of these jobs. The
    makespan, the numbers of runs and failures, and the shares of tenants still cover the whole
    simulation.

    Jobs that were already in the system when the simulation began are not counted (see
    ``ScheduleColumns.counted``), and metrics over time start at that moment.

    Raises:
        InputError: ``unfinished`` has another value, or no job is measured.
        ModelError: ``power`` is not valid for a GPU type in the cluster.
    """
    cols, chosen = _window(source, measured)
    seen = _completing(cols, unfinished)
    jobs, counted = cols.jobs, seen.jobs.accepted & chosen
    completed = int((jobs.finished & chosen).sum())
    rejected = jobs.rejected[chosen]
    killed = np.isin(rejected, (RejectReason.TIME_LIMIT, RejectReason.CANCELLED))
    cut_short = (jobs.unfinished & cols.started)[chosen]
    per_job = PerJob.of(seen)
    rho = finish_time_fairness(cols if unfinished == "drop" else seen)[counted]
    waiting, drawn = jobs_waiting(cols), energy(cols, power)
    comparable = completed and np.isfinite(seen.jobs.completed_s[counted]).all()
    return Summary(
        unfinished=unfinished,
        jobs_arrived=int(chosen.sum()),
        jobs_completed=completed,
        jobs_unfinished=int((jobs.unfinished & chosen).sum()),
        rejected_too_large=int((rejected == RejectReason.TOO_LARGE).sum()),
        rejected_no_such_gpu=int((rejected == RejectReason.NO_SUCH_GPU).sum()),
        rejected_by_policy=int((rejected == RejectReason.BY_POLICY).sum()),
        rejected_no_place=int((rejected == RejectReason.NO_PLACE).sum()),
        rejected_too_slow=int((rejected == RejectReason.TOO_SLOW).sum()),
        jobs_killed=int(killed.sum()),
        blocking_rate=float((((rejected > 0) & ~killed) | cut_short).mean()) if len(rejected) else math.nan,
        jct_s=Distribution.of(per_job.jct_s[counted]),
        weighted_jct_s=_weighted_mean(per_job.jct_s[counted], jobs.weight[counted]),
        area_weighted_jct_s=_area_mean(per_job.jct_s[counted], jobs.ideal_gpu_s[counted]),
        wait_s=Distribution.of(per_job.wait_s[counted]),
        queueing_s=Distribution.of(queueing(seen)[counted]),
        bounded_slowdown=Distribution.of(per_job.bounded_slowdown[counted]),
        stretch=Distribution.of(stretch(seen)[counted]),
        bounded_stretch=Distribution.of(bounded_stretch(seen)[counted]),
        makespan_s=makespan(seen),
        horizon_s=cols.horizon_s,
        throughput_per_h=throughput(cols),
        utilization=gpu_utilization(cols),
        peak_weighted_utilization=peak_weighted_utilization(cols),
        availability=availability(cols),
        gpu_allocation_ratio=gpu_allocation_ratio(cols),
        scheduling_occupancy_rate=scheduling_occupancy_rate(cols),
        gpu_node_fragmentation_ratio=gpu_node_fragmentation_ratio(cols),
        goodput=goodput(cols),
        mean_queue_length=waiting.mean(),
        max_queue_length=waiting.max(),
        mean_jobs_in_system=jobs_in_system(cols).mean(),
        runs=distinct(cols.runs.run),
        preemptions=preemptions(cols),
        failures=failures(cols),
        restarts=restarts(cols),
        node_failures=node_failures(cols),
        energy_kwh=drawn.total_kwh,
        energy_allocated_kwh=drawn.allocated_kwh,
        energy_idle_kwh=drawn.idle_kwh,
        joules_per_job=drawn.total_j / completed if comparable else math.nan,
        jain_fairness_index=jain_fairness_index(tenant_gpu_seconds(cols).values()),
        max_ftf=float(rho.max()) if len(rho) else math.nan,
        unfair_job_fraction=unfair_job_fraction(rho),
        deadline_hit_rate=deadline_hit_rate(_due(cols, chosen)),
        decision_time_us=1e6 * cols.decision_s / cols.decisions if cols.decisions and cols.decision_s else math.nan,
        by_priority=job_groups(cols, per_job, counted, in_turn(jobs.priority), chosen),
        by_tenant=job_groups(cols, per_job, counted, jobs.tenant, chosen),
        by_gpu=gpu_groups(cols, power),
        on_demand=on_demand_use(cols),
    )


def _completing(cols: ScheduleColumns, unfinished: Unfinished) -> ScheduleColumns:
    """Return the columns in which unfinished jobs are counted as ``unfinished`` requires."""
    match unfinished:
        case "refuse":
            return cols
        case "horizon":
            return cols.at_horizon()
        case "drop":
            return cols.without_unfinished()
        case _:
            raise InputError(f"summary: unfinished must be refuse, horizon or drop, got {unfinished!r}")


def _window(source: AnySchedule, measured: tuple[int, int | None] | None) -> tuple[ScheduleColumns, Flags]:
    """Return the columns for the window in which the measured jobs arrive, and a mask of these
    jobs.
    """
    cols = columns(source)
    chosen = cols.counted
    if measured is None:
        return cols, chosen
    counted = np.flatnonzero(chosen)
    chosen[:] = False
    chosen[counted[slice(*measured)]] = True
    if not chosen.any():
        last = "" if measured[1] is None else measured[1]
        raise InputError(f"measure {measured[0]}:{last}: there are only {count_of(len(counted), 'job')}")
    arrivals = cols.jobs.arrival_s[chosen]
    return replace(cols, start_s=float(arrivals.min()), end_s=float(arrivals.max())), chosen


def _due(cols: ScheduleColumns, chosen: Flags) -> ScheduleColumns:
    """Return the columns, in which only the ``chosen`` jobs have deadlines."""
    return replace(cols, jobs=replace(cols.jobs, deadline_s=np.where(chosen, cols.jobs.deadline_s, np.nan)))


class MetricTerm(NamedTuple):
    """An entry in the glossary."""

    name: str
    unit: str
    meaning: str


def glossary() -> list[MetricTerm]:
    """List every key of ``Summary.to_dict`` in order, with its unit and meaning. Each kind of group
    appears once, as in ``priority[...]``.
    """
    return list(_terms(Summary))


def check_metric(name: str, own: Iterable[str] = ()) -> None:
    """Reject the name of a metric that does not exist, before anything is simulated.

    Groups may have any name (``partition[gpu].wait_s.mean``), because the groups are only known
    after the run. ``own`` contains the user's metrics.

    Raises:
        InputError: There is no such metric. The message suggests the nearest name.
    """
    names = [*(term.name for term in glossary()), *own]
    group, _, bare = name.rpartition("].")
    in_groups = {known.rpartition("].")[2] for known in names}
    if name in names or (group and bare in in_groups):
        return
    means = {known.partition(".")[0]: known for known in reversed(names) if "[" not in known}
    near = nearest(name, names)
    if "." not in name and (stem := re.search(r"'(.*)'", nearest(name, means))):
        near = f"; did you mean {means[stem[1]]!r}?"
    raise InputError(f"there is no metric {name!r}{near} (dagsim list metrics)")


_GROUP_OF = {"by_priority": ("priority", JobGroup), "by_tenant": ("tenant", JobGroup), "by_gpu": ("gpu", GpuGroup)}


def _terms(of: type) -> Iterator[MetricTerm]:
    for name, hint in get_type_hints(of, include_extras=True).items():
        if name == "own":  # skip metrics that the user defined, which have no fixed names
            continue
        unit, meaning = hint.__metadata__
        if name == "on_demand":
            yield from (MetricTerm(f"{name}.{part.name}", *part[1:]) for part in _terms(OnDemandUse))
        elif name in _GROUP_OF:
            label, group = _GROUP_OF[name]
            for term in _terms(group):
                yield MetricTerm(f"{label}[...].{term.name}", term.unit, f"{meaning}: {term.meaning}")
        elif hint.__origin__ is Distribution:
            for part in _terms(Distribution):
                yield MetricTerm(f"{name}.{part.name}", unit, f"{part.meaning} of {meaning}")
        else:
            yield MetricTerm(name, unit, meaning)


def _flat(of: Summary | JobGroup | GpuGroup) -> Iterator[tuple[str, int | float | str | None]]:
    for part in fields(of):
        value = getattr(of, part.name)
        if part.name == "own":
            yield from ((name, _json(number)) for name, number in value.items())
        elif part.name in _GROUP_OF:
            label, _ = _GROUP_OF[part.name]
            for name, group in value.items():
                yield from ((f"{label}[{name}].{key}", leaf) for key, leaf in _flat(group))
        elif isinstance(value, Distribution | OnDemandUse):
            yield from ((f"{part.name}.{inner.name}", _json(getattr(value, inner.name))) for inner in fields(value))
        elif value is not None:
            yield part.name, _json(value)


def _json(value: float | str) -> int | float | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _weighted_mean(values: Floats, weights: Floats) -> float:
    return dot(values, weights) / float(weights.sum()) if len(values) else math.nan


def _area_mean(values: Floats, areas: Floats) -> float:
    """Return the mean of ``values``, weighted by ``areas``. The sums are computed in a fixed order,
    because the benchmark compares the result to the last bit.
    """
    whole = column_sum(areas)
    return column_sum(values * areas) / whole if whole > 0 else math.nan
