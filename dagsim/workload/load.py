"""Offered load: the fraction of a cluster's time that the arriving jobs request.

A task keeps the GPUs that it may use busy for

    instances * GPUs per instance / sum over these GPUs of (1 / seconds of one instance there)

seconds, which is how long the task would take if all of them worked on it, each at its own speed.
Multiplied by the number of these GPUs, this is the number of GPU-seconds of the task. The load of a
set of GPU types is

    GPU-seconds of the tasks that may use no other types / (GPUs of these types * period)

where the period is the time over which the jobs arrive (``ArrivalTimes.period_s``). Because n
arrivals have only n - 1 gaps, the period is one mean gap longer than the time from the first to the
last arrival. The offered load is the largest load over all sets of types. The tasks in a set can
run nowhere else, so if the load stays above 1, their queue grows for as long as jobs arrive, under
any policy. The load of all types together is the plain ratio of GPU-seconds, which the utilisation
of a long run approaches. On a cluster with one type, both loads are GPU-seconds / (GPUs * period).
The load of CPU cores is defined in the same way, with cores instead of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

import numpy as np

from dagsim.model import Cluster, GpuType, Job, Task
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.text import count_of
from dagsim.workload.arrays import JobArrays


class WorkRuntime(Protocol):
    """The part of a runtime model that workloads need
    (``dagsim.systems.cluster.models.runtime``)."""

    def seconds(self, task: Task, gpus: tuple[GpuType | None, ...]) -> tuple[float, ...]:
        """Return the seconds that one instance of ``task`` takes on each of ``gpus``, or ``inf``
        where it cannot run.
        """


_FULL = 1 + 1e-9
"""Highest load that machines can handle, plus a margin for rounding errors."""


@dataclass(slots=True)
class ArrivalTimes:
    """The first and the last arrival of jobs, and the period over which the jobs arrive.

    ``begins_s`` is a time from which all arrivals are known. Without it, a log begins with its
    first job. If ``whole`` is True, the period ends with the last arrival. This applies to
    generated jobs with ``load_mode: exact``, whose arrivals are stretched accordingly.
    """

    begins_s: float | None = None
    whole: bool = False
    first_s: float = inf
    last_s: float = 0.0
    jobs: int = 0
    instants: int = 0
    """Number of different times at which jobs arrive."""

    def add(self, arrival_s: float) -> None:
        """Add a job. Jobs must be added in order of arrival."""
        self.instants += not self.jobs or arrival_s != self.last_s
        self.first_s, self.last_s = min(self.first_s, arrival_s), arrival_s
        self.jobs += 1

    def add_all(self, arrival_s: np.ndarray) -> None:
        """Add jobs with these arrivals, (n,), which must be in order."""
        if len(arrival_s):
            self.add(float(arrival_s[0]))
            self.instants += int(np.count_nonzero(np.diff(arrival_s)))
            self.jobs += len(arrival_s) - 1
            self.last_s = float(arrival_s[-1])

    @property
    def span_s(self) -> float:
        """Seconds from the beginning to the last arrival, or 0 if there are no jobs."""
        return self.last_s - (self.first_s if self.begins_s is None else self.begins_s) if self.jobs else 0.0

    @property
    def period_s(self) -> float:
        """Seconds over which the jobs arrive. For a log, this is the span plus one mean gap, because n
        arrivals have only n - 1 gaps. Simultaneous arrivals count as one arrival. The period is 0
        if all arrivals are simultaneous.
        """
        if self.whole or self.begins_s is not None:
            return self.span_s
        return self.span_s * (self.instants / (self.instants - 1)) if self.instants > 1 else 0.0


@dataclass(frozen=True, slots=True)
class TypeLoad:
    """The load on a set of GPU types that is caused by the tasks that may use no other types."""

    types: tuple[str, ...]
    demand: float
    """Mean number of GPUs that these tasks would hold if none waited."""
    capacity: float
    """Number of GPUs of these types."""
    part: str = ""
    """The part of the cluster, such as a partition, to which these tasks are confined; empty for all nodes."""

    @property
    def load(self) -> float:
        """Demand per GPU."""
        return self.demand / self.capacity

    def __str__(self) -> str:
        nodes = f"{self.part}, {' or '.join(self.types)}" if self.part else " or ".join(self.types)
        return f"{nodes}: {self.demand:,.1f} of {self.capacity:,.10g} GPUs ({self.load:.3g})"


@dataclass(frozen=True, slots=True)
class Load:
    """The load that ``jobs`` jobs offer. ``cpu_load`` and ``gpu_load`` are ``inf`` if the period is
    0.
    """

    gpu_load: float
    """Largest load of any set of GPU types."""
    cpu_load: float
    span_s: float
    """Seconds from the first arrival, or from the beginning of the run, to the last arrival."""
    jobs: int
    sure: float = 0.0
    """Mean demand until the last arrival if no job had to wait, as a fraction of the scarcer
    resource. In contrast to the offered load, it leaves out work that is done after the last
    arrival. It is 0 if the offered load is at most 1."""
    by_types: tuple[TypeLoad, ...] = ()
    """The loads of sets of GPU types. The last entry is for all types together. If some tasks may
    not use all types, it follows entries for each type and for each set of types to which tasks are
    confined. Empty if the period is 0."""

    @property
    def offered(self) -> float:
        """The load on the scarcer resource, GPUs or cores."""
        return max(self.gpu_load, self.cpu_load)

    @property
    def keeps_up(self) -> bool:
        """True unless the queue certainly grows while jobs arrive, under any policy. If the load is
        above 1 only because of the work of the last jobs, the queue need not grow.
        """
        return self.offered <= _FULL or self.sure <= _FULL

    @property
    def warning(self) -> str | None:
        """A warning about a load above 1, or None."""
        if self.offered <= _FULL or self.jobs < 2:
            return None
        if self.offered == inf:
            return "all jobs arrive at the same time, so there is no offered load"
        if self.keeps_up:
            return (
                f"the jobs arrive within {self.span_s:,.0f} s, and part of their work is done later, so the "
                f"offered load of {self.offered:.3g} says little"
            )
        return (
            f"the offered load {self.offered:.3g}{self._scarce()} is above 1, so the queue grows under any policy "
            "while jobs arrive, and mean completion times depend on the number of jobs"
        )

    def _scarce(self) -> str:
        """Return a phrase that names the scarcest GPU types, unless these are all types in the
        cluster.
        """
        if len(self.by_types) < 2 or self.cpu_load > self.gpu_load:
            return ""
        scarcest = max(self.by_types, key=lambda part: part.load)
        return "" if scarcest is self.by_types[-1] else f" of {' or '.join(scarcest.types)}"

    def with_part(self, name: str, load: Load) -> Load:
        """Return this load combined with ``load``. The latter comes from the jobs that may use only
        one part of the cluster, which is called ``name``.
        """
        scarcest = max(load.by_types, key=lambda one: one.load, default=None)
        return replace(
            self,
            gpu_load=max(self.gpu_load, load.gpu_load),
            cpu_load=max(self.cpu_load, load.cpu_load),
            sure=max(self.sure, load.sure),
            by_types=(*([] if scarcest is None else [replace(scarcest, part=name)]), *self.by_types),
        )

    def __str__(self) -> str:
        of = "GPUs" if self.gpu_load >= self.cpu_load else "CPU cores"
        if self.offered == inf:
            return f"{count_of(self.jobs, 'job')} at once"
        return (
            f"offered load {self.offered:.3f} of the {of}: {count_of(self.jobs, 'job')} over {self.span_s / 3600:.2f} h"
        )


class _Resource:
    """The GPUs or cores on each GPU type, and how long tasks keep them busy."""

    def __init__(self, capacity: Sequence[float]) -> None:
        self.capacity = capacity
        self.busy_s: dict[int, float] = {}
        """For each set of types, the seconds for which the tasks that may use exactly these types
        keep all of them busy. A set is a whole number with a bit for each type."""

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
        """Add all tasks in one step, using the same operations in the same order as ``add``."""
        speed, types = np.zeros(len(amount)), np.zeros(len(amount), np.int64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            for place, units in enumerate(self.capacity):
                speed += units / seconds[:, place]
                types |= np.where((units > 0) & (seconds[:, place] < inf), 1 << place, 0)
            busy_s = amount / speed
        counted = (amount > 0) & (speed > 0) & ~(seconds == 0).any(axis=1)
        for of in sorted(set(types[counted].tolist())):  # np.unique would import numpy.ma (25 ms per start)
            mine = busy_s[counted & (types == of)]
            mine[0] += self.busy_s.get(of, 0.0)
            self.busy_s[of] = float(np.add.accumulate(mine)[-1])

    def units(self, types: int) -> float:
        """Return the number of GPUs or cores in a set of types."""
        return ordered_sum(units for place, units in enumerate(self.capacity) if types >> place & 1)

    def without(self, other: _Resource) -> _Resource:
        """Return a resource with the same capacity, whose busy times are reduced by those of
        ``other``.
        """
        rest = _Resource(self.capacity)
        rest.busy_s = {types: busy_s - other.busy_s.get(types, 0.0) for types, busy_s in self.busy_s.items()}
        return rest

    def confined(self, types: int) -> float:
        """Return the seconds for which the tasks that may only use the types in a set keep all
        units of these types busy.
        """
        total = self.units(types)
        return ordered_sum(
            busy_s if of == types else busy_s * (self.units(of) / total)
            for of, busy_s in self.busy_s.items()
            if not of & ~types
        )

    def scarcest(self) -> float:
        """Return the largest value of ``confined`` over all sets of types."""
        return max(map(self.confined, self._unions()), default=0.0)

    def _unions(self) -> Iterator[int]:
        """Yield the sets of types that may be the scarcest: the unions of overlapping sets. Unions
        of disjoint sets are left out, because their load is between the loads of these sets.
        """
        yield from (unions := dict.fromkeys(self.busy_s))
        fresh = list(unions)
        while fresh:
            joined = {one | other for one in fresh for other in self.busy_s if one & other} - unions.keys()
            unions |= dict.fromkeys(fresh := sorted(joined))
            yield from fresh


class LoadMeter:
    """A meter that adds up the time for which tasks would keep the GPUs and cores of a cluster
    busy. Adding a task takes about 2 microseconds.
    """

    def __init__(self, cluster: Cluster, runtime: WorkRuntime) -> None:
        self.arrivals = ArrivalTimes()
        self._runtime = runtime
        self._types = cluster.gpu_types
        gpus = dict.fromkeys([gpu and gpu.name for gpu in self._types], 0.0)
        cpus = dict(gpus)
        for node in cluster.nodes:
            name = node.gpu and node.gpu.name  # types with equal names are equal, and hashing a type is slower
            gpus[name] += node.gpus
            cpus[name] += node.cpus
        self._gpus, self._cpus = _Resource(list(gpus.values())), _Resource(list(cpus.values()))
        self._columns: list[tuple[JobArrays, np.ndarray]] = []
        self._latest: list[tuple[float, float, Job]] = []
        """Jobs that would still be running at the last arrival if none waited (and some that would
        not): when they end, how long they take, and the job."""
        self._tidy = 64
        """Number of such jobs above which those that have ended are dropped."""

    def add(self, job: Job) -> None:
        """Add ``job``. Jobs must be added in order of arrival. A task that cannot run anywhere on
        this cluster offers no load, because its job will be rejected.
        """
        self.arrivals.add(job.arrival_s)
        shortest_s = [self._add(task, self._gpus, self._cpus) for task in job.graph.tasks]
        path_s = shortest_s[0] if len(shortest_s) == 1 else job.graph.critical_path(shortest_s)
        self._latest.append((job.arrival_s + path_s, path_s, job))
        if len(self._latest) >= self._tidy:
            self._latest = [entry for entry in self._latest if entry[0] > job.arrival_s]
            self._tidy = 2 * len(self._latest) + 64

    def add_arrays(self, jobs: JobArrays, seconds: np.ndarray) -> None:
        """Add all of ``jobs`` in one step. The totals are the same as if the jobs were added one by
        one. ``seconds`` has the shape (n, GPU types).
        """
        self.arrivals.add_all(jobs.arrival_s)
        self._gpus.add_all(jobs.instances * jobs.asked("gpus"), seconds)
        self._cpus.add_all(jobs.instances * jobs.asked("cpus"), seconds)
        self._columns.append((jobs, seconds))

    def _add(self, task: Task, gpus: _Resource, cpus: _Resource, share: float = 1.0) -> float:
        """Add a share of ``task``. Return the seconds that the task takes on the fastest machines,
        or 0 if it cannot run on any.
        """
        seconds = self._runtime.seconds(task, self._types)
        if task.gpus:
            gpus.add(task.instances * task.gpus * share, seconds)
        if task.cpus:
            cpus.add(task.instances * task.cpus * share, seconds)
        shortest_s = min(seconds)
        return shortest_s if shortest_s < inf else 0.0

    def add_like(self, other: LoadMeter, tasks: float, of: int) -> None:
        """Add ``tasks`` tasks that resemble the ``of`` tasks in ``other``, a meter for the same
        cluster.
        """
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

    def load(self, arrivals: ArrivalTimes | None = None) -> Load:
        """Return the load of the added jobs. ``arrivals`` contains the arrivals of a larger set of
        jobs, to which the added jobs belong (default: the added jobs only).
        """
        arrivals = self.arrivals if arrivals is None else arrivals
        period_s, span_s = arrivals.period_s, arrivals.span_s
        by_types = tuple(self._by_types(period_s)) if period_s else ()
        gpu_load, cpu_load = _per(self.gpu_s, period_s), _per(self.cpu_s, period_s)
        above = _FULL < max(gpu_load, cpu_load) < inf
        sure = self._busy_until(arrivals.last_s) / span_s if above else 0.0
        return Load(gpu_load, cpu_load, span_s, self.arrivals.jobs, sure, by_types)

    def _busy_until(self, last_s: float) -> float:
        """Return the seconds before ``last_s`` for which the scarcer resource would be busy if no job
        waited. The work of a job is assumed to be spread evenly over its critical path.
        """
        gpus, cpus = _Resource(self._gpus.capacity), _Resource(self._cpus.capacity)
        for end_s, path_s, job in self._latest:
            if path_s and end_s > last_s:
                for task in job.graph.tasks:
                    self._add(task, gpus, cpus, min((end_s - last_s) / path_s, 1.0))
        for jobs, seconds in self._columns:
            shortest = seconds.min(axis=1)
            paths_s = jobs.critical_paths(np.where(shortest < inf, shortest, 0.0))
            after_s = np.clip(jobs.arrival_s + paths_s - last_s, 0.0, paths_s)
            share = np.repeat(after_s / np.where(paths_s > 0, paths_s, 1.0), np.diff(jobs.first))
            late = np.flatnonzero(share)
            gpus.add_all((jobs.instances * jobs.asked("gpus") * share)[late], seconds[late])
            cpus.add_all((jobs.instances * jobs.asked("cpus") * share)[late], seconds[late])
        return max(self._gpus.without(gpus).scarcest(), self._cpus.without(cpus).scarcest())

    def _by_types(self, period_s: float) -> Iterator[TypeLoad]:
        single = [1 << place for place, units in enumerate(self._gpus.capacity) if units]
        every, confined = whole_sum(single), self._gpus.busy_s.keys() - {whole_sum(single)}
        if confined:
            for types in dict.fromkeys([*single, *sorted(confined, key=lambda types: (types.bit_count(), types))]):
                yield self._type_load(types, period_s)
        if every:
            yield self._type_load(every, period_s)

    def _type_load(self, types: int, period_s: float) -> TypeLoad:
        names = [gpu.name for place, gpu in enumerate(self._types) if gpu is not None and types >> place & 1]
        capacity = self._gpus.units(types)
        return TypeLoad(tuple(names), self._gpus.confined(types) / period_s * capacity, capacity)


def seconds_of(jobs: JobArrays, runtime: WorkRuntime, types: tuple[GpuType | None, ...]) -> np.ndarray:
    """Return how many seconds an instance of each task takes on each of ``types``, (n, types)
    float64."""
    rates = getattr(runtime, "rates", None)
    if rates is None:
        rows = [runtime.seconds(task, types) for job in jobs.jobs() for task in job.tasks]
        return np.array(rows, float).reshape(-1, len(types))
    per_second = np.array([rates(task, types) for task in jobs.samples()], float).reshape(-1, len(types))[jobs.kind]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        seconds: np.ndarray = np.where(per_second, jobs.work[:, None] / per_second, inf)
    return seconds


def offered_load(jobs: Iterable[Job], cluster: Cluster, runtime: WorkRuntime, *, whole: bool = False) -> Load:
    """Compute the load that ``jobs``, in order of arrival, offer to ``cluster``. ``whole`` has the
    same meaning as in ``ArrivalTimes``.
    """
    meter = LoadMeter(cluster, runtime)
    meter.arrivals.whole = whole
    for job in jobs:
        meter.add(job)
    return meter.load()


def _per(busy_s: float, period_s: float) -> float:
    return busy_s / period_s if period_s else (inf if busy_s else 0.0)
