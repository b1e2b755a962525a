"""Pods and Kueue's workloads as plain facts: whose they are, what they asked for, when they ran."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from dagsim.traces.documents import list_in, object_in, text_in
from dagsim.traces.fields import Dirty
from dagsim.traces.kube.demand import PodDemand, pod_demand, wanted_type
from dagsim.traces.slurm.fields import moment_s

__all__ = ["PodSet", "kueue_workload", "pod"]

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
    """The key of the job that it is a piece of."""
    name: str
    namespace: str
    queue: str
    priority: float
    gang: bool
    index: str
    """Which of the job's equal pieces it is, where that is said: the same one again is another attempt."""
    count: int
    demand: PodDemand
    wanted: tuple[str, ...]
    given: str
    """The GPU type that it ran on, where that is said."""
    created_s: float
    bound_s: float | None
    started_s: float | None
    ended_s: float | None
    fate: str
    """``over``, ``failed``, ``evicted``, ``runs`` or ``waits``."""
    is_workload: bool = False
    node: str = ""

    def to_text(self) -> str:
        """The facts as one line, for ``from_text``."""
        return json.dumps(list(asdict(self).values()))

    @classmethod
    def from_text(cls, text: str) -> PodSet:
        """The inverse of ``to_text``."""
        values = json.loads(text)
        values[8], values[9] = PodDemand(*values[8]), tuple(values[9])
        return cls(*values)


def pod(object: Any, scheduled_s: float | None = None) -> PodSet:
    """The facts of a pod; ``scheduled_s`` is when an event says that it was bound.

    Raises:
        Dirty: It is not in order.
    """
    spec, status = object_in(object, "spec"), object_in(object, "status")
    labels = object_in(object, "metadata", "labels")
    namespace, own = text_in(object, "metadata", "namespace"), text_in(object, "metadata", "name")
    group = next((label for label in _GROUP_LABELS if text_in(labels, label)), "")
    owner: Any = next(
        (each for each in list_in(object, "metadata", "ownerReferences") if object_in(each).get("controller")), {}
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
    )


def kueue_workload(object: Any) -> Iterator[PodSet]:
    """The facts of a Kueue workload, by pod set.

    Raises:
        Dirty: It is not in order.
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
        text_in(each, "name"): next(
            (text for key, text in object_in(each, "flavors").items() if "gpu" in key and isinstance(text, str)), ""
        )
        for each in list_in(status, "admission", "podSetAssignments")
    }
    for each in list_in(spec, "podSets"):
        count, template = object_in(each).get("count"), object_in(each, "template", "spec")
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST_PODS:
            raise Dirty("whose count is impossible")
        yield PodSet(
            text_in(owner, "uid") or text_in(object, "metadata", "uid") or f"{namespace}/{name}",
            f"{namespace}/{name}",
            namespace,
            text_in(spec, "queueName"),
            _priority(spec),
            True,
            text_in(each, "name"),
            count,
            pod_demand(template),
            wanted_type(template),
            flavours.get(text_in(each, "name"), ""),
            _created(object),
            admitted_s,
            admitted_s,
            finished_s,
            fate if admitted_s is not None else "waits",
            True,
        )


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
    return next((each for each in list_in(status, "conditions") if text_in(each, "type") == kind), {})


def _holds(status: Any, kind: str) -> bool:
    return text_in(_condition(status, kind), "status") == "True"


def _since(status: Any, kind: str) -> float | None:
    """Since when a condition holds; nothing if it does not."""
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
    """The start of the first main container (before any restart) and the last one's end."""
    started: list[float] = []
    finished: list[float] = []
    for container in list_in(status, "containerStatuses"):
        for name in ("lastState", "state"):
            for how in ("running", "terminated"):
                said = object_in(container, name, how)
                for field, into in (("startedAt", started), ("finishedAt", finished)):
                    moment = moment_s(text_in(said, field), field, None)
                    if moment is not None:
                        into.append(moment)
    return min(started, default=None), max(finished, default=None)
