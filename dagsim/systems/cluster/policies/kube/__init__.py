"""The default scheduler of Kubernetes: pods by priority, nodes by score, preemption by priority class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import floor, inf
from typing import TypeAlias

from dagsim.errors import require
from dagsim.model import Decision, Placement, Preempt, Share
from dagsim.systems.cluster.api import MICRO, ClusterView, NodeState, Run, TaskState
from dagsim.systems.cluster.policies.placement import start_of
from dagsim.systems.cluster.policies.preemption import make_room


def _by_priority(task: TaskState) -> float:
    return -task.job.job.priority


class KubeDefault:
    """Pods by ``Job.priority``, then by arrival; a pod that finds no node waits aside and blocks no
    other. A pod goes to the node with the highest score of NodeResourcesFit: ``scoring=least``
    (LeastAllocated, the default, spreads) or ``most`` (MostAllocated, packs), with a weight for
    ``cpu``, ``memory`` and ``gpu`` (Kubernetes, resource-bin-packing, 2024). With ``preempt``
    the first pod that finds no room stops pods of lower priority: lowest priority first, and
    among these the youngest first.

    A gang starts as a whole, as with a gang plug-in. Uses no estimates; preemptive. O(demand
    classes + nodes with room) per pod.
    """

    def __init__(
        self, scoring: str = "least", cpu: float = 1.0, memory: float = 1.0, gpu: float = 0.0, preempt: bool = True
    ) -> None:
        self._scorer = NodeScorer(scoring, cpu, memory, gpu)
        self._preempt = preempt
        self._runs: dict[float, dict[int, None]] = {}
        """Runs by priority."""

    def started(self, run: Run, now: float) -> None:
        """Add a run."""
        self._runs.setdefault(run.job.job.priority, {})[run.id] = None

    def ended(self, run: Run, now: float) -> None:
        """Remove a run."""
        alike = self._runs[run.job.job.priority]
        del alike[run.id]
        if not alike:
            del self._runs[run.job.job.priority]

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        if self._preempt:
            view.follow(self)
        queue = view.queue(_by_priority)
        task = queue.first_fit()
        first = queue.first() if self._preempt else None
        if first is not None and first is not task and min(self._runs, default=0.0) < _priority(first):
            chosen = make_room(view, first, self._lower(view, first))
            if chosen:
                yield from map(Preempt, chosen)
                task = first
        yield from start_of(self._scorer.place, view, task)

    def _lower(self, view: ClusterView, task: TaskState) -> Iterator[Run]:
        """Runs of lower priority that may be stopped, the lowest and youngest first."""
        for priority in sorted(self._runs):
            if priority >= _priority(task):
                return
            for run in sorted(self._runs[priority], reverse=True):
                if view.running[run].started_s < view.now:
                    yield view.running[run]


def _priority(task: TaskState) -> float:
    return task.job.job.priority


Shape: TypeAlias = tuple[tuple[float, float], ...]
"""Points of utilization (%) and score, in rising order, connected by straight lines."""

LEAST: Shape = ((0.0, 100.0), (100.0, 0.0))
"""LeastAllocated: the emptiest node has the highest score."""
MOST: Shape = ((0.0, 0.0), (100.0, 100.0))
"""MostAllocated: the fullest node has the highest score."""

_UNASKED_CPU, _UNASKED_GB = 0.1, 200 / 1024
"""Cores and GB that scores assume for a pod without a request."""
_EARLY = 1e-9


def allocation_score(parts: Iterable[tuple[float, float, float]], shape: Shape, *, nearest: bool = False) -> int:
    """Return the score of a node from the weight, the allocated amount (including the request) and
    the capacity of each of its resources. It is the weighted mean, rounded down at each step as
    in Kubernetes; with ``nearest`` the mean is rounded to the nearest integer, as in
    RequestedToCapacityRatio.
    """
    total = weight_sum = 0.0
    for weight, allocated, capacity in parts:
        if capacity > 0:
            total += weight * floor(_on(shape, min(100.0, 100.0 * allocated / capacity)) + _EARLY)
            weight_sum += weight
    return floor(total / weight_sum + (0.5 if nearest else _EARLY)) if weight_sum else 0


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
    """Places the pods of a task one by one on the node with the highest score; ties go to the first
    node.

    Speeds are ignored: all types that a task may run on count the same. A gang is placed as a
    whole, on one type. O(nodes with room) per pod.
    """

    def __init__(self, scoring: str, cpu: float, memory: float, gpu: float) -> None:
        shapes = {"least": LEAST, "most": MOST}
        require(scoring in shapes, "scoring must be least or most", scoring)
        for name, weight in (("cpu", cpu), ("memory", memory), ("gpu", gpu)):
            require(0 <= weight < inf, f"the weight of {name} in scores must be 0 or more", weight)
        self._cpu, self._memory, self._gpu = cpu, memory, gpu
        self._shape = shapes[scoring]

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        """Place one pod of the task, or a whole gang."""
        unasked = view.index(_Unasked, _Unasked)
        best: tuple[int, int, Placement] | None = None
        for candidate_type in task.demand.types if type_ is None else (type_,):
            scored = self._on_type(view, task, candidate_type, unasked)
            if scored is not None and (best is None or scored[:2] > best[:2]):
                best = scored
        return None if best is None else best[2]

    def _on_type(
        self, view: ClusterView, task: TaskState, type_: int, unasked: _Unasked
    ) -> tuple[int, int, Placement] | None:
        """Return the score of the first pod, its node negated, and the placement of all pods."""
        machines, demand = view.machines, task.demand
        if not demand.gang:
            score, node = -1, -1
            for index in machines.candidates(demand, type_):
                machine = machines.list[index]
                if machine.room(demand):
                    own = self._score(machine, task, 1, unasked)
                    if own > score or (own == score and index < node):
                        score, node = own, index
            return None if node < 0 else (score, -node, (Share(node),))
        room = {
            index: count for index in machines.candidates(demand, type_) if (count := machines.list[index].room(demand))
        }
        wanted = demand.gang
        if sum(room.values()) < wanted:
            return None
        scores = {index: self._score(machines.list[index], task, 1, unasked) for index in room}
        node = max(scores, key=lambda index: (scores[index], -index))
        first = scores[node], -node
        taken = {node: 1}
        while sum(taken.values()) < wanted:
            if taken[node] == room[node]:
                del scores[node]
            else:
                scores[node] = self._score(machines.list[node], task, taken[node] + 1, unasked)
            node = max(scores, key=lambda index: (scores[index], -index))
            taken[node] = taken.get(node, 0) + 1
        return *first, tuple([Share(*pair) for pair in sorted(taken.items())])

    def _score(self, machine: NodeState, task: TaskState, pods: int, unasked: _Unasked) -> int:
        node, (gpus, cpus, memory_gb, _) = machine.node, task.demand.demand
        without_cpu, without_memory = unasked.on.get(machine.index, (0, 0))
        parts = []
        if self._cpu and node.cpus:
            in_use = node.cpus - machine.cpus / MICRO + without_cpu * _UNASKED_CPU
            parts.append((self._cpu, in_use + pods * (cpus or _UNASKED_CPU), node.cpus))
        if self._memory and node.memory_gb:
            in_use = node.memory_gb - machine.memory / MICRO + without_memory * _UNASKED_GB
            parts.append((self._memory, in_use + pods * (memory_gb or _UNASKED_GB), node.memory_gb))
        if gpus and self._gpu:  # an extended resource counts for pods that ask for it
            held = node.gpus - machine.idle - sum(machine.shares.values()) / MICRO
            parts.append((self._gpu, held + pods * gpus, float(node.gpus)))
        return allocation_score(parts, self._shape)


class _Unasked:
    """For each node, the number of pods without a CPU request and of pods without a memory request."""

    def __init__(self) -> None:
        self.on: dict[int, tuple[int, int]] = {}

    def started(self, run: Run, now: float) -> None:
        """Add a run."""
        self._add(run, 1)

    def ended(self, run: Run, now: float) -> None:
        """Remove a run."""
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
