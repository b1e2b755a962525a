from __future__ import annotations

import numpy as np
import pytest

from dagsim.errors import InputError
from dagsim.metrics import Ratio, bootstrap, paired_ratio, win_rate

A, B = [8.0, 9.0, 11.0, 7.0, 10.0], [10.0, 10.0, 12.0, 9.0, 9.0]


def test_the_ratio_is_that_of_the_means():
    # 45 / 50, not the mean of the ratios
    assert paired_ratio(A, B).value == 0.9


def test_the_interval_is_that_of_a_plain_loop():
    rng, ratios = np.random.default_rng(7), []
    for _ in range(500):
        pick = rng.integers(0, 5, 5, np.int32)
        ratios.append(sum(A[i] for i in pick) / sum(B[i] for i in pick))
    low, high = np.quantile(ratios, [0.025, 0.975])
    assert paired_ratio(A, B, resamples=500, seed=7) == pytest.approx((0.9, low, high), rel=1e-12)


def test_resampling_in_turns_changes_nothing(monkeypatch):
    at_once = paired_ratio(A, B, resamples=1000)
    monkeypatch.setattr(bootstrap, "_CHUNK", 70)
    assert paired_ratio(A, B, resamples=1000) == pytest.approx(at_once, rel=1e-12)


def test_the_interval_covers_the_true_ratio_as_often_as_it_says():
    rng, covered = np.random.default_rng(0), 0
    for seed in range(200):
        load = rng.lognormal(size=60)
        covered += within(paired_ratio(load * rng.normal(0.8, 0.1, 60), load, resamples=400, seed=seed), 0.8)
    assert 0.88 <= covered / 200 <= 0.99  # 95 % less what 60 pairs of a skewed load cost


def within(ratio: Ratio, value: float) -> bool:
    return ratio.low <= value <= ratio.high


def test_the_interval_of_proportional_values_is_a_point():
    assert paired_ratio([2.0, 4.0, 6.0], [4.0, 8.0, 12.0]) == Ratio(0.5, 0.5, 0.5)


def test_a_tie_is_an_interval_that_holds_1():
    assert Ratio(0.98, 0.95, 1.01).is_tie
    assert not Ratio(0.95, 0.93, 0.97).is_tie
    assert not Ratio(1.1, 1.05, 1.2).is_tie
    assert paired_ratio([1.0], [2.0]).is_tie


def test_one_pair_has_a_ratio_but_no_interval():
    ratio = paired_ratio([1.0], [2.0])
    assert ratio.value == 0.5
    assert np.isnan([ratio.low, ratio.high]).all()


def test_what_is_not_known_stays_so():
    assert np.isnan(paired_ratio([1.0, np.nan], [2.0, 2.0])).all()
    assert np.isnan(win_rate([1.0, np.nan], [2.0, 2.0]))


def test_win_rate_counts_smaller_values_and_half_of_the_draws():
    assert win_rate([1.0, 3.0, 2.0, 5.0], [2.0, 2.0, 2.0, 9.0]) == 2.5 / 4


@pytest.mark.parametrize("pair", [([1.0], [1.0, 2.0]), ([], []), ([[1.0]], [[1.0]])])
def test_unpaired_values_are_refused(pair):
    with pytest.raises(InputError, match="equally long"):
        paired_ratio(*pair)


def test_an_impossible_level_is_refused():
    with pytest.raises(InputError, match="level"):
        paired_ratio(A, B, level=95)
