"""Plots that compare results by policy and by priority."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from dagsim.metrics.columns import AnySchedule, Floats, columns
from dagsim.metrics.jct import jct
from dagsim.metrics.paired import Verdict
from dagsim.metrics.standings import PolicyResult, Sample
from dagsim.report.plots.style import (
    BLUE,
    GREY,
    INK,
    LINE,
    ORANGE,
    SHORTEST_S,
    dress,
    figure,
    headline,
    log_seconds,
    nothing,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {Verdict.BETTER: BLUE, Verdict.WORSE: ORANGE}


def comparison(ranked: Sequence[PolicyResult], metric: str = "mean JCT", workload: str = "") -> Figure:
    """Plot a bar from the reference to the ratio of each policy, with the best policy first. Lines
    show 95% intervals.

    Blue bars are better than the reference, orange bars are worse, and grey bars have no verdict.
    """
    reference = next((result.policy for result in ranked if result.is_reference), "")
    drawn = figure(8.4, 1.9 + 0.34 * max(len(ranked), 1))
    axes = drawn.add_subplot()
    dress(axes, f"{metric} against {reference} [%]", grid="x")
    of = f" on {workload}" if workload else ""
    headline(axes, f"{metric[:1].upper()}{metric[1:]} against {reference}{of}")
    for row, standing in enumerate(ranked):
        if standing.pair is None:
            continue
        value, low, high = _percent(standing)
        colour = _COLOURS.get(standing.verdict, LINE) if standing.verdict else LINE
        axes.barh(row, value, height=0.62, color=colour, linewidth=0.0)
        if isfinite(low):
            axes.plot([low, high], [row, row], color=INK, linewidth=1.4, solid_capstyle="butt")
    axes.axvline(0.0, color=INK, linewidth=1.0)
    axes.set_yticks(range(len(ranked)), [standing.policy for standing in ranked])
    axes.tick_params(axis="y", length=0, labelsize=10)
    axes.set_ylim(len(ranked) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    edge = axes.get_xlim()[1]
    for row, standing in enumerate(ranked):
        axes.annotate(
            _words(standing),
            (1.01, row),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=9,
            color=INK if standing.verdict in _COLOURS else GREY,
        )
    axes.set_xlim(right=max(edge, 0.0))
    drawn.supxlabel(_method(ranked), fontsize=8, color=GREY)
    return drawn


def _method(ranked: Sequence[PolicyResult]) -> str:
    """Return a sentence that states how the ratios and intervals are computed, and the number of
    seeds.
    """
    n = max((standing.pair.n for standing in ranked if standing.pair is not None), default=0)
    if not n or ranked[0].sample is Sample.TRACE:
        return "one trace: ratios without intervals"
    units = f"{n:,} {ranked[0].sample}{'' if n == 1 else 's'}"
    return f"{units}    bars: geometric mean of ratios    lines: 95% interval, t on logs    colour: Holm's p < 0.05"


def _percent(standing: PolicyResult) -> tuple[float, float, float]:
    assert standing.pair is not None
    pair, nan = standing.pair, float("nan")
    low, high = (nan, nan) if standing.sample is Sample.TRACE else (pair.low, pair.high)
    return 100 * (pair.ratio - 1), 100 * (low - 1), 100 * (high - 1)


def _words(standing: PolicyResult) -> str:
    if standing.pair is None or standing.is_reference:
        return standing.words
    value, low, high = _percent(standing)
    if not isfinite(low):
        return _signed(value)
    return f"{_signed(value)}  [{_signed(low)}, {_signed(high)}]"


def _signed(percent: float) -> str:
    return f"{percent:+.1f}".replace("-", "\N{MINUS SIGN}")


_MOST = 12
"""Maximum number of boxes. If there are more priorities, they are grouped into this many ranges
with roughly equal numbers of jobs.
"""


def by_priority(source: AnySchedule) -> Figure:
    """Plot completion times by priority: quartiles, the mean, and whiskers at the 5th and 95th
    percentile."""
    cols = columns(source)
    done = cols.jobs.finished
    times_s, priority = np.maximum(jct(cols)[done], SHORTEST_S), cols.jobs.priority[done]
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
    """Return a label and a mask of jobs for each group of priorities, from the lowest to the
    highest.
    """
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
