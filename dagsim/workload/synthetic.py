"""Synthetic workloads: arrivals x shape x sizes, at a stated offered load, the same for every scheduler.

All chance comes from named streams of one seed (``arrivals``, ``shapes``, ``sizes/work``, ``priorities`` and so on):
another pattern of arrivals leaves the DAGs as they are, and the other way round.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from math import inf
from typing import Literal, NamedTuple

import numpy as np

from dagsim.errors import WorkloadError
from dagsim.model import Cluster, Edge, Job, Task, TaskGraph
from dagsim.model.streams import stream
from dagsim.workload.arrivals import Arrivals, Batch, Bursty
from dagsim.workload.distributions import Distribution
from dagsim.workload.load import LoadMeter, WorkRuntime
from dagsim.workload.measure import Measure, check_measure
from dagsim.workload.shapes import Parents, Shape, Single
from dagsim.workload.sizes import Draws, Independent, SizeColumns, Sizes

__all__ = ["Synthetic"]

_CHUNK = 1024  # jobs drawn at once
_MOST = 10_000_000
"""More jobs than this are a slip of the keyboard."""
_KEPT = 10_000  # jobs up to which what was drawn to know the load is kept instead of drawn again
_PILOT = 32_768  # jobs from which an expected load is estimated
_BURSTY, _SINGLE, _INDEPENDENT = Bursty(bursts=4, share=0.7, width=0.02), Single(), Independent()


class _Draft(NamedTuple):
    """A job before it has an arrival."""

    tasks: tuple[Task, ...]
    parents: Parents
    outputs: list[float] | None
    priority: float
    tenant: str
    slack: float | None


@dataclass(frozen=True, slots=True)
class Synthetic:
    """``count`` jobs that offer ``load`` to the cluster (``dagsim.workload.load`` says what that means).

    With ``load_is="exact"`` arrivals are stretched so that these very jobs, from the first arrival at 0 to the last,
    offer exactly ``load``. With ``"expected"`` the arrival rate is the same for every seed and the load is right on
    average, up to the error of a pilot of 32,768 jobs (1 to 2 %): choose it where arrivals should be truly Poisson.

    ``priority``: left out, what ``sizes`` give, else 0. ``tenants`` are equally likely. ``slack``: a job's deadline is
    its arrival plus so many times its ideal time, the critical path on the fastest GPUs it may use. ``output_gb`` goes
    over each edge.

    Raises:
        WorkloadError: No jobs, a load that is not positive; when asked for jobs, work that this cluster cannot do.
    """

    count: int = 100
    load: float = 0.9
    load_is: Literal["exact", "expected"] = "exact"
    arrivals: Arrivals = _BURSTY
    shape: Shape = _SINGLE
    sizes: Sizes = _INDEPENDENT
    priority: Distribution | None = None
    tenants: tuple[str, ...] = ()
    slack: Distribution | None = None
    output_gb: Distribution | None = None
    measure: Measure | None = None
    """Jobs by arrival that metrics count, ``[first, last]``; left out: all."""
    kind: Literal["synthetic"] = "synthetic"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.count > _MOST:
            raise WorkloadError(f"workload: count must be at most {_MOST:,}, got {self.count:,}")
        if self.count < 1:
            raise WorkloadError(f"workload: count must be at least 1, got {self.count!r}")
        if not 0 < self.load < inf:
            raise WorkloadError(f"workload: load must be above 0, got {self.load!r}")
        check_measure(self.measure, self.count)
        if self.load_is not in ("exact", "expected"):
            raise WorkloadError(f"workload: load_is must be exact or expected, got {self.load_is!r}")

    def jobs(self, cluster: Cluster, runtime: WorkRuntime, seed: int = 0) -> Iterator[Job]:
        """The jobs under ``seed`` in order of arrival, made as they are asked for.

        Knowing the exact load takes a pass over all tasks before the first job.
        """
        kept = list(self._drafts(_streams(seed), self.count)) if self.count <= _KEPT else None
        drafts = self._drafts(_streams(seed), self.count) if kept is None else kept
        times = self._times(cluster, runtime, seed, kept)
        types = cluster.gpu_types
        for number, (arrival_s, draft) in enumerate(zip(times.tolist(), drafts, strict=True)):
            graph = TaskGraph(draft.tasks, _edges(draft.parents, draft.outputs))
            deadline_s = None
            if draft.slack is not None:
                ideal_s = graph.critical_path([min(runtime.seconds(task, types)) for task in draft.tasks])
                deadline_s = arrival_s + draft.slack * ideal_s if ideal_s < inf else None
            yield Job(f"job-{number}", graph, arrival_s, draft.priority, draft.tenant, deadline_s)

    def _times(self, cluster: Cluster, runtime: WorkRuntime, seed: int, kept: list[_Draft] | None) -> np.ndarray:
        """Arrival times that offer the load asked for."""
        if isinstance(self.arrivals, Batch):
            return np.zeros(self.count)
        if self.load_is == "exact":
            drafts = self._drafts(_streams(seed), self.count) if kept is None else kept
            busy_s = _busy_s(drafts, cluster, runtime)
        else:
            busy_s = self.count * _expected_s(self, cluster, runtime)
        if not busy_s > 0:
            raise WorkloadError(f"workload: {cluster} can do nothing of this work, so that it has no load to set")
        span_s = busy_s / self.load
        times = self.arrivals.times(stream(seed, "arrivals"), self.count, span_s)
        if self.load_is == "expected":
            return times
        length = times[-1] - times[0]
        return np.asarray((times - times[0]) * (span_s / length if length else 0.0))

    def _drafts(self, rng: Draws, count: int) -> Iterator[_Draft]:
        for first in range(0, count, _CHUNK):
            jobs = min(_CHUNK, count - first)
            shapes = self.shape.draw(rng("shapes"), jobs)
            columns = self.sizes.draw(rng, sum(map(len, shapes)))
            tasks = _tasks(columns, shapes)
            priorities = None if self.priority is None else self.priority.draw(rng("priorities"), jobs).tolist()
            tenants = rng("tenants").integers(len(self.tenants), size=jobs).tolist() if self.tenants else None
            slacks = None if self.slack is None else self.slack.draw(rng("deadlines"), jobs).tolist()
            outputs = None
            if self.output_gb is not None:
                edges = sum(len(parents) for shape in shapes for parents in shape)
                outputs = iter(np.rint(1e9 * self.output_gb.draw(rng("outputs"), edges)).tolist())
            place = 0
            for job, shape in enumerate(shapes):
                start, place = place, place + len(shape)
                yield _Draft(
                    tuple(tasks[start:place]),
                    shape,
                    None if outputs is None else list(islice(outputs, sum(map(len, shape)))),
                    priorities[job] if priorities else columns.priority[start] if columns.priority else 0.0,
                    self.tenants[tenants[job]] if tenants else "",
                    slacks[job] if slacks else None,
                )


def _streams(seed: int, prefix: str = "") -> Draws:
    """The generators under ``seed`` by name, each made once."""
    return cache(lambda name: stream(seed, prefix + name))


def _tasks(columns: SizeColumns, shapes: list[Parents]) -> list[Task]:
    gang, gpu_types = columns.gang, columns.gpu_types
    names = [name for shape in shapes for name in _names(len(shape))]
    return [
        Task(name, work, instances, gang and instances > 1, gpus, cpus, memory_gb, gpu_types, None, model, None, claim)
        for name, work, instances, gpus, cpus, memory_gb, model, claim in zip(names, *columns[:7], strict=True)
    ]


def _expected_s(workload: Synthetic, cluster: Cluster, runtime: WorkRuntime) -> float:
    """Seconds for which an average job keeps the cluster busy; remembered where the runtime model can be a key."""
    if isinstance(runtime, Hashable):
        return _piloted_s(workload, cluster, runtime)
    return _piloted_s.__wrapped__(workload, cluster, runtime)


@lru_cache(maxsize=16)
def _piloted_s(workload: Synthetic, cluster: Cluster, runtime: WorkRuntime) -> float:
    return _busy_s(workload._drafts(_streams(0, "pilot/"), _PILOT), cluster, runtime) / _PILOT


def _busy_s(drafts: Iterable[_Draft], cluster: Cluster, runtime: WorkRuntime) -> float:
    meter = LoadMeter(cluster, runtime)
    for draft in drafts:
        for task in draft.tasks:
            meter.add(task)
    return meter.busy_s


def _edges(parents: Parents, outputs: list[float] | None) -> tuple[Edge, ...]:
    if outputs is None:
        return _plain_edges(parents)
    pairs = [(parent, child) for child, of in enumerate(parents) for parent in of]
    return tuple([Edge(*pair, size) for pair, size in zip(pairs, outputs, strict=True)])


@lru_cache(maxsize=4096)
def _plain_edges(parents: Parents) -> tuple[Edge, ...]:
    return tuple([Edge(parent, child) for child, of in enumerate(parents) for parent in of])


@lru_cache(maxsize=256)
def _names(count: int) -> tuple[str, ...]:
    return tuple([f"t{place}" for place in range(count)])
