"""The rates of tasks that share GPUs. Whether tasks share GPUs is decided by the policy (``Join``).

Two tasks on one GPU slow each other down, and some pairs do not fit into its memory. The measured
sum of the two rates, each relative to the task's rate on its own, is between 0.35 and 2.45 (Gavel,
OSDI 2020; Lucid, ASPLOS 2023).
"""

from __future__ import annotations

import ast
import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Any, Literal

from dagsim.errors import ConfigError, DagsimError, ModelError
from dagsim.files import open_lines
from dagsim.model import Task, gpu_type

TaskKey = tuple[str | None, int | None]
"""Model and batch of a task."""
_Pair = tuple[TaskKey, TaskKey]


@dataclass(frozen=True)
class MeasuredPairs:
    """Rates by pairs of models: ``rates[gpu][first, second]`` contains the rates of both.

    ``gpu`` is the name of a GPU type, or empty for all types. The table may list a pair in either
    order. A rate of 0 means that the two tasks do not fit together. ``default`` is the rate of both
    tasks in a pair that is not in the table. ``memory_gb`` is the GPU memory that a pair needs; on
    a type with less memory, the pair does not fit.

    Raises:
        ModelError: A rate is negative.
    """

    rates: Mapping[str, Mapping[_Pair, tuple[float, float]]] = field(default_factory=dict)
    default: float | None = None
    memory_gb: Mapping[_Pair, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for gpu, pairs in self.rates.items():
            for pair, rates in pairs.items():
                if not min(rates) >= 0:
                    raise ModelError(f"sharing: rates of {pair} on {gpu or 'any GPU'} must be 0 or more, got {rates}")
        if not min(self.memory_gb.values(), default=0.0) >= 0:
            raise ModelError("sharing: memory_gb: the memory of a pair must be 0 GB or more")
        if self.default is not None and not 0 < self.default <= 1:
            raise ModelError(f"sharing: default must be above 0 and at most 1, got {self.default!r}")

    def pair(self, first: Task, second: Task, gpu: str) -> tuple[float, float] | None:
        """See ``Sharing``."""
        keys = (first.model, first.batch), (second.model, second.batch)
        needed_gb = self.memory_gb.get(keys) or self.memory_gb.get(keys[::-1], 0.0)
        if needed_gb > _memory_gb(gpu):
            return None
        for name in (gpu, ""):
            pairs = self.rates.get(name, {})
            rates = pairs.get(keys) or (pairs.get(keys[::-1]) or ())[::-1]
            if rates:
                return rates if min(rates) > 0 else None
        if self.default is None:
            raise ModelError(
                f"sharing: there are no rates for {_named(first)} running beside {_named(second)} on {gpu}; add "
                "the pair to the table, or set default"
            )
        return self.default, self.default

    def rate(self, task: Task, other: Task, gpu: str, now: float) -> float:
        """See ``Sharing``."""
        rates = self.pair(task, other, gpu)
        return 0.0 if rates is None else rates[0]


@dataclass(frozen=True, slots=True)
class PairTable:
    """The speeds of pairs of tasks that share a GPU, read from a file. This is the form that
    ``MeasuredPairs`` takes in a configuration.

    ``table`` is Gavel's ``simulation_throughputs.json`` or Lucid's ``colocate_info.csv`` (the name
    may end in .gz), and ``default`` is the rate of both tasks in any other pair. Lucid measured one
    GPU type (RTX 3090), so its rates apply to all types. Its models are called ``MODEL DATASET``,
    or ``MODEL DATASET amp`` with mixed precision.

    Raises:
        ConfigError: The file cannot be read, or neither ``table`` nor ``default`` is given.
    """

    table: str | None = None
    """Path of Gavel's ``simulation_throughputs.json`` or of Lucid's ``colocate_info.csv``. The file
    may be compressed (``.gz``).
    """
    default: float | None = None
    """Rate of both tasks of a pair that is missing from the table."""
    kind: Literal["pairs"] = "pairs"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.table is None and self.default is None:
            raise ConfigError("sharing needs a table of pairs or a default rate")
        self._pairs()

    def pair(self, first: Task, second: Task, gpu: str) -> tuple[float, float] | None:
        """See ``Sharing``."""
        return self._pairs().pair(first, second, gpu)

    def rate(self, task: Task, other: Task, gpu: str, now: float) -> float:
        """See ``Sharing``."""
        return self._pairs().rate(task, other, gpu, now)

    def _pairs(self) -> MeasuredPairs:
        return _pairs_of(self.table, self.default)


@cache
def _memory_gb(gpu: str) -> float:
    """Return the memory of a GPU type in GB, or infinity if the type is not in the catalogue."""
    try:
        return gpu_type(gpu).memory_gb
    except DagsimError:
        return inf


@cache
def _pairs_of(path: str | None, default: float | None) -> MeasuredPairs:
    """Read the pairs in Gavel's table (single-GPU jobs, with rates relative to each job's rate on
    its own) or in Lucid's.
    """
    if path is None:
        return MeasuredPairs({}, default)
    lucid = path.removesuffix(".gz").endswith(".csv")
    try:
        with open_lines(path, ModelError) as file:
            if lucid:
                return _lucid_pairs(csv.DictReader(file), default)
            table = json.load(file)
        types = {gpu_type(name.upper()).name: rows for name, rows in table.items() if "_" not in name}
        return MeasuredPairs({gpu: dict(_relative(rows)) for gpu, rows in types.items()}, default)
    except (OSError, AttributeError, KeyError, TypeError, ValueError, ModelError) as error:
        kind = "Lucid's measured pairs" if lucid else "Gavel's throughputs"
        raise ConfigError(f"sharing: {path} is not a table of {kind} ({error!r})") from None


def _lucid_pairs(rows: Iterable[Mapping[str, str]], default: float | None) -> MeasuredPairs:
    """Return the rates of both jobs in each pair, relative to each job's rate on its own, and the
    memory that both need together.
    """
    rates: dict[_Pair, tuple[float, float]] = {}
    memory_gb: dict[_Pair, float] = {}
    for row in rows:
        one, other = (
            (
                f"{row[f'model{job}']} {row[f'dataset{job}']}{' amp' * int(row[f'amp{job}'])}",
                int(row[f"batchsize{job}"]),
            )
            for job in (1, 2)
        )
        rates[one, other] = float(row["speed1"]), float(row["speed2"])
        # converted from MiB to GiB, the unit used for GPU types
        memory_gb[one, other] = float(row["gmem"]) / 1024
    if not rates:
        raise ValueError("no rows")
    return MeasuredPairs({"": rates}, default, memory_gb)


def _relative(rows: Mapping[str, Any]) -> Iterator[tuple[tuple[TaskKey, TaskKey], tuple[float, float]]]:
    for mine, rates in rows.items():
        for theirs, pair in rates.items():
            if theirs == "null" or ast.literal_eval(mine)[1] != 1:
                continue
            alone = rates["null"], rows[theirs]["null"]
            if min(alone) > 0:
                yield (_key(mine), _key(theirs)), (pair[0] / alone[0], pair[1] / alone[1])


def _key(kind: str) -> TaskKey:
    """Return the model and the batch size of a job type, as the reader of Gavel's traces names them."""
    name = ast.literal_eval(kind)[0]
    batch = re.fullmatch(r"(.*) \(batch size (\d+)\)", name)
    return (batch[1], int(batch[2])) if batch else (name, None)


def _named(task: Task) -> str:
    return f"{task.model or task.name} (batch {task.batch})" if task.batch else task.model or task.name
