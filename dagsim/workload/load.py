"""Offered load: the share of a cluster's time that the arriving jobs request.

A task keeps the GPUs that it may use busy for

    instances * GPUs per instance / sum over these GPUs of (1 / seconds of one instance there)

seconds: as long as it would take if all of them worked on it, each at its own speed. Times their
number, these are its GPU-seconds. The load of a set of GPU types is

    GPU-seconds of the tasks that may use no other types / (GPUs of these types * span)

where the span is the time between the first and the last arrival. The offered load is the largest
over all sets of types: the tasks of a set can go nowhere else, so above 1 its queue grows for as
long as jobs arrive, whatever the policy. The load of all types together is the plain ratio of
GPU-seconds, which the utilization of a long run approaches. Both are GPU-seconds / (GPUs * span) on
a cluster of one type. The load of CPU cores is the same with cores in place of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

import numpy as np

from dagsim.model import Cluster, GpuType, Job, Task
from dagsim.model.arithmetic import ordered_sum
from dagsim.workload.arrays import JobArrays


class WorkRuntime(Protocol):
    """The part of a runtime model that workloads need (``dagsim.systems.cluster.models.runtime``)."""

    def seconds(self, task: Task, gpus: tuple[GpuType | None, ...]) -> tuple[float, ...]:
        """Seconds that one instance of ``task`` takes on each of ``gpus``; ``inf`` where it cannot
        run.
        """
        ...


def keeps_up(offered: float) -> bool:
    """True if machines can do the work of an offered load: 1, but for rounding, or less."""
    return offered <= 1 + 1e-9


@dataclass(frozen=True, slots=True)
class TypeLoad:
    """Load of a set of GPU types, from the tasks that may use no other types."""

    types: tuple[str, ...]
    demand: float
    """Mean number of GPUs that these tasks would hold if none waited."""
    capacity: float
    """GPUs of these types."""
    part: str = ""
    """The part of the cluster, such as a partition, that confines these tasks; empty for all nodes."""

    @property
    def load(self) -> float:
        """Demand per GPU."""
        return self.demand / self.capacity

    def __str__(self) -> str:
        nodes = f"{self.part}, {' or '.join(self.types)}" if self.part else " or ".join(self.types)
        return f"{nodes}: {self.demand:,.1f} of {self.capacity:,.10g} GPUs ({self.load:.3g})"


@dataclass(frozen=True, slots=True)
class Load:
    """Load that ``jobs`` jobs offer over ``span_s``; ``cpu_load`` and ``gpu_load`` are ``inf`` if
    the span is 0.
    """

    gpu_load: float
    """Largest load of any set of GPU types."""
    cpu_load: float
    span_s: float
    jobs: int
    longest_s: float = 0.0
    """Seconds that the longest task takes on the fastest GPUs it may use."""
    by_types: tuple[TypeLoad, ...] = ()
    """Load of all types together and, before it, if some tasks may not use all types, of each type
    and of each set of types that tasks are confined to; empty if the span is 0.
    """

    @property
    def offered(self) -> float:
        """Load of the scarcer resource, GPUs or cores."""
        return max(self.gpu_load, self.cpu_load)

    @property
    def warning(self) -> str | None:
        """Warning about a load above 1."""
        if keeps_up(self.offered):
            return None
        if self.offered == inf:
            return "all jobs arrive at once: the offered load has no meaning"
        if self.longest_s > self.span_s:
            return (
                f"the jobs arrive within {self.span_s:,.0f} s, and one takes {self.longest_s:,.0f} s: a burst, of "
                f"which an offered load of {self.offered:.3g} says little"
            )
        return (
            f"the offered load {self.offered:.3g}{self._scarce()} is above 1: while jobs arrive the queue grows "
            "whatever the policy, and mean completion times depend on how many jobs there are"
        )

    def _scarce(self) -> str:
        """The scarcest GPU types, if these are not all types of the cluster."""
        if len(self.by_types) < 2 or self.cpu_load > self.gpu_load:
            return ""
        scarcest = max(self.by_types, key=lambda part: part.load)
        return "" if scarcest is self.by_types[-1] else f" of {' or '.join(scarcest.types)}"

    def with_part(self, name: str, load: Load) -> Load:
        """Return the load with that of the jobs that may only use a part of the cluster."""
        scarcest = max(load.by_types, key=lambda one: one.load, default=None)
        return replace(
            self,
            gpu_load=max(self.gpu_load, load.gpu_load),
            cpu_load=max(self.cpu_load, load.cpu_load),
            by_types=(*([] if scarcest is None else [replace(scarcest, part=name)]), *self.by_types),
        )

    def __str__(self) -> str:
        of = "GPUs" if self.gpu_load >= self.cpu_load else "CPU cores"
        if self.offered == inf:
            return f"{self.jobs} jobs at once"
        return f"offered load {self.offered:.3f} of the {of}: {self.jobs} jobs over {self.span_s / 3600:.2f} h"


class _Resource:
    """GPUs or cores by GPU type, and the time for which tasks keep them busy."""

    def __init__(self, capacity: Sequence[float]) -> None:
        self.capacity = capacity
        self.busy_s: dict[int, float] = {}
        """By set of types: seconds for which the tasks that may use exactly these keep all of them
        busy. A set is a whole number with a bit for each type.
        """

    def add(self, amount: float, seconds: Sequence[float]) -> None:
        """Add a task that takes ``amount`` GPUs or cores, for ``seconds`` on each type."""
        speed, types = 0.0, 0
        for place, (units, seconds_on) in enumerate(zip(self.capacity, seconds, strict=True)):
            if seconds_on == 0:
                return
            if units and seconds_on < inf:
                speed += units / seconds_on
                types |= 1 << place
        if speed:
            self.busy_s[types] = self.busy_s.get(types, 0.0) + amount / speed

    def add_all(self, amount: np.ndarray, seconds: np.ndarray) -> None:
        """``add`` all tasks at once, by the same operations in the same order."""
        speed, types = np.zeros(len(amount)), np.zeros(len(amount), np.int64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            for place, units in enumerate(self.capacity):
                speed += units / seconds[:, place]
                types |= np.where((units > 0) & (seconds[:, place] < inf), 1 << place, 0)
            busy_s = amount / speed
        counted = (amount > 0) & (speed > 0) & ~(seconds == 0).any(axis=1)
        for of in np.unique(types[counted]).tolist():
            mine = busy_s[counted & (types == of)]
            mine[0] += self.busy_s.get(of, 0.0)
            self.busy_s[of] = float(np.add.accumulate(mine)[-1])

    def units(self, types: int) -> float:
        """GPUs or cores of a set of types."""
        return ordered_sum(units for place, units in enumerate(self.capacity) if types >> place & 1)

    def confined(self, types: int) -> float:
        """Seconds for which the tasks that may use no types outside a set keep all of it busy."""
        total = self.units(types)
        return ordered_sum(
            busy_s if of == types else busy_s * (self.units(of) / total)
            for of, busy_s in self.busy_s.items()
            if not of & ~types
        )

    def scarcest(self) -> float:
        """The largest ``confined`` of any set of types."""
        return max(map(self.confined, self._unions()), default=0.0)

    def _unions(self) -> Iterator[int]:
        """Sets that can be the scarcest: unions of sets that overlap. The load of disjoint sets
        together lies between their loads.
        """
        yield from (unions := dict.fromkeys(self.busy_s))
        fresh = list(unions)
        while fresh:
            joined = {one | other for one in fresh for other in self.busy_s if one & other} - unions.keys()
            unions |= dict.fromkeys(fresh := sorted(joined))
            yield from fresh


class LoadMeter:
    """Sums the time for which tasks would keep the GPUs and cores of a cluster busy. Costs about 2
    microseconds per task.
    """

    def __init__(self, cluster: Cluster, runtime: WorkRuntime) -> None:
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
        self._gpus, self._cpus = _Resource(list(gpus.values())), _Resource(list(cpus.values()))

    def add(self, task: Task) -> None:
        """Add ``task``. A task that cannot run anywhere here offers no load: its job will be
        rejected.
        """
        if task.gpus or task.cpus:
            seconds = self._runtime.seconds(task, self._types)
            if self.longest_s < (shortest := min(seconds)) < inf:
                self.longest_s = shortest
            if task.gpus:
                self._gpus.add(task.instances * task.gpus, seconds)
            if task.cpus:
                self._cpus.add(task.instances * task.cpus, seconds)

    def add_arrays(self, jobs: JobArrays, seconds: np.ndarray) -> None:
        """Add all tasks of ``jobs`` at once; the totals equal those of adding them one by one.
        ``seconds`` are (n, GPU types).
        """
        self._gpus.add_all(jobs.instances * jobs.asked("gpus"), seconds)
        self._cpus.add_all(jobs.instances * jobs.asked("cpus"), seconds)
        anything = (jobs.asked("gpus") != 0) | (jobs.asked("cpus") != 0)
        shortest = seconds.min(axis=1)[anything]
        self.longest_s = max(self.longest_s, float(shortest[shortest < inf].max(initial=0.0)))

    def add_like(self, other: LoadMeter, tasks: float, of: int) -> None:
        """Add ``tasks`` tasks like the ``of`` tasks in ``other``, a meter for the same cluster."""
        for mine, theirs in ((self._gpus, other._gpus), (self._cpus, other._cpus)):
            for types, busy_s in theirs.busy_s.items():
                mine.busy_s[types] = mine.busy_s.get(types, 0.0) + tasks * busy_s / of

    @property
    def gpu_s(self) -> float:
        """Seconds for which the scarcest GPUs would be busy."""
        return self._gpus.scarcest()

    @property
    def cpu_s(self) -> float:
        """Seconds for which the scarcest cores would be busy."""
        return self._cpus.scarcest()

    @property
    def busy_s(self) -> float:
        """Seconds for which the scarcer resource would be busy."""
        return max(self.gpu_s, self.cpu_s)

    def over(self, span_s: float, jobs: int) -> Load:
        """Load of the added tasks if they arrived over ``span_s``."""
        by_types = tuple(self._by_types(span_s)) if span_s else ()
        return Load(_per(self.gpu_s, span_s), _per(self.cpu_s, span_s), span_s, jobs, self.longest_s, by_types)

    def _by_types(self, span_s: float) -> Iterator[TypeLoad]:
        single = [1 << place for place, units in enumerate(self._gpus.capacity) if units]
        every, confined = sum(single), self._gpus.busy_s.keys() - {sum(single)}
        if confined:
            for types in dict.fromkeys([*single, *sorted(confined, key=lambda types: (types.bit_count(), types))]):
                yield self._type_load(types, span_s)
        if every:
            yield self._type_load(every, span_s)

    def _type_load(self, types: int, span_s: float) -> TypeLoad:
        names = [gpu.name for place, gpu in enumerate(self._types) if gpu is not None and types >> place & 1]
        capacity = self._gpus.units(types)
        return TypeLoad(tuple(names), self._gpus.confined(types) / span_s * capacity, capacity)


def seconds_of(jobs: JobArrays, runtime: WorkRuntime, types: tuple[GpuType | None, ...]) -> np.ndarray:
    """(n, types) float64: seconds that an instance of each task takes on each of ``types``."""
    rates = getattr(runtime, "rates", None)
    if rates is None:
        rows = [runtime.seconds(task, types) for job in jobs.jobs() for task in job.tasks]
        return np.array(rows, float).reshape(-1, len(types))
    per_second = np.array([rates(task, types) for task in jobs.samples()], float).reshape(-1, len(types))[jobs.kind]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
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


def _per(busy_s: float, span_s: float) -> float:
    return busy_s / span_s if span_s else (inf if busy_s else 0.0)
