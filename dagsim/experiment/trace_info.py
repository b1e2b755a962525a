"""Statistics of a trace: its jobs counted in one pass, next to the published figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from dagsim.config.schema import Config
from dagsim.experiment.sizing import TotalDemand, cluster_for
from dagsim.model import GPU_TYPES, Job
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.traces import Trace
from dagsim.traces.published import PublishedFigure, published
from dagsim.traces.trace_file import TraceFile
from dagsim.workload.info import Tally, WorkloadInfo

__all__ = ["ResourceHours", "TraceInfo", "hours_by_owner", "trace_info"]


@dataclass(slots=True)
class ResourceHours:
    """The jobs of one account, user or partition, and what they used and asked for."""

    jobs: int = 0
    gpu_hours: float = 0.0
    """Hours that the jobs ran, times the GPUs that they held; all attempts of requeued jobs count."""
    core_hours: float = 0.0
    gpu_hours_claimed: float = 0.0
    """The same with the time limits (or estimates) of the jobs that state one."""
    core_hours_claimed: float = 0.0

    def add(self, job: Job) -> None:
        """Add a job, whose work is in seconds."""
        self.jobs += 1
        for task in job.tasks:
            claimed_s = 0.0 if task.estimate is None else task.estimate
            gpus, cores = task.instances * task.gpus / 3600, task.instances * task.cpus / 3600
            self.gpu_hours += gpus * task.work
            self.core_hours += cores * task.work
            self.gpu_hours_claimed += gpus * claimed_s
            self.core_hours_claimed += cores * claimed_s


@dataclass(frozen=True, slots=True)
class TraceInfo:
    """The statistics of a trace."""

    trace: Trace
    tally: Tally
    workload: WorkloadInfo
    cluster: str
    """The trace's own machines, or the cluster to which its jobs would offer a load of 0.9."""
    own: bool
    """True if the machines are those of the trace."""
    comparison: tuple[tuple[PublishedFigure, float], ...]
    """Published figures, each with its value for this file."""
    hours: dict[str, dict[str, ResourceHours]]
    """By ``account``, ``user`` and ``partition``, where jobs name one; the largest first."""

    def to_dict(self) -> dict[str, Any]:
        """All statistics as plain values, ready for JSON."""
        return {
            "path": str(self.trace.source),
            "format": self.trace.format,
            "read": self.trace.report.to_dict(),
            "assumptions": self.trace.assumptions,
            "machines" if self.own else "sized": self.cluster,
            **self.workload.to_dict(),
            "mean_busy": self.mean_busy(),
            "hours": {kind: {name: asdict(row) for name, row in rows.items()} for kind, rows in self.hours.items()},
            "published": [
                {"statistic": figure.statistic, "here": here, "published": figure.value, "source": figure.source}
                for figure, here in self.comparison
            ],
        }

    def mean_busy(self) -> dict[str, float | None]:
        """GPUs and cores that would be busy on average between the first and the last arrival if no
        job waited.
        """
        span_s = self.workload.span_s
        parts = {"gpus": self.workload.gpu_work, "cores": self.workload.cpu_work}
        return {name: work / span_s if span_s else None for name, work in parts.items()}


def trace_info(file: TraceFile, runtime: Runtime, watch: Callable[[Iterable[Job]], Iterable[Job]] = iter) -> TraceInfo:
    """Read the trace once; ``watch`` passes the jobs on, to show progress.

    Raises:
        TraceError: The trace cannot be read.
    """
    trace = file.as_recorded()
    own = file.machines() if file.lists_machines() else None
    types = own.gpu_types if own else (None, *GPU_TYPES.values())
    tally, demand = Tally(types, runtime, own), TotalDemand(runtime)
    for job in watch(trace.jobs()):
        tally.origin_s = trace.meta["origin_s"]
        tally.add(job)
        demand.add(job)
    info = tally.info()
    cluster = own or Config(cluster=cluster_for(demand)).build_cluster()
    compared = [(figure, _value(info, figure.statistic)) for figure in published(trace.format, str(trace.source))]
    hours = hours_by_owner(_every_attempt(file, trace.format).as_recorded().jobs())
    return TraceInfo(trace, tally, info, str(cluster), own is not None, tuple(compared), hours)


def hours_by_owner(jobs: Iterable[Job]) -> dict[str, dict[str, ResourceHours]]:
    """Hours by account, user and partition, for each of these that any job names."""
    kinds: dict[str, dict[str, ResourceHours]] = {
        kind: defaultdict(ResourceHours) for kind in ("account", "user", "partition")
    }
    for job in jobs:
        for kind, rows in kinds.items():
            rows[getattr(job, kind)].add(job)

    def size(entry: tuple[str, ResourceHours]) -> tuple[float, float, str]:
        return -entry[1].gpu_hours, -entry[1].core_hours, entry[0]

    return {kind: dict(sorted(rows.items(), key=size)) for kind, rows in kinds.items() if any(rows)}


def _every_attempt(file: TraceFile, format: str) -> TraceFile:
    """The same jobs with all of their attempts, and with those that still ran or held MIG slices."""
    if format != "sacct":
        return file
    return replace(file, options=replace(file.options, protocol="all-attempts", keep_partial=True, mig=True))


def _value(info: WorkloadInfo, statistic: str) -> float:
    """The statistic that ``PublishedFigure`` names."""
    if statistic == "gpu_hours":
        return info.gpu_work / 3600
    value: Any = info
    for name in statistic.split("."):
        value = getattr(value, name)
    return float(value)
