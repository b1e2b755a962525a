"""Scores of the default scheduler of Kubernetes: NodeResourcesFit, by what is allocated of each resource."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import floor
from typing import TypeAlias

from dagsim.errors import ConfigError
from dagsim.model import Placement, Share
from dagsim.systems.cluster.api import MICRO, ClusterView, NodeState, Run, TaskState

__all__ = ["LEAST", "MOST", "NodeScorer", "Shape", "allocation_score"]

Shape: TypeAlias = tuple[tuple[float, float], ...]
"""Points of utilization (%) and score, in rising order; straight lines between."""

LEAST: Shape = ((0.0, 100.0), (100.0, 0.0))
"""LeastAllocated: the emptiest node has the highest score."""
MOST: Shape = ((0.0, 0.0), (100.0, 100.0))
"""MostAllocated: the fullest node has it."""

_UNASKED = {"cpu": 0.1, "memory": 200 / 1024}
"""Cores and GB that a pod which asks for none counts as in scores."""


def allocation_score(
    allocated: Mapping[str, float],
    capacity: Mapping[str, float],
    weights: Mapping[str, float],
    shape: Shape,
    *,
    nearest: bool = False,
) -> int:
    """The score of a node on which ``allocated`` would be in use: the weighted mean over its resources, rounded down at
    each step as Kubernetes does; the mean to the ``nearest`` in its RequestedToCapacityRatio."""
    total = weight_sum = 0.0
    for name, weight in weights.items():
        if capacity.get(name, 0.0) > 0 and name in allocated:
            total += weight * floor(_on(shape, 100.0 * allocated[name] / capacity[name]) + 1e-9)
            weight_sum += weight
    return floor(total / weight_sum + (0.5 if nearest else 1e-9)) if weight_sum else 0


def _on(shape: Shape, utilization: float) -> float:
    """The score at a utilization."""
    before = shape[0]
    for point in shape:
        if utilization <= point[0]:
            if point[0] == before[0]:
                return point[1]
            return before[1] + (point[1] - before[1]) * (utilization - before[0]) / (point[0] - before[0])
        before = point
    return shape[-1][1]


class NodeScorer:
    """Places the pods of a task one by one on the node with the highest score; of equal ones on the first.

    It knows nothing of speeds: all types that a task may run on are alike to it. A gang is placed whole, on one type.
    O(nodes with room) per pod.
    """

    def __init__(self, scoring: str, cpu: float, memory: float, gpu: float) -> None:
        shapes = {"least": LEAST, "most": MOST}
        if scoring not in shapes:
            raise ConfigError(f"scoring must be least or most, got {scoring!r}")
        self._weights = {"cpu": cpu, "memory": memory, "gpu": gpu}
        for name, weight in self._weights.items():
            if not weight >= 0:
                raise ConfigError(f"the weight of {name} in scores must be 0 or more, got {weight!r}")
        self._shape = shapes[scoring]

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        """One pod of the task, or all of a gang."""
        unasked = view.index(_Unasked, _Unasked)
        best: tuple[int, int, Placement] | None = None
        for each in task.demand.types if type_ is None else (type_,):
            found = self._on_type(view, task, each, unasked)
            if found is not None and (best is None or found[:2] > best[:2]):
                best = found
        return None if best is None else best[2]

    def _on_type(
        self, view: ClusterView, task: TaskState, type_: int, unasked: _Unasked
    ) -> tuple[int, int, Placement] | None:
        """Score of the first pod, minus its node, and where all go."""
        machines, demand = view.machines, task.demand
        with_room = [index for index in machines.candidates(demand, type_) if machines.list[index].room(demand)]
        room = {index: machines.list[index].room(demand) for index in with_room}
        wanted, taken = demand.gang or 1, dict.fromkeys(with_room, 0)
        if sum(room.values()) < wanted:
            return None
        scores = {index: self._score(machines.list[index], task, 1, unasked) for index in with_room}
        first: tuple[int, int] | None = None
        for _ in range(wanted):
            node = max(scores, key=lambda index: (scores[index], -index))
            first = first or (scores[node], -node)
            taken[node] += 1
            if taken[node] == room[node]:
                del scores[node]
            else:
                scores[node] = self._score(machines.list[node], task, taken[node] + 1, unasked)
        assert first is not None
        return *first, tuple([Share(node, count) for node, count in taken.items() if count])

    def _score(self, machine: NodeState, task: TaskState, pods: int, unasked: _Unasked) -> int:
        node, (gpus, cpus, memory_gb, _) = machine.node, task.demand.demand
        extra = unasked.on.get(machine.index, (0, 0))
        allocated = {
            "cpu": node.cpus - machine.cpus / MICRO + extra[0] * _UNASKED["cpu"] + pods * (cpus or _UNASKED["cpu"]),
            "memory": node.memory_gb
            - machine.memory / MICRO
            + extra[1] * _UNASKED["memory"]
            + pods * (memory_gb or _UNASKED["memory"]),
        }
        if gpus:  # an extended resource counts for pods that ask for it
            allocated["gpu"] = node.gpus - machine.idle - sum(machine.shares.values()) / MICRO + pods * gpus
        capacity = {"cpu": node.cpus, "memory": node.memory_gb, "gpu": float(node.gpus)}
        full = {name: min(amount, capacity[name]) for name, amount in allocated.items()}
        return allocation_score(full, capacity, self._weights, self._shape)


class _Unasked:
    """Per node how many pods run that ask for no CPU, and for no memory."""

    def __init__(self) -> None:
        self.on: dict[int, tuple[int, int]] = {}

    def started(self, run: Run, now: float) -> None:
        """Take in a run."""
        self._add(run, 1)

    def ended(self, run: Run, now: float) -> None:
        """Let go of a run."""
        self._add(run, -1)

    def _add(self, run: Run, sign: int) -> None:
        demand = run.task.demand.demand
        if demand.cpus and demand.memory_gb:
            return
        for node, count in _pods(run):
            cpus, memory = self.on.get(node, (0, 0))
            self.on[node] = cpus + sign * count * (not demand.cpus), memory + sign * count * (not demand.memory_gb)


def _pods(run: Run) -> Iterator[tuple[int, int]]:
    return ((machine.index, count) for machine, count, *_ in run.held)
