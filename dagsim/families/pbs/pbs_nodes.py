"""Nodes that ``pbsnodes`` has printed, as text or JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dagsim.errors import TraceError
from dagsim.families.site.node_lists import FoundNode, NodeFormat
from dagsim.files import parsed_json
from dagsim.traces.documents import object_in
from dagsim.traces.fields import Dirty, FaultsAt, InvalidValue, count
from dagsim.traces.source import Source

_UNITS_GB = {"b": 2.0**-30, "kb": 2.0**-20, "mb": 2.0**-10, "gb": 1.0, "tb": 2.0**10, "pb": 2.0**20, "w": 2.0**-27}
_SIZE = re.compile(r"(\d{1,18})([kmgtp]?b|w)?", re.IGNORECASE)


def pbs_memory_gb(text: str) -> float:
    """Parse a size in PBS, such as ``64gb``, ``67108864kb``, words of 8 bytes (``w``) or plain
    bytes. Return GB of 2^30 bytes.

    Raises:
        Dirty: The text is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise Dirty(InvalidValue("with an invalid size in memory"))
    return int(match[1]) * _UNITS_GB[(match[2] or "b").lower()]


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
    """Yield the nodes that ``pbsnodes`` lists. In text, each node is an unindented name followed by
    indented fields. In the output of ``-F json``, it is an entry under ``nodes``.

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
        raise TraceError(f"{source}:1: JSON files may have at most {_LARGEST:,} bytes")
    try:
        document = parsed_json(text, unique=True)
    except ValueError as error:
        raise TraceError(f"{source}:1: invalid JSON ({error})") from None
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
    """Return the memory in a Torque node's status: ``physmem=131889252kb``."""
    match = re.search(r"(?:^|,)physmem=(\d{1,18}[kmgt]?b)", status)
    return match[1] if match else "0"


PBSNODES = NodeFormat(is_pbs, pbs_nodes)
