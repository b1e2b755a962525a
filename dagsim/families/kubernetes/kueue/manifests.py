"""Readers that turn the manifests of Kueue (v1beta1 and v1beta2), as ``kubectl get -o json`` prints
them, into Kueue's objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagsim.errors import ModelError, TraceError
from dagsim.families.kubernetes.api.terms import pod_requests, quantity, requirements_of, taints_of, tolerations_of
from dagsim.families.kubernetes.kueue.kueue_objects import (
    AdmissionFairSharing,
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    FlavorFungibility,
    FlavorQuotas,
    KueueObjects,
    KueueTopology,
    LocalQueue,
    PodSet,
    PodSetAssignment,
    QueuePreemption,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    TopologyNode,
    TopologyRequest,
    Workload,
)
from dagsim.model.arithmetic import ordered_sum
from dagsim.traces.documents import list_in, object_in, text_in
from dagsim.traces.fields import Dirty
from dagsim.traces.times import moment_s

KINDS = ("ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "Topology", "Configuration")
"""The kinds that ``kueue_objects`` reads."""

MOST_PODS = 1 << 20
"""Maximum number of pods of one pod set."""
_POLICIES = ("Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any")
_RECLAIM = ("Never", "LowerPriority", "Any")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def full_name(manifest: Any) -> str:
    """Return ``namespace/name``, or only the name if the object has no namespace."""
    namespace, name = text_in(manifest, "metadata", "namespace"), text_in(manifest, "metadata", "name")
    return f"{namespace}/{name}" if namespace else name


def kueue_objects(manifests: Iterable[Mapping[str, Any]], nodes: Iterable[Mapping[str, Any]] = ()) -> KueueObjects:
    """Read the objects that an administrator has configured. Manifests of other kinds are ignored.

    ``nodes`` are the Kubernetes nodes on which topologies place pods.

    Raises:
        TraceError: A quantity or a keyword cannot be read, cohorts form a cycle, or a name occurs
            twice.
    """
    by_kind: dict[str, list[Mapping[str, Any]]] = {kind: [] for kind in KINDS}
    for manifest in manifests:
        by_kind.get(text_in(manifest, "kind"), []).append(manifest)
    queues = tuple([_cluster_queue(one) for one in by_kind["ClusterQueue"]])
    names = {queue.name for queue in queues}
    flavors = tuple([_flavor(one) for one in by_kind["ResourceFlavor"]])
    configuration = by_kind["Configuration"][-1] if by_kind["Configuration"] else {}
    try:
        return KueueObjects(
            queues,
            tuple([_cohort(one) for one in by_kind["Cohort"]]),
            tuple([one for one in map(_local_queue, by_kind["LocalQueue"]) if one.cluster_queue in names]),
            flavors,
            tuple([_topology(one) for one in by_kind["Topology"]]),
            tuple([one for one in map(_node, nodes) if one is not None]) if by_kind["Topology"] else (),
            _fair_sharing(configuration),
            _admission_fair_sharing(configuration),
        )
    except ModelError as error:
        raise TraceError(f"Kueue: {error}") from None


def with_objects(objects: KueueObjects, manifests: Iterable[Mapping[str, Any]]) -> KueueObjects:
    """Add the objects from some manifests, and return all objects. An added object replaces an
    existing object of the same kind and name, and a Configuration replaces the settings of fair
    sharing.

    Raises:
        TraceError: ``kueue_objects`` would raise it, or no manifest is of a supported kind.
    """
    listed = [manifest for manifest in manifests if text_in(manifest, "kind") in KINDS]
    if not listed:
        raise TraceError(f"no manifest is a Kueue object; known kinds: {', '.join(KINDS)}")
    changed: dict[str, Any] = {}
    for field, kind, read in (
        ("cluster_queues", "ClusterQueue", _cluster_queue),
        ("cohorts", "Cohort", _cohort),
        ("local_queues", "LocalQueue", _local_queue),
        ("resource_flavors", "ResourceFlavor", _flavor),
        ("topologies", "Topology", _topology),
    ):
        before = {one.name: one for one in getattr(objects, field)}
        news = [read(manifest) for manifest in listed if text_in(manifest, "kind") == kind]
        # The manifest does not state GPU types, so keep those that follow from the site's nodes.
        if kind == "ResourceFlavor":
            news = [replace(one, gpu_types=before[one.name].gpu_types) if one.name in before else one for one in news]
        changed[field] = tuple((before | {one.name: one for one in news}).values())
    configuration = next((one for one in reversed(listed) if text_in(one, "kind") == "Configuration"), None)
    if configuration is not None:
        changed["fair_sharing"] = _fair_sharing(configuration)
        changed["admission_fair_sharing"] = _admission_fair_sharing(configuration)
    try:
        return replace(objects, **changed)
    except ModelError as error:
        raise TraceError(f"Kueue: {error}") from None


def kueue_workload_object(
    manifest: Mapping[str, Any], priorities: Mapping[str, float] | None = None
) -> Workload | None:
    """Read a workload. Return None if the workload has finished or is inactive. ``priorities`` maps
    the names of priority classes to priorities.

    Raises:
        TraceError: A quantity or time cannot be read.
    """
    name, spec, status = full_name(manifest), object_in(manifest, "spec"), object_in(manifest, "status")
    conditions = {
        text_in(one, "type"): one for one in list_in(status, "conditions") if text_in(one, "status") == "True"
    }
    if "Finished" in conditions or spec.get("active") is False:
        return None
    where = f"Workload {name}"
    admission = object_in(status, "admission")
    reserved = conditions.get("QuotaReserved")
    priority = spec.get("priority")
    if priority is None:
        priority = (priorities or {}).get(text_in(spec, "priorityClassName"), 0.0)
    namespace = text_in(manifest, "metadata", "namespace")
    queue = text_in(spec, "queueName")
    pod_sets = tuple([_pod_set(where, one) for one in list_in(spec, "podSets")])
    requests = {pod_set.name: pod_set.requests for pod_set in pod_sets}
    return Workload(
        name=name,
        queue=f"{namespace}/{queue}" if namespace else queue,
        priority=_number(where, "priority", priority),
        created_s=_moment(where, object_in(manifest, "metadata").get("creationTimestamp")),
        uid=text_in(manifest, "metadata", "uid"),
        pod_sets=pod_sets,
        cluster_queue=text_in(admission, "clusterQueue"),
        assignments=tuple([_assignment(where, one, requests) for one in list_in(admission, "podSetAssignments")])
        if admission
        else (),
        reserved_s=None if reserved is None else _moment(where, reserved.get("lastTransitionTime")),
        evicted="Evicted" in conditions,
    )


def _cluster_queue(manifest: Mapping[str, Any]) -> ClusterQueue:
    name, spec = text_in(manifest, "metadata", "name"), object_in(manifest, "spec")
    owner = f"ClusterQueue {name}"
    preemption = object_in(spec, "preemption")
    borrowing, rules = object_in(preemption, "borrowWithinCohort"), object_in(spec, "flavorFungibility")
    threshold = borrowing.get("maxPriorityThreshold")
    words = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}
    """Enumeration values of v1beta1."""

    def rule(key: str, default: str) -> Any:
        word = text_in(rules, key)
        return _word(owner, key, words.get(word, word) or default, ("MayStopSearch", "TryNextFlavor"))

    return ClusterQueue(
        name=name,
        cohort=text_in(spec, "cohortName") or text_in(spec, "cohort"),
        queueing_strategy=_word(
            owner,
            "queueingStrategy",
            text_in(spec, "queueingStrategy") or "BestEffortFIFO",
            ("BestEffortFIFO", "StrictFIFO"),
        ),
        resource_groups=_groups(owner, spec),
        preemption=QueuePreemption(
            _word(owner, "withinClusterQueue", text_in(preemption, "withinClusterQueue") or "Never", _POLICIES[:3]),
            _word(owner, "reclaimWithinCohort", text_in(preemption, "reclaimWithinCohort") or "Never", _RECLAIM),
            BorrowWithinCohort(
                _word(owner, "borrowWithinCohort", text_in(borrowing, "policy") or "Never", _POLICIES[:2]),
                None if threshold is None else _number(owner, "maxPriorityThreshold", threshold),
            ),
        ),
        flavor_fungibility=FlavorFungibility(
            rule("whenCanBorrow", "MayStopSearch"),
            rule("whenCanPreempt", "TryNextFlavor"),
            _word(
                owner,
                "preference",
                text_in(rules, "preference") or "BorrowingOverPreemption",
                ("BorrowingOverPreemption", "PreemptionOverBorrowing"),
            ),
        ),
        weight=_weight(owner, spec),
        stop_policy=_stop_policy(owner, spec),
        usage_based=text_in(spec, "admissionScope", "admissionMode") == "UsageBasedAdmissionFairSharing",
    )


def _cohort(manifest: Mapping[str, Any]) -> Cohort:
    name, spec = text_in(manifest, "metadata", "name"), object_in(manifest, "spec")
    parent = text_in(spec, "parentName") or text_in(spec, "parent")
    return Cohort(name, parent, _groups(f"Cohort {name}", spec), _weight(f"Cohort {name}", spec))


def _local_queue(manifest: Mapping[str, Any]) -> LocalQueue:
    name, spec = full_name(manifest), object_in(manifest, "spec")
    owner = f"LocalQueue {name}"
    past = object_in(manifest, "status", "fairSharing", "admissionFairSharingStatus", "consumedResources")
    return LocalQueue(
        name,
        text_in(spec, "clusterQueue"),
        _weight(owner, spec),
        _stop_policy(owner, spec),
        {resource: _amount(owner, resource, amount) for resource, amount in past.items()},
    )


def _flavor(manifest: Mapping[str, Any]) -> ResourceFlavor:
    spec = object_in(manifest, "spec")
    return ResourceFlavor(
        text_in(manifest, "metadata", "name"),
        {key: str(value) for key, value in object_in(spec, "nodeLabels").items()},
        taints_of(list_in(spec, "nodeTaints")),
        tolerations_of(list_in(spec, "tolerations")),
        text_in(spec, "topologyName"),
    )


def _topology(manifest: Mapping[str, Any]) -> KueueTopology:
    levels = list_in(manifest, "spec", "levels")
    return KueueTopology(
        text_in(manifest, "metadata", "name"), tuple([text_in(level, "nodeLabel") for level in levels])
    )


def _node(manifest: Mapping[str, Any]) -> TopologyNode | None:
    """Read a node. Return None if the node is cordoned or not ready."""
    name = text_in(manifest, "metadata", "name")
    conditions = {text_in(one, "type"): text_in(one, "status") for one in list_in(manifest, "status", "conditions")}
    if object_in(manifest, "spec").get("unschedulable") or conditions.get("Ready", "True") != "True":
        return None
    there = object_in(manifest, "status", "allocatable")
    return TopologyNode(
        name,
        {key: str(value) for key, value in object_in(manifest, "metadata", "labels").items()},
        {resource: _amount(f"Node {name}", resource, amount) for resource, amount in there.items()},
        taints_of(list_in(manifest, "spec", "taints")),
    )


def _groups(owner: str, spec: Mapping[str, Any]) -> tuple[ResourceGroup, ...]:
    def quota(resource: Mapping[str, Any]) -> ResourceQuota:
        name = text_in(resource, "name")
        if resource.get("nominalQuota") is None:
            raise TraceError(f"{owner}: {name!r} has no nominalQuota; give it a quantity, such as 16 or 64Gi")
        nominal, *limits = [
            None if resource.get(key) is None else _amount(f"{owner}: {key}", name, resource[key])
            for key in ("nominalQuota", "borrowingLimit", "lendingLimit")
        ]
        return ResourceQuota(nominal or 0.0, *limits)

    def group(manifest: Any) -> ResourceGroup:
        covered = tuple([name for name in list_in(manifest, "coveredResources") if isinstance(name, str)])
        flavors = []
        for flavor in list_in(manifest, "flavors"):
            name = text_in(flavor, "name")
            quotas = {text_in(one, "name"): quota(object_in(one)) for one in list_in(flavor, "resources")}
            if missing := [resource for resource in covered if resource not in quotas]:
                raise TraceError(
                    f"{owner}: coveredResources lists {missing[0]!r}, but the flavor {name!r} has no quota for it; "
                    f"add {missing[0]!r} to the resources of this flavor"
                )
            flavors.append(FlavorQuotas(name, quotas))
        return ResourceGroup(tuple(flavors), covered)

    return tuple([group(manifest) for manifest in list_in(spec, "resourceGroups")])


def _fair_sharing(configuration: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Read the strategies. Fair sharing is enabled if the configuration has the section (in
    v1beta1, unless ``enable`` is false)."""
    section = configuration.get("fairSharing")
    if not isinstance(section, dict) or section.get("enable") is False:
        return None
    known = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
    listed = list_in(section, "preemptionStrategies")
    return tuple([_word("Configuration", "preemptionStrategies", str(word), known) for word in listed]) or known


def _admission_fair_sharing(configuration: Mapping[str, Any]) -> AdmissionFairSharing | None:
    section = configuration.get("admissionFairSharing")
    if not isinstance(section, dict):
        return None
    weights = object_in(section, "resourceWeights")
    return AdmissionFairSharing(
        go_duration_s("usageHalfLifeTime", section.get("usageHalfLifeTime"), 0.0),
        go_duration_s("usageSamplingInterval", section.get("usageSamplingInterval"), 300.0),
        {name: _number("Configuration", "resourceWeights", weight) for name, weight in weights.items()},
    )


def _pod_set(where: str, manifest: Any) -> PodSet:
    spec = object_in(manifest, "template", "spec")
    fewest = object_in(manifest).get("minCount")
    terms = list_in(
        spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"
    )
    try:
        requests = {name: size / (1000 if name == "cpu" else 1) for name, size in pod_requests(spec).items()}
    except Dirty as error:
        raise TraceError(f"{where}: the workload has a pod set {error}") from None
    return PodSet(
        text_in(manifest, "name") or "main",
        _whole(where, "count", object_in(manifest).get("count", 1)),
        requests,
        None if fewest is None else _whole(where, "minCount", fewest),
        {key: str(value) for key, value in object_in(spec, "nodeSelector").items()},
        tuple([requirements_of(list_in(term, "matchExpressions")) for term in terms]),
        tolerations_of(list_in(spec, "tolerations")),
        _topology_request(where, object_in(manifest, "topologyRequest")),
    )


def _topology_request(where: str, manifest: Mapping[str, Any]) -> TopologyRequest | None:
    if not manifest:
        return None
    return TopologyRequest(
        text_in(manifest, "required"),
        text_in(manifest, "preferred"),
        manifest.get("unconstrained") is True,
        text_in(manifest, "podSetSliceRequiredTopology"),
        _whole(where, "podSetSliceSize", manifest.get("podSetSliceSize", 0)),
        text_in(manifest, "podSetGroupName"),
    )


def _assignment(where: str, manifest: Any, requests: Mapping[str, Mapping[str, float]]) -> PodSetAssignment:
    """Read an assignment. ``resourceUsage`` is optional. For a resource that it does not list, the
    usage is what all pods request together.
    """
    placed, name = object_in(manifest).get("topologyAssignment"), text_in(manifest, "name") or "main"
    flavors = {resource: str(flavor) for resource, flavor in object_in(manifest, "flavors").items()}
    count = _whole(where, "count", object_in(manifest).get("count", 1))
    of_pod = {"pods": 1.0, **requests.get(name, {})}
    usage = {resource: of_pod.get(resource, 0.0) * count for resource in flavors}
    usage |= {
        resource: _amount(where, resource, amount) for resource, amount in object_in(manifest, "resourceUsage").items()
    }
    return PodSetAssignment(
        name,
        flavors,
        usage,
        count,
        None if not isinstance(placed, dict) else tuple(_domains(where, placed)),
    )


def _domains(where: str, placed: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the domains with their numbers of pods, from v1beta1 (a list) or v1beta2 (columns)."""
    for domain in list_in(placed, "domains"):
        yield tuple(map(str, list_in(domain, "values"))), _whole(where, "count", object_in(domain).get("count", 0))
    for part in list_in(placed, "slices"):
        count = _whole(where, "domainCount", object_in(part).get("domainCount", 0))
        columns: list[Sequence[str]] = []
        for level in list_in(part, "valuesPerLevel"):
            each = object_in(level, "individual")
            prefix, suffix = text_in(each, "prefix"), text_in(each, "suffix")
            roots = [f"{prefix}{root}{suffix}" for root in list_in(each, "roots")]
            columns.append(roots or [text_in(level, "universal")] * count)
        pods = object_in(part, "podCounts")
        counts = list_in(pods, "individual") or [pods.get("universal", 0)] * count
        for values, number in zip(zip(*columns, strict=False), counts, strict=False):
            yield tuple(values), _whole(where, "podCounts", number)


def _weight(owner: str, spec: Mapping[str, Any]) -> float:
    weight = object_in(spec, "fairSharing").get("weight")
    return 1.0 if weight is None else _amount(owner, "fairSharing.weight", weight)


def _stop_policy(owner: str, spec: Mapping[str, Any]) -> Any:
    return _word(owner, "stopPolicy", text_in(spec, "stopPolicy") or "None", ("None", "Hold", "HoldAndDrain"))


def _amount(owner: str, resource: str, value: Any) -> float:
    try:
        return quantity(value)
    except Dirty:
        raise TraceError(f"{owner} of {resource} must be a quantity, got {value!r}") from None


def _number(owner: str, key: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TraceError(f"{owner}: {key} is not a number: {value!r}") from None


def _whole(owner: str, key: str, value: Any) -> int:
    """Return a number of pods, nodes or domains."""
    number = _number(owner, key, value)
    if not (0 <= number <= MOST_PODS and number.is_integer()):
        raise TraceError(f"{owner}: {key} must be a whole number up to {MOST_PODS:,}, got {value!r}")
    return int(number)


def _moment(where: str, text: Any) -> float:
    try:
        moment = moment_s(str(text), "time", None)
    except Dirty:
        moment = None
    if moment is None:
        raise TraceError(f"{where}: {text!r} is not a time")
    return moment


def go_duration_s(key: str, value: Any, default: float) -> float:
    """Parse a Go duration (``1h30m``) as seconds."""
    if value is None:
        return default
    parts = _DURATION.findall(str(value))
    if "".join(number + one for number, one in parts) != str(value):
        raise TraceError(f"Configuration: {key} must be a duration such as 1h30m, got {value!r}")
    return ordered_sum(float(number) * _SECONDS[one] for number, one in parts)


def _word(owner: str, key: str, word: str, known: Sequence[str]) -> Any:
    if word not in known:
        raise TraceError(f"{owner}: {key} must be one of {', '.join(known)}, got {word!r}")
    return word
