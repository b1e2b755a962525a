"""Disjoint windows, spread evenly over a trace."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagsim.errors import WorkloadError
from dagsim.workload.windows import most_windows, spread_order, spread_windows


def test_each_window_lies_in_the_middle_of_its_share() -> None:
    # 100 jobs, 4 shares of 25, windows of 5: 10 to 15 in each.
    assert spread_windows(100, 4, 5) == (range(10, 15), range(35, 40), range(60, 65), range(85, 90))


def test_a_part_keeps_to_its_jobs() -> None:
    assert spread_windows(100, 2, 10, (0.6, 1.0)) == (range(65, 75), range(85, 95))


def test_as_many_as_fit_are_back_to_back() -> None:
    assert spread_windows(20, 4, 5) == (range(0, 5), range(5, 10), range(10, 15), range(15, 20))


def test_windows_that_would_overlap_are_refused_with_what_fits() -> None:
    with pytest.raises(
        WorkloadError, match=r"21 windows of 50 jobs would overlap in jobs 0 to 1,000, where only 20 fit"
    ):
        spread_windows(1000, 21, 50)
    with pytest.raises(WorkloadError, match=r"jobs 800 to 1,000, where only 4 fit"):
        spread_windows(1000, 5, 50, (0.8, 1.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((100, 0, 5), "windows must be 1 or more"),
        ((100, 1, 1), "a window must have 2 jobs or more"),
        ((100, 1, 5, (0.5, 0.2)), "a part of a trace"),
        ((100, 1, 5, (0.5, 1.2)), "a part of a trace"),
    ],
)
def test_what_is_no_window_is_refused(arguments: tuple[int, int, int], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        spread_windows(*arguments)


@given(st.integers(2, 5000), st.integers(2, 300), st.floats(0, 1), st.floats(0, 1), st.data())
def test_windows_are_disjoint_in_order_and_inside(
    jobs: int, window_jobs: int, one: float, other: float, data: st.DataObject
) -> None:
    part = (min(one, other), max(one, other))
    if part[0] == part[1] or not (most := most_windows(jobs, window_jobs, part)):
        return
    windows = spread_windows(jobs, data.draw(st.integers(1, most)), window_jobs, part)
    assert all(len(window) == window_jobs for window in windows)
    assert all(before.stop <= after.start for before, after in pairwise(windows))
    assert round(part[0] * jobs) <= windows[0].start
    assert windows[-1].stop <= round(part[1] * jobs)
    gaps = [after.start - before.start for before, after in pairwise(windows)]
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_every_beginning_of_the_order_is_spread_out() -> None:
    assert spread_order(8) == (0, 4, 2, 6, 1, 5, 3, 7)
    assert spread_order(5) == (0, 4, 2, 1, 3)
    assert [spread_order(n) for n in (0, 1)] == [(0,)[:0], (0,)]
    for windows in (13, 100, 346):
        order = spread_order(windows)
        assert sorted(order) == list(range(windows))
        # Of the first 8, no eighth of the trace has more than 2.
        assert max(sum(place * 8 // windows == eighth for place in order[:8]) for eighth in range(8)) <= 2
