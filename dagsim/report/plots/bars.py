"""Schedulers side by side: how much better or worse than a reference, with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dagsim.metrics.bootstrap import Ratio
from dagsim.report.plots.style import BLUE, GREY, INK, LINE, ORANGE, dress, figure, headline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["comparison"]


def comparison(ratios: Mapping[str, Ratio], reference: str, metric: str = "mean JCT") -> Figure:
    """A bar per scheduler from the reference to its ratio of means, best first, with the 95 % interval as a line.

    Blue is less than the reference, orange more, grey a tie (the interval holds 1). Smaller is taken to be better.
    """
    known = sorted((item for item in ratios.items() if not np.isnan(item[1].value)), key=lambda item: item[1].value)
    unknown = [item for item in ratios.items() if np.isnan(item[1].value)]
    drawn = figure(8.4, 1.5 + 0.34 * max(len(ratios), 1))
    axes = drawn.add_subplot()
    dress(axes, f"{metric} against {reference} [%]", grid="x")
    headline(
        axes, f"{metric[0].upper()}{metric[1:]} against {reference}", "bars: ratio of means   lines: 95 % interval"
    )
    percent = np.array([_percent(ratio) for _, ratio in known]).reshape(-1, 3)
    for row, ((_, ratio), (value, low, high)) in enumerate(zip(known, percent, strict=True)):
        colour = LINE if ratio.is_tie else BLUE if ratio.value < 1 else ORANGE
        axes.barh(row, value, height=0.62, color=colour, linewidth=0.0)
        if not np.isnan(low):
            axes.plot([low, high], [row, row], color=INK, linewidth=1.4, solid_capstyle="butt")
    axes.axvline(0.0, color=INK, linewidth=1.0)
    axes.set_yticks(range(len(known) + len(unknown)), [name for name, _ in (*known, *unknown)])
    axes.tick_params(axis="y", length=0, labelsize=10)
    axes.set_ylim(len(known) + len(unknown) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    edge = axes.get_xlim()[1]
    for row, (name, ratio) in enumerate((*known, *unknown)):
        axes.annotate(
            "reference" if name == reference else _words(ratio),
            (1.01, row),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=9,
            color=GREY if ratio.is_tie else INK,
        )
    axes.set_xlim(right=max(edge, 0.0))
    return drawn


def _percent(ratio: Ratio) -> tuple[float, float, float]:
    return 100 * (ratio.value - 1), 100 * (ratio.low - 1), 100 * (ratio.high - 1)


def _words(ratio: Ratio) -> str:
    value, low, high = _percent(ratio)
    if np.isnan(value):
        return "not known: unfinished jobs"
    if np.isnan(low):
        return _signed(value)
    return f"{_signed(value)}  [{_signed(low)}, {_signed(high)}]"


def _signed(percent: float) -> str:
    return f"{percent:+.1f}".replace("-", "\N{MINUS SIGN}")
