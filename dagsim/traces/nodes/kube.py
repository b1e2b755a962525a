"""Kubernetes' nodes: ``kubectl get nodes -o json``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dagsim.errors import TraceError
from dagsim.traces.documents import elements, list_in, object_in, text_in
from dagsim.traces.fields import Dirty
from dagsim.traces.kube.demand import quantity, whole
from dagsim.traces.nodes.found import FoundNode
from dagsim.traces.source import Source

__all__ = ["is_kube", "kube_nodes"]

_KIND = re.compile(r'"kind"\s*:\s*"Node(List)?"')
_TYPES = {
    "nvidia.com/gpu": ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator"),
    "amd.com/gpu": ("amd.com/gpu.product-name", "amd.com/gpu.family"),
    "google.com/tpu": ("cloud.google.com/gke-tpu-accelerator",),
}
_SLICE = re.compile(r"nvidia\.com/mig-(\d{1,2}g\.\d{1,4}gb)")
_RACKS = ("topology.kubernetes.io/rack", "cloud.provider.com/topology-rack", "topology.kubernetes.io/zone")


def is_kube(source: Source) -> bool:
    head = "\n".join(source.head(1 << 16))
    return head.lstrip()[:1] in ("{", "[") and _KIND.search(head) is not None and '"allocatable"' in head


def kube_nodes(source: Source) -> Iterator[FoundNode]:
    """Nodes by what can be allocated on them; those that are cordoned, tainted or not ready cannot be used.

    Raises:
        TraceError: It is no JSON, or a quantity is none.
    """
    for place, node in elements(source, "items"):
        if text_in(node, "kind") not in ("Node", ""):
            continue
        try:
            yield _node(node)
        except Dirty as reason:
            raise TraceError(f"{source.where(place)}: a node {reason}") from None


def _node(node: Mapping[str, Any]) -> FoundNode:
    name = text_in(node, "metadata", "name")
    if not name:
        raise Dirty("without a name")
    labels, there = object_in(node, "metadata", "labels"), object_in(node, "status", "allocatable")
    gpus: list[tuple[str, int]] = []
    for resource, value in there.items():
        found = _SLICE.fullmatch(resource)
        if resource in _TYPES or found:
            kind = next((text_in(labels, label) for label in _TYPES.get(resource, ()) if text_in(labels, label)), "")
            if found:
                kind = f"{text_in(labels, 'nvidia.com/gpu.product')}_{found[1]}"
            gpus += [(kind, size)] if (size := whole(quantity(value))) else []
    state = _state(node)
    return FoundNode(
        name,
        tuple(gpus),
        quantity(there.get("cpu", 0)),
        quantity(there.get("memory", 0)) / 2**30,
        state,
        state == "Ready",
        tuple(text_in(labels, label) for label in _RACKS if text_in(labels, label)),
    )


def _state(node: Mapping[str, Any]) -> str:
    """``Ready``, or why not."""
    spec = object_in(node, "spec")
    if spec.get("unschedulable") is True:
        return "SchedulingDisabled"
    ready = next((each for each in list_in(node, "status", "conditions") if text_in(each, "type") == "Ready"), None)
    if ready is not None and text_in(ready, "status") != "True":
        return "NotReady"
    taints = [
        text_in(each, "key")
        for each in list_in(spec, "taints")
        if text_in(each, "effect") in ("NoSchedule", "NoExecute")
    ]
    hindering = [key for key in taints if not re.match(r"(nvidia|amd|google)\.com/(gpu|tpu)$", key)]
    return f"tainted {hindering[0]}" if hindering else "Ready"
