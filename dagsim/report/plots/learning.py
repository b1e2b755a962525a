"""Learning curves: how trainings went, one line each, or a band over several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dagsim.report.plots.style import BLUE, COLOURS, INK, dress, figure, headline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["learning_curves"]

Row = Mapping[str, float | None]

_NAMED = 8
"""More runs than these have no legend."""

_PANELS = (
    ("ratio", "completion time / reference", "Validation"),
    ("reward", "reward per episode", "Reward"),
    ("entropy", "nats", "Entropy of the choices"),
    ("kl", "KL of an update", "How far an update moved the policy"),
    ("explained_variance", "explained variance", "What the critic explains"),
    ("samples_per_s", "samples / s", "Speed"),
)


def learning_curves(runs: Mapping[str, Sequence[Row]]) -> Figure:
    """A panel per measure over the samples seen. Several runs are drawn as thin lines with the band from the least to
    the most and their mean; a measure that no run has is left out."""
    panels = [panel for panel in _PANELS if any(_points(rows, panel[0])[0].size for rows in runs.values())]
    across = min(3, max(len(panels), 1))
    down = -(-max(len(panels), 1) // across)
    drawn = figure(4.2 * across, 3.0 * down)
    for place, (name, label, title) in enumerate(panels, 1):
        axes = drawn.add_subplot(down, across, place)
        dress(axes, "samples", label)
        headline(axes, title, "")
        _panel(axes, runs, name)
        if name == "ratio":
            axes.axhline(1.0, color=INK, linewidth=0.8, linestyle="--")
            axes.set_ylim(*_most_of([y for rows in runs.values() for y in _points(rows, name)[1]]))
    if panels and 1 < len(runs) <= _NAMED:
        handles, names = drawn.axes[0].get_legend_handles_labels()
        drawn.legend(handles, names, loc="outside lower center", ncols=across, frameon=False, fontsize=8)
    return drawn


def _panel(axes: Axes, runs: Mapping[str, Sequence[Row]], name: str) -> None:
    curves = {run: points for run, rows in runs.items() if (points := _points(rows, name))[0].size}
    for number, (run, (x, y)) in enumerate(curves.items()):
        axes.plot(x, y, color=COLOURS[number % len(COLOURS)], linewidth=0.9 if len(curves) > 1 else 1.6, label=run)
    if len(curves) > 1:
        end = min(x[-1] for x, _ in curves.values())
        grid = np.linspace(max(x[0] for x, _ in curves.values()), end, 100)
        every = np.array([np.interp(grid, x, y) for x, y in curves.values()])
        axes.fill_between(grid, every.min(axis=0), every.max(axis=0), color=BLUE, alpha=0.15, linewidth=0.0)
        axes.plot(grid, every.mean(axis=0), color=INK, linewidth=1.6)
    axes.ticklabel_format(axis="x", style="sci", scilimits=(0, 4))


def _most_of(values: Sequence[float]) -> tuple[float, float]:
    """Limits that show nearly all values and 1: a beginner's first scores would press everything else flat."""
    low, high = min(*values, 1.0), max(float(np.quantile(values, 0.85)), 1.0)
    room = 0.08 * max(high - low, 0.02)
    return low - room, high + room


def _points(rows: Sequence[Row], name: str) -> tuple[np.ndarray, np.ndarray]:
    """(n,), (n,): samples and values of the rows that have one."""
    pairs = [(row["samples"], row[name]) for row in rows if row[name] is not None and row["samples"] is not None]
    x, y = np.array(pairs, float).reshape(-1, 2).T
    return x[np.isfinite(y)], y[np.isfinite(y)]
