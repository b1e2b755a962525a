"""The configuration of a Kueue site, from the output of ``kubectl get ... -o yaml`` or ``-o json``.

This module reads ClusterQueues, Cohorts, LocalQueues, ResourceFlavors, Topologies and Workloads
(``kueue.x-k8s.io``, v1alpha1 to v1beta2), the Configuration of Kueue's manager (also from its
ConfigMap ``kueue-manager-config``), and the nodes from ``kubectl get nodes -o json``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import yaml

from dagsim.errors import TraceError
from dagsim.families.kubernetes.api.cluster_objects import object_kind
from dagsim.families.kubernetes.api.pods import TYPE_LABELS, PodRecord, level_name
from dagsim.families.kubernetes.api.terms import WHOLE_GPUS
from dagsim.families.kubernetes.kube.kube_nodes import YAML_LOADER, is_kube, kube_notes
from dagsim.families.kubernetes.kueue.kueue_objects import KueueObjects, ResourceFlavor, Workload
from dagsim.families.kubernetes.kueue.manifests import KINDS, full_name, kueue_objects, kueue_workload_object
from dagsim.families.kubernetes.kueue.workload_records import kueue_workload
from dagsim.families.site.node_lists import FoundNode, ImportedSite, read_nodes
from dagsim.model import GPU_TYPES, QueueTree
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.text import count_of
from dagsim.traces.documents import elements, list_in, object_in, text_in
from dagsim.traces.fields import Dirty
from dagsim.traces.sites import site_gpu
from dagsim.traces.source import Source

_GROUP = "kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1", "v1alpha1")
_OTHER_QUEUES = {"scheduling.volcano.sh": "Volcano", "scheduling.run.ai": "KAI"}
"""Groups of queues that are not modelled."""
_MOST_CHARACTERS = 20_000_000
_HALF = 512
"""Half of the maximum number of GPUs that a node can have."""
_OF_KUEUE = re.compile(
    rb'config\.kueue\.x-k8s\.io|kind"?\s*:\s*"?(?:ClusterQueue|Cohort|LocalQueue|ResourceFlavor|Topology|Workload)\b'
)
_OF_OTHERS = re.compile("|".join(map(re.escape, _OTHER_QUEUES)).encode())
READ_KEYS = {
    "ClusterQueue": ("cohort", "cohortName", "queueingStrategy", "preemption", "resourceGroups", "namespaceSelector",
                     "stopPolicy", "fairSharing", "flavorFungibility", "admissionScope"),
    "Cohort": ("parentName", "parent", "resourceGroups", "fairSharing"),
    "LocalQueue": ("clusterQueue", "stopPolicy", "fairSharing"),
    "Workload": ("podSets", "queueName", "priority", "priorityClassName", "priorityClassSource", "priorityClassRef",
                 "active", "maximumExecutionTimeSeconds"),
    "topologyRequest": ("required", "preferred", "unconstrained", "podSetSliceRequiredTopology", "podSetSliceSize",
                        "podSetGroupName", "podIndexLabel", "subGroupIndexLabel", "subGroupCount"),
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
        return bool(self.objects.keys() - {"Workload", "WorkloadPriorityClass"})

    def kueue_objects(self) -> KueueObjects:
        """Return the objects that the administrator configured.

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
        """Return True, because the pods of an evicted workload restart from the beginning."""
        return True

    def found_nodes(self) -> list[FoundNode]:
        """Return all nodes. If no file lists any, return assumed nodes on which everything fits.

        Raises:
            TraceError: A quantity cannot be read.
        """
        return self.nodes or list(self._assumed_nodes())

    def _assumed_nodes(self) -> Iterator[FoundNode]:
        """Yield nodes of each GPU type that are large enough for all workloads and all quotas."""
        objects = self.kueue_objects()
        flavors = [*objects.resource_flavors, *map(ResourceFlavor, _lacking(objects))]
        records: list[PodRecord] = []
        for manifest in self.objects.get("Workload", {}).values():
            with suppress(Dirty):  # the reader of workloads reports these errors
                records += kueue_workload(manifest)
        gpus = whole_sum(record.count * (record.demand.gpus + 1) for record in records if record.demand.on_gpu)
        cpus = ordered_sum(record.count * record.demand.cpus for record in records)
        memory_gb = ordered_sum(record.count * record.demand.memory_gb for record in records)
        of_queues = [group for one in objects.cluster_queues for group in one.resource_groups]
        for group in [*of_queues, *[group for one in objects.cohorts for group in one.resource_groups]]:
            for flavor in group.flavors:
                for resource, quota in flavor.resources.items():
                    gpus += ceil(quota.nominal) if resource in WHOLE_GPUS else 0
                    cpus += quota.nominal if resource == "cpu" else 0
                    memory_gb += quota.nominal / 2**30 if resource == "memory" else 0
        self.drop("nodes: no file lists them, so that only quotas limit workloads; add kubectl get nodes -o json")
        wanted = [name for record in records for name in record.wanted]
        kinds = dict.fromkeys([kind for one in flavors for kind in self._types_of(one, {})] + wanted)
        # Assume enough nodes that at most half of their GPUs are in use. Even the largest pod then
        # fits on some node.
        each, count = min(max(gpus, 1), 2 * _HALF), 1 + gpus // _HALF
        for kind in kinds or {"": None}:  # assume nodes of every type, so that every flavor has nodes
            for number in range(count):
                yield FoundNode(
                    f"assumed{f'-{kind.lower()}' if kind else ''}-{number}",
                    ((kind, each),) if kind or gpus else (),
                    min(cpus + 1.0, 1e6),
                    min(memory_gb + 1.0, 1e7),
                    "assumed",
                    usable=True,
                )

    def network(self, names: Sequence[str]) -> dict[str, Any] | None:
        """Return the topology that the flavors name (or the first one) as a tree of switches, with
        one switch for each value of its labels. Return None if there is no topology. If a node
        lacks a label, it gets a separate switch at this level."""
        named, there, used = self._topologies()
        for name in [*dict.fromkeys(filter(None, named)), *there]:
            if name not in used[:1]:
                known = "another one is the network" if used else "it needs nodes"
                self.drop(f"Topology {name}: {known if name in there else 'in no file'}")
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
            # a node with several GPU types becomes several nodes in the model, called ``name:type``
            values = by_name[name.partition(":")[0]].labels
            path = tuple([values.get(label) or f"({name})" for label in labels])
            lacking += not all(values.get(label) for label in labels)
            for depth in range(len(path)):
                switches.setdefault(path[: depth + 1], ([], {}))
                switches[path[:depth]][1]["/".join(path[: depth + 1])] = None
            switches[path][0].append(name)
        if lacking:
            self.drop(
                f"Topology {used[0]}: {count_of(lacking, 'node lacks', 'nodes lack')} a label for one of its "
                "levels; each is alone at that level"
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
        """Return the topologies that flavors name, all topologies that exist, and the topologies
        that could serve as the network. The first of these is used.
        """
        named = [text_in(flavor, "spec", "topologyName") for flavor in self.objects.get("ResourceFlavor", {}).values()]
        there = self.objects.get("Topology", {})
        usable = [name for name in dict.fromkeys(named) if name in there] or list(there)
        return named, there, usable if self.nodes else []

    def queues(self, named: Mapping[str, str] | None = None) -> QueueTree:
        """Return Kueue's objects, including the GPU types of each flavor. ``named`` maps the site's
        names of GPU types to the names that dagsim uses.

        Raises:
            TraceError: A quantity or keyword cannot be read, or cohorts form a cycle.
        """
        objects = self.kueue_objects()
        for kind in sorted(self.objects.keys() - {*KINDS, "Workload", "WorkloadPriorityClass"}):
            self.drop(f"{kind}: {', '.join(list(self.objects[kind])[:5])}")
        self._count_workloads()
        queues = self.objects.get("ClusterQueue", {})
        if not queues:
            kinds = ", ".join(f"{len(self.objects[kind])} {kind}" for kind in sorted(self.objects))
            raise TraceError(f"no file contains a ClusterQueue, only {kinds}; add kubectl get clusterqueues -o json")
        for kind, names in (("ClusterQueue", queues), ("LocalQueue", self.objects.get("LocalQueue", {}))):
            for name, manifest in names.items():
                own = {name} if kind == "LocalQueue" else self._local_queues_of({name})
                self._unmodelled_of(f"{kind} {name}", object_in(manifest, "spec"), READ_KEYS[kind], own)
                if kind == "ClusterQueue" and object_in(manifest, "spec", "namespaceSelector"):
                    self.drop(f"{kind} {name}: namespaceSelector, as if it selected all{self._affected(own)}")
        for name, manifest in self.objects.get("Cohort", {}).items():
            members = {one.name for one in objects.cluster_queues if one.cohort == name}
            own = self._local_queues_of(members)
            self._unmodelled_of(f"Cohort {name}", object_in(manifest, "spec"), READ_KEYS["Cohort"], own)
        for name, manifest in self.objects.get("LocalQueue", {}).items():
            if (target := text_in(manifest, "spec", "clusterQueue")) not in queues:
                self.drop(f"LocalQueue {name}: its ClusterQueue {target!r} is in no file{self._affected({name})}")
        lacking = _lacking(objects)
        for name in lacking:
            is_gpu = self._types_of(ResourceFlavor(name), named or {})
            taken = "its name is used as the GPU type" if is_gpu else "it is taken as one without labels and taints"
            self.drop(f"ResourceFlavor {name}: it is in no file; {taken}")
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

    def _unmodelled_of(
        self, owner: str, spec: Mapping[str, Any], known: Sequence[str], local_queues: Collection[str]
    ) -> None:
        for key, value in spec.items():
            if value and key not in known:
                self.drop(f"{owner}: {key}{self._affected(local_queues)}")

    def _local_queues_of(self, cluster_queues: Collection[str]) -> set[str]:
        queues = self.objects.get("LocalQueue", {}).items()
        return {name for name, manifest in queues if text_in(manifest, "spec", "clusterQueue") in cluster_queues}

    def _unfinished(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the workloads that have not finished, each with its LocalQueue."""
        for manifest in self.objects.get("Workload", {}).values():
            conditions = [text_in(one, "type") for one in list_in(manifest, "status", "conditions")
                          if text_in(one, "status") == "True"]  # fmt: skip
            if "Finished" not in conditions:
                namespace, queue = text_in(manifest, "metadata", "namespace"), text_in(manifest, "spec", "queueName")
                yield f"{namespace}/{queue}" if namespace else queue, manifest

    def _affected(self, local_queues: Collection[str]) -> str:
        """Describe how many workloads are in these LocalQueues. The result is empty if no file
        has workloads.
        """
        queues = [queue for queue, _ in self._unfinished()]
        number = sum(queue in local_queues for queue in queues)
        return f" ({number:,} of {len(queues):,} workloads)" if queues else ""

    def _count_workloads(self) -> None:
        """Record the properties of workloads that are not modelled, and how many workloads have
        each of them."""
        counts: Counter[str] = Counter()
        total = 0
        for queue, manifest in self._unfinished():
            total += 1
            pod_sets = list_in(manifest, "spec", "podSets")
            requests = [object_in(one, "topologyRequest") for one in pod_sets]
            own = [
                key for key, value in object_in(manifest, "spec").items() if value and key not in READ_KEYS["Workload"]
            ]
            own += [
                f"topologyRequest.{key}"
                for one in requests
                for key, value in one.items()
                if value and key not in READ_KEYS["topologyRequest"]
            ]
            if queue not in self.objects.get("LocalQueue", {}):
                same = queue.rpartition("/")[2] in self.objects.get("ClusterQueue", {})
                so = "is taken to mean the ClusterQueue of that name" if same else "so that they are never admitted"
                own.append(f"LocalQueue {queue}, which is in no file{' and ' if same else ', '}{so}")
            if list_in(manifest, "status", "admissionChecks"):
                own.append("admissionChecks, which take the policy's checks_s")
            if any(object_in(one).get("minCount") is not None for one in pod_sets):
                own.append("minCount: fewer pods hold less quota, and take no longer")
            if object_in(manifest, "metadata", "annotations").get("kueue.x-k8s.io/elastic-job"):
                own.append("annotation kueue.x-k8s.io/elastic-job")
            counts.update(list(dict.fromkeys(own)))
        for what, number in counts.items():
            self.drop(f"Workload: {what} ({number:,} of {total:,} workloads)")

    def _types_of(self, flavor: ResourceFlavor, named: Mapping[str, str]) -> tuple[str, ...]:
        """Return the GPU types of a flavor's nodes. They follow from the labels of the flavor, from
        the nodes with these labels, or from the flavor's name. The result is empty if nothing
        suggests GPUs.
        """
        labels = flavor.node_labels
        site_names = [labels[label] for label in _LABELS if label in labels][:1]
        if not site_names and labels:
            there = [node for node in self.nodes if labels.items() <= node.labels.items()]
            site_names = [kind for node in there for kind, number in node.gpus if kind and number]
        kinds = [site_gpu(name, named) for name in dict.fromkeys(site_names)]
        if not kinds and (kind := site_gpu(flavor.name, named)) in GPU_TYPES:
            kinds = [kind]
        return tuple(dict.fromkeys(kinds))


def _lacking(objects: KueueObjects) -> list[str]:
    """Return the flavors that ClusterQueues name, but that no file contains."""
    labelled = {flavor.name for flavor in objects.resource_flavors}
    groups = [group for queue in objects.cluster_queues for group in queue.resource_groups]
    named = dict.fromkeys([flavor.name for group in groups for flavor in group.flavors])
    return [name for name in named if name not in labelled]


def is_kueue(source: Source) -> bool:
    """Return True if the source contains objects of a Kueue configuration."""
    head = "\n".join(source.head(1 << 12))
    return "apiVersion" in head and source.mentions(_OF_KUEUE)


def read_kueue_site(files: Sequence[Path], zone: ZoneInfo | None = None) -> KueueSite:
    """Read the files of a site. Files of other kinds are ignored.

    Raises:
        TraceError: A file cannot be read, or it contains queues of Volcano or KAI.
    """
    site = KueueSite()
    for file in files:
        source = Source(file)
        _refuse_other_queues(source)
        if is_kube(source):
            site.nodes += read_nodes(source)
            for note in kube_notes(source):
                site.drop(note)
            site.node_manifests += [node for node in manifests_in(source) if object_kind(node) == "Node"]
            site.read.append((file.name, "kubectl get nodes"))
        if is_kueue(source):
            kinds: Counter[str] = Counter()
            for element in manifests_in(source):
                if (settings := text_in(element, "data", "controller_manager_config.yaml")) and len(settings) < 1 << 16:
                    element = object_in(_yaml(source, settings)[0])
                kind, name = text_in(element, "kind"), text_in(element, "metadata", "name")
                group = text_in(element, "apiVersion").partition("/")[0]
                if group not in (_GROUP, f"config.{_GROUP}") or not (name or kind == "Configuration"):
                    continue
                if (version := text_in(element, "apiVersion").partition("/")[2]) not in VERSIONS:
                    site.drop(f"apiVersion {version!r:.40}: unknown, and read as {VERSIONS[0]}")
                kinds[kind] += 1
                others = site.objects.setdefault(kind, {})
                _refuse_another(source, others.get(full_name(element)), element)
                others[full_name(element)] = element
            site.read.append((file.name, ", ".join(f"{count} {kind}" for kind, count in kinds.items())))
    return site


def _refuse_another(source: Source, before: Mapping[str, Any] | None, element: Mapping[str, Any]) -> None:
    """Reject a second object with the same name, unless it is the same object at another time.

    Raises:
        TraceError: The objects differ.
    """
    if before is None:
        return
    uids = [text_in(one, "metadata", "uid") for one in (before, element)]
    if uids[0] == uids[1] if all(uids) else object_in(before, "spec") == object_in(element, "spec"):
        return
    raise TraceError(
        f"{source}: {text_in(element, 'kind')} {full_name(element)!r} is listed twice, as different objects; give "
        "the objects of one cluster only"
    )


def _refuse_other_queues(source: Source) -> None:
    """Reject a file that contains queues of another system. Otherwise, their quotas would be
    ignored without any message.

    Raises:
        TraceError: The file contains such queues.
    """
    if "apiVersion" not in "\n".join(source.head(1 << 12)) or not source.mentions(_OF_OTHERS):
        return
    names: dict[str, list[str]] = {}
    for element in manifests_in(source):
        group = text_in(element, "apiVersion").partition("/")[0]
        if group in _OTHER_QUEUES and text_in(element, "kind") == "Queue":
            names.setdefault(group, []).append(text_in(element, "metadata", "name"))
    for group, queues in names.items():
        raise TraceError(
            f"{source}: it contains {len(queues)} queues of {_OTHER_QUEUES[group]} ({group}), such as "
            f"{queues[0]!r}, but dagsim only models Kueue's queues. Leave out the file to import the "
            "nodes, and enter the quotas under queues.tree"
        )


def manifests_in(source: Source) -> Iterator[Mapping[str, Any]]:
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
    """Parse the documents in a YAML text.

    Raises:
        TraceError: The text is not YAML, is too long, or has aliases.
    """
    if len(text) > _MOST_CHARACTERS:
        raise TraceError(f"{source}: YAML files may have at most {_MOST_CHARACTERS:,} characters")
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, YAML_LOADER)):
            raise TraceError(f"{source}: it contains YAML aliases, which kubectl does not write")
        return list(yaml.load_all(text, YAML_LOADER))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        raise TraceError(f"{source}{line}: invalid YAML ({getattr(error, 'problem', None) or error})") from None
