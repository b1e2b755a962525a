"""Statistics of synthetic workloads and of traces."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dagsim.model import Cluster, GpuType, Job, TaskGraph
from dagsim.model.arithmetic import ordered_sum
from dagsim.workload.load import ArrivalTimes, Load, LoadMeter, WorkRuntime

_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Percentiles:
    """A summary of a distribution in seven numbers. Percentiles are observed values, without interpolation."""

    mean: float
    p50: float
    p75: float
    p90: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Percentiles:
        """Summarise ``values``, which must not be empty."""
        numbers = np.fromiter(values, float)
        levels = np.quantile(numbers, (0.5, 0.75, 0.9, 0.95, 0.99, 1.0), method="inverted_cdf")
        return cls(float(numbers.mean()), *map(float, levels))


@dataclass(frozen=True, slots=True)
class WorkloadInfo:
    """Statistics of a workload. Percentiles are taken over jobs or over tasks, and are ``None`` if
    there are no jobs.
    """

    jobs: int
    tasks: int
    edges: int
    instances: int
    gangs: int
    """Number of tasks whose instances start together."""
    gpu_work: float
    """Sum of work of all instances times the GPUs of each: GPU-seconds if work is in seconds."""
    cpu_work: float
    """The same for cores."""
    first_arrival_s: float
    span_s: float
    """Seconds from the first arrival to the last."""
    period_s: float
    """Seconds over which the jobs arrive: the span plus one mean gap."""
    tasks_per_job: Percentiles | None
    depth: Percentiles | None
    """Number of tasks on the longest chain of a job."""
    width: Percentiles | None
    """Width of a job: the maximum number of tasks of one depth, where depth is the number of tasks
    before a task on its longest chain."""
    work: Percentiles | None
    """Work of an instance, in the unit of the runtime model."""
    critical_path_s: Percentiles | None
    """Seconds that a job takes alone on the fastest machines; jobs that cannot run here are left out."""
    instances_per_task: Percentiles | None
    gpus_per_instance: Mapping[str, int]
    """Number of tasks by the GPUs that an instance requests."""
    gpus_per_job: Percentiles | None
    """Maximum number of GPUs that any single task of a job can hold at once."""
    models: Mapping[str, int]
    """Number of tasks by the model that they train; ``""`` for none."""
    tenants: Mapping[str, int]
    """Number of jobs by tenant."""
    priorities: Mapping[str, int]
    """Number of jobs by priority."""
    arrivals_by_hour: tuple[int, ...]
    """Number of jobs by hour of the day, where time 0 is midnight."""
    load: Load | None
    """Load offered to the cluster, if a cluster was given."""

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as plain values for JSON. The values of the load include
        ``offered``.
        """
        plain = asdict(self)
        if self.load is not None:
            plain["load"]["offered"] = self.load.offered
        plain["arrivals_by_hour"] = list(self.arrivals_by_hour)
        return plain


def workload_info(
    jobs: Iterable[Job],
    cluster: Cluster | None = None,
    runtime: WorkRuntime | None = None,
    *,
    whole: bool = False,
) -> WorkloadInfo:
    """Compute the statistics of ``jobs``. The load and the critical paths are only computed if a
    cluster and a runtime model are given. ``whole`` has the same meaning as in ``ArrivalTimes``.

    The jobs are iterated once, and a few numbers are stored per job and per task.
    """
    tally = Tally(() if cluster is None else cluster.gpu_types, runtime, cluster, whole=whole)
    for job in jobs:
        tally.add(job)
    return tally.info()


class Tally:
    """Incremental statistics of jobs, which store a few numbers per job and per task.

    Critical paths are computed on ``types`` if there is a ``runtime``, and the load on ``cluster``
    if there is also a cluster.
    """

    def __init__(
        self,
        types: tuple[GpuType | None, ...] = (),
        runtime: WorkRuntime | None = None,
        cluster: Cluster | None = None,
        *,
        whole: bool = False,
    ) -> None:
        self.runtime, self.types = runtime, types
        self.meter = None if cluster is None or runtime is None else LoadMeter(cluster, runtime)
        self._whole = whole
        self.origin_s = 0.0
        """Offset in seconds that is added to arrivals to find the hour of the day."""
        self.edges = self.gangs = 0
        self.gpu_work = self.cpu_work = 0.0
        self.by_gpus: Counter[float] = Counter()
        self.by_model: Counter[str] = Counter()
        self.by_tenant: Counter[str] = Counter()
        self.by_priority: Counter[float] = Counter()
        self.by_hour: Counter[int] = Counter()
        self.arrivals, self.tasks, self.depths, self.widths, self.most, self.paths = (array("d") for _ in range(6))
        self.work, self.instances = array("d"), array("d")

    def add(self, job: Job) -> None:
        """Add ``job`` to the statistics."""
        tasks, graph = job.graph.tasks, job.graph
        levels = _level_sizes(graph)
        self.arrivals.append(job.arrival_s)
        self.tasks.append(len(tasks))
        self.edges += len(graph.edges)
        self.depths.append(len(levels))
        self.widths.append(max(levels))
        self.most.append(max([task.instances * task.gpus for task in tasks]))
        self.by_tenant[job.tenant] += 1
        self.by_priority[job.priority] += 1
        self.by_hour[int((self.origin_s + job.arrival_s) // _HOUR_S) % 24] += 1
        for task in tasks:
            self.work.append(task.work)
            self.instances.append(task.instances)
            self.gangs += task.gang
            self.gpu_work += task.work * task.instances * task.gpus
            self.cpu_work += task.work * task.instances * task.cpus
            self.by_gpus[task.gpus] += 1
            self.by_model[task.model or ""] += 1
        if self.meter is not None:
            self.meter.add(job)
        if self.types and self.runtime is not None:
            self.paths.append(graph.critical_path([min(self.runtime.seconds(task, self.types)) for task in tasks]))

    def info(self) -> WorkloadInfo:
        """Return the statistics of the jobs added so far."""
        times = ArrivalTimes(whole=self._whole)
        times.add_all(np.array(self.arrivals))
        return WorkloadInfo(
            jobs=len(self.arrivals),
            tasks=len(self.work),
            edges=self.edges,
            instances=int(ordered_sum(self.instances)),
            gangs=self.gangs,
            gpu_work=self.gpu_work,
            cpu_work=self.cpu_work,
            first_arrival_s=times.first_s if times.jobs else 0.0,
            span_s=times.span_s,
            period_s=times.period_s,
            tasks_per_job=_spread(self.tasks),
            depth=_spread(self.depths),
            width=_spread(self.widths),
            work=_spread(self.work),
            critical_path_s=_spread([path for path in self.paths if path < float("inf")]),
            instances_per_task=_spread(self.instances),
            gpus_per_instance=_sorted(self.by_gpus),
            gpus_per_job=_spread(self.most),
            models=dict(sorted(self.by_model.items())),
            tenants=dict(sorted(self.by_tenant.items())),
            priorities=_sorted(self.by_priority),
            arrivals_by_hour=tuple([self.by_hour[hour] for hour in range(24)]),
            load=None if self.meter is None else self.meter.load(times),
        )


def _level_sizes(graph: TaskGraph) -> list[int]:
    """Return the number of tasks at each depth. The depth of a task is the number of tasks before it
    on the longest chain that leads to it.
    """
    level = [0] * len(graph.tasks)
    for task in graph.order:
        level[task] = max([level[parent] + 1 for parent in graph.parents[task]], default=0)
    sizes = [0] * (max(level) + 1)
    for one in level:
        sizes[one] += 1
    return sizes


def _spread(values: Iterable[float]) -> Percentiles | None:
    numbers = list(values)
    return Percentiles.of(numbers) if numbers else None


def _sorted(counts: Mapping[float, int]) -> dict[str, int]:
    return {f"{value:g}": counts[value] for value in sorted(counts)}
