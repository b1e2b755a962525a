from __future__ import annotations

import numpy as np

from dagsim.metrics import Steps


def steps(intervals, window=(0.0, 10.0), weight=None):
    start_s, end_s = np.array(intervals, float).reshape(-1, 2).T
    return Steps.of(start_s, end_s, None if weight is None else np.array(weight), window=window)


def test_intervals_add_up_where_they_overlap():
    counted = steps([(1, 5), (3, 8)])
    assert counted.time_s.tolist() == [0.0, 1.0, 3.0, 5.0, 8.0]
    assert counted.value.tolist() == [0.0, 1.0, 2.0, 1.0, 0.0]
    assert counted.integral() == 4 + 5
    assert counted.mean() == 0.9
    assert counted.max() == 2.0


def test_intervals_that_touch_do_not_overlap():
    assert steps([(1, 5), (5, 8)]).max() == 1.0


def test_only_the_window_counts():
    counted = steps([(1, 5), (3, 8), (20, 30)], window=(4.0, 6.0))
    assert counted.time_s.tolist() == [4.0, 5.0]
    assert counted.value.tolist() == [2.0, 1.0]
    assert counted.integral() == 3.0


def test_fractions_taken_and_given_back_leave_nothing():
    counted = steps([(1, 5), (2, 6), (3, 7)], weight=[0.1, 0.2, 0.3])
    assert counted.value[-1] == 0.0


def test_averages_over_bins_keep_the_integral():
    # over [0, 4): 0 + 1 + 1 + 2; over [4, 10): 2 + 1 + 1 + 1 + 0 + 0
    assert steps([(1, 5), (3, 8)]).binned(np.array([0.0, 4.0, 10.0])).tolist() == [1.0, 5 / 6]


def test_nothing_is_on_where_there_are_no_intervals():
    assert steps([]).integral() == 0.0
    assert np.isnan(steps([], window=(3.0, 3.0)).mean())
