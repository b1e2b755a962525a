"""Runtime models, which determine how long one instance of a task takes on each GPU type.

``Task.work`` is the work of each GPU in an instance, in the unit of the runtime model. The GPUs of
an instance work in parallel. A task that uses a fraction of a GPU runs at its measured speed,
because sharing is assumed not to slow it down.

One speed per GPU type is a simplification. For example, in measurements, a V100 trained BERT 2.6
times as fast as a T4, and an A100 5.2 times as fast. For DeepSpeech2, these factors are only 2.3
and 1.5 (Sia, SOSP 2023, largest batch that all three ran). ``Flops`` and ``Recorded`` have one speed per
type, whereas ``Throughput`` has one per model and type. A task's own ``speeds`` override every
model on the types that they name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from dagsim.errors import ModelError, require
from dagsim.model import Cluster, Job, Task, TaskGraph, gpu_type
from dagsim.model.gpu import GpuType, canonical
from dagsim.model.mig import named_types
from dagsim.systems.cluster.models.throughputs import ThroughputTable, shipped_throughputs

Gpus: TypeAlias = tuple[GpuType | None, ...]
"""GPU types in some order; ``None`` represents a CPU machine."""

_Rates: TypeAlias = tuple[float, ...]
"""Units of work per second, by GPU type; 0 where a task cannot run."""


class Runtime(Protocol):
    """The interface for runtime models."""

    def seconds(self, task: Task, gpus: Gpus) -> tuple[float, ...]:
        """Return the seconds that one instance of ``task`` takes on each of ``gpus``.

        The value is ``inf`` where the task cannot run. This is the case for a GPU task on a CPU
        machine, and for any task on a type that is not in its ``gpu_types``. Pass the same tuple
        object each time, because rates are cached by its identity.
        """


@runtime_checkable
class HasRates(Runtime, Protocol):
    """A runtime model that is defined by rates: a task takes as many seconds as its work divided by
    its rate. All tasks of the same kind have the same rate.
    """

    def seconds(self, task: Task, gpus: Gpus) -> tuple[float, ...]:
        """See ``Runtime``."""

    def rates(self, task: Task, gpus: Gpus) -> tuple[float, ...]:
        """Return the units of work per second that a task of this kind does on each of ``gpus``, or
        0 where it cannot run.
        """


class _ByType(ABC):
    """The base class of models that divide work by a rate. It caches the rates for each kind of
    task. Their method ``seconds`` is called for every task, so it must be fast.

    ``_known`` finds the GPU types by identity, because hashing a GPU type would cost more than
    everything else. It is not a field of the models, so that the models remain plain values. In a
    copy of a model, it is empty.
    """

    __slots__ = ("_known",)
    _known: dict[int, tuple[Gpus, dict[Hashable, _Rates]]]

    @abstractmethod
    def _rate(self, task: Task, gpu: GpuType | None) -> float:
        """Return the units of work per second on ``gpu``, which can run the task."""

    def seconds(self, task: Task, gpus: Gpus) -> tuple[float, ...]:
        work = task.work
        if task.speeds and task.gpus:
            rates = self._rates(task, gpus, task.speeds)
        # ``rates`` is inlined here, because this code runs once per task
        else:
            held = self._known.get(id(gpus)) or self._adopt(gpus)
            key = task.demand if task.model is None else (task.demand, task.model, task.batch)
            rates = held[1].get(key) or held[1].setdefault(key, self._rates(task, gpus, {}))
        if len(rates) == 1:
            return (work / rates[0] if rates[0] else inf,)
        return tuple([work / rate if rate else inf for rate in rates])

    def rates(self, task: Task, gpus: Gpus) -> tuple[float, ...]:
        """Return the units of work per second that a task of this kind does on each of ``gpus``, or
        0 where it cannot run.
        """
        if task.speeds and task.gpus:
            return self._rates(task, gpus, task.speeds)
        held = self._known.get(id(gpus)) or self._adopt(gpus)
        key = task.demand if task.model is None else (task.demand, task.model, task.batch)
        rates = held[1].get(key)
        return rates if rates is not None else held[1].setdefault(key, self._rates(task, gpus, {}))

    def _adopt(self, gpus: Gpus) -> tuple[Gpus, dict[Hashable, _Rates]]:
        if len(self._known) >= 64:  # so many entries mean that the caller creates a new tuple for every call
            self._known.clear()
        rates = next((rates for types, rates in self._known.values() if types == gpus), {})
        # the tuple is stored so that it stays alive and its id is not reused
        held = self._known[id(gpus)] = (gpus, rates)
        return held

    def _rates(self, task: Task, gpus: Gpus, speeds: Mapping[str, float]) -> _Rates:
        allowed = None if task.gpu_types is None else named_types(task.gpu_types)
        rates = []
        for gpu in gpus:
            if (gpu is None and (task.gpus or allowed)) or (gpu and allowed and gpu.name not in allowed):
                rates.append(0.0)
            elif gpu and (own := _own(speeds, gpu)) is not None:
                if not own >= 0:
                    raise ModelError(f"task {task.name!r}: its speed on {gpu.name} must be 0 or more, got {own!r}")
                rates.append(own)
            else:
                rates.append(self._rate(task, gpu))
        return tuple(rates)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Flops(_ByType):
    """A runtime model in which work is measured in TFLOP. A GPU does this work at a fixed fraction
    of its peak rate.

    Raises:
        ModelError: A precision is unknown, an efficiency is outside (0, 1], or a CPU rate is not
            positive.
    """

    precision: Literal["fp32", "tf32", "fp16"] = "tf32"
    """Precision whose peak rate is used. If a GPU does not support it, the next slower one is used."""
    efficiency: float = 0.35
    """Fraction of the peak rate that tasks achieve."""
    cpu_tflops_per_core: float = 0.08
    """Peak rate of a core in TFLOPS, for CPU-only tasks. A task uses the cores that it requests, or
    one core. The default corresponds to an AVX2 core: 2 fused multiply-adds of 8 FP32 lanes per cycle
    (32 FLOP) at 2.5 GHz.
    """
    kind: Literal["flops"] = "flops"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _check("flops", "precision", self.precision, "fp32", "tf32", "fp16")
        if not 0 < self.efficiency <= 1:
            raise ModelError(f"runtime flops: efficiency must be above 0 and at most 1, got {self.efficiency!r}")
        if not 0 < self.cpu_tflops_per_core < inf:
            raise ModelError(f"runtime flops: cpu_tflops_per_core must be positive, got {self.cpu_tflops_per_core!r}")
        object.__setattr__(self, "_known", {})

    def __str__(self) -> str:
        return f"work in TFLOP at {self.efficiency:.0%} of each GPU's peak {self.precision.upper()} rate"

    def _rate(self, task: Task, gpu: GpuType | None) -> float:
        if gpu is None or not task.gpus:
            return self.efficiency * self.cpu_tflops_per_core * max(task.cpus, 1.0)
        return self.efficiency * gpu.tflops(self.precision)


@dataclass(frozen=True, slots=True)
class Recorded(_ByType):
    """A runtime model in which work is the run time in seconds on the GPU type ``reference``. For
    other types, it is scaled by the ratio of their peak rates.

    ``scale`` is the precision at which the peak rates are compared. With ``none``, tasks take the
    same time on all types. Without a reference, it is unknown on which type the seconds were
    measured, so every type has speed 1. CPU-only tasks take the same time on any machine.

    Raises:
        ModelError: The reference type or the scale is unknown.
    """

    reference: str | None = None
    """The GPU type on which the seconds of work were measured."""
    scale: Literal["fp32", "tf32", "fp16", "none"] = "fp32"
    kind: Literal["recorded"] = "recorded"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.reference is not None:
            gpu_type(self.reference)
        _check("recorded", "scale", self.scale, "fp32", "tf32", "fp16", "none")
        object.__setattr__(self, "_known", {})

    def __str__(self) -> str:
        if self.reference is None:
            return "recorded seconds, measured on an unknown GPU type: every type runs at speed 1"
        if self.scale == "none":
            return f"seconds recorded on {self.reference}, the same on every type"
        return f"seconds recorded on {self.reference}, scaled by peak {self.scale.upper()} rates"

    def _rate(self, task: Task, gpu: GpuType | None) -> float:
        if gpu is None or not task.gpus or self.reference is None or self.scale == "none":
            return 1.0
        return gpu.tflops(self.scale) / gpu_type(self.reference).tflops(self.scale)


@dataclass(frozen=True, slots=True)
class Throughput(_ByType):
    """A runtime model in which work is the run time in seconds on the GPU type ``reference``. For
    other types, it is scaled by the measured throughputs of the task's model.

    A task with a ``batch`` is scaled with the throughputs at that batch size. For other tasks,
    ``batch="common"`` compares two types at the largest batch size measured on both, and
    ``batch="best"`` at the fastest batch size of each type (so that a larger memory counts as
    speed). ``table`` can be a CSV file of your own, which replaces the shipped one. It is an error
    if a model or type is missing from the table, or if a task has no model. With
    ``missing="flops"``, such tasks are scaled by peak FP32 rates instead. CPU-only tasks take the
    same number of seconds on any machine.

    Raises:
        ModelError: The reference or an option is unknown or, on use, the table lacks a model or
            type.
        ConfigError: On first use, the table cannot be read.
    """

    reference: str = "V100-16"
    """The GPU type on which the seconds of work were measured."""
    batch: Literal["common", "best"] = "common"
    """Batch sizes at which two types are compared if a task does not give a batch size: the largest
    that was measured on both types (``common``), or the fastest on each type (``best``).
    """
    missing: Literal["error", "flops"] = "error"
    """What happens to tasks that the table does not cover: they are an error, or their run times
    are scaled by peak FP32 rates (``flops``).
    """
    table: str | None = None
    """CSV file with throughputs that replaces the shipped table."""
    kind: Literal["throughput"] = "throughput"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        gpu_type(self.reference)
        _check("throughput", "batch", self.batch, "common", "best")
        _check("throughput", "missing", self.missing, "error", "flops")
        object.__setattr__(self, "_known", {})

    def __str__(self) -> str:
        return f"seconds on {self.reference}, scaled by each model's throughputs in {self.table or 'the shipped table'}"

    def _rate(self, task: Task, gpu: GpuType | None) -> float:
        if gpu is None or not task.gpus:
            return 1.0
        reference = gpu_type(self.reference)
        if task.model is not None and (ratio := self._ratio(task.model, task.batch, gpu, reference)) is not None:
            return ratio
        if self.missing == "flops":
            return gpu.fp32_tflops / reference.fp32_tflops
        if task.model is None:
            raise ModelError(
                f"task {task.name!r} has no model to look up in the throughput table; give it a model, or "
                "set runtime.missing=flops"
            )
        at = "" if task.batch is None else f" at batch {task.batch}"
        raise ModelError(
            f"task {task.name!r}: model {task.model!r} has no measured speed{at} on {gpu.name} or on the reference "
            f"{reference.name}; set runtime.missing=flops to scale by the GPUs' peak rates instead, "
            "give the task's speeds, or leave this GPU type out of the task's gpu_types"
        )

    def _ratio(self, model: str, batch: int | None, gpu: GpuType, reference: GpuType) -> float | None:
        table = shipped_throughputs() if self.table is None else _table(self.table)
        if batch is None and self.batch == "best":
            return table.best_ratio(model, gpu, reference)
        return table.ratio(model, gpu, reference, batch)


_LEAST_CORES = 1.0
"""Minimum number of cores per GPU in a sensitive choice."""
_MOST_CORES = 2.0
"""The maximum, as a multiple of the proportional share."""


class Feed(NamedTuple):
    """The resources that a model needs so that a GPU of the reference type never waits for samples:
    ``cpus`` cores per GPU, and ``memory_gb`` of host memory per GPU, in which all data is cached.
    If no data is cached, the storage can supply the fraction ``uncached`` of the full speed.
    """

    cpus: float = 0.0
    memory_gb: float = 0.0
    uncached: float = 1.0


@dataclass(frozen=True, slots=True)
class Fed(_ByType):
    """A runtime model in which GPUs have to be fed with data. It extends the model ``base``: a task
    also runs more slowly if it has too few cores or too little memory for its model (based on
    Synergy, Mohan et al., OSDI 2022).

    A GPU trains no faster than its cores can prepare samples, and no faster than memory and storage
    can supply them. A task runs at the lowest of three rates: the GPU's own rate, the rate of the
    ``reference`` type times cores / ``cpus``, and the rate of the reference type times ``uncached``
    / (1 - cached part). A faster GPU therefore needs more cores. Models without a feed, and tasks
    that state no cores or no memory, are not slowed down in this way. A task's own ``speeds`` apply
    as measured.

    ``cores`` sets how many cores each task with whole GPUs is given when it arrives. With
    ``asked``, it gets as many cores as it requests. With ``proportional``, the number is in
    proportion to its share of the node's GPUs. With ``sensitive``, it gets as many cores as its
    model needs on the fastest GPU type, but at least 1 per GPU and at most twice the proportional
    share. Models that need few cores therefore leave cores to models that need many, as with
    Synergy's best-case demands. Tasks with other models get the proportional share.

    Raises:
        ModelError: The reference type is unknown, or an amount is negative.
    """

    models: Mapping[str, Feed]
    """What each model needs for full speed: the cores per GPU and the GB of memory per GPU. The
    third value is the fraction of full speed that remains without any cached data.
    """
    base: Recorded | Throughput | Flops = field(default_factory=Throughput)
    """The runtime model that applies if the task has enough cores and memory."""
    reference: str = "V100-16"
    """The GPU type to which the values in ``models`` refer."""
    cores: Literal["asked", "proportional", "sensitive"] = "asked"
    """How many cores each task with whole GPUs gets when it arrives: as many as it requests
    (``asked``), its proportional share of the node (``proportional``), or as many as its model
    needs (``sensitive``).
    """
    kind: Literal["fed"] = "fed"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        gpu_type(self.reference)
        for model, feed in self.models.items():
            if not (min(feed) >= 0 and max(feed) < inf and 0 < feed.uncached <= 1):
                raise ModelError(
                    f"runtime fed: {model}: cpus and memory_gb must be 0 or more, and uncached above 0 and up to 1, "
                    f"got {feed.cpus!r}, {feed.memory_gb!r} and {feed.uncached!r}"
                )
        object.__setattr__(self, "_known", {})

    def __hash__(self) -> int:
        return hash((frozenset(self.models.items()), self.base, self.reference, self.cores))

    def __str__(self) -> str:
        return f"{self.base}; limited by cores and host memory for {', '.join(self.models)}"

    def job(self, job: Job, cluster: Cluster) -> Job:
        """Return the job with the numbers of cores that its tasks get according to ``cores``."""
        if self.cores == "asked":
            return job
        tasks = [self._allotted(task, cluster) for task in job.graph.tasks]
        return replace(job, graph=TaskGraph(tuple(tasks), job.graph.edges))

    def _allotted(self, task: Task, cluster: Cluster) -> Task:
        """Return the task with its number of cores, which is proportional to its GPUs or depends on
        how many cores its model needs.
        """
        allowed = None if task.gpu_types is None else named_types(task.gpu_types)
        nodes = [node for node in cluster.nodes if node.gpu and (allowed is None or node.gpu.name in allowed)]
        if task.gpus < 1 or not nodes:
            return task
        cores = min([node.cpus / node.gpus for node in nodes])
        feed = self.models.get(task.model or "")
        if self.cores == "sensitive" and feed is not None:
            fastest = max([self.base._rate(task, gpu) for gpu in {node.gpu for node in nodes}])
            needed = feed.cpus * fastest / self.base._rate(task, gpu_type(self.reference))
            cores = min(max(needed, _LEAST_CORES), _MOST_CORES * cores)
        return replace(task, cpus=cores * task.gpus)

    def _rate(self, task: Task, gpu: GpuType | None) -> float:
        rate, feed = self.base._rate(task, gpu), self.models.get(task.model or "")
        if gpu is None or not task.gpus or feed is None:
            return rate
        reference = self.base._rate(task, gpu_type(self.reference))
        if feed.cpus and task.cpus:
            rate = min(rate, reference * task.cpus / task.gpus / feed.cpus)
        missing = 1 - task.memory_gb / task.gpus / feed.memory_gb if feed.memory_gb and task.memory_gb else 0.0
        return min(rate, reference * feed.uncached / missing) if missing > 0 else rate


def _own(speeds: Mapping[str, float], gpu: GpuType) -> float | None:
    """Return the rate that the task itself states for ``gpu``, under any name of this GPU type, or
    None if it states none.
    """
    if gpu.name in speeds:
        return speeds[gpu.name]
    return next((rate for name, rate in speeds.items() if canonical(name) == gpu.name), None)


def _check(model: str, name: str, value: str, *allowed: str) -> None:
    require(value in allowed, f"runtime {model}: {name} must be one of {', '.join(allowed)}", value, ModelError)


@cache
def _table(path: str) -> ThroughputTable:
    return ThroughputTable.read(Path(path))
