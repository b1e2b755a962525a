"""Placements that rank the nodes with room: fullest, emptiest, first, at random, best aligned, alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from dagsim.model import Placement, Share
from dagsim.systems.cluster.api import MICRO, ClusterView, DemandClass, NodeState, Run, TaskState

__all__ = [
    "DotProduct",
    "FirstFit",
    "GpuClustering",
    "GpuPacking",
    "RandomNode",
    "WorstFit",
    "by_speed",
    "fill",
    "with_room",
]


class FirstFit:
    """The first node of the cluster with room, of whatever type may run the task. O(nodes)."""

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        return _least(view, task, type_, lambda machine: machine.index)


class WorstFit:
    """The fastest type with room, on it the node with the most idle GPUs. O(nodes passed over)."""

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        machines = view.machines
        for each in by_speed(task, type_):
            placement = fill(task, machines.with_room(task.demand, each, True))
            if placement is not None:
                return placement
        return None


class RandomNode:
    """Any type with room, then its nodes in random order. Draws from the simulation's stream ``placement``.
    O(nodes)."""

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        machines, rng = view.machines, view.stream("placement")
        types = [each for each in by_speed(task, type_) if machines.fits_on(task.demand, each)]
        if not types:
            return None
        nodes = list(with_room(view, task.demand, types[int(rng.integers(len(types)))]))
        return fill(task, [nodes[at] for at in rng.permutation(len(nodes))])


class DotProduct:
    """The node whose free GPUs, CPUs and memory point most in the direction of the demand: the largest dot product of
    both, each resource as a fraction of the node (Grandl et al., Tetris, SIGCOMM 2014; Panigrahy et al. 2011).
    O(nodes)."""

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        demand = task.demand.demand

        def away(machine: NodeState) -> float:
            return -alignment(machine, demand.gpus, task.demand.cpus, task.demand.memory)

        return _least(view, task, type_, away)


class GpuPacking:
    """Partly used GPUs first, then idle GPUs of nodes in use, then empty nodes; among equals the node with the fewest
    idle GPUs (a baseline of FGD, Weng et al., ATC 2023). O(nodes)."""

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        share = task.demand.share

        def emptiness(machine: NodeState) -> tuple[int, int]:
            if share and any(free >= share for free in machine.shares.values()):
                return 0, machine.idle
            return (1 if machine.idle < machine.gpus else 2), machine.idle

        return _least(view, task, type_, emptiness)


class GpuClustering:
    """Nodes with the most tasks of the same GPU demand first. Among equals the node with the fewest idle GPUs (a
    baseline of FGD, Weng et al., ATC 2023). O(nodes)."""

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        runs, gpus = view.index(_Alike, _Alike).runs, task.demand.demand.gpus

        def unlike(machine: NodeState) -> tuple[int, int]:
            return -runs[machine.index, gpus], machine.idle

        return _least(view, task, type_, unlike)


class _Alike:
    """The number of runs under way by node and GPUs asked per instance."""

    def __init__(self) -> None:
        self.runs: Counter[tuple[int, float]] = Counter()

    def started(self, run: Run, now: float) -> None:
        for node in run.nodes:
            self.runs[node, run.task.demand.demand.gpus] += 1

    def ended(self, run: Run, now: float) -> None:
        for node in run.nodes:
            self.runs[node, run.task.demand.demand.gpus] -= 1


def alignment(machine: NodeState, gpus: float, cpus: int, memory: int) -> float:
    """The dot product of a demand and what is free, as fractions of the machine. CPUs and memory are in millionths."""
    node, total = machine.node, 0.0
    if node.gpus:
        free = machine.idle + sum(machine.shares.values()) / MICRO
        total += gpus / node.gpus * (free / node.gpus)
    if node.cpus:
        total += cpus * machine.cpus / (node.cpus * MICRO) ** 2
    if node.memory_gb:
        total += memory * machine.memory / (node.memory_gb * MICRO) ** 2
    return total


def by_speed(task: TaskState, type_: int | None) -> list[int]:
    """The types to look at, fastest first; only ``type_`` if it is given."""
    return sorted(task.demand.types, key=task.seconds.__getitem__) if type_ is None else [type_]


def with_room(view: ClusterView, demand: DemandClass, type_: int) -> Iterator[NodeState]:
    """The machines of ``type_`` with room for an instance."""
    return view.machines.with_room(demand, type_)


def fill(task: TaskState, machines: Iterable[NodeState]) -> Placement | None:
    """Waiting instances on the first of ``machines`` with room; a gang on the first ones that hold all of it."""
    demand, shares = task.demand, []
    needed = demand.gang or task.waiting
    for machine in machines:
        count = min(needed, machine.room(demand))
        if count:
            shares.append(Share(machine.index, count))
            needed -= count
            if not needed or not demand.gang:
                return tuple(shares)
    return None


def _least(
    view: ClusterView, task: TaskState, type_: int | None, rank: Callable[[NodeState], float | tuple[int, int]]
) -> Placement | None:
    """On the nodes with the least ``rank``; ties go to the faster type, then to the first node. A gang goes to the type
    that has the best first node."""
    demand = task.demand
    best, where = None, None
    for place, each in enumerate(by_speed(task, type_)):
        ranked = [(rank(machine), place, machine.index, machine) for machine in with_room(view, demand, each)]
        if demand.gang:
            ranked.sort(key=lambda entry: entry[:3])
        elif ranked:
            ranked = [min(ranked, key=lambda entry: entry[:3])]
        placement = fill(task, [entry[3] for entry in ranked])
        if placement is not None and (best is None or ranked[0][:3] < best):
            best, where = ranked[0][:3], placement
    return where
