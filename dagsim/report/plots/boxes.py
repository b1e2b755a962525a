"""Box plots of completion times by priority."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dagsim.metrics.columns import Floats, Source, columns
from dagsim.metrics.jct import jct
from dagsim.report.plots.style import BLUE, GREY, ORANGE, SHORTEST_S, dress, figure, headline, log_seconds, nothing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["by_priority"]

_MOST = 12
"""More priorities than these are gathered into as many ranges of about equally many jobs."""


def by_priority(source: Source) -> Figure:
    """A box of completion times for each priority: quartiles, mean, whiskers at the 5th and 95th percentile."""
    made = columns(source)
    done = made.jobs.finished
    times_s, priority = np.maximum(jct(made)[done], SHORTEST_S), made.jobs.priority[done]
    groups = _groups(priority)
    drawn = figure(max(5.0, 2.2 + 0.75 * len(groups)), 4.2)
    axes = drawn.add_subplot()
    dress(axes, "priority (larger is more urgent)", "job completion time")
    headline(axes, "Completion time by priority")
    if not len(times_s):
        nothing(axes, "no job completed")
        return drawn
    boxes = [_box(times_s[chosen], f"{label}\nn = {np.count_nonzero(chosen):,}") for label, chosen in groups]
    axes.bxp(
        boxes,
        widths=0.55,
        showmeans=True,
        showfliers=False,
        patch_artist=True,
        boxprops={"facecolor": BLUE, "alpha": 0.35, "edgecolor": BLUE, "linewidth": 1.0},
        medianprops={"color": BLUE, "linewidth": 2.0},
        whiskerprops={"color": BLUE},
        capprops={"color": BLUE},
        meanprops={"marker": "D", "markersize": 5, "markerfacecolor": ORANGE, "markeredgecolor": "white"},
    )
    low, high = min(float(box["whislo"]) for box in boxes), max(float(box["whishi"]) for box in boxes)
    log_seconds(axes, "y", low, max(high, max(float(box["mean"]) for box in boxes)))
    drawn.supxlabel("box: quartiles    whiskers: 5th and 95th percentile    diamond: mean", fontsize=8, color=GREY)
    return drawn


def _groups(priority: Floats) -> list[tuple[str, np.ndarray]]:
    """(label, which jobs), from the lowest priority to the highest."""
    values = np.unique(priority)
    if len(values) <= _MOST:
        return [(f"{value:g}", priority == value) for value in values.tolist()]
    edges = np.unique(np.quantile(priority, np.linspace(0.0, 1.0, _MOST + 1)))
    place = np.clip(np.searchsorted(edges, priority, side="right") - 1, 0, len(edges) - 2)
    ranges = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return [(f"{low:.3g} to {high:.3g}", place == which) for which, (low, high) in enumerate(ranges)]


def _box(times_s: Floats, label: str) -> dict[str, float | str]:
    whislo, q1, med, q3, whishi = np.percentile(times_s, [5, 25, 50, 75, 95]).tolist()
    mean = float(times_s.mean())
    return {"label": label, "whislo": whislo, "q1": q1, "med": med, "q3": q3, "whishi": whishi, "mean": mean}
