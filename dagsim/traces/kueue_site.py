"""The configuration of a Kueue site, from ``kubectl get ... -o yaml`` or ``-o json``.

Read are ClusterQueues, Cohorts, LocalQueues, ResourceFlavors and Topologies (``kueue.x-k8s.io``, v1alpha1
to v1beta2), with the nodes from ``kubectl get nodes -o json``. WorkloadPriorityClasses need no reading:
the workloads of a log state their priorities.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from dagsim.errors import ModelError, TraceError
from dagsim.model import GPU_TYPES, QueueNode, QueueTree
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.kueue import KueueObjects, Workload
from dagsim.traces.documents import elements, list_in, object_in, text_in
from dagsim.traces.fields import Dirty
from dagsim.traces.kube import TYPE_LABELS, level_name
from dagsim.traces.kube_objects import WHOLE_GPUS, quantity
from dagsim.traces.kueue_objects import KINDS, full_name, kueue_objects, kueue_workload_object
from dagsim.traces.nodes import FoundNode, ImportedSite, is_kube, read_nodes
from dagsim.traces.sites import site_gpu
from dagsim.traces.source import Source

_GROUP = "kueue.x-k8s.io"
_MOST_CHARACTERS = 20_000_000
_RECLAIM = {"": "never", "Never": "never", "LowerPriority": "lower-priority", "Any": "any"}
_WITHIN = {"": "never", "Never": "never", "LowerPriority": "lower-priority",
           "LowerOrNewerEqualPriority": "lower-or-newer-equal-priority"}  # fmt: skip
_ORDERS = {"": "best-effort", "BestEffortFIFO": "best-effort", "StrictFIFO": "strict"}
_READ_OF_QUEUES = ("cohort", "cohortName", "queueingStrategy", "preemption", "resourceGroups", "namespaceSelector",
                   "stopPolicy")  # fmt: skip
_LABELS = (*TYPE_LABELS, "amd.com/gpu.product-name", "amd.com/gpu.family")
_USED = ("ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "WorkloadPriorityClass", "Workload", "Topology")


@dataclass(slots=True)
class KueueSite(ImportedSite):
    """The contents of a site's files."""

    policy = "kueue"
    objects: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)
    """By kind and name; names of LocalQueues have their namespace, ``team/queue``."""
    nodes: list[FoundNode] = field(default_factory=list)

    node_manifests: list[Mapping[str, Any]] = field(default_factory=list)

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

    def found_nodes(self) -> list[FoundNode]:
        """All nodes.

        Raises:
            TraceError: No file lists nodes.
        """
        if not self.nodes:
            raise TraceError("no file lists nodes: add the output of `kubectl get nodes -o json`")
        return self.nodes

    def network(self, names: Sequence[str]) -> dict[str, Any] | None:
        """The topology that the flavors name (else the first) as a tree of switches, one for each value of
        its labels; None without one. A node that lacks a label is alone below a switch of that level.
        """
        named = [text_in(flavor, "spec", "topologyName") for flavor in self.objects.get("ResourceFlavor", {}).values()]
        there = self.objects.get("Topology", {})
        used = [name for name in dict.fromkeys(named) if name in there] or list(there)
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
            values = by_name[name.partition(":")[0]].labels  # a node of several GPU types is several here
            path = tuple([values.get(label) or f"({name})" for label in labels])
            lacking += not all(values.get(label) for label in labels)
            for depth in range(len(path)):
                switches.setdefault(path[: depth + 1], ([], {}))
                switches[path[:depth]][1]["/".join(path[: depth + 1])] = None
            switches[path][0].append(name)
        if lacking:
            self.drop(f"Topology {used[0]}: {lacking:,} nodes lack a label of its levels; each is alone there")
        self.drop(f"Topology {used[0]}: bandwidths of the network are defaults")
        tree = [
            {"name": "/".join(path) or used[0]}
            | ({"nodes": nodes} if nodes else {})
            | ({"switches": list(below)} if below else {})
            for path, (nodes, below) in switches.items()
        ]
        levels = [level_name(label) for label in reversed(labels)]
        return {"kind": "shared", "topology": {"kind": "tree", "switches": tree, "levels_up": levels}}

    def queues(self, named: Mapping[str, str] | None = None) -> QueueTree:
        """Cohorts and cluster queues with their quotas; ``named`` maps the site's names of GPU types
        to those to use.

        Raises:
            TraceError: A quantity or word cannot be read, or cohorts form a circle.
        """
        queues, cohorts = self.objects.get("ClusterQueue", {}), self.objects.get("Cohort", {})
        for kind in self.objects.keys() - set(_USED):
            self.drop(f"{kind}: {', '.join(list(self.objects[kind])[:5])}")
        for name, flavor in self.objects.get("ResourceFlavor", {}).items():
            for key in ("nodeTaints", "tolerations"):
                if object_in(flavor, "spec").get(key):
                    self.drop(f"ResourceFlavor {name}: {key}")
        above = {name: _cohort_of(queue) for name, queue in queues.items()}
        parents = {name: text_in(cohort, "spec", "parentName") or text_in(cohort, "spec", "parent")
                   for name, cohort in cohorts.items()}  # fmt: skip
        for name in [*above.values(), *parents.values()]:
            parents.setdefault(name, "")
        parents.pop("", None)
        for name in parents:
            line = [name]
            while parents[line[-1]]:
                line.append(parents[line[-1]])
                if line[-1] in line[:-1]:
                    raise TraceError(f"Cohort {name!r}: it is above itself ({' > '.join(line)})")
        aliases = self._aliases()

        def leaf(name: str) -> QueueNode:
            spec = object_in(queues[name], "spec")
            self._unmodelled_of(name, spec)
            quota, borrow, lend = self._quotas(f"ClusterQueue {name}", spec, named or {})
            preemption = object_in(spec, "preemption")
            return QueueNode(
                name,
                quota=quota,
                borrow=borrow,
                lend=lend,
                order=_word(_ORDERS, name, "queueingStrategy", text_in(spec, "queueingStrategy")),
                reclaim=_word(_RECLAIM, name, "reclaimWithinCohort", text_in(preemption, "reclaimWithinCohort")),
                within=_word(_WITHIN, name, "withinClusterQueue", text_in(preemption, "withinClusterQueue")),
                aliases=tuple(aliases.get(name, ())),
            )

        def cohort(name: str) -> QueueNode | None:
            children = [one for other, parent in parents.items() if parent == name and (one := cohort(other))]
            children += [leaf(queue) for queue, parent in above.items() if parent == name]
            if not children:
                return None
            spec = object_in(cohorts.get(name), "spec")
            for key, value in spec.items():
                if value and key not in ("parentName", "parent", "resourceGroups"):
                    self.drop(f"Cohort {name}: {key}")
            quota, borrow, lend = self._quotas(f"Cohort {name}", spec, named or {})
            label = f"{name} (cohort)" if name in queues else name
            return QueueNode(label, quota=quota, borrow=borrow, lend=lend, children=tuple(children))

        try:
            tops = [one for name, parent in parents.items() if not parent and (one := cohort(name))]
            return QueueTree((*tops, *[leaf(name) for name, parent in above.items() if not parent]))
        except ModelError as error:
            raise TraceError(f"Kueue: {error}") from None

    def _aliases(self) -> dict[str, list[str]]:
        """The LocalQueues of each cluster queue, as ``namespace/name``, and by name alone where only
        one namespace has such a queue.
        """
        queues = self.objects.get("LocalQueue", {})
        counts = Counter(name.partition("/")[2] for name in queues)
        aliases: dict[str, list[str]] = {}
        for name, queue in queues.items():
            for key, value in object_in(queue, "spec").items():
                if value and key != "clusterQueue" and value != "None":
                    self.drop(f"LocalQueue {name}: {key}")
            target, short = text_in(queue, "spec", "clusterQueue"), name.partition("/")[2]
            if target not in self.objects.get("ClusterQueue", {}):
                self.drop(f"LocalQueue {name}: its ClusterQueue {target!r} is in no file")
                continue
            names = aliases.setdefault(target, [])
            names += [name, *([short] if counts[short] == 1 and short not in self.objects["ClusterQueue"] else [])]
        return aliases

    def _unmodelled_of(self, name: str, spec: Mapping[str, Any]) -> None:
        if text_in(spec, "preemption", "borrowWithinCohort", "policy") not in ("", "Never"):
            self.drop(f"ClusterQueue {name}: borrowWithinCohort")
        if text_in(spec, "stopPolicy") not in ("", "None"):
            self.drop(f"ClusterQueue {name}: stopPolicy {text_in(spec, 'stopPolicy')}")
        for key, value in spec.items():
            if value and key not in _READ_OF_QUEUES:
                self.drop(f"ClusterQueue {name}: {key}")
        flavors = self.objects.get("ResourceFlavor", {})
        for group in list_in(spec, "resourceGroups"):
            for flavor in list_in(group, "flavors"):
                if (label := text_in(flavor, "name")) not in flavors:
                    self.drop(
                        f"ClusterQueue {name}: its ResourceFlavor {label!r} is in no file; its name counts as type"
                    )

    def _quotas(
        self, owner: str, spec: Mapping[str, Any], named: Mapping[str, str]
    ) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
        """Nominal quota, borrowing limits and lending limits, summed over the flavors of one type. A
        limit holds only if each of these flavors has one.
        """
        parts: dict[str, list[tuple[float, float | None, float | None]]] = {}
        for group in list_in(spec, "resourceGroups"):
            for flavor in list_in(group, "flavors"):
                for resource in list_in(flavor, "resources"):
                    key = self._key(owner, text_in(resource, "name"), text_in(flavor, "name"), named)
                    if key:
                        parts.setdefault(key, []).append(_amounts(owner, key, resource))
        quota = {key: ordered_sum(nominal for nominal, _, _ in rows) for key, rows in parts.items()}
        limits: list[dict[str, float]] = [{}, {}]
        for key, rows in parts.items():
            for place, limit in enumerate(limits, 1):
                stated = [amount for row in rows if isinstance(amount := row[place], float)]
                if len(stated) == len(rows):
                    limit[key] = ordered_sum(stated)
        return quota, limits[0], limits[1]

    def _key(self, owner: str, resource: str, flavor: str, named: Mapping[str, str]) -> str:
        """The name of a quota: ``cpus``, ``memory_gb``, a GPU type, or ``gpus``; empty if it is not
        modelled.
        """
        if resource in ("cpu", "memory"):
            return "cpus" if resource == "cpu" else "memory_gb"
        if resource not in WHOLE_GPUS:
            self.drop(f"{owner}: quota of {resource}")
            return ""
        labels = object_in(self.objects.get("ResourceFlavor", {}).get(flavor), "spec", "nodeLabels")
        site_name = next((text_in(labels, label) for label in _LABELS if text_in(labels, label)), flavor)
        kind = site_gpu(site_name, named)
        return kind if kind in GPU_TYPES or site_name != flavor else "gpus"


def is_kueue(source: Source) -> bool:
    """True if the source holds objects of Kueue's configuration."""
    head = "\n".join(source.head(1 << 12))
    return _GROUP in head and any(
        f"{kind}" in head for kind in ("ClusterQueue", "Cohort", "LocalQueue", "Flavor", "Topology")
    )


def read_kueue_site(files: Sequence[Path]) -> KueueSite:
    """Read the files of a site; files of other kinds are passed over.

    Raises:
        TraceError: A file cannot be read.
    """
    site = KueueSite()
    for file in files:
        source = Source(file)
        if is_kube(source):
            site.nodes += read_nodes(source)
            site.node_manifests += [node for _, node in elements(source, "items")]
            site.read.append(f"{file.name}: kubectl get nodes")
        elif is_kueue(source):
            kinds: Counter[str] = Counter()
            for element in _objects(source):
                kind, name = text_in(element, "kind"), text_in(element, "metadata", "name")
                group = text_in(element, "apiVersion").partition("/")[0]
                if group not in (_GROUP, f"config.{_GROUP}") or not (name or kind == "Configuration"):
                    continue
                kinds[kind] += 1
                site.objects.setdefault(kind, {})[full_name(element)] = element
            site.read.append(f"{file.name}: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}")
    return site


def _objects(source: Source) -> Iterator[Mapping[str, Any]]:
    """The objects of JSON or YAML, from lists and from separate documents.

    Raises:
        TraceError: The text is neither.
    """
    if source.head(1)[0].lstrip().startswith(("{", "[")):
        for _, element in elements(source, "items"):
            yield element
        return
    text = "\n".join(line for _, line in source.lines())
    if len(text) > _MOST_CHARACTERS:
        raise TraceError(f"{source}: more than {_MOST_CHARACTERS:,} characters of YAML")
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.CSafeLoader)):
            raise TraceError(f"{source}: it has YAML aliases, which kubectl does not write")
        documents = list(yaml.load_all(text, yaml.CSafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        raise TraceError(f"{source}{line}: not YAML ({getattr(error, 'problem', None) or error})") from None
    for document in documents:
        for element in list_in(document, "items") if "items" in object_in(document) else [document]:
            yield object_in(element)


def _cohort_of(queue: Mapping[str, Any]) -> str:
    """The cohort of a ClusterQueue: ``cohortName``, and ``cohort`` before v1beta2."""
    return text_in(queue, "spec", "cohortName") or text_in(queue, "spec", "cohort")


def _amounts(owner: str, key: str, resource: Any) -> tuple[float, float | None, float | None]:
    """Nominal quota, borrowing limit and lending limit."""
    unit = 2**30 if key == "memory_gb" else 1
    values: list[float | None] = []
    for name in ("nominalQuota", "borrowingLimit", "lendingLimit"):
        value = object_in(resource).get(name)
        try:
            values.append(None if value is None else float(quantity(value) / unit))
        except Dirty:
            raise TraceError(f"{owner}: {name} of {key} is not a quantity: {value!r}") from None
    return values[0] or 0.0, values[1], values[2]


def _word(words: Mapping[str, str], queue: str, field: str, word: str) -> Any:
    if word not in words:
        raise TraceError(f"ClusterQueue {queue}: {field} is {word!r}; known: {', '.join(filter(None, words))}")
    return words[word]
