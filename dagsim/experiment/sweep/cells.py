"""Cells: one configuration, one policy, one seed; named by their content, so that none is ever run twice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagsim
from dagsim.config.schema import Config, plain
from dagsim.errors import ConfigError
from dagsim.experiment.agents import external_command, is_agent, shipped_agent
from dagsim.experiment.manifest import file_hash
from dagsim.experiment.scenario import experiment_seeds, scenario_of
from dagsim.experiment.sweep.described import Sweep, Variant
from dagsim.registry import Spec
from dagsim.traces.trace_file import TraceFile

__all__ = ["Cell", "cells_of", "code_digest", "config_of"]

_SIMULATES = ("model", "workload", "traces", "systems", "metrics", "seeds.py", "experiment/record.py")
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
    digest = None if trace is None else _trace_hash(trace)
    content = json.dumps(_whole_numbers(_content(config, whole, digest)), sort_keys=True)
    for seed in experiment_seeds(config):
        id_ = sha256(f"{content} {seed}".encode()).hexdigest()[:_ID]
        yield Cell(id_, config.policy, seed, variant.at, variant.label, text, digest)


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
    return {"code": code_digest(), "config": described, "policy": config.policy, "files": _files(config)}


def _with_trace(described: Mapping[str, Any], trace: str) -> dict[str, Any]:
    """The same, with what the trace holds in the place of where it lies."""
    part, key = ("workload", "path") if "workload" in described else ("system", "trace")
    return {**described, part: {**described[part], key: trace}}


def _files(config: Config) -> list[str]:
    """Hashes of the files that the policy consists of: an agent's checkpoint, or a user's own module."""
    if (command := external_command(config.policy)) is not None:
        return [_hash(path) for path in map(Path, command[0].split()) if path.is_file()]
    name, params = Spec.parse(config.policy)
    if ":" in name:
        try:
            found = find_spec(name.partition(":")[0])
        except (ImportError, ValueError):
            found = None
        return [] if found is None or found.origin is None else [_hash(Path(found.origin))]
    scenario = scenario_of(config)
    if not is_agent(scenario, config.policy):
        return []
    return [_hash(Path(str(params.get("checkpoint") or shipped_agent(name, scenario.system))))]


def config_of(cell: Cell) -> Config:
    """The configuration of a cell."""
    return _config(cell.config)


@lru_cache(maxsize=8)
def _config(text: str) -> Config:
    config: Config = Config.model_validate(json.loads(text))
    return config


@lru_cache(maxsize=64)
def _hash(path: Path) -> str:
    if not path.is_file():
        raise ConfigError(f"sweep: there is no file {path}")
    return file_hash(path)


def _trace_hash(path: Path) -> str:
    return _hash_of_trace(path, _stamp(path))


@lru_cache(maxsize=16)
def _hash_of_trace(path: Path, stamp: tuple[int, int]) -> str:
    return file_hash(path)


def _stamp(path: Path) -> tuple[int, int]:
    if not path.exists():
        raise ConfigError(f"sweep: there is no trace {path}")
    facts = path.stat()
    return facts.st_mtime_ns, facts.st_size


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
