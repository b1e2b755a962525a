"""The CDF of job completion times."""

from __future__ import annotations

import pytest
from report.plots.drawn import line
from support.drawn_schedules import EIGHT, RUNS

from dagsim.model import Kind
from dagsim.report.plots import jct_cdf
from dagsim.report.plots.style import BLUE, ORANGE


def test_the_cdf_steps_at_each_completion(schedule_of) -> None:
    drawn = jct_cdf({"a": schedule_of(EIGHT, RUNS), "b": schedule_of(EIGHT, RUNS[:1])})
    (axes,) = drawn.axes
    low, high = 30 / 1.2, 350 * 1.2
    assert axes.get_xlim() == pytest.approx((low, high))
    first, second = axes.get_lines()
    assert line(first) == (pytest.approx([low, 30, 100, 350, high]), pytest.approx([0, 1 / 3, 2 / 3, 1, 1]))
    assert line(second) == (pytest.approx([low, 100, high]), [0, 1, 1])
    assert [curve.get_color() for curve in (first, second)] == [BLUE, ORANGE]
    assert [curve.get_label() for curve in (first, second)] == ["a: mean 160 s", "b: mean 100 s"]
    assert axes.get_ylim() == (0, 1.02)
    assert drawn.get_size_inches().tolist() == [7.0, 4.2]
    many = jct_cdf({str(at): schedule_of(EIGHT, RUNS) for at in range(8)}).axes[0].get_lines()
    assert [(curve.get_color(), curve.get_linestyle()) for curve in many][5:7] == [("#CC79A7", "-"), (BLUE, "--")]
    nobody = schedule_of(EIGHT, RUNS, Kind.FAILED)
    assert [text.get_text() for text in jct_cdf({"a": nobody}).axes[0].texts] == ["no job completed"]
    both = jct_cdf({"a": nobody, "b": schedule_of(EIGHT, RUNS)}).axes[0].get_lines()
    assert line(both[0])[1] == [0, 0]
    assert both[0].get_label() == "a: 3 of 3 unfinished"


def test_the_cdf_ends_at_the_fraction_completed(schedule_of):
    done, open_ = schedule_of(EIGHT, RUNS), schedule_of(EIGHT, RUNS)
    open_.log = type(open_.log).of(done.log.rows()[:-1])  # the last job does not complete
    first, second = jct_cdf({"fifo": done, "sjf": open_}).axes[0].get_lines()
    assert first.get_ydata()[-1] == 1.0
    assert second.get_ydata()[-1] == pytest.approx(2 / 3)
    assert (first.get_label(), second.get_label()) == ("fifo: mean 160 s", "sjf: 1 of 3 unfinished")
