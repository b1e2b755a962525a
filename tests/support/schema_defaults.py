"""The defaults in the schema that the repository ships, to compare classes of settings with."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).parents[2] / "configs" / "dagsim.schema.json"


@cache
def shipped() -> dict[str, dict[str, Any]]:
    """Defaults of each class in the schema, by the name of the class."""
    defaults: dict[str, dict[str, Any]] = {}
    waiting: list[Any] = [json.loads(SCHEMA.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if isinstance(node.get("title"), str) and isinstance(parts := node.get("properties"), dict):
                values = {key: part["default"] for key, part in parts.items() if "default" in part}
                defaults.setdefault(node["title"], {}).update(values)
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return defaults


def classes(package: str) -> Iterator[type]:
    """Dataclasses of a package that the schema describes."""
    root = importlib.import_module(package)
    names = [package, *(part.name for part in pkgutil.walk_packages(getattr(root, "__path__", []), f"{package}."))]
    for name in names:
        if name.endswith(".torchrl_env"):
            continue  # needs an extra that the tests do not install
        for value in vars(importlib.import_module(name)).values():
            of_module = isinstance(value, type) and is_dataclass(value) and value.__module__ == name
            if of_module and own_defaults(value).keys() & shipped().get(value.__name__, {}).keys():
                yield value


def own_defaults(cls: type) -> dict[str, Any]:
    """Defaults of a dataclass that are plain values, as JSON has them. The schema has no factories."""
    stated = {part.name: part.default for part in fields(cls) if part.default is not MISSING}
    plain = {}
    for name, value in stated.items():
        try:
            plain[name] = json.loads(json.dumps(value))
        except TypeError:
            continue
    return plain


def can_be_made(cls: type) -> bool:
    """True if no field needs a value."""
    return all(part.default is not MISSING or part.default_factory is not MISSING for part in fields(cls))
