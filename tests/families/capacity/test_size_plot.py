"""The plot of the sizes of a cluster that were tried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dagsim.families.capacity.size_plot import sizes
from dagsim.report.plots.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
)


def line(drawn: Any) -> tuple[list[float], list[float]]:
    return list(map(float, drawn.get_xdata())), list(map(float, drawn.get_ydata()))


def size(cost: float, gpus: int, value: float, *, meets: bool, low: float = float("nan"), nodes: int = 1) -> Any:
    met = SimpleNamespace(value=(value, low, value + 1), meets=meets)
    met.value = type("Value", (tuple,), {"value": value})(met.value)
    return SimpleNamespace(cost=cost, gpus=gpus, met=met, nodes=(nodes, 3))


def test_sizes_show_what_meets_the_target() -> None:
    small, large = size(1.0, 8, 30.0, meets=False, low=28.0), size(2.0, 16, 5.0, meets=True, nodes=1000)
    today = size(3.0, 24, 4.0, meets=True)
    target = type("T", (), {"metric": "wait_s.mean", "bound": 10.0, "__str__": lambda self: "wait <= 10"})()
    search = SimpleNamespace(tried={0: large, 1: small}, types=(), best=large)
    axes = sizes(search, today, target, "today 24", priced=False).axes[0]
    assert [line(curve) for curve in axes.get_lines()] == [
        ([8, 16], [30, 5]),
        *(([8, 8], [28, 31]), ([8], [30])),
        ([16], [5]),
        *(([24], [4]), ([16], [5]), ([0, 1], [10, 10])),
    ]
    assert [curve.get_color() for curve in axes.get_lines()] == [GREY, ORANGE, ORANGE, BLUE, INK, INK, INK]
    assert axes.get_title(loc="left") == "wait <= 10: 1,000 nodes, 16 GPUs"
    assert axes.get_ylim()[0] == 0
    mixed = SimpleNamespace(tried={0: large}, types=("A", "B"), best=large)
    axes = sizes(mixed, today, target, "", priced=True).axes[0]
    assert [line(curve)[0] for curve in axes.get_lines()] == [[2], [3], [2], [0, 1]]
    assert axes.get_title(loc="left") == "wait <= 10: 1,000 A nodes, 3 B nodes"
    assert axes.get_xlabel() == "cost a month"
    none = SimpleNamespace(tried={0: small}, types=("A",), best=None)
    axes = sizes(none, today, target, "", priced=True).axes[0]
    assert axes.get_title(loc="left") == "wait <= 10: no size up to the cap meets it"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["today", "target"]
