"""The Gantt chart, which shows each GPU over time, with one colour per job. For large schedules, it
shows one row per node, shaded by utilisation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dagsim.metrics.columns import AnySchedule, Floats, Ints, ScheduleColumns, columns
from dagsim.metrics.lanes import Bars, Lanes, bars_of, lanes_of
from dagsim.model import Kind
from dagsim.pictures.colours import job_colour, readable_on
from dagsim.report.plots.style import BLUE, GREY, INK, LINE, ORANGE, Unit, dress, figure, headline, nothing, unit_of
from dagsim.text import count_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_LANES = 200
_MOST_BARS = 20_000
"""Limits of the bar chart. Beyond either limit, bars would be thinner than a pixel, so the chart
shades nodes instead.
"""
_MOST_LABELS = 400


def gantt(source: AnySchedule) -> Figure:
    """Plot one lane per GPU, with a bar for each run in the colour of its job. For large schedules,
    plot one row per node, shaded by the fraction of held GPUs.

    A hatched part at the beginning of a bar is time for set-up or transfer. A cross marks the end
    of a failed run, and a stroke marks the end of a preempted run. A node that is down is grey.
    """
    cols = columns(source)
    lanes = lanes_of(cols)
    unit = unit_of(cols.horizon_s)
    entries = int(np.count_nonzero(cols.runs.end_s > cols.runs.start_s))
    if lanes.total > _MOST_LANES or entries > _MOST_BARS:
        return shaded_nodes(cols, _title(cols), _gpus_by_type(cols))
    drawn = figure(11.0, min(max(1.7 + 0.17 * lanes.height, 2.6), 14.0))
    axes = drawn.add_subplot()
    dress(axes, f"time [{unit.sign}]", grid="x")
    headline(axes, _title(cols), _gpus_by_type(cols))
    if not entries:
        nothing(axes, "nothing ran")
        return drawn
    bars = bars_of(cols, lanes)
    axes.set_xlim(cols.start_s / unit.seconds, max(cols.end_s, cols.start_s + 1e-9) / unit.seconds)
    axes.set_ylim(lanes.height + 0.2, -0.2)
    _draw_outages(axes, cols, lanes, unit)
    _draw_bars(axes, cols, bars, unit)
    _draw_ends(axes, cols, bars, unit)
    _draw_labels(axes, cols, bars, unit, drawn.get_size_inches())
    _name_lanes(axes, cols, lanes)
    if axes.get_legend_handles_labels()[0]:
        drawn.legend(loc="outside lower right", ncols=4, fontsize=8, labelcolor=INK, frameon=False, borderaxespad=0)
    return drawn


def _title(cols: ScheduleColumns) -> str:
    on = count_of(cols.cluster.gpus, "GPU") if cols.cluster.gpus else f"{len(cols.cluster.nodes):,} CPU machines"
    return f"{count_of(len(cols.jobs), 'job')} on {on}"


def _gpus_by_type(cols: ScheduleColumns) -> str:
    return "   ".join(f"{count:,} x {name}" for name, count in cols.cluster.gpus_by_type().items())


def _draw_bars(axes: Axes, cols: ScheduleColumns, bars: Bars, unit: Unit) -> None:
    from matplotlib.collections import PolyCollection

    runs = cols.runs
    start, end = runs.start_s[bars.run] / unit.seconds, runs.end_s[bars.run] / unit.seconds
    pad = 0.06 * np.minimum(bars.bottom - bars.top, 1.0)
    top, bottom = bars.top + pad, bars.bottom - pad
    colours = _colours(runs.job[bars.run])
    edge = 0.5 if len(bars.run) < 3000 else 0.0
    axes.add_collection(
        PolyCollection(_boxes(start, end, top, bottom), facecolors=colours, edgecolors="white", linewidths=edge)
    )
    setting_up = np.flatnonzero(runs.computing_s[bars.run] > runs.start_s[bars.run])
    if len(setting_up):
        computing = runs.computing_s[bars.run[setting_up]] / unit.seconds
        boxes = _boxes(start[setting_up], computing, top[setting_up], bottom[setting_up])
        axes.add_collection(
            PolyCollection(
                boxes,
                facecolors=(1, 1, 1, 0.55),
                edgecolors=GREY,
                linewidths=0.0,
                hatch="//////",
                label="set-up, transfer",
            )
        )


def _draw_outages(axes: Axes, cols: ScheduleColumns, lanes: Lanes, unit: Unit) -> None:
    from matplotlib.collections import PolyCollection

    outages = cols.outages
    if not len(outages.node):
        return
    first, count = lanes.first[outages.node], lanes.count[outages.node]
    boxes = _boxes(outages.start_s / unit.seconds, outages.end_s / unit.seconds, first, first + count)
    label = "node down" if outages.failed.all() else "node down or off"
    axes.add_collection(
        PolyCollection(
            boxes, facecolors="#e4e4e4", edgecolors=LINE, linewidths=0.0, hatch="xxxx", zorder=0.9, label=label
        )
    )


def _draw_ends(axes: Axes, cols: ScheduleColumns, bars: Bars, unit: Unit) -> None:
    outcome = cols.runs.outcome[bars.run]
    for kind, marker, name in ((Kind.PREEMPTED, "|", "preempted"), (Kind.FAILED, "x", "failed")):
        stopped = outcome == kind
        if stopped.any():
            at = cols.runs.end_s[bars.run[stopped]] / unit.seconds
            middle = (bars.top[stopped] + bars.bottom[stopped]) / 2
            axes.scatter(at, middle, s=26, marker=marker, color=INK, linewidths=1.3, label=name, zorder=3)


def _draw_labels(axes: Axes, cols: ScheduleColumns, bars: Bars, unit: Unit, inches: np.ndarray) -> None:
    """Write the name of the job into the tallest bar of each run if the name fits."""
    left, right = axes.get_xlim()
    lane_points = inches[1] * 72 * 0.8 / abs(np.subtract(*axes.get_ylim()))
    if lane_points < 7:
        return
    points_per_unit = inches[0] * 72 * 0.85 / (right - left)
    labelled: set[int] = set()
    tallest_first = np.argsort(-(bars.bottom - bars.top), kind="stable")
    for bar in tallest_first.tolist():
        entry = int(bars.run[bar])
        start = np.fmax(cols.runs.start_s[entry], cols.runs.computing_s[entry]) / unit.seconds
        end = cols.runs.end_s[entry] / unit.seconds
        name = cols.jobs.ids[int(cols.runs.job[entry])]
        room = (end - start) * points_per_unit > 4.2 * len(name) + 4 and bars.bottom[bar] - bars.top[bar] > 0.7
        if room and entry not in labelled and len(labelled) < _MOST_LABELS:
            labelled.add(entry)
            colour = job_colour(int(cols.runs.job[entry]))
            axes.text(
                (start + end) / 2,
                (bars.top[bar] + bars.bottom[bar]) / 2,
                name,
                ha="center",
                va="center_baseline",
                fontsize=6.5,
                color=readable_on(colour),
                clip_on=True,
            )


def _name_lanes(axes: Axes, cols: ScheduleColumns, lanes: Lanes) -> None:
    """Label the lanes with the name of each node at its middle, and with GPU numbers if they fit."""
    nodes = [place for place, count in enumerate(lanes.count.tolist()) if count]
    middles = [float(lanes.first[place] + lanes.count[place] / 2) for place in nodes]
    numbered = bool(cols.cluster.gpus) and lanes.total <= 48
    axes.set_yticks(middles, [cols.cluster.nodes[place].name for place in nodes])
    axes.tick_params(axis="y", which="major", length=0, labelsize=9 if len(nodes) <= 40 else 6)
    if numbered:
        axes.tick_params(axis="y", which="major", pad=14)
        for place in nodes:
            _number_gpus(axes, float(lanes.first[place]) + 0.5, int(lanes.count[place]))
    axes.spines["left"].set_visible(False)


def _number_gpus(axes: Axes, first: float, count: int) -> None:
    """Number the lanes from ``first`` onwards, to the left of the axes. Draw the numbers as text,
    because ticks take far longer.
    """
    from matplotlib.transforms import ScaledTranslation

    beside = axes.get_yaxis_transform() + ScaledTranslation(-2 / 72, 0, axes.figure.dpi_scale_trans)
    for gpu in range(count):
        number = axes.text(
            0.0,
            first + gpu,
            str(gpu),
            transform=beside,
            ha="right",
            va="center_baseline",
            fontsize=6,
            color=GREY,
        )
        number.set_in_layout(False)


def _boxes(left: Floats, right: Floats, top: Floats, bottom: Floats) -> Any:
    """Return the corners of each box, (n, 4, 2). matplotlib accepts such an array, although its
    type stubs do not."""
    return np.stack(
        [np.stack(corner, axis=-1) for corner in ((left, top), (right, top), (right, bottom), (left, bottom))], axis=1
    )


def _colours(jobs: Ints) -> np.ndarray:
    """Return the colour of each job, (n, 3)."""
    numbers, place = np.unique(jobs, return_inverse=True)
    return np.array([job_colour(number) for number in numbers.tolist()])[place]


_BINS = 900
_MOST_ROWS = 600
"""Maximum number of rows. With more nodes, neighbours share a row."""


def shaded_nodes(cols: ScheduleColumns, title: str, note: str) -> Figure:
    """Plot nodes as rows, shaded by the fraction of held GPUs over time. A node that is down is
    orange.

    On a cluster without GPUs, rows are shaded by the number of runs on the node.
    """
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.ticker import PercentFormatter

    gpus = np.array([node.gpus for node in cols.cluster.nodes], float)
    size = gpus if gpus.any() else np.ones(len(gpus))
    nodes = np.flatnonzero(size)
    rows = min(len(nodes), _MOST_ROWS)
    row_of = np.zeros(len(size), np.int64)
    row_of[nodes] = np.arange(len(nodes)) * rows // len(nodes)
    edges_s = np.linspace(cols.start_s, max(cols.end_s, cols.start_s + 1e-9), _BINS + 1)
    runs, outages = cols.runs, cols.outages
    weight = runs.held if gpus.any() else np.ones(len(runs))
    held = binned(row_of[runs.node], runs.start_s, runs.end_s, weight, edges_s, rows)
    down = binned(row_of[outages.node], outages.start_s, outages.end_s, size[outages.node], edges_s, rows)
    capacity = np.bincount(row_of, weights=size, minlength=rows)[:, None]
    share = np.ma.masked_array(held / capacity, down / capacity > 0.5)

    unit = unit_of(cols.horizon_s)
    drawn = figure(11.0, min(max(2.0 + 0.12 * rows, 3.0), 8.0))
    axes = drawn.add_subplot()
    dress(axes, f"time [{unit.sign}]", count_of(len(nodes), "node"), grid="")
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
    axes.set_yticks(row_of[nodes[::every]], [cols.cluster.nodes[place].name for place in nodes[::every].tolist()])
    axes.tick_params(axis="y", labelsize=7, length=0)
    return drawn


def binned(row: Ints, start_s: Floats, end_s: Floats, weight: Floats, edges_s: Floats, rows: int) -> np.ndarray:
    """For each of several equally wide bins of time, return the average total weight of the active
    intervals in each row, (rows, bins). The cost is O(intervals + rows x bins).
    """
    bins = len(edges_s) - 1
    width = (edges_s[-1] - edges_s[0]) / bins
    rising, risen = np.zeros((rows, bins + 1)), np.zeros((rows, bins + 2))
    for at_s, sign in ((start_s, 1.0), (end_s, -1.0)):
        at = np.clip((at_s - edges_s[0]) / width, 0.0, bins)
        place = at.astype(np.int64)
        # Add the weight for that part of the bin that follows the change ...
        np.add.at(rising, (row, place), sign * weight * (place + 1 - at))
        np.add.at(risen, (row, place + 1), sign * weight)  # ... and the whole weight for all later bins.
    averages: np.ndarray = (rising + np.cumsum(risen, axis=1)[:, :-1])[:, :bins]
    return averages
