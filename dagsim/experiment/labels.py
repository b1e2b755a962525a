"""Names of an experiment for people: its workload in a few words, and the unit that its comparisons count."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagsim.config.bundled import WORKLOADS
from dagsim.config.schema import Config
from dagsim.metrics.standings import Sample
from dagsim.traces.trace_file import TraceFile
from dagsim.workload import PRESETS, Sessions, Synthetic

if TYPE_CHECKING:
    from dagsim.experiment.folder import RunFolder

__all__ = ["metric_of", "run_label", "sample_of", "workload_label"]


def metric_of(config: Config) -> str:
    """The metric that policies are ranked by: the merit of the experiment's system."""
    return str(getattr(config.system, "merit", "jct_s.mean"))


def sample_of(config: Config) -> Sample:
    """The sample that one seed of the experiment is."""
    if config.system.kind != "cluster" or not isinstance(config.workload, TraceFile):
        return Sample.SEED
    return Sample.TRACE if config.workload.window is None else Sample.WINDOW


def workload_label(config: Config) -> str:
    """The workload in a few words: ``heterogeneous, load 0.7``, or ``jobs.csv, windows of 200 jobs``."""
    if config.system.kind != "cluster":
        return str(config.system.kind)
    workload = config.workload
    if isinstance(workload, TraceFile):
        name = Path(workload.path).name
        return name if workload.window is None else f"{name}, windows of {workload.window:,} jobs"
    presets = PRESETS if isinstance(workload, Synthetic) else WORKLOADS  # fits are sessions, and slow to read
    like = {name: preset.workload for name, preset in presets.items()}
    changes = {name: _changes(other, workload) for name, other in like.items() if type(other) is type(workload)}
    nearest = min(changes, key=lambda name: len(changes[name]))
    plain = {key: value for key, value in changes[nearest].items() if isinstance(value, int | float | str)}
    if len(plain) < len(changes[nearest]):
        return f"{workload.kind}, {workload.count:,} jobs, load {workload.load:g}"
    return ", ".join([nearest, *(f"{key} {_short(value)}" for key, value in plain.items())])


def run_label(folder: RunFolder) -> str:
    """The name that the user gave a run, and its workload."""
    label = workload_label(folder.config)
    return label if folder.name is None else f"{folder.name}: {label}"


def _changes(preset: Synthetic | Sessions, workload: Synthetic | Sessions) -> dict[str, Any]:
    """The fields in which ``workload`` differs from ``preset``, with its values."""
    mine = {field.name: getattr(workload, field.name) for field in fields(workload)}
    return {name: value for name, value in mine.items() if value != getattr(preset, name)}


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:g}"
