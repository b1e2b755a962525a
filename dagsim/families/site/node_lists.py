"""Nodes of real clusters. This module defines what is known about a node, reads lists of nodes, and
groups equal nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, NamedTuple

from dagsim.errors import ModelError, TraceError
from dagsim.family import family_entries
from dagsim.model import OnDemand, QueueTree
from dagsim.model.arithmetic import whole_sum
from dagsim.model.gpu import GPU_TYPES, GpuType, gpu_type
from dagsim.model.mig import mig_slice
from dagsim.own_code import attribute
from dagsim.traces.sites import folded, hosts, site_gpu
from dagsim.traces.source import Source

MOST_NODES = 1 << 17
"""Maximum number of nodes; a larger number is treated as damage."""


@dataclass(frozen=True, slots=True)
class FoundNode:
    """A node: its GPUs, by the names that the site uses, and whether jobs may run on it."""

    name: str
    gpus: tuple[tuple[str, int], ...]
    """Types and numbers of GPUs; the type is empty if the site states none. MIG profiles count as
    types."""
    cpus: float
    memory_gb: float
    state: str
    usable: bool
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    weight: float = 1.0
    """Slurm uses nodes with a smaller weight first."""
    labels: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Kubernetes labels."""
    manifest: str = ""
    """The parts of a Kubernetes node that kube-scheduler reads (see ``Node.manifest``)."""
    on_demand: OnDemand | None = None
    """When it is powered up and down, or None if it is always up."""

    def of_group(self, name: str, rule: OnDemand) -> FoundNode:
        """Return another node like this one, which an on-demand rule powers up and down."""
        labels = {label: text for label, text in self.labels.items() if text != self.name}
        return replace(self, name=name, labels=labels, state="off", usable=True, on_demand=rule)

    def also_in(self, partitions: tuple[str, ...]) -> FoundNode:
        """Return a copy of the node with additional partitions."""
        return replace(self, partitions=tuple(dict.fromkeys([*self.partitions, *partitions])))


@dataclass(slots=True)
class ImportedSite:
    """A site as described by the files of its scheduler."""

    policy: ClassVar[str] = ""
    """The policy that represents its scheduler."""
    read: list[tuple[str, str]] = field(default_factory=list)
    """The names of the files that were read, each with what it contains."""
    unread: list[tuple[str, str]] = field(default_factory=list)
    """The names of the files from which nothing was read, each with the reason."""
    unmodelled: dict[str, None] = field(default_factory=dict)
    """Settings that have no effect here."""
    written_s: float | None = None
    """Time at which the files were written, in seconds since 1970, or None if no file states it."""

    @property
    def has_queues(self) -> bool:
        """True if a file describes queues, so that the files belong to a site of this kind."""
        return False

    @property
    def cluster_name(self) -> str:
        """The name of the cluster. It is empty if no file states it."""
        return ""

    def drop(self, what: str) -> None:
        """Record a setting that is not modelled."""
        self.unmodelled[what] = None

    def found_nodes(self) -> list[FoundNode]:
        """Return all nodes.

        Raises:
            TraceError: No file lists nodes.
        """
        raise NotImplementedError

    def queues(self, named: Mapping[str, str] | None = None) -> QueueTree:
        """Return the queues, partitions and limits. ``named`` maps the site's names for GPU types
        to the names to use.

        Raises:
            TraceError: A value cannot be read.
        """
        raise NotImplementedError

    def restarts(self, queues: QueueTree) -> bool:
        """Return True if preempted jobs start again from the beginning."""
        return False

    def network(self, names: Sequence[str]) -> dict[str, Any] | None:
        """Return the network between the nodes ``names``, if the files describe one."""
        return None

    def facts(self, named: Mapping[str, str] | None = None) -> SiteFacts:
        """Return all that the files describe. ``named`` maps the site's names for GPU types to the
        names to use.

        Raises:
            TraceError: No file lists nodes, or a value cannot be read.
        """
        nodes = grouped(self.found_nodes(), named, keep_all=True, in_order=True)
        queues, network = self.queues(named), self.network(nodes.node_names())
        restarts = self.restarts(queues)
        return SiteFacts(nodes, queues, network, restarts, tuple(self.unmodelled))


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_PROFILE = re.compile(r"(.*?)[_.:-]?(\d)g\.(\d{1,3})gb", re.IGNORECASE)
_UNTYPED = "gpu"
_GB = re.compile(r"(?<!\d)(\d{2,3})\s?gi?b?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HostGroup:
    """A group of equal nodes."""

    name: str
    hosts: str
    count: int
    gpu: str | None
    gpus: int
    cpus: float
    memory_gb: float
    features: tuple[str, ...] = ()
    weight: float = 1.0
    manifest: str = ""
    on_demand: OnDemand | None = None


@dataclass(slots=True)
class ImportedCluster:
    """The result of importing nodes."""

    groups: list[HostGroup] = field(default_factory=list)
    gpu_types: dict[str, GpuType] = field(default_factory=dict)
    """GPU types that are not in the catalogue: MIG slots, and types whose data the user has to fill
    in."""
    unknown: list[str] = field(default_factory=list)
    """Names of unknown GPU types, whose data are placeholders."""
    left_out: list[str] = field(default_factory=list)
    """Nodes on which jobs cannot run, with their states."""
    notes: list[str] = field(default_factory=list)
    accept: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """For GPU types to which a name refers by default, the type to which it refers at this site. In
    a log, for example, ``a100`` alone requests the smaller type by default.
    """

    def node_names(self) -> list[str]:
        """Return the names of all nodes, in the order of the groups."""
        return [name for group in self.groups for name in hosts(group.hosts)]


class _Part(NamedTuple):
    """A node with one GPU type, or the part of a node with that type."""

    gpu: str | None
    gpus: int
    cpus: float
    memory_gb: float
    features: tuple[str, ...] = ()
    weight: float = 1.0
    manifest: str = ""
    on_demand: OnDemand | None = None


class SiteFacts(NamedTuple):
    """The nodes, queues and network of a site, as its files describe them."""

    nodes: ImportedCluster
    queues: QueueTree
    network: dict[str, Any] | None
    restarts: bool
    """True if preempted jobs start again from the beginning."""
    unmodelled: tuple[str, ...]
    """Settings that have no effect here."""


def grouped(
    nodes: Iterable[FoundNode],
    named: Mapping[str, str] | None = None,
    *,
    keep_all: bool = False,
    in_order: bool = False,
) -> ImportedCluster:
    """Group equal usable nodes, in order of first appearance. If ``keep_all`` is True, include
    nodes on which jobs cannot run. If ``in_order`` is True, a group contains only consecutive
    nodes, so that the order of the nodes is kept.

    ``named`` maps the site's names for GPU types to the names to use (``gpu`` is the name for GPUs
    without a type). A node with several GPU types becomes one node per type, called ``name:type``,
    with its share of cores and memory.

    Raises:
        TraceError: A node's name is invalid, or no node is left.
    """
    imported = ImportedCluster()
    members: dict[tuple[_Part, int], list[str]] = {}
    last: list[_Part] = []
    runs = 0
    for node in nodes:
        if not _NAME.fullmatch(node.name):
            raise TraceError(
                f"not a valid node name: {node.name[:80]!r}; use letters, digits, dots, dashes and underscores"
            )
        if not (node.usable or keep_all):
            imported.left_out.append(f"{node.name} ({node.state})")
            continue
        parts = [
            part._replace(features=node.features, weight=node.weight, manifest=node.manifest, on_demand=node.on_demand)
            for part in _parts(node, named or {}, imported)
        ]
        runs += in_order and bool(last) and parts != last
        last = parts
        for part in parts:
            suffix = f":{(part.gpu or 'cpu').lower()}" if len(parts) > 1 else ""
            members.setdefault((part, runs), []).append(node.name + suffix)
    if not members:
        raise TraceError(
            "no node is left for jobs to run on, because these were left out: "
            f"{', '.join(imported.left_out[:8])} (--all keeps them)"
        )
    for (part, _), names in members.items():
        label = f"{(part.gpu or 'cpu').lower()}-x{part.gpus}" if part.gpu else "cpu"
        alike = whole_sum(group.name.startswith(label) for group in imported.groups)
        imported.groups.append(HostGroup(f"{label}-{alike}" if alike else label, _hosts(names), len(names), *part))
    return imported


def _parts(node: FoundNode, named: Mapping[str, str], imported: ImportedCluster) -> list[_Part]:
    total = whole_sum(size for _, size in node.gpus)
    kinds: dict[str, int] = {}
    for name, size in node.gpus:
        kind = _kind(name, node, named, imported)
        kinds[kind] = kinds.get(kind, 0) + size
    if len(kinds) > 1:
        imported.notes.append(
            f"{node.name} has {len(kinds)} GPU types; it is modelled as one node per type, which "
            "share its cores and memory"
        )
    if not kinds:
        return [_Part(None, 0, node.cpus, node.memory_gb)]
    return [_Part(kind, size, node.cpus * size / total, node.memory_gb * size / total) for kind, size in kinds.items()]


def _kind(site_name: str, node: FoundNode, named: Mapping[str, str], imported: ImportedCluster) -> str:
    """Return the name of a GPU type in the catalogue, or in ``imported.gpu_types``."""
    profile = _PROFILE.fullmatch(site_name)
    base = profile[1] if profile else site_name
    kind = _named(base or _UNTYPED, node.features, named)
    if (plain := site_gpu(base)) != kind and plain in GPU_TYPES:
        imported.accept.setdefault(plain, {})[kind] = None
    if kind not in GPU_TYPES and kind not in imported.gpu_types:
        imported.gpu_types[kind] = GpuType(kind, 1.0, 1.0, 1.0, 1.0, 0.0)
        imported.unknown.append(kind)
    if profile is None or kind not in GPU_TYPES:
        return kind
    try:
        slot = mig_slice(gpu_type(kind), f"{profile[2]}g.{profile[3]}gb")
    except ModelError as error:
        imported.notes.append(f"{node.name}: {error}; modelled as whole GPUs")
        return kind
    imported.gpu_types[slot.name] = slot
    return slot.name


def _named(site_name: str, features: Iterable[str], named: Mapping[str, str]) -> str:
    """Resolve a GPU type by name. If the name does not state the memory size, the node's features
    may state it, such as ``a100_80gb`` for ``a100``. If the name states the size, as Slurm's own
    ``tesla_v100-pcie-32gb`` does, the features are ignored.
    """
    kind = site_gpu(site_name, named)
    if site_name.lower() in named or _states_size(kind, site_name):
        return kind
    hinted = [hint for feature in features if (hint := site_gpu(feature)) in GPU_TYPES]
    for size in [match[1] for feature in features if (match := _GB.search(feature))]:
        hint = site_gpu(f"{site_name} {size}gb")  # for example, a100 with the feature 80gb
        hinted += [hint] if hint in GPU_TYPES and hint.rpartition("-")[2] == size else []
    if kind not in GPU_TYPES:
        return hinted[0] if hinted and site_name == _UNTYPED else kind
    alike = [hint for hint in hinted if hint.partition("-")[0] == kind.partition("-")[0] and hint != kind]
    sized = [hint for hint in alike if any(_states_size(hint, feature) for feature in features)]
    return sized[0] if sized else kind


def _states_size(kind: str, text: str) -> bool:
    """Return True if a text contains the number that distinguishes a type from others in its family
    (``80`` in ``A100-80``)."""
    family, dash, size = kind.rpartition("-")
    return bool(dash) and kind in GPU_TYPES and size in text.lower().replace(family.lower(), "", 1)


def _hosts(names: list[str]) -> str:
    """Write the names as a host list. Names with a type suffix, which contains digits, are listed
    one by one."""
    return ",".join(names) if any(":" in name for name in names) else folded(names)


class NodeFormat(NamedTuple):
    """A kind of node list, as printed by a program."""

    recognises: Callable[[Source], bool]
    read: Callable[[Source], Iterable[FoundNode]]
    """Reads the list; raises ``TraceError`` with the place of what cannot be read."""
    policy: str = ""
    """The policy that represents the scheduler, if all lists in this format come from the same
    scheduler.
    """
    notes: Callable[[Source], Iterable[str]] = lambda source: ()
    """Describes the properties of the nodes in a list that are not modelled."""


@cache
def node_formats() -> Mapping[str, NodeFormat]:
    """Return the formats of node lists, each under the command that prints it."""
    return {entry.name: attribute(f"{home}{entry.target}") for home, entry in family_entries("node_lists")}


def node_format(source: Source) -> NodeFormat | None:
    """Return the format of a list of nodes, or None if the source is not one."""
    return next((one for one in node_formats().values() if one.recognises(source)), None)


def node_notes(source: Source) -> list[str]:
    """Describe the properties of the nodes in a list that are not modelled."""
    form = node_format(source)
    return [] if form is None else list(form.notes(source))


def read_nodes(source: Source) -> list[FoundNode]:
    """Read the nodes of the source, each once, in the order of the source.

    Raises:
        TraceError: The source cannot be read, is in none of the formats, or lists no node.
    """
    source.head()
    if (form := node_format(source)) is None:
        raise TraceError(f"{source}: not a list of nodes; supported formats: {'; '.join(node_formats())}")
    nodes: dict[str, FoundNode] = {}
    for node in form.read(source):
        earlier = nodes.get(node.name)
        nodes[node.name] = node if earlier is None else earlier.also_in(node.partitions)
    if not nodes:
        raise TraceError(f"{source}:1: the file lists no nodes")
    return list(nodes.values())
