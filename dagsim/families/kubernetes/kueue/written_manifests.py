"""Kueue's objects, written as manifests for its real manager."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dagsim.families.kubernetes.api.terms import HOSTNAME, Requirement, Taint, Toleration
from dagsim.families.kubernetes.kueue.amounts import text, whole
from dagsim.families.kubernetes.kueue.kueue_objects import (
    ClusterQueue,
    KueueObjects,
    PodSet,
    PodSetAssignment,
    ResourceGroup,
    ResourceQuota,
    Workload,
)
from dagsim.families.kubernetes.server.object_store import stamp
from dagsim.families.kubernetes.server.patches import Manifest

KUEUE_GROUP = "kueue.x-k8s.io"
_FLAVOR = "dagsim/flavor"
"""Label of flavors, by which workloads avoid the flavors that have no node for them."""


def manifests_of(objects: KueueObjects, version: str) -> Iterator[tuple[str, str, Manifest]]:
    """Yield the objects of an installation, each with its group and plural name. All defaults are
    written out, because there is no webhook that would fill them in.
    """
    yield "", "namespaces", {"metadata": {"name": "default"}}
    for topology in objects.topologies:
        levels = [{"nodeLabel": label} for label in topology.levels]
        yield KUEUE_GROUP, "topologies", {"metadata": {"name": topology.name}, "spec": {"levels": levels}}
    for node in objects.nodes:
        labels = {HOSTNAME: node.name, **node.labels}
        status = {"allocatable": _amounts(node.allocatable)}
        taints = {"taints": [_taint(taint) for taint in node.taints]}
        yield "", "nodes", {"metadata": {"name": node.name, "labels": labels}, "spec": taints, "status": status}
    for flavor in objects.resource_flavors:
        own = {"topologyName": flavor.topology_name} if flavor.topology_name else {}
        labels = {**flavor.node_labels, **({} if own else {_FLAVOR: flavor.name})}
        spec: Manifest = {
            "nodeLabels": labels,
            "nodeTaints": [_taint(taint) for taint in flavor.node_taints],
            "tolerations": [_toleration(one) for one in flavor.tolerations],
            **own,
        }
        yield KUEUE_GROUP, "resourceflavors", {"metadata": {"name": flavor.name}, "spec": spec}
    for cohort in objects.cohorts:
        above = {} if not cohort.parent else {"parentName" if version == "v1beta2" else "parent": cohort.parent}
        spec = {
            **above,
            "resourceGroups": _groups(cohort.resource_groups),
            "fairSharing": {"weight": f"{cohort.weight:g}"},
        }
        yield KUEUE_GROUP, "cohorts", {"metadata": {"name": cohort.name}, "spec": spec}
    for queue in objects.cluster_queues:
        yield KUEUE_GROUP, "clusterqueues", {"metadata": {"name": queue.name}, "spec": _queue(queue, version)}
    for local in objects.local_queues:
        spec = {"clusterQueue": local.cluster_queue, "stopPolicy": local.stop_policy}
        name = plain_name(local.name)
        yield KUEUE_GROUP, "localqueues", {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def plain_name(name: str) -> str:
    """Turn the full name of a LocalQueue or a workload into a plain name, because all objects are
    in one namespace here."""
    return name.replace("/", ".")


def _queue(queue: ClusterQueue, version: str) -> Manifest:
    rules, preemption = queue.flavor_fungibility, queue.preemption
    old = version == "v1beta1"
    borrow, preempt = (
        stop if old and rule == "MayStopSearch" else rule
        for rule, stop in ((rules.when_can_borrow, "Borrow"), (rules.when_can_preempt, "Preempt"))
    )
    threshold = preemption.borrow_within_cohort.max_priority_threshold
    within = {"policy": preemption.borrow_within_cohort.policy}
    return {
        **({("cohort" if old else "cohortName"): queue.cohort} if queue.cohort else {}),
        "namespaceSelector": {},
        "queueingStrategy": queue.queueing_strategy,
        "resourceGroups": _groups(queue.resource_groups),
        "preemption": {
            "withinClusterQueue": preemption.within_cluster_queue,
            "reclaimWithinCohort": preemption.reclaim_within_cohort,
            "borrowWithinCohort": within | ({} if threshold is None else {"maxPriorityThreshold": int(threshold)}),
        },
        "flavorFungibility": {
            "whenCanBorrow": borrow,
            "whenCanPreempt": preempt,
            **({} if old else {"preference": rules.preference}),
        },
        "stopPolicy": queue.stop_policy,
        "fairSharing": {"weight": f"{queue.weight:g}"},
    }


def _groups(groups: tuple[ResourceGroup, ...]) -> list[Manifest]:
    return [
        {
            "coveredResources": list(group.covered_resources),
            "flavors": [
                {"name": flavor.name, "resources": [_quota(name, quota) for name, quota in flavor.resources.items()]}
                for flavor in group.flavors
            ],
        }
        for group in groups
    ]


def _quota(name: str, quota: ResourceQuota) -> Manifest:
    limits = {"borrowingLimit": quota.borrowing_limit, "lendingLimit": quota.lending_limit}
    stated = {key: _amount(name, limit) for key, limit in limits.items() if limit is not None}
    return {"name": name, "nominalQuota": _amount(name, quota.nominal), **stated}


def _amount(name: str, amount: float) -> str:
    return text(name, whole(name, amount))


def _amounts(amounts: Mapping[str, float]) -> dict[str, str]:
    return {name: _amount(name, amount) for name, amount in amounts.items()}


def _taint(taint: Taint) -> Manifest:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}


def _toleration(one: Toleration) -> Manifest:
    stated = {"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect}
    return {key: value for key, value in stated.items() if value}


def _requirement(one: Requirement) -> Manifest:
    return {"key": one.key, "operator": one.operator, "values": list(one.values)}


def workload_manifest(spec: Workload, version: str) -> Manifest:
    """Write a workload. A workload with assignments holds its quota."""
    object: Manifest = {
        "metadata": {"name": spec.name, "namespace": "default"},
        "spec": {
            "active": True,
            "queueName": plain_name(spec.queue),
            "priority": int(spec.priority),
            "podSets": [_pod_set(one) for one in spec.pod_sets],
        },
    }
    if spec.assignments:
        since = {"lastTransitionTime": stamp(spec.reserved_s or 0.0), "status": "True", "observedGeneration": 1}
        object["status"] = {
            "admission": {
                "clusterQueue": spec.cluster_queue,
                "podSetAssignments": [_assigned(one, version) for one in spec.assignments],
            },
            "conditions": [
                {"type": kind, "reason": kind, "message": "", **since} for kind in ("QuotaReserved", "Admitted")
            ],
        }
    return object


def _pod_set(one: PodSet) -> Manifest:
    requests = _amounts(one.requests)
    terms = [[_requirement(rule) for rule in term] for term in one.affinity]
    if one.excluded:
        away = {"key": _FLAVOR, "operator": "NotIn", "values": sorted(one.excluded)}
        terms = [[*term, away] for term in terms or [[]]]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}}}  # fmt: skip
    spec: Manifest = {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "none", "resources": {"requests": requests}}],
        "tolerations": [_toleration(rule) for rule in one.tolerations],
        **({"nodeSelector": dict(one.node_selector)} if one.node_selector else {}),
        **({"affinity": affinity} if terms else {}),
    }
    pod_set: Manifest = {"name": one.name, "count": one.count, "template": {"metadata": {}, "spec": spec}}
    if one.min_count is not None:
        pod_set["minCount"] = one.min_count
    if one.topology is not None:
        asked = one.topology
        stated = {
            "required": asked.required,
            "preferred": asked.preferred,
            "unconstrained": asked.unconstrained,
            "podSetSliceRequiredTopology": asked.slice_level,
            "podSetSliceSize": asked.slice_size,
            "podSetGroupName": asked.group,
        }
        pod_set["topologyRequest"] = {key: value for key, value in stated.items() if value}
    return pod_set


def _assigned(one: PodSetAssignment, version: str) -> Manifest:
    usage = _amounts(one.usage)
    object: Manifest = {"name": one.name, "flavors": dict(one.flavors), "resourceUsage": usage, "count": one.count}
    if one.domains:
        levels = [HOSTNAME]
        if version == "v1beta1":
            domains = [{"values": list(values), "count": count} for values, count in one.domains]
            object["topologyAssignment"] = {"levels": levels, "domains": domains}
        else:
            slices = [
                {"domainCount": 1, "podCounts": {"universal": count}, "valuesPerLevel": [{"universal": values[-1]}]}
                for values, count in one.domains
            ]
            object["topologyAssignment"] = {"levels": levels, "slices": slices}
    return object
