"""Slurm's nodes: ``scontrol show nodes`` in blocks, in lines and as JSON, and ``sinfo -N``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dagsim.errors import TraceError
from dagsim.traces.documents import elements, list_in, text_in
from dagsim.traces.fields import MOST_GPUS, Dirty, count, finite_number
from dagsim.traces.nodes.found import MOST_NODES, FoundNode
from dagsim.traces.source import Source

__all__ = [
    "is_scontrol",
    "is_scontrol_json",
    "is_sinfo",
    "scontrol_json",
    "scontrol_text",
    "sinfo_nodes",
]

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
    return any(line.lstrip().startswith("NodeName=") for line in source.head(4))


def is_scontrol_json(source: Source) -> bool:
    head = "\n".join(source.head(1 << 16))
    return head.lstrip().startswith("{") and '"nodes"' in head and '"real_memory"' in head


def is_sinfo(source: Source) -> bool:
    fields = source.head(1)[0].split("|")
    return len(fields) == len(_SINFO) and (fields[0] == _SINFO[0] or fields[3].strip().isdecimal())


def scontrol_text(source: Source) -> Iterator[FoundNode]:
    """Nodes of blocks or of one line each: a node begins at ``NodeName=``, since blank lines stand inside, too.

    Raises:
        TraceError: A node lacks its name or a number.
    """
    began, said = 0, dict[str, str]()
    for place, line in source.lines():
        if line.lstrip().startswith("NodeName="):
            if said:
                yield _node(source.where(began), said)
            began, said = place, {}
        said |= _pairs(line)
    if said:
        yield _node(source.where(began), said)


def scontrol_json(source: Source) -> Iterator[FoundNode]:
    """Nodes of ``scontrol show nodes --json``.

    Raises:
        TraceError: It is no JSON, or a number is missing.
    """
    for place, node in elements(source, "nodes"):
        said = {
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
        yield _node(source.where(place), said)


def sinfo_nodes(source: Source) -> Iterator[FoundNode]:
    """Nodes of ``sinfo -N -e -h -o "%N|%P|%t|%c|%m|%G|%f"``, once per partition; a header is passed over.

    Raises:
        TraceError: A row is none of them.
    """
    for place, line in source.lines():
        fields = [field.strip() for field in line.split("|")]
        if not line.strip() or fields[0] == _SINFO[0]:
            continue
        if len(fields) != len(_SINFO):
            raise TraceError(f"{source.where(place)}: {len(fields)} fields instead of {len(_SINFO)}")
        name, partition, state, cpus, memory, gres, features = fields
        said = {"NodeName": name, "State": state, "CPUTot": cpus, "RealMemory": memory.rstrip("+"), "Gres": gres}
        said |= {"Partitions": partition.rstrip("*"), "ActiveFeatures": features}
        yield _node(source.where(place), said)


def _pairs(line: str) -> dict[str, str]:
    """``Key=Value`` pairs. Free text comes last and runs to the end of the line; the system's name to the memory."""
    stated = _FREE_TEXT.split(f" {line.strip()}", maxsplit=1)[0]
    before, system, after = stated.partition(" OS=")
    if system:
        after = "".join(after.partition(" RealMemory=")[1:])  # there where all of a node is on one line
    return dict(_PAIR.findall(before) + _PAIR.findall(after))


def _node(where: str, said: Mapping[str, str]) -> FoundNode:
    try:
        name = said.get("NodeName", "")
        if name in _NONE:
            raise Dirty("without a name")
        memory_mb = finite_number(said.get("RealMemory", ""), "RealMemory") - _or_zero(said.get("MemSpecLimit", ""))
        effective = said.get("CPUEfctv", "")
        state = said.get("State", "")
        return FoundNode(
            name,
            _gres(said.get("Gres", "")),
            count(effective if effective not in _NONE else said.get("CPUTot", ""), "CPUTot", 0),
            max(0.0, memory_mb) / 1024,
            state,
            _usable(state),
            _listed(said.get("Partitions", "")),
            _listed(said.get("ActiveFeatures", "")),
        )
    except Dirty as reason:
        raise TraceError(f"{where}: a node {reason}") from None


def _gres(text: str) -> tuple[tuple[str, int], ...]:
    """GPUs of ``gpu:a100:8(S:0-1),shard:a100:8``: what stands in brackets holds commas, and goes first."""
    found: dict[str, int] = {}
    for part in re.sub(r"\([^()]*\)", "", text).split(","):
        kind, *rest = part.strip().split(":")
        if kind != "gpu" or not rest:
            continue
        model, size = (rest[0], rest[-1]) if len(rest) > 1 else ("", rest[0])
        found[model] = found.get(model, 0) + count(size, "number of GPUs", 0, MOST_GPUS)
    return tuple([each for each in found.items() if each[1]])


def _usable(state: str) -> bool:
    words = {word.strip(_SUFFIXES).upper() for word in state.split("+")}
    return not words & _UNUSABLE


def _or_zero(text: str) -> float:
    return 0.0 if text in _NONE else finite_number(text, "MemSpecLimit")


def _listed(text: str) -> tuple[str, ...]:
    return () if text in _NONE else tuple([each.strip() for each in text.split(",")[:MOST_NODES] if each.strip()])


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else None
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63
    return str(value) if whole else ""


def _joined(node: Mapping[str, Any], name: str) -> str:
    listed: Sequence[Any] = list_in(node, name)
    return ",".join(each for each in listed if isinstance(each, str))
