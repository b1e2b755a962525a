"""Rates of tasks that share GPUs, after a decision of the policy (``Join``).

Two tasks on one GPU slow each other down, and some do not fit into its memory together. Measured
sums of the two rates, relative to alone, lie between 0.35 and 2.45 (Gavel, OSDI 2020; Lucid, ASPLOS
2023).
"""

from __future__ import annotations

import ast
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Protocol

from dagsim.errors import ConfigError, ModelError
from dagsim.model import Task, gpu_type

__all__ = ["MeasuredPairs", "PairTable", "Sharing", "TaskKey"]

TaskKey = tuple[str | None, int | None]
"""Model and batch of a task."""


class Sharing(Protocol):
    """The seam for sharing: the rates of two tasks on the same GPUs, relative to their rates alone."""

    def pair(self, first: Task, second: Task, gpu: str) -> tuple[float, float] | None:
        """The rate of each of two tasks on a GPU type; None if they do not fit together.

        Raises:
            ModelError: Nothing is known about the pair.
        """
        ...

    def rate(self, task: Task, other: Task, gpu: str, now: float) -> float:
        """The present rate of a task beside another."""
        ...


@dataclass(frozen=True)
class MeasuredPairs:
    """Rates by pairs of models: ``rates[gpu][first, second]`` are the rates of both.

    ``gpu`` is the name of a GPU type, or empty for all types. A pair stands in the table in either
    order; rates of 0 mean that the two do not fit together. ``default`` is the rate of both in a
    pair that is not in the table.

    Raises:
        ModelError: A rate is negative.
    """

    rates: Mapping[str, Mapping[tuple[TaskKey, TaskKey], tuple[float, float]]] = field(default_factory=dict)
    default: float | None = None

    def __post_init__(self) -> None:
        for gpu, pairs in self.rates.items():
            for pair, rates in pairs.items():
                if not min(rates) >= 0:
                    raise ModelError(f"sharing: rates of {pair} on {gpu or 'any GPU'} must be 0 or more, got {rates}")
        if self.default is not None and not self.default > 0:
            raise ModelError(f"sharing: default must be positive, got {self.default!r}")

    def pair(self, first: Task, second: Task, gpu: str) -> tuple[float, float] | None:
        """See ``Sharing``."""
        keys = (first.model, first.batch), (second.model, second.batch)
        for name in (gpu, ""):
            pairs = self.rates.get(name, {})
            rates = pairs.get(keys) or (pairs.get(keys[::-1]) or ())[::-1]
            if rates:
                return rates if min(rates) > 0 else None
        if self.default is None:
            raise ModelError(
                f"sharing: no rates of {_named(first)} beside {_named(second)} on {gpu}; add the pair to the table, "
                "or set default"
            )
        return self.default, self.default

    def rate(self, task: Task, other: Task, gpu: str, now: float) -> float:
        """See ``Sharing``."""
        rates = self.pair(task, other, gpu)
        return 0.0 if rates is None else rates[0]


@dataclass(frozen=True, slots=True)
class PairTable:
    """Rates of pairs from a file, ``MeasuredPairs`` for configurations.

    ``table`` is Gavel's ``simulation_throughputs.json`` (may end in .gz), ``default`` the rate of
    both tasks in any other pair.

    Raises:
        ConfigError: The file cannot be read, or neither is given.
    """

    table: str | None = None
    default: float | None = None
    kind: Literal["pairs"] = "pairs"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.table is None and self.default is None:
            raise ConfigError("sharing needs a table of pairs, or a default rate")
        self._pairs()

    def pair(self, first: Task, second: Task, gpu: str) -> tuple[float, float] | None:
        """See ``Sharing``."""
        return self._pairs().pair(first, second, gpu)

    def rate(self, task: Task, other: Task, gpu: str, now: float) -> float:
        """See ``Sharing``."""
        return self._pairs().rate(task, other, gpu, now)

    def _pairs(self) -> MeasuredPairs:
        return _gavel_pairs(self.table, self.default)


@cache
def _gavel_pairs(path: str | None, default: float | None) -> MeasuredPairs:
    """The pairs of single-GPU jobs in Gavel's table, relative to their rates alone."""
    if path is None:
        return MeasuredPairs({}, default)
    try:
        with gzip.open(path, "rt") if path.endswith(".gz") else open(path, encoding="utf-8") as file:
            table = json.load(file)
        types = {gpu_type(name.upper()).name: rows for name, rows in table.items() if "_" not in name}
        return MeasuredPairs({gpu: dict(_relative(rows)) for gpu, rows in types.items()}, default)
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"sharing: {path} is not a table of Gavel's throughputs ({error!r})") from None


def _relative(rows: Mapping[str, Any]) -> Iterator[tuple[tuple[TaskKey, TaskKey], tuple[float, float]]]:
    for mine, rates in rows.items():
        for theirs, pair in rates.items():
            if theirs == "null" or ast.literal_eval(mine)[1] != 1:
                continue
            alone = rates["null"], rows[theirs]["null"]
            if min(alone) > 0:
                yield (_key(mine), _key(theirs)), (pair[0] / alone[0], pair[1] / alone[1])


def _key(kind: str) -> TaskKey:
    """Model and batch of a job type, as the reader of Gavel's traces names them."""
    name = ast.literal_eval(kind)[0]
    batch = re.fullmatch(r"(.*) \(batch size (\d+)\)", name)
    return (batch[1], int(batch[2])) if batch else (name, None)


def _named(task: Task) -> str:
    return f"{task.model or task.name} (batch {task.batch})" if task.batch else task.model or task.name
