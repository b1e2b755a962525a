"""Faults of a configuration, for people: every fault on a line of its own with its place, key and remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dagsim.config.yaml import Document, Key
from dagsim.registry import nearest

__all__ = ["explain"]

Schema = Mapping[str, Any]

_UNKNOWN_KEY = {"extra_forbidden", "unexpected_keyword_argument"}
_NO_MAPPING = {"dataclass_type", "dict_type", "model_type", "union_tag_not_found"}


def explain(error: ValidationError, document: Document, schema: Schema) -> str:
    """One line per fault: ``file:line:column: key.path: what (got ...); allowed``.

    ``schema`` is the JSON schema that the document was held against.
    """
    faults = (fault for fault in error.errors(include_url=False) if fault["type"] != "default_factory_not_called")
    return "\n".join(dict.fromkeys(_line(fault, document, schema) for fault in faults))


def _line(fault: ErrorDetails, document: Document, schema: Schema) -> str:
    path = _path(fault, document.value)
    place = document.place(path)
    match fault["type"]:
        case kind if kind in _UNKNOWN_KEY:
            place = document.key_place(path)
            allowed = _keys(schema, fault["loc"][:-1])
            what = f"there is no such key{nearest(str(path[-1]), allowed)}; allowed: {', '.join(allowed)}"
        case "missing":
            what = "is missing"
        case kind if kind in _NO_MAPPING:
            what = f"should be a mapping of keys to values{_got(fault)}"
        case "union_tag_invalid":
            path = (*path, "kind")
            place = document.place(path)
            allowed = re.findall(r"'([^']*)'", fault["ctx"]["expected_tags"])
            tag = fault["ctx"]["tag"]
            what = f"there is no such kind (got {tag!r}){nearest(tag, allowed)}; allowed: {', '.join(allowed)}"
        case "literal_error":
            hint = nearest(str(fault["input"]), re.findall(r"'([^']*)'", fault["ctx"]["expected"]))
            what = f"should be {fault['ctx']['expected']}{_got(fault)}{hint}"
        case "value_error":
            what = str(fault["ctx"]["error"])
            path = _named(what, path, document.value)
            place = document.place(path)
        case _:
            what = fault["msg"].removeprefix("Input ").partition(", unable to parse")[0] + _got(fault)
    return f"{place}: {'.'.join(map(str, path)) or 'the file'}: {what}"


def _path(fault: ErrorDetails, value: Any) -> Key:
    """The way to the fault in the document: pydantic's, without the kinds that it names on the way."""
    path: list[str | int] = []
    missing = fault["type"] == "missing"
    for depth, key in enumerate(fault["loc"], 1):
        part = _part(value, key)
        if part is not _ABSENT:
            value = part
        elif not (missing and depth == len(fault["loc"])):
            continue
        path.append(key)
    return tuple(path)


_ABSENT = object()


def _part(value: Any, key: str | int) -> Any:
    match value:
        case dict():
            return value.get(key, _ABSENT)
        case list() if isinstance(key, int) and key < len(value):
            return value[key]
    return _ABSENT


def _named(message: str, path: Key, value: Any) -> Key:
    """``path``, or the way on to the key below it that the message names. The key is found by its name or else by its
    value."""
    for key in path:
        value = _part(value, key)
    if not isinstance(value, dict):
        return path
    words = re.findall(r"\w+", message)
    by_name = sorted((key for key in value if key in words), key=words.index)
    by_value = (key for key, part in value.items() if isinstance(part, str) and repr(part) in message)
    return (*path, *by_name[:1]) if by_name else (*path, *islice(by_value, 1))


def _got(fault: ErrorDetails) -> str:
    text = repr(fault["input"])
    return f" (got {text if len(text) <= 60 else text[:57] + '...'})"


def _keys(schema: Schema, loc: Iterable[str | int]) -> list[str]:
    """The keys that the schema knows at ``loc``."""
    node: Schema = schema
    for key in loc:
        node = _within(schema, node, key)
    return sorted({name for branch in _branches(schema, node) for name in branch.get("properties", {})})


def _within(schema: Schema, node: Schema, key: str | int) -> Schema:
    """The part of the schema that ``key`` leads to: a property, the items of a list, or the branch of that kind."""
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
    """The alternatives that a node of the schema stands for, references followed."""
    if "$ref" in node:
        return _branches(schema, schema["$defs"][node["$ref"].rpartition("/")[2]])
    alternatives = node.get("anyOf") or node.get("oneOf")
    if alternatives:
        return [branch for alternative in alternatives for branch in _branches(schema, alternative)]
    return [node]
