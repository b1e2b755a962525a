"""The objects of a cluster that affect how its pods are scheduled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dagsim.families.kubernetes.api.pod_context import PodContext
from dagsim.families.kubernetes.api.terms import Selector, label_selector
from dagsim.traces.documents import list_in, object_in, text_in

_KEPT = (
    "overhead", "resources", "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints",
    "preemptionPolicy",
)  # fmt: skip
"""Parts of a pod's spec that kube-scheduler reads, besides its containers."""
_KEPT_OF_CONTAINERS = ("image", "resources", "restartPolicy")


class _Budget(NamedTuple):
    name: str
    selector: Selector
    allowed: int
    disrupted: frozenset[str]


class ClusterObjects:
    """The objects of a cluster that affect how its pods are scheduled: Services, ReplicaSets and
    similar objects (for the default spreading), budgets (PodDisruptionBudget), PriorityClasses and
    namespaces.

    ``add`` accepts any object. Everything that affects a pod is written into its manifest. A
    scheduler then needs no other objects.
    """

    KINDS = ("Service", "PodDisruptionBudget", "PriorityClass", "Namespace", "ReplicaSet", "StatefulSet",
             "ReplicationController")  # fmt: skip

    def __init__(self) -> None:
        self._services: dict[str, list[Mapping[str, Any]]] = {}
        self._budgets: dict[str, list[_Budget]] = {}
        self._classes: dict[str, Mapping[str, Any]] = {}
        self._namespaces: dict[str, dict[str, str]] = {}
        self._owners: dict[tuple[str, str, str], Mapping[str, Any]] = {}

    def add(self, object: Any) -> None:
        """Record an object if its kind is one of ``KINDS``."""
        kind, name = object_kind(object), text_in(object, "metadata", "name")
        namespace = text_in(object, "metadata", "namespace") or "default"
        selector = object_in(object, "spec", "selector")
        match kind:
            case "Service" if selector:
                self._services.setdefault(namespace, []).append(selector)
            case "PodDisruptionBudget":
                status = object_in(object, "status")
                allowed = status.get("disruptionsAllowed")
                chosen = label_selector(selector)
                if chosen.requirements:  # skip a budget with an empty selector, because it protects nothing
                    self._budgets.setdefault(namespace, []).append(
                        _Budget(
                            f"{namespace}/{name}",
                            chosen,
                            allowed if type(allowed) is int else 0,
                            frozenset(object_in(status, "disruptedPods")),
                        )
                    )
            case "PriorityClass":
                self._classes[name] = object
                if object_in(object).get("globalDefault") is True:
                    self._classes[""] = object
            case "Namespace":
                labels = object_in(object, "metadata", "labels")
                self._namespaces[name] = {"kubernetes.io/metadata.name": name} | {
                    key: value for key, value in labels.items() if isinstance(value, str)
                }
            case "ReplicaSet" | "StatefulSet":
                self._owners[kind, namespace, name] = object_in(selector, "matchLabels")
            case "ReplicationController":
                self._owners[kind, namespace, name] = selector

    def priority(self, spec: Any) -> float:
        """Return the priority that a pod states or, if it states none, that of its
        PriorityClass."""
        spec = object_in(spec)
        if spec.get("priority") is None:
            value = object_in(self._classes.get(text_in(spec, "priorityClassName"), {})).get("value")
            return stated_priority({"priority": value})
        return stated_priority(spec)

    def pod_manifest(self, object: Any) -> dict[str, Any]:
        """Return the parts of a pod that matter to kube-scheduler: its labels, the relevant parts
        of its spec, and its context (``PodContext``)."""
        metadata, spec = object_in(object, "metadata"), object_in(object, "spec")
        labels, namespace = object_in(metadata, "labels"), text_in(metadata, "namespace") or "default"
        kept = {name: spec[name] for name in _KEPT if spec.get(name)}
        for name in ("containers", "initContainers"):
            if listed := list_in(spec, name):
                kept[name] = [_container(container) for container in listed]
        if "affinity" in kept:
            kept["affinity"] = self._with_namespaces(kept["affinity"])
        policy = text_in(self._classes.get(text_in(spec, "priorityClassName"), {}), "preemptionPolicy")
        if "preemptionPolicy" not in kept and policy:
            kept["preemptionPolicy"] = policy
        manifest: dict[str, Any] = {"spec": kept}
        own = {"labels": labels, "namespace": "" if namespace == "default" else namespace}
        if own := {name: value for name, value in own.items() if value}:
            manifest["metadata"] = own
        context = PodContext(
            services=self._services_of(metadata, labels, namespace),
            budgets=self._budgets_of(metadata, labels, namespace),
            nominated="" if text_in(spec, "nodeName") else text_in(object, "status", "nominatedNodeName"),
            terminating=bool(text_in(metadata, "deletionTimestamp")),
        )
        return manifest | context.part()

    def _services_of(self, metadata: Any, labels: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        """Return the labels by which the Services and the owner of a pod select it."""
        chosen: dict[str, Any] = {}
        for selector in self._services.get(namespace, ()):
            if selector.items() <= labels.items():
                chosen |= selector
        for owner in list_in(metadata, "ownerReferences"):
            if object_in(owner).get("controller"):
                chosen |= self._owners.get((text_in(owner, "kind"), namespace, text_in(owner, "name")), {})
        return chosen

    def _budgets_of(self, metadata: Any, labels: Mapping[str, Any], namespace: str) -> dict[str, int]:
        name = text_in(metadata, "name")
        return {
            budget.name: budget.allowed
            for budget in self._budgets.get(namespace, ())
            if labels and name not in budget.disrupted and budget.selector.matches(labels)
        }

    def _with_namespaces(self, affinity: Any) -> Any:
        """Return the affinity with namespace selectors replaced by the names of the selected
        namespaces, if these are known."""
        if not self._namespaces or not isinstance(affinity, dict):
            return affinity
        if "namespaceSelector" in affinity:
            chosen = label_selector(affinity["namespaceSelector"])
            if not chosen.requirements:
                return affinity
            names = [name for name, labels in self._namespaces.items() if chosen.matches(labels)]
            rest = {key: value for key, value in affinity.items() if key != "namespaceSelector"}
            return rest | {"namespaces": sorted({*list_in(affinity, "namespaces"), *names}) or [""]}
        return {
            key: [self._with_namespaces(entry) for entry in value]
            if isinstance(value, list)
            else self._with_namespaces(value)
            for key, value in affinity.items()
        }


def _container(container: Any) -> dict[str, Any]:
    own = object_in(container)
    kept = {name: own[name] for name in _KEPT_OF_CONTAINERS if own.get(name)}
    ports = [port for port in list_in(own, "ports") if object_in(port).get("hostPort")]
    return kept | ({"ports": ports} if ports else {})


def object_kind(object: Any) -> str:
    """Return the kind of an object. The items of a list that the API returns for a single kind do
    not state this kind.
    """
    if kind := text_in(object, "kind"):
        return kind
    spec, status = object_in(object, "spec"), object_in(object, "status")
    signs = {
        "Workload": "podSets" in spec,
        "Pod": "containers" in spec,
        "Node": "allocatable" in status,
        "PodDisruptionBudget": "disruptionsAllowed" in status,
        "Event": "involvedObject" in object or "regarding" in object,
        "PriorityClass": "value" in object,
        "Service": "clusterIP" in spec or "clusterIPs" in spec,
    }
    return next((kind for kind, holds in signs.items() if holds), "")


def stated_priority(spec: Any) -> float:
    """Return the priority that a pod or workload states, or 0."""
    value = object_in(spec).get("priority")
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 53:
        return 0.0
    return float(value)
