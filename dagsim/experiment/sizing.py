"""The cluster for a trace: the machines in the trace, or a cluster sized for an offered load of
0.9."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import Any

import numpy as np

from dagsim.config.bundled import find_config
from dagsim.config.schema import Config, load_config
from dagsim.errors import ConfigError, UnknownName
from dagsim.model import GPU_TYPES, Job, Task
from dagsim.model.arithmetic import whole_sum
from dagsim.model.gpu import canonical
from dagsim.systems.cluster.audit.auditor import INVENTED
from dagsim.systems.cluster.models.runtime import HasRates, Runtime
from dagsim.systems.cluster.section import ClusterSection, NodeGroup
from dagsim.traces.trace_file import TraceFile
from dagsim.workload.arrays import JobArrays
from dagsim.workload.load import ArrivalTimes

LOAD = 0.9
"""The offered load for which clusters are sized."""

_NODE = NodeGroup(name="node", gpus=8, gpu="T4", cpus=96.0, memory_gb=1024.0)
"""A node, for any GPU type. It is enlarged if an instance needs more."""
_MOST = {"nodes": 100_000, "GPUs a node": 1_024, "cores a node": 1_000_000, "GB a node": 10_000_000}
"""The largest plausible cluster. If the jobs need more, a field in the trace is probably
damaged.
"""
_MOST_INVENTED = 128
"""Maximum number of GPUs in an invented node. Real nodes have at most 16, and racks that act as one
node have 72."""
_ROUNDING = 1e-9
_USUAL = {group.gpu: group.count * group.gpus for group in ClusterSection().groups if group.gpu}
"""The GPU types of the default cluster with their numbers of GPUs, for tasks that name no type."""


@dataclass(slots=True)
class _Asked:
    """The demand of one job."""

    gpu_s: defaultdict[str, float]
    core_s: float = 0.0
    gb_s: float = 0.0


class TotalDemand:
    """The total demand of jobs in GPU-seconds, core-seconds and GB-seconds, and the largest demand of
    a task.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._rows: dict[tuple[str, ...], tuple[Any, ...]] = {}
        self.gpu_s: defaultdict[str, float] = defaultdict(float)
        """GPU-seconds by type. A task's demand is divided equally among the types that it names or,
        if it names none, among the default types.
        """
        self.gpus_at_once: defaultdict[str, float] = defaultdict(float)
        """GPUs of each type that all jobs together hold if none waits. Each job counts as its
        average demand over its critical path.
        """
        self.cores_at_once = self.gb_at_once = 0.0
        """Cores and GB that all jobs together hold if none waits."""
        self.gangs: dict[tuple[str, float, float, float], int] = {}
        """Number of instances in the widest gang, by GPU type and by GPUs, cores and GB per
        instance. A gang runs on a single GPU type. It is counted for the last type that its task
        may use, or for "" if it uses no GPUs.
        """
        self.core_s = self.gb_s = 0.0
        self.instance_gpus, self.instance_cpus, self.instance_gb = 0.0, 0.0, 0.0
        """The largest amounts that a single instance needs."""
        self.arrivals = ArrivalTimes()
        self.period_s: float | None = None
        """Length of the period in which the jobs arrive, in seconds, if known."""

    def add(self, job: Job) -> None:
        """Add the demand of ``job``."""
        self.arrivals.add(job.arrival_s)
        asked = _Asked(defaultdict(float))
        path_s = job.graph.critical_path([self._add(task, asked) for task in job.graph.tasks])
        share = 1 / path_s if path_s > 0 else 0.0
        for name, gpu_s in asked.gpu_s.items():
            self.gpu_s[name] += gpu_s
            self.gpus_at_once[name] += gpu_s * share
        self.core_s += asked.core_s
        self.cores_at_once += asked.core_s * share
        self.gb_s += asked.gb_s
        self.gb_at_once += asked.gb_s * share

    def add_arrays(self, jobs: JobArrays, runtime: HasRates) -> None:
        """Add all jobs in arrays. The totals are the same as if the jobs were added one by one."""
        self.arrivals.add_all(jobs.arrival_s)
        job = np.repeat(np.arange(len(jobs)), np.diff(jobs.first))
        shortest, mean_s = np.zeros(jobs.tasks), np.zeros(jobs.tasks)
        asked_s: dict[str, np.ndarray] = {}
        for place, task in enumerate(jobs.samples()):
            names, types, weights = self._row(task)
            these = np.flatnonzero(jobs.kind == place)
            rates = np.array(runtime.rates(task, types))
            with np.errstate(divide="ignore"):
                seconds = np.where(rates, jobs.work[these, None] / rates, inf)
            for column, (name, weight) in enumerate(zip(names, weights, strict=True)):
                each_s = np.where(seconds[:, column] < inf, seconds[:, column], 0.0)
                mean_s[these] += weight * each_s
                if task.gpus:
                    into = asked_s.setdefault(name, np.zeros(jobs.tasks))
                    into[these] = weight * each_s * jobs.instances[these] * task.gpus
            fastest = seconds.min(axis=1)
            shortest[these] = np.where(fastest < inf, fastest, 0.0)
            self._ask(task, names, int(jobs.instances[these].max()))
        path_s = jobs.critical_paths(shortest)
        with np.errstate(divide="ignore"):
            share = np.where(path_s > 0, 1 / path_s, 0.0)
        for name, gpu_s in asked_s.items():
            self.gpu_s[name], self.gpus_at_once[name] = _totals(job, gpu_s, share)
        amounts = mean_s * jobs.instances
        for resource in ("cpus", "memory_gb"):
            demand = jobs.asked(resource)
            totals = _totals(job, amounts * demand, share)
            if resource == "cpus":
                self.core_s, self.cores_at_once = totals
            else:
                self.gb_s, self.gb_at_once = totals

    def _add(self, task: Task, asked: _Asked) -> float:
        """Add the task to ``asked``, and return its shortest run time in seconds."""
        names, types, weights = self._row(task)
        seconds = self._runtime.seconds(task, types)
        mean_s = 0.0
        for name, weight, each_s in zip(names, weights, seconds, strict=True):
            if each_s < inf:
                mean_s += weight * each_s
                if task.gpus:
                    asked.gpu_s[name] += weight * each_s * task.instances * task.gpus
        asked.core_s += mean_s * task.instances * task.cpus
        asked.gb_s += mean_s * task.instances * task.memory_gb
        self._ask(task, names, task.instances)
        return min(seconds) if min(seconds) < inf else 0.0

    def _ask(self, task: Task, names: Sequence[str], instances: int) -> None:
        """Record the demand of the task if it is the largest so far, for one instance and for a
        gang of ``instances``.
        """
        self.instance_gpus = max(self.instance_gpus, task.gpus)
        self.instance_cpus = max(self.instance_cpus, task.cpus)
        self.instance_gb = max(self.instance_gb, task.memory_gb)
        shape = (names[-1] if task.gpus else "", task.gpus, task.cpus, task.memory_gb)
        self.gangs[shape] = max(self.gangs.get(shape, 1), instances if task.gang else 1)

    def _row(self, task: Task) -> tuple[Any, ...]:
        """Return the names of the GPU types that a task may use, the types themselves, and the
        fraction of the task's demand that counts towards each type. The result is cached for each
        set of names.
        """
        key = task.gpu_types or (("",) if task.gpus else ())
        if key not in self._rows:
            named = [canonical(name) for name in task.gpu_types or () if canonical(name) in GPU_TYPES]
            gpus = dict.fromkeys(named, 1) if named else _USUAL if task.gpus else {"": 1}
            types = tuple([GPU_TYPES.get(name) for name in gpus])
            self._rows[key] = (tuple(gpus), types, [part / whole_sum(gpus.values()) for part in gpus.values()])
        return self._rows[key]


def trace_cluster(
    config: Config,
    cluster: str | None = None,
    watch: Callable[[Iterable[Job]], Iterable[Job]] = iter,
    *,
    invented: bool = True,
) -> tuple[str, Mapping[str, Any]]:
    """Return the option that selects the cluster, and the configuration keys that describe it (see
    ``scenario.on_its_cluster``). There are no keys if the configuration already contains the
    cluster.
    """
    if cluster not in (None, "trace", "sized"):
        try:
            file = find_config(cluster)
        except UnknownName as error:
            raise UnknownName(f"--cluster: {error}; also allowed: trace, sized") from None
        other = load_config(file, own=False)
        return f"--cluster {cluster}", {"cluster": other.cluster, "gpu_types": other.gpu_types}
    described = bool({"cluster", "gpu_types"} & config.model_fields_set)
    trace = config.trace_file
    if trace is None or (cluster is None and described):
        return "", {}
    if cluster is None and (saved := trace.saved_with("cluster")) is not None:
        return "--cluster (as saved with the workload)", {"cluster": saved}
    if cluster is None:
        cluster = "trace" if trace.lists_machines() else "sized"
        if cluster == "sized" and not invented:
            raise ConfigError(
                f"{trace.path}: the cluster is unknown, because the log does not list its machines; give "
                "--cluster FILE (which dagsim site import can create), or --cluster sized to invent one "
                f"for an offered load of {LOAD}"
            )
    if cluster == "trace":
        return "--cluster trace", {"cluster": {"name": "trace", "from_trace": True}}
    recorded = trace.as_recorded()
    if (part := trace.part_of(recorded)) is not None:
        return "--cluster sized", {"cluster": _sized_to_part(part, trace, recorded.unscaled(), config.runtime)}
    if isinstance(config.runtime, HasRates) and (arrays := recorded.arrays_if_large()) is not None:
        return "--cluster sized", {"cluster": sized_to(arrays, config.runtime)}
    return "--cluster sized", {"cluster": sized(watch(recorded.jobs()), config.runtime)}


def _sized_to_part(
    part: tuple[JobArrays, float], trace: TraceFile, every: JobArrays, runtime: Runtime
) -> ClusterSection:
    """Return the cluster sized for the jobs that arrive in a part of a log. It is large enough for
    the widest job in the whole log, because earlier jobs are running and waiting when the part
    begins.
    """
    jobs, begins_s = part
    demand, widest = TotalDemand(runtime), TotalDemand(runtime)
    for job in every.jobs():
        widest.add(job)
    if not len(jobs):
        return cluster_for(widest)
    for job in jobs.jobs():
        demand.add(job)
    demand.period_s = (demand.arrivals.last_s - begins_s) * trace.options.time_scale
    demand.gangs = widest.gangs
    for name in widest.gpu_s:
        demand.gpu_s.setdefault(name, 0.0)
    for name in ("instance_gpus", "instance_cpus", "instance_gb"):
        setattr(demand, name, getattr(widest, name))
    return cluster_for(demand)


def sized(jobs: Iterable[Job], runtime: Runtime, load: float = LOAD) -> ClusterSection:
    """Return the cluster to which ``jobs`` offer ``load`` (see ``cluster_for``)."""
    demand = TotalDemand(runtime)
    for job in jobs:
        demand.add(job)
    return cluster_for(demand, load)


def sized_to(jobs: JobArrays, runtime: HasRates, load: float = LOAD) -> ClusterSection:
    """Return the same cluster as ``sized``, for jobs in arrays."""
    demand = TotalDemand(runtime)
    demand.add_arrays(jobs, runtime)
    return cluster_for(demand, load)


def cluster_for(demand: TotalDemand, load: float = LOAD) -> ClusterSection:
    """Return the smallest cluster of 8-GPU nodes to which ``demand`` offers a load of ``load``. The
    nodes have 96 cores each, and no GPUs if no job needs any.

    Its GPU types are those that tasks name, and the types of the default cluster for tasks that
    name none. There are enough nodes of each type for the widest gang. Nodes without GPUs are added
    if the nodes with GPUs have too few cores or too little memory.

    The load refers to the period that the arrivals represent (``ArrivalTimes``). If jobs last much
    longer than that period, this rule would give more machines than all jobs could use at the same
    time. The cluster is then just large enough that no job has to wait.

    Raises:
        ConfigError: The cluster would be larger than any real one.
    """
    period_s = demand.arrivals.period_s if demand.period_s is None else demand.period_s

    def needed_for(seconds: float, at_once: float) -> float:
        """Return how much of a resource gives the requested load, if jobs hold one unit of it for
        ``seconds`` in total. The result is at most ``at_once``, the amount that jobs would hold if
        none waited.
        """
        return min(seconds / (period_s * load), at_once) if period_s > 0 else at_once

    gpus = max(_NODE.gpus, _whole(demand.instance_gpus, "GPUs a node"))
    if gpus > _MOST_INVENTED:
        raise ConfigError(
            f"no cluster can be chosen, because a job requests {demand.instance_gpus:,.0f} GPUs on one node, "
            "and no real node has that many; let jobs run on several nodes (--read spread=true, if the log is a "
            "plain table), correct the row of this job, or give a cluster with --cluster"
        )
    cpus = max(_NODE.cpus, float(_whole(demand.instance_cpus, "cores a node")))
    memory_gb = max(_NODE.memory_gb, float(_whole(demand.instance_gb, "GB a node")))
    node = _NODE.model_copy(update={"cpus": cpus, "memory_gb": memory_gb})
    groups = []
    # the largest number of nodes of each type that any gang needs
    widest: defaultdict[str, int] = defaultdict(int)
    for (name, *asked), instances in demand.gangs.items():
        rooms = [there / amount for there, amount in zip((gpus, cpus, memory_gb), asked, strict=True) if amount]
        per_node = floor(min(rooms) + _ROUNDING) if rooms else instances
        widest[name] = max(widest[name], ceil(instances / max(per_node, 1)))
    for name, gpu_s in demand.gpu_s.items():
        count = max(_whole(max(needed_for(gpu_s, demand.gpus_at_once[name]) / gpus, widest[name]), "nodes"), 1)
        groups.append(node.model_copy(update={"name": name.lower(), "gpu": name, "gpus": gpus, "count": count}))
    there = sum(group.count for group in groups)
    needed = max(
        needed_for(demand.core_s, demand.cores_at_once) / cpus,
        needed_for(demand.gb_s, demand.gb_at_once) / memory_gb,
        0 if groups else 1,
    )
    count = _whole(needed - there, "nodes") if needed > there else 0
    # a gang only runs on nodes of a single type
    if widest[""] > max([count, *[group.count for group in groups]]):
        count = _whole(widest[""], "nodes")
    if count:
        more = {"name": "cpu", "gpu": None, "gpus": 0, "count": count}
        groups.append(node.model_copy(update=more))
    return ClusterSection(name=INVENTED, groups=tuple(groups))


def _totals(job: np.ndarray, amount: np.ndarray, share: np.ndarray) -> tuple[float, float]:
    """Add up the amounts of all tasks, first within each job and then over all jobs. Return the
    total, and the total in which each job is weighted by its share.
    """
    by_job = np.bincount(job, amount)
    return float(np.add.accumulate(by_job)[-1]), float(np.add.accumulate(by_job * share)[-1])


def _whole(amount: float, what: str) -> int:
    """Round ``amount`` up.

    Raises:
        ConfigError: The amount is implausibly large.
    """
    if not amount <= _MOST[what]:
        raise ConfigError(
            f"the trace needs a cluster of {amount:.3g} {what}; the limit is {_MOST[what]:,}; perhaps a field is "
            "damaged, or jobs never end. Read fewer jobs with --max-jobs, or give a cluster with --cluster"
        )
    return ceil(amount)
