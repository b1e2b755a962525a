"""The description of a sweep: its YAML file in, the cells of its grid out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from dagsim.config import yaml
from dagsim.config.bundled import find_config
from dagsim.config.schema import Config, Setting, load_config
from dagsim.errors import ConfigError
from dagsim.experiment.sweep.axes import Axis, axis_of, short_names
from dagsim.metrics import glossary
from dagsim.registry import nearest

__all__ = ["Keep", "Sweep", "Variant", "read_sweep"]

Keep: TypeAlias = Literal["summary", "jobs", "log"]
"""Kept of each cell beside its metrics: nothing, its table of jobs, or its schedule, too."""

_KEYS = ("base", "set", "over", "seeds", "keep", "metrics")
_METRICS = ("jct_s.mean", "jct_s.p95", "wait_s.mean", "utilization", "energy_kwh")
_MOST_CELLS = 1_000_000


@dataclass(frozen=True, slots=True)
class Variant:
    """One point of the grid: a configuration, and the label of its value on each axis."""

    at: Mapping[str, str]
    config: Config

    @property
    def label(self) -> str:
        """Its policy, and behind ``@`` its values on the other axes."""
        names = short_names([key for key in self.at if key != "policy"])
        others = ",".join(f"{name}={self.at[key]}" for key, name in names.items())
        policy = self.at.get("policy", self.config.policy)
        return f"{policy} @ {others}" if others else policy


@dataclass(frozen=True, slots=True)
class Sweep:
    """A base configuration and the axes along which it is changed."""

    name: str
    base: Path | None
    """A file; ``None`` stands for the defaults."""
    axes: tuple[Axis, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keys that are the same in all cells, beside the base."""
    seeds: int | None = None
    """Replicates of each point; ``None``: as the configuration says."""
    keep: Keep = "summary"
    metrics: tuple[str, ...] = _METRICS
    """Columns of the table; the first is what policies are compared by."""

    def config(self) -> Config:
        """The base configuration with what is set for all cells.

        Raises:
            ConfigError: Something is wrong with it.
        """
        return load_config(self.base, self._common())

    def variants(self) -> Iterator[Variant]:
        """The points of the grid; the last axis changes fastest.

        Raises:
            ConfigError: A value does not fit its key; the message names both.
        """
        common = self._common()
        for places in product(*(range(len(axis.values)) for axis in self.axes)):
            at = {axis.key: axis.labels[place] for axis, place in zip(self.axes, places, strict=True)}
            changes = [
                Setting(f"over.{axis.key} = {axis.labels[place]}", axis.key, axis.values[place])
                for axis, place in zip(self.axes, places, strict=True)
            ]
            yield Variant(at, load_config(self.base, [*common, *changes]))

    def count(self) -> int:
        """The points of the grid."""
        return prod(len(axis.values) for axis in self.axes)

    def to_dict(self, base: str) -> dict[str, Any]:
        """The sweep as ``read_sweep`` reads it. ``base`` holds the base configuration and all that is set."""
        return {
            "base": base,
            "over": {axis.key: axis.to_dict() for axis in self.axes},
            **({} if self.seeds is None else {"seeds": self.seeds}),
            "keep": self.keep,
            "metrics": list(self.metrics),
        }

    def _common(self) -> list[Setting]:
        given = dict(self.settings) | ({} if self.seeds is None else {"seeds": self.seeds})
        return [Setting(f"set.{key}", key, value) for key, value in given.items()]


def read_sweep(path: Path, name: str | None = None) -> Sweep:
    """The sweep that a YAML file describes, called ``name`` or as the file.

    Raises:
        ConfigError: The file cannot be read, or a key or value of it is wrong.
    """
    document = yaml.read_yaml(path)
    given = document.value if document.value is not None else {}
    if not isinstance(given, dict):
        raise ConfigError(f"{document.place(())}: expected keys and values ({', '.join(_KEYS)}), got {given!r}")
    for key in given:
        if key not in _KEYS:
            at = document.key_place((key,))
            raise ConfigError(f"{at}: unknown key {key!r}{nearest(key, _KEYS)}; allowed: {', '.join(_KEYS)}")
    over = given.get("over")
    if not isinstance(over, dict) or not over:
        raise ConfigError(f"{document.place(('over',))}: over: expected keys of the configuration with their values")
    axes = tuple(axis_of(key, values, f"{document.place(('over', key))}: over.{key}") for key, values in over.items())
    made = Sweep(
        name or path.stem,
        _base(given.get("base"), path, document.place(("base",))),
        axes,
        _mapping(given.get("set"), document.place(("set",))),
        _seeds(given.get("seeds"), document.place(("seeds",))),
        _keep(given.get("keep", "summary"), document.place(("keep",))),
        _metrics(given.get("metrics", list(_METRICS)), document.place(("metrics",))),
    )
    if made.count() * (made.seeds or 1) > _MOST_CELLS:
        cells = made.count() * (made.seeds or 1)
        raise ConfigError(f"{document.place(('over',))}: {cells:,} cells; at most {_MOST_CELLS:,} are allowed")
    return made


def _base(given: Any, path: Path, place: str) -> Path | None:
    """A file beside the sweep's own or below the current folder, or a configuration by name."""
    if given is None:
        return None
    if not isinstance(given, str):
        raise ConfigError(f"{place}: base: expected a file or a name of `dagsim list configs`, got {given!r}")
    beside = path.parent / given
    return beside if beside.is_file() else find_config(given)


def _mapping(given: Any, place: str) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ConfigError(f"{place}: set: expected keys of the configuration with values, got {given!r}")
    return given


def _seeds(given: Any, place: str) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 1):
        return given
    raise ConfigError(f"{place}: seeds: expected a whole number of 1 or more, got {given!r}")


def _keep(given: Any, place: str) -> Keep:
    if given not in get_args(Keep):
        raise ConfigError(f"{place}: keep: allowed are {', '.join(get_args(Keep))}, got {given!r}")
    found: Keep = given
    return found


def _metrics(given: Any, place: str) -> tuple[str, ...]:
    if not isinstance(given, list) or not given:
        raise ConfigError(f"{place}: metrics: expected a list of names, got {given!r}")
    known = [term.name for term in glossary()]
    return tuple(map(str, _checked(given, known, place)))


def _checked(given: Sequence[Any], known: Sequence[str], place: str) -> Sequence[Any]:
    for name in given:
        if name not in known and "[" not in str(name):
            raise ConfigError(f"{place}: metrics: there is no metric {name!r}{nearest(str(name), known)}")
    return given
