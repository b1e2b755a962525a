"""Nodes in the JSON or YAML output of ``kubectl``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count, islice
from typing import Any, NamedTuple

import yaml

from dagsim.errors import TraceError
from dagsim.families.kubernetes.pods import object_kind, whole_gpus
from dagsim.families.kubernetes.terms import HOSTNAME, quantity, units
from dagsim.families.site.node_lists import FoundNode, NodeFormat
from dagsim.model import OnDemand, canonical_json
from dagsim.traces.documents import elements, list_in, object_in, text_in
from dagsim.traces.fields import Dirty, FaultsAt
from dagsim.traces.source import LINE_BITS, Source

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
    """Yield the nodes with their allocatable resources, from JSON or YAML. Cordoned and tainted
    nodes can be used by pods that tolerate the taint; nodes that are not ready cannot be used at
    all.

    Raises:
        TraceError: The text is neither JSON nor YAML, or a quantity cannot be read.
    """
    json_text = "\n".join(source.head(4)).lstrip()[:1] in ("{", "[")
    nodes: list[tuple[FoundNode, str]] = []
    groups: list[_NodeGroup] = []
    for place, object_ in elements(source, "items") if json_text else _yaml_objects(source):
        if object_kind(object_) == "Node":
            with FaultsAt(source.where(place), "a node"):
                nodes.append((_node_of_kube(object_), text_in(object_, "metadata", "annotations", _OWNER)))
        elif object_kind(object_) in _SCALED:
            with FaultsAt(source.where(place), "a node group"):
                groups += filter(None, [_NodeGroup.of(object_)])
    for group in groups:
        members = [at for at, (_, owner) in enumerate(nodes) if group.owns(owner)]
        for at in members:
            nodes[at] = replace(nodes[at][0], on_demand=group.rule(up=True)), ""
        like = nodes[members[0]][0] if members else group.template
        if like is not None:
            names = {node.name for node, _ in nodes}
            new = (name for number in count(1) if (name := f"{group.name}-{number}") not in names)
            added = islice(new, max(group.most - len(members), 0))
            nodes += [(like.of_group(name, group.rule()), "") for name in added]
    yield from [node for node, _ in nodes]


_SCALED = ("MachineDeployment", "MachineSet", "MachinePool")
_OWNER = "cluster.x-k8s.io/owner-name"
_SIZE = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-{}-size"
_CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"


class _NodeGroup(NamedTuple):
    """Nodes that a cluster autoscaler adds and removes: an object of the Cluster API whose annotations
    state the smallest and the largest number of nodes.
    """

    name: str
    least: int
    most: int
    template: FoundNode | None
    """A node by the annotations that state its capacity (for groups without nodes); None without them."""

    @classmethod
    def of(cls, scaled: Mapping[str, Any]) -> _NodeGroup | None:
        """Return the group of an object, or None if the autoscaler does not change its size."""
        notes, name = object_in(scaled, "metadata", "annotations"), text_in(scaled, "metadata", "name")
        least, most = (text_in(notes, _SIZE.format(end)) for end in ("min", "max"))
        if not name or not most:
            return None
        if not (most.isdecimal() and (least or "0").isdecimal() and int(least or 0) <= int(most) <= _MOST_NODES):
            raise Dirty(f"whose sizes {least or 0!r} to {most!r} are not numbers of nodes in order")
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
        return cls(name, int(least or 0), int(most), template)

    def owns(self, owner: str) -> bool:
        """Return True if a node with this owner belongs to the group. A MachineDeployment owns nodes
        through a MachineSet with its name and a suffix.
        """
        return owner == self.name or owner.startswith(f"{self.name}-")

    def rule(self, *, up: bool = False) -> OnDemand:
        """Return when a node of the group is powered up and down. No object states how long it takes."""
        return OnDemand(trigger="pending", min_nodes=self.least, up=up)


_MOST_NODES = 20_000


def _yaml_objects(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects in all YAML documents of the source, together with the line at which their
    document begins."""
    for place, file in enumerate(source.files):
        with file.open_binary() as stream:
            text = stream.read(_MOST_YAML + 1).decode("utf-8", "replace")
        if len(text) > _MOST_YAML:
            raise TraceError(f"{file}:1: YAML files may have at most {_MOST_YAML:,} bytes; use -o json instead")
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            for document in yaml.load_all(text, loader):
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
"""Labels that record a time, not a property."""
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def _node_manifest(name: str, node: Mapping[str, Any], there: Mapping[str, Any], state: str) -> dict[str, Any]:
    """Return the parts of a node that kube-scheduler reads, except those that are already part of
    its group (cores, memory and the name). Nodes that are otherwise the same can then form one
    group."""
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


KUBECTL = NodeFormat(is_kube, kube_nodes, "kube-default")
