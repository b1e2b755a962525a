"""The ready tasks, and the numbers of GPUs or cores that tasks need, runs hold and nodes have free.
Several policies share these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from dagsim.model import Placement
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.systems.cluster.api import ALL, MICRO, ClusterView, DemandClass, Run, TaskState
from dagsim.systems.cluster.policies.orders import width

QueuedPiece: TypeAlias = tuple[int, int]
"""Order and piece of a task."""
NEARLY = 1e-9
"""Amounts that differ by less than this count as equal."""


class Ready:
    """The ready tasks in order of arrival."""

    def __init__(self) -> None:
        self.tasks: dict[QueuedPiece, TaskState] = {}

    def push(self, task: TaskState) -> None:
        """Add a task that has become ready."""
        self.tasks[task.order, task.piece] = task


def size(task: TaskState) -> float:
    """Return the number of GPUs that the task needs simultaneously. If it needs no GPUs, return the
    number of cores.
    """
    return width(task) if task.demand.demand.gpus else task.demand.cpus / MICRO * (task.demand.gang or 1)


def allowed_nodes(view: ClusterView, demand: DemandClass) -> int:
    """Return a bit set of the nodes on which the partition and the constraint allow tasks with this
    demand, or ``ALL`` if these are all nodes.
    """
    site = view.machines.site
    nodes = ALL if demand.terms is None else demand.terms.nodes
    return ALL if site is not None and nodes == site.all_nodes else nodes


def held(run: Run, nodes: int = ALL) -> float:
    """Return the number of GPUs that the run holds on the nodes in a bit set. If it holds no GPUs,
    return the number of cores.
    """
    demand = run.task.demand
    if nodes == ALL:
        return run.gpus or demand.cpus / MICRO * run.instances
    count = whole_sum(instances for machine, instances, *_ in run.held if nodes >> machine.index & 1)
    return (demand.demand.gpus or demand.cpus / MICRO) * count


def free(view: ClusterView, task: TaskState, nodes: int = ALL) -> float:
    """Return the number of free GPUs (or cores) on those nodes in a bit set whose types may run the task."""
    machines, types = view.machines, set(task.demand.types)
    if task.demand.demand.gpus and nodes == ALL:
        return float(whole_sum(machines.idle_gpus(type_) for type_ in types))
    there = [one for one in machines.list if one.type in types and one.up and nodes >> one.index & 1]
    return (
        float(sum(one.idle for one in there))
        if task.demand.demand.gpus
        else whole_sum(one.cpus for one in there) / MICRO
    )


def free_times(view: ClusterView) -> list[list[float]]:
    """Return the times at which the GPUs of each type are expected to become free, soonest
    first."""
    expected = view.expected_free
    return [expected.times(type_) for type_ in range(len(view.gpu_types))]


class Holding(NamedTuple):
    """The resources of a current run, or of one that has just ended."""

    end_s: float
    """Its expected end."""
    size: float
    """GPUs, or cores if it holds no GPUs."""
    id: int
    by_node: tuple[tuple[int, float], ...]
    """The number of GPUs (or cores) that the run holds on each node, by the index of the node."""
    licences: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, run: Run, end_s: float) -> Holding:
        """Return the resources of a run that is expected to end at ``end_s``."""
        by_node = tuple([(machine.index, held(run, machine.bit)) for machine, *_ in run.held])
        terms = run.task.demand.terms
        return cls(end_s, held(run), run.id, by_node, () if terms is None else terms.licences)

    def on(self, nodes: int) -> float:
        """Return the number of GPUs (or cores) that the run holds on the nodes in a bit set."""
        if nodes == ALL:
            return self.size
        return ordered_sum([amount for node, amount in self.by_node if nodes >> node & 1])


def unheld(view: ClusterView, task: TaskState, ended: Sequence[Holding]) -> float:
    """Return the number of free GPUs (or cores) on the nodes that a task may use. The resources of
    the runs in ``ended`` still count as held, so they are subtracted.
    """
    nodes = allowed_nodes(view, task.demand)
    return free(view, task, nodes) - ordered_sum([run.on(nodes) for run in ended])


PLENTY = 1 << 90
"""A larger amount than any candidate needs."""


def instances_on(placement: Placement, nodes: int) -> int:
    """Return the number of instances that a placement puts on the nodes in a bit set."""
    return sum(share.instances for share in placement if nodes >> share.node & 1)
