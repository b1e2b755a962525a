"""Tables for ``dagsim list``: everything that can be chosen. A table imports its subject only on
request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["LISTINGS", "Listing", "listing"]

_GPU = (
    "fp32_tflops",
    "tf32_tflops",
    "fp16_tflops",
    "memory_gb",
    "bandwidth_gb_s",
    "nvlink_gb_s",
    "tdp_watts",
    "idle_watts",
)


class Listing(NamedTuple):
    """A table: its heads and rows."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]


def listing(kind: str) -> Listing:
    """Return the table of one of ``LISTINGS``."""
    return LISTINGS[kind]()


def _registry(target: str, thing: str) -> Listing:
    """The entries of the registry at ``module:attr``."""
    from dagsim.own_code import attribute

    entries = attribute(target).describe()
    if any(entry.tags for entry in entries):
        rows = [(entry.name, entry.summary, ", ".join(entry.tags)) for entry in entries]
        return Listing((thing, "what it is", "tags"), rows)
    return Listing((thing, "what it is"), [(entry.name, entry.summary) for entry in entries])


def _gpus() -> Listing:
    from dagsim.model import GPU_TYPES

    rows = [(gpu.name, *(getattr(gpu, name) for name in _GPU)) for gpu in GPU_TYPES.values()]
    return Listing(("gpu", *_GPU), rows)


def _workloads() -> Listing:
    from dagsim.config.bundled import WORKLOADS, shipped

    presets = [(name, preset.summary) for name, preset in WORKLOADS.items()]
    files = [(name, f"jobs in a file, {_where(path)}") for name, path in shipped("workloads").items()]
    return Listing(("workload", "what it is"), presets + files)


def _configs() -> Listing:
    from dagsim.config.bundled import opening_of, shipped

    rows = [(name, opening_of(path), _where(path)) for name, path in shipped("configs").items()]
    return Listing(("config", "what it is", "file"), rows)


def _where(path: Path) -> str:
    """Return a relative path as text, and ``shipped`` for an absolute one, which belongs to dagsim."""
    return "shipped" if path.is_absolute() else str(path)


def _metrics() -> Listing:
    from dagsim.metrics.own import METRICS
    from dagsim.metrics.summary import glossary

    own = [(entry.name, "", entry.summary) for entry in METRICS.describe()]
    rows = [(term.name, term.unit, term.meaning) for term in glossary()]
    return Listing(("metric", "unit", "what it is"), [*rows, *own])


def _readers() -> Listing:
    from dagsim.traces import READERS, reader

    return Listing(("format", "what it reads"), [(name, reader(name).summary) for name in READERS.names()])


def _traces() -> Listing:
    from dagsim.traces.catalogue import CATALOGUE

    return Listing(
        ("trace", "what it is", "format", "files", "bytes", "terms"),
        [
            (name, trace.title, trace.format, len(trace.files) or "by hand", trace.bytes, trace.terms)
            for name, trace in CATALOGUE.items()
        ],
    )


_CLUSTER = "dagsim.systems.cluster"

LISTINGS: Mapping[str, Callable[[], Listing]] = {
    "systems": partial(_registry, "dagsim.systems:SYSTEMS", "system"),
    "policies": partial(_registry, f"{_CLUSTER}.policies:POLICIES", "policy"),
    "spark-policies": partial(_registry, "dagsim.systems.spark.policies:SPARK_POLICIES", "policy"),
    "ramp-policies": partial(_registry, "dagsim.systems.ramp.policies:RAMP_POLICIES", "policy"),
    "placements": partial(_registry, f"{_CLUSTER}.policies:PLACEMENT_RULES", "placement"),
    "networks": partial(_registry, f"{_CLUSTER}.network:NETWORKS", "network"),
    "setups": partial(_registry, f"{_CLUSTER}.models:SETUPS", "set-up"),
    "communications": partial(_registry, f"{_CLUSTER}.models:COMMUNICATIONS", "communication model"),
    "sharings": partial(_registry, f"{_CLUSTER}.models:SHARINGS", "sharing model"),
    "runtimes": partial(_registry, f"{_CLUSTER}.models:RUNTIMES", "runtime"),
    "failures": partial(_registry, f"{_CLUSTER}.models:FAILURE_MODELS", "failure model"),
    "codecs": partial(_registry, f"{_CLUSTER}.codecs:CODECS", "codec"),
    "spark-codecs": partial(_registry, "dagsim.systems.spark.codecs:SPARK_CODECS", "codec"),
    "ramp-codecs": partial(_registry, "dagsim.systems.ramp.codecs:RAMP_CODECS", "codec"),
    "rewards": partial(_registry, f"{_CLUSTER}.rewards:TERMS", "reward term"),
    "spark-rewards": partial(_registry, "dagsim.systems.spark.rewards:SPARK_TERMS", "reward term"),
    "ramp-rewards": partial(_registry, "dagsim.systems.ramp.rewards:RAMP_TERMS", "reward term"),
    "nets": partial(_registry, "dagsim.agents.nets:NETS", "net"),
    "algorithms": partial(_registry, "dagsim.agents.config:ALGORITHMS", "algorithm"),
    "advantages": partial(_registry, "dagsim.agents.advantages:ADVANTAGES", "estimator of advantages"),
    "executors": partial(_registry, "dagsim.experiment.executors:EXECUTORS", "executor"),
    "gpus": _gpus,
    "workloads": _workloads,
    "configs": _configs,
    "metrics": _metrics,
    "readers": _readers,
    "traces": _traces,
}
"""Everything that ``dagsim list`` shows."""
