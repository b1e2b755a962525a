"""The objects that a simulated cluster shows to Kueue, in which each task is a pod set."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from dagsim.errors import ConfigError
from dagsim.families.kubernetes.api.pods import level_name
from dagsim.families.kubernetes.api.terms import HOSTNAME, WHOLE_GPUS, quantity, taints_of
from dagsim.families.kubernetes.kueue.kueue_objects import (
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    KueueObjects,
    LocalQueue,
    PodSet,
    QueuePreemption,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    TopologyNode,
    TopologyRequest,
    Workload,
)
from dagsim.families.kubernetes.kueue.manifests import kueue_workload_object
from dagsim.model import Job, Node, QueueNode, QueueTree
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.gpu import canonical
from dagsim.systems.cluster.api import ClusterView, DemandClass, TaskState
from dagsim.traces.documents import list_in, object_in

GPUS = "gpus"
"""The resource for GPUs, and the flavor for any type, if quotas come from ``queues.tree``."""

_RESOURCES = {"cpus": "cpu", "memory_gb": "memory"}
_POLICIES = {
    "never": "Never", "lower-priority": "LowerPriority", "any": "Any",
    "lower-or-newer-equal-priority": "LowerOrNewerEqualPriority",
}  # fmt: skip
_NATIVE = ("cpu", "memory", "ephemeral-storage", "pods")
_PODS_PER_NODE = 110


class Site:
    """The objects of Kueue for a cluster. They come from ``queues.kueue`` or are made from
    ``queues.tree``. In the latter case, each leaf is a ClusterQueue and each node above it is a
    cohort. Without both, there is a single queue with a quota for the whole cluster.

    With ``queues.kueue``, a task requests all of its resources, because it does so in Kueue. A
    quota in ``queues.tree`` limits only the resources that it names.

    Raises:
        ConfigError: A queue has no quota, or the levels of a topology differ from the levels of the
            network.
    """

    def __init__(self, view: ClusterView) -> None:
        queues = view.queues or QueueTree()
        self.exact = queues.kueue is not None
        self.type_names = ["" if gpu is None else gpu.name for gpu in view.gpu_types]
        if queues.kueue is not None:
            objects: KueueObjects = queues.kueue
        else:
            objects = _objects_of(queues.tree or (QueueNode("default", quota=_all_of(view)),))
        there = {local.name for local in objects.local_queues}
        own = [LocalQueue(queue.name, queue.name) for queue in objects.cluster_queues if queue.name not in there]
        self.objects = replace(objects, local_queues=(*objects.local_queues, *own))
        self._flavors = {flavor.name: flavor for flavor in objects.resource_flavors}
        self._queues = {queue.name: queue for queue in objects.cluster_queues}
        self._locals = {local.name: local for local in self.objects.local_queues}
        short = Counter(name.partition("/")[2] for name in there)
        self._names = {name.partition("/")[2]: name for name in there if short[name.partition("/")[2]] == 1}
        self._names |= {name: name for name in self._locals}
        self._named: dict[tuple[str, str, str], str] = {}
        if self.objects.topologies and not self.objects.nodes:
            self.objects = replace(self.objects, nodes=tuple(self._nodes(view)))
        self._numbers = {node.name: number for number, node in enumerate(view.cluster.nodes)}

    @property
    def local_queues(self) -> Mapping[str, LocalQueue]:
        """All LocalQueues, by name."""
        return self._locals

    def queue_of(self, job: Job) -> str:
        """Return the LocalQueue that a job names, or the first one if it names none."""
        return self.stated_queue(job) or next(iter(self._locals))

    def stated_queue(self, job: Job) -> str:
        """Return the LocalQueue that a job names by its account and partition, or by its partition,
        account or tenant. Return an empty string if there is no queue with one of these names.
        """
        names = (job.partition, job.account, job.tenant)
        queue = self._named.get(names)
        if queue is None:
            asked = (f"{job.account}/{job.partition}", *names)
            queue = self._named[names] = next((self._names[name] for name in asked if name in self._names), "")
        return queue

    def missing_queue(self, task: TaskState) -> str:
        """Return the name of the LocalQueue in a task's manifest if no such queue exists.
        Otherwise, return an empty string.
        """
        carried = self.workload(task)
        named = "" if carried is None or carried.spec is None else carried.spec.queue
        return "" if named in self._locals else named

    def stop_policy(self, cluster_queue: str) -> str:
        """Return the stop policy of a ClusterQueue."""
        return self._queues[cluster_queue].stop_policy

    def workload(self, task: TaskState) -> Carried | None:
        """Return the workload in a task's manifest. Return None if there is none, or if
        ``queues.kueue`` is not set.
        """
        text = task.task.manifest
        if not self.exact or '"workload"' not in text:
            return None
        carried = _carried(text)
        if carried.spec is None:
            return carried
        excluded = frozenset(self._excluded(self.cluster_queue_of(task.job.job), task.demand))
        sets = [
            _as_demanded(one, task, excluded) if one.name == carried.pod_set else one for one in carried.spec.pod_sets
        ]
        return carried._replace(spec=replace(carried.spec, pod_sets=tuple(sets)))

    def cluster_queue_of(self, job: Job) -> ClusterQueue:
        """Return the ClusterQueue of a job."""
        return self._queues[self._locals[self.queue_of(job)].cluster_queue]

    def pod_set(self, task: TaskState, count: int) -> PodSet:
        """Return a pod set for ``count`` instances of a task."""
        queue, demand = self.cluster_queue_of(task.job.job), task.demand
        return PodSet(
            "main",
            count,
            self.requests(queue, demand),
            excluded=frozenset(self._excluded(queue, demand)),
            topology=self._topology(task, queue),
        )

    def requests(self, queue: ClusterQueue, demand: DemandClass) -> dict[str, float]:
        """Return the resources that one instance of a task requests, under the names that the queue
        uses."""
        gpus, cpus, memory_gb, _ = demand.demand
        covered = [name for group in queue.resource_groups for name in group.covered_resources]
        asked = {"cpu": cpus, "memory": memory_gb * 2**30, _device(covered): gpus}
        return {name: amount for name, amount in asked.items() if amount and (self.exact or name in covered)}

    def types_of(self, queue: ClusterQueue, flavors: Iterable[str]) -> set[str] | None:
        """Return the GPU types that belong to all of the flavors, or None if every type is
        suitable."""
        types: set[str] | None = None
        for name in flavors:
            own = set(self._flavors[name].gpu_types) if name in self._flavors else set()
            # The flavor GPUS covers all GPU types for which this queue has no separate flavor.
            if name == GPUS and not self.exact:
                own = set(self.type_names) - {flavor for group in queue.resource_groups for flavor in _names(group)}
            elif not own:
                continue
            types = own if types is None else types & own
        return types

    def flavor_of(self, queue: ClusterQueue, resource: str, type_: str) -> str | None:
        """Return the flavor from which a run on a GPU type takes a resource, or None if there is no
        such quota."""
        for group in queue.resource_groups:
            if resource in group.covered_resources:
                for name in _names(group):
                    types = self.types_of(queue, [name])
                    if types is None or type_ in types:
                        return name
        return None

    def has_topology(self, flavor: str) -> bool:
        """Return True if pods that get this flavor are placed according to a topology."""
        return flavor in self._flavors and bool(self._flavors[flavor].topology_name)

    def node_number(self, address: tuple[str, ...]) -> int | None:
        """Return the number of the node that a topology assignment names, or None if it names a larger
        domain.
        """
        return self._numbers.get(address[-1])

    def _excluded(self, queue: ClusterQueue, demand: DemandClass) -> Iterable[str]:
        """Return the flavors of the queue that have no node on which the task may run."""
        may = {self.type_names[type_] for type_ in demand.types}
        for group in queue.resource_groups:
            for name in _names(group):
                types = self.types_of(queue, [name])
                if types is not None and not types & may:
                    yield name

    def _topology(self, task: TaskState, queue: ClusterQueue) -> TopologyRequest | None:
        """Return the topology that a job requests, or None if the requested level is not one of the
        queue's levels."""
        request = task.job.job.request
        names = {self._flavors[name].topology_name for group in queue.resource_groups for name in _names(group)
                 if name in self._flavors}  # fmt: skip
        labels = {
            level_name(label): label for one in self.objects.topologies if one.name in names for label in one.levels
        }
        if request is None or request.level not in labels:
            return None
        label = labels[request.level]
        if request.segment is not None:
            return TopologyRequest(slice_level=label, slice_size=request.segment)
        return TopologyRequest(required=label) if request.level_required else TopologyRequest(preferred=label)

    def _nodes(self, view: ClusterView) -> Iterable[TopologyNode]:
        """Return the nodes of the cluster. Labels tell to which part of the network a node belongs
        at each level."""
        stated = [_stated_node(node) for node in view.cluster.nodes]
        needed = {label for one in self.objects.topologies for label in one.levels}
        if all(one is not None and needed <= one.labels.keys() for one in stated):
            yield from filter(None, stated)
            return
        levels = {level.name: level.domains for level in view.levels}
        labels = self._labels_of(levels)
        devices = {_device([name]) for queue in self._queues.values() for group in queue.resource_groups
                   for name in group.covered_resources if name not in _NATIVE}  # fmt: skip
        for number, node in enumerate(view.cluster.nodes):
            values = {label: f"{levels[level_name(label)][number]:06}" for label in labels}
            type_ = "" if node.gpu is None else node.gpu.name
            own: dict[str, str] = {}
            for flavor in self.objects.resource_flavors:
                if not flavor.gpu_types or type_ in flavor.gpu_types:
                    own = dict(flavor.node_labels) | own
            there = {"cpu": node.cpus, "memory": node.memory_gb * 2**30, "pods": float(_PODS_PER_NODE)}
            there |= dict.fromkeys(devices, float(node.gpus))
            yield TopologyNode(node.name, own | values | {HOSTNAME: node.name}, there)

    def _labels_of(self, levels: Collection[str]) -> set[str]:
        """Return the labels of the topologies in use, without that of the host.

        Raises:
            ConfigError: The network lacks a level, or a topology does not end with the host.
        """
        used = {flavor.topology_name for flavor in self.objects.resource_flavors}
        topologies = [topology for topology in self.objects.topologies if topology.name in used]
        labels = {label for topology in topologies for label in topology.levels} - {HOSTNAME}
        for label in labels:
            if level_name(label) not in levels:
                names = ", ".join(levels) or "it has none"
                raise ConfigError(f"kueue: the network has no level {level_name(label)!r} for {label}; levels: {names}")
        for topology in topologies:
            if topology.levels[-1:] != (HOSTNAME,):
                raise ConfigError(f"kueue: the lowest level of the topology {topology.name!r} must be {HOSTNAME}")
        return labels


def _stated_node(node: Node) -> TopologyNode | None:
    """Return a node with the labels that its manifest states, or None if it has no manifest."""
    if not node.manifest:
        return None
    manifest = json.loads(node.manifest)
    labels = {HOSTNAME: node.name, **object_in(manifest, "metadata", "labels")}
    if object_in(manifest, "spec").get("unschedulable"):
        labels = {}  # drop the labels, so that a cordoned node belongs to no domain
    there = {name: quantity(amount) for name, amount in object_in(manifest, "status", "allocatable").items()}
    there |= {"cpu": node.cpus, "memory": node.memory_gb * 2**30}
    return TopologyNode(node.name, labels, there, taints_of(list_in(manifest, "spec", "taints")))


class Carried(NamedTuple):
    """A workload as the objects of the cluster describe it (None if it is inactive), and the name
    of the pod set that stands for the task.
    """

    spec: Workload | None
    pod_set: str

    @property
    def requests(self) -> Mapping[str, float]:
        """Return the requests of one pod."""
        sets = () if self.spec is None else self.spec.pod_sets
        return next((one.requests for one in sets if one.name == self.pod_set), {})


def _as_demanded(pod_set: PodSet, task: TaskState, excluded: frozenset[str]) -> PodSet:
    """Return a pod set from a manifest, with the numbers of pods and GPUs that the task has now.
    They may differ from those in the manifest.
    """
    count, gpus = task.demand.gang or 1, task.demand.demand.gpus
    device = next((name for name in pod_set.requests if name in WHOLE_GPUS), "")
    requests = pod_set.requests
    if device and requests[device] != gpus:
        requests = {**requests, device: gpus}
    if count == pod_set.count and requests is pod_set.requests and not excluded:
        return pod_set
    least = None if pod_set.min_count is None else min(pod_set.min_count, count)
    return replace(pod_set, count=count, requests=requests, min_count=least, excluded=excluded)


@lru_cache(maxsize=1 << 14)
def _carried(manifest: str) -> Carried:
    """Read the workload in a task's manifest."""
    document = json.loads(manifest)
    return Carried(kueue_workload_object(document["workload"]), document.get("podSet", ""))


def _device(covered: Iterable[str]) -> str:
    """Return the resource that represents GPUs in a queue."""
    devices = [name for name in covered if name not in _NATIVE and not name.startswith("hugepages-")]
    return next((name for name in devices if "gpu" in name), devices[0] if devices else "nvidia.com/gpu")


def _names(group: ResourceGroup) -> list[str]:
    return [flavor.name for flavor in group.flavors]


def _all_of(view: ClusterView) -> dict[str, float]:
    """Return a quota for the whole cluster."""
    plain = (GPUS, *_RESOURCES)
    totals = {name: ordered_sum(getattr(node, name) for node in view.cluster.nodes) for name in plain}
    return {name: total for name, total in totals.items() if total}


def _objects_of(tree: tuple[QueueNode, ...]) -> KueueObjects:
    """Build Kueue's objects from a tree of queues."""
    queues: list[ClusterQueue] = []
    cohorts: list[Cohort] = []
    locals_: list[LocalQueue] = []
    flavors: dict[str, ResourceFlavor] = {}
    for root in tree:
        for node, above in root.walk():
            groups = _groups(node, flavors)
            parent = above[0] if above else ""
            if node.children:
                cohorts.append(Cohort(node.name, parent, groups, node.weight))
                continue
            if not node.quota:
                raise ConfigError(
                    f"kueue: the queue {node.name!r} has no quota; give each queue a quota in queues.tree"
                )
            queues.append(
                ClusterQueue(
                    node.name,
                    parent,
                    "StrictFIFO" if node.order == "strict" else "BestEffortFIFO",
                    groups,
                    QueuePreemption(_POLICIES[node.within], _POLICIES[node.reclaim]),  # type: ignore[arg-type]
                    weight=node.weight,
                )
            )
            locals_ += [LocalQueue(name, node.name) for name in dict.fromkeys((node.name, *node.aliases))]
    return KueueObjects(tuple(queues), tuple(cohorts), tuple(locals_), tuple(flavors.values()))


def _groups(node: QueueNode, flavors: dict[str, ResourceFlavor]) -> tuple[ResourceGroup, ...]:
    """Return a group for GPUs, whose flavors are the GPU types in the order of the quota. Also
    return one group for CPUs and one for memory."""
    by_resource: dict[str, list[FlavorQuotas]] = {}
    borrow, lend = _by_key(node.borrow), _by_key(node.lend)
    quota = dict.fromkeys([*_by_key(node.quota), *borrow, *lend], 0.0) | _by_key(node.quota)
    for key, amount in quota.items():
        resource = _RESOURCES.get(key, GPUS)
        size = 2**30 if resource == "memory" else 1
        limits = [None if key not in part else part[key] * size for part in (borrow, lend)]
        is_type = resource == GPUS and key != GPUS
        flavors.setdefault(key, ResourceFlavor(key, gpu_types=(key,) if is_type else ()))
        quotas = FlavorQuotas(key, {resource: ResourceQuota(amount * size, *limits)})
        by_resource.setdefault(resource, []).append(quotas)
    return tuple([ResourceGroup(tuple(quotas), (resource,)) for resource, quotas in by_resource.items()])


def _by_key(part: Mapping[str, float]) -> dict[str, float]:
    plain = (GPUS, *_RESOURCES)
    return {key if key in plain else canonical(key): amount for key, amount in part.items()}
