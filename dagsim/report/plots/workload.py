"""Plots of a workload: sizes and shapes of jobs, durations and demands of tasks, and arrivals over
time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dagsim.model.arithmetic import whole_sum
from dagsim.report.plots.style import (
    BLUE,
    COLOURS,
    SHORTEST_S,
    dress,
    figure,
    headline,
    log_seconds,
    nothing,
    unit_of,
    whole_numbers,
)
from dagsim.text import count_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dagsim.workload.info import Tally

_BINS = 60
_MOST_BARS = 10
_MOST_SIGNS = 30
"""Maximum total number of characters in labels that are placed side by side."""


def workload(tally: Tally, name: str) -> Figure:
    """Plot six panels: the size and shape of jobs, the work of tasks, instances, requested GPUs,
    arrivals by hour of the day, and arrivals over time.
    """
    drawn = figure(13.0, 7.0)
    grid = drawn.subplots(2, 3)
    shape, work, instances, gpus, hours, arrivals = grid.ravel()
    _jobs(shape, {"tasks": tally.tasks, "depth": tally.depths, "width": tally.widths})
    headline(shape, f"{name}: {count_of(len(tally.arrivals), 'job')}")
    _work(work, np.asarray(tally.work))
    _counts(instances, np.asarray(tally.instances))
    _bars(gpus, {f"{value:g}": count for value, count in sorted(tally.by_gpus.items())})
    _hours(hours, [tally.by_hour[hour] for hour in range(24)])
    _over_time(arrivals, np.asarray(tally.arrivals))
    return drawn


def _jobs(axes: Axes, columns: Mapping[str, Sequence[float]]) -> None:
    dress(axes, "tasks of a job; on its longest chain (depth); side by side (width)", "fraction of jobs", grid="both")
    for colour, (name, values) in zip(COLOURS, columns.items(), strict=False):
        _cdf(axes, np.asarray(values), name, colour)
    axes.set_xscale("log")
    axes.legend(frameon=False, fontsize=9, loc="lower right")


def _work(axes: Axes, work: np.ndarray) -> None:
    dress(axes, "work of an instance (s, where the trace gives times)", "fraction of tasks", grid="both")
    headline(axes, "Work")
    if not len(work):
        nothing(axes, "no tasks")
        return
    shown = np.maximum(work, SHORTEST_S)
    _cdf(axes, shown, "", BLUE)
    log_seconds(axes, "x", float(shown.min()), float(shown.max()), most=5)


def _counts(axes: Axes, instances: np.ndarray) -> None:
    dress(axes, "instances of a task", "fraction of tasks", grid="both")
    headline(axes, "Instances")
    _cdf(axes, instances, "", BLUE)
    axes.set_xscale("log")


def _bars(axes: Axes, counts: Mapping[str, int]) -> None:
    dress(axes, "GPUs of an instance", "tasks")
    headline(axes, "GPUs asked for")
    shown = dict(list(counts.items())[:_MOST_BARS])
    if len(counts) > _MOST_BARS:
        kept = sorted(sorted(counts, key=lambda name: -counts[name])[: _MOST_BARS - 1], key=float)
        shown = {name: counts[name] for name in kept}
        shown["others"] = whole_sum(counts.values()) - whole_sum(shown.values())
    axes.bar(list(shown), list(shown.values()), color=BLUE, width=0.6)
    axes.set_xlim(-0.6, max(len(shown), 4) - 0.4)
    if sum(map(len, shown)) > _MOST_SIGNS:
        axes.tick_params(axis="x", labelrotation=45)
    whole_numbers(axes)


def _hours(axes: Axes, counts: Sequence[int]) -> None:
    dress(axes, "hour of the day (time 0 of the trace is midnight)", "jobs")
    headline(axes, "Arrivals by hour")
    axes.bar(range(24), counts, color=BLUE, width=0.8)
    axes.set_xticks(range(0, 24, 3))
    whole_numbers(axes)


def _over_time(axes: Axes, arrivals_s: np.ndarray) -> None:
    span_s = float(arrivals_s.max() - arrivals_s.min()) if len(arrivals_s) else 0.0
    unit = unit_of(span_s)
    width = span_s / _BINS / unit.seconds
    dress(axes, f"time ({unit.sign})", f"jobs per {width:.3g} {unit.sign}" if width else "jobs")
    headline(axes, "Arrivals over time")
    if not span_s:
        nothing(axes, "all jobs arrive at once")
        return
    counts, edges = np.histogram(arrivals_s / unit.seconds, bins=_BINS)
    axes.stairs(counts, edges, color=BLUE, fill=True, alpha=0.6)
    whole_numbers(axes)


def _cdf(axes: Axes, values: np.ndarray, label: str, colour: str) -> None:
    """Plot the fraction of values at or below each value. Only a few points are drawn, even if
    there are many values.
    """
    levels, counts = np.unique(values, return_counts=True)
    if not len(levels):
        return
    done = np.cumsum(counts) / len(values)
    axes.step([levels[0], *levels], [0.0, *done], where="post", color=colour, linewidth=1.8, label=label)
    axes.set_ylim(0.0, 1.02)
