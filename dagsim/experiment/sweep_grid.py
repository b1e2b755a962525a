"""Grids of cells. A sweep is a base configuration and axes, and is read from a YAML file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import floor, isfinite, prod
from pathlib import Path
from typing import Any, get_args

from dagsim import services
from dagsim.config import yaml
from dagsim.config.bundled import find_config
from dagsim.config.schema import Config, load_config
from dagsim.config.yaml import Setting, SweepPoint
from dagsim.errors import ConfigError, InputError, UnknownName
from dagsim.experiment.cell import Cell
from dagsim.experiment.cell_run import Keep
from dagsim.experiment.scenario import experiment_seeds
from dagsim.metrics.own import value_name
from dagsim.metrics.summary import check_metric
from dagsim.specs import Spec
from dagsim.spelling import choices

_MOST_VALUES = 100_000
_LABEL = 40
"""Maximum length, in characters, of the label of a value that is not a plain word."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A configuration key and the values that it takes, each with a label for tables."""

    key: str
    labels: tuple[str, ...]
    values: tuple[Any, ...]
    place: str = field(default="", compare=False)
    """The file and line of the key, for error messages."""

    def to_dict(self) -> dict[str, Any]:
        """Return a mapping from labels to values, in the form that ``axis_of`` reads."""
        return dict(zip(self.labels, self.values, strict=True))


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return a short name for each key: its last word (``count`` for ``cluster.groups.0.count``) if
    no other key ends in this word, and otherwise the whole key.
    """
    last = {key: next((word for word in reversed(key.split(".")) if not word.isdigit()), key) for key in keys}
    words = list(last.values())
    return {key: word if words.count(word) == 1 else key for key, word in last.items()}


def axis_of(key: str, value: Any, place: str) -> Axis:
    """Read an axis in a sweep file: a list, ``{from, to, step}``, or labels with their values.

    Raises:
        ConfigError: There is no value, a value is repeated, or the form is wrong. The message
            begins with ``place``.
    """
    match value:
        case {"from": first, "to": last, **rest} if set(rest) <= {"step"}:
            values = _steps(first, last, rest.get("step", 1), place)
            labels = tuple(map(_label, values))
        case Mapping() if value and not {"from", "to", "step", "file"} & set(value):
            labels, values = tuple(map(str, value)), tuple(map(_value, value.values()))
        case list() if value:
            labels, values = tuple(map(_label, value)), tuple(map(_value, value))
        case []:
            raise ConfigError(f"{place}: the list is empty; give at least one value")
        case _:
            raise ConfigError(
                f"{place}: expected a list of values, {{from: 4, to: 16, step: 2}} or labels with values, got {value!r}"
            )
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise ConfigError(f"{place}: {twice!r} is listed twice")
    return Axis(key, labels, values, place)


def _steps(first: Any, last: Any, step: Any, place: str) -> tuple[float, ...]:
    if not all(type(number) in (int, float) and isfinite(number) for number in (first, last, step)):
        raise ConfigError(f"{place}: from, to and step must be numbers, got {first!r}, {last!r}, {step!r}")
    if not step > 0 or last < first:
        raise ConfigError(
            f"{place}: step must be positive, and 'to' must not be below 'from', got {first!r}, {last!r}, {step!r}"
        )
    count = floor((last - first) / step + 1e-9) + 1
    if count > _MOST_VALUES:
        raise ConfigError(f"{place}: at most {_MOST_VALUES:,} values are allowed, got {count:,}")
    exact = [first + index * step for index in range(count)]
    return tuple(number if isinstance(number, int) else round(number, 12) for number in exact)


def _value(value: Any) -> Any:
    """Return a value as it is written in a configuration. ``{file: best.pt}`` represents the agent
    in that checkpoint."""
    match value:
        case {"file": str(path), **rest} if not rest:
            return str(Spec(services.algorithm_of(Path(path)), {"checkpoint": path}))
    return value


def _label(value: Any) -> str:
    match value:
        case {"file": str(path), **rest} if not rest:
            return Path(path).stem
        case bool() | None:
            return json.dumps(value)
        case float():
            return f"{value:g}"
        case str() | int():
            return str(value)
    text = json.dumps(value, separators=(",", ":"))
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 3]}..."


_KEYS = ("base", "set", "over", "seeds", "keep", "metrics", "stop")
_METRICS = ("jct_s.mean", "jct_s.p95", "wait_s.mean", "utilization", "energy_kwh")
_MOST_CELLS = 1_000_000


@dataclass(frozen=True, slots=True)
class SweepGrid:
    """A base configuration and the axes along which it varies."""

    name: str
    base: Path | None
    """A configuration file, or ``None`` for the defaults."""
    axes: tuple[Axis, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are applied to the base in all cells."""
    seeds: int | Sequence[int] | None = None
    """The number of replicates of each point, or their seeds. ``None`` uses the seeds in the
    configuration."""
    keep: Keep = "summary"
    metrics: tuple[str, ...] = _METRICS
    """The metrics in the columns of the table. Policies are compared by the first metric."""
    stop: str | None = None
    """With ``median``, training runs that are worse than the median of the others are stopped."""

    @property
    def trains(self) -> bool:
        """True if the points are training runs, which is the case if they differ in a key of ``train``."""
        return any(axis.key.startswith("train.") for axis in self.axes)

    def config(self) -> Config:
        """Return the base configuration with the settings for all cells.

        Raises:
            ConfigError: The base or a setting is wrong.
        """
        return load_config(self.base, self._common())

    def cells(self) -> list[Cell]:
        """Return all cells in the order of the grid, in which the last axis changes fastest.

        Raises:
            InputError: A value is not valid for its key, a file cannot be read, or two points are
                the same experiment.
        """
        cells: dict[str, Cell] = {}
        for cell in self.points():
            other = cells.setdefault(cell.id, cell)
            if other.label != cell.label:
                raise ConfigError(
                    f"sweep: {other.label!r} and {cell.label!r} are the same experiment, so keep only one of them"
                )
        return list(cells.values())

    def points(self) -> Iterator[Cell]:
        """Yield the cells in the order of the grid. Several cells may describe the same experiment,
        for example if only settings for training differ.
        """
        common = self._common()
        names = short_names([axis.key for axis in self.axes if axis.key != "policy"])
        for places in product(*(range(len(axis.values)) for axis in self.axes)):
            at = {axis.key: axis.labels[place] for axis, place in zip(self.axes, places, strict=True)}
            changes = [
                Setting(
                    SweepPoint.of(axis.place or f"over.{axis.key}", axis.labels[place]), axis.key, axis.values[place]
                )
                for axis, place in zip(self.axes, places, strict=True)
            ]
            base = next((Path(change.value) for change in changes if change.key == "base"), self.base)
            config = load_config(base, [*common, *[change for change in changes if change.key != "base"]])
            _check_cluster(config)
            policy = at.get("policy", config.policy)
            others = ",".join(f"{name}={at[key]}" for key, name in names.items())
            label = f"{policy} @ {others}" if others else policy
            for seed in self.seeds if isinstance(self.seeds, Sequence) else experiment_seeds(config):
                yield Cell(config, config.policy, seed, label, at)

    def count(self) -> int:
        """Return the number of points in the grid, each of which is a combination of values."""
        return prod(len(axis.values) for axis in self.axes)

    def to_dict(self, base: str) -> dict[str, Any]:
        """Return the sweep in the form that ``read_grid`` reads. ``base`` contains the base
        configuration and all settings.
        """
        return {
            "base": base,
            "over": {axis.key: axis.to_dict() for axis in self.axes},
            **({} if self.seeds is None else {"seeds": _seeds_as_read(self.seeds)}),
            "keep": self.keep,
            "metrics": list(self.metrics),
        }

    def _common(self) -> list[Setting]:
        count = len(self.seeds) if isinstance(self.seeds, Sequence) else self.seeds
        settings = dict(self.settings) | ({} if count is None else {"seeds": count})
        return [Setting(f"set.{key}", key, value) for key, value in settings.items()]


def read_grid(path: Path, name: str | None = None) -> SweepGrid:
    """Read the sweep in a YAML file. The sweep is called ``name`` (default: the name of the file).

    Raises:
        ConfigError: The file cannot be read, or a key or value in it is wrong.
    """
    document = yaml.read_yaml(path)
    content = document.value if document.value is not None else {}
    if not isinstance(content, dict):
        raise ConfigError(f"{document.place(())}: expected keys and values ({', '.join(_KEYS)}), got {content!r}")
    for key in content:
        if key not in _KEYS:
            if key in Config.model_fields and not {"base", "over"} & content.keys():
                raise ConfigError(
                    f"{path}: this is a configuration, not a sweep; run it with: dagsim eval --config {path}"
                )
            at = document.key_place((key,))
            raise ConfigError(f"{at}: unknown key {key!r}{choices(key, _KEYS, both=True)}")
    over = content.get("over")
    if "over" not in content:
        raise ConfigError(f"{path}: over is missing: it lists values of keys, such as over: {{policy: [fifo, sjf]}}")
    if not isinstance(over, dict) or not over:
        raise ConfigError(f"{document.place(('over',))}: over: expected configuration keys with their values")
    axes = tuple(
        _of_files(axis_of(key, values, f"{document.place(('over', key))}: over.{key}"), path, document)
        for key, values in over.items()
    )
    grid = SweepGrid(
        name or path.stem,
        _base(content.get("base"), path, document.place(("base",))),
        axes,
        _mapping(content.get("set"), document.place(("set",))),
        _seeds(content.get("seeds"), document.place(("seeds",))),
        _keep(content.get("keep", "summary"), document.place(("keep",))),
        _metrics(content.get("metrics", list(_METRICS)), document.place(("metrics",)), _own_metrics(content, path)),
        content.get("stop"),
    )
    if grid.stop is not None and (grid.stop != "median" or not grid.trains):
        raise ConfigError(
            f"{document.place(('stop',))}: stop: must be median, and only a sweep over keys of train can have it, "
            f"got {grid.stop!r}"
        )
    seeds = grid.seeds or 1
    cells = grid.count() * (len(seeds) if isinstance(seeds, Sequence) else seeds)
    if cells > _MOST_CELLS:
        raise ConfigError(
            f"{document.place(('over',))}: over: at most {_MOST_CELLS:,} cells are allowed, got {cells:,}"
        )
    return grid


def _of_files(axis: Axis, path: Path, document: yaml.Document) -> Axis:
    """Return the axis. If its key is ``base``, find the configuration file for each of its values,
    as for the base of a sweep.
    """
    if axis.key != "base":
        return axis
    place = document.place(("over", "base"))
    labels = tuple([label.removesuffix(".yaml") for label in axis.labels])
    return Axis(axis.key, labels, tuple([str(_base(value, path, place)) for value in axis.values]), axis.place)


def _base(value: Any, path: Path, place: str) -> Path | None:
    """Return the path of a base configuration. It is a file in the folder of the sweep or in the
    current folder, or a configuration that ships with dagsim.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise ConfigError(f"{place}: base: expected a file or a name from `dagsim list configs`, got {value!r}")
    beside = path.parent / value
    try:
        return beside if beside.is_file() else find_config(value)
    except UnknownName as error:
        raise UnknownName(f"{place}: base: {error}") from None


def _mapping(value: Any, place: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{place}: set: expected configuration keys with their values, got {value!r}")
    return value


def _seeds(value: Any, place: str) -> int | Sequence[int] | None:
    """Return the number of seeds, or the seeds themselves (for ``{first, count}`` or a list)."""
    match value:
        case None:
            return None
        case int(count) if not isinstance(count, bool) and count >= 1:
            return count
        case {"first": int(first), "count": int(count), **rest} if not (
            rest or isinstance(first, bool) or isinstance(count, bool) or first < 0 or count < 1
        ):
            return range(first, first + count)
        case [_, *_] if all(type(seed) is int and seed >= 0 for seed in value) and len(set(value)) == len(value):
            return tuple(value)
    raise ConfigError(
        f"{place}: seeds: expected a whole number of at least 1, a list of different seeds, or the first seed and "
        f"their number as {{first: 100, count: 5}}, got {value!r}"
    )


def _seeds_as_read(seeds: int | Sequence[int]) -> int | list[int] | dict[str, int]:
    match seeds:
        case range():
            return {"first": seeds.start, "count": len(seeds)}
        case Sequence():
            return list(seeds)
    return seeds


def _keep(value: Any, place: str) -> Keep:
    if value not in get_args(Keep):
        raise ConfigError(f"{place}: keep must be {' or '.join(get_args(Keep))}, got {value!r}")
    keep: Keep = value
    return keep


def _own_metrics(content: Mapping[str, Any], path: Path) -> list[str]:
    """Return the names of the user's own metrics in the settings of a sweep or in its base."""
    changed = content.get("set")
    specs: Any = changed.get("metrics") if isinstance(changed, dict) else None
    if specs is None and isinstance(base := content.get("base"), str):
        specs = load_config(_base(base, path, "")).metrics
    return [value_name(spec) for spec in specs or () if isinstance(spec, str)]


def _metrics(value: Any, place: str, own: Iterable[str]) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ConfigError(f"{place}: metrics: expected a list of names, got {value!r}")
    for name in value:
        try:
            check_metric(str(name), own)
        except InputError as error:
            raise ConfigError(f"{place}: metrics: {error}") from None
    return tuple(map(str, value))


def _check_cluster(config: Config) -> None:
    """Raise an error if a trace would run on the default cluster although the user did not request
    this."""
    described = {"cluster", "gpu_types"} & config.model_fields_set
    if config.trace_file is not None and not described:
        raise ConfigError(
            "sweep: the jobs come from a trace, but no cluster is given; add one to base or set, either "
            "from dagsim site import or, for the machines listed in the trace, as cluster: "
            "{name: trace, from_trace: true}"
        )
