"""Compute the series of values that both pages and plots show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dagsim.metrics.columns import Floats, ScheduleColumns
from dagsim.metrics.jct import bounded_slowdown, jct, wait
from dagsim.metrics.utilization import Steps, gpus_held, gpus_up, jobs_running, jobs_waiting, node_types, watts
from dagsim.systems.cluster.network.links import LinkUse, busiest

TrainingRow = Mapping[str, float | None]
"""A row of a training log."""

FIGURES = {"wait": "wait (s)", "jct": "job completion time (s)", "slowdown": "bounded slowdown"}
"""The per-job quantities that are shown as distributions, with their labels."""

_OF = {"wait": wait, "jct": jct, "slowdown": bounded_slowdown}
_MEASURES = (
    ("ratio", "completion time / reference", "Validation"),
    ("reward", "reward per episode", "Reward"),
    ("entropy", "nats", "Entropy of the choices"),
    ("kl", "KL of an update", "How far an update moved the policy"),
    ("explained_variance", "explained variance", "What the critic explains"),
    ("samples_per_s", "samples / s", "Speed"),
)
_POINTS = 200


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel: quantities over time that share an axis."""

    title: str
    unit: str
    steps: Mapping[str, Steps]


def jobs_over_time(cols: ScheduleColumns) -> list[Panel]:
    """Return panels with the number of jobs over time and, on a cluster with GPUs, the GPUs by type
    and their power. The list is empty if the schedule covers no time.
    """
    if not cols.horizon_s > 0:
        return []
    panels = [Panel("Jobs", "jobs", {"waiting": jobs_waiting(cols), "running": jobs_running(cols)})]
    if cols.cluster.gpus:
        types, _ = node_types(cols.cluster)
        by_type = {gpu.name: gpus_held(cols, gpu.name) for gpu in types} if len(types) > 1 else {}
        panels.append(Panel("GPUs", "GPUs", {"held": gpus_held(cols), "up": gpus_up(cols), **by_type}))
        panels.append(Panel("Power of the GPUs", "W", {"drawn": watts(cols)}))
    return panels


_MOST_LINKS = 5


def links_over_time(cols: ScheduleColumns, usage: Sequence[LinkUse]) -> list[Panel]:
    """Return a panel that shows the busiest links over time, as shares of their bandwidth. The
    result is empty if nothing was sent."""
    steps = {use.link.name: link_steps(cols, use) for use in busiest(usage, _MOST_LINKS)}
    return [Panel("Busiest links of the network", "share of the bandwidth", steps)] if steps else []


def link_steps(cols: ScheduleColumns, use: LinkUse) -> Steps:
    """Return the fraction of a link's bandwidth that is in use over time."""
    start_s, end_s, bytes_s = np.array(use.traffic).T
    return Steps.of(start_s, end_s, bytes_s / use.link.bandwidth, window=(cols.start_s, cols.end_s))


def jobs_within(cols: ScheduleColumns, figure: str, shortest: float = 0.0) -> tuple[Floats, Floats]:
    """Return the sorted values of a quantity (a key of ``_OF``), and the fraction of accepted jobs
    that are at or below each value.

    Unfinished jobs have no value, so the last fraction is below 1 if there are any.
    Values below ``shortest`` are raised to it, because a logarithmic axis has no 0.
    """
    values = _OF[figure](cols)
    ordered = np.maximum(np.sort(values[np.isfinite(values)]), shortest)
    return ordered, np.arange(1, len(ordered) + 1) / max(int(cols.jobs.accepted.sum()), 1)


@dataclass(frozen=True, slots=True)
class Learning:
    """One measure in several training runs, as the points of each run and the mean over the range
    that all runs have in common.
    """

    name: str
    title: str
    unit: str
    runs: Mapping[str, tuple[Floats, Floats]]
    samples: Floats
    """Samples in the common range. This is empty if the runs have no range in common, or if there
    is only one run.
    """
    mean: Floats
    low: Floats
    high: Floats


def learning_panels(logs: Mapping[str, Sequence[TrainingRow]]) -> list[Learning]:
    """Return a panel for each measure that at least one training run has."""
    panels = []
    for name, unit, title in _MEASURES:
        runs = {run: points for run, rows in logs.items() if len((points := _points(rows, name))[0])}
        if runs:
            panels.append(Learning(name, title, unit, runs, *_common(list(runs.values()))))
    return panels


def _common(curves: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the samples in the range that all curves have in common, and at each of these samples
    the mean, the lowest and the highest value.
    """
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    if len(curves) < 2 or not last > first:
        none = np.zeros(0)
        return none, none, none, none
    grid = np.linspace(first, last, _POINTS)
    every = np.array([np.interp(grid, x, y) for x, y in curves])
    return grid, every.mean(axis=0), every.min(axis=0), every.max(axis=0)


def _points(rows: Sequence[TrainingRow], name: str) -> tuple[Floats, Floats]:
    """Return the number of samples and the value for each row that has both."""
    pairs = [(row["samples"], row[name]) for row in rows if row[name] is not None and row["samples"] is not None]
    x, y = np.array(pairs, float).reshape(-1, 2).T
    finite = np.isfinite(y)
    return x[finite], y[finite]
