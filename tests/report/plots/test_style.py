"""Axes, units of time and ticks, which all plots share."""

from __future__ import annotations

import pytest
from matplotlib.colors import to_hex

from dagsim.report.plots.style import LINE, dress, figure, headline, log_seconds, nothing, unit_of


def test_axes_are_light() -> None:
    axes = figure(4, 3).add_subplot()
    dress(axes, "x", "y")
    headline(axes, "left", "right")
    assert [axes.spines[side].get_visible() for side in ("top", "right", "left", "bottom")] == [
        False,
        False,
        True,
        True,
    ]
    assert [to_hex(axes.spines[side].get_edgecolor()) for side in ("left", "bottom")] == [LINE, LINE]
    assert [gridline.get_visible() for gridline in (axes.xaxis.get_gridlines()[0], axes.yaxis.get_gridlines()[0])] == [
        False,
        True,
    ]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title(loc="right")) == ("x", "y", "right")
    bare = figure(4, 3).add_subplot()
    dress(bare, grid="")
    assert not bare.yaxis.get_gridlines()[0].get_visible()
    nothing(bare, "why")
    assert bare.texts[0].get_position() == (0.5, 0.5)
    assert (bare.get_xticks().tolist(), bare.get_yticks().tolist()) == ([], [])


def test_the_unit_of_time_follows_the_span():
    assert [unit_of(span).sign for span in (0.0, 100.0, 1e3, 1e5, 1e6)] == ["s", "s", "min", "h", "d"]


@pytest.mark.parametrize(
    ("low", "high", "most", "limits", "ticks"),
    [
        (1.0, 2999.0, 8, (1 / 1.2, 3598.8), ["1 s", "10 s", "1 min", "10 min"]),  # 4,319 times: no ticks between
        (1.0, 2000.0, 8, (1 / 1.2, 2400), ["1 s", "3 s", "10 s", "30 s", "1 min", "3 min", "10 min", "30 min"]),
        (1.0, 2000.0, 5, (1 / 1.2, 2400), ["1 s", "10 s", "1 min", "10 min"]),
        (1.0, 2000.0, 3, (1 / 1.2, 2400), ["1 s", "30 s", "10 min"]),
        (4.0, 5.0, 8, (3, 10), ["3 s", "10 s"]),
        (0.0005, 0.0006, 8, (0.0005 / 1.2, 0.001), ["1 ms"]),  # no tick below a millisecond
    ],
)
def test_a_logarithmic_axis_has_up_to_so_many_ticks(
    low: float, high: float, most: int, limits: tuple[float, float], ticks: list[str]
) -> None:
    axes = figure(4, 3).add_subplot()
    log_seconds(axes, "y", low, high, most)
    assert axes.get_ylim() == pytest.approx(limits)
    assert [label.get_text() for label in axes.get_yticklabels()] == ticks
    assert (axes.get_yscale(), axes.get_xscale()) == ("log", "linear")


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (20.0, 2000.0, ["30 s", "1 min", "3 min", "10 min", "30 min"]),
        (1.0, 1e6, ["1 s", "10 s", "1 min", "10 min", "1 h", "10 h", "3 d"]),
        (4.0, 5.0, ["3 s", "10 s"]),
    ],
)
def test_logarithmic_time_has_readable_ticks(low, high, ticks):
    axes = figure(4, 3).add_subplot()
    log_seconds(axes, "x", low, high)
    assert [label.get_text() for label in axes.get_xticklabels()] == ticks


def test_every_tick_of_a_time_axis_is_where_its_label_says() -> None:
    seconds = {"ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400, "a": 365 * 86400}
    for low, high in ((0.001, 4e8), (0.002, 0.1), (1.0, 3000.0), (1000.0, 2e6)):
        axes = figure(4, 3).add_subplot()
        log_seconds(axes, "x", low, high, most=20)
        for place, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True):
            number, unit = label.get_text().split()
            assert place == pytest.approx(float(number) * seconds[unit], rel=1e-9)
    for span_s, unit, length in ((3, "s", 1), (180, "min", 60), (10_800, "h", 3600), (259_200, "d", 86400)):
        assert unit_of(span_s) == (length, unit)
        assert unit_of(span_s - 1e-6).seconds < length or unit == "s"
