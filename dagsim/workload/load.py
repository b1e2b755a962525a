"""Offered load: the share of a cluster's time that the arriving jobs request.

The offered load of GPUs is the sum over all tasks of

    instances * GPUs per instance / sum over GPUs it may use of (1 / seconds of one instance there)

divided by the seconds between the first and the last arrival. It is the fraction of that span for
which the whole cluster would be busy if all GPUs that a task may use worked on it, each at its own
speed. On a cluster of one GPU type it equals GPU-seconds / (GPUs * span). The load of CPU cores is
the same sum with cores in place of GPUs. The offered load is the larger of the two. Above 1, the
queue grows for as long as jobs arrive, whatever the policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

import numpy as np

from dagsim.model import Cluster, GpuType, Job, Task
from dagsim.workload.arrays import JobArrays

__all__ = ["Load", "LoadMeter", "WorkRuntime", "offered_load", "seconds_of"]


class WorkRuntime(Protocol):
    """The part of a runtime model that workloads need (``dagsim.systems.cluster.models.runtime``)."""

    def seconds(self, task: Task, gpus: tuple[GpuType | None, ...]) -> tuple[float, ...]:
        """Seconds that one instance of ``task`` takes on each of ``gpus``; ``inf`` where it cannot
        run.
        """
        ...


@dataclass(frozen=True, slots=True)
class Load:
    """Load that ``jobs`` jobs offer over ``span_s``; ``cpu_load`` and ``gpu_load`` are ``inf`` if
    the span is 0.
    """

    gpu_load: float
    cpu_load: float
    span_s: float
    jobs: int
    longest_s: float = 0.0
    """Seconds that the longest task takes on the fastest GPUs it may use."""

    @property
    def offered(self) -> float:
        """Load of the scarcer resource, GPUs or cores."""
        return max(self.gpu_load, self.cpu_load)

    @property
    def warning(self) -> str | None:
        """Warning about a load above 1."""
        if self.offered <= 1 + 1e-9:  # allows for rounding of a load of exactly 1
            return None
        if self.offered == inf:
            return "all jobs arrive at once: the offered load has no meaning"
        if self.longest_s > self.span_s:
            return (
                f"the jobs arrive within {self.span_s:,.0f} s, and one takes {self.longest_s:,.0f} s: a burst, of "
                f"which an offered load of {self.offered:.3g} says little"
            )
        return (
            f"the offered load {self.offered:.3g} is above 1: while jobs arrive the queue grows whatever the policy, "
            "and mean completion times depend on how many jobs there are"
        )

    def __str__(self) -> str:
        of = "GPUs" if self.gpu_load >= self.cpu_load else "CPU cores"
        if self.offered == inf:
            return f"{self.jobs} jobs at once"
        return f"offered load {self.offered:.3f} of the {of}: {self.jobs} jobs over {self.span_s / 3600:.2f} h"


class LoadMeter:
    """Sums the time for which tasks would keep the whole cluster busy. Costs about 2 microseconds
    per task.
    """

    def __init__(self, cluster: Cluster, runtime: WorkRuntime) -> None:
        self.gpu_s = 0.0
        """Seconds for which all GPUs would be busy."""
        self.cpu_s = 0.0
        """Seconds for which all cores would be busy."""
        self.longest_s = 0.0
        """Seconds of the longest task."""
        self._runtime = runtime
        self._types = cluster.gpu_types
        gpus = dict.fromkeys([gpu and gpu.name for gpu in self._types], 0.0)
        cpus = dict(gpus)
        for node in cluster.nodes:
            name = node.gpu and node.gpu.name  # types with equal names are equal, and hashing a type is slower
            gpus[name] += node.gpus
            cpus[name] += node.cpus
        self._gpus, self._cpus = list(gpus.values()), list(cpus.values())

    def add(self, task: Task) -> None:
        """Add ``task``. A task that cannot run anywhere here offers no load: its job will be
        rejected.
        """
        if task.gpus or task.cpus:
            seconds = self._runtime.seconds(task, self._types)
            if self.longest_s < (shortest := min(seconds)) < inf:
                self.longest_s = shortest
            if task.gpus:
                self.gpu_s += _busy(task.instances * task.gpus, self._gpus, seconds)
            if task.cpus:
                self.cpu_s += _busy(task.instances * task.cpus, self._cpus, seconds)

    def add_arrays(self, jobs: JobArrays, seconds: np.ndarray) -> None:
        """Add all tasks of ``jobs`` at once; the totals equal those of adding them one by one.
        ``seconds`` are (n, GPU types).
        """
        for resource, capacity in (("gpus", self._gpus), ("cpus", self._cpus)):
            asked = jobs.asked(resource)
            busy = _busy_all(jobs.instances * asked, capacity, seconds)[asked > 0]
            total = float(np.add.accumulate(busy)[-1]) if len(busy) else 0.0
            if resource == "gpus":
                self.gpu_s += total
            else:
                self.cpu_s += total
        anything = (jobs.asked("gpus") != 0) | (jobs.asked("cpus") != 0)
        shortest = seconds.min(axis=1)[anything]
        self.longest_s = max(self.longest_s, float(shortest[shortest < inf].max(initial=0.0)))

    @property
    def busy_s(self) -> float:
        """Seconds for which the scarcer resource would be busy."""
        return max(self.gpu_s, self.cpu_s)

    def over(self, span_s: float, jobs: int) -> Load:
        """Load of the added tasks if they arrived over ``span_s``."""
        return Load(_per(self.gpu_s, span_s), _per(self.cpu_s, span_s), span_s, jobs, self.longest_s)


def seconds_of(jobs: JobArrays, runtime: WorkRuntime, types: tuple[GpuType | None, ...]) -> np.ndarray:
    """(n, types) float64: seconds that an instance of each task takes on each of ``types``."""
    rates = getattr(runtime, "rates", None)
    if rates is None:
        rows = [runtime.seconds(task, types) for job in jobs.jobs() for task in job.tasks]
        return np.array(rows, float).reshape(-1, len(types))
    per_second = np.array([rates(task, types) for task in jobs.samples()], float).reshape(-1, len(types))[jobs.kind]
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds: np.ndarray = np.where(per_second, jobs.work[:, None] / per_second, inf)
    return seconds


def offered_load(jobs: Iterable[Job], cluster: Cluster, runtime: WorkRuntime) -> Load:
    """Compute the load that ``jobs`` offer to ``cluster``."""
    meter = LoadMeter(cluster, runtime)
    first, last, count = inf, 0.0, 0
    for job in jobs:
        first, last, count = min(first, job.arrival_s), max(last, job.arrival_s), count + 1
        for task in job.graph.tasks:
            meter.add(task)
    return meter.over(max(last - first, 0.0), count)


def _busy(amount: float, capacity: Sequence[float], seconds: Sequence[float]) -> float:
    speed = 0.0
    for units, each in zip(capacity, seconds, strict=True):
        if each == 0:
            return 0.0
        speed += units / each
    return amount / speed if speed else 0.0


def _busy_all(amount: np.ndarray, capacity: Sequence[float], seconds: np.ndarray) -> np.ndarray:
    """``_busy`` of all tasks at once, by the same operations in the same order."""
    speed = np.zeros(len(amount))
    with np.errstate(divide="ignore", invalid="ignore"):
        for type_, units in enumerate(capacity):
            speed += units / seconds[:, type_]
        busy = amount / speed
    busy[(speed == 0) | (seconds == 0).any(axis=1)] = 0.0
    return busy


def _per(busy_s: float, span_s: float) -> float:
    return busy_s / span_s if span_s else (inf if busy_s else 0.0)
