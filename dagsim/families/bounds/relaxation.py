"""The problem for which the bounds are proven: a relaxation of the GPU cluster, in columns.

It keeps the arrivals, the DAGs, the seconds of every instance on every GPU type, and gangs. For
each type, it keeps one resource, in a common pool: GPUs, cores or memory, whichever is scarcest. It
ignores node boundaries, the other resources, transfers, set-ups, failures, the cost of preemption,
and the limits of queues. All of these can only delay jobs. Therefore, every schedule of the kernel
is also a schedule of this problem, with the same completion times.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from dagsim.model import Cluster
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.systems.cluster.resources.cluster_state import ClusterState
from dagsim.systems.cluster.resources.nodes import MICRO, DemandClass, NodeState
from dagsim.workload.arrays import JobArrays
from dagsim.workload.load import seconds_of


class Relaxation(NamedTuple):
    """The relaxed problem, with J jobs and V tasks, on T types of machines."""

    arrival_s: np.ndarray
    """(J,) float64: seconds since the first arrival."""
    weight: np.ndarray
    """(J,) float64: the factor of each job's completion time in the sum."""
    job: np.ndarray
    """(V,) int64: the job of each task."""
    copies: np.ndarray
    """(V,) float64: instances that start independently of each other, or 1 for a gang."""
    seconds: np.ndarray
    """(V, T) float64: duration of a copy; inf where it cannot run."""
    usage: np.ndarray
    """(V, T) float64: amount of the type's resource that a copy holds while it runs."""
    capacity: np.ndarray
    """(T,) float64: amount of the resource in all nodes of the type."""
    parent: np.ndarray
    """(E,) int64: the task at the beginning of each edge."""
    child: np.ndarray
    """(E,) int64: the task at the end of each edge."""
    rejected: int
    """Number of jobs left out because not even the empty cluster can run them."""

    @property
    def shortest_s(self) -> np.ndarray:
        """(V,) float64: seconds that one copy of each task takes on its fastest type."""
        shortest: np.ndarray = self.seconds.min(axis=1)
        return shortest

    def levels(self) -> list[np.ndarray]:
        """Group edges by the depth of the child, so that all edges into a parent are in earlier groups."""
        depth = np.zeros(len(self.job), np.int64)
        while len(self.parent):
            deeper = depth.copy()
            np.maximum.at(deeper, self.child, depth[self.parent] + 1)
            if (deeper == depth).all():
                break
            depth = deeper
        of = depth[self.child]
        return [np.flatnonzero(of == level) for level in range(1, int(depth.max(initial=0)) + 1)]


def relaxation_of(
    jobs: JobArrays, cluster: Cluster, runtime: Runtime, weight: np.ndarray | None = None, *, by_node: bool = False
) -> Relaxation:
    """Build the relaxed problem for these jobs. ``weight``, (J,), is 1 for each job by default.

    If ``by_node`` is True, every node counts as a separate type. This respects the boundaries of
    nodes, but a gang with several instances would then have to be on one node (see
    ``spans_nodes``).

    Raises:
        InputError: The runtime model has no entry for a task.
    """
    machines = ClusterState(cluster)
    column = [machine.type for machine in machines.list] if by_node else list(range(len(machines.types)))
    places = [[machine] for machine in machines.list] if by_node else _by_type(machines)
    seconds = seconds_of(jobs, runtime, machines.types)[:, column]
    tasks = _tasks_of(jobs, machines, places)
    seconds = np.where(tasks.fits, seconds, inf)
    job = np.repeat(np.arange(len(jobs)), np.diff(jobs.first))
    possible = np.bincount(job, np.isinf(seconds).all(axis=1), len(jobs)) == 0
    kept, number = possible[job], np.cumsum(possible) - 1
    seconds, copies = seconds[kept], tasks.copies[kept]
    total = np.array([np.sum([_amounts(machine) for machine in nodes], axis=0) for nodes in places])
    usage, capacity = _scarcest(tasks.demands[kept], copies, seconds, total)
    parent, child = _edges_between(jobs, job, kept)
    arrival_s = jobs.arrival_s[possible]
    return Relaxation(
        arrival_s=arrival_s - (arrival_s.min() if len(arrival_s) else 0.0),
        weight=np.ones(int(possible.sum())) if weight is None else weight[possible],
        job=number[job[kept]],
        copies=copies,
        seconds=seconds,
        usage=usage,
        capacity=capacity,
        parent=parent,
        child=child,
        rejected=int((~possible).sum()),
    )


class _Tasks(NamedTuple):
    """The demands of the n tasks of all jobs, and which of the P places have room for them."""

    copies: np.ndarray  # shape (n,), float64, as in ``Relaxation``
    demands: np.ndarray  # shape (n, 3), float64: GPUs, cores and GB that a copy needs
    fits: np.ndarray  # shape (n, P), bool: True if the empty nodes of the place have room for a copy


def _tasks_of(jobs: JobArrays, machines: ClusterState, places: list[list[NodeState]]) -> _Tasks:
    """Return the demands of all tasks. They are computed once for each kind of task and size of gang."""
    gang = np.where(np.array([kind.gang for kind in jobs.kinds], bool)[jobs.kind], jobs.instances, 0)
    kinds, alike = np.unique(np.column_stack([jobs.kind, gang]), axis=0, return_inverse=True)
    classes = [machines.compile(jobs.kinds[kind].demand, together) for kind, together in kinds.tolist()]
    alike = alike.reshape(-1)
    nodes_of = [sum(machine.bit for machine in nodes) for nodes in places]
    fits = np.array([[machines.holds(demand, nodes) for nodes in nodes_of] for demand in classes], bool)
    demands = np.array([_demand(demand) for demand in classes], float).reshape(-1, 3)[alike]
    return _Tasks(
        np.where(gang, 1, jobs.instances).astype(float),
        demands * np.maximum(gang, 1)[:, None],
        fits.reshape(-1, len(places))[alike],
    )


def _edges_between(jobs: JobArrays, job: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the parent and the child of each edge between ``kept`` tasks, as indices among these.
    ``job`` is the job of each task."""
    place = np.cumsum(kept) - 1
    child = np.repeat(np.arange(jobs.tasks), np.diff(jobs.waits))
    parent = jobs.first[:-1][job[child]] + jobs.parent
    edges = kept[child]
    return place[parent[edges]], place[child[edges]]


def areas_gpu_s(jobs: JobArrays, cluster: Cluster, runtime: Runtime) -> np.ndarray:
    """Return the GPU-seconds of each job, (J,), with every task on its fastest allowed type, as in
    ``JobFacts.ideal_gpu_s``. They are infinite for a job that no type can run.
    """
    machines = ClusterState(cluster)
    demands = [machines.compile(kind.demand, 0) for kind in jobs.kinds]
    allowed = np.array([[type_ in demand.types for type_ in range(len(machines.types))] for demand in demands], bool)
    seconds = np.where(allowed[jobs.kind], seconds_of(jobs, runtime, machines.types), inf).min(axis=1)
    gpus = np.array([demand.whole or demand.share / MICRO for demand in demands], float)[jobs.kind]
    job = np.repeat(np.arange(len(jobs)), np.diff(jobs.first))
    areas: np.ndarray = np.bincount(job, np.where(gpus > 0, gpus * jobs.instances * seconds, 0.0), len(jobs))
    return areas


def spans_nodes(jobs: JobArrays) -> bool:
    """Return True if some gang has several instances, which may be on several nodes."""
    gang = np.array([kind.gang for kind in jobs.kinds], bool)[jobs.kind]
    return bool((gang & (jobs.instances > 1)).any())


def _by_type(machines: ClusterState) -> list[list[NodeState]]:
    return [[machine for machine in machines.list if machine.type == type_] for type_ in range(len(machines.types))]


def _demand(demand: DemandClass) -> tuple[float, float, float]:
    """Return the GPUs, cores and GB that an instance needs, in the units that the kernel uses."""
    return demand.whole or demand.share / MICRO, demand.cpus / MICRO, demand.memory / MICRO


def _amounts(machine: NodeState) -> tuple[float, float, float]:
    """Return the GPUs, cores and GB of an empty node."""
    return machine.gpus, machine.cpus / MICRO, machine.memory / MICRO


def _scarcest(
    demands: np.ndarray, copies: np.ndarray, seconds: np.ndarray, total: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the usage (V, T) and the capacity (T,) of one resource per type: the one that is
    scarcest for the tasks on this type."""
    with np.errstate(divide="ignore", invalid="ignore"):
        busy = np.where(np.isfinite(seconds), seconds, 0).T @ (demands * copies[:, None]) / total
    resource = np.nan_to_num(busy, nan=0.0, posinf=0.0).argmax(axis=1)
    return demands[:, resource], total[np.arange(len(total)), resource]
