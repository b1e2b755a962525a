"""Kueue's objects (v1beta2): those that an administrator configures, and the workloads in the
queues.

Attributes have the names used in Kueue's API, written in snake case. Amounts are in natural units
of the resource: cores, bytes, devices, and pods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from dagsim.errors import ModelError
from dagsim.families.kubernetes.api.terms import Requirement, Taint, Toleration

PreemptionPolicy: TypeAlias = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any"]
SearchRule: TypeAlias = Literal["MayStopSearch", "TryNextFlavor"]
StopPolicy: TypeAlias = Literal["None", "Hold", "HoldAndDrain"]
Strategy: TypeAlias = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]

_STRICT = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class ResourceFlavor:
    """A ResourceFlavor: a kind of node."""

    name: str
    """Name of the flavor, to which quotas refer."""
    node_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes to which this flavor applies."""
    node_taints: tuple[Taint, ...] = ()
    """Taints of the nodes, which workloads have to tolerate."""
    tolerations: tuple[Toleration, ...] = ()
    """Tolerations that are added to workloads when they are admitted with this flavor."""
    topology_name: str = ""
    """Name of the topology by which pods are placed, or empty if no topology is used."""
    gpu_types: tuple[str, ...] = ()
    """GPU types of these nodes, by the names that dagsim uses. Jobs that cannot use any of these types
    are never assigned the flavor. If empty, the nodes may have any type.
    """

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class KueueTopology:
    """The levels of a data centre as node labels, starting with the widest level."""

    name: str
    """Name of the topology, to which flavors refer."""
    levels: tuple[str, ...]
    """Node labels, from the widest level to the narrowest."""

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class TopologyNode:
    """A node on which pods are placed according to a topology. Its resources include ``pods``."""

    name: str
    """Name of the node."""
    labels: Mapping[str, str]
    """Labels of the node, which give its location in the topology."""
    allocatable: Mapping[str, float]
    """Amount of each resource that pods can use, in natural units."""
    taints: tuple[Taint, ...] = ()
    """Taints that pods have to tolerate."""

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """The quota that one flavor provides for one resource. None means that there is no limit."""

    nominal: float
    """The queue's own amount of the resource."""
    borrowing_limit: float | None = None
    """Largest amount that may be borrowed in addition to ``nominal``."""
    lending_limit: float | None = None
    """Largest part of ``nominal`` that may be lent to other queues."""

    __pydantic_config__ = _STRICT

    def __post_init__(self) -> None:
        for name in ("nominal", "borrowing_limit", "lending_limit"):
            amount = getattr(self, name)
            if amount is not None and not 0 <= amount < float("inf"):
                raise ModelError(f"kueue: {name} must be 0 or more, got {amount!r}")


@dataclass(frozen=True, slots=True)
class FlavorQuotas:
    """The quotas that one flavor provides for each resource of a group."""

    name: str
    """Name of the ResourceFlavor."""
    resources: Mapping[str, ResourceQuota]
    """Quota of each resource in this flavor."""

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that a pod always receives from the same flavor. Flavors are tried in the given
    order.
    """

    flavors: tuple[FlavorQuotas, ...]
    """The flavors, in the order in which they are tried, with their quotas."""
    covered_resources: tuple[str, ...] = ()
    """The resources in the group. The default is the resources of the first flavor."""

    __pydantic_config__ = _STRICT

    def __post_init__(self) -> None:
        if not self.covered_resources and self.flavors:
            object.__setattr__(self, "covered_resources", tuple(self.flavors[0].resources))


@dataclass(frozen=True, slots=True)
class BorrowWithinCohort:
    """The rule for whether a workload that needs borrowed quota may preempt workloads in other queues."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    """With ``LowerPriority``, a borrowing workload may preempt workloads with lower priorities in
    other queues. ``Never`` forbids this.
    """
    max_priority_threshold: float | None = None
    """Borrowing workloads may only preempt workloads whose priority is at most this threshold. None
    means no threshold.
    """

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class QueuePreemption:
    """The rule for which workloads a workload may preempt in its own queue and in other queues of its cohort."""

    within_cluster_queue: PreemptionPolicy = "Never"
    """Which workloads in its own queue a workload may preempt."""
    reclaim_within_cohort: PreemptionPolicy = "Never"
    """Which workloads in other queues of the cohort a workload may preempt, if those queues use
    more than their quota.
    """
    borrow_within_cohort: BorrowWithinCohort = field(default_factory=BorrowWithinCohort)
    """Whether a workload may preempt workloads in other queues while it borrows."""

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class FlavorFungibility:
    """The rule for when the search for a flavor may end early, and which of the flavors found is preferred."""

    when_can_borrow: SearchRule = "MayStopSearch"
    """Whether the search stops at a flavor in which the workload fits by borrowing
    (``MayStopSearch``) or continues with the next flavor (``TryNextFlavor``)."""
    when_can_preempt: SearchRule = "TryNextFlavor"
    """Whether the search stops at a flavor in which the workload fits by preempting
    (``MayStopSearch``) or continues with the next flavor (``TryNextFlavor``)."""
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] = "BorrowingOverPreemption"
    """Which flavor is preferred: one in which the workload borrows, or one in which it preempts."""

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Cohort:
    """A group of queues and cohorts that lend quota to each other. You need not list a cohort that
    only its members refer to.
    """

    name: str
    """Name of the cohort, to which queues and other cohorts refer."""
    parent: str = ""
    """Name of the cohort that contains this one, or empty if this cohort is the top of a tree."""
    resource_groups: tuple[ResourceGroup, ...] = ()
    """Quotas that belong to the cohort itself, and which all its members may use."""
    weight: float = 1.0
    """Weight in fair sharing among the members of the parent."""

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """A ClusterQueue: a queue that has a quota of its own."""

    name: str
    """Name of the queue, to which LocalQueues refer."""
    cohort: str = ""
    """Name of the cohort in which the queue shares quota, or empty if the queue does not belong to
    a cohort.
    """
    queueing_strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    """With ``StrictFIFO``, a workload that does not fit blocks the workloads behind it. With
    ``BestEffortFIFO``, later workloads may overtake it."""
    resource_groups: tuple[ResourceGroup, ...] = ()
    """The quotas of the queue, for each group of resources."""
    preemption: QueuePreemption = field(default_factory=QueuePreemption)
    """Which workloads may be preempted by the workloads in this queue."""
    flavor_fungibility: FlavorFungibility = field(default_factory=FlavorFungibility)
    """Whether a workload that would have to borrow or preempt in one flavor tries the next flavor
    first.
    """
    weight: float = 1.0
    """Weight in fair sharing. A queue with twice the weight may borrow twice as much."""
    stop_policy: StopPolicy = "None"
    """``Hold`` stops new admissions, and ``HoldAndDrain`` also evicts the admitted workloads."""
    usage_based: bool = False
    """True if LocalQueues share the queue according to their past usage
    (``admissionScope.admissionMode``).
    """

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """A LocalQueue: the name (``queue`` or ``namespace/queue``) under which workloads are submitted
    to a ClusterQueue.
    """

    name: str
    """Name of the queue: ``queue`` or ``namespace/queue``."""
    cluster_queue: str
    """Name of the ClusterQueue that admits the workloads."""
    weight: float = 1.0
    """Weight in admission fair sharing, by which the past usage of the queue is divided."""
    stop_policy: StopPolicy = "None"
    """``Hold`` stops new admissions, and ``HoldAndDrain`` also evicts the admitted workloads."""
    consumed_resources: Mapping[str, float] = field(default_factory=dict)
    """Past usage of each resource, which admission fair sharing takes into account."""

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class AdmissionFairSharing:
    """Settings for admission fair sharing, in which LocalQueues share their ClusterQueue according
    to their past usage.
    """

    usage_half_life_s: float = 0.0
    """Half-life of past usage in seconds. With 0, past usage does not decay."""
    usage_sampling_interval_s: float = 300.0
    """Time between two updates of the past usage, in seconds."""
    resource_weights: Mapping[str, float] = field(default_factory=dict)
    """Weight with which each resource counts towards usage. Resources that are not listed have a
    weight of 1.
    """

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class KueueObjects:
    """Everything that an administrator configures in Kueue.

    Raises:
        ModelError: Two objects have the same name, cohorts form a cycle, or the ClusterQueue of a
            LocalQueue is missing.
    """

    cluster_queues: tuple[ClusterQueue, ...] = ()
    """The queues with quotas."""
    cohorts: tuple[Cohort, ...] = ()
    """Groups of queues that lend quota to each other."""
    local_queues: tuple[LocalQueue, ...] = ()
    """The names under which workloads are submitted."""
    resource_flavors: tuple[ResourceFlavor, ...] = ()
    """The kinds of nodes."""
    topologies: tuple[KueueTopology, ...] = ()
    """Topologies: the levels of the data centre that Kueue considers when it places pods."""
    nodes: tuple[TopologyNode, ...] = ()
    """The nodes on which Kueue places pods according to a topology."""
    fair_sharing: tuple[Strategy, ...] | None = None
    """Strategies that decide which workloads may be preempted for fair sharing. None means classic
    preemption.
    """
    admission_fair_sharing: AdmissionFairSharing | None = None
    """Settings for sharing ClusterQueues among LocalQueues according to past usage. None turns this
    off.
    """

    __pydantic_config__ = _STRICT

    def __post_init__(self) -> None:
        kinds = {
            "ClusterQueue": [queue.name for queue in self.cluster_queues],
            "Cohort": [cohort.name for cohort in self.cohorts],
            "LocalQueue": [queue.name for queue in self.local_queues],
            "ResourceFlavor": [flavor.name for flavor in self.resource_flavors],
            "Topology": [topology.name for topology in self.topologies],
        }
        for kind, names in kinds.items():
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ModelError(f"kueue: the {kind} {twice!r} occurs twice")
        parents = {cohort.name: cohort.parent for cohort in self.cohorts}
        for name in parents:
            line = [name]
            while parent := parents.get(line[-1]):
                line.append(parent)
                if parent in line[:-1]:
                    raise ModelError(f"Cohort {name!r}: the cohort is its own ancestor ({' > '.join(line)})")
        for local in self.local_queues:
            if local.cluster_queue not in kinds["ClusterQueue"]:
                raise ModelError(f"LocalQueue {local.name!r}: there is no ClusterQueue {local.cluster_queue!r}")

    def names(self) -> list[str]:
        """Return the names of all cohorts, ClusterQueues and LocalQueues."""
        return [one.name for kind in (self.cohorts, self.cluster_queues, self.local_queues) for one in kind]

    def renamed(self, new: Callable[[str, str], str]) -> KueueObjects:
        """Return the objects with pseudonyms in place of all names, and without nodes, labels, taints
        and tolerations. In the labels of topology levels, only the last part stays the same."""

        def level(label: str) -> str:
            return label if label.startswith("kubernetes.io/") else f"example.com/{label.rpartition('/')[2]}"

        def owner(name: str) -> str:
            return new("account", name)

        def group(one: ResourceGroup) -> ResourceGroup:
            flavors = [replace(quotas, name=new("flavor", quotas.name)) for quotas in one.flavors]
            return replace(one, flavors=tuple(flavors))

        def cluster_queue(one: ClusterQueue) -> ClusterQueue:
            groups = tuple(map(group, one.resource_groups))
            return replace(one, name=owner(one.name), cohort=owner(one.cohort), resource_groups=groups)

        def cohort(one: Cohort) -> Cohort:
            groups = tuple(map(group, one.resource_groups))
            return replace(one, name=owner(one.name), parent=owner(one.parent), resource_groups=groups)

        def local_queue(one: LocalQueue) -> LocalQueue:
            namespace, slash, queue = one.name.rpartition("/")
            name = new("account", namespace) + slash + new("partition", queue)
            return replace(one, name=name, cluster_queue=owner(one.cluster_queue))

        def flavor(one: ResourceFlavor) -> ResourceFlavor:
            topology = new("topology", one.topology_name)
            return ResourceFlavor(new("flavor", one.name), topology_name=topology, gpu_types=one.gpu_types)

        def topology(one: KueueTopology) -> KueueTopology:
            return replace(one, name=new("topology", one.name), levels=tuple(map(level, one.levels)))

        return replace(
            self,
            cluster_queues=tuple(map(cluster_queue, self.cluster_queues)),
            cohorts=tuple(map(cohort, self.cohorts)),
            local_queues=tuple(map(local_queue, self.local_queues)),
            resource_flavors=tuple(map(flavor, self.resource_flavors)),
            topologies=tuple(map(topology, self.topologies)),
            nodes=(),
        )


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """The level at which the pods of a set have to be close together; levels are node labels.

    Slices are groups of ``slice_size`` pods, each of which stays within one domain of
    ``slice_level``. Pod sets in the same ``group`` are assigned the same flavor and domain.
    """

    required: str = ""
    preferred: str = ""
    unconstrained: bool = False
    slice_level: str = ""
    slice_size: int = 0
    group: str = ""

    @property
    def explicit(self) -> bool:
        """True if a placement is requested, and not merely a group."""
        return bool(self.required or self.preferred or self.unconstrained or self.slice_level)


@dataclass(frozen=True, slots=True)
class PodSet:
    """Identical pods. ``requests`` is what one pod requests; with ``min_count``, fewer pods than
    ``count`` may be admitted.

    ``affinity`` lists alternative sets of requirements. ``excluded`` lists the flavors that have no
    node for these pods.
    """

    name: str = "main"
    count: int = 1
    requests: Mapping[str, float] = field(default_factory=dict)
    min_count: int | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[tuple[Requirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: TopologyRequest | None = None
    excluded: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PodSetAssignment:
    """The assignment to a pod set: flavors and usage by resource, and pods by topology domain."""

    name: str
    flavors: Mapping[str, str]
    usage: Mapping[str, float]
    count: int
    domains: tuple[tuple[tuple[str, ...], int], ...] | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A unit of admission. Times are in seconds; ``reserved_s`` is the time at which the workload
    received its quota."""

    name: str
    queue: str
    priority: float = 0.0
    created_s: float = 0.0
    uid: str = ""
    pod_sets: tuple[PodSet, ...] = ()
    cluster_queue: str = ""
    """The ClusterQueue that admitted it."""
    assignments: tuple[PodSetAssignment, ...] = ()
    reserved_s: float | None = None
    evicted: bool = False
