"""The cluster as arrays, node by node in the order in which ties are broken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dagsim.errors import TraceError
from dagsim.traces.fields import count, finite_number
from dagsim.traces.source import Source
from fgd.pods import GPU, Pod, read_named

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]


class Node(NamedTuple):
    """What one node has: thousandths of CPUs, MiB, GPUs of a model."""

    cpu: int
    memory: int
    gpus: int
    model: str


class Nodes:
    """What is free, and what runs where.

    Raises:
        TraceError: No node has a GPU.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.cpu: Ints = np.array([node.cpu for node in nodes], np.int64)
        self.memory: Ints = np.array([node.memory for node in nodes], np.int64)
        self.gpus: Ints = np.array([node.gpus for node in nodes], np.int64)
        """How many each has, busy or not."""
        self.free: Ints = np.where(np.arange(self.gpus.max(initial=0)) < self.gpus[:, None], GPU, 0)
        """``(nodes, GPUs)``: thousandths free; 0 beyond a node's last GPU."""
        self.gpu_free: Ints = self.free.sum(axis=1)
        self.idle: Ints = self.gpus.copy()
        """How many GPUs are wholly free."""
        self.kinds: Ints = np.zeros(len(nodes), np.int64)
        """How many kinds of pods (``Pod.kind``) run there, those without GPUs left aside."""
        self.changes: list[int] = []
        """Every node that took a pod, in the order of time."""
        self._models = np.array([node.model for node in nodes])
        self._allowed: dict[str, Flags] = {}
        self._running: dict[int, Flags] = {}

    def __len__(self) -> int:
        return len(self.cpu)

    @property
    def capacity(self) -> int:
        """Thousandths of GPUs, busy or not."""
        return int(self.gpus.sum()) * GPU

    def allowed(self, models: str) -> Flags:
        """The nodes whose GPUs a pod may use."""
        if models not in self._allowed:
            self._allowed[models] = np.isin(self._models, models.split("|")) | (models == "")
        return self._allowed[models]

    def running(self, kind: int) -> Flags:
        """The nodes that run a pod of the kind."""
        return self._running.setdefault(kind, np.zeros(len(self), np.bool_))

    def room(self, pod: Pod) -> Ints:
        """The nodes that the pod fits on."""
        fits = (self.cpu >= pod.cpu) & (self.memory >= pod.memory)
        if pod.gpus:
            enough = (self.free >= pod.milli).any(axis=1) if pod.shares else self.idle >= pod.gpus
            fits &= enough & self.allowed(pod.models)
        return np.flatnonzero(fits)

    def tightest(self, node: int, milli: int) -> int:
        """The GPU with the least free that suffices."""
        free = self.free[node]
        return int(np.where(free >= milli, free, GPU + 1).argmin())

    def take(self, node: int, pod: Pod, gpu: int) -> None:
        """Run the pod, a part of a GPU on ``gpu``, whole GPUs on the first idle ones."""
        self.cpu[node] -= pod.cpu
        self.memory[node] -= pod.memory
        self.changes.append(node)
        if not pod.gpus:
            return
        free = self.free[node]
        free[gpu if pod.shares else np.flatnonzero(free == GPU)[: pod.gpus]] -= pod.milli
        self.gpu_free[node] -= pod.gpu_milli
        self.idle[node] = (free == GPU).sum()
        running = self.running(pod.kind)
        self.kinds[node] += not running[node]
        running[node] = True


def read_nodes(source: Source, cpu_nodes: bool = False) -> list[Node]:
    """The nodes of an openb node list, in the order of their names; those without GPUs only where asked for.

    Raises:
        TraceError: A row is not a node, or no node has a GPU.
    """
    nodes = read_named(source, "node", ("sn", "cpu_milli", "memory_mib", "gpu", "model"), _node)
    if not any(node.gpus for node in nodes):
        raise TraceError(f"{source}: no node has a GPU")
    return [node for node in nodes if node.gpus or cpu_nodes]


def _node(cpu: str, memory: str, gpus: str, model: str) -> Node:
    many = count(gpus or "0", "gpu", 0)
    return Node(
        int(finite_number(cpu, "cpu_milli")), int(finite_number(memory, "memory_mib")), many, model if many else ""
    )
