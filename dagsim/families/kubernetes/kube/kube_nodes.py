"""Nodes in the JSON or YAML output of ``kubectl``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count, islice
from typing import Any, NamedTuple

import yaml

from dagsim.errors import TraceError
from dagsim.families.kubernetes.api.cluster_objects import object_kind
from dagsim.families.kubernetes.api.pods import whole_gpus
from dagsim.families.kubernetes.api.terms import HOSTNAME, quantity, units
from dagsim.families.kubernetes.kueue.manifests import go_duration_s
from dagsim.families.site.node_lists import FoundNode, NodeFormat
from dagsim.model import OnDemand, canonical_json
from dagsim.traces.documents import elements, list_in, object_in, text_in
from dagsim.traces.fields import Dirty, FaultsAt
from dagsim.traces.source import LINE_BITS, Source

YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader in C, if PyYAML was built with it."""
_KIND = re.compile(r'"kind"\s*:\s*"Node(List)?"')
_TYPES = {
    "nvidia.com/gpu": ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator"),
    "amd.com/gpu": ("amd.com/gpu.product-name", "amd.com/gpu.family"),
    "google.com/tpu": ("cloud.google.com/gke-tpu-accelerator",),
}
_SLICE = re.compile(r"nvidia\.com/mig-(\d{1,2}g\.\d{1,4}gb)")
_RACKS = ("topology.kubernetes.io/rack", "cloud.provider.com/topology-rack", "topology.kubernetes.io/zone")


_MOST_YAML = 1 << 27
"""Maximum number of characters of YAML, because YAML is parsed as a whole."""


def is_kube(source: Source) -> bool:
    head = "\n".join(source.head(1 << 16))
    if head.lstrip()[:1] in ("{", "["):
        return _KIND.search(head) is not None and '"allocatable"' in head
    return "allocatable:" in head and "apiVersion:" in head


def kube_nodes(source: Source) -> Iterator[FoundNode]:
    """Yield the nodes with their allocatable resources, from JSON or YAML, and the nodes that an
    autoscaler may add. Pods that tolerate the taint can use cordoned and tainted nodes. No pod can
    use nodes that are not ready.

    Raises:
        TraceError: The text is neither JSON nor YAML, or a quantity cannot be read.
    """
    yield from _read(source)[0]


def kube_notes(source: Source) -> list[str]:
    """Describe which properties of the node groups in the source are not modelled."""
    return _read(source)[1] if source.mentions(_OF_GROUPS) else []


def _read(source: Source) -> tuple[list[FoundNode], list[str]]:
    json_text = "\n".join(source.head(4)).lstrip()[:1] in ("{", "[")
    nodes: list[tuple[FoundNode, str]] = []
    groups: list[_NodeGroup] = []
    for place, object_ in elements(source, "items") if json_text else _yaml_objects(source):
        if object_kind(object_) == "Node":
            with FaultsAt(source.where(place), "a node"):
                nodes.append((_node_of_kube(object_), text_in(object_, "metadata", "annotations", _OWNER)))
        else:
            with FaultsAt(source.where(place), "a node group"):
                groups += _NodeGroup.all_of(object_)
    notes: list[str] = []
    for group in groups:
        members = [at for at, (node, owner) in enumerate(nodes) if group.owns(node, owner)]
        for at in members:
            nodes[at] = replace(nodes[at][0], on_demand=group.rule(up=True)), ""
        like = nodes[members[0]][0] if members else group.template
        most = group.most if like is None else group.largest(like)
        notes += group.notes(like, most)
        if like is not None and most is not None:
            names = {node.name for node, _ in nodes}
            new = (name for number in count(1) if (name := f"{group.name}-{number}") not in names)
            added = islice(new, max(most - len(members), 0))
            nodes += [(like.of_group(name, group.rule()), "") for name in added]
    return [node for node, _ in nodes], notes


_SCALED = ("MachineDeployment", "MachineSet", "MachinePool")
_OWNER = "cluster.x-k8s.io/owner-name"
_SIZE = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-{}-size"
_CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
_NODE_POOL = "karpenter.sh/nodepool"
"""Label of the nodes that Karpenter has added."""
_STATUS = "cluster-autoscaler-status"
"""ConfigMap in which a cluster autoscaler lists its groups."""
_POOLS = ("cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "kubernetes.azure.com/agentpool", "agentpool")
"""Labels with the name of a node's pool, which is part of the name of the autoscaler's group."""
_OF_GROUPS = re.compile(rb"NodePool|cluster-autoscaler-status|MachineDeployment|MachineSet|MachinePool")


class _NodeGroup(NamedTuple):
    """A group of nodes that an autoscaler adds and removes."""

    kind: str
    """The kind of the object: one of the Cluster API, whose annotations state its sizes, Karpenter's
    ``NodePool``, or the ``ConfigMap`` of a cluster autoscaler."""
    name: str
    least: int
    most: int | None
    """Largest number of nodes. None if this number depends on ``limits``, or if there is no
    limit."""
    template: FoundNode | None = None
    """A node with the capacity that annotations state, for groups without nodes. None if there are
    no such annotations."""
    limits: Mapping[str, float] = {}
    """Resources that all nodes of a NodePool may have together."""
    idle_s: float | None = 600.0
    """Seconds after which an empty node is removed, or None if it is never removed. The default is
    the one of the cluster autoscaler."""

    @classmethod
    def all_of(cls, object_: Mapping[str, Any]) -> list[_NodeGroup]:
        """Return the groups that an object describes."""
        kind, name = object_kind(object_), text_in(object_, "metadata", "name")
        if kind in _SCALED:
            return [one] if (one := cls._of_machines(kind, name, object_)) is not None else []
        if kind == "NodePool" and text_in(object_, "apiVersion").startswith("karpenter.sh/") and name:
            limits = {resource: quantity(amount) for resource, amount in object_in(object_, "spec", "limits").items()}
            if (replicas := object_in(object_, "spec").get("replicas")) is not None:
                # A pool with ``replicas`` keeps this size. Its limits matter only while nodes are
                # being replaced.
                return [cls(kind, name, *_sizes(str(replicas), str(replicas)), idle_s=None)]
            after = object_in(object_, "spec", "disruption").get("consolidateAfter", "0s")
            idle_s = None if after == "Never" else _seconds(after)
            return [cls(kind, name, 0, None, limits=limits, idle_s=idle_s)]
        if kind == "ConfigMap" and name == _STATUS:
            return list(cls._of_status(text_in(object_, "data", "status")))
        return []

    @classmethod
    def _of_status(cls, text: str) -> Iterator[_NodeGroup]:
        """Yield the groups in the status of a cluster autoscaler. The status is YAML from version
        1.30 on, and plain text before.
        """
        if text.startswith(_OLD_STATUS):
            for name, least, most in _OLD_GROUP.findall(text[:_MOST_STATUS]):
                yield cls("ConfigMap", name.rpartition("/")[2], *_sizes(least, most))
            return
        try:
            status = yaml.load(text, YAML_LOADER) if len(text) < _MOST_STATUS else None
        except (yaml.YAMLError, ValueError, RecursionError):
            status = None
        if not isinstance(status, dict):
            raise Dirty("whose status is neither YAML nor the text that cluster autoscalers wrote before version 1.30")
        for group in list_in(status, "nodeGroups"):
            sizes = [object_in(group, "health").get(key) for key in ("minSize", "maxSize")]
            # Keep the last part, because on Google Cloud the name is a URL.
            name = text_in(group, "name").rpartition("/")[2]
            yield cls("ConfigMap", name, *_sizes(*map(str, sizes)))

    @classmethod
    def _of_machines(cls, kind: str, name: str, scaled: Mapping[str, Any]) -> _NodeGroup | None:
        """Return the group that a Cluster API object describes, or None if the autoscaler does not
        resize it.
        """
        notes = object_in(scaled, "metadata", "annotations")
        least, most = (text_in(notes, _SIZE.format(end)) for end in ("min", "max"))
        if not name or not most:
            return None
        template = None
        if (cpus := text_in(notes, f"{_CAPACITY}cpu")) and (memory := text_in(notes, f"{_CAPACITY}memory")):
            there = {"cpu": cpus, "memory": memory, "pods": text_in(notes, f"{_CAPACITY}maxPods") or "110"}
            if gpus := text_in(notes, f"{_CAPACITY}gpu-count"):
                there[text_in(notes, f"{_CAPACITY}gpu-type") or "nvidia.com/gpu"] = gpus
            pairs = [pair.partition("=") for pair in text_in(notes, f"{_CAPACITY}labels").split(",") if pair]
            taints = [
                {"key": key, "value": value, "effect": effect}
                for one in text_in(notes, f"{_CAPACITY}taints").split(",")
                if one
                for pair, _, effect in [one.partition(":")]
                for key, _, value in [pair.partition("=")]
            ]
            template = _node_of_kube(
                {
                    "metadata": {"name": name, "labels": {key: value for key, _, value in pairs}},
                    "spec": {"taints": taints},
                    "status": {"allocatable": there},
                }
            )
        return cls(kind, name, *_sizes(least or "0", most), template)

    def owns(self, node: FoundNode, owner: str) -> bool:
        """Return True if a node with this owner belongs to the group. A MachineDeployment owns its
        nodes through a MachineSet, whose name is that of the MachineDeployment plus a suffix.
        """
        if self.kind == "NodePool":
            return node.labels.get(_NODE_POOL) == self.name
        if self.kind == "ConfigMap":
            pools = [node.labels[label] for label in _POOLS if label in node.labels]
            return any(f"-{pool}-" in f"-{self.name}-" for pool in pools)
        return owner == self.name or owner.startswith(f"{self.name}-")

    def largest(self, node: FoundNode) -> int | None:
        """Return how many nodes like this one the group may have, or None if there is no limit."""
        if self.most is not None:
            return self.most
        there = object_in(json.loads(node.manifest), "status", "allocatable") if node.manifest else {}
        amounts = {"cpu": node.cpus, "memory": node.memory_gb * 2**30, "nodes": 1.0}
        amounts |= {resource: quantity(amount) for resource, amount in there.items()}
        counts = [int(limit / amounts[name]) for name, limit in self.limits.items() if amounts.get(name, 0) > 0]
        return min(*counts, _MOST_NODES) if counts else None

    def notes(self, like: FoundNode | None, most: int | None) -> Iterator[str]:
        """Describe the properties of the group that are not modelled."""
        if like is None:
            yield f"{self.kind} {self.name}: it has no nodes, and no file states how large they are, so none is added"
        elif most is None:
            yield f"{self.kind} {self.name}: it has no limits, so no nodes are added to those that exist"
        if self.kind == "NodePool":
            yield (
                f"NodePool {self.name}: every new node is like its first one; moving pods to empty a node, expiry and "
                "budgets for disruptions"
            )

    def rule(self, *, up: bool = False) -> OnDemand:
        """Return the rules by which a node of the group is powered up and down. The objects do not
        state how long a boot takes."""
        return OnDemand(trigger="pending", min_nodes=self.least, idle_s=self.idle_s, up=up)


def _sizes(least: str, most: str) -> tuple[int, int]:
    """Return the minimum and the maximum size of a group."""
    if not (most.isdecimal() and least.isdecimal() and int(least) <= int(most) <= _MOST_NODES):
        raise Dirty(f"whose sizes {least!r} to {most!r} are not numbers of nodes in ascending order")
    return int(least), int(most)


def _seconds(text: Any) -> float:
    """Parse a Go duration."""
    try:
        return go_duration_s("consolidateAfter", text, 0.0)
    except TraceError:
        raise Dirty(f"whose consolidateAfter {text!r:.40} is not a duration such as 30s, or Never") from None


_MOST_STATUS = 1 << 20
_OLD_STATUS = "Cluster-autoscaler status at "
_OLD_GROUP = re.compile(r"^ *Name: +(\S+)\n *Health:.*\(minSize=(\d+), maxSize=(\d+)\)", re.MULTILINE)
_MOST_NODES = 20_000


def _yaml_objects(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects in all YAML documents of the source. Each comes with the line at which its
    document begins."""
    for place, file in enumerate(source.files):
        with file.open_binary() as stream:
            text = stream.read(_MOST_YAML + 1).decode("utf-8", "replace")
        if len(text) > _MOST_YAML:
            raise TraceError(f"{file}:1: YAML files may have at most {_MOST_YAML:,} bytes; use -o json instead")
        try:
            for document in yaml.load_all(text, YAML_LOADER):
                listed = list_in(document, "items") if object_in(document).get("items") is not None else [document]
                yield from [((place << LINE_BITS) + 1, object) for object in listed if isinstance(object, dict)]
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            line = 1 if mark is None else mark.line + 1
            raise TraceError(f"{file}:{line}: invalid YAML ({getattr(error, 'problem', None) or error})") from None


def _node_of_kube(node: Mapping[str, Any]) -> FoundNode:
    name = text_in(node, "metadata", "name")
    if not name:
        raise Dirty("without a name")
    labels = object_in(node, "metadata", "labels")
    there = object_in(node, "status", "allocatable") or object_in(node, "status", "capacity")
    gpus: list[tuple[str, int]] = []
    for resource, value in there.items():
        mig_match = _SLICE.fullmatch(resource)
        if resource in _TYPES or mig_match:
            kind = next((text_in(labels, label) for label in _TYPES.get(resource, ()) if text_in(labels, label)), "")
            if mig_match:
                kind = f"{text_in(labels, 'nvidia.com/gpu.product')}_{mig_match[1]}"
            gpus += [(kind, size)] if (size := whole_gpus(quantity(value))) else []
    state = _state(node)
    return FoundNode(
        name,
        tuple(gpus),
        units("cpu", there.get("cpu", 0)) / 1000,
        units("memory", there.get("memory", 0)) / 2**30,
        state,
        state != "NotReady",
        tuple(text_in(labels, label) for label in _RACKS if text_in(labels, label)),
        labels={label: text for label, text in labels.items() if isinstance(text, str)},
        manifest=canonical_json(_node_manifest(name, node, there, state)),
    )


_VOLATILE = ("nvidia.com/gfd.timestamp",)
"""Labels whose values are times."""
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def _node_manifest(name: str, node: Mapping[str, Any], there: Mapping[str, Any], state: str) -> dict[str, Any]:
    """Return the properties of a node that matter to kube-scheduler, except those that its group
    already states (cores, memory and the name). This way, nodes that are otherwise the same can
    form one group."""
    labels = {
        label: text
        for label, text in object_in(node, "metadata", "labels").items()
        if isinstance(text, str) and label not in _VOLATILE and (label, text) != (HOSTNAME, name)
    }
    spec = object_in(node, "spec")
    taints = [
        {key: taint[key] for key in ("key", "value", "effect") if isinstance(taint.get(key), str)}
        for taint in map(object_in, list_in(spec, "taints"))
    ]
    if state == "NotReady" and not any(taint.get("key") == _NOT_READY["key"] for taint in taints):
        taints.append(_NOT_READY)
    images = [
        {"names": list_in(image, "names"), "sizeBytes": object_in(image).get("sizeBytes")}
        for image in list_in(node, "status", "images")
    ]
    rest = {resource: value for resource, value in there.items() if resource not in ("cpu", "memory")}
    for resource, value in rest.items():
        units(resource, value)
    manifest = {
        "metadata": {"labels": labels} if labels else {},
        "spec": ({"taints": taints} if taints else {})
        | ({"unschedulable": True} if spec.get("unschedulable") is True else {}),
        "status": ({"allocatable": rest} if rest else {}) | ({"images": images} if images else {}),
    }
    return {part: content for part, content in manifest.items() if content}


def _state(node: Mapping[str, Any]) -> str:
    """Return ``Ready``, ``NotReady``, or the reason why most pods cannot use the node."""
    spec = object_in(node, "spec")
    ready = next(
        (condition for condition in list_in(node, "status", "conditions") if text_in(condition, "type") == "Ready"),
        None,
    )
    if ready is not None and text_in(ready, "status") != "True":
        return "NotReady"
    if spec.get("unschedulable") is True:
        return "SchedulingDisabled"
    taints = [
        text_in(taint, "key")
        for taint in list_in(spec, "taints")
        if text_in(taint, "effect") in ("NoSchedule", "NoExecute")
    ]
    hindering = [key for key in taints if not re.match(r"(nvidia|amd|google)\.com/(gpu|tpu)$", key)]
    return f"tainted {hindering[0]}" if hindering else "Ready"


KUBECTL = NodeFormat(is_kube, kube_nodes, "kube-default", kube_notes)
