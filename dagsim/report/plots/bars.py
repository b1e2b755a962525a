"""Schedulers side by side: how much better or worse than a reference, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

from dagsim.metrics.standings import PolicyResult, Sample
from dagsim.metrics.verdict import Verdict
from dagsim.report.plots.style import BLUE, GREY, INK, LINE, ORANGE, dress, figure, headline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["comparison"]

_COLOURS = {Verdict.BETTER: BLUE, Verdict.WORSE: ORANGE}


def comparison(ranked: Sequence[PolicyResult], metric: str = "mean JCT", workload: str = "") -> Figure:
    """A bar per scheduler from the reference to its ratio, best first. A line is the 95 % interval.

    Blue is better than the reference, orange worse, grey what has no verdict.
    """
    reference = next((each.policy for each in ranked if each.is_reference), "")
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
    """The kind of ratios and intervals, and the number of seeds."""
    n = max((each.pair.n for each in ranked if each.pair is not None), default=0)
    if not n or ranked[0].sample is Sample.TRACE:
        return "one trace: ratios without intervals"
    units = f"{n:,} {ranked[0].sample}{'' if n == 1 else 's'}"
    return f"{units}    bars: geometric mean of ratios    lines: 95 % interval, t on logs    colour: Holm's p < 0.05"


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
