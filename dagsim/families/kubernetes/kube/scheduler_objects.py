"""The Pods and Nodes that the real kube-scheduler gets for tasks and nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from dagsim.families.kubernetes.api.terms import HOSTNAME, WHOLE_GPUS
from dagsim.families.kubernetes.server.patches import Manifest
from dagsim.families.kubernetes.server.patches import field as value_at
from dagsim.model import Node
from dagsim.systems.cluster.api import TaskState

_TYPE = "dagsim/type"
"""Label of a node that contains the index of the GPU type."""
_GANG = "dagsim/gang"
_MOST_PODS = "1000000"


class SchedulerObjects:
    """The pods of tasks on a cluster. ``fail`` is called for tasks that cannot be pods."""

    def __init__(
        self, nodes: Sequence[Node], types: Sequence[int], scheduler: str, fail: Callable[[str], object]
    ) -> None:
        self.gpu_name = _gpu_name(nodes)
        """The GPU resource that tasks without a manifest request."""
        self._nodes, self._types, self._scheduler, self._fail = nodes, types, scheduler, fail

    def pod(self, task: TaskState, key: tuple[int, int, int]) -> Manifest:
        """Return the pod for an instance of a task. The numbers in ``key`` identify the instance."""
        carried = stated_manifest(task)
        if not carried and task.task.gpus != int(task.task.gpus):
            self._fail(f"cannot schedule {task.name}: it requests {task.task.gpus:g} GPUs, but pods need whole GPUs")
        if task.training is not None:
            self._fail(f"cannot schedule {task.name}: the GPUs of an elastic task change, but those of a pod cannot")
        spec = dict(carried.get("spec") or {}) or {"containers": [{"resources": self._plain(task)}]}
        spec["containers"] = [
            {"name": f"c{number}", "image": "none", **container}
            for number, container in enumerate(spec.get("containers") or [{}])
        ]
        if first := spec.get("initContainers"):
            spec["initContainers"] = [
                {"name": f"i{number}", "image": "none", **one} for number, one in enumerate(first)
            ]
        spec |= {
            "schedulerName": self._scheduler,
            "priority": int(max(-(2**31), min(2**31 - 1, task.job.job.priority))),
        }
        namespace = value_at(carried, "metadata.namespace") or "default"
        labels = {str(name): str(value) for name, value in (value_at(carried, "metadata.labels") or {}).items()}
        self._restrict(task, spec, labels, key)
        return {"metadata": {"namespace": namespace, "labels": labels}, "spec": spec}

    def _plain(self, task: TaskState) -> Manifest:
        asked = task.task
        requests = {"cpu": f"{asked.cpus:.9f}"} if asked.cpus else {}
        requests |= {"memory": str(int(asked.memory_gb * 2**30))} if asked.memory_gb else {}
        requests |= {self.gpu_name: str(int(asked.gpus))} if asked.gpus else {}
        return {"requests": requests, "limits": {name: size for name, size in requests.items() if "/" in name}}

    def _restrict(self, task: TaskState, spec: Manifest, labels: dict[str, str], key: tuple[int, int, int]) -> None:
        """Restrict a pod to the GPU types and nodes on which its task may run. All pods of a gang
        must use a single type."""
        demand = task.demand
        rules = []
        if not set(self._types) <= set(demand.types):
            rules.append({"key": _TYPE, "operator": "In", "values": [str(type_) for type_ in demand.types]})
        if demand.terms is not None and demand.terms.nodes != -1:
            allowed = demand.terms.nodes
            names = [node.name for number, node in enumerate(self._nodes) if allowed >> number & 1]
            rules.append({"key": HOSTNAME, "operator": "In", "values": names or ["-"]})
        affinity = json.loads(json.dumps(spec.get("affinity") or {}))
        if rules:
            required = "requiredDuringSchedulingIgnoredDuringExecution"
            of_nodes = affinity.setdefault("nodeAffinity", {})
            terms = value_at(of_nodes, f"{required}.nodeSelectorTerms") or [{}]
            of_nodes[required] = {
                "nodeSelectorTerms": [
                    {**term, "matchExpressions": [*term.get("matchExpressions", ()), *rules]} for term in terms
                ]
            }
        if demand.gang and len(demand.types) > 1:
            labels[_GANG] = "-".join(map(str, key))
            term = {"topologyKey": _TYPE, "labelSelector": {"matchLabels": {_GANG: labels[_GANG]}}}
            of_pods = affinity.setdefault("podAffinity", {})
            of_pods.setdefault("requiredDuringSchedulingIgnoredDuringExecution", []).append(term)
        if affinity:
            spec["affinity"] = affinity


def stated_manifest(task: TaskState) -> Manifest:
    """Return the manifest that the log states for a task. It is empty if the log states none."""
    manifest: Manifest = json.loads(task.task.manifest) if task.task.manifest else {}
    return manifest


def valid_name(text: str) -> str:
    """Return a name that is valid in Kubernetes."""
    return (
        "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in text.lower())[:200].strip("-")
        or "x"
    )


def _gpu_name(nodes: Iterable[Node]) -> str:
    """Return the GPU resource that tasks without a manifest request. It is the resource that the
    nodes offer."""
    for node in nodes:
        amounts = value_at(json.loads(node.manifest), "status.allocatable") if node.manifest else None
        for name in WHOLE_GPUS:
            if name in (amounts or {}):
                return name
    return WHOLE_GPUS[0]


def node_manifest(node: Node, type_: int, gpu_name: str) -> Manifest:
    """Return the Node object for a node."""
    carried = json.loads(node.manifest) if node.manifest else {}
    stated = value_at(carried, "status.allocatable") or {}
    gpus = [name for name in WHOLE_GPUS if name in stated] or [gpu_name]
    amounts = {
        "pods": _MOST_PODS,
        **stated,
        "cpu": f"{round(node.cpus * 1000)}m",
        "memory": str(round(node.memory_gb * 2**30)),
        **({gpus[0]: str(node.gpus)} if node.gpus else {}),
    }
    labels = {HOSTNAME: node.name, **(value_at(carried, "metadata.labels") or {}), _TYPE: str(type_)}
    status = {"allocatable": amounts, "capacity": amounts}
    if images := value_at(carried, "status.images"):
        status["images"] = images
    return {"metadata": {"name": node.name, "labels": labels}, "spec": carried.get("spec") or {}, "status": status}
