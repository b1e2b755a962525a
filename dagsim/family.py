"""Families. Each covers one subject, such as Slurm, Gavel or lower bounds, in a folder that the
core does not import.

A folder ``dagsim/families/NAME`` contains everything about its subject. Its ``family.py`` contains
a ``Family``, which states what the folder adds to the registries of the core. If you delete the
folder, its entries disappear, and nothing else changes. ``families/names.json`` lists the names in
all families, so that an error can state which family is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.resources import files
from pkgutil import iter_modules
from typing import Any

from dagsim.errors import UnknownName

_HOME = "dagsim.families"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry in a registry. ``target`` is a function or class that creates the object, the
    ``"module:attr"`` where it is found, or the name of a file in the family's folder. ``moved``
    lists removed parameters, each with the spec to use instead.
    """

    name: str
    target: str | Callable[..., object]
    summary: str = ""
    tags: tuple[str, ...] = ()
    moved: tuple[tuple[str, str], ...] = ()
    id: str = ""
    """The id under which Gymnasium registers an environment."""


@dataclass(frozen=True, slots=True)
class Family:
    """Everything that one family adds to dagsim. Targets such as ``".policies:gavel"`` are relative
    to its folder.
    """

    summary: str
    needs: tuple[str, ...] = ()
    """Other families that this one imports."""
    uses: tuple[str, ...] = ()
    """Other families that this one uses without importing them: it calls their services, adds
    entries to a group that they read, or names their policies, readers or systems. If they are
    missing, some of its features do not work."""
    adds: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    """The entries that the family adds to each registry. The keys are the registries' entry-point
    groups without the prefix ``dagsim.`` (``policies``, ``readers``). ``services`` are functions
    that others call (``dagsim.services``), ``public`` are functions of dagsim's interface, and
    ``keys`` are the classes behind configuration keys. ``kept_by_command`` names commands that save
    their own progress in a run folder, each with a summary of what it saves."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """The family's commands, each with the module that adds it to ``dagsim.cli.app.app`` on import."""
    shows_only: bool = False
    """True if the family cannot change the result of a cell. Its files are then left out of the code digest."""


@cache
def families() -> Mapping[str, Family]:
    """Return the installed families by name, except for those that need a missing family."""
    names = sorted(module.name for module in iter_modules(import_module(_HOME).__path__) if module.ispkg)
    whole: dict[str, Family] = {name: import_module(f"{_HOME}.{name}.family").FAMILY for name in names}
    while lacking := [name for name, family in whole.items() if not whole.keys() >= set(family.needs)]:
        for name in lacking:
            del whole[name]
    return whole


def family_entries(group: str) -> Iterator[tuple[str, Entry]]:
    """Yield the entries that all families add to a registry, each with the package of its family."""
    for name, family in families().items():
        for entry in family.adds.get(group, ()):
            yield f"{_HOME}.{name}", entry


def added_names(group: str) -> list[str]:
    """Return all names that families add to a registry."""
    return [entry.name for _, entry in family_entries(group)]


def command_modules() -> list[str]:
    """Return the modules that add the families' commands when they are imported."""
    modules = [f"{_HOME}.{name}{module}" for name, family in families().items() for module in family.commands.values()]
    return list(dict.fromkeys(modules))


def offered(name: str, group: str) -> Any | None:
    """Return the object that a family offers under ``name`` in ``group``, such as ``services`` or
    ``keys``, or None if no installed family offers it.
    """
    for home, entry in family_entries(group):
        if entry.name == name:
            if not isinstance(entry.target, str):
                return entry.target
            module, _, attr = entry.target.partition(":")
            return getattr(import_module(home + module), attr)
    return None


def required(name: str, group: str) -> Any:
    """Return the object that a family offers under ``name`` in ``group``.

    Raises:
        UnknownName: No installed family offers it. The message names the missing family.
    """
    answer = offered(name, group)
    if answer is None:
        refuse_missing(group, name)
        raise UnknownName(f"no family provides {name!r}")
    return answer


def names_of(family: Family) -> dict[str, list[str]]:
    """Return all names that a family adds, by group, in the format of ``families/names.json``."""
    names = {group: [entry.name for entry in entries] for group, entries in family.adds.items()}
    return names | ({"commands": list(family.commands)} if family.commands else {})


def refuse_missing(group: str, name: str) -> None:
    """Raise an error if ``name`` belongs to a family whose folder is missing.

    Raises:
        UnknownName: ``name`` belongs to a missing family.
    """
    if missing := missing_family(group, name):
        raise UnknownName(f"{name!r} {missing}")


def missing_family(group: str, name: str) -> str:
    """If ``name`` belongs to a family whose folder is missing, return a text that names this
    family. Otherwise, return an empty text.
    """
    for family, names in all_names().items():
        if name in names.get(group, ()) and family not in families():
            return f"belongs to the family {family}, which this installation lacks"
    return ""


@cache
def all_names() -> Mapping[str, Mapping[str, list[str]]]:
    """Return the names that each of dagsim's families adds, by family and registry. This includes
    families whose folders are missing.
    """
    names: dict[str, dict[str, list[str]]] = json.loads(files(_HOME).joinpath("names.json").read_text("utf-8"))
    return names
