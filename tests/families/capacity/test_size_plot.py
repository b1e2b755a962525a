"""The plot of the sizes of a cluster that were tried."""

from __future__ import annotations

from math import nan
from typing import Any

from dagsim.families.capacity.size_plot import sizes
from dagsim.families.capacity.size_search import Met, Size, SizeSearch, Target
from dagsim.metrics.series import Period
from dagsim.report.plots.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
)
from dagsim.systems.cluster.section import ClusterSection

TARGET = Target("wait_s.mean", above=False, bound=10.0)


def line(drawn: Any) -> tuple[list[float], list[float]]:
    return list(map(float, drawn.get_xdata())), list(map(float, drawn.get_ydata()))


def size(cost: float, gpus: int, value: float, *, low: float = nan, nodes: int = 1) -> Size:
    met = Met(Period(value, low, value + 1, 0, 1.0), lost=0, meets=TARGET.holds(value))
    return Size((nodes, 3), ClusterSection(), gpus, cost, met)


def test_sizes_show_what_meets_the_target() -> None:
    small, large = size(1.0, 8, 30.0, low=28.0), size(2.0, 16, 5.0, nodes=1000)
    today = size(3.0, 24, 4.0)
    both = {large.nodes: large, small.nodes: small}
    axes = sizes(SizeSearch((), both), today, TARGET, "today 24", priced=False).axes[0]
    assert [line(curve) for curve in axes.get_lines()] == [
        ([8, 16], [30, 5]),
        *(([8, 8], [28, 31]), ([8], [30])),
        ([16], [5]),
        *(([24], [4]), ([16], [5]), ([0, 1], [10, 10])),
    ]
    assert [curve.get_color() for curve in axes.get_lines()] == [GREY, ORANGE, ORANGE, BLUE, INK, INK, INK]
    assert axes.get_title(loc="left") == "wait_s.mean < 10: 1,000 nodes, 16 GPUs"
    assert axes.get_ylim()[0] == 0
    mixed = SizeSearch(("A", "B"), {large.nodes: large})
    axes = sizes(mixed, today, TARGET, "", priced=True).axes[0]
    assert [line(curve)[0] for curve in axes.get_lines()] == [[2], [3], [2], [0, 1]]
    assert axes.get_title(loc="left") == "wait_s.mean < 10: 1,000 A nodes, 3 B nodes"
    assert axes.get_xlabel() == "cost a month"
    axes = sizes(SizeSearch(("A",), {small.nodes: small}), today, TARGET, "", priced=True).axes[0]
    assert axes.get_title(loc="left") == "wait_s.mean < 10: no size up to the cap meets it"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["today", "target"]
