"""The layers of a configuration: settings such as ``--set a.b=value`` on top of a document, and
defaults for the parts that the document leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any

from dagsim import services
from dagsim.config import yaml
from dagsim.config.bundled import WORKLOADS
from dagsim.config.dumping import plain
from dagsim.config.yaml import Setting
from dagsim.errors import DagsimError
from dagsim.systems import DEFAULT_SYSTEM, SYSTEMS, system_named
from dagsim.systems.default import DefaultSystem
from dagsim.systems.seam import System

_PRESET = "workload.preset"


def ordered_settings(settings: Iterable[str | Setting]) -> list[Setting]:
    """Return settings in the order in which they are applied. A preset comes first, because all
    other settings for the workload change it.

    Raises:
        ConfigError: A text has no ``=``, or its value is not YAML.
    """
    parsed = [setting if isinstance(setting, Setting) else Setting.parse(setting) for setting in settings]
    return sorted(parsed, key=lambda setting: setting.key != _PRESET)


def layered(
    document: yaml.Document, settings: Iterable[Setting], defaults: Mapping[str, Any], *, own: bool
) -> yaml.Document:
    """Return a copy of ``document`` with ``settings``. ``defaults`` are the default values of all
    keys. With ``own=False``, no code outside dagsim is imported.

    Raises:
        ConfigError: A key does not exist, or a setting would undo another one.
    """
    document = deepcopy(document)
    for source, key, value in settings:
        if key == _PRESET and isinstance(document.value, dict):
            match document.value.get("workload"):
                case {"preset": _}:
                    # Keep the keys that changed the old preset, so that they change the new one as
                    # well.
                    pass
                case _:
                    document.value["workload"] = {}
        document.put(key, value, source, _defaults(document, key, defaults, own))
    return document


def _defaults(document: yaml.Document, key: str, defaults: Mapping[str, Any], own: bool) -> dict[str, Any]:
    """Return the defaults that are needed to set a value at ``key`` if ``document`` leaves out
    parts of the path.

    In ``document``, a workload given by name is replaced with a mapping that contains the name.
    """
    needed = dict(defaults)
    if key == _PRESET:
        del needed["workload"]  # the preset provides all keys that the document leaves out
    if key.strip().startswith("train."):
        system = document.value.get("system") if isinstance(document.value, dict) else None
        kind = system.get("kind", DEFAULT_SYSTEM) if isinstance(system, dict) else system
        needed["train"] = plain(services.training_defaults(_system_at(kind, own)))
    if isinstance(document.value, dict):
        if isinstance(document.value.get("workload"), str):
            document.value["workload"] = {"preset": document.value["workload"]}
        match document.value.get("workload"):
            case {"preset": str(name)} if name in WORKLOADS:
                needed["workload"] = plain(WORKLOADS[name].workload)
    return needed


def _system_at(kind: Any, own: bool) -> type[System]:
    """Return the class named by ``system.kind``, or the default system if validation will reject
    this name.
    """
    if isinstance(kind, str) and (kind in SYSTEMS or (own and SYSTEMS.is_own(kind))):
        with suppress(DagsimError):
            system = system_named(kind)
            return system if isinstance(system, type) and issubclass(system, System) else DefaultSystem
    return DefaultSystem


def is_visible(setting: Setting, config: Any) -> bool:
    """Return True if ``config`` has the value of ``setting`` at its key, which proves that the
    setting has an effect. A preset counts as visible, because its name is not stored.
    """
    return setting.key == _PRESET or _agrees(_part_at(config, setting.key), setting.value)


def _part_at(config: Any, key: str) -> Any:
    """Return the part of a configuration at ``a.b.0.c``, or ``...`` if there is no such part."""
    for word in key.split("."):
        match config:
            case Mapping():
                config = config.get(word, ...)
            case tuple() if word.isdigit() and int(word) < len(config):
                config = config[int(word)]
            case _:
                config = getattr(config, word, ...)
    return config


def _agrees(part: Any, value: Any) -> bool:
    """Return True if ``part`` of a configuration already has the ``value`` that a setting gives it."""
    match value:
        case dict():
            return all(_agrees(_part_at(part, key), below) for key, below in value.items())
        case list():
            return isinstance(part, tuple) and len(part) == len(value) and all(map(_agrees, part, value))
        case str() if not isinstance(part, str | int | float | None) and part is not ...:
            return True  # one text can stand for several values, such as "1000:-1000" or the name of a workload
    return bool(part == value)
