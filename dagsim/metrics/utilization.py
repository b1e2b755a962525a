"""Utilisation of the cluster: GPU-seconds held, idle and down, per GPU type and over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dagsim.metrics.columns import Floats, Ints, ScheduleColumns, Source, columns, total
from dagsim.metrics.steps import Steps
from dagsim.model import Cluster, GpuType

__all__ = [
    "GpuSeconds",
    "availability",
    "flops_utilization",
    "gpu_seconds",
    "gpu_utilization",
    "gpus_held",
    "gpus_up",
    "node_types",
    "utilization_by_type",
]


@dataclass(frozen=True, slots=True, eq=False)
class GpuSeconds:
    """GPU-seconds in the window per GPU type, in node order. capacity = held + idle + down."""

    types: tuple[GpuType, ...]
    gpus: Floats
    capacity: Floats
    """GPUs x horizon."""
    held: Floats
    """GPUs held by runs, integrated over time. A shared GPU counts by the fractions held."""
    down: Floats
    """GPU-seconds on nodes that were down."""

    @property
    def idle(self) -> Floats:
        """GPU-seconds up, but held by no run."""
        return self.capacity - self.down - self.held


def gpu_seconds(source: Source) -> GpuSeconds:
    """Compute the GPU-seconds that utilisation and energy share. O(runs)."""
    cols = columns(source)
    types, type_of = node_types(cols.cluster)
    size = np.array([node.gpus for node in cols.cluster.nodes], float)
    gpus = _per_type(type_of, size, types)
    held = cols.runs.held * cols.within(cols.runs.start_s, cols.runs.end_s)
    down = size[cols.outages.node] * cols.within(cols.outages.start_s, cols.outages.end_s)
    return GpuSeconds(
        types=types,
        gpus=gpus,
        capacity=gpus * cols.horizon_s,
        held=_per_type(type_of[cols.runs.node], held, types),
        down=_per_type(type_of[cols.outages.node], down, types),
    )


def gpu_utilization(source: Source) -> float:
    """GPU-hour utilisation: GPU-seconds held / (GPUs x horizon). GPUs that are down stay in the denominator."""
    spent = gpu_seconds(source)
    return _share(spent.held.sum(), spent.capacity.sum())


def flops_utilization(source: Source, precision: str = "fp32") -> float:
    """``gpu_utilization`` with each GPU weighted by its peak TFLOPS: an idle A100 counts more than
    an idle T4.
    """
    spent = gpu_seconds(source)
    tflops = np.array([gpu.tflops(precision) for gpu in spent.types])
    return _share(spent.held @ tflops, spent.capacity @ tflops)


def utilization_by_type(source: Source) -> dict[str, float]:
    """GPU-hour utilisation of each GPU type."""
    spent = gpu_seconds(source)
    return {gpu.name: _share(held, of) for gpu, held, of in zip(spent.types, spent.held, spent.capacity, strict=True)}


def availability(source: Source) -> float:
    """GPU-seconds up / (GPUs x horizon)."""
    spent = gpu_seconds(source)
    return _share(spent.capacity.sum() - spent.down.sum(), spent.capacity.sum())


def gpus_held(source: Source, gpu_type: str | None = None) -> Steps:
    """GPUs held by runs, of one type or of all, over the window."""
    cols = columns(source)
    chosen = _nodes_of(cols, gpu_type)[cols.runs.node]
    runs = cols.runs
    return Steps.of(runs.start_s[chosen], runs.end_s[chosen], runs.held[chosen], window=(cols.start_s, cols.end_s))


def gpus_up(source: Source, gpu_type: str | None = None) -> Steps:
    """GPUs on nodes that are up, of one type or of all, over the window."""
    cols = columns(source)
    chosen = _nodes_of(cols, gpu_type)
    size = np.array([node.gpus for node in cols.cluster.nodes], float) * chosen
    outages = cols.outages
    start_s = np.append(outages.start_s, cols.start_s)
    end_s = np.append(outages.end_s, cols.end_s)
    return Steps.of(start_s, end_s, np.append(-size[outages.node], size.sum()), window=(cols.start_s, cols.end_s))


def node_types(cluster: Cluster) -> tuple[tuple[GpuType, ...], Ints]:
    """Return the cluster's GPU types in node order, and the index of each node's type (-1 for a CPU
    machine).
    """
    types = tuple(gpu for gpu in cluster.gpu_types if gpu is not None)
    place = {gpu.name: index for index, gpu in enumerate(types)}
    return types, np.array([place[node.gpu.name] if node.gpu else -1 for node in cluster.nodes])


def _nodes_of(cols: ScheduleColumns, gpu_type: str | None) -> np.ndarray:
    """True for nodes that have GPUs of the type, or any GPUs."""
    return np.array([node.gpu is not None and gpu_type in (None, node.gpu.name) for node in cols.cluster.nodes])


def _per_type(type_of: Ints, weight: Floats, types: tuple[GpuType, ...]) -> Floats:
    with_gpu = type_of >= 0
    return total(type_of[with_gpu], weight[with_gpu], len(types))


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else float("nan")
