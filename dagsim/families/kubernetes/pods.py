"""Pods and Kueue's workloads: their requests, everything that affects their scheduling, and the
times at which they ran."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dagsim.errors import TraceError
from dagsim.families.kubernetes.kueue.manifests import MOST_PODS, kueue_workload_object
from dagsim.families.kubernetes.terms import WHOLE_GPUS, Selector, label_selector, pod_requests
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.traces.documents import list_in, object_in, text_in
from dagsim.traces.fields import MOST_GPUS, Dirty, InvalidValue
from dagsim.traces.times import moment_s

_SHARED = "nvidia.com/gpu.shared"
_MILLI = "alibabacloud.com/gpu-milli"
_AMOUNTS = ("requests", "limits")
_ACCELERATOR = re.compile(r"(?i).+/.*(gpu|npu|tpu|ascend|cuda|gaudi|neuron|mlu|dcu|/[abhlptv]\d{1,3})")
"""Extended resources whose names indicate accelerators."""
_SLICE = re.compile(r"nvidia\.com/mig-(\d)g\.(\d{1,4})gb")
TYPE_LABELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "cloud.google.com/gke-tpu-accelerator")


class PodDemand(NamedTuple):
    """The resources that one pod occupies."""

    gpus: int = 0
    share: float = 0.0
    """Share of one GPU, computed from MIG slices or thousandths of a GPU."""
    shared: int = 0
    """Time slices of a GPU. Only the configuration of the node states how many make up a GPU."""
    cpus: float = 0.0
    memory_gb: float = 0.0

    @property
    def on_gpu(self) -> bool:
        return bool(self.gpus or self.share or self.shared)


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
            return _priority({"priority": value})
        return _priority(spec)

    def pod_manifest(self, object: Any) -> dict[str, Any]:
        """Return the parts of a pod that matter to kube-scheduler: its labels, the relevant parts
        of its spec, and, under ``resolved``, what follows from its status and from other
        objects."""
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
        resolved = {
            "services": self._services_of(metadata, labels, namespace),
            "budgets": self._budgets_of(metadata, labels, namespace),
            "nominated": "" if text_in(spec, "nodeName") else text_in(object, "status", "nominatedNodeName"),
            "terminating": bool(text_in(metadata, "deletionTimestamp")),
        }
        if resolved := {name: value for name, value in resolved.items() if value}:
            manifest["resolved"] = resolved
        return manifest

    def _services_of(self, metadata: Any, labels: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        """Return the labels by which its Services and its owner select a pod."""
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


DEVICE_CLAIMS = "device claims (DRA)"


def unmodelled_of(spec: Any) -> Iterator[str]:
    """Describe the requests of a pod that are not modelled."""
    containers = [*list_in(spec, "containers"), *list_in(spec, "initContainers")]
    volumes = list_in(spec, "volumes")
    if any(object_in(volume).keys() & {"persistentVolumeClaim", "ephemeral", "csi"} for volume in volumes):
        yield "volumes (claims), which may tie pods to nodes"
    if list_in(spec, "resourceClaims") or any(list_in(one, "resources", "claims") for one in containers):
        yield DEVICE_CLAIMS
    if text_in(spec, "schedulerName") not in ("", "default-scheduler"):
        yield f"the scheduler {text_in(spec, 'schedulerName')[:60]!r}"
    asked = {name for one in containers for part in _AMOUNTS for name in object_in(one, "resources", part)}
    for name in sorted(filter(_ACCELERATOR.search, asked)):
        if name not in (*WHOLE_GPUS, _SHARED, _MILLI) and not _SLICE.fullmatch(name):
            yield f"{name[:80]}, which is not one of the resources that count as GPUs"


def pod_demand(spec: Any) -> PodDemand:
    """Return the demand of a pod (``terms.pod_requests``).

    Raises:
        Dirty: A quantity cannot be read.
    """
    taken = pod_requests(spec)
    return PodDemand(
        whole_sum(whole_gpus(taken.get(name, 0)) for name in WHOLE_GPUS),
        taken.get(_MILLI, 0) / 1000
        + ordered_sum(share * whole_gpus(taken[name]) for name in sorted(taken) if (share := _slice(name))),
        whole_gpus(taken.get(_SHARED, 0)),
        taken.get("cpu", 0) / 1000,
        taken.get("memory", 0) / 2**30,
    )


def wanted_type(spec: Any) -> tuple[str, ...]:
    """Return the GPU products that a pod's node selector or required affinity allows. Return
    an empty tuple if the pod may use any product.
    """
    for label in TYPE_LABELS:
        if product := text_in(spec, "nodeSelector", label):
            return (product,)
    terms = list_in(
        spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"
    )
    products = [
        value
        for term in terms
        for rule in list_in(term, "matchExpressions")
        if text_in(rule, "key") in TYPE_LABELS and text_in(rule, "operator") == "In"
        for value in list_in(rule, "values")
        if isinstance(value, str)
    ]
    return tuple(dict.fromkeys(products))


def whole_gpus(value: float) -> int:
    """Parse the value as a number of GPUs.

    Raises:
        Dirty: The value is not a number of GPUs.
    """
    if value != int(value) or value > MOST_GPUS:
        raise Dirty(InvalidValue("with impossible resources"))
    return int(value)


def _slice(name: str) -> float:
    """Return the share of a GPU that a MIG resource represents, or 0 for any other resource. An A30
    has 4 slices, and other GPUs have 7."""
    match = _SLICE.match(name)
    return 0.0 if match is None else int(match[1]) / (4 if int(match[2]) == 6 * int(match[1]) else 7)


_GROUP_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "volcano.sh/job-name",
    "pod-group.scheduling.sigs.k8s.io",
    "scheduling.x-k8s.io/pod-group",
    "training.kubeflow.org/job-name",
    "ray.io/cluster",
)
_NO_GANGS = ("training.kubeflow.org/job-name", "ray.io/cluster")
_QUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "volcano.sh/queue-name", "runai/queue")
_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod, or a pod set of a workload, with everything that a reader needs."""

    whole: str
    """Key of the job to which this pod belongs."""
    name: str
    namespace: str
    queue: str
    priority: float
    gang: bool
    index: str
    """Index among the job's identical pods, if stated. A second pod with the same index is another
    attempt of the first."""
    count: int
    demand: PodDemand
    wanted: tuple[str, ...]
    ran_on: str
    """GPU type on which the pod ran, if stated."""
    created_s: float
    bound_s: float | None
    started_s: float | None
    ended_s: float | None
    fate: str
    """``over``, ``failed``, ``evicted``, ``runs``, ``waits`` or ``never ran``."""
    is_workload: bool = False
    node: str = ""
    nodes: tuple[str, ...] = ()
    """The node of each pod in a pod set that runs, if Kueue's topology states them."""
    limit_s: float | None = None
    """Longest time that the pod may run (``activeDeadlineSeconds``, Kueue's
    ``maximumExecutionTimeSeconds``)."""
    level: str = ""
    """The level of the topology that is requested from Kueue."""
    level_required: bool = True
    segment: int | None = None
    """Pods per slice, each of which lies within one domain of the level."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """The parts of the pod that a scheduler reads (``pod_manifest``)."""
    ends_s: float | None = None
    """Latest time at which a terminating pod is gone."""


def pod(object: Any, scheduled_s: float | None = None, around: ClusterObjects | None = None) -> PodRecord:
    """Extract the required data about a pod. ``scheduled_s`` is the time at which the pod was bound
    according to an event, and ``around`` contains the objects that affect its scheduling.

    Raises:
        Dirty: The pod is malformed.
    """
    spec, status = object_in(object, "spec"), object_in(object, "status")
    labels = object_in(object, "metadata", "labels")
    namespace, own = text_in(object, "metadata", "namespace"), text_in(object, "metadata", "name")
    group = next((label for label in _GROUP_LABELS if text_in(labels, label)), "")
    owner: Any = next(
        (
            reference
            for reference in list_in(object, "metadata", "ownerReferences")
            if object_in(reference).get("controller")
        ),
        {},
    )
    name = text_in(labels, group) if group else text_in(owner, "name") or own
    if not name:
        raise Dirty("without a name")
    around = around or ClusterObjects()
    queue = next((text_in(labels, label) for label in _QUEUE_LABELS if text_in(labels, label)), "")
    started_s, ended_s = _ran(status)
    key = text_in(owner, "uid") or text_in(object, "metadata", "uid")
    return PodRecord(
        f"{group} {namespace}/{name}" if group or not key else key,
        f"{namespace}/{name}",
        namespace,
        queue,
        around.priority(spec),
        bool(queue or (group and group not in _NO_GANGS)),
        text_in(labels, _INDEX) or text_in(object, "metadata", "annotations", _INDEX),
        1,
        pod_demand(spec),
        wanted_type(spec),
        "",
        _created(object),
        scheduled_s if scheduled_s is not None else _since(status, "PodScheduled"),
        started_s,
        ended_s,
        _fate(status),
        node=text_in(spec, "nodeName"),
        limit_s=_positive(object_in(spec).get("activeDeadlineSeconds")),
        manifest=around.pod_manifest(object),
        ends_s=moment_s(text_in(object, "metadata", "deletionTimestamp"), "deletionTimestamp", None),
        **_topology(object_in(object, "metadata", "annotations"), _ANNOTATIONS),
    )


def kueue_workload(object: Any, around: ClusterObjects | None = None, *, now: bool = False) -> Iterator[PodRecord]:
    """Extract the required data about a Kueue workload, as one record per pod set. ``around``
    contains the objects that affect how its pods are scheduled. The manifest of each record
    contains the whole workload and, with ``now``, also the quota that the workload holds.

    Raises:
        Dirty: The workload is malformed.
    """
    spec, status = object_in(object, "spec"), object_in(object, "status")
    namespace = text_in(object, "metadata", "namespace")
    around = around or ClusterObjects()
    owner: Any = next(iter(list_in(object, "metadata", "ownerReferences")), {})
    name = text_in(owner, "name") or text_in(object, "metadata", "name")
    if not name:
        raise Dirty("without a name")
    admitted_s, finished_s = _since(status, "Admitted"), _since(status, "Finished")
    runs = _holds(status, "Admitted") and not _holds(status, "Evicted")
    fate = "over" if finished_s is not None else "runs" if runs else "waits"
    flavours = {
        text_in(assignment, "name"): next(
            (text for key, text in object_in(assignment, "flavors").items() if "gpu" in key and isinstance(text, str)),
            "",
        )
        for assignment in list_in(status, "admission", "podSetAssignments")
    }
    carried = _carried(object, around, now=now)
    workload = kueue_workload_object(carried)
    hosts = {one.name: _hosts(one.domains or ()) for one in (workload.assignments if workload is not None else ())}
    for pod_set in list_in(spec, "podSets"):
        count, template = object_in(pod_set).get("count"), object_in(pod_set, "template", "spec")
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_PODS:
            raise Dirty(InvalidValue("with an invalid count"))
        yield PodRecord(
            text_in(owner, "uid") or text_in(object, "metadata", "uid") or f"{namespace}/{name}",
            f"{namespace}/{name}",
            namespace,
            text_in(spec, "queueName"),
            _priority(spec),
            True,
            text_in(pod_set, "name"),
            count,
            pod_demand(template),
            wanted_type(template),
            flavours.get(text_in(pod_set, "name"), ""),
            _created(object),
            admitted_s,
            admitted_s,
            finished_s,
            fate if admitted_s is not None else "waits" if finished_s is None else "never ran",
            True,
            nodes=hosts.get(text_in(pod_set, "name"), ()),
            limit_s=_positive(object_in(spec).get("maximumExecutionTimeSeconds")),
            manifest=around.pod_manifest(_pod_of_template(pod_set, namespace))
            | {"podSet": text_in(pod_set, "name"), "workload": carried},
            **_topology(object_in(pod_set, "topologyRequest"), _FIELDS),
        )


_FIELDS = ("required", "preferred", "podSetSliceRequiredTopology", "podSetSliceSize")
_ANNOTATIONS = tuple(
    f"kueue.x-k8s.io/podset-{name}"
    for name in ("required-topology", "preferred-topology", "slice-required-topology", "slice-size")
)
"""Kueue's annotations for a required and a preferred level, and for the level and the size of
slices."""


def level_name(label: str) -> str:
    """Return the topology level that a node label represents, such as ``rack`` for
    ``cloud.provider.com/topology-rack`` and ``host`` for ``kubernetes.io/hostname``."""
    name = label.rpartition("/")[2].removeprefix("topology-")
    return "host" if name == "hostname" else name


def _topology(source: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the topology level that is requested from Kueue. The level of slices comes before the
    level of the whole pod set, because only one of them can be modelled.
    """
    required, preferred, of_slices = (level_name(text_in(source, name)) for name in names[:3])
    size = source.get(names[3])
    count = int(size) if isinstance(size, str | int) and re.fullmatch(r"[1-9]\d{0,8}", str(size)) else None
    if of_slices and count:
        return {"level": of_slices, "segment": count}
    return {"level": required or preferred, "level_required": bool(required)} if required or preferred else {}


def _positive(value: Any) -> float | None:
    """Return a positive number of seconds, or ``None`` for anything else."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 53 else None


def _created(object: Any) -> float:
    created_s = moment_s(text_in(object, "metadata", "creationTimestamp"), "creationTimestamp", None)
    if created_s is None:
        raise Dirty("without creationTimestamp")
    return created_s


def _priority(spec: Any) -> float:
    value = object_in(spec).get("priority")
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 53:
        return 0.0
    return float(value)


_OF_POD_SETS = ("name", "count", "minCount", "topologyRequest")
_OF_CONDITIONS = ("type", "status", "lastTransitionTime")


def _carried(object: Any, around: ClusterObjects, *, now: bool) -> dict[str, Any]:
    """Return those parts of a workload that affect Kueue's decisions, in the form of the workload's
    manifest."""
    metadata, spec, status = (object_in(object, name) for name in ("metadata", "spec", "status"))
    pod_sets = [
        {name: pod_set[name] for name in _OF_POD_SETS if object_in(pod_set).get(name) is not None}
        | {"template": {"spec": around.pod_manifest({"spec": object_in(pod_set, "template", "spec")})["spec"]}}
        for pod_set in list_in(spec, "podSets")
    ]
    names = ("namespace", "name", "uid", "creationTimestamp")
    carried: dict[str, Any] = {
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"queueName": text_in(spec, "queueName"), "podSets": pod_sets},
    }
    if now:
        carried["spec"]["active"] = spec.get("active") is not False
        true = [one for one in list_in(status, "conditions") if text_in(one, "status") == "True"]
        conditions = [{name: one[name] for name in _OF_CONDITIONS if name in one} for one in true]
        carried["status"] = {"conditions": conditions} | (
            {"admission": status["admission"]} if status.get("admission") else {}
        )
    try:
        kueue_workload_object(carried)
    except TraceError:
        raise Dirty(InvalidValue("with an invalid quantity, count or time")) from None
    return carried


def _hosts(domains: Sequence[tuple[tuple[str, ...], int]]) -> tuple[str, ...]:
    """Return the node of each pod that Kueue's topology has placed."""
    if whole_sum(count for _, count in domains) > MOST_PODS:
        raise Dirty(InvalidValue("with an invalid count"))
    return tuple([address[-1] for address, count in domains for _ in range(count) if address])


def _pod_of_template(pod_set: Any, namespace: str) -> dict[str, Any]:
    template = object_in(pod_set, "template")
    metadata = {"namespace": namespace, "labels": object_in(template, "metadata", "labels")}
    return {"metadata": metadata, "spec": object_in(template, "spec")}


def _condition(status: Any, kind: str) -> Any:
    return next((condition for condition in list_in(status, "conditions") if text_in(condition, "type") == kind), {})


def _holds(status: Any, kind: str) -> bool:
    return text_in(_condition(status, kind), "status") == "True"


def _since(status: Any, kind: str) -> float | None:
    """Return the time since which a condition has been true, or ``None`` if it is not true."""
    if not _holds(status, kind):
        return None
    return moment_s(text_in(_condition(status, kind), "lastTransitionTime"), "lastTransitionTime", None)


def _fate(status: Any) -> str:
    match text_in(status, "phase"):
        case "Succeeded":
            return "over"
        case "Failed":
            evicted = text_in(status, "reason") in ("Evicted", "Preempting", "Shutdown", "NodeLost", "Terminated")
            return "evicted" if evicted or _holds(status, "DisruptionTarget") else "failed"
        case "Running":
            return "runs"
        case "Pending":
            return "waits"
        case phase:
            raise Dirty("in an unknown phase" if phase else "without a phase")


def _ran(status: Any) -> tuple[float | None, float | None]:
    """Return the first start of a main container (before any restart) and the end of the last main
    container. A container's status contains only its last two runs. After more restarts, the start
    of the pod is used instead.
    """
    started: list[float] = []
    finished: list[float] = []
    for container in list_in(status, "containerStatuses"):
        runs = 0
        for name in ("lastState", "state"):
            for how in ("running", "terminated"):
                state = object_in(container, name, how)
                for key, into in (("startedAt", started), ("finishedAt", finished)):
                    moment = moment_s(text_in(state, key), key, None)
                    if moment is not None:
                        into.append(moment)
                        runs += key == "startedAt"
        restarts = object_in(container).get("restartCount")
        if isinstance(restarts, int) and restarts >= runs > 0:
            moment = moment_s(text_in(status, "startTime"), "startTime", None)
            if moment is not None:
                started.append(moment)
    return min(started, default=None), max(finished, default=None)
