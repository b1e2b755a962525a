"""Statistics of a trace, computed in one pass over its jobs, and published values with which they
can be compared (``PUBLISHED``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from typing import Any, NamedTuple

from dagsim.config.schema import Config
from dagsim.experiment.sizing import TotalDemand, cluster_for
from dagsim.model import GPU_TYPES, UNLIMITED_S, Job
from dagsim.systems.cluster.audit.audit import Audit
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.traces import Trace
from dagsim.traces.report import Hours
from dagsim.traces.trace_file import TraceFile
from dagsim.workload.info import Tally, WorkloadInfo


@dataclass(slots=True)
class ResourceHours:
    """The number of jobs of one account, user or partition, and the resources that the jobs used
    and requested."""

    jobs: int = 0
    gpu_hours: float = 0.0
    """The run times of the jobs in hours, multiplied by their GPUs. All attempts of requeued jobs
    count.
    """
    core_hours: float = 0.0
    gpu_hours_claimed: float = 0.0
    """The time limits (or estimates) of the jobs in hours, multiplied by their GPUs, for jobs that
    state one.
    """
    core_hours_claimed: float = 0.0

    def add(self, job: Job) -> None:
        """Add a job whose work is given in seconds."""
        self.jobs += 1
        for task in job.tasks:
            requested_s = 0.0 if task.estimate is None or task.estimate >= UNLIMITED_S else task.estimate
            gpus, cores = task.instances * task.gpus / 3600, task.instances * task.cpus / 3600
            self.gpu_hours += gpus * task.work
            self.core_hours += cores * task.work
            self.gpu_hours_claimed += gpus * requested_s
            self.core_hours_claimed += cores * requested_s


@dataclass(frozen=True, slots=True)
class TraceInfo:
    """The statistics of a trace."""

    trace: Trace
    tally: Tally
    workload: WorkloadInfo
    cluster: str
    """A description of the machines in the trace or, if it lists none, of a cluster sized for an
    offered load of 0.9.
    """
    own: bool
    """True if the trace lists these machines."""
    comparison: tuple[tuple[PublishedFigure, float], ...]
    """Published values, each with the value computed from this file."""
    audit: Audit
    """The contradictions within the trace."""
    hours: dict[str, dict[str, ResourceHours]]
    """The hours by ``account``, ``user`` and ``partition``, if jobs name one, with the largest
    first.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return all statistics as plain values for JSON."""
        return {
            "audit": self.audit.to_dict(),
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
        """Return the mean number of busy GPUs and cores over the period of the log if no job
        waited."""
        period_s = self.workload.period_s
        parts = {"gpus": self.workload.gpu_work, "cores": self.workload.cpu_work}
        return {name: work / period_s if period_s else None for name, work in parts.items()}


def trace_info(file: TraceFile, runtime: Runtime, watch: Callable[[Iterable[Job]], Iterable[Job]] = iter) -> TraceInfo:
    """Read the trace once, and return its statistics. ``watch`` passes the jobs on, to show
    progress.

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
    report, total = trace.report, Hours(info.gpu_work / 3600, info.cpu_work / 3600)
    audit = Audit(info.jobs, report.kept + report.dropped.total(), total, report.contradictions)
    return TraceInfo(trace, tally, info, str(cluster), own is not None, tuple(compared), audit, hours)


def hours_by_owner(jobs: Iterable[Job]) -> dict[str, dict[str, ResourceHours]]:
    """Return the hours by account, by user and by partition. A grouping is left out if no job
    has that attribute.
    """
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
    """Return the same trace with options that keep more: all attempts of each job, and jobs that
    were still running or used MIG slices.
    """
    if format != "sacct":
        return file
    return replace(file, options=replace(file.options, protocol="all-attempts", keep_partial=True, mig=True))


def _value(info: WorkloadInfo, statistic: str) -> float:
    """Return the value of a statistic. ``statistic`` is its name in a ``PublishedFigure``."""
    if statistic == "gpu_hours":
        return info.gpu_work / 3600
    value: Any = info
    for name in statistic.split("."):
        value = getattr(value, name)
    return float(value)


class PublishedFigure(NamedTuple):
    """A published value for a whole trace."""

    format: str
    path: str
    """Case-insensitive shell pattern for the path of the data set, if the format has several data
    sets.
    """
    statistic: str
    """A field of ``WorkloadInfo``, such as ``jobs`` or ``work.p50``, or else ``gpu_hours``."""
    value: float
    source: str


_ERDOS = "ERDOS notebook; Alibaba's slides at SoCC 2019"
_SPAR = "Spar, distributions of 2,857,851 jobs"
_HELIOS = "HeliosArtifact, helios_cluster_summary.csv"
_ITP = "README of the ElasticFlow traces"

PUBLISHED = (
    PublishedFigure("alibaba2018", "*", "jobs", 4_201_014, _ERDOS),
    PublishedFigure("alibaba2018", "*", "tasks", 14_295_731, f"{_ERDOS} (rows)"),
    *(
        PublishedFigure(
            "alibaba2018", "*", f"{name}.{level}", value, _SPAR + ("; end - start" if name == "work" else "")
        )
        for name, levels in {
            "tasks_per_job": {"mean": 3.385, "p50": 2, "p75": 4, "p90": 7, "p95": 11, "p99": 20},
            "depth": {"mean": 2.425},
            "work": {"mean": 44.8, "p50": 5, "p75": 22, "p90": 96, "p95": 227, "p99": 603},
            "instances_per_task": {"mean": 43.1, "p50": 1, "p75": 4, "p90": 47, "p95": 176, "p99": 844},
        }.items()
        for level, value in levels.items()
    ),
    PublishedFigure("google2011", "*", "jobs", 672_074, "Reiss, Wilkes and Hellerstein 2011"),
    PublishedFigure("helios", "*earth*", "jobs", 872_886, _HELIOS),
    PublishedFigure("helios", "*saturn*", "jobs", 1_753_078, _HELIOS),
    PublishedFigure("helios", "*uranus*", "jobs", 490_309, _HELIOS),
    PublishedFigure("helios", "*venus*", "jobs", 246_708, _HELIOS),
    PublishedFigure("itp", "*", "jobs", 69_351, _ITP),
    PublishedFigure("itp", "*", "gpu_hours", 1_632_719.7, _ITP),
    PublishedFigure("openb2023", "*default*", "jobs", 8_152, "Weng et al., ATC 2023 (the default list)"),
    PublishedFigure("philly", "*", "jobs", 117_325, "README of philly-traces; Jeon et al., ATC 2019"),
)


def published(format: str, path: str) -> list[PublishedFigure]:
    """Return the published values for the trace at ``path``."""
    return [figure for figure in PUBLISHED if figure.format == format and fnmatch(path.lower(), figure.path)]
