"""Readers for the listings of nodes that Slurm prints: ``scontrol show nodes``, as text or JSON,
and ``sinfo``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dagsim.errors import TraceError
from dagsim.families.site.node_lists import MOST_NODES, FoundNode, NodeFormat
from dagsim.families.slurm.site.slurm_site_values import gres_gpus
from dagsim.traces.documents import elements, list_in, text_in
from dagsim.traces.fields import Dirty, FaultsAt, count, finite_number
from dagsim.traces.source import Source

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
    head = source.head()  # gres.conf also starts with NodeName, but has no State
    return any(line.lstrip().startswith("NodeName=") for line in head[:4]) and any("State=" in line for line in head)


def is_scontrol_json(source: Source) -> bool:
    head = "\n".join(source.head(1 << 16))
    return head.lstrip().startswith("{") and '"nodes"' in head and '"real_memory"' in head


def is_sinfo(source: Source) -> bool:
    fields = source.head(1)[0].split("|")
    return len(fields) == len(_SINFO) and (fields[0] == _SINFO[0] or fields[3].strip().isdecimal())


def scontrol_text(source: Source) -> Iterator[FoundNode]:
    """Yield the nodes listed by ``scontrol show nodes``, as blocks or as one line each. Each node
    begins at ``NodeName=``. Blank lines do not separate nodes, because they may also occur within a
    block.

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
    """Yield the nodes listed by ``scontrol show nodes --json``.

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
    """Yield the nodes listed by ``sinfo -N -e -h -o "%N|%P|%t|%c|%m|%G|%f"``, one row per node and
    partition. A header is skipped.

    Raises:
        TraceError: A row does not have this form.
    """
    for place, line in source.lines():
        fields = [field.strip() for field in line.split("|")]
        if not line.strip() or fields[0] == _SINFO[0]:
            continue
        if len(fields) != len(_SINFO):
            raise TraceError(f"{source.where(place)}: expected {len(_SINFO)} fields, got {len(fields)}")
        name, partition, state, cpus, memory, gres, features = fields
        row = {"NodeName": name, "State": state, "CPUTot": cpus, "RealMemory": memory.rstrip("+"), "Gres": gres}
        row |= {"Partitions": partition.rstrip("*"), "ActiveFeatures": features}
        yield _node(source.where(place), row)


def _pairs(line: str) -> dict[str, str]:
    """Parse ``Key=Value`` pairs. Free text comes last and continues to the end of the line. The
    name of the operating system continues up to ``RealMemory``.
    """
    stated = _FREE_TEXT.split(f" {line.strip()}", maxsplit=1)[0]
    before, system, after = stated.partition(" OS=")
    if system:
        # In one-line output, fields follow the free text of OS. Keep them from RealMemory on.
        after = "".join(after.partition(" RealMemory=")[1:])
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
            name=name,
            gpus=gres_gpus(fields.get("Gres", "")),
            cpus=count(effective if effective not in _NONE else fields.get("CPUTot", ""), "CPUTot", 0),
            memory_gb=max(0.0, memory_mb) / 1024,
            state=state,
            usable=_usable(state),
            partitions=_listed(fields.get("Partitions", "")),
            features=_listed(fields.get("ActiveFeatures", "")),
            weight=finite_number(fields.get("Weight") or "1", "Weight"),
        )


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


SCONTROL = NodeFormat(is_scontrol, scontrol_text)
SCONTROL_JSON = NodeFormat(is_scontrol_json, scontrol_json)
SINFO = NodeFormat(is_sinfo, sinfo_nodes)
