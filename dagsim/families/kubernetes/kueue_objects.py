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
from dagsim.families.kubernetes.terms import Requirement, Taint, Toleration

Policy: TypeAlias = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any"]
SearchRule: TypeAlias = Literal["MayStopSearch", "TryNextFlavor"]
StopPolicy: TypeAlias = Literal["None", "Hold", "HoldAndDrain"]
Strategy: TypeAlias = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]

_STRICT = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class ResourceFlavor:
    """A kind of node. ``gpu_types`` are the GPU types of these nodes, under the names used in
    dagsim. Jobs that cannot use any of these types never get the flavor. An empty tuple means that
    all types are possible.
    """

    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology_name: str = ""
    gpu_types: tuple[str, ...] = ()

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class KueueTopology:
    """The levels of a data centre as node labels, starting with the widest level."""

    name: str
    levels: tuple[str, ...]

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class TopologyNode:
    """A node on which pods are placed according to a topology. Its resources include ``pods``."""

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, float]
    taints: tuple[Taint, ...] = ()

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """The quota for a resource in a flavor. None means that there is no limit."""

    nominal: float
    borrowing_limit: float | None = None
    lending_limit: float | None = None

    __pydantic_config__ = _STRICT

    def __post_init__(self) -> None:
        for name in ("nominal", "borrowing_limit", "lending_limit"):
            amount = getattr(self, name)
            if amount is not None and not 0 <= amount < float("inf"):
                raise ModelError(f"kueue: {name} must be 0 or more, got {amount!r}")


@dataclass(frozen=True, slots=True)
class FlavorQuotas:
    """The quotas in one flavor for the resources of a group, by resource."""

    name: str
    resources: Mapping[str, ResourceQuota]

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that a pod receives together from one flavor. Flavors are tried in the given
    order."""

    flavors: tuple[FlavorQuotas, ...]
    covered_resources: tuple[str, ...] = ()

    __pydantic_config__ = _STRICT

    def __post_init__(self) -> None:
        if not self.covered_resources and self.flavors:
            object.__setattr__(self, "covered_resources", tuple(self.flavors[0].resources))


@dataclass(frozen=True, slots=True)
class BorrowWithinCohort:
    """Defines how a workload that borrows may preempt workloads in other queues."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    max_priority_threshold: float | None = None

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class QueuePreemption:
    """Defines which workloads a workload may preempt in its own queue and in other queues of its
    cohort."""

    within_cluster_queue: Policy = "Never"
    reclaim_within_cohort: Policy = "Never"
    borrow_within_cohort: BorrowWithinCohort = field(default_factory=BorrowWithinCohort)

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class FlavorFungibility:
    """Defines when the search for a flavor ends before the last flavor, and which flavor is
    considered best."""

    when_can_borrow: SearchRule = "MayStopSearch"
    when_can_preempt: SearchRule = "TryNextFlavor"
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] = "BorrowingOverPreemption"

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Cohort:
    """A group of queues and cohorts that lend quota to each other. A cohort that is mentioned only
    by its members need not be listed."""

    name: str
    parent: str = ""
    resource_groups: tuple[ResourceGroup, ...] = ()
    weight: float = 1.0

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """A queue with quota."""

    name: str
    cohort: str = ""
    queueing_strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    resource_groups: tuple[ResourceGroup, ...] = ()
    preemption: QueuePreemption = field(default_factory=QueuePreemption)
    flavor_fungibility: FlavorFungibility = field(default_factory=FlavorFungibility)
    weight: float = 1.0
    stop_policy: StopPolicy = "None"
    usage_based: bool = False
    """How LocalQueues share the queue according to past usage (``admissionScope.admissionMode``),
    if that is configured."""

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """A name (``queue`` or ``namespace/queue``) under which workloads are submitted to a
    ClusterQueue."""

    name: str
    cluster_queue: str
    weight: float = 1.0
    stop_policy: StopPolicy = "None"
    consumed_resources: Mapping[str, float] = field(default_factory=dict)
    """Past usage that admission fair sharing takes into account."""

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class AdmissionFairSharing:
    """Settings for sharing a ClusterQueue among its LocalQueues according to their past usage."""

    usage_half_life_s: float = 0.0
    usage_sampling_interval_s: float = 300.0
    resource_weights: Mapping[str, float] = field(default_factory=dict)

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class KueueObjects:
    """Everything that an administrator configures. ``fair_sharing`` lists the strategies for
    preemption with fair sharing. None means classic preemption.

    Raises:
        ModelError: Two objects have the same name, cohorts form a cycle, or the ClusterQueue of a
            LocalQueue is missing.
    """

    cluster_queues: tuple[ClusterQueue, ...] = ()
    cohorts: tuple[Cohort, ...] = ()
    local_queues: tuple[LocalQueue, ...] = ()
    resource_flavors: tuple[ResourceFlavor, ...] = ()
    topologies: tuple[KueueTopology, ...] = ()
    nodes: tuple[TopologyNode, ...] = ()
    fair_sharing: tuple[Strategy, ...] | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None

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
        """Return the objects with pseudonyms in place of all names, and without labels, taints and
        tolerations. The levels of topologies keep the last part of their labels."""

        def level(label: str) -> str:
            return label if label.startswith("kubernetes.io/") else f"example.com/{label.rpartition('/')[2]}"

        def groups(listed: tuple[ResourceGroup, ...]) -> tuple[ResourceGroup, ...]:
            return tuple(
                [
                    replace(group, flavors=tuple([replace(one, name=new("flavor", one.name)) for one in group.flavors]))
                    for group in listed
                ]
            )

        def local(text: str) -> str:
            namespace, slash, queue = text.rpartition("/")
            return new("account", namespace) + slash + new("partition", queue)

        def owner(name: str) -> str:
            return new("account", name)

        return replace(
            self,
            cluster_queues=tuple(
                [
                    replace(
                        one, name=owner(one.name), cohort=owner(one.cohort), resource_groups=groups(one.resource_groups)
                    )
                    for one in self.cluster_queues
                ]
            ),
            cohorts=tuple(
                [
                    replace(
                        one,
                        name=owner(one.name),
                        parent=owner(one.parent),
                        resource_groups=groups(one.resource_groups),
                    )
                    for one in self.cohorts
                ]
            ),
            local_queues=tuple(
                [
                    replace(one, name=local(one.name), cluster_queue=owner(one.cluster_queue))
                    for one in self.local_queues
                ]
            ),
            resource_flavors=tuple(
                [
                    ResourceFlavor(
                        new("flavor", one.name),
                        topology_name=new("topology", one.topology_name),
                        gpu_types=one.gpu_types,
                    )
                    for one in self.resource_flavors
                ]
            ),
            topologies=tuple(
                [
                    replace(one, name=new("topology", one.name), levels=tuple(map(level, one.levels)))
                    for one in self.topologies
                ]
            ),
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
