"""Changes that clients of Kubernetes request (merge patches, JSON patches and server-side apply),
and selectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Manifest: TypeAlias = dict[str, Any]
"""An object as its JSON."""

_KEYS = {
    "conditions": "type",
    "addresses": "type",
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "ownerReferences": "uid",
    "podSetAssignments": "name",
    "admissionChecks": "name",
}
"""Lists that are merged item by item, with the field that identifies an item. Others are replaced."""


class InvalidPatch(Exception):
    """A patch that cannot be applied."""


def merged(old: Any, patch: Any, *, strategic: bool) -> Any:
    """Apply a merge patch (RFC 7386) to ``old``, and return the result. A strategic patch also
    merges the lists in ``_KEYS``.
    """
    if not isinstance(patch, dict):
        return patch
    base = old if isinstance(old, dict) and not (strategic and patch.get("$patch") == "replace") else {}
    result = dict(base)
    for name, value in patch.items():
        if strategic and name.startswith("$"):
            continue
        if value is None:
            result.pop(name, None)
        elif strategic and _is_keyed(name, value):
            result[name] = _merged_items(_KEYS[name], result.get(name) or [], value)
        else:
            result[name] = merged(result.get(name), value, strategic=strategic)
    return result


def _is_keyed(name: str, value: Any) -> bool:
    return name in _KEYS and isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _merged_items(key: str, old: list[Any], patch: list[Any]) -> list[Any]:
    items = {item.get(key): item for item in old}
    for item in patch:
        if item.get("$patch") == "delete":
            items.pop(item.get(key), None)
        else:
            items[item.get(key)] = merged(items.get(item.get(key)), item, strategic=True)
    return list(items.values())


def without_dropped(current: Any, before: Any, after: Any) -> Any:
    """Return ``current`` without the fields that a client applied in ``before`` but left out in
    ``after``. Server-side apply removes such fields.
    """
    if not (isinstance(current, dict) and isinstance(before, dict)):
        return current
    after = after if isinstance(after, dict) else {}
    result = dict(current)
    for name, old in before.items():
        if name not in result or name in ("apiVersion", "kind", "metadata"):
            continue
        if name not in after:
            del result[name]
        elif _is_keyed(name, old) and _is_keyed(name, result[name]):
            key = _KEYS[name]
            kept = {item.get(key) for item in after[name]}
            dropped = {item.get(key) for item in old} - kept
            result[name] = [item for item in result[name] if item.get(key) not in dropped]
        else:
            result[name] = without_dropped(result[name], old, after[name])
    return result


def stepwise(document: Any, steps: Any) -> Any:
    """Apply a JSON patch (RFC 6902: add, remove, replace and test) in place to ``document``.

    Raises:
        InvalidPatch: A step cannot be carried out.
    """
    try:
        for step in steps:
            _take(document, step["op"], step["path"], step.get("value"))
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        raise InvalidPatch(f"the JSON patch cannot be applied: {error!r}") from None
    return document


def _take(document: Any, operation: str, path: str, value: Any) -> None:
    *above, last = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    place = document
    for part in above:
        place = place[int(part)] if isinstance(place, list) else place[part]
    listed = isinstance(place, list)
    key: Any = (len(place) if last == "-" else int(last)) if listed else last
    match operation:
        case "test":
            if place[key] != value:
                raise InvalidPatch(f"the value at {path} is different")
        case "remove":
            del place[key]
        case "replace":
            place[key]  # only a check: raises KeyError if the key is missing
            place[key] = value
        case "add":
            if listed:
                place.insert(key, value)
            else:
                place[key] = value
        case _:
            raise InvalidPatch(f"the operation {operation!r} is not supported")


def field(object: Any, path: str) -> Any:
    """Return the value at a path of names separated by dots, or None if it is missing."""
    for part in path.split("."):
        object = object.get(part) if isinstance(object, dict) else None
    return object


_SET = re.compile(r"([^\s!=,]+)\s+(in|notin)\s+\(([^)]*)\)")
_EQUAL = re.compile(r"([^\s!=,]+)\s*(!=|==?)\s*([^,]*)")


def matcher(labels: str, fields: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return a function that tests whether an object matches a label selector and a field
    selector."""
    tests = [(_labels_of, *_rule(text)) for text in _terms(labels)]
    tests += [(_field_of, *_rule(text)) for text in _terms(fields)]

    def matches(object: Mapping[str, Any]) -> bool:
        return all((value(object, key) in wanted) == chosen for value, key, wanted, chosen in tests)

    return matches


def _terms(text: str) -> list[str]:
    return [term for term in map(str.strip, re.split(r",(?![^(]*\))", text or "")) if term]


def _rule(term: str) -> tuple[str, set[str | None], bool]:
    """Return the key of a term, the values in the term, and whether the label must have one of
    them."""
    if match := _SET.fullmatch(term):
        return match[1], {value.strip() for value in match[3].split(",")}, match[2] == "in"
    if match := _EQUAL.fullmatch(term):
        return match[1], {match[3].strip()}, match[2] != "!="
    return term.lstrip("!"), {None}, term.startswith("!")


def _labels_of(object: Mapping[str, Any], key: str) -> str | None:
    value = (field(object, "metadata.labels") or {}).get(key)
    return None if value is None else str(value)


def _field_of(object: Mapping[str, Any], key: str) -> str:
    value = field(object, key)
    return "" if value is None else str(value)
