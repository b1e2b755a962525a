"""Clusters, whose nodes each have GPUs of one type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from dagsim.errors import ModelError, require
from dagsim.model.arithmetic import check_numbers, check_whole, ordered_sum
from dagsim.model.gpu import GpuType, gpu_type
from dagsim.model.mig import MIG_TABLES


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with ``gpus`` GPUs of one type (``gpu=None`` and 0 for a CPU machine), CPU cores,
    memory, and the features that jobs may request in a constraint. Slurm uses nodes with a smaller
    weight first. ``manifest`` is additional information about the node for a scheduler, in the
    scheduler's own form as canonical JSON (``canonical_json``). For Kubernetes, it contains labels,
    taints and additional resources.

    With ``mig_s``, tasks that request a fraction of a GPU get MIG partitions of it
    (``MIG_TABLES``). A partition is created when a task needs it, replacing partitions that no task
    uses. This takes ``mig_s`` seconds before the task begins.

    Raises:
        ModelError: A count or size is negative or not a number, there are GPUs without a type
            (or a type without GPUs), or the type cannot be partitioned.
    """

    name: str
    gpu: GpuType | None = None
    gpus: int = 0
    cpus: float = 0.0
    memory_gb: float = 0.0
    features: tuple[str, ...] = ()
    weight: float = 1.0
    mig_s: float | None = None
    manifest: str = ""

    def __post_init__(self) -> None:
        check_numbers(f"node {self.name!r}: ", self, ("gpus", "cpus", "memory_gb"))
        check_whole(f"node {self.name!r}: gpus", self.gpus)
        for name in ("gpus", "cpus", "memory_gb"):
            if not getattr(self, name) >= 0:
                raise ModelError(f"node {self.name!r}: {name} must not be negative, got {getattr(self, name)!r}")
        if (self.gpu is None) != (self.gpus == 0):
            raise ModelError(
                f"node {self.name!r}: a GPU type requires a GPU count above 0, and a GPU count requires a type"
            )
        if self.mig_s is not None:
            require(0 <= self.mig_s < inf, f"node {self.name!r}: mig_s must be 0 or more", self.mig_s, ModelError)
            if self.gpu is None or self.gpu.name not in MIG_TABLES:
                name = "CPU machine" if self.gpu is None else self.gpu.name
                raise ModelError(
                    f"node {self.name!r}: {name} does not support MIG, so leave out mig_s; types with "
                    f"MIG: {', '.join(MIG_TABLES)}"
                )


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes, numbered in the given order. The number of a node is its index in ``nodes``.

    Raises:
        ModelError: There are no nodes, two nodes have the same name, or two different GPU types
        have the same name.
    """

    nodes: tuple[Node, ...]
    name: str = "cluster"

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ModelError(f"cluster {self.name!r} has no nodes")
        if len({node.name for node in self.nodes}) != len(self.nodes):
            seen: set[str] = set()
            twice = next(node.name for node in self.nodes if node.name in seen or seen.add(node.name))  # type: ignore[func-returns-value]
            raise ModelError(f"cluster {self.name!r} has two nodes called {twice!r}")
        types: dict[str, GpuType] = {}
        for node in self.nodes:
            if node.gpu is not None and types.setdefault(node.gpu.name, node.gpu) != node.gpu:
                raise ModelError(f"cluster {self.name!r} has two different GPU types called {node.gpu.name!r}")

    @classmethod
    def of(
        cls,
        gpus: Mapping[str, int],
        *,
        per_node: int = 8,
        cpus_per_gpu: float = 12.0,
        memory_gb_per_gpu: float = 128.0,
        name: str = "cluster",
    ) -> Cluster:
        """Build a cluster from GPU counts by type, ``{"A100-40": 8, "T4": 16}``, on nodes with up
        to ``per_node`` GPUs.

        Raises:
            ModelError: A count is not a whole number of 0 or more, or there are no GPUs.
        """
        check_whole("per_node", per_node)
        nodes = []
        for type_name, count in gpus.items():
            gpu = gpu_type(type_name)
            check_whole(f"GPUs of type {type_name}", count)
            require(count >= 0, f"GPUs of type {type_name} must be 0 or more", count, ModelError)
            for first in range(0, count, per_node):
                size = min(per_node, count - first)
                label = f"{gpu.name.lower()}-{first // per_node}"
                nodes.append(Node(label, gpu, size, cpus_per_gpu * size, memory_gb_per_gpu * size))
        return cls(tuple(nodes), name)

    @property
    def gpu_types(self) -> tuple[GpuType | None, ...]:
        """Distinct node types in node order; None represents CPU machines."""
        return tuple(dict.fromkeys(node.gpu for node in self.nodes))

    @property
    def gpus(self) -> int:
        """Number of GPUs in the cluster."""
        return sum(node.gpus for node in self.nodes)

    @property
    def cpus(self) -> float:
        """Number of CPU cores in the cluster."""
        return ordered_sum(node.cpus for node in self.nodes)

    @property
    def memory_gb(self) -> float:
        """Memory of the cluster in GB."""
        return ordered_sum(node.memory_gb for node in self.nodes)

    def gpus_by_type(self) -> dict[str, int]:
        """Return the GPU counts by type name, in node order."""
        counts: dict[str, int] = {}
        for node in self.nodes:
            if node.gpu is not None:
                counts[node.gpu.name] = counts.get(node.gpu.name, 0) + node.gpus
        return counts

    def __str__(self) -> str:
        parts = [f"{count} x {name}" for name, count in self.gpus_by_type().items()]
        return f"{self.name} ({' + '.join(parts) or f'{self.cpus:g} CPUs'}, {len(self.nodes)} nodes)"
