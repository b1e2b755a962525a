"""Nodes of real clusters, as Slurm, Kubernetes and PBS print them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import yaml

from dagsim.errors import ModelError, TraceError
from dagsim.families.kubernetes.pods import object_kind, whole
from dagsim.families.kubernetes.terms import quantity, units
from dagsim.files import parsed_json
from dagsim.model import QueueTree, canonical_json
from dagsim.model.gpu import GPU_TYPES, GpuType, gpu_type, mig_slice
from dagsim.traces.documents import elements, list_in, object_in, text_in
from dagsim.traces.fields import MOST_GPUS, Dirty, FaultsAt, count, finite_number, pbs_memory_gb
from dagsim.traces.sites import folded, hosts, site_gpu
from dagsim.traces.source import LINE_BITS, Source

MOST_NODES = 1 << 17
"""Maximum number of nodes; more count as damage."""


@dataclass(frozen=True, slots=True)
class FoundNode:
    """One node: its GPUs under the site's names, and whether jobs may run on it."""

    name: str
    gpus: tuple[tuple[str, int], ...]
    """Type and number; the type is empty if the site states none. MIG profiles count as types."""
    cpus: float
    memory_gb: float
    state: str
    usable: bool
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    weight: float = 1.0
    """Slurm uses nodes of a smaller weight first."""
    labels: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Labels in Kubernetes."""
    manifest: str = ""
    """What kube-scheduler reads of a node in Kubernetes, see ``Node.manifest``."""

    def also_in(self, partitions: tuple[str, ...]) -> FoundNode:
        """Copy of the node with more partitions."""
        return replace(self, partitions=tuple(dict.fromkeys([*self.partitions, *partitions])))


@dataclass(slots=True)
class ImportedSite:
    """A site as the files of its scheduler describe it."""

    policy: ClassVar[str] = "slurm-multifactor"
    """The policy that stands for its scheduler."""
    read: list[str] = field(default_factory=list)
    """Files, and what each is."""
    unmodelled: dict[str, None] = field(default_factory=dict)
    """Settings that have no effect here."""
    written_s: float | None = None
    """When the files were written, in seconds since 1970; None if none of them says so."""

    @property
    def cluster_name(self) -> str:
        """The name of the cluster; empty if no file states it."""
        return ""

    def drop(self, what: str) -> None:
        """Record a setting that is not modelled."""
        self.unmodelled[what] = None

    def found_nodes(self) -> list[FoundNode]:
        """All nodes.

        Raises:
            TraceError: No file lists nodes.
        """
        raise NotImplementedError

    def queues(self, named: Mapping[str, str] | None = None) -> QueueTree:
        """Queues, partitions and limits; ``named`` maps the site's names of GPU types to those to use.

        Raises:
            TraceError: A value cannot be read.
        """
        raise NotImplementedError

    def restarts(self, queues: QueueTree) -> bool:
        """True if jobs that are preempted run again from their beginning."""
        return False

    def network(self, names: Sequence[str]) -> dict[str, Any] | None:
        """The network between the nodes ``names``, if the files describe one."""
        return None


_PAIR = re.compile(r"(?<!\S)([A-Za-z_]+)=(\S*)")
_FREE_TEXT = re.compile(r" (?:Reason|Comment|Extra)=")
_NONE = ("", "(null)", "N/A", "n/a", "none")
_SUFFIXES = "*~#!%$@^-"
_UNUSABLE = frozenset(
    {
        "DOWN", "DRAIN", "DRAINING", "DRAINED", "DRNG", "FAIL", "FAILING", "FAILG", "MAINT", "FUTURE", "FUTR", "INVAL",
        "INVALID", "INVALID_REG", "ERROR", "UNKNOWN", "UNK", "NOT_RESPONDING", "NO_RESPOND", "POWER_DOWN",
        "POWERING_DOWN", "BOOT", "REBOOT",
    }
)  # fmt: skip
_SINFO = ("NODELIST", "PARTITION", "STATE", "CPUS", "MEMORY", "GRES", "AVAIL_FEATURES")


def is_scontrol(source: Source) -> bool:
    head = source.head()  # gres.conf begins the same way, but has no state
    return any(line.lstrip().startswith("NodeName=") for line in head[:4]) and any("State=" in line for line in head)


def is_scontrol_json(source: Source) -> bool:
    head = "\n".join(source.head(1 << 16))
    return head.lstrip().startswith("{") and '"nodes"' in head and '"real_memory"' in head


def is_sinfo(source: Source) -> bool:
    fields = source.head(1)[0].split("|")
    return len(fields) == len(_SINFO) and (fields[0] == _SINFO[0] or fields[3].strip().isdecimal())


def scontrol_text(source: Source) -> Iterator[FoundNode]:
    """Nodes of ``scontrol show nodes``, as blocks or one line each. A node begins at ``NodeName=``,
    since blank lines also occur within a block.

    Raises:
        TraceError: A node lacks its name or a number.
    """
    began, fields = 0, dict[str, str]()
    for place, line in source.lines():
        if line.lstrip().startswith("NodeName="):
            if fields:
                yield _node(source.where(began), fields)
            began, fields = place, {}
        fields |= _pairs(line)
    if fields:
        yield _node(source.where(began), fields)


def scontrol_json(source: Source) -> Iterator[FoundNode]:
    """Nodes of ``scontrol show nodes --json``.

    Raises:
        TraceError: The text is not JSON, or a number is missing.
    """
    for place, node in elements(source, "nodes"):
        fields = {
            "NodeName": text_in(node, "name"),
            "Gres": text_in(node, "gres"),
            "State": "+".join(word for word in list_in(node, "state") if isinstance(word, str))
            or text_in(node, "state"),
            "CPUEfctv": _plain(node.get("effective_cpus")),
            "CPUTot": _plain(node.get("cpus")),
            "RealMemory": _plain(node.get("real_memory")),
            "MemSpecLimit": _plain(node.get("specialized_memory")),
            "Partitions": _joined(node, "partitions"),
            "ActiveFeatures": _joined(node, "active_features") or _joined(node, "features"),
        }
        yield _node(source.where(place), fields)


def sinfo_nodes(source: Source) -> Iterator[FoundNode]:
    """Nodes of ``sinfo -N -e -h -o "%N|%P|%t|%c|%m|%G|%f"``, one row per partition; a header is
    skipped.

    Raises:
        TraceError: A row does not have this form.
    """
    for place, line in source.lines():
        fields = [field.strip() for field in line.split("|")]
        if not line.strip() or fields[0] == _SINFO[0]:
            continue
        if len(fields) != len(_SINFO):
            raise TraceError(f"{source.where(place)}: {len(fields)} fields instead of {len(_SINFO)}")
        name, partition, state, cpus, memory, gres, features = fields
        row = {"NodeName": name, "State": state, "CPUTot": cpus, "RealMemory": memory.rstrip("+"), "Gres": gres}
        row |= {"Partitions": partition.rstrip("*"), "ActiveFeatures": features}
        yield _node(source.where(place), row)


def _pairs(line: str) -> dict[str, str]:
    """Parse ``Key=Value`` pairs. Free text comes last and runs to the end of the line; the system's
    name runs up to the memory.
    """
    stated = _FREE_TEXT.split(f" {line.strip()}", maxsplit=1)[0]
    before, system, after = stated.partition(" OS=")
    if system:
        after = "".join(after.partition(" RealMemory=")[1:])  # present if the whole node is on one line
    return dict(_PAIR.findall(before) + _PAIR.findall(after))


def _node(where: str, fields: Mapping[str, str]) -> FoundNode:
    with FaultsAt(where, "a node"):
        name = fields.get("NodeName", "")
        if name in _NONE:
            raise Dirty("without a name")
        memory_mb = finite_number(fields.get("RealMemory", ""), "RealMemory") - _or_zero(fields.get("MemSpecLimit", ""))
        effective = fields.get("CPUEfctv", "")
        state = fields.get("State", "")
        return FoundNode(
            name,
            _gres(fields.get("Gres", "")),
            count(effective if effective not in _NONE else fields.get("CPUTot", ""), "CPUTot", 0),
            max(0.0, memory_mb) / 1024,
            state,
            _usable(state),
            _listed(fields.get("Partitions", "")),
            _listed(fields.get("ActiveFeatures", "")),
            finite_number(fields.get("Weight") or "1", "Weight"),
        )


def _gres(text: str) -> tuple[tuple[str, int], ...]:
    """Parse the GPUs of ``gpu:a100:8(S:0-1),shard:a100:8``. Brackets may hold commas, so they are
    removed first.
    """
    gpus: dict[str, int] = {}
    for part in re.sub(r"\([^()]*\)", "", text).split(","):
        kind, *rest = part.strip().split(":")
        if kind != "gpu" or not rest:
            continue
        model, size = (rest[0], rest[-1]) if len(rest) > 1 else ("", rest[0])
        gpus[model] = gpus.get(model, 0) + count(size, "number of GPUs", 0, MOST_GPUS)
    return tuple([sized for sized in gpus.items() if sized[1]])


def _usable(state: str) -> bool:
    words = {word.strip(_SUFFIXES).upper() for word in state.split("+")}
    return not words & _UNUSABLE


def _or_zero(text: str) -> float:
    return 0.0 if text in _NONE else finite_number(text, "MemSpecLimit")


def _listed(text: str) -> tuple[str, ...]:
    return (
        () if text in _NONE else tuple([feature.strip() for feature in text.split(",")[:MOST_NODES] if feature.strip()])
    )


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else None
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63
    return str(value) if whole else ""


def _joined(node: Mapping[str, Any], name: str) -> str:
    listed: Sequence[Any] = list_in(node, name)
    return ",".join(text for text in listed if isinstance(text, str))


_KIND = re.compile(r'"kind"\s*:\s*"Node(List)?"')
_TYPES = {
    "nvidia.com/gpu": ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator"),
    "amd.com/gpu": ("amd.com/gpu.product-name", "amd.com/gpu.family"),
    "google.com/tpu": ("cloud.google.com/gke-tpu-accelerator",),
}
_SLICE = re.compile(r"nvidia\.com/mig-(\d{1,2}g\.\d{1,4}gb)")
_RACKS = ("topology.kubernetes.io/rack", "cloud.provider.com/topology-rack", "topology.kubernetes.io/zone")


_MOST_YAML = 1 << 27
"""Maximum number of characters of YAML, which is read as a whole."""


def is_kube(source: Source) -> bool:
    head = "\n".join(source.head(1 << 16))
    if head.lstrip()[:1] in ("{", "["):
        return _KIND.search(head) is not None and '"allocatable"' in head
    return "allocatable:" in head and "apiVersion:" in head


def kube_nodes(source: Source) -> Iterator[FoundNode]:
    """Nodes with their allocatable resources, from JSON or YAML. Cordoned and tainted nodes are usable by
    the pods that tolerate it; nodes that are not ready are not.

    Raises:
        TraceError: The text is neither, or a quantity cannot be read.
    """
    json_text = "\n".join(source.head(4)).lstrip()[:1] in ("{", "[")
    for place, node in elements(source, "items") if json_text else _yaml_objects(source):
        if object_kind(node) == "Node":
            with FaultsAt(source.where(place), "a node"):
                yield _node_of_kube(node)


def _yaml_objects(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of all YAML documents of the source, each with the line of its document."""
    for place, file in enumerate(source.files):
        with file.open_binary() as stream:
            text = stream.read(_MOST_YAML + 1).decode("utf-8", "replace")
        if len(text) > _MOST_YAML:
            raise TraceError(f"{file}:1: more than {_MOST_YAML:,} bytes of YAML; print it with -o json")
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            for document in yaml.load_all(text, loader):
                listed = list_in(document, "items") if object_in(document).get("items") is not None else [document]
                yield from [((place << LINE_BITS) + 1, object) for object in listed if isinstance(object, dict)]
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            line = 1 if mark is None else mark.line + 1
            raise TraceError(f"{file}:{line}: not YAML ({getattr(error, 'problem', None) or error})") from None


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
            gpus += [(kind, size)] if (size := whole(quantity(value))) else []
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


_HOSTNAME = "kubernetes.io/hostname"
_VOLATILE = ("nvidia.com/gfd.timestamp",)
"""Labels that say when, not what."""
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def _node_manifest(name: str, node: Mapping[str, Any], there: Mapping[str, Any], state: str) -> dict[str, Any]:
    """What kube-scheduler reads of a node, without what its group states: cores, memory and the name. So
    nodes that differ in nothing else are one group.
    """
    labels = {
        label: text
        for label, text in object_in(node, "metadata", "labels").items()
        if isinstance(text, str) and label not in _VOLATILE and (label, text) != (_HOSTNAME, name)
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
    """``Ready``, ``NotReady``, or what keeps most pods away."""
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


_FIELD = re.compile(r"\s+([\w.]+) = (.*)")
_TYPES_PBS = ("accelerator_model", "gpu_model", "gpu_type", "gputype")
_USABLE = frozenset({"free", "job-busy", "job-exclusive", "resv-exclusive", "busy", "time-shared"})
_LARGEST = 1 << 26


def is_pbs(source: Source) -> bool:
    head = source.head(40)
    if head[0].lstrip().startswith("{"):
        text = "\n".join(source.head(1 << 16))
        return '"nodes"' in text and '"resources_available"' in text
    return not head[0][:1].isspace() and any(re.match(r"\s+state = ", line) for line in head)


def pbs_nodes(source: Source) -> Iterator[FoundNode]:
    """Nodes of ``pbsnodes``: each a name at the margin followed by indented fields, or the JSON of
    ``-F json``.

    Raises:
        TraceError: A number cannot be read, or the JSON is invalid.
    """
    if source.head(1)[0].lstrip().startswith("{"):
        yield from _json_nodes(source)
        return
    name, began, fields = "", 0, dict[str, str]()
    for place, line in source.lines():
        field = _FIELD.match(line)
        if field:
            fields[field[1]] = field[2].strip()
        elif line.strip() and not line[:1].isspace():
            if name:
                yield _node_of_pbs(source.where(began), name, fields)
            name, began, fields = line.strip(), place, {}
    if name:
        yield _node_of_pbs(source.where(began), name, fields)


def _json_nodes(source: Source) -> Iterator[FoundNode]:
    with source.open_binary() as stream:
        text = stream.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise TraceError(f"{source}:1: more than {_LARGEST:,} bytes of JSON")
    try:
        document = parsed_json(text)
    except ValueError as error:
        raise TraceError(f"{source}:1: not JSON ({error})") from None
    for name, node in object_in(document, "nodes").items():
        there = object_in(node, "resources_available")
        fields = {f"resources_available.{key}": str(value) for key, value in there.items() if _is_plain(value)}
        yield _node_of_pbs(f"{source}:1", name, fields | {"state": str(object_in(node).get("state", ""))})


def _is_plain(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63)


def _node_of_pbs(where: str, name: str, fields: Mapping[str, str]) -> FoundNode:
    there = {key.removeprefix("resources_available."): value for key, value in fields.items()}
    with FaultsAt(where, "a node"):
        gpus = count(there.get("ngpus") or there.get("gpus") or "0", "number of GPUs", 0)
        kind = next((there[key] for key in _TYPES_PBS if there.get(key)), "")
        cores = count(there.get("ncpus") or there.get("np") or "0", "number of cores", 0)
        memory_gb = pbs_memory_gb(there.get("mem") or _physical(there.get("status", "")))
    state = fields.get("state", "")
    words = {word.strip() for word in state.split(",") if word.strip()}
    listed = tuple([feature.strip() for feature in fields.get("properties", "").split(",") if feature.strip()])
    queue = fields.get("queue", "") or there.get("queue", "")
    return FoundNode(
        name,
        ((kind, gpus),) if gpus else (),
        cores,
        memory_gb,
        state,
        words <= _USABLE,
        (queue,) if queue else (),
        listed,
    )


def _physical(status: str) -> str:
    """Torque's memory: ``physmem=131889252kb`` in its status."""
    match = re.search(r"(?:^|,)physmem=(\d{1,18}[kmgt]?b)", status)
    return match[1] if match else "0"


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


@dataclass(slots=True)
class ImportedCluster:
    """Result of importing nodes."""

    groups: list[HostGroup] = field(default_factory=list)
    gpu_types: dict[str, GpuType] = field(default_factory=dict)
    """GPU types missing from the catalogue: MIG slots, and types whose figures the user must fill
    in.
    """
    unknown: list[str] = field(default_factory=list)
    """Names of unknown GPU types; their figures are placeholders."""
    left_out: list[str] = field(default_factory=list)
    """Nodes that jobs cannot run on, with their states."""
    notes: list[str] = field(default_factory=list)
    accept: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """Types that the site's names mean by themselves, each with the type that they mean here: a log
    that says ``a100`` asks for the smaller one.
    """

    def node_names(self) -> list[str]:
        """Names of all nodes, in the order of the groups."""
        return [name for group in self.groups for name in hosts(group.hosts)]


class _Part(NamedTuple):
    """A node of one GPU type, or the part of a node with that type."""

    gpu: str | None
    gpus: int
    cpus: float
    memory_gb: float
    features: tuple[str, ...] = ()
    weight: float = 1.0
    manifest: str = ""


def grouped(
    nodes: Iterable[FoundNode],
    named: Mapping[str, str] | None = None,
    *,
    keep_all: bool = False,
    in_order: bool = False,
) -> ImportedCluster:
    """Group equal usable nodes, in order of first appearance. With ``keep_all``, include nodes that
    jobs cannot run on. With ``in_order``, groups are runs of consecutive nodes, so that the order of
    the nodes stays.

    ``named`` maps the site's names of GPU types to those to use (``gpu`` is the name of GPUs
    without one). A node of several GPU types becomes one node per type, called ``name:type``, with
    its share of cores and memory.

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
                f"no name of a node: {node.name[:80]!r}; letters, digits, dots, dashes and underscores are"
            )
        if not (node.usable or keep_all):
            imported.left_out.append(f"{node.name} ({node.state})")
            continue
        parts = [
            part._replace(features=node.features, weight=node.weight, manifest=node.manifest)
            for part in _parts(node, named or {}, imported)
        ]
        runs += in_order and bool(last) and parts != last
        last = parts
        for part in parts:
            suffix = f":{(part.gpu or 'cpu').lower()}" if len(parts) > 1 else ""
            members.setdefault((part, runs), []).append(node.name + suffix)
    if not members:
        raise TraceError(f"no node is left that jobs can run on: {', '.join(imported.left_out[:8])} (--all keeps them)")
    for (part, _), names in members.items():
        label = f"{(part.gpu or 'cpu').lower()}-x{part.gpus}" if part.gpu else "cpu"
        alike = sum(group.name.startswith(label) for group in imported.groups)
        imported.groups.append(HostGroup(f"{label}-{alike}" if alike else label, _hosts(names), len(names), *part))
    return imported


def _parts(node: FoundNode, named: Mapping[str, str], imported: ImportedCluster) -> list[_Part]:
    total = sum(size for _, size in node.gpus)
    kinds: dict[str, int] = {}
    for name, size in node.gpus:
        kind = _kind(name, node, named, imported)
        kinds[kind] = kinds.get(kind, 0) + size
    if len(kinds) > 1:
        imported.notes.append(
            f"{node.name} has {len(kinds)} GPU types: taken as a node of each, cores and memory shared"
        )
    if not kinds:
        return [_Part(None, 0, node.cpus, node.memory_gb)]
    return [_Part(kind, size, node.cpus * size / total, node.memory_gb * size / total) for kind, size in kinds.items()]


def _kind(site_name: str, node: FoundNode, named: Mapping[str, str], imported: ImportedCluster) -> str:
    """Name of the type in the catalogue, or in ``imported.gpu_types``."""
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
        imported.notes.append(f"{node.name}: {error}; taken as whole GPUs")
        return kind
    imported.gpu_types[slot.name] = slot
    return slot.name


def _named(site_name: str, features: Iterable[str], named: Mapping[str, str]) -> str:
    """Resolve the type by name. If that leaves the size open, the node's features may state it, such as
    ``a100_80gb`` for ``a100``; a name with a size, such as Slurm's own ``tesla_v100-pcie-32gb``, counts alone.
    """
    kind = site_gpu(site_name, named)
    if site_name.lower() in named or _states_size(kind, site_name):
        return kind
    hinted = [hint for feature in features if (hint := site_gpu(feature)) in GPU_TYPES]
    for size in [match[1] for feature in features if (match := _GB.search(feature))]:
        hint = site_gpu(f"{site_name} {size}gb")  # a100 with the feature 80gb
        hinted += [hint] if hint in GPU_TYPES and hint.rpartition("-")[2] == size else []
    if kind not in GPU_TYPES:
        return hinted[0] if hinted and site_name == _UNTYPED else kind
    alike = [hint for hint in hinted if hint.partition("-")[0] == kind.partition("-")[0] and hint != kind]
    sized = [hint for hint in alike if any(_states_size(hint, feature) for feature in features)]
    return sized[0] if sized else kind


def _states_size(kind: str, text: str) -> bool:
    """True if a text holds the number by which a type differs from others of its family (``80`` of ``A100-80``)."""
    family, dash, size = kind.rpartition("-")
    return bool(dash) and kind in GPU_TYPES and size in text.lower().replace(family.lower(), "", 1)


def _hosts(names: list[str]) -> str:
    """The names as a host list. Names with a type suffix, which contains digits, are listed one by
    one.
    """
    return ",".join(names) if any(":" in name for name in names) else folded(names)


FORMATS: dict[str, tuple[Callable[[Source], bool], Callable[[Source], Iterator[FoundNode]]]] = {
    "scontrol show nodes": (is_scontrol, scontrol_text),
    "scontrol show nodes --json": (is_scontrol_json, scontrol_json),
    "kubectl get nodes -o json (or yaml)": (is_kube, kube_nodes),
    "pbsnodes": (is_pbs, pbs_nodes),
    "sinfo -N -e -h -o '%N|%P|%t|%c|%m|%G|%f'": (is_sinfo, sinfo_nodes),
}
"""By the command that prints it: the test that recognises the format, and its reader."""


def read_nodes(source: Source) -> list[FoundNode]:
    """Read the nodes of the source, each once, in the order of the source.

    Raises:
        TraceError: The source cannot be read, has none of the formats, or lists no node.
    """
    source.head()
    for recognised, read in FORMATS.values():
        if recognised(source):
            nodes: dict[str, FoundNode] = {}
            for node in read(source):
                earlier = nodes.get(node.name)
                nodes[node.name] = node if earlier is None else earlier.also_in(node.partitions)
            if not nodes:
                raise TraceError(f"{source}:1: no node in it")
            return list(nodes.values())
    raise TraceError(f"{source}: not a list of nodes; supported formats: {'; '.join(FORMATS)}")
