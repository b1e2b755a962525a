"""The axes of a sweep: keys of the configuration, each with the values that it takes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite
from pathlib import Path
from typing import Any

from dagsim.errors import ConfigError

__all__ = ["Axis", "axis_of", "short_names"]

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
