"""Jobs and their tasks: what users submit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, isfinite
from typing import NamedTuple

from dagsim.errors import ModelError
from dagsim.model.graph import TaskGraph

__all__ = ["Demand", "Job", "Task"]


class Demand(NamedTuple):
    """The resources that one instance of a task occupies while it runs; tasks of equal demand are interchangeable to a
    node."""

    gpus: float = 1.0
    cpus: float = 0.0
    memory_gb: float = 0.0
    gpu_types: tuple[str, ...] | None = None


@lru_cache(maxsize=65536)
def _demand(gpus: float, cpus: float, memory_gb: float, gpu_types: tuple[str, ...] | None) -> Demand:
    """The demand, checked once per distinct value and shared by all tasks that ask the same."""
    if not (gpus >= 0 and isfinite(gpus) and (gpus <= 1 or gpus == int(gpus))):
        raise ModelError(f"gpus must be 0, a fraction up to 1 or a whole number, got {gpus!r}")
    if not (cpus >= 0 and isfinite(cpus)):
        raise ModelError(f"cpus must be 0 or more, got {cpus!r}")
    if not (memory_gb >= 0 and isfinite(memory_gb)):
        raise ModelError(f"memory_gb must be 0 or more, got {memory_gb!r}")
    if gpu_types is not None and not gpu_types:
        raise ModelError("gpu_types must name at least one GPU type, or be left out for any")
    return Demand(gpus, cpus, memory_gb, gpu_types)


@dataclass(frozen=True, slots=True)
class Task:
    """A vertex of a job's DAG: ``instances`` identical parallel pieces of ``work`` each.

    ``work`` is per instance and in the unit of the runtime model: TFLOP, or seconds on the reference GPU. ``speeds`` is
    the task's own rate by GPU type in units of work per second and overrides the model's. ``gpus`` per instance is 0
    (CPU only), a fraction of one GPU, or a whole number on one node; what spans nodes is a ``gang``, whose instances
    start together, on one GPU type. ``model`` and ``batch`` name a row of the throughput table. ``estimate`` is what
    the user claimed the work to be (a batch system's requested time), for policies that may not see the truth.

    Raises:
        ModelError: Negative or non-finite work, no instances, impossible demands.
    """

    name: str
    work: float
    instances: int = 1
    gang: bool = False
    gpus: float = 1.0
    cpus: float = 0.0
    memory_gb: float = 0.0
    gpu_types: tuple[str, ...] | None = None
    speeds: Mapping[str, float] | None = None
    model: str | None = None
    batch: int | None = None
    estimate: float | None = None
    demand: Demand = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            if not 0 <= self.work < inf:
                raise ModelError(f"work must be 0 or more, got {self.work!r}")
            if self.instances < 1:
                raise ModelError(f"instances must be at least 1, got {self.instances!r}")
            object.__setattr__(self, "demand", _demand(self.gpus, self.cpus, self.memory_gb, self.gpu_types))
        except ModelError as error:
            raise ModelError(f"task {self.name!r}: {error}") from None


@dataclass(frozen=True, slots=True)
class Job:
    """A DAG of tasks that arrives at ``arrival_s``; done when all its tasks are.

    ``priority``: larger is more urgent. ``deadline_s`` is a point in time, not a span. ``weight`` is what a second of
    this job's waiting costs. ``observed_start_s``, ``eligible_s`` and ``observed_nodes`` are what the log of a real
    cluster says of it: when it started there (in the attempt that is kept), since when it could have, and where.
    ``user``, ``account``, ``partition`` (a batch system's queue) and ``qos`` are what it was submitted with, where that
    is known; metrics go by ``tenant``.

    Raises:
        ModelError: Negative arrival, a deadline or an observation before it, or a weight that is not positive.
    """

    id: str
    graph: TaskGraph
    arrival_s: float = 0.0
    priority: float = 0.0
    tenant: str = ""
    deadline_s: float | None = None
    weight: float = 1.0
    observed_start_s: float | None = None
    eligible_s: float | None = None
    observed_nodes: tuple[str, ...] = ()
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.arrival_s < inf:
            raise ModelError(f"job {self.id!r}: arrival_s must be 0 or more, got {self.arrival_s!r}")
        if self.deadline_s is not None and not self.deadline_s >= self.arrival_s:
            raise ModelError(
                f"job {self.id!r}: deadline_s {self.deadline_s!r} lies before its arrival {self.arrival_s!r}"
            )
        if self.observed_start_s is not None or self.eligible_s is not None:
            self._check_observed()
        if not 0 < self.weight < inf:
            raise ModelError(f"job {self.id!r}: weight must be positive, got {self.weight!r}")

    @classmethod
    def single(cls, id: str, task: Task, arrival_s: float = 0.0, **rest: object) -> Job:
        """A job of one task."""
        return cls(id, TaskGraph((task,)), arrival_s, **rest)  # type: ignore[arg-type]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The job's tasks, in the order of its graph."""
        return self.graph.tasks

    def _check_observed(self) -> None:
        for name in ("observed_start_s", "eligible_s"):
            value = getattr(self, name)
            if value is not None and not self.arrival_s <= value < inf:
                raise ModelError(f"job {self.id!r}: {name} {value!r} lies before its arrival {self.arrival_s!r}")
