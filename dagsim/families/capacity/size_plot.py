"""A plot of the cluster sizes that were tried."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from dagsim.families.capacity.size_search import Size, SizeSearch, Target
from dagsim.metrics import glossary
from dagsim.report.plots.style import BLUE, GREY, INK, ORANGE, dress, figure, headline
from dagsim.text import count_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sizes(planned: SizeSearch, today: Size, target: Target, title: str, *, priced: bool) -> Figure:
    """Plot a point for each cluster that was tried. The point is blue if the cluster meets the
    target.

    A ring marks the best cluster, and a cross marks today's.
    """
    drawn = figure(7.2, 4.4)
    axes = drawn.add_subplot()
    unit = {term.name: term.unit for term in glossary()}.get(target.metric, "")
    dress(axes, "cost a month" if priced else "GPUs", f"{target.metric} [{unit or '-'}]", grid="both")
    headline(axes, f"{target}: {_answer(planned)}", title)
    ordered = sorted(planned.tried.values(), key=lambda size: size.cost)
    if len(planned.types) < 2:
        shown = [size for size in ordered if isfinite(size.met.value.value)]
        axes.plot(
            [_x(size, priced) for size in shown], [size.met.value.value for size in shown], color=GREY, linewidth=1
        )
    for size in ordered:
        _point(axes, size, BLUE if size.met.meets else ORANGE, priced=priced)
    axes.plot(_x(today, priced), today.met.value.value, "x", color=INK, markersize=8, label="today")
    if planned.best is not None:
        best = planned.best
        axes.plot(_x(best, priced), best.met.value.value, "o", mfc="none", color=INK, markersize=12, label="chosen")
    if isfinite(target.bound):
        axes.axhline(target.bound, color=INK, linewidth=1, linestyle="--", label="target")
    axes.legend(frameon=False, fontsize=9)
    axes.set_ylim(bottom=0)
    return drawn


def _x(size: Size, priced: bool) -> float:
    return size.cost if priced else float(size.gpus)


def _point(axes: object, size: Size, colour: str, *, priced: bool) -> None:
    value, low, high = size.met.value[:3]
    x = _x(size, priced)
    if isfinite(low):
        axes.plot([x, x], [low, high], color=colour, linewidth=1.2, alpha=0.6)  # type: ignore[attr-defined]
    axes.plot(x, value, "o", color=colour, markersize=5)  # type: ignore[attr-defined]


def _answer(planned: SizeSearch) -> str:
    best = planned.best
    if best is None:
        return "no size up to the cap meets it"
    if not planned.types:
        return f"{count_of(best.nodes[0], 'node')}, {count_of(best.gpus, 'GPU')}"
    return ", ".join(count_of(count, f"{type_} node") for count, type_ in zip(best.nodes, planned.types, strict=True))
