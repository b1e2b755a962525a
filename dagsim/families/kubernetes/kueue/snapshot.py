"""The state on which a scheduling cycle is based: quotas, topologies, and the workloads that use
them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dagsim.families.kubernetes.kueue.domains import Domain, Requests, TopologyTree
from dagsim.families.kubernetes.kueue.kueue_objects import ClusterQueue, KueueObjects, ResourceFlavor, ResourceGroup
from dagsim.families.kubernetes.kueue.quota import QuotaForest, QuotaNode, SlotAmounts
from dagsim.families.kubernetes.kueue.workloads import WorkloadState


@dataclass(frozen=True, slots=True)
class FlavorGroup:
    """A resource group. ``label_keys`` are the keys of the labels of its flavors."""

    flavors: tuple[str, ...]
    resources: frozenset[str]
    label_keys: frozenset[str]


class ClusterQueueState:
    """A ClusterQueue with its settings, its node in the quota forest, and the workloads that were
    admitted to it."""

    def __init__(self, spec: ClusterQueue, node: QuotaNode, order: int) -> None:
        self.spec, self.name, self.node, self.order = spec, spec.name, node, order
        self.groups: list[FlavorGroup] = []
        self.group_of: dict[str, int] = {}
        self.workloads: dict[str, WorkloadState] = {}
        self.trees: dict[str, TopologyTree] = {}
        """The topologies of its flavors, by flavor."""
        self.topology_only = False
        policies = (spec.preemption.within_cluster_queue, spec.preemption.reclaim_within_cohort)
        self.by_creation = "LowerOrNewerEqualPriority" in policies
        """True if creation times determine which workloads a workload may preempt."""
        self.generation = 0
        """Number of times that a workload of the queue released quota."""

    @property
    def always_reclaims(self) -> bool:
        """True if the queue can reclaim lent quota at any time. It then does not have to leave
        quota unused."""
        return self.spec.preemption.reclaim_within_cohort == "Any"


class Snapshot:
    """The state of all quotas and topologies. ``changes`` is increased whenever a workload receives
    or loses quota."""

    def __init__(self, objects: KueueObjects) -> None:
        self.objects = objects
        self.flavors: dict[str, ResourceFlavor] = {flavor.name: flavor for flavor in objects.resource_flavors}
        self.inactive = {
            queue.name: reason for queue in objects.cluster_queues if (reason := self._why_inactive(queue))
        }
        active = [queue.name for queue in objects.cluster_queues if queue.name not in self.inactive]
        self.forest = QuotaForest(objects, active)
        self.slots, self.names = self.forest.slots, self.forest.names
        self.trees = {
            flavor.name: TopologyTree(flavor, topology, objects.nodes)
            for flavor in objects.resource_flavors
            for topology in objects.topologies
            if flavor.topology_name == topology.name
        }
        self.queues = {queue.name: self._queue(queue, order) for order, queue in enumerate(objects.cluster_queues)}
        self.changes: dict[str, int] = {}
        """Number of quota changes by root."""
        self._tried: list[tuple[TopologyTree, Domain, Requests, int]] = []

    def _why_inactive(self, queue: ClusterQueue) -> str:
        if queue.stop_policy != "None":
            return "Stopped"
        for group in queue.resource_groups:
            for flavor in group.flavors:
                if flavor.name not in self.flavors:
                    return f"there is no ResourceFlavor {flavor.name!r}"
                topology = self.flavors[flavor.name].topology_name
                if topology and topology not in [one.name for one in self.objects.topologies]:
                    return f"there is no Topology {topology!r}"
        return ""

    def _queue(self, spec: ClusterQueue, order: int) -> ClusterQueueState:
        state = ClusterQueueState(spec, self.forest.queues[spec.name], order)
        for number, group in enumerate(spec.resource_groups):
            state.groups.append(self._group(group))
            for resource in group.covered_resources:
                state.group_of[resource] = number
        names = [name for group in state.groups for name in group.flavors]
        state.trees = {name: self.trees[name] for name in names if name in self.trees}
        state.topology_only = all(name in self.trees for name in names)
        return state

    def _group(self, group: ResourceGroup) -> FlavorGroup:
        names = tuple([flavor.name for flavor in group.flavors])
        keys = frozenset(key for name in names if name in self.flavors for key in self.flavors[name].node_labels)
        return FlavorGroup(names, frozenset(group.covered_resources), keys)

    def version(self, queue: ClusterQueueState) -> int:
        """Return a number that changes whenever the chances of the queue's workloads may have
        changed."""
        return self.changes.get("" if queue.trees else queue.node.root.name, 0)

    # The methods below take and release quota for workloads.

    def add(self, workload: WorkloadState) -> None:
        """Add the quota and the topology usage of a workload."""
        self._use(workload, 1)

    def remove(self, workload: WorkloadState) -> None:
        """Release the quota and the topology usage of a workload."""
        self._use(workload, -1)

    def _use(self, workload: WorkloadState, sign: int) -> None:
        node = self.queues[workload.cluster_queue].node
        change = node.take if sign > 0 else node.give
        for slot, amount in workload.usage.items():
            change(slot, amount)
        for flavor, number, requests, count in workload.pods:
            if (tree := self.trees.get(flavor)) is not None:
                tree.add(tree.leaves[number], requests, sign * count)

    @contextmanager
    def without(self, workloads: Iterable[WorkloadState] = ()) -> Iterator[TrialRemovals]:
        """Remove some workloads from the state inside the ``with`` statement. The object that it
        yields removes further workloads until the statement ends."""
        trial = TrialRemovals(self)
        try:
            for workload in workloads:
                trial.remove(workload)
            yield trial
        finally:
            trial.end()

    def use(
        self, queue: ClusterQueueState, usage: SlotAmounts, pods: Iterable[tuple[str, int, Requests, int]] = ()
    ) -> None:
        """Add usage that no workload holds yet (within ``trial``)."""
        for slot, amount in usage.items():
            queue.node.take(slot, amount)
        for flavor, number, requests, count in pods:
            if (tree := queue.trees.get(flavor)) is not None:
                tree.add(tree.leaves[number], requests, count)
                self._tried.append((tree, tree.leaves[number], requests, count))

    def fits(
        self, queue: ClusterQueueState, usage: SlotAmounts, pods: Iterable[tuple[str, int, Requests, int]]
    ) -> bool:
        """Return True if there is enough quota for the usage."""
        node = queue.node
        for slot, amount in usage.items():
            if max(0, node.available(slot)) < amount:
                return False
        for flavor, number, requests, count in pods:
            tree = queue.trees[flavor]
            if not tree.fits(tree.leaves[number], requests, count):
                return False
        return True

    @contextmanager
    def trial(self, roots: Iterable[QuotaNode]) -> Iterator[None]:
        """Undo everything that ``use`` has added, on exit. The usage of quotas is restored from a
        copy, because a reservation may be negative.
        """
        nodes: list[QuotaNode] = []
        left = list(roots)
        while left:
            node = left.pop()
            nodes.append(node)
            left += node.cohorts
            left += node.queues
        usage = [list(node.usage) for node in nodes]
        self._tried.clear()
        try:
            yield
        finally:
            for node, before in zip(nodes, usage, strict=True):
                node.usage[:] = before
            for tree, leaf, requests, count in self._tried:
                tree.add(leaf, requests, -count)


class TrialRemovals:
    """The workloads that are removed from a state for a time (``Snapshot.without``)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._gone: dict[str, WorkloadState] = {}

    def remove(self, workload: WorkloadState) -> None:
        """Remove a workload until the end of the trial."""
        self._snapshot.remove(workload)
        self._gone[workload.name] = workload

    def bring_back(self, workload: WorkloadState) -> None:
        """Add a removed workload again before the end of the trial."""
        del self._gone[workload.name]
        self._snapshot.add(workload)

    def end(self) -> None:
        """Add all removed workloads again."""
        while self._gone:
            self.bring_back(next(iter(self._gone.values())))
