"""Plots of curves: distributions of completion times, utilisation and queue over time, and learning
curves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dagsim.metrics.columns import AnySchedule, Floats, ScheduleColumns, columns
from dagsim.metrics.utilization import Steps, gpu_utilization, node_types
from dagsim.report.panels import Learning, TrainingRow, jobs_over_time, jobs_within, learning_panels
from dagsim.report.plots.style import (
    BLUE,
    COLOURS,
    INK,
    ORANGE,
    SHORTEST_S,
    dress,
    figure,
    headline,
    log_seconds,
    nothing,
    unit_of,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_STEPS = 3000
_BINS = 600
"""With more steps than this, the timeline shows averages over ``_BINS`` bins."""
_DASHES = ("-", "--", "-.", ":")


def jct_cdf(runs: Mapping[str, AnySchedule]) -> Figure:
    """Plot the fraction of accepted jobs that completed within a given time, with one curve for
    each named schedule.

    The curve of a schedule with unfinished jobs ends below 1.
    """
    drawn = figure(7.0, 4.2)
    axes = drawn.add_subplot()
    dress(axes, "job completion time", "fraction of jobs completed within it", grid="both")
    headline(axes, "Job completion times")
    curves = {name: _cdf(columns(source)) for name, source in runs.items()}
    ends = [times_s[place] for times_s, _, _ in curves.values() if len(times_s) for place in (0, -1)]
    if not ends:
        nothing(axes, "no job completed")
        return drawn
    log_seconds(axes, "x", min(ends), max(ends))
    for place, (name, (times_s, done, note)) in enumerate(curves.items()):
        colour, dash = COLOURS[place % len(COLOURS)], _DASHES[place // len(COLOURS) % len(_DASHES)]
        x = np.concatenate((axes.get_xlim()[:1], times_s, axes.get_xlim()[1:]))
        y = np.concatenate(([0.0], done, done[-1:] if len(done) else [0.0]))
        axes.step(x, y, where="post", label=f"{name}: {note}", color=colour, linestyle=dash, linewidth=1.8)
    axes.set_ylim(0.0, 1.02)
    axes.legend(loc="best", fontsize=9, frameon=False, labelcolor=INK, handlelength=1.6)
    return drawn


def timeline(source: AnySchedule) -> Figure:
    """Plot the held GPUs over time, stacked by type, with a line for the GPUs that are up. A second
    panel below shows running and waiting jobs.
    """
    cols = columns(source)
    unit = unit_of(cols.horizon_s)
    with_gpus = cols.cluster.gpus > 0
    drawn = figure(10.0, 5.4 if with_gpus else 2.8)
    heights = (3, 2) if with_gpus else (1,)
    panels = drawn.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    dress(panels[-1], f"time [{unit.sign}]")
    if not cols.horizon_s > 0:
        nothing(panels[0], "no time passed")
        return drawn
    panels_of = {panel.title: panel.steps for panel in jobs_over_time(cols)}
    waiting, running = panels_of["Jobs"]["waiting"], panels_of["Jobs"]["running"]
    gpus = dict(panels_of.get("GPUs", {}))
    up, whole = gpus.pop("up", waiting), gpus.pop("held", waiting)
    held = gpus or {gpu.name: whole for gpu in node_types(cols.cluster)[0]}
    time_s, note = _common_times([*held.values(), up, waiting, running], cols.start_s, cols.end_s)
    at = time_s / unit.seconds
    if with_gpus:
        dress(panels[0], y="GPUs")
        headline(panels[0], f"GPUs held: {100 * gpu_utilization(cols):.1f}% of {cols.cluster.gpus:,}", note)
        _draw_held(panels[0], at, {name: _values(steps, time_s) for name, steps in held.items()}, _values(up, time_s))
    dress(panels[-1], f"time [{unit.sign}]", "jobs")
    headline(panels[-1], f"Jobs waiting: {waiting.mean():.3g} on average, {waiting.max():,.0f} at most")
    _draw_jobs(panels[-1], at, _values(waiting, time_s), _values(running, time_s))
    panels[-1].set_xlim(at[0], at[-1])
    return drawn


def _draw_held(axes: Axes, at: Floats, held: Mapping[str, Floats], up: Floats) -> None:
    floor = np.zeros(len(at))
    for place, (name, gpus) in enumerate(held.items()):
        colour = COLOURS[place % len(COLOURS)]
        axes.fill_between(at, floor, floor + gpus, step="post", color=colour, alpha=0.85, linewidth=0.0, label=name)
        floor = floor + gpus
    axes.step(at, up, where="post", color=INK, linewidth=1.2, label="up")
    axes.set_ylim(0.0, max(float(up.max()), 1.0) * 1.05)
    whole_numbers(axes)
    _legend_beside(axes, top_first=True)


def _draw_jobs(axes: Axes, at: Floats, waiting: Floats, running: Floats) -> None:
    axes.fill_between(at, 0.0, waiting, step="post", color=ORANGE, alpha=0.85, linewidth=0.0, label="waiting")
    axes.step(at, running, where="post", color=BLUE, linewidth=1.4, label="running")
    axes.set_ylim(0.0, max(float(waiting.max()), float(running.max()), 1.0) * 1.08)
    whole_numbers(axes)
    _legend_beside(axes, top_first=False)


def _legend_beside(axes: Axes, *, top_first: bool) -> None:
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(1.005, 1.02),
        fontsize=9,
        frameon=False,
        labelcolor=INK,
        handlelength=1.2,
        reverse=top_first,
    )


def _cdf(cols: ScheduleColumns) -> tuple[Floats, Floats, str]:
    """Return the sorted completion times, the fraction of accepted jobs completed by each of them,
    and a remark.
    """
    times_s, shares = jobs_within(cols, "jct", SHORTEST_S)
    accepted = int(cols.jobs.accepted.sum())
    if len(times_s) < accepted:
        note = f"{accepted - len(times_s):,} of {accepted:,} unfinished"
    else:
        mean_s = float(times_s.mean()) if len(times_s) else 0.0
        note = f"mean {mean_s / unit_of(mean_s).seconds:.3g} {unit_of(mean_s).sign}"
    return times_s, shares, note


def _common_times(steps: list[Steps], start_s: float, end_s: float) -> tuple[Floats, str]:
    """Return the moments at which one of the step functions changes. If there are too many moments
    to distinguish, return the edges of bins instead.
    """
    time_s = np.unique(np.concatenate([np.append(curve.time_s, (start_s, end_s)) for curve in steps]))
    if len(time_s) <= _MOST_STEPS:
        return time_s, ""
    width_s = (end_s - start_s) / _BINS
    unit = unit_of(width_s)
    return np.linspace(start_s, end_s, _BINS + 1), f"averages over {width_s / unit.seconds:.3g} {unit.sign}"


def _values(steps: Steps, time_s: Floats) -> Floats:
    """Return the average between consecutive moments. The last average is repeated, so that a step
    curve extends to the end.
    """
    averages = steps.binned(time_s)
    return np.append(averages, averages[-1])


_NAMED = 8
"""A legend is shown for at most this many runs."""


def learning_curves(runs: Mapping[str, Sequence[TrainingRow]]) -> Figure:
    """Plot one panel per measure, with the number of samples on the horizontal axis.

    Several runs are drawn as thin lines, with their mean and a band from the lowest to the highest
    value. A measure that no run has is left out.
    """
    panels = learning_panels(runs)
    across = min(3, max(len(panels), 1))
    down = -(-max(len(panels), 1) // across)
    drawn = figure(4.2 * across, 3.0 * down)
    for place, panel in enumerate(panels, 1):
        axes = drawn.add_subplot(down, across, place)
        dress(axes, "samples", panel.unit)
        headline(axes, panel.title, "")
        _draw(axes, panel)
        if panel.name == "ratio":
            axes.axhline(1.0, color=INK, linewidth=0.8, linestyle="--")
            axes.set_ylim(*_most_of([value for _, y in panel.runs.values() for value in y]))
    if panels and 1 < len(runs) <= _NAMED:
        handles, names = drawn.axes[0].get_legend_handles_labels()
        drawn.legend(handles, names, loc="outside lower center", ncols=across, frameon=False, fontsize=8)
    return drawn


def _draw(axes: Axes, panel: Learning) -> None:
    for number, (run, (x, y)) in enumerate(panel.runs.items()):
        axes.plot(x, y, color=COLOURS[number % len(COLOURS)], linewidth=0.9 if len(panel.runs) > 1 else 1.6, label=run)
    if len(panel.samples):
        axes.fill_between(panel.samples, panel.low, panel.high, color=BLUE, alpha=0.15, linewidth=0.0)
        axes.plot(panel.samples, panel.mean, color=INK, linewidth=1.6)
    axes.ticklabel_format(axis="x", style="sci", scilimits=(0, 4))


def _most_of(values: Sequence[float]) -> tuple[float, float]:
    """Return axis limits that include 1 and nearly all values. They may exclude the first scores of
    a training run, because these would flatten the rest of the curve.
    """
    low, high = min(*values, 1.0), max(float(np.quantile(values, 0.85)), 1.0)
    room = 0.08 * max(high - low, 0.02)
    return low - room, high + room
