"""Jobs that a user only plans to submit, and the shapes that they could take."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from dagsim.errors import ConfigError, InputError
from dagsim.families.forecast.job_log import JobLog
from dagsim.model import Cluster, Demand
from dagsim.model.arithmetic import DAY_S
from dagsim.spelling import choices, nearest
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.text import count_of
from dagsim.traces.fields import Dirty, instant_s, memory_gb
from dagsim.traces.sites import site_gpu
from dagsim.traces.times import duration_s
from dagsim.workload.array_tools import objects
from dagsim.workload.arrays import JobArrays, Labels, TaskKind

_COUNTS = ("gpus", "cpus", "nodes")
_WORDS = ("type", "partition", "user", "account", "qos")
_KEYS = (*_COUNTS, "memory", "time_limit", *_WORDS)


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """The request of a planned job, as totals over all of its nodes."""

    gpus: int = 0
    cpus: int = 0
    nodes: int = 0
    """Number of nodes. 0 means the smallest number on which the job's GPUs and CPUs fit."""
    memory_gb: float = 0.0
    limit_s: float = DAY_S
    type: str = ""
    """GPU type; empty means any."""
    partition: str = ""
    user: str = ""
    account: str = ""
    qos: str = ""

    @classmethod
    def parse(cls, text: str, scenario: ClusterScenario) -> PlannedJob:
        """Parse a request such as ``gpus=8,type=H100,time_limit=12h``.

        Raises:
            InputError: A key or value is not allowed. The message names it.
        """
        values: dict[str, str] = {}
        for part in text.split(","):
            key, equals, value = (word.strip() for word in part.partition("="))
            key = "time_limit" if key == "limit" else key
            if not equals or not value or key not in _KEYS or key in values:
                wrong = f"there is no key {key!r}{choices(key, _KEYS, both=True)}"
                if key in values:
                    wrong = f"{key!r} is given twice"
                if not equals or not value:
                    wrong = f"expected KEY=VALUE, got {part!r}"
                raise InputError(f"--job: {wrong}; example: gpus=8,type=H100,time_limit=12h")
            values[key] = value
        stated: dict[str, Any] = {key: _count(key, values[key]) for key in _COUNTS if key in values}
        job = cls(**stated | {key: values[key] for key in _WORDS if key in values})
        if "memory" in values:
            job = replace(job, memory_gb=_memory_gb(values["memory"]))
        if "time_limit" in values:
            job = replace(job, limit_s=_limit_s(values["time_limit"]))
        if not (job.gpus or job.cpus):
            raise InputError("--job: expected gpus=N or cpus=N, each at least 1")
        _check_names(job, scenario)
        names = _type_names(job.type, scenario.cluster) if job.type else []
        return replace(job, type=names[0]) if len(names) == 1 else job

    def spread(self, cluster: Cluster) -> tuple[int, Demand]:
        """Return the number of the job's nodes, and the resources that it takes on each node.

        Raises:
            InputError: The request cannot be divided evenly among its nodes.
        """
        types = tuple(_type_names(self.type, cluster)) if self.type else None
        hosts = [node for node in cluster.nodes if types is None or (node.gpu is not None and node.gpu.name in types)]
        nodes = self.nodes
        if not nodes:
            most = {name: max((getattr(node, name) for node in hosts), default=0) for name in ("gpus", "cpus")}
            nodes = max(1, *(ceil(getattr(self, name) / size) for name, size in most.items() if size))
            while self.gpus % nodes and nodes < self.gpus:
                nodes += 1
        if self.gpus % nodes:
            raise InputError(
                f"--job: {count_of(self.gpus, 'GPU')} cannot be divided evenly among {count_of(nodes, 'node')}"
            )
        return nodes, Demand(self.gpus // nodes, self.cpus / nodes, self.memory_gb / nodes, types)

    def run_s(self, runs_s: np.ndarray, other: PlannedJob) -> np.ndarray:
        """Convert run times of the shape ``other`` to run times of this shape. The GPU-hours (or
        CPU-hours) stay the same, but a run ends at its limit.
        """
        size = (self.gpus or self.cpus) / (other.gpus or other.cpus)
        lasting_s: np.ndarray = np.minimum(runs_s / size, self.limit_s)
        return lasting_s

    def to_dict(self) -> dict[str, Any]:
        """Return the stated values as a dictionary."""
        return {name: value for name, value in asdict(self).items() if value}

    def __str__(self) -> str:
        counts = [f"{count} {name}" for name in _COUNTS if (count := getattr(self, name))]
        words = [self.type, *([f"partition {self.partition}"] if self.partition else [])]
        return ", ".join([*counts, *filter(None, words), f"limit {self.limit_s / 3600:g} h"]).replace("gpus", "GPUs")


def _count(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1_000_000):
        raise InputError(f"--job: {key} must be a whole number from 1 to 1,000,000, got {text!r}")
    return int(text)


def _memory_gb(text: str) -> float:
    try:
        size_gb = memory_gb(text.upper().removesuffix("B"))
    except Dirty:
        size_gb = 0.0
    if not size_gb > 0:
        raise InputError(f"--job: memory must be a size such as 64G, got {text!r}")
    return size_gb


def _limit_s(text: str) -> float:
    """Parse a time limit such as ``12h``, or in Slurm's form ``1-12:00:00``."""
    if re.fullmatch(r"[\d.]+", text):
        raise InputError(f"--job: time_limit {text} has no unit; write {text}h, {text}m for minutes, or {text}s")
    try:
        limit_s = (duration_s(text, "limit") if ":" in text else instant_s("limit", text, 0.0, None)) or 0.0
    except (Dirty, ConfigError):
        limit_s = 0.0
    if not 1 <= limit_s <= 366 * DAY_S:
        raise InputError(f"--job: time_limit must be a time such as 12h or 1-12:00:00, up to a year, got {text!r}")
    return limit_s


def _types_of(cluster: Cluster) -> list[str]:
    return list(dict.fromkeys(node.gpu.name for node in cluster.nodes if node.gpu is not None and node.gpus))


def _type_names(name: str, cluster: Cluster) -> list[str]:
    """Return the GPU types in a cluster to which a user's ``name`` refers: the type of that name, or
    all types that begin with it.
    """
    types = _types_of(cluster)
    equal = [type_ for type_ in types if type_.lower() == name.lower()] or [t for t in types if t == site_gpu(name)]
    chosen = equal or [type_ for type_ in types if type_.lower().startswith(f"{name.lower()}-")]
    if not chosen:
        raise InputError(f"--job: no node has GPUs of type {name!r}; the cluster has {', '.join(types) or 'none'}")
    return chosen


def _check_names(job: PlannedJob, scenario: ClusterScenario) -> None:
    """Reject a partition, an account or a QOS that the site does not have."""
    queues = scenario.queues
    if queues is None:
        if job.qos or job.partition:
            raise InputError("--job: the configuration has neither partitions nor QOS (key queues)")
        return
    of = {
        "partition": [row.name for row in queues.partitions],
        "qos": [row.name for row in queues.qos],
        "account": [node.name for node, _ in queues.walk()],
    }
    for key, names in of.items():
        if (name := getattr(job, key)) and names and name not in names:
            allowed = f"allowed: {', '.join(names)}"
            raise InputError(f"--job: there is no {key} {name!r}{nearest(name, names, allowed)}")


def shapes_of(job: PlannedJob, scenario: ClusterScenario) -> list[PlannedJob]:
    """Return the job and its variants. Each variant differs in one respect: half or twice as many
    GPUs (or CPUs) with the same GPU-hours, another GPU type, another partition, or half the time
    limit."""
    several = [job, *_sizes(job)]
    types = _types_of(scenario.cluster)
    several += [replace(job, type=name) for name in types if job.gpus and len(types) > 1]
    names = [part.name for part in (scenario.queues.partitions if scenario.queues else ())]
    own = job.partition or next(iter(names), "")
    several += [replace(job, partition=name) for name in names if name != own]
    several.append(replace(job, limit_s=job.limit_s / 2))
    return list(dict.fromkeys(several))


def _sizes(job: PlannedJob) -> Iterator[PlannedJob]:
    """Yield the job at a quarter, half and twice its size, if all counts are then whole numbers."""
    for factor in (0.25, 0.5, 2.0):
        counts = {name: getattr(job, name) * factor for name in ("gpus", "cpus")}
        if all(count == int(count) for count in counts.values()):
            whole: dict[str, Any] = {name: int(count) for name, count in counts.items()}
            nodes = max(1, int(job.nodes * factor)) if job.nodes else 0
            if nodes and whole["gpus"] % nodes:
                continue
            memory = job.memory_gb * factor
            yield replace(job, **whole, nodes=nodes, memory_gb=memory, limit_s=job.limit_s / factor)


def with_planned(log: JobLog, shapes: list[PlannedJob], t: float, cluster: Cluster) -> JobLog:
    """Return the log with these jobs added at its end, submitted at time ``t``. If a job names a user
    but no account, it gets the account that the user used last.
    """
    spread = [shape.spread(cluster) for shape in shapes]
    latest = dict(zip(log.user, log.account, strict=True))
    accounts = [shape.account or latest.get(shape.user, "") for shape in shapes]
    jobs = JobArrays.of_single_tasks(
        objects([f"planned-{number}" for number in range(1, len(shapes) + 1)]),
        np.full(len(shapes), t),
        "job",
        work=np.array([shape.limit_s for shape in shapes]),
        estimate=np.array([shape.limit_s for shape in shapes]),
        instances=np.array([nodes for nodes, _ in spread]),
        kind=np.arange(len(shapes), dtype=np.int32),
        kinds=tuple([TaskKind(demand, gang=True) for _, demand in spread]),
        user=Labels.of([shape.user for shape in shapes]),
        account=Labels.of(accounts),
        partition=Labels.of([shape.partition for shape in shapes]),
        qos=Labels.of([shape.qos for shape in shapes]),
    )
    waiting = JobLog.of(jobs, 0.0, np.full(len(shapes), np.nan))
    return JobLog.joined([log, waiting], t)
