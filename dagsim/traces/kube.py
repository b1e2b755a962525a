"""Kubernetes' own terms: quantities, the requests of a pod, and the times when it ran."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from dagsim.model.arithmetic import ordered_sum
from dagsim.traces.documents import list_in, object_in, text_in
from dagsim.traces.fields import MOST_GPUS, Dirty
from dagsim.traces.slurm import moment_s

_QUANTITY = re.compile(
    r"([+-]?\d{1,30}(?:\.\d{0,30})?)(?:[eE]([+-]?\d{1,2})|(n|u|m|k|K|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?", re.I
)
_UNITS = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip
WHOLE_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "google.com/tpu", "habana.ai/gaudi", "gpu.intel.com/i915")
_SHARED = "nvidia.com/gpu.shared"
_MILLI = "alibabacloud.com/gpu-milli"
_SLICE = re.compile(r"nvidia\.com/mig-(\d)g\.(\d{1,4})gb")
TYPE_LABELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "cloud.google.com/gke-tpu-accelerator")


class PodDemand(NamedTuple):
    """The resources that one pod occupies."""

    gpus: int = 0
    share: float = 0.0
    """Share of one GPU, from MIG slices or thousandths."""
    shared: int = 0
    """Time slices; only the node's configuration says how many make up a GPU."""
    cpus: float = 0.0
    memory_gb: float = 0.0

    @property
    def on_gpu(self) -> bool:
        return bool(self.gpus or self.share or self.shared)


def quantity(text: Any) -> float:
    """Parse a quantity: ``7500m``, ``64Gi``, ``64G``, ``1e9`` or a plain number.

    Raises:
        Dirty: The text is not a quantity, or negative.
    """
    cleaned = str(text).strip() if isinstance(text, int | float | str) and not isinstance(text, bool) else ""
    match = _QUANTITY.fullmatch(cleaned[:80])
    if match is None or (match[3] is not None and match[3] not in _UNITS):
        raise Dirty("whose resources are not quantities")
    value = float(match[1]) * (10.0 ** int(match[2]) if match[2] else _UNITS[match[3] or ""])
    if not 0 <= value < inf:
        raise Dirty("whose resources are impossible")
    return value


def pod_requests(spec: Any) -> dict[str, float]:
    """Return the requests of a pod: the sum of all its containers, or that of any one init container if
    larger.

    Init containers that always restart are sidecars: they run alongside the containers and are
    added to the sum.

    Raises:
        Dirty: A quantity cannot be read.
    """
    together: dict[str, float] = {}
    for container in list_in(spec, "containers"):
        _add(together, _asked(container))
    first: dict[str, float] = {}
    for container in list_in(spec, "initContainers"):
        asked = _asked(container)
        if text_in(container, "restartPolicy") == "Always":
            _add(together, asked)
        else:
            first = {name: max(first.get(name, 0.0), asked.get(name, 0.0)) for name in first.keys() | asked.keys()}
    return {name: max(first.get(name, 0.0), together.get(name, 0.0)) for name in first.keys() | together.keys()}


def pod_demand(spec: Any) -> PodDemand:
    """Return the demand of a pod on GPUs, CPUs and memory.

    Raises:
        Dirty: A quantity cannot be read.
    """
    taken = pod_requests(spec)
    return PodDemand(
        sum(whole(taken.get(name, 0.0)) for name in WHOLE_GPUS),
        taken.get(_MILLI, 0.0) / 1000
        + ordered_sum(share * whole(taken[name]) for name in sorted(taken) if (share := _slice(name))),
        whole(taken.get(_SHARED, 0.0)),
        round(taken.get("cpu", 0.0), 9),
        taken.get("memory", 0.0) / 2**30,
    )


def wanted_type(spec: Any) -> tuple[str, ...]:
    """GPU products that a pod requires, by its node selector or required affinity; empty if any
    will do.
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


def _asked(container: Any) -> dict[str, float]:
    """Requests, completed by limits for resources without a request: extended resources need none."""
    requests: dict[str, Any] = {
        **object_in(container, "resources", "limits"),
        **object_in(container, "resources", "requests"),
    }
    return {name: quantity(value) for name, value in requests.items()}


def _add(total: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0.0) + value


def whole(value: float) -> int:
    """The value as a number of GPUs.

    Raises:
        Dirty: It is not a number of GPUs.
    """
    if value != int(value) or value > MOST_GPUS:
        raise Dirty("whose resources are impossible")
    return int(value)


def _slice(name: str) -> float:
    """Share of a GPU that a MIG resource is worth; 0 for any other resource. An A30 has 4 slices,
    others 7.
    """
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
_MOST_PODS = 1 << 20


@dataclass(frozen=True, slots=True)
class PodSet:
    """One pod, or one pod set of a workload."""

    whole: str
    """Key of the job that this piece belongs to."""
    name: str
    namespace: str
    queue: str
    priority: float
    gang: bool
    index: str
    """Index among the job's equal pieces, if stated; a second piece of the same index is another
    attempt.
    """
    count: int
    demand: PodDemand
    wanted: tuple[str, ...]
    ran_on: str
    """GPU type that the piece ran on, if stated."""
    created_s: float
    bound_s: float | None
    started_s: float | None
    ended_s: float | None
    fate: str
    """``over``, ``failed``, ``evicted``, ``runs`` or ``waits``."""
    is_workload: bool = False
    node: str = ""
    limit_s: float | None = None
    """Longest time that it may run (``activeDeadlineSeconds``, Kueue's ``maximumExecutionTimeSeconds``)."""
    level: str = ""
    """The level of the topology that Kueue is asked for."""
    level_required: bool = True
    segment: int | None = None
    """Pods per slice, each of which lies within one domain of the level."""


def pod(object: Any, scheduled_s: float | None = None) -> PodSet:
    """Extract the facts of a pod; ``scheduled_s`` is the time of binding according to an event.

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
    queue = next((text_in(labels, label) for label in _QUEUE_LABELS if text_in(labels, label)), "")
    started_s, ended_s = _ran(status)
    key = text_in(owner, "uid") or text_in(object, "metadata", "uid")
    return PodSet(
        f"{group} {namespace}/{name}" if group or not key else key,
        f"{namespace}/{name}",
        namespace,
        queue,
        _priority(spec),
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
        **_topology(object_in(object, "metadata", "annotations"), _ANNOTATIONS),
    )


def kueue_workload(object: Any) -> Iterator[PodSet]:
    """Extract the facts of a Kueue workload, one per pod set.

    Raises:
        Dirty: The workload is malformed.
    """
    spec, status = object_in(object, "spec"), object_in(object, "status")
    namespace = text_in(object, "metadata", "namespace")
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
    for pod_set in list_in(spec, "podSets"):
        count, template = object_in(pod_set).get("count"), object_in(pod_set, "template", "spec")
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST_PODS:
            raise Dirty("whose count is impossible")
        yield PodSet(
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
            fate if admitted_s is not None else "waits",
            True,
            limit_s=_positive(object_in(spec).get("maximumExecutionTimeSeconds")),
            **_topology(object_in(pod_set, "topologyRequest"), _FIELDS),
        )


_FIELDS = ("required", "preferred", "podSetSliceRequiredTopology", "podSetSliceSize")
_ANNOTATIONS = tuple(
    f"kueue.x-k8s.io/podset-{name}"
    for name in ("required-topology", "preferred-topology", "slice-required-topology", "slice-size")
)
"""Kueue's names of a required and a preferred level, and of the level and the size of slices."""


def level_name(label: str) -> str:
    """The level of a topology that a label of nodes stands for: ``rack`` for
    ``cloud.provider.com/topology-rack``, ``host`` for ``kubernetes.io/hostname``.
    """
    name = label.rpartition("/")[2].removeprefix("topology-")
    return "host" if name == "hostname" else name


def _topology(source: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The level that Kueue is asked for. Slices count more than the whole, as both cannot be modelled."""
    required, preferred, of_slices = (level_name(text_in(source, name)) for name in names[:3])
    size = source.get(names[3])
    count = int(size) if isinstance(size, str | int) and re.fullmatch(r"[1-9]\d{0,8}", str(size)) else None
    if of_slices and count:
        return {"level": of_slices, "segment": count}
    return {"level": required or preferred, "level_required": bool(required)} if required or preferred else {}


def _positive(value: Any) -> float | None:
    """A number of seconds above 0; ``None`` for anything else."""
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


def _condition(status: Any, kind: str) -> Any:
    return next((condition for condition in list_in(status, "conditions") if text_in(condition, "type") == kind), {})


def _holds(status: Any, kind: str) -> bool:
    return text_in(_condition(status, kind), "status") == "True"


def _since(status: Any, kind: str) -> float | None:
    """Time since which a condition holds; ``None`` if it does not."""
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
            raise Dirty("of an unknown phase" if phase else "without a phase")


def _ran(status: Any) -> tuple[float | None, float | None]:
    """First start of a main container (before any restart), and the end of the last one."""
    started: list[float] = []
    finished: list[float] = []
    for container in list_in(status, "containerStatuses"):
        for name in ("lastState", "state"):
            for how in ("running", "terminated"):
                state = object_in(container, name, how)
                for field, into in (("startedAt", started), ("finishedAt", finished)):
                    moment = moment_s(text_in(state, field), field, None)
                    if moment is not None:
                        into.append(moment)
    return min(started, default=None), max(finished, default=None)
