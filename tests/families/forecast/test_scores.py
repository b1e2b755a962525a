"""Scores of forecasts, against plain formulas on a few rows."""

from __future__ import annotations

import numpy as np
import pytest

from dagsim.families.forecast.scores import LEVELS, ratio, score


def test_the_median_error_is_that_of_the_rows() -> None:
    """Half of the weight of the sorted errors 0, 1, ..., 8 is reached at 4, and at 7 if the last rows weigh more."""
    y = np.arange(9.0)
    forecasts = np.zeros((9, len(LEVELS)))
    assert score(forecasts, y).median_abs_log == np.median(y)
    assert score(forecasts, y, weight=np.array([1.0] * 7 + [5.0, 5.0])).median_abs_log == 7.0


def test_the_interval_of_a_ratio_is_that_of_its_blocks() -> None:
    """All blocks have the same ratio, and then blocks of ratio 1 and 3 lie between them."""
    block = np.repeat(np.arange(40), 2)
    theirs = np.ones(80)
    assert ratio(2 * theirs, theirs, block) == pytest.approx((2.0, 2.0, 2.0))
    middle, low, high = ratio(np.where(block % 2, 1.0, 3.0), theirs, block)
    # the mean of 40 blocks of 1 or 3 has a standard deviation of 1 / 40**0.5
    spread = 1.645 / 40**0.5
    assert middle == 2.0
    assert (low, high) == pytest.approx((2 - spread, 2 + spread), abs=0.1)
