"""The configuration of a Kueue site, from ``kubectl get ... -o yaml`` or ``-o json``.

This module reads ClusterQueues, Cohorts, LocalQueues, ResourceFlavors, Topologies and Workloads
(``kueue.x-k8s.io``, v1alpha1 to v1beta2), the Configuration of Kueue's manager, also from its
ConfigMap ``kueue-manager-config``, and the nodes from ``kubectl get nodes -o json``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import yaml

from dagsim.errors import TraceError
from dagsim.families.kubernetes.kube_nodes import is_kube
from dagsim.families.kubernetes.kueue_manifests import KINDS, full_name, kueue_objects, kueue_workload_object
from dagsim.families.kubernetes.kueue_objects import KueueObjects, ResourceFlavor, Workload
from dagsim.families.kubernetes.pods import TYPE_LABELS, level_name
from dagsim.families.site.node_lists import FoundNode, ImportedSite, read_nodes
from dagsim.model import GPU_TYPES, QueueTree
from dagsim.traces.documents import elements, list_in, object_in, text_in
from dagsim.traces.sites import site_gpu
from dagsim.traces.source import Source

_GROUP = "kueue.x-k8s.io"
_OTHER_QUEUES = {"scheduling.volcano.sh": "Volcano", "scheduling.run.ai": "KAI"}
"""Groups of queues that are not modelled."""
_MOST_CHARACTERS = 20_000_000
_READ = {
    "ClusterQueue": ("cohort", "cohortName", "queueingStrategy", "preemption", "resourceGroups", "namespaceSelector",
                     "stopPolicy", "fairSharing", "flavorFungibility", "admissionScope"),
    "Cohort": ("parentName", "parent", "resourceGroups", "fairSharing"),
    "LocalQueue": ("clusterQueue", "stopPolicy", "fairSharing"),
}  # fmt: skip
"""Keys in specifications that are modelled."""
_LABELS = (*TYPE_LABELS, "amd.com/gpu.product-name", "amd.com/gpu.family")


@dataclass(slots=True)
class KueueSite(ImportedSite):
    """The contents of a site's files."""

    policy = "kueue"
    objects: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Objects by kind and name; names of LocalQueues include the namespace, ``team/queue``."""
    nodes: list[FoundNode] = field(default_factory=list)
    node_manifests: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def has_queues(self) -> bool:
        return bool(self.objects)

    def kueue_objects(self) -> KueueObjects:
        """Return what the administrator configured.

        Raises:
            TraceError: An object cannot be read.
        """
        manifests = [manifest for kind in KINDS for manifest in self.objects.get(kind, {}).values()]
        return kueue_objects(manifests, self.node_manifests)

    def workloads(self) -> list[Workload]:
        """Return the workloads that wait or hold quota, in the order of the files.

        Raises:
            TraceError: A workload cannot be read.
        """
        classes = self.objects.get("WorkloadPriorityClass", {})
        priorities = {name: float(one.get("value", 0)) for name, one in classes.items()}
        manifests = self.objects.get("Workload", {}).values()
        return [one for manifest in manifests if (one := kueue_workload_object(manifest, priorities)) is not None]

    def restarts(self, queues: QueueTree) -> bool:
        """Return True, because the pods of an evicted workload start again."""
        return True

    def found_nodes(self) -> list[FoundNode]:
        """Return all nodes.

        Raises:
            TraceError: No file lists nodes.
        """
        if not self.nodes:
            raise TraceError("no file lists nodes; add the output of `kubectl get nodes -o json`")
        return self.nodes

    def network(self, names: Sequence[str]) -> dict[str, Any] | None:
        """Return the topology that the flavors name (else the first) as a tree of switches, one for
        each value of its labels; None without a topology. A node that lacks a label is alone below
        a switch at that level."""
        named, there, used = self._topologies()
        for name in [*dict.fromkeys(filter(None, named)), *there]:
            if name not in used[:1]:
                self.drop(f"Topology {name}: " + ("another one is the network" if name in there else "in no file"))
        if not used:
            return None
        labels = [text_in(level, "nodeLabel") for level in list_in(there[used[0]], "spec", "levels")]
        labels = [label for label in labels if level_name(label) not in ("", "host")]
        if not labels:
            self.drop(f"Topology {used[0]}: it has no level above the host")
            return None
        by_name = {node.name: node for node in self.nodes}
        switches: dict[tuple[str, ...], tuple[list[str], dict[str, None]]] = {(): ([], {})}
        lacking = 0
        for name in names:
            # a node with several GPU types is modelled as several nodes
            values = by_name[name.partition(":")[0]].labels
            path = tuple([values.get(label) or f"({name})" for label in labels])
            lacking += not all(values.get(label) for label in labels)
            for depth in range(len(path)):
                switches.setdefault(path[: depth + 1], ([], {}))
                switches[path[:depth]][1]["/".join(path[: depth + 1])] = None
            switches[path][0].append(name)
        if lacking:
            self.drop(
                f"Topology {used[0]}: {lacking:,} nodes lack a label for one of its levels; each is alone at that level"
            )
        self.drop(f"Topology {used[0]}: bandwidths of the network are defaults")
        tree = [
            {"name": "/".join(path) or used[0]}
            | ({"nodes": nodes} if nodes else {})
            | ({"switches": list(below)} if below else {})
            for path, (nodes, below) in switches.items()
        ]
        levels = [level_name(label) for label in reversed(labels)]
        return {"kind": "shared", "topology": {"kind": "tree", "switches": tree, "levels_up": levels}}

    def _topologies(self) -> tuple[list[str], dict[str, Mapping[str, Any]], list[str]]:
        """Return the topologies that flavors name, all that exist, and those that may be used as
        the network, of which the first is used."""
        named = [text_in(flavor, "spec", "topologyName") for flavor in self.objects.get("ResourceFlavor", {}).values()]
        there = self.objects.get("Topology", {})
        return named, there, [name for name in dict.fromkeys(named) if name in there] or list(there)

    def queues(self, named: Mapping[str, str] | None = None) -> QueueTree:
        """Return Kueue's objects, with the GPU types of each flavor; ``named`` maps the site's
        names for GPU types to the names to use.

        Raises:
            TraceError: A quantity or word cannot be read, or cohorts form a cycle.
        """
        objects = self.kueue_objects()
        for kind in self.objects.keys() - {*KINDS, "Workload", "WorkloadPriorityClass"}:
            self.drop(f"{kind}: {', '.join(list(self.objects[kind])[:5])}")
        queues, labelled = self.objects.get("ClusterQueue", {}), {flavor.name for flavor in objects.resource_flavors}
        for kind, names in (("ClusterQueue", queues), ("LocalQueue", self.objects.get("LocalQueue", {}))):
            for name, manifest in names.items():
                self._unmodelled_of(f"{kind} {name}", object_in(manifest, "spec"), _READ[kind])
        for name, manifest in self.objects.get("Cohort", {}).items():
            self._unmodelled_of(f"Cohort {name}", object_in(manifest, "spec"), _READ["Cohort"])
        for name, manifest in self.objects.get("LocalQueue", {}).items():
            if (target := text_in(manifest, "spec", "clusterQueue")) not in queues:
                self.drop(f"LocalQueue {name}: its ClusterQueue {target!r} is in no file")
        lacking = dict.fromkeys(
            flavor.name
            for queue in objects.cluster_queues
            for group in queue.resource_groups
            for flavor in group.flavors
            if flavor.name not in labelled
        )
        for name in lacking:
            self.drop(f"ResourceFlavor {name}: it is in no file; its name is used as the GPU type")
        flavors = [*objects.resource_flavors, *map(ResourceFlavor, lacking)]
        network = self._topologies()[2][:1]
        typed = [
            replace(
                flavor,
                gpu_types=self._types_of(flavor, named or {}),
                topology_name=flavor.topology_name if [flavor.topology_name] == network else "",
            )
            for flavor in flavors
        ]
        used = tuple([one for one in objects.topologies if [one.name] == network and one.name in self._topologies()[0]])
        return QueueTree(kueue=replace(objects, resource_flavors=tuple(typed), topologies=used, nodes=()))

    def _unmodelled_of(self, owner: str, spec: Mapping[str, Any], known: Sequence[str]) -> None:
        for key, value in spec.items():
            if value and key not in known:
                self.drop(f"{owner}: {key}")

    def _types_of(self, flavor: ResourceFlavor, named: Mapping[str, str]) -> tuple[str, ...]:
        """Return the GPU types of a flavor's nodes, from its labels, from the nodes with these
        labels, or from its name; empty if nothing indicates GPUs."""
        labels = flavor.node_labels
        site_names = [labels[label] for label in _LABELS if label in labels][:1]
        if not site_names and labels:
            there = [node for node in self.nodes if labels.items() <= node.labels.items()]
            site_names = [kind for node in there for kind, number in node.gpus if kind and number]
        kinds = [site_gpu(name, named) for name in dict.fromkeys(site_names)]
        if not kinds and (kind := site_gpu(flavor.name, named)) in GPU_TYPES:
            kinds = [kind]
        return tuple(dict.fromkeys(kinds))


def is_kueue(source: Source) -> bool:
    """Return True if the source contains objects of Kueue's configuration."""
    head = "\n".join(source.head(1 << 12))
    return _GROUP in head and any(
        f"{kind}" in head for kind in ("ClusterQueue", "Cohort", "LocalQueue", "Flavor", "Topology")
    )


def read_kueue_site(files: Sequence[Path], zone: ZoneInfo | None = None) -> KueueSite:
    """Read the files of a site, ignoring files of other kinds.

    Raises:
        TraceError: A file cannot be read, or holds queues of Volcano or KAI.
    """
    site = KueueSite()
    for file in files:
        source = Source(file)
        _refuse_other_queues(source)
        if is_kube(source):
            site.nodes += read_nodes(source)
            site.node_manifests += [node for _, node in elements(source, "items")]
            site.read.append((file.name, "kubectl get nodes"))
        elif is_kueue(source):
            kinds: Counter[str] = Counter()
            for element in _objects(source):
                if (settings := text_in(element, "data", "controller_manager_config.yaml")) and len(settings) < 1 << 16:
                    element = object_in(_yaml(source, settings)[0])
                kind, name = text_in(element, "kind"), text_in(element, "metadata", "name")
                group = text_in(element, "apiVersion").partition("/")[0]
                if group not in (_GROUP, f"config.{_GROUP}") or not (name or kind == "Configuration"):
                    continue
                kinds[kind] += 1
                site.objects.setdefault(kind, {})[full_name(element)] = element
            site.read.append((file.name, ", ".join(f"{count} {kind}" for kind, count in kinds.items())))
    return site


def _refuse_other_queues(source: Source) -> None:
    """Refuse a file with queues of another system. Without them, their quotas would be ignored in silence.

    Raises:
        TraceError: It holds such queues.
    """
    head = "\n".join(source.head(1 << 12))
    if not any(group in head for group in _OTHER_QUEUES):
        return
    names: dict[str, list[str]] = {}
    for element in _objects(source):
        group = text_in(element, "apiVersion").partition("/")[0]
        if group in _OTHER_QUEUES and text_in(element, "kind") == "Queue":
            names.setdefault(group, []).append(text_in(element, "metadata", "name"))
    for group, queues in names.items():
        raise TraceError(
            f"{source}: it contains {len(queues)} queues of {_OTHER_QUEUES[group]} ({group}), such as "
            f"{queues[0]!r}, but dagsim only models queues of Kueue. Leave out the file to import the "
            "nodes, and enter the quotas under queues.tree"
        )


def _objects(source: Source) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in JSON or YAML, from lists and from separate documents.

    Raises:
        TraceError: The text is neither JSON nor YAML.
    """
    if source.head(1)[0].lstrip().startswith(("{", "[")):
        for _, element in elements(source, "items"):
            yield element
        return
    documents = _yaml(source, "\n".join(line for _, line in source.lines()))
    for document in documents:
        for element in list_in(document, "items") if "items" in object_in(document) else [document]:
            yield object_in(element)


def _yaml(source: Source, text: str) -> list[Any]:
    """Parse the documents of a YAML text.

    Raises:
        TraceError: The text is not YAML, is too long, or has aliases.
    """
    if len(text) > _MOST_CHARACTERS:
        raise TraceError(f"{source}: YAML files may have at most {_MOST_CHARACTERS:,} characters")
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.CSafeLoader)):
            raise TraceError(f"{source}: it contains YAML aliases, which kubectl does not write")
        return list(yaml.load_all(text, yaml.CSafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        raise TraceError(f"{source}{line}: invalid YAML ({getattr(error, 'problem', None) or error})") from None
