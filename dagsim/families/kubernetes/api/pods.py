"""Pods: their requests, and the times at which they ran."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from dagsim.families.kubernetes.api.cluster_objects import ClusterObjects
from dagsim.families.kubernetes.api.terms import WHOLE_GPUS, pod_requests
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.model.mig import mig_share
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
    """Return the share of a GPU that a MIG resource represents, or 0 for any other resource."""
    match = _SLICE.match(name)
    return 0.0 if match is None else mig_share(int(match[1]), int(match[2]))


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


class PodFate(Enum):
    """The outcome of a pod or of a pod set."""

    OVER = "over"
    FAILED = "failed"
    EVICTED = "evicted"
    RUNS = "runs"
    WAITS = "waits"
    NEVER_RAN = "never ran"


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
    fate: PodFate
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

    def age_s(self, now_s: float) -> float:
        """Return the time since the pod started, was bound or was created: the first of these that
        is known.
        """
        began_s = self.bound_s if self.started_s is None else self.started_s
        return now_s - (self.created_s if began_s is None else began_s)


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
        whole=f"{group} {namespace}/{name}" if group or not key else key,
        name=f"{namespace}/{name}",
        namespace=namespace,
        queue=queue,
        priority=around.priority(spec),
        gang=bool(queue or (group and group not in _NO_GANGS)),
        index=text_in(labels, _INDEX) or text_in(object, "metadata", "annotations", _INDEX),
        count=1,
        demand=pod_demand(spec),
        wanted=wanted_type(spec),
        ran_on="",
        created_s=created_s_of(object),
        bound_s=scheduled_s if scheduled_s is not None else condition_since_s(status, "PodScheduled"),
        started_s=started_s,
        ended_s=ended_s,
        fate=_fate(status),
        node=text_in(spec, "nodeName"),
        limit_s=positive_s(object_in(spec).get("activeDeadlineSeconds")),
        manifest=around.pod_manifest(object),
        ends_s=moment_s(text_in(object, "metadata", "deletionTimestamp"), "deletionTimestamp", None),
        **requested_topology(object_in(object, "metadata", "annotations"), _ANNOTATIONS),
    )


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


def requested_topology(source: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the topology level that is requested from Kueue. The level of slices comes before the
    level of the whole pod set, because only one of them can be modelled.
    """
    required, preferred, of_slices = (level_name(text_in(source, name)) for name in names[:3])
    size = source.get(names[3])
    count = int(size) if isinstance(size, str | int) and re.fullmatch(r"[1-9]\d{0,8}", str(size)) else None
    if of_slices and count:
        return {"level": of_slices, "segment": count}
    return {"level": required or preferred, "level_required": bool(required)} if required or preferred else {}


def positive_s(value: Any) -> float | None:
    """Return a positive number of seconds, or ``None`` for anything else."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 53 else None


def created_s_of(object: Any) -> float:
    created_s = moment_s(text_in(object, "metadata", "creationTimestamp"), "creationTimestamp", None)
    if created_s is None:
        raise Dirty("without creationTimestamp")
    return created_s


def _condition(status: Any, kind: str) -> Any:
    return next((condition for condition in list_in(status, "conditions") if text_in(condition, "type") == kind), {})


def condition_holds(status: Any, kind: str) -> bool:
    return text_in(_condition(status, kind), "status") == "True"


def condition_since_s(status: Any, kind: str) -> float | None:
    """Return the time since which a condition has been true, or ``None`` if it is not true."""
    if not condition_holds(status, kind):
        return None
    return moment_s(text_in(_condition(status, kind), "lastTransitionTime"), "lastTransitionTime", None)


def _fate(status: Any) -> PodFate:
    match text_in(status, "phase"):
        case "Succeeded":
            return PodFate.OVER
        case "Failed":
            evicted = text_in(status, "reason") in ("Evicted", "Preempting", "Shutdown", "NodeLost", "Terminated")
            return PodFate.EVICTED if evicted or condition_holds(status, "DisruptionTarget") else PodFate.FAILED
        case "Running":
            return PodFate.RUNS
        case "Pending":
            return PodFate.WAITS
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
