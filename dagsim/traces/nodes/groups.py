"""Nodes of a real cluster as groups of equal nodes of the catalogue's GPU types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dagsim.errors import ModelError, TraceError
from dagsim.model.gpu import GPU_TYPES, GpuType, gpu_type, mig_slice
from dagsim.traces.hostlists import folded
from dagsim.traces.nodes.found import FoundNode
from dagsim.traces.sites import site_gpu

__all__ = ["HostGroup", "ImportedCluster", "grouped"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_PROFILE = re.compile(r"(.*?)[_.:-]?(\d)g\.(\d{1,3})gb", re.IGNORECASE)
_UNTYPED = "gpu"


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Equal nodes."""

    name: str
    hosts: str
    count: int
    gpu: str | None
    gpus: int
    cpus: float
    memory_gb: float


@dataclass(slots=True)
class ImportedCluster:
    """The outcome of an import of nodes."""

    groups: list[HostGroup] = field(default_factory=list)
    gpu_types: dict[str, GpuType] = field(default_factory=dict)
    """Types beside the catalogue's: MIG slots, and those whose figures have to be filled in."""
    unknown: list[str] = field(default_factory=list)
    """Names of GPU types that are not known: their figures stand for nothing."""
    left_out: list[str] = field(default_factory=list)
    """Nodes that jobs cannot run on, with their states."""
    notes: list[str] = field(default_factory=list)


class _Part(NamedTuple):
    """A node of one GPU type, or the part of a node that has it."""

    gpu: str | None
    gpus: int
    cpus: float
    memory_gb: float


def grouped(
    nodes: Iterable[FoundNode], named: Mapping[str, str] | None = None, *, keep_all: bool = False
) -> ImportedCluster:
    """The nodes that jobs may run on, equal ones together, in order of their first. With ``keep_all`` they are all
    nodes.

    ``named`` says what the site's names of GPU types stand for (``gpu`` is the name of those without one). A node of
    several GPU types becomes a node per type, called ``name:type``, with its share of cores and memory.

    Raises:
        TraceError: A node's name is none, or no node is left.
    """
    made = ImportedCluster()
    members: dict[_Part, list[str]] = {}
    for node in nodes:
        if not _NAME.fullmatch(node.name):
            raise TraceError(
                f"no name of a node: {node.name[:80]!r}; letters, digits, dots, dashes and underscores are"
            )
        if not (node.usable or keep_all):
            made.left_out.append(f"{node.name} ({node.state})")
            continue
        parts = _parts(node, named or {}, made)
        for part in parts:
            suffix = f":{(part.gpu or 'cpu').lower()}" if len(parts) > 1 else ""
            members.setdefault(part, []).append(node.name + suffix)
    if not members:
        raise TraceError(f"no node is left that jobs can run on: {', '.join(made.left_out[:8])} (--all keeps them)")
    for part, names in members.items():
        label = f"{(part.gpu or 'cpu').lower()}-x{part.gpus}" if part.gpu else "cpu"
        alike = sum(group.name.startswith(label) for group in made.groups)
        made.groups.append(HostGroup(f"{label}-{alike}" if alike else label, _hosts(names), len(names), *part))
    return made


def _parts(node: FoundNode, named: Mapping[str, str], made: ImportedCluster) -> list[_Part]:
    total = sum(count for _, count in node.gpus)
    kinds: dict[str, int] = {}
    for said, count in node.gpus:
        kind = _kind(said, node, named, made)
        kinds[kind] = kinds.get(kind, 0) + count
    if len(kinds) > 1:
        made.notes.append(f"{node.name} has {len(kinds)} GPU types: taken as a node of each, cores and memory shared")
    if not kinds:
        return [_Part(None, 0, node.cpus, node.memory_gb)]
    return [
        _Part(kind, count, node.cpus * count / total, node.memory_gb * count / total) for kind, count in kinds.items()
    ]


def _kind(said: str, node: FoundNode, named: Mapping[str, str], made: ImportedCluster) -> str:
    """The type's name in the catalogue, or in ``made.gpu_types``."""
    profile = _PROFILE.fullmatch(said)
    base = profile[1] if profile else said
    kind = _named(base or _UNTYPED, node.features, named)
    if kind not in GPU_TYPES and kind not in made.gpu_types:
        made.gpu_types[kind] = GpuType(kind, 1.0, 1.0, 1.0, 1.0, 0.0)
        made.unknown.append(kind)
    if profile is None or kind not in GPU_TYPES:
        return kind
    try:
        slot = mig_slice(gpu_type(kind), f"{profile[2]}g.{profile[3]}gb")
    except ModelError as error:
        made.notes.append(f"{node.name}: {error}; taken as whole GPUs")
        return kind
    made.gpu_types[slot.name] = slot
    return slot.name


def _named(said: str, features: Iterable[str], named: Mapping[str, str]) -> str:
    """The type by its name, unless features of the node say more of the same family. An example is ``a100`` with a
    feature ``a100_80gb``."""
    kind = site_gpu(said, named)
    if said.lower() in named:
        return kind
    hinted = [each for feature in features if (each := site_gpu(feature)) in GPU_TYPES]
    if kind not in GPU_TYPES:
        return hinted[0] if hinted and said == _UNTYPED else kind
    alike = [each for each in hinted if each.partition("-")[0] == kind.partition("-")[0] and each != kind]
    return alike[0] if alike else kind


def _hosts(names: list[str]) -> str:
    """The names as a list; those of parts of nodes, whose suffix has digits, one by one."""
    return ",".join(names) if any(":" in name for name in names) else folded(names)
