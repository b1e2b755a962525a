"""The properties of pods and nodes that matter to kube-scheduler, read from the manifests of tasks
and nodes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from dagsim.errors import ModelError
from dagsim.families.kubernetes.api.pod_context import PodContext
from dagsim.families.kubernetes.api.terms import (
    DEFAULT_CPU,
    DEFAULT_MEMORY,
    HOSTNAME,
    NOTHING,
    WHOLE_GPUS,
    ObjectLabels,
    Requirement,
    Selector,
    Taint,
    Toleration,
    amounts,
    equal_to,
    has_own_requests,
    label_selector,
    pod_requests,
    requirements_of,
    taints_of,
    tolerations_of,
)
from dagsim.model import Demand, Node
from dagsim.model.arithmetic import whole_sum
from dagsim.traces.documents import list_in, object_in, text_in
from dagsim.traces.fields import Dirty

ZONE = "topology.kubernetes.io/zone"
_NAME_FIELD = "metadata.name"
"""The only node field that a node selector may use; it is stored among the labels under this
name."""

ResourceUnits: TypeAlias = Mapping[str, int]
"""Units of resources by name (see ``dagsim.families.kubernetes.api.terms``)."""


def _node_term(term: Any) -> Selector:
    """Parse a node selector term. An empty term matches no node. Fields are looked up in
    the same way as labels."""
    rules = (*requirements_of(list_in(term, "matchExpressions")), *requirements_of(list_in(term, "matchFields")))
    return Selector(rules) if rules else NOTHING


UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""The taint that pods must tolerate to run on a cordoned node."""


class Term(NamedTuple):
    """A term of pod affinity or anti-affinity: the pods that it selects, and the label that defines
    its domains."""

    selector: Selector
    namespaces: frozenset[str] | None
    """None means all namespaces."""
    key: str

    def matches(self, pod: Pod) -> bool:
        """Return True if the term selects the pod."""
        return (self.namespaces is None or pod.namespace in self.namespaces) and self.selector.matches(pod.labels)


class Spread(NamedTuple):
    """A topology spread constraint."""

    key: str
    max_skew: int
    selector: Selector
    min_domains: int = 1
    honours_affinity: bool = True
    honours_taints: bool = False


class HostPort(NamedTuple):
    """A port that a pod occupies on its node."""

    ip: str
    protocol: str
    port: int

    def collides(self, other: HostPort) -> bool:
        """Return True if the two ports cannot be used on the same node."""
        return self[1:] == other[1:] and (self.ip == other.ip or _ANYWHERE in (self.ip, other.ip))


_ANYWHERE = "0.0.0.0"


class Pod:
    """The properties of a pod that matter to kube-scheduler, without its name and state. Pods from
    the same template therefore share one object.
    """

    __slots__ = (
        "affinity", "anti_affinity", "budgets", "containers", "images", "labels", "namespace", "needs", "node_terms",
        "nominated", "nonzero", "ports", "preempts", "preferred", "preferred_nodes", "requests", "scored_requests",
        "service_labels", "spread", "spread_soft", "states_spread", "terminating", "tolerations",
    )  # fmt: skip

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        spec, metadata = object_in(manifest, "spec"), object_in(manifest, "metadata")
        context = PodContext.of(manifest)
        self.namespace = text_in(metadata, "namespace") or "default"
        self.labels: ObjectLabels = {key: str(value) for key, value in object_in(metadata, "labels").items()}
        self._read_amounts(spec)
        self.tolerations = tolerations_of(list_in(spec, "tolerations"))
        affinity = object_in(spec, "affinity")
        self._read_node_affinity(spec, affinity)
        self._read_pod_affinity(affinity)
        self._read_spread(spec)
        self.service_labels = equal_to(context.services)
        """The labels by which the pod's Services and its owner select it, for the default
        spreading."""
        self.budgets: tuple[tuple[str, int], ...] = tuple(
            [(str(name), int(allowed)) for name, allowed in context.budgets.items()]
        )
        """The budgets (PodDisruptionBudget) that select the pod, and the disruptions that each
        allows."""
        self.preempts = text_in(spec, "preemptionPolicy") != "Never"
        self.nominated = context.nominated
        """The node for which the pod was nominated before the simulation began."""
        self.terminating = context.terminating
        self.needs = bool(self.affinity or self.anti_affinity or self.spread)
        """True if the pod's filters depend on other pods' labels."""

    def _read_amounts(self, spec: Mapping[str, Any]) -> None:
        self.requests: ResourceUnits = {name: size for name, size in pod_requests(spec).items() if size}
        assumed = {"cpu": DEFAULT_CPU, "memory": DEFAULT_MEMORY}
        # As in Kubernetes 1.35, NodeResourcesFit scores an arriving pod without its pod-level
        # requests, but counts those of running pods.
        self.scored_requests: ResourceUnits = pod_requests(spec, pod_level=False, assumed=assumed)
        if has_own_requests(spec):
            assumed = {name: size for name, size in assumed.items() if name not in self.requests}
        in_use = pod_requests(spec, assumed=assumed)
        self.nonzero = in_use.get("cpu", 0), in_use.get("memory", 0)
        containers, first = list_in(spec, "containers"), list_in(spec, "initContainers")
        sidecars = [container for container in first if text_in(container, "restartPolicy") == "Always"]
        self.containers = len(containers) + len(first)
        images = [text_in(container, "image") for container in (*first, *containers)]
        self.images = tuple([image_name(image) for image in images if image])
        self.ports = tuple(
            dict.fromkeys(
                [
                    HostPort(
                        text_in(port, "hostIP") or _ANYWHERE,
                        text_in(port, "protocol") or "TCP",
                        int(object_in(port)["hostPort"]),
                    )
                    for container in (*containers, *sidecars)
                    for port in list_in(container, "ports")
                    if object_in(port).get("hostPort")
                ]
            )
        )

    def _read_node_affinity(self, spec: Mapping[str, Any], affinity: Mapping[str, Any]) -> None:
        chosen = Selector(equal_to(object_in(spec, "nodeSelector")))
        terms, self.preferred_nodes = node_affinity_terms(object_in(affinity, "nodeAffinity"))
        self.node_terms = tuple([chosen.extended(term.requirements) for term in terms]) or (chosen,)
        """A node must match one of these terms."""

    def _read_pod_affinity(self, affinity: Mapping[str, Any]) -> None:
        self.affinity = self._terms(list_in(affinity, "podAffinity", _REQUIRED))
        self.anti_affinity = self._terms(list_in(affinity, "podAntiAffinity", _REQUIRED))
        preferred: list[tuple[int, Term]] = []
        for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
            entries = list_in(affinity, kind, _PREFERRED)
            terms = self._terms([object_in(entry, "podAffinityTerm") for entry in entries])
            preferred += [(sign * _weight(entry), term) for entry, term in zip(entries, terms, strict=True)]
        self.preferred = tuple(preferred)
        """Preferred terms. Terms of anti-affinity have a negative weight."""

    def _terms(self, listed: Iterable[Any]) -> tuple[Term, ...]:
        terms = []
        for term in listed:
            selector = label_selector(object_in(term).get("labelSelector"))
            if selector != NOTHING:
                for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
                    keys = [key for key in list_in(term, field) if key in self.labels]
                    selector = selector.extended([Requirement(key, operator, (self.labels[key],)) for key in keys])
            namespaces: frozenset[str] | None = frozenset(map(str, list_in(term, "namespaces")))
            if object_in(term).get("namespaceSelector") is not None:
                # The import replaces namespace selectors with the names of matching namespaces. If
                # the manifest still contains such a selector, assume that it selects all
                # namespaces.
                namespaces = None
            terms.append(Term(selector, namespaces if namespaces != frozenset() else frozenset({self.namespace}),
                              text_in(term, "topologyKey")))  # fmt: skip
        return tuple(terms)

    def _read_spread(self, spec: Mapping[str, Any]) -> None:
        constraints: dict[str, list[Spread]] = {"DoNotSchedule": [], "ScheduleAnyway": []}
        stated = list_in(spec, "topologySpreadConstraints")
        for entry in stated:
            selector = label_selector(object_in(entry).get("labelSelector"))
            keys = [key for key in list_in(entry, "matchLabelKeys") if key in self.labels]
            if selector != NOTHING:
                selector = selector.extended([Requirement(key, "In", (self.labels[key],)) for key in keys])
            constraint = Spread(
                text_in(entry, "topologyKey"),
                _whole(entry, "maxSkew"),
                selector,
                _whole(entry, "minDomains"),
                text_in(entry, "nodeAffinityPolicy") != "Ignore",
                text_in(entry, "nodeTaintsPolicy") == "Honor",
            )
            constraints.setdefault(text_in(entry, "whenUnsatisfiable"), []).append(constraint)
        self.states_spread = bool(stated)
        self.spread = tuple(constraints["DoNotSchedule"])
        self.spread_soft = tuple(constraints["ScheduleAnyway"])


def node_affinity_terms(affinity: Mapping[str, Any]) -> tuple[tuple[Selector, ...], tuple[tuple[int, Selector], ...]]:
    """Return the required terms and the preferred terms of node affinity, the latter with their
    weights. A node must match at least one required term; without required terms, every node is
    suitable."""
    required = affinity.get(_REQUIRED)
    terms: tuple[Selector, ...] = ()
    if isinstance(required, dict):
        terms = tuple([_node_term(term) for term in list_in(required, "nodeSelectorTerms")]) or (NOTHING,)
    listed = [(_weight(entry), _node_term(object_in(entry, "preference"))) for entry in list_in(affinity, _PREFERRED)]
    return terms, tuple([entry for entry in listed if entry[0] and entry[1] != NOTHING])


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _weight(entry: Any) -> int:
    weight = object_in(entry).get("weight")
    return weight if type(weight) is int else 0


def _whole(entry: Any, name: str) -> int:
    value = object_in(entry).get(name)
    return value if type(value) is int else 1


def image_name(image: str) -> str:
    """Return the name under which a node lists an image. An image without a tag gets the tag
    ``latest``."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


class NodeObject:
    """The properties of a node that matter to kube-scheduler."""

    __slots__ = ("allocatable", "cordoned", "images", "is_open", "labels", "most_pods", "name", "taints")

    def __init__(self, name: str, manifest: Mapping[str, Any]) -> None:
        metadata, spec, status = (object_in(manifest, part) for part in ("metadata", "spec", "status"))
        self.name = name
        self.labels = {HOSTNAME: name, **{key: str(value) for key, value in object_in(metadata, "labels").items()}}
        self.taints = taints_of(list_in(spec, "taints"))
        self.cordoned = object_in(spec).get("unschedulable") is True
        self.allocatable = amounts(object_in(status, "allocatable"))
        self.most_pods = self.allocatable.pop("pods", None)
        """Maximum number of pods, or None without a limit."""
        self.is_open = False
        """True if the node's labels and further resources are unknown, so that none of them keeps a
        pod away."""
        self.images: dict[str, int] = {
            image_name(name): size
            for image in list_in(status, "images")
            for name in list_in(image, "names")
            if isinstance(name, str) and type(size := object_in(image).get("sizeBytes")) is int
        }

    def selected(self, terms: Collection[Selector]) -> bool:
        """Return True if the node matches one of the terms."""
        if self.is_open:
            return True
        labels = {**self.labels, _NAME_FIELD: self.name}
        return any(term.matches(labels) for term in terms)

    def untolerated(self, tolerations: Collection[Toleration], effects: Collection[str]) -> int:
        """Return how many of the node's taints with one of these effects the tolerations do not
        cover."""
        return whole_sum(
            taint.effect in effects and not any(toleration.tolerates(taint) for toleration in tolerations)
            for taint in self.taints
        )


GPUS = "gpu"
"""The GPUs of nodes, whatever their vendor, which a task without a manifest requests."""


@lru_cache(maxsize=1 << 16)
def pod_of(manifest: str) -> Pod:
    """Return the pod that a manifest describes. Pods from the same template share one object.

    Raises:
        ModelError: The manifest cannot be read.
    """
    try:
        return Pod(json.loads(manifest))
    except (Dirty, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ModelError(f"a task's manifest does not describe a pod ({error}): {manifest[:200]}") from None


@lru_cache(maxsize=1 << 16)
def plain_pod(demand: Demand) -> Pod:
    """Return the pod for a task without a manifest. Shares of GPUs are handled by the kernel."""
    requests = {"cpu": f"{demand.cpus:.9f}", "memory": int(demand.memory_gb * 2**30), GPUS: int(demand.gpus)}
    asked = {name: size for name, size in requests.items() if size and size != "0.000000000"}
    return Pod({"spec": {"containers": [{"resources": {"requests": asked}}]}})


def node_of(node: Node) -> NodeObject:
    """Return a node of the cluster, described by its manifest. Its cores, memory and GPUs are those
    that the cluster states, not those in the manifest.

    Raises:
        ModelError: The manifest cannot be read.
    """
    try:
        seen = NodeObject(node.name, json.loads(node.manifest) if node.manifest else {})
    except (Dirty, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ModelError(f"node {node.name!r}: its manifest does not describe a node ({error})") from None
    seen.is_open = not node.manifest
    gpus = [name for name in WHOLE_GPUS if name in seen.allocatable] or WHOLE_GPUS
    seen.allocatable |= {"cpu": round(node.cpus * 1000), "memory": round(node.memory_gb * 2**30)}
    seen.allocatable |= dict.fromkeys([GPUS, *gpus], node.gpus)
    return seen
