"""Results by priority and tenant, and use of the GPUs by type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypeVar

import numpy as np

from dagsim.metrics.columns import Flags, Floats, Ints, ScheduleColumns, total
from dagsim.metrics.energy import PowerModel, energy
from dagsim.metrics.jct import bounded_slowdown, jct, wait
from dagsim.metrics.utilization import gpu_seconds, utilization_by_type
from dagsim.model.numbered import numbered

__all__ = ["Distribution", "GpuGroup", "JobGroup", "PerJob", "gpu_groups", "job_groups"]

Label = TypeVar("Label", float, str)

_GROUPS = 32
"""So many priorities and tenants, those with the most jobs, are listed one by one; the others are pooled."""
_OTHER = "(other)"


@dataclass(frozen=True, slots=True)
class Distribution:
    """A per-job metric over jobs; all NaN if a value is NaN or there are none. Percentiles interpolate linearly."""

    mean: Annotated[float, "", "mean"]
    p50: Annotated[float, "", "median"]
    p95: Annotated[float, "", "95th percentile"]
    p99: Annotated[float, "", "99th percentile"]

    @classmethod
    def of(cls, values: Floats) -> Distribution:
        """The distribution of ``values``."""
        if not len(values) or np.isnan(values).any():
            return cls(*[math.nan] * 4)
        with np.errstate(invalid="ignore"):  # percentiles between two infinities
            return cls(float(values.mean()), *np.percentile(values, [50, 95, 99]).tolist())


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Results of the jobs of one priority or tenant."""

    arrived: Annotated[int, "jobs", "jobs that arrived"]
    completed: Annotated[int, "jobs", "jobs that completed"]
    rejected: Annotated[int, "jobs", "jobs turned away"]
    unfinished: Annotated[int, "jobs", "jobs let in but not completed by the end of the log"]
    jct_s: Annotated[Distribution, "s", "job completion time, completed - arrived"]
    wait_s: Annotated[Distribution, "s", "time in the system with no run of the job running"]
    bounded_slowdown: Annotated[Distribution, "", "max(1, JCT / max(ideal time, 10 s))"]
    gpu_hours: Annotated[float, "h", "GPU-hours held"]


@dataclass(frozen=True, slots=True)
class GpuGroup:
    """Use of the GPUs of one type."""

    gpus: Annotated[int, "GPUs", "GPUs of this type"]
    utilization: Annotated[float, "", "GPU-seconds held / (GPUs x horizon)"]
    gpu_hours: Annotated[float, "h", "GPU-hours held"]
    energy_kwh: Annotated[float, "kWh", "energy drawn, held and idle"]


class PerJob(NamedTuple):
    """Per-job figures that the groups and the whole share."""

    jct_s: Floats
    wait_s: Floats
    bounded_slowdown: Floats
    gpu_s: Floats

    @classmethod
    def of(cls, made: ScheduleColumns) -> PerJob:
        """Those of all jobs that arrived."""
        gpu_s = total(made.runs.job, made.runs.gpu_s, len(made.jobs))
        return cls(jct(made), wait(made), bounded_slowdown(made), gpu_s)


def job_groups(
    made: ScheduleColumns, per_job: PerJob, counted: Flags, of: Sequence[Label], measured: Flags
) -> dict[str, JobGroup]:
    """One group per priority or tenant of the ``measured`` jobs, in its order; ``counted`` ones make distributions."""
    group, found = numbered(of)
    names = sorted(found)
    group = np.array([names.index(name) for name in found], np.int64)[group]
    labels = [_label(name) for name in names]
    if len(names) > _GROUPS:
        smaller_last = np.argsort(-np.bincount(group), kind="stable")
        group[~np.isin(group, smaller_last[:_GROUPS])] = len(names)
        labels.append(_OTHER)
    order = np.argsort(group, kind="stable")
    order = order[measured[order]]
    present, first = np.unique(group[order], return_index=True)
    return {
        labels[which]: _job_group(made, per_job, counted, members)
        for which, members in zip(present.tolist(), np.split(order, first)[1:], strict=True)
    }


def gpu_groups(made: ScheduleColumns, power: PowerModel) -> dict[str, GpuGroup]:
    """One group per GPU type, in node order."""
    by_type_kwh = energy(made, power).by_type_kwh
    spent, utilization = gpu_seconds(made), utilization_by_type(made)
    return {
        gpu.name: GpuGroup(int(count), utilization[gpu.name], float(held / 3600.0), by_type_kwh[gpu.name])
        for gpu, count, held in zip(spent.types, spent.gpus, spent.held, strict=True)
    }


def _label(name: float | str) -> str:
    return str(int(name)) if isinstance(name, float) and name.is_integer() else str(name)


def _job_group(made: ScheduleColumns, per_job: PerJob, counted: Flags, members: Ints) -> JobGroup:
    jobs, chosen = made.jobs, members[counted[members]]
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
