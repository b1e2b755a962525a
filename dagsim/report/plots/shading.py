"""The Gantt chart of large schedules: nodes as rows, shaded by how much of them runs hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dagsim.metrics.columns import Floats, Ints, ScheduleColumns
from dagsim.report.plots.style import BLUE, INK, LINE, ORANGE, dress, figure, headline, unit_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["binned", "shaded_nodes"]

_BINS = 900
_MOST_ROWS = 600
"""More nodes than these share rows with their neighbours."""


def shaded_nodes(made: ScheduleColumns, title: str, note: str) -> Figure:
    """Nodes as rows and time as columns, shaded by the share of held GPUs. Orange while the node is down.

    Of a cluster without GPUs, every node is a row, shaded by the number of its runs.
    """
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.ticker import PercentFormatter

    gpus = np.array([node.gpus for node in made.cluster.nodes], float)
    size = gpus if gpus.any() else np.ones(len(gpus))
    nodes = np.flatnonzero(size)
    rows = min(len(nodes), _MOST_ROWS)
    row_of = np.zeros(len(size), np.int64)
    row_of[nodes] = np.arange(len(nodes)) * rows // len(nodes)
    edges_s = np.linspace(made.start_s, max(made.end_s, made.start_s + 1e-9), _BINS + 1)
    runs, outages = made.runs, made.outages
    weight = runs.held if gpus.any() else np.ones(len(runs))
    held = binned(row_of[runs.node], runs.start_s, runs.end_s, weight, edges_s, rows)
    down = binned(row_of[outages.node], outages.start_s, outages.end_s, size[outages.node], edges_s, rows)
    capacity = np.bincount(row_of, weights=size, minlength=rows)[:, None]
    share = np.ma.masked_array(held / capacity, down / capacity > 0.5)

    unit = unit_of(made.horizon_s)
    drawn = figure(11.0, min(max(2.0 + 0.12 * rows, 3.0), 8.0))
    axes = drawn.add_subplot()
    dress(axes, f"time [{unit.sign}]", f"{len(nodes):,} nodes", grid="")
    headline(axes, title, note)
    image = axes.imshow(
        share,
        aspect="auto",
        interpolation="nearest",
        cmap=LinearSegmentedColormap.from_list("held", ["#f2f2f2", BLUE, "#003f63"]).with_extremes(bad=ORANGE),
        vmin=0.0,
        vmax=1.0 if gpus.any() else None,
        extent=(edges_s[0] / unit.seconds, edges_s[-1] / unit.seconds, rows - 0.5, -0.5),
    )
    bar = drawn.colorbar(image, ax=axes, fraction=0.03, pad=0.01)
    if gpus.any():
        bar.set_ticks([0.0, 0.5, 1.0])
        bar.formatter = PercentFormatter(1.0)
    what = "GPUs held" if gpus.any() else "runs per node"
    bar.set_label(what + ("   (orange: node down)" if share.mask.any() else ""), fontsize=10, color=INK)
    bar.ax.tick_params(labelsize=9, colors=LINE, labelcolor=INK, length=3)
    bar.outline.set_visible(False)
    every = -(-len(nodes) // 40)
    axes.set_yticks(row_of[nodes[::every]], [made.cluster.nodes[place].name for place in nodes[::every].tolist()])
    axes.tick_params(axis="y", labelsize=7, length=0)
    return drawn


def binned(row: Ints, start_s: Floats, end_s: Floats, weight: Floats, edges_s: Floats, rows: int) -> np.ndarray:
    """(rows, bins): the time average of the weight that is on in each equal bin. O(intervals + rows x bins)."""
    bins = len(edges_s) - 1
    width = (edges_s[-1] - edges_s[0]) / bins
    rising, risen = np.zeros((rows, bins + 1)), np.zeros((rows, bins + 2))
    for at_s, sign in ((start_s, 1.0), (end_s, -1.0)):
        at = np.clip((at_s - edges_s[0]) / width, 0.0, bins)
        place = at.astype(np.int64)
        np.add.at(rising, (row, place), sign * weight * (place + 1 - at))  # what is left of the bin it falls in
        np.add.at(risen, (row, place + 1), sign * weight)  # and all bins after that
    averages: np.ndarray = (rising + np.cumsum(risen, axis=1)[:, :-1])[:, :bins]
    return averages
