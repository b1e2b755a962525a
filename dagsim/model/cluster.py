"""Clusters. Each node in a cluster has GPUs of a single type."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import inf, isfinite
from typing import ClassVar, Literal

from dagsim.errors import ModelError, require
from dagsim.model.arithmetic import check_numbers, check_whole, ordered_sum, store_whole, whole_sum
from dagsim.model.gpu import GpuType, gpu_type
from dagsim.model.mig import MIG_TABLES
from dagsim.text import count_of


class PowerState(IntEnum):
    """The power states of a node that is only switched on when it is needed."""

    OFF = 0
    """The node is off and costs nothing."""
    BOOTING = 1
    """The node is booting, and cannot run anything yet."""
    UP = 2
    """The node is up."""
    STOPPING = 3
    """The node is being powered down, and cannot run anything."""


@dataclass(frozen=True, slots=True)
class OnDemand:
    """The rule that determines when an idle node is powered down and when it is powered up again.

    A node that is off costs nothing. With ``trigger="placed"``, a policy may place tasks on a node
    that is off, as Slurm does. While the node boots, these tasks occupy its resources. They start
    when the node is up. With ``trigger="pending"``, no task can be placed on a node that is off.
    Instead, the node boots if a waiting task does not fit on any node that is up, as with
    Kubernetes' cluster autoscaler. This is checked every ``scan_s`` seconds.

    Raises:
        ModelError: A time, a price or a power is negative or not a number, or there is no boot
            time.
    """

    boot_s: float | tuple[float, ...] = 300.0
    """Duration of a boot in seconds, or a list of durations, from which one is drawn for each boot."""
    idle_s: float | None = 600.0
    """Number of seconds without a task after which the node is powered down (``SuspendTime``). With
    None, it is never powered down."""
    shutdown_s: float = 0.0
    """Time in seconds that it takes to power the node down (``SuspendTimeout``). Meanwhile, no task
    can be placed on the node."""
    trigger: Literal["placed", "pending"] = "placed"
    """When the node boots: as soon as a task is ``placed`` on it, or when a ``pending`` task fits on no other node."""
    scan_s: float = 10.0
    """Time in seconds between two checks for pending tasks."""
    up: bool = False
    """True if the node is up at the beginning."""
    price_per_h: float | None = None
    """Price per hour of a node that is not powered off, in any currency."""
    off_watts: float = 0.0
    """Power in watts that the node draws while it is off."""
    min_nodes: int = 0
    """Number of nodes that stay up even if they are idle, out of all nodes with the same rule and
    the same resources."""
    boots_a_minute: int = 0
    """Number of nodes that may begin to boot per minute (``ResumeRate``), or 0 for no limit."""
    stops_a_minute: int = 0
    """Number of idle nodes that may be powered down per minute (``SuspendRate``), or 0 for no limit."""
    failing: float = 0.0
    """Share of boots that fail."""
    timeout_s: float = 600.0
    """Number of seconds after which an unfinished boot is considered failed (``ResumeTimeout``).
    The node is then down, and its tasks return to the queue."""
    repair_s: float | None = None
    """Time in seconds until a node is repaired after a failed boot. With None, it is never repaired."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        times = {"idle_s": self.idle_s, "shutdown_s": self.shutdown_s, "price_per_h": self.price_per_h}
        times |= {"timeout_s": self.timeout_s, "repair_s": self.repair_s, "min_nodes": self.min_nodes}
        times |= {"boots_a_minute": self.boots_a_minute, "stops_a_minute": self.stops_a_minute}
        times |= {"off_watts": self.off_watts} | {f"boot_s[{at}]": one for at, one in enumerate(self.boots_s)}
        for name, value in times.items():
            if value is not None and not (value >= 0 and isfinite(value)):
                name = name if isinstance(self.boot_s, tuple) else name.removesuffix("[0]")
                raise ModelError(f"on_demand: {name} must be a number of 0 or more, got {value!r}")
        require(0 < self.scan_s < inf, "on_demand: scan_s must be positive", self.scan_s, ModelError)
        require(0 <= self.failing <= 1, "on_demand: failing must be a share from 0 to 1", self.failing, ModelError)
        if not self.boots_s:
            raise ModelError("on_demand: boot_s must contain at least one time")
        if self.trigger not in ("placed", "pending"):
            raise ModelError(f"on_demand: trigger must be placed or pending, got {self.trigger!r}")

    @property
    def boots_s(self) -> tuple[float, ...]:
        """The possible durations of a boot in seconds. One of them is drawn for each boot."""
        return self.boot_s if isinstance(self.boot_s, tuple) else (self.boot_s,)

    def is_open(self, state: int) -> bool:
        """Return True if tasks may be placed on a node in this power state."""
        return state == PowerState.UP or (self.trigger == "placed" and state != PowerState.STOPPING)

    @property
    def mean_boot_s(self) -> float:
        """The expected duration of a boot. A scheduler has no other information about how long a
        boot takes.
        """
        return ordered_sum(self.boots_s) / len(self.boots_s)


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with ``gpus`` GPUs of one type, CPU cores, memory, and features that jobs may
    require in a constraint. A machine without GPUs has ``gpu=None`` and ``gpus=0``. Slurm uses
    nodes with a smaller weight first. ``manifest`` is additional information about the node for a
    particular scheduler, in the scheduler's own format, as canonical JSON (``canonical_json``). For
    Kubernetes, it contains labels, taints and additional resources.

    With ``mig_s``, tasks that request a fraction of a GPU get MIG partitions (``MIG_TABLES``). The
    partition is created when a task needs it, and takes the place of partitions that no task uses.
    This takes ``mig_s`` seconds before the task begins. With ``on_demand``, the node is powered up
    when it is needed and powered down when it is idle.

    Raises:
        ModelError: A count or size is negative or not a number, there are GPUs without a type (or a
            type without GPUs), or the type cannot be partitioned.
    """

    rare_keys: ClassVar[tuple[str, ...]] = ("manifest", "on_demand")
    name: str
    gpu: GpuType | None = None
    gpus: int = 0
    cpus: float = 0.0
    memory_gb: float = 0.0
    features: tuple[str, ...] = ()
    weight: float = 1.0
    mig_s: float | None = None
    manifest: str = ""
    on_demand: OnDemand | None = None

    def __post_init__(self) -> None:
        check_numbers(f"node {self.name!r}: ", self, ("gpus", "cpus", "memory_gb"))
        store_whole(self, "gpus", f"node {self.name!r}: ")
        for name in ("gpus", "cpus", "memory_gb"):
            if not getattr(self, name) >= 0:
                raise ModelError(f"node {self.name!r}: {name} must not be negative, got {getattr(self, name)!r}")
        if (self.gpu is None) != (self.gpus == 0):
            raise ModelError(
                f"node {self.name!r}: a GPU type requires a GPU count above 0, and a GPU count requires a type"
            )
        if self.mig_s is not None:
            rule = f"node {self.name!r}: mig_s must be a finite number of 0 or more"
            require(0 <= self.mig_s < inf, rule, self.mig_s, ModelError)
            if self.gpu is None or self.gpu.name not in MIG_TABLES:
                name = "CPU machine" if self.gpu is None else self.gpu.name
                raise ModelError(
                    f"node {self.name!r}: {name} does not support MIG, so leave out mig_s; types with "
                    f"MIG: {', '.join(MIG_TABLES)}"
                )


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes, numbered in the order in which they are given. The number of a node is its index in
    ``nodes``.

    Raises:
        ModelError: There are no nodes, two nodes have the same name, or two different GPU types
            have the same name.
    """

    nodes: tuple[Node, ...]
    name: str = "cluster"

    def __post_init__(self) -> None:
        if not isinstance(self.nodes, Collection) or not all(isinstance(node, Node) for node in self.nodes):
            numbers = 'for numbers of GPUs, use Cluster.of({"A100-40": 8})'
            raise ModelError(f"cluster: nodes must be a list of Node objects, got {self.nodes!r}; {numbers}")
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
        """Build a cluster from the number of GPUs of each type, such as ``{"A100-40": 8, "T4":
        16}``, on nodes with up to ``per_node`` GPUs.

        Raises:
            ModelError: A count is not a whole number of 0 or more, or there are no GPUs.
        """
        check_whole("per_node", per_node)
        if not isinstance(gpus, Mapping):
            raise ModelError(f'cluster: must map GPU types to counts, such as {{"A100-40": 8}}; got {gpus!r}')
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
        """The distinct GPU types of the nodes, in the order of the nodes. None represents CPU
        machines.
        """
        return tuple(dict.fromkeys(node.gpu for node in self.nodes))

    @property
    def gpus(self) -> int:
        """Number of GPUs in the cluster."""
        return whole_sum(node.gpus for node in self.nodes)

    @property
    def cpus(self) -> float:
        """Number of CPU cores in the cluster."""
        return ordered_sum(node.cpus for node in self.nodes)

    @property
    def memory_gb(self) -> float:
        """Total memory of the cluster in GB."""
        return ordered_sum(node.memory_gb for node in self.nodes)

    def gpus_by_type(self) -> dict[str, int]:
        """Return the number of GPUs of each type by name, in the order of the nodes."""
        counts: dict[str, int] = {}
        for node in self.nodes:
            if node.gpu is not None:
                counts[node.gpu.name] = counts.get(node.gpu.name, 0) + node.gpus
        return counts

    def __str__(self) -> str:
        parts = [f"{count} x {name}" for name, count in self.gpus_by_type().items()]
        return f"{self.name} ({' + '.join(parts) or f'{self.cpus:g} CPUs'}, {count_of(len(self.nodes), 'node')})"
