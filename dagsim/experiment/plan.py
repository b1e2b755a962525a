"""What is to be run: a plan of cells, from a command or a YAML file. A cell is a configuration, a policy and a seed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import sha256
from itertools import product
from math import floor, isfinite, prod
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import dagsim
from dagsim.config import yaml
from dagsim.config.bundled import find_config
from dagsim.config.schema import Config, Setting, load_config, plain
from dagsim.errors import ConfigError
from dagsim.experiment.provenance import digest, sources_of
from dagsim.experiment.scenario import experiment_seeds
from dagsim.metrics import glossary
from dagsim.registry import nearest
from dagsim.traces.trace_file import TraceFile

__all__ = [
    "Axis",
    "Cell",
    "Keep",
    "Sweep",
    "Variant",
    "axis_of",
    "cells_of",
    "code_digest",
    "config_of",
    "read_sweep",
    "short_names",
]


_MOST_VALUES = 100_000
_LABEL = 40
"""More letters of a value that is no plain word make no label."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One key of the configuration and its values, each with a label that tables show."""

    key: str
    labels: tuple[str, ...]
    values: tuple[Any, ...]

    def to_dict(self) -> dict[str, Any]:
        """Labels to values, as ``axis_of`` reads them."""
        return dict(zip(self.labels, self.values, strict=True))


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The last word of each key, ``count`` of ``cluster.groups.0.count``, where it tells the keys apart."""
    last = {key: next((word for word in reversed(key.split(".")) if not word.isdigit()), key) for key in keys}
    words = list(last.values())
    return {key: word if words.count(word) == 1 else key for key, word in last.items()}


def axis_of(key: str, given: Any, place: str) -> Axis:
    """The axis that a sweep file describes: a list, ``{from, to, step}``, or labels with their values.

    Raises:
        ConfigError: There is no value, one stands there twice, or it is none of these; the message begins with
            ``place``.
    """
    match given:
        case {"from": first, "to": last, **rest} if set(rest) <= {"step"}:
            values = _steps(first, last, rest.get("step", 1), place)
            labels = tuple(map(_label, values))
        case Mapping() if given and not {"from", "to", "step", "file"} & set(given):
            labels, values = tuple(map(str, given)), tuple(map(_value, given.values()))
        case list() if given:
            labels, values = tuple(map(_label, given)), tuple(map(_value, given))
        case _:
            raise ConfigError(
                f"{place}: expected a list of values, {{from: 4, to: 16, step: 2}} or labels with values, got {given!r}"
            )
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise ConfigError(f"{place}: {twice!r} stands there twice")
    return Axis(key, labels, values)


def _steps(first: Any, last: Any, step: Any, place: str) -> tuple[float, ...]:
    numbers = (first, last, step)
    if not all(isinstance(each, int | float) and not isinstance(each, bool) and isfinite(each) for each in numbers):
        raise ConfigError(f"{place}: from, to and step must be numbers, got {first!r}, {last!r}, {step!r}")
    if not step > 0 or last < first:
        raise ConfigError(f"{place}: step must be above 0 and to not below from, got {first!r}, {last!r}, {step!r}")
    count = floor((last - first) / step + 1e-9) + 1
    if count > _MOST_VALUES:
        raise ConfigError(f"{place}: {count:,} values; at most {_MOST_VALUES:,} are allowed")
    exact = [first + index * step for index in range(count)]
    return tuple(each if isinstance(each, int) else round(each, 12) for each in exact)


def _value(given: Any) -> Any:
    """A value of the configuration; ``{file: best.pt}`` is the agent in that checkpoint."""
    match given:
        case {"file": str(path), **rest} if not rest:
            from dagsim.agents.checkpoint import read_plain

            return f'{read_plain(Path(path))["algorithm"]}[checkpoint="{path}"]'
    return given


def _label(given: Any) -> str:
    match given:
        case {"file": str(path), **rest} if not rest:
            return Path(path).stem
        case bool() | None:
            return json.dumps(given)
        case float():
            return f"{given:g}"
        case str() | int():
            return str(given)
    text = json.dumps(given, separators=(",", ":"))
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 3]}..."


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
    seeds: tuple[int, ...]

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
    seeds: int | range | None = None
    """Number of replicates of each point, or their seeds; ``None``: as the configuration says."""
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
            config = load_config(self.base, [*common, *changes])
            yield Variant(at, config, tuple(self.seeds) if isinstance(self.seeds, range) else experiment_seeds(config))

    def count(self) -> int:
        """The points of the grid."""
        return prod(len(axis.values) for axis in self.axes)

    def to_dict(self, base: str) -> dict[str, Any]:
        """The sweep as ``read_sweep`` reads it. ``base`` holds the base configuration and all that is set."""
        return {
            "base": base,
            "over": {axis.key: axis.to_dict() for axis in self.axes},
            **({} if self.seeds is None else {"seeds": _seeds_as_read(self.seeds)}),
            "keep": self.keep,
            "metrics": list(self.metrics),
        }

    def _common(self) -> list[Setting]:
        count = len(self.seeds) if isinstance(self.seeds, range) else self.seeds
        settings = dict(self.settings) | ({} if count is None else {"seeds": count})
        return [Setting(f"set.{key}", key, value) for key, value in settings.items()]


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
    seeds = made.seeds or 1
    cells = made.count() * (len(seeds) if isinstance(seeds, range) else seeds)
    if cells > _MOST_CELLS:
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


def _seeds(given: Any, place: str) -> int | range | None:
    """How many seeds, or with ``{first, count}`` which."""
    match given:
        case None:
            return None
        case int(count) if not isinstance(count, bool) and count >= 1:
            return count
        case {"first": int(first), "count": int(count), **rest} if not (
            rest or isinstance(first, bool) or isinstance(count, bool) or first < 0 or count < 1
        ):
            return range(first, first + count)
    raise ConfigError(
        f"{place}: seeds: expected a whole number of 1 or more, or the first seed and their number as "
        f"{{first: 100, count: 5}}, got {given!r}"
    )


def _seeds_as_read(seeds: int | range) -> int | dict[str, int]:
    return {"first": seeds.start, "count": len(seeds)} if isinstance(seeds, range) else seeds


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


_SIMULATES = ("model", "workload", "traces", "systems", "metrics", "seeds.py", "experiment/kept_files.py")
"""The parts of dagsim that the numbers of a cell come from."""
_NOT_THE_CELL = ("engine", "policy", "precision", "seed", "seeds", "train")
"""Keys of the configuration that do not change what one cell gives, or stand in it apart."""
_ID = 16
"""Hexadecimal digits of an id: among a million cells two are alike once in 10^7 sweeps."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One simulation of a sweep; it can be sent to another machine."""

    id: str
    policy: str
    seed: int
    at: Mapping[str, str]
    """The label of its value on each axis."""
    label: str
    config: str
    """The whole configuration as JSON."""
    trace: str | None
    """SHA-256 of the trace that its jobs come from."""


def cells_of(sweep: Sweep) -> list[Cell]:
    """All cells of the sweep in the order of its grid; those of equal content only once.

    Raises:
        InputError: A configuration of the grid cannot be, or a file of it cannot be read.
    """
    found: dict[str, Cell] = {}
    for variant in sweep.variants():
        for cell in _of_variant(variant):
            other = found.setdefault(cell.id, cell)
            if other.label != cell.label:
                raise ConfigError(f"sweep: {other.label!r} and {cell.label!r} are the same experiment; keep one")
    return list(found.values())


def _of_variant(variant: Variant) -> Iterator[Cell]:
    config = variant.config
    _check_cluster(config)
    whole, trace = plain(config), config.trace_path()
    text = json.dumps(whole)
    trace_sha = None if trace is None else digest(trace)
    content = json.dumps(_whole_numbers(_content(config, whole, trace_sha)), sort_keys=True)
    for seed in variant.seeds:
        id_ = sha256(f"{content} {seed}".encode()).hexdigest()[:_ID]
        yield Cell(id_, config.policy, seed, variant.at, variant.label, text, trace_sha)


def _check_cluster(config: Config) -> None:
    """Raise where a trace would run on the default cluster, which nobody asked for."""
    given = {"cluster", "gpu_types"} & config.model_fields_set
    if config.system.kind == "cluster" and isinstance(config.workload, TraceFile) and not given:
        raise ConfigError(
            "sweep: the jobs come from a trace, and no cluster is given: add one to base or set (of dagsim cluster "
            "import; or cluster: {name: trace, from_trace: true}, the machines that the trace lists)"
        )


def _whole_numbers(value: Any) -> Any:
    """The same, with 20.0 as 20: it is the same setting."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _whole_numbers(part) for key, part in value.items()}
        case list():
            return [_whole_numbers(part) for part in value]
    return value


def _content(config: Config, whole: Mapping[str, Any], trace: str | None) -> dict[str, Any]:
    """All that the numbers of a cell depend on, but for its seed."""
    described = {key: value for key, value in whole.items() if key not in _NOT_THE_CELL}
    if trace is not None:
        described = _with_trace(described, trace)
    files = [digest(path) for _, _, path in sources_of(config, config.policy)]
    return {"code": code_digest(), "config": described, "policy": config.policy, "files": files}


def _with_trace(described: Mapping[str, Any], trace: str) -> dict[str, Any]:
    """The same, with what the trace holds in the place of where it lies."""
    part, key = ("workload", "path") if "workload" in described else ("system", "trace")
    return {**described, part: {**described[part], key: trace}}


def config_of(cell: Cell) -> Config:
    """The configuration of a cell."""
    return _config(cell.config)


@lru_cache(maxsize=8)
def _config(text: str) -> Config:
    config: Config = Config.model_validate(json.loads(text))
    return config


@cache
def code_digest() -> str:
    """SHA-256 of the code that simulates: another version of it makes other cells."""
    total, root = sha256(dagsim.__version__.encode()), Path(dagsim.__file__).parent
    for path in sorted(_sources(root)):
        total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def _sources(root: Path) -> Iterable[Path]:
    for part in _SIMULATES:
        yield from (root / part).rglob("*.py") if (root / part).is_dir() else [root / part]
