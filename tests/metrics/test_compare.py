"""Paired comparisons: worked examples, then what must hold for all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagsim.errors import InputError
from dagsim.metrics import intervals
from dagsim.metrics.intervals import geometric_mean, largest_job, median_rank
from dagsim.metrics.paired import Paired, paired, words

T2 = 4.302652729749462  # t(.975) with 2 degrees of freedom


def test_the_ratio_is_the_geometric_mean_with_students_t_on_the_logs() -> None:
    # The logs are ln 2 times 1, 2, 3: mean 2 ln 2, so 4; sd ln 2; half-width t ln 2 / sqrt 3, a factor of 5.594.
    pair = paired([2.0, 4.0, 8.0], [1.0, 1.0, 1.0])
    factor = 2 ** (T2 / math.sqrt(3))
    assert (pair.ratio, pair.low, pair.high) == pytest.approx((4, 4 / factor, 4 * factor), rel=1e-12)
    # t = 2 / (1 / sqrt 3) = sqrt 12; with 2 degrees p = 1 - t / sqrt(2 + t^2) = 1 - sqrt(12 / 14).
    assert pair.p == pytest.approx(1 - math.sqrt(12 / 14), rel=1e-12)
    assert (pair.n, pair.wins, pair.differ) == (3, 0, 3)
    assert pair.farthest_sd == pytest.approx(1.0)


def test_the_ratio_of_means_has_the_delta_interval_on_its_log() -> None:
    # r = 14/3; d = (2, 4, 8) / (14/3) - 1 = (-8, -2, 10) / 14; sd = sqrt((64 + 4 + 100) / 196 / 2) = sqrt(3 / 7).
    pair = paired([2.0, 4.0, 8.0], [1.0, 1.0, 1.0])
    factor = math.exp(T2 * math.sqrt(3 / 7) / math.sqrt(3))
    assert (pair.of_means, pair.of_means_low, pair.of_means_high) == pytest.approx(
        (14 / 3, 14 / 3 / factor, 14 / 3 * factor), rel=1e-12
    )


def test_the_delta_interval_counts_how_the_two_hang_together() -> None:
    # a = 2 b but for the last: r = 20 / 9; a - r b = (2 - 20/9, 4 - 40/9, 14 - 120/9) = (-2, -4, 6) / 9; mean a = 20/3.
    pair = paired([2.0, 4.0, 14.0], [1.0, 2.0, 6.0])
    sd = math.sqrt((4 + 16 + 36) / 81 / 2) / (20 / 3)
    assert pair.of_means_high / pair.of_means == pytest.approx(math.exp(T2 * sd / math.sqrt(3)), rel=1e-12)


def test_the_medians_interval_counts_from_each_end() -> None:
    five = paired([5.0, 1.0, 4.0, 2.0, 3.0], [1.0] * 5)
    assert (five.median, five.median_low, five.median_high) == (3, 1, 5)
    ten = paired([float(value) for value in range(1, 11)], [1.0] * 10)
    assert (ten.median, ten.median_low, ten.median_high) == (5.5, 2, 9)


def test_the_medians_rank_is_as_exact_as_coins_allow() -> None:
    # 2 P(Bin(n, 1/2) <= k - 1) <= .07: for n = 4 even 2 / 16 is too much, for n = 5 2 / 32 is not; n = 10: 22 / 1024.
    assert [median_rank(n) for n in (1, 4, 5, 8, 9, 10, 20, 30, 100)] == [None, None, 1, 1, 2, 2, 6, 10, 41]
    assert median_rank(10_000) == 4909  # 2 P(Bin <= 4908) = .0672, of 4909 .0701; big numbers do not overflow


def test_four_seeds_have_no_interval_of_the_median() -> None:
    pair = paired([1.0, 2.0, 3.0, 5.0], [1.0, 1.0, 2.0, 2.0])
    assert math.isnan(pair.median_low)
    assert pair.median == 1.75
    assert pair.low < pair.ratio < pair.high


def test_one_seed_has_a_value_only() -> None:
    pair = paired([3.0], [2.0])
    assert (pair.ratio, pair.of_means, pair.median) == pytest.approx((1.5, 1.5, 1.5))
    assert np.isnan([pair.low, pair.high, pair.p, pair.median_low, pair.of_means_low]).all()
    assert not pair.is_constant


def test_identical_values_have_no_interval() -> None:
    pair = paired([1.7, 2.9, 3.1, 4.4, 5.0], [1.7, 2.9, 3.1, 4.4, 5.0])
    assert pair.is_identical
    assert (pair.ratio, pair.of_means, pair.median, pair.wins) == (1, 1, 1, 0)
    assert np.isnan([pair.low, pair.high, pair.p, pair.median_low, pair.of_means_high]).all()


def test_the_last_digits_make_no_difference() -> None:
    values = np.array([1.7, 2.9, 3.1, 4.4, 5.0])
    assert paired(values * (1 + 3e-16), values).is_identical
    assert paired(values * 0.3, values).is_constant
    assert math.isnan(paired(values * 0.3, values).p)


def test_seeds_where_both_are_equal_stay_in() -> None:
    pair = paired([1.0, 1.0, 1.0, 1.0, 2.0], [1.0] * 5)
    assert (pair.n, pair.differ, pair.wins) == (5, 1, 0)
    assert pair.ratio == pytest.approx(2 ** (1 / 5))
    assert pair.median == 1


def test_a_few_seeds_decide_where_one_lies_far_off() -> None:
    calm = 1 + 0.01 * np.sin(np.arange(30))
    assert not paired(0.8 * calm, np.ones(30)).is_decided_by_few
    calm[7] = 3.0
    assert paired(0.8 * calm, np.ones(30)).farthest_sd > 3
    assert paired(0.8 * calm, np.ones(30)).is_decided_by_few


def test_a_few_seeds_decide_where_mean_and_median_disagree() -> None:
    ratios = [1.2, 1.1, 1.15, 1.2, 1.1, 1.3, 1.1, 1.2, 0.2, 0.3]  # the second and the ninth from below: 0.3 and 1.2
    assert paired(ratios, [1.0] * 10).is_decided_by_few is False  # neither leaves out 1
    ratios = [1.2, 1.1, 1.15, 1.2, 1.1, 1.3, 1.1, 1.2, 1.05, 0.1]  # t holds 1; the median is [1.05, 1.2]
    assert paired(ratios, [1.0] * 10).is_decided_by_few


def test_a_few_seeds_decide_where_mean_and_median_lie_on_either_side_of_1() -> None:
    pair = paired([0.9] * 65 + [3.0] * 35, [1.0] * 100)
    assert pair.low > 1 > pair.median_high
    assert pair.is_decided_by_few


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_bad_value_is_refused_with_its_seed_and_policy(bad: float) -> None:
    with pytest.raises(InputError, match=r"fifo, seed 42: the value must be positive, got"):
        paired([1.0, 1.0], [1.0, bad], seeds=[41, 42], names=("sjf", "fifo"))
    with pytest.raises(InputError, match=r"values, pair 2 of 2"):
        paired([1.0, bad], [1.0, 1.0])


@pytest.mark.parametrize("pair", [([1.0], [1.0, 2.0]), ([], []), ([[1.0]], [[1.0]])])
def test_unpaired_values_are_refused(pair: tuple[list[float], list[float]]) -> None:
    with pytest.raises(InputError, match="equally long"):
        paired(*pair)


def test_an_impossible_level_is_refused() -> None:
    with pytest.raises(InputError, match="level"):
        paired([1.0, 2.0], [1.0, 1.0], level=95)


VALUES = st.lists(st.tuples(st.floats(0.01, 1e6), st.floats(0.01, 1e6)), min_size=1, max_size=40)


@given(VALUES)
def test_swapping_the_two_mirrors_everything(rows: list[tuple[float, float]]) -> None:
    a, b = map(list, zip(*rows, strict=True))
    here, there = paired(a, b), paired(b, a)
    assert here.ratio * there.ratio == pytest.approx(1, abs=1e-12)
    assert here.of_means * there.of_means == pytest.approx(1, abs=1e-12)
    assert here.wins + there.wins == here.differ == there.differ
    for low, high in (("low", "high"), ("median_low", "median_high"), ("of_means_low", "of_means_high")):
        mirrored = 1 / getattr(there, high)
        assert getattr(here, low) == pytest.approx(mirrored, rel=1e-9, nan_ok=True)
    assert here.p == pytest.approx(there.p, rel=1e-9, nan_ok=True)


@given(VALUES, st.floats(0.001, 1000))
def test_the_unit_of_time_makes_no_difference(rows: list[tuple[float, float]], unit: float) -> None:
    a, b = (np.array(column) for column in zip(*rows, strict=True))
    here, scaled = paired(a, b), paired(unit * a, unit * b)
    assert (scaled.ratio, scaled.of_means, scaled.median) == pytest.approx(
        (here.ratio, here.of_means, here.median), rel=1e-9
    )


@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=30))
def test_the_interval_leaves_out_1_exactly_where_p_is_small(ratios: list[float]) -> None:
    pair = paired(ratios, [1.0] * len(ratios))
    if not math.isnan(pair.p) and abs(pair.p - 0.05) > 1e-9:
        assert (pair.low > 1 or pair.high < 1) == (pair.p < 0.05)


def test_many_samples_at_once_are_each_as_alone() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.lognormal(size=(2, 50, 8))
    logs = np.log(a) - np.log(b)
    alone: list[Paired] = [paired(*pair) for pair in zip(a, b, strict=True)]
    assert geometric_mean(logs).low == pytest.approx([pair.low for pair in alone], rel=1e-12)
    assert intervals.ratio_of_means(a, b).high == pytest.approx([pair.of_means_high for pair in alone], rel=1e-12)
    assert intervals.median(a / b).low == pytest.approx([pair.median_low for pair in alone], rel=1e-12)


def test_a_long_tail_of_jobs_makes_twenty_seeds_approximate() -> None:
    logs = np.random.default_rng(0).normal(-0.1, 0.05, 20)
    calm, tailed = (paired(np.exp(logs), np.ones(20), largest_job=share) for share in (0.05, 0.15))
    assert (calm.seeds_needed, tailed.seeds_needed) == (0, 300)
    assert words(calm).startswith("better; better in 20 of 20 seeds")
    assert words(tailed).endswith("approximate: about 300 seeds are needed")


def test_samples_that_show_their_tail_hold_more_often_than_samples_that_missed_it() -> None:
    """Why the ratios themselves do not decide whether an interval is marked."""
    rng = np.random.default_rng(0)
    logs = np.where(rng.random((20_000, 30)) < 0.08, -1.0, rng.normal(0, 0.01, (20_000, 30)))
    bounds = geometric_mean(logs)
    held = (bounds.low <= np.exp(-0.08)) & (np.exp(-0.08) <= bounds.high)
    shows = intervals.skewness(logs) ** 2 > 30 / 12.35
    assert held[shows].mean() > held.mean() > held[~shows].mean()
    assert set(intervals.seeds_for_interval(logs)) == {0}


def test_fewer_than_ten_seeds_make_an_interval_approximate() -> None:
    logs = np.linspace(-0.3, -0.1, 10)
    few, enough = paired(np.exp(logs[:9]), np.ones(9)), paired(np.exp(logs), np.ones(10))
    assert (few.seeds_needed, enough.seeds_needed) == (10, 0)
    assert words(few) == "better; better in 9 of 9 seeds; approximate: about 10 seeds are needed"


def test_one_seed_of_a_hundred_that_carries_the_ratio_makes_it_approximate() -> None:
    logs = np.full(100, -0.01) + np.linspace(0, 1e-3, 100)
    logs[0] = -1.0  # one seed of a hundred: the largest skewness there is, about the root of n
    far = paired(np.exp(logs), np.ones(100))
    assert far.seeds_needed > 1000
    assert words(far).endswith("approximate: no number of seeds up to 1,000 is enough")
    even = np.random.default_rng(1).normal(0, 0.1, 100)
    assert paired(np.exp(even), np.ones(100)).seeds_needed == 0


def test_the_share_of_the_largest_job_comes_from_percentiles() -> None:
    equal = np.float64(10.0)
    assert largest_job(equal, equal, equal, np.float64(50)) == pytest.approx(1 / 50)
    # Pareto with index 1 from 1 on: percentiles 20 and 100; of 1,000 jobs the largest is about 1,000
    tail = largest_job(np.float64(7.0), np.float64(20.0), np.float64(100.0), np.float64(1000))
    assert tail == pytest.approx(1000 / 7000)
