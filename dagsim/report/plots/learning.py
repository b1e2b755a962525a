"""Learning curves: how trainings went, one line each, or a band over several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dagsim.report.plots.style import BLUE, COLOURS, INK, dress, figure, headline
from dagsim.report.series import Learning, Row, learning_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["learning_curves"]

_NAMED = 8
"""More runs than these have no legend."""


def learning_curves(runs: Mapping[str, Sequence[Row]]) -> Figure:
    """A panel per measure over the samples seen. Several runs are drawn as thin lines with the band from the least to
    the most and their mean; a measure that no run has is left out."""
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
    """Limits that show nearly all values and 1: a beginner's first scores would press everything else flat."""
    low, high = min(*values, 1.0), max(float(np.quantile(values, 0.85)), 1.0)
    room = 0.08 * max(high - low, 0.02)
    return low - room, high + room
