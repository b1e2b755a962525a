"""Build the tables of ``dagsim list``, each of which imports the modules it needs only when it is
requested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dagsim.systems import LISTS

_GPU = (
    "fp32_tflops", "tf32_tflops", "fp16_tflops", "memory_gb", "bandwidth_gb_s", "nvlink_gb_s", "tdp_watts",
    "idle_watts",
)  # fmt: skip


class Listing(NamedTuple):
    """A table: its column headers and its rows."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]


def listing(kind: str) -> Listing:
    """Return the table for one of the names in ``LISTINGS``."""
    return LISTINGS[kind]()


def _registry(target: str, thing: str) -> Listing:
    """Return a table of the entries in the registry at ``module:attr``."""
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
    """Return a relative path as text. An absolute path is that of a file that ships with dagsim,
    and is shown as ``shipped``.
    """
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


LISTINGS: Mapping[str, Callable[[], Listing]] = {
    "systems": partial(_registry, "dagsim.systems:SYSTEMS", "system"),
    **{entry.name: partial(_registry, str(entry.target), entry.summary) for entry in LISTS.describe()},
    "executors": partial(_registry, "dagsim.experiment.executors:EXECUTORS", "executor"),
    "gpus": _gpus,
    "workloads": _workloads,
    "configs": _configs,
    "metrics": _metrics,
    "readers": _readers,
    "traces": _traces,
}
"""Everything that ``dagsim list`` can show."""
