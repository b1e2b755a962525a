"""Completion times by priority, as boxes."""

from __future__ import annotations

import pytest
from report.plots.drawn import line
from support.drawn_schedules import EIGHT

from dagsim.model import Kind
from dagsim.report.plots import by_priority


def test_quantiles_of_each_priority_are_boxes(schedule_of) -> None:
    runs = [(1000.0 * at, 1000.0 * at + 10 * (at // 2 + 1), 0, 1, 1.0) for at in range(10)]  # 10 to 50 s in each group
    drawn = by_priority(schedule_of(EIGHT, runs))
    (axes,) = drawn.axes
    whiskers = [line(curve) for curve in axes.get_lines() if len(curve.get_xdata()) == 2]
    heights = sorted({round(value, 9) for _, y in whiskers for value in y})
    assert heights == [12, 20, 30, 40, 48]
    means = [line(curve) for curve in axes.get_lines() if curve.get_marker() == "D"]
    assert means == [([1], [30]), ([2], [30])]
    assert axes.get_ylim() == pytest.approx((10, 57.6))
    assert drawn.get_size_inches().tolist() == [5.0, 4.2]
    twelve = schedule_of(EIGHT, runs)
    twelve.jobs = [job._replace(priority=float(place)) for place, job in enumerate(twelve.jobs)]
    assert by_priority(twelve).get_size_inches()[0] == pytest.approx(2.2 + 0.75 * 10)
    nobody = by_priority(schedule_of(EIGHT, runs, Kind.FAILED)).axes[0]
    assert [text.get_text() for text in nobody.texts] == ["no job completed"]


def test_boxes_are_in_the_order_of_priority(schedule):
    labels = [label.get_text() for label in by_priority(schedule).axes[0].get_xticklabels()]
    assert labels == ["0\nn = 2", "1\nn = 1"]


def test_many_priorities_are_gathered_into_ranges(schedule_of):
    schedule = schedule_of(EIGHT, [(float(second), second + 1.0, 0, 1, 1.0) for second in range(60)])
    schedule.jobs = [job._replace(priority=float(place)) for place, job in enumerate(schedule.jobs)]
    labels = [label.get_text() for label in by_priority(schedule).axes[0].get_xticklabels()]
    assert len(labels) == 12
    assert labels[0] == "0 to 4.92\nn = 5"
