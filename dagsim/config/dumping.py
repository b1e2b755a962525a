"""Configurations as plain values, as YAML text, and as a hash of this text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from dagsim.config import yaml
from dagsim.sections import Foreign, Section, kind_of, unset_keys

if TYPE_CHECKING:
    from dagsim.config.schema import Config


def plain(value: Any) -> Any:
    """Convert sections, dataclasses and tuples to values for YAML. For readability, the key
    ``kind`` comes first.
    """
    match value:
        case Section():
            return {name: plain(getattr(value, name)) for name in value.written_keys()}
        case Mapping():
            return {str(key): plain(part) for key, part in value.items()}
        case tuple() | list():
            return [plain(part) for part in value]
        case Foreign():
            return plain(value.settings)
        case _ if is_dataclass(value):
            names = [field.name for field in fields(value) if field.init]
            own = kind_of(value)
            first = {} if own is None else {"kind": own}
            omitted = {*first, *unset_keys(value)}
            shown = [name for name in sorted(names, key="kind".__ne__) if name not in omitted]
            return first | {name: plain(getattr(value, name)) for name in shown}
    return value


def dump_config(config: Config) -> str:
    """Return the whole configuration as YAML. ``load_config`` reads an equal configuration from
    this text, and equal configurations give equal texts.
    """
    # Validate the configuration again. This turns a default that is written as 20 in the code into
    # 20.0, which is what a 20 in a file becomes.
    return yaml.dump(plain(type(config).model_validate(plain(config), context={"own": not foreign_parts(config)})))


def config_hash(config: Config) -> str:
    """Return the SHA-256 of ``dump_config``'s text as hex digits. It does not depend on comments
    and formatting in the file.
    """
    return sha256(dump_config(config).encode()).hexdigest()


def foreign_parts(value: Any) -> list[str]:
    """Return the names of code outside dagsim in a configuration that was loaded with
    ``own=False``.
    """
    match value:
        case Foreign():
            return [value.kind]
        case Section():
            parts: Iterable[Any] = [getattr(value, name) for name in type(value).model_fields]
        case tuple():
            parts = value
        case _ if is_dataclass(value):
            parts = [getattr(value, field.name) for field in fields(value)]
        case _:
            parts = ()
    return [name for part in parts for name in foreign_parts(part)]
