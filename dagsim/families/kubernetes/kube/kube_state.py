"""The pods on the nodes of a simulation, as kube-scheduler sees them, and the placement of
additional pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np

from dagsim.families.kubernetes.kube.cycle import PodCycle, Victims, WaitingPod
from dagsim.families.kubernetes.kube.node_columns import BoundPod, NodeColumns
from dagsim.families.kubernetes.kube.objects import Pod, node_of, plain_pod, pod_of
from dagsim.families.kubernetes.kube.profile import Profile
from dagsim.model import Placement, Share
from dagsim.model.arithmetic import whole_sum
from dagsim.systems.cluster.api import ClusterView, DemandClass, NodeState, Run, TaskState

PieceKey: TypeAlias = tuple[int, int, int]
"""Number of the job, index of the task and number of the piece."""


class RunPodKey(NamedTuple):
    """Identifies a pod of a run on its node."""

    run: int
    node: int
    number: int
    leaving: bool = False
    """True if the run has been stopped, and the pod is terminating."""


class Leaving(NamedTuple):
    """The pods that are terminating, each with its node and the time at which it will be gone."""

    until_s: float
    pods: tuple[tuple[int, BoundPod], ...]


def run_pod_key(bound: BoundPod) -> RunPodKey:
    """Return the key of a pod, which belongs to a run unless it is only nominated or on trial."""
    assert isinstance(bound.key, RunPodKey)
    return bound.key


def task_key(task: TaskState) -> PieceKey:
    return task.job.number, task.index, task.piece


def task_pod(task: TaskState) -> Pod:
    manifest = task.task.manifest
    return pod_of(manifest) if manifest else plain_pod(task.task.demand)


def state_of(view: ClusterView, profile: Profile) -> KubeState:
    return view.index((KubeState, profile), partial(KubeState, view, profile))


class KubeState:
    """The snapshot of a simulation, which the kernel keeps up to date."""

    def __init__(self, view: ClusterView, profile: Profile) -> None:
        machines = view.machines.list
        self.snapshot = NodeColumns([node_of(machine.node) for machine in machines])
        self.cycle = PodCycle(profile, self.snapshot)
        self._types = np.array([machine.type for machine in machines])
        self._of_types: dict[tuple[int, ...], np.ndarray] = {}
        self.freed: list[int] = []
        """Nodes on which runs have ended since the queue was last updated, one entry per release."""
        self.lost: Counter[int] = Counter()
        """Number of pods that each failed node has lost since the queue was last updated."""
        self.starts = 0
        """Number of runs that have started."""
        self.numbers = {node.name: number for number, node in enumerate(self.snapshot.nodes)}

    def started(self, run: Run, now: float) -> None:
        """Add the pods of a run."""
        for node, bound in self.pods_of(run):
            self.snapshot.add(node, bound)
        self.starts += 1

    def ended(self, run: Run, now: float) -> None:
        """Remove the pods of a run."""
        for machine, count, *_ in run.held:
            for number in range(count):
                self.snapshot.remove(machine.index, RunPodKey(run.id, machine.index, number))
            self.freed.append(machine.index)
            if not machine.up:
                self.lost[machine.index] += count

    @staticmethod
    def pods_of(run: Run) -> tuple[tuple[int, BoundPod], ...]:
        """Return the pods of a run, each with its node."""
        pod, priority = task_pod(run.task), run.job.job.priority
        return tuple(
            [
                (
                    machine.index,
                    BoundPod(RunPodKey(run.id, machine.index, number), pod, priority, run.started_s, pod.terminating),
                )
                for machine, count, *_ in run.held
                for number in range(count)
            ]
        )

    def linger(self, leaving: Leaving) -> None:
        """Keep the resources of a preempted run occupied until its pods have terminated, unless
        this has already been done."""
        for node, bound in leaving.pods:
            if (key := run_pod_key(bound)._replace(leaving=True)) not in self.snapshot.pods[node]:
                self.snapshot.add(node, bound._replace(key=key, leaving=True))

    def leave(self, leaving: Leaving) -> None:
        """Free the resources of pods that have terminated."""
        for node, bound in leaving.pods:
            if (key := run_pod_key(bound)._replace(leaving=True)) in self.snapshot.pods[node]:
                self.snapshot.remove(node, key)
            self.freed.append(node)

    def nominate(self, task: TaskState, node: int) -> None:
        """Reserve resources on a node for the task."""
        self.snapshot.nominate(node, BoundPod(task_key(task), task_pod(task), task.job.job.priority, inf))

    def nominations(self, view: ClusterView) -> dict[str, int]:
        """Return the node for which each job is nominated."""
        nodes = {key: node for node, bound_pods in self.snapshot.nominated.items() for key in bound_pods}
        return {task.job.job.id: nodes[task_key(task)] for task in view.ready if task_key(task) in nodes}

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        """Place one pod of the task or a whole gang."""
        if task.demand.gang:
            return self._place_gang(view, task, type_)
        nodes = self._allowed(self.cycle.feasible(self._waiting(task)), task.demand, type_)
        node = self._best(view, task, nodes)
        return None if node is None else (Share(node),)

    def _best(self, view: ClusterView, task: TaskState, nodes: np.ndarray) -> int | None:
        """Return the best feasible node on which the kernel can also place the task. In addition to
        the filters, the kernel checks whether nodes are down and whether shares of GPUs fit.
        """
        machines, demand = view.machines.list, task.demand
        if not len(nodes):
            return None
        node = self.cycle.best(task_pod(task), nodes)
        if machines[node].room(demand):
            return node
        nodes = np.array([node for node in nodes.tolist() if machines[node].room(demand)], np.int64)
        return self.cycle.best(task_pod(task), nodes) if len(nodes) else None

    def _place_gang(self, view: ClusterView, task: TaskState, type_: int | None) -> Placement | None:
        """Place all pods of a gang in turn on nodes of one type. The type of the best node for the
        first pod is tried first.
        """
        machines, demand = view.machines, task.demand
        pod, wanted = task_pod(task), demand.gang
        types = [type_] if type_ is not None else list(demand.types)
        if len(types) > 1:
            demand.widen()
            nodes = self._allowed(self.cycle.feasible(self._waiting(task)), demand, None)
            order: list[int] = []
            while len(nodes) and (node := self._best(view, task, nodes)) is not None:
                order.append(int(self._types[node]))
                nodes = nodes[self._types[nodes] != order[-1]]
            types = order
        for candidate in types:
            if not machines.fits_on(demand, candidate):
                continue
            taken: dict[int, int] = {}
            with self.snapshot.trial() as add:
                for _ in range(wanted):
                    nodes = self._allowed(self.cycle.feasible(self._waiting(task)), demand, candidate)
                    room = [node for node in nodes.tolist() if machines.list[node].room(demand) > taken.get(node, 0)]
                    if not room:
                        break
                    node = self.cycle.best(pod, np.array(room))
                    taken[node] = taken.get(node, 0) + 1
                    add(node, BoundPod(None, pod, task.job.job.priority, inf))
            if whole_sum(taken.values()) == wanted:
                return tuple([Share(*pair) for pair in sorted(taken.items())])
        return None

    def victims(self, view: ClusterView, task: TaskState) -> Victims | None:
        """Return the least harmful preemption after which the kernel can also place the task."""
        waiting = self._waiting(task)
        self.cycle.now = view.now
        if not self.cycle.may_preempt(waiting):
            return None
        for victims in self.cycle.candidates(waiting):
            if not len(self._allowed(np.array([victims.node]), task.demand, None)):
                continue
            machine: NodeState = view.machines.list[victims.node].copy()
            for run in dict.fromkeys([key.run for key in map(run_pod_key, victims.pods) if not key.leaving]):
                for held, count, mask, on in view.running[run].held:
                    if held.index == victims.node:
                        machine = machine.after(view.running[run].task.demand, count, mask, on)
            if machine.room(task.demand):
                return victims
        return None

    def lower(self, view: ClusterView, task: TaskState) -> Iterator[Run]:
        """Yield the runs of lower priority that may be stopped. Runs with the lowest priority come
        first, and among these the youngest."""
        below = [
            run
            for run in view.running.values()
            if run.job.job.priority < task.job.job.priority and run.started_s < view.now
        ]
        return iter(sorted(below, key=lambda run: (run.job.job.priority, -run.id)))

    def _waiting(self, task: TaskState) -> WaitingPod:
        return WaitingPod(task_key(task), task_pod(task), task.job.job.priority)

    def _allowed(self, nodes: np.ndarray, demand: DemandClass, type_: int | None) -> np.ndarray:
        """Return the nodes on which the kernel would let the demand start, whether or not it fits
        there now."""
        types = demand.types if type_ is None else (type_,)
        among = self._of_types.get(types)
        if among is None:
            among = self._of_types[types] = np.isin(self._types, types)
        nodes = nodes[among[nodes]]
        if demand.nodes == -1:
            return nodes
        return np.array([node for node in nodes.tolist() if demand.nodes >> node & 1], np.int64)
