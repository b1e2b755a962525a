"""Workloads in the admission engine, with the flavors and domains that are assigned to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from dagsim.families.kubernetes.kueue.amounts import whole
from dagsim.families.kubernetes.kueue.domains import PodPlacement, Requests
from dagsim.families.kubernetes.kueue.kueue_objects import PodSet, Workload
from dagsim.families.kubernetes.kueue.quota import SlotAmounts


class Mode(IntEnum):
    """The result for a flavor, a pod set or a workload. It fits, would fit after preemption, or
    does not fit.
    """

    NO_FIT = 0
    PREEMPT = 1
    FIT = 2


@dataclass(slots=True)
class FlavorChoice:
    """A flavor chosen for one resource. ``tried`` is the last flavor of its group that the search
    has tried, or -1 if the search has reached the end of the group. ``borrowing`` is the height of
    the subtree that provides the quota.
    """

    flavor: str
    slot: int
    mode: Mode
    borrowing: int
    tried: int = -1


@dataclass(slots=True)
class SetAssignment:
    """A possible assignment to a pod set. ``totals`` are the requests of all its pods. The pod set
    fits if there are no reasons against it.
    """

    name: str
    count: int
    totals: dict[str, int]
    choices: dict[str, FlavorChoice] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    placement: PodPlacement | None = None

    @property
    def mode(self) -> Mode:
        """Return the worst mode among the resources of the workload."""
        if not self.reasons:
            return Mode.FIT
        if not self.choices:
            return Mode.NO_FIT
        return min(choice.mode for choice in self.choices.values())


@dataclass(slots=True)
class Assignment:
    """A possible assignment to a workload. ``usage`` is the quota used, by slot. ``pods`` contains
    the topology domains of each flavor, with the requests of one pod and the number of pods."""

    sets: list[SetAssignment] = field(default_factory=list)
    mode: Mode = Mode.NO_FIT
    borrowing: int = 0
    usage: SlotAmounts = field(default_factory=dict)
    pods: list[tuple[str, int, Requests, int]] = field(default_factory=list)

    @property
    def message(self) -> str:
        """Return the reason why the workload does not fit, in the words of Kueue."""
        return "; ".join(
            f"couldn't assign flavors to pod set {one.name}: {', '.join(sorted(one.reasons))}"
            for one in self.sets
            if one.reasons
        )

    @property
    def tried(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        """Return the last flavor that was tried, by pod set and resource."""
        return tuple([tuple([(name, choice.tried) for name, choice in one.choices.items()]) for one in self.sets])


class WorkloadState:
    """A workload that is waiting or holds quota."""

    __slots__ = (
        "arrived", "assignment", "cluster_queue", "created", "evicted", "local_queue", "message", "name", "pods",
        "priority", "requests", "reserved", "shape", "slots", "spec", "tried", "tried_generation", "uid", "usage",
        "where",
    )  # fmt: skip

    def __init__(self, spec: Workload, cluster_queue: str, shape: int) -> None:
        self.spec, self.cluster_queue, self.shape = spec, cluster_queue, shape
        self.name, self.local_queue, self.uid = spec.name, spec.queue, spec.uid
        self.priority, self.created = spec.priority, spec.created_s
        self.requests = [requests_in_parts(pod_set) for pod_set in spec.pod_sets]
        self.reserved = spec.reserved_s
        self.evicted = spec.evicted
        self.where: Literal["", "heap", "aside", "admitted"] = ""
        """Its place: ``aside`` means inadmissible for now."""
        self.message: str | None = None
        self.tried: tuple[tuple[tuple[str, int], ...], ...] = ()
        self.tried_generation = -1
        self.assignment: Assignment | None = None
        self.usage: SlotAmounts = {}
        self.slots: frozenset[int] = frozenset()
        """Slots of the workload, including slots of which it uses nothing."""
        self.pods: list[tuple[str, int, Requests, int]] = []
        """Flavor, number of the topology domain, requests of one pod, and number of pods."""
        self.arrived = 0
        """Its order of arrival among all workloads."""

    @property
    def may_shrink(self) -> bool:
        """True if the workload may be admitted with fewer pods."""
        return any(pod_set.min_count is not None for pod_set in self.spec.pod_sets)


def requests_in_parts(pod_set: PodSet) -> Requests:
    """Return what one pod requests, in whole units, sorted by resource."""
    return tuple(sorted((name, whole(name, amount)) for name, amount in pod_set.requests.items()))


def pods_of(assignment: Assignment) -> list[tuple[str, int, Requests, int]]:
    """Return the topology usage of an admitted workload, counted once for each of its flavors."""
    pods = []
    for one in assignment.sets:
        each = tuple(sorted((name, one.totals[name] // one.count) for name in one.choices)) if one.count else ()
        for leaf, count in one.placement or ():
            for flavor in dict.fromkeys(choice.flavor for choice in one.choices.values()):
                pods.append((flavor, leaf.number, each, count))
    return pods
