"""PBS's nodes: ``pbsnodes -a`` of OpenPBS, PBS Pro and Torque, as text or (``-F json``) as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dagsim.errors import TraceError
from dagsim.traces.documents import object_in
from dagsim.traces.fields import Dirty, count
from dagsim.traces.nodes.found import FoundNode
from dagsim.traces.sizes import pbs_memory_gb
from dagsim.traces.source import Source

__all__ = ["is_pbs", "pbs_nodes"]

_FIELD = re.compile(r"\s+([\w.]+) = (.*)")
_TYPES = ("accelerator_model", "gpu_model", "gpu_type", "gputype")
_USABLE = frozenset({"free", "job-busy", "job-exclusive", "resv-exclusive", "busy", "time-shared"})
_LARGEST = 1 << 26


def is_pbs(source: Source) -> bool:
    head = source.head(40)
    if head[0].lstrip().startswith("{"):
        text = "\n".join(source.head(1 << 16))
        return '"nodes"' in text and '"resources_available"' in text
    return not head[0][:1].isspace() and any(re.match(r"\s+state = ", line) for line in head)


def pbs_nodes(source: Source) -> Iterator[FoundNode]:
    """Nodes: a name at the margin, its fields indented; or the object of ``-F json``.

    Raises:
        TraceError: A number is none, or the JSON is none.
    """
    if source.head(1)[0].lstrip().startswith("{"):
        yield from _json_nodes(source)
        return
    name, began, said = "", 0, dict[str, str]()
    for place, line in source.lines():
        field = _FIELD.match(line)
        if field:
            said[field[1]] = field[2].strip()
        elif line.strip() and not line[:1].isspace():
            if name:
                yield _node(source.where(began), name, said)
            name, began, said = line.strip(), place, {}
    if name:
        yield _node(source.where(began), name, said)


def _json_nodes(source: Source) -> Iterator[FoundNode]:
    with source.open_binary() as stream:
        text = stream.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise TraceError(f"{source}:1: more than {_LARGEST:,} bytes of JSON")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise TraceError(f"{source}:1: no JSON") from None
    for name, node in object_in(document, "nodes").items():
        there = object_in(node, "resources_available")
        said = {f"resources_available.{key}": str(value) for key, value in there.items() if _is_plain(value)}
        yield _node(f"{source}:1", name, said | {"state": str(object_in(node).get("state", ""))})


def _is_plain(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63)


def _node(where: str, name: str, said: Mapping[str, str]) -> FoundNode:
    there = {key.removeprefix("resources_available."): value for key, value in said.items()}
    try:
        gpus = count(there.get("ngpus") or there.get("gpus") or "0", "number of GPUs", 0)
        kind = next((there[key] for key in _TYPES if there.get(key)), "")
        cores = count(there.get("ncpus") or there.get("np") or "0", "number of cores", 0)
        memory_gb = pbs_memory_gb(there.get("mem") or _physical(there.get("status", "")))
    except Dirty as reason:
        raise TraceError(f"{where}: a node {reason}") from None
    state = said.get("state", "")
    words = {word.strip() for word in state.split(",") if word.strip()}
    listed = tuple([each.strip() for each in said.get("properties", "").split(",") if each.strip()])
    return FoundNode(name, ((kind, gpus),) if gpus else (), cores, memory_gb, state, words <= _USABLE, features=listed)


def _physical(status: str) -> str:
    """Torque's memory: ``physmem=131889252kb`` among its status."""
    found = re.search(r"(?:^|,)physmem=(\d{1,18}[kmgt]?b)", status)
    return found[1] if found else "0"
