"""A cell: one simulation in a plan. Its id is a hash of everything on which its results depend."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, wraps
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from dagsim.config.dumping import plain
from dagsim.config.schema import Config
from dagsim.experiment.provenance import code_digest, digest, files_in, metric_files, sources_of

Made = TypeVar("Made")


_NOT_THE_CELL = ("engine", "policy", "precision", "seed", "seeds", "train")
"""Configuration keys that do not affect a cell's results, or are hashed separately."""
_ID = 16
"""Number of hexadecimal digits in an id. In a sweep of a million cells, the probability that two
share an id is 10^-7.
"""


@dataclass(frozen=True, eq=False)
class Cell:
    """A single simulation in a plan, defined by a configuration, a policy and a seed. It can be
    sent to another process or machine."""

    config: Config
    policy: str
    seed: int
    label: str
    """The cell's name in tables: the policy, followed in a grid by ``@`` and the cell's values on
    the other axes.
    """
    at: Mapping[str, str] = field(default_factory=dict)
    """The label of the cell's value on each axis of a grid."""

    @property
    def name(self) -> str:
        """The name of the cell's policy in results: the name that the user gave to it, or the
        policy itself.
        """
        return self.policy if self.at else self.label

    @cached_property
    def id(self) -> str:
        """A hash, in hexadecimal digits, of everything on which the cell's results depend.

        Raises:
            ConfigError: A file that the cell depends on is missing.
        """
        return sha256(f"{_content(self.config, self.policy)} {self.seed}".encode()).hexdigest()[:_ID]

    def trace(self) -> tuple[str, Path] | None:
        """Return the SHA-256 and the path of the trace from which the jobs come, or None if they
        come from no trace.

        Raises:
            ConfigError: The file does not exist.
        """
        path = self.config.whole_system.trace_path
        return None if path is None else (digest(path), path)

    def __reduce__(self) -> tuple[Any, ...]:
        return _cell, (_pickled(self.config), self.policy, self.seed, self.label, self.at, self.id)


def _cell(config: bytes, policy: str, seed: int, label: str, at: Mapping[str, str], id_: str) -> Cell:
    """Rebuild a cell that was sent to this process. Its id is that of the sender, whose files may differ. Cells with
    the same configuration share one object with its caches.
    """
    cell = Cell(_unpickled(config), policy, seed, label, at)
    cell.__dict__["id"] = id_
    return cell


@lru_cache(maxsize=8)
def _unpickled(config: bytes) -> Config:
    loaded: Config = pickle.loads(config)
    return loaded


def _last_config(make: Callable[..., Made]) -> Callable[..., Made]:
    """Make ``make`` cache its result for the last configuration, because consecutive cells often
    have the same one.
    """
    last: tuple[Config, tuple[Any, ...], Made] | None = None

    @wraps(make)
    def remembered(config: Config, *more: Any) -> Made:
        nonlocal last
        if last is None or last[0] is not config or last[1] != more:
            last = config, more, make(config, *more)
        return last[2]

    return remembered


@_last_config
def _pickled(config: Config) -> bytes:
    return pickle.dumps(config)


@_last_config
def _content(config: Config, policy: str) -> str:
    """Return a text that contains everything on which the results of a cell depend, except the
    seed.
    """
    described = {key: value for key, value in plain(config).items() if key not in _NOT_THE_CELL}
    trace = config.whole_system.trace_path
    if trace is not None:  # identify the trace by its contents rather than its path
        part, key = ("workload", "path") if "workload" in described else ("system", "trace")
        described = {**described, part: {**described[part], key: digest(trace)}}
    files = [digest(path) for _, _, path in (*sources_of(config, policy), *files_in(described))]
    files += [digest(path) for path in metric_files(config).values()]
    content = {"code": code_digest(), "config": described, "policy": policy, "files": files}
    return json.dumps(_whole_numbers(content), sort_keys=True)


def _whole_numbers(value: Any) -> Any:
    """Convert whole floats to integers, because 20.0 and 20 are the same setting."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _whole_numbers(part) for key, part in value.items()}
        case list():
            return [_whole_numbers(part) for part in value]
    return value
