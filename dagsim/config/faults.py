"""One line for each fault that validation finds in a configuration: its position in the file or on
the command line, what is wrong, and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dagsim.config.yaml import Document, KeyPath, Option, SweepPoint
from dagsim.sections import DEFAULT_KIND, fault_in_words, got
from dagsim.spelling import choices, nearest

Schema = Mapping[str, Any]

_UNKNOWN_KEY = {"extra_forbidden", "unexpected_keyword_argument"}
_NO_MAPPING = {"dataclass_type", "dict_type", "model_type", "union_tag_not_found"}


def explain(error: ValidationError, document: Document, schema: Schema) -> Iterable[str]:
    """Explain a validation error with one line per fault: ``file:line:column: key.path: what (got
    ...); allowed``.

    ``schema`` is the JSON Schema against which the document was validated.
    """
    faults = (fault for fault in error.errors(include_url=False) if fault["type"] != "default_factory_not_called")
    return dict.fromkeys(_line(fault, document, schema) for fault in faults)


def _line(fault: ErrorDetails, document: Document, schema: Schema) -> str:
    path = _path(fault, document.value)
    place = document.place(path)
    match fault["type"]:
        case kind if kind in _UNKNOWN_KEY:
            place = document.key_place(path)
            allowed = _keys(schema, fault["loc"][:-1], document.value)
            homes = _homes(schema, str(path[-1]))
            near = f" here; did you mean {' or '.join(homes)}?" if homes else choices(str(path[-1]), allowed, both=True)
            what = f"there is no such key{near}"
        case "missing":
            what = f"is missing{_wanted(schema, fault['loc'])}"
        case kind if kind in _NO_MAPPING:
            keys = _keys(schema, fault["loc"], document.value)
            hint = f"; its keys are {', '.join(keys)}" if 0 < len(keys) < 20 else ""
            what = f"must be a mapping of keys to values{got(fault)}{hint}"
        case "union_tag_invalid":
            path = (*path, "kind")
            place = document.place(path)
            allowed = re.findall(r"'([^']*)'", fault["ctx"]["expected_tags"])
            tag = fault["ctx"]["tag"]
            what = f"there is no kind {tag!r}{choices(tag, allowed, both=True)}"
        case "literal_error":
            hint = nearest(str(fault["input"]), re.findall(r"'([^']*)'", fault["ctx"]["expected"]))
            what = f"{fault_in_words(fault)}{hint}"
        case "value_error":
            what, below = str(fault["ctx"]["error"]), getattr(fault["ctx"]["error"], "path", ())
            path = (*path, *below) if below else _named(what, path, document.value)
            place = document.place(path)
        case _:
            what = fault_in_words(fault)
    # remove a key from the message if the path already contains it
    while (said := what.partition(": "))[2] and said[0] in path:
        what = said[2]
    if path and what.startswith(f"{path[-1]} must "):
        what = what.removeprefix(f"{path[-1]} ")
    if isinstance(place, Option) and document.values.get(path) == place:
        return _of_option(place, path, what)
    key = ".".join(map(str, path)) or "the file"
    if isinstance(place, SweepPoint) and place.axis.endswith(f"over.{key}"):  # it already contains the key
        return f"{place.axis if fault['type'] in _UNKNOWN_KEY else place}: {what}"
    return f"{place}: {key}: {what}"


def _of_option(place: Option, path: KeyPath, what: str) -> str:
    """Return the line that reports a fault in the value of an option. It names the option instead
    of the key that the option sets, unless the fault is in a key other than the one that ``--set``
    names.
    """
    option, typed = place.name, place.typed
    key = ".".join(map(str, path))
    what = re.sub(r"\b(\d+)\.0(?=$|[],;])", r"\1", what)
    if option in ("--set", "--read"):
        name, _, typed = typed.partition("=")
        option = f"{option} {name}" if option == "--read" or name == key else f"{place}: {key}"
    return f"{option}: {what}, got {typed}" if what.startswith("must") and ", got " not in what else f"{option}: {what}"


def _path(fault: ErrorDetails, value: Any) -> KeyPath:
    """Return the path to the fault in the document: pydantic's ``loc`` without the tags of unions that
    pydantic inserts.
    """
    path: list[str | int] = []
    missing = fault["type"] == "missing"
    for depth, key in enumerate(fault["loc"], 1):
        part = _child(value, key)
        if part is not _ABSENT:
            value = part
        elif not (missing and depth == len(fault["loc"])):
            continue
        path.append(key)
    return tuple(path)


_ABSENT = object()


def _child(value: Any, key: str | int) -> Any:
    match value:
        case dict():
            return value.get(key, _ABSENT)
        case list() if isinstance(key, int) and key < len(value):
            return value[key]
    return _ABSENT


def _named(message: str, path: KeyPath, value: Any) -> KeyPath:
    """Extend ``path`` by the faulty key below it. The message names either this key or its value."""
    for key in path:
        value = _child(value, key)
    if not isinstance(value, dict):
        return path
    words = re.findall(r"\w+", message)
    by_name = sorted((key for key in value if key in words), key=words.index)
    by_value = (key for key, part in value.items() if isinstance(part, str) and repr(part) in message)
    return (*path, *by_name[:1]) if by_name else (*path, *islice(by_value, 1))


def _keys(schema: Schema, loc: Iterable[str | int], value: Any) -> list[str]:
    """Return the keys that the schema allows at ``loc``. If ``value`` has a ``kind`` there, return
    only the keys for that kind.
    """
    node: Schema = schema
    for key in loc:
        node = _within(schema, node, key)
        part = _child(value, key)
        # pydantic's path also contains the kind of each union, which is not a key in the document
        value = value if part is _ABSENT else part
    branches = _branches(schema, node)
    kind = value.get("kind", _default_kind(schema, node)) if isinstance(value, dict) else None
    own = [branch for branch in branches if branch.get("properties", {}).get("kind", {}).get("const") == kind]
    names = {name for branch in own or branches for name in branch.get("properties", {})}
    return sorted(name for name in names if name[0] != "_")


def _wanted(schema: Schema, loc: Sequence[str | int]) -> str:
    """Return a hint for a missing key: its meaning, if it is known, and how to write the key."""
    node = schema
    for key in loc:
        node = _within(schema, node, key)
    meaning = node.get("description", "").partition(". ")[0].rstrip(".")
    form = {"string": "TEXT", "integer": "N", "number": "X", "array": "[...]"}.get(node.get("type", ""), "...")
    return (f" ({meaning[:1].lower()}{meaning[1:]})" if meaning else "") + f"; add {loc[-1]}: {form}"


_MOST_HOMES = 3
"""Maximum number of places that a message names for a key in the wrong place."""


def _homes(schema: Schema, key: str) -> list[str]:
    """Return the paths at which the configuration has this key. If there are many, return none.
    Items of lists are left out, because their paths contain an index.
    """
    paths: list[str] = []
    pending: list[tuple[Schema, tuple[str, ...], frozenset[int]]] = [(schema, (), frozenset())]
    while pending:
        node, path, above = pending.pop()
        for branch in _branches(schema, node):
            properties = branch.get("properties", {}) if id(branch) not in above else {}
            for name, part in properties.items():
                if name == key:
                    paths.append(".".join((*path, name)))
                pending.append((part, (*path, name), above | {id(branch)}))
    places = sorted(dict.fromkeys(paths), key=lambda place: (place.count("."), place))
    return places if len(places) <= _MOST_HOMES else []


def _default_kind(schema: Schema, node: Schema) -> str | None:
    """Return the default ``kind`` of a part, or None if it has none. ``Registered`` adds it to the
    schema beside the union.
    """
    nodes = [node, *(node.get("anyOf") or ())]
    return next((str(branch[DEFAULT_KIND]) for branch in nodes if DEFAULT_KIND in branch), None)


def _within(schema: Schema, node: Schema, key: str | int) -> Schema:
    """Return the part of the schema to which ``key`` leads: a property, the items of a list, or the
    branch of a union for this kind.
    """
    for branch in _branches(schema, node):
        properties = branch.get("properties", {})
        if key in properties:
            return properties[key]  # type: ignore[no-any-return]
        if isinstance(key, int) and "items" in branch:
            return branch["items"]  # type: ignore[no-any-return]
        if properties.get("kind", {}).get("const") == key:
            return branch
    return {}


def _branches(schema: Schema, node: Schema) -> list[Schema]:
    """Return the alternatives for a node in the schema, after resolving references."""
    if "$ref" in node:
        return _branches(schema, schema["$defs"][node["$ref"].rpartition("/")[2]])
    alternatives = node.get("anyOf") or node.get("oneOf")
    if alternatives:
        return [branch for alternative in alternatives for branch in _branches(schema, alternative)]
    return [node]
