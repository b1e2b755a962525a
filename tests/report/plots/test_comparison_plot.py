"""Policies compared with a reference, as bars with their intervals."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest
from matplotlib.colors import to_hex
from report.plots.drawn import line, texts

from dagsim.metrics.paired import Verdict
from dagsim.metrics.standings import Sample, standings
from dagsim.report.plots import comparison
from dagsim.report.plots.style import BLUE, GREY, INK, LINE, ORANGE


class Line(NamedTuple):
    policy: str
    seed: int
    metrics: dict[str, float | None]


def compared():
    factors = {
        "random": [1.2, 1.4, 1.3, 1.3, 1.35],
        "fifo": [1.0] * 5,
        "sjf": [0.8] * 4 + [0.7],
        "srtf": [0.9, 1.1, 0.9, 1.1, 0.95],
        "heft": [None, 1.0, 1.0, 1.0, 1.0],
    }
    lines = [
        Line(policy, seed, {"jct_s.mean": factor and factor * (100.0 + seed)})
        for policy, row in factors.items()
        for seed, factor in enumerate(row)
    ]
    return standings(lines, reference="fifo")


def test_a_comparison_has_a_bar_an_interval_and_words_for_each_policy() -> None:
    values = {"fifo": [1.0] * 5, "sjf": [0.8, 0.8, 0.8, 0.8, 0.7], "slow": [1.2, 1.4, 1.3, 1.3, 1.35]}
    lines = [
        Line(policy=policy, seed=seed, metrics={"jct_s.mean": 100 * ratio})
        for policy, row in values.items()
        for seed, ratio in enumerate(row)
    ]
    ranked = standings(lines, reference="fifo")
    drawn = comparison(ranked)
    (axes,) = drawn.axes
    assert [standing.policy for standing in ranked] == ["sjf", "fifo", "slow"]
    percent = [
        [100 * (value - 1) for value in (standing.pair.ratio, standing.pair.low, standing.pair.high)]
        for standing in ranked
    ]
    assert [(patch.get_x(), patch.get_width(), patch.get_y()) for patch in axes.patches] == [
        (0, pytest.approx(value), pytest.approx(row - 0.31)) for row, (value, _, _) in enumerate(percent)
    ]
    intervals = [line(curve) for curve in axes.get_lines()]
    assert intervals[:2] == [(pytest.approx(percent[row][1:]), [row, row]) for row in (0, 2)]
    assert intervals[2:] == [([0, 0], [0, 1])]
    assert axes.get_ylim() == (2.6, -0.6)
    assert axes.get_xlim()[1] > percent[2][2]
    assert drawn.get_size_inches().tolist() == pytest.approx([8.4, 1.9 + 0.34 * 3])
    shown = [f"{value:+.1f}".replace("-", "\N{MINUS SIGN}") for value in percent[2]]
    assert axes.texts[2].get_text() == f"{shown[0]}  [{shown[1]}, {shown[2]}]"
    assert [text.xyann for text in axes.texts] == [(1.01, row) for row in range(3)]
    assert [text.get_color() for text in axes.texts] == [INK, GREY, INK]
    assert axes.get_title(loc="left") == "Mean JCT against fifo"
    assert drawn.get_supxlabel().startswith("5 seeds    bars:")
    better = comparison(ranked[:2]).axes[0]
    assert better.get_xlim()[1] >= 0
    one = [replace(standing, sample=Sample.TRACE) for standing in ranked]
    trace = comparison(one)
    assert trace.get_supxlabel() == "one trace: ratios without intervals"
    assert trace.axes[0].texts[2].get_text() == shown[0]
    assert len(trace.axes[0].get_lines()) == 1
    assert ranked[0].verdict is Verdict.BETTER


def test_schedulers_are_compared_best_first():
    ranked = compared()
    drawn = comparison(ranked, workload="steady")
    axes = drawn.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["sjf", "srtf", "fifo", "random", "heft"]
    ratios = [100 * (standing.pair.ratio - 1) for standing in ranked[:4]]
    assert [patch.get_width() for patch in axes.patches] == pytest.approx(ratios)
    assert [to_hex(patch.get_facecolor()).upper() for patch in axes.patches] == [
        BLUE,
        LINE.upper(),
        LINE.upper(),
        ORANGE,
    ]
    assert texts(drawn)[0].startswith("\N{MINUS SIGN}22.")
    assert texts(drawn)[2] == "reference"
    assert texts(drawn)[4] == "not known: unfinished jobs"


def test_a_comparison_says_workload_n_and_method():
    drawn = comparison(compared(), workload="steady")
    assert drawn.axes[0].get_title(loc="left") == "Mean JCT against fifo on steady"
    note = drawn.get_supxlabel()
    assert "5 seeds" in note
    assert "geometric mean" in note
