"""Words for comparisons, and Holm's care for a table."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dagsim.errors import InputError
from dagsim.metrics.intervals import t_of_mean
from dagsim.metrics.paired import Verdict, compared, holm, paired, verdict, words
from dagsim.metrics.student import two_sided_p

NEAR = 1 + 0.02 * np.cos(np.arange(20) * 2.1)
"""Twenty ratios around 1, by turns above and below."""


def test_four_seeds_give_no_verdict_however_clear() -> None:
    pair = paired([1.0, 1.1, 1.2, 1.05], [100.0] * 4)
    assert pair.p < 1e-4
    assert words(pair) == "too few seeds for a verdict; better in 4 of 4 seeds"
    assert verdict(paired([1.0, 1.1, 1.2, 1.05, 1.0], [100.0] * 5)) is Verdict.BETTER


def test_better_and_worse_by_the_direction_of_the_metric() -> None:
    pair = paired(0.5 * NEAR, np.ones(20))
    assert words(pair) == "better; better in 20 of 20 seeds"
    assert words(pair, lower_is_better=False) == "worse; better in 0 of 20 seeds"
    assert words(paired(2 * NEAR, np.ones(20))) == "worse; better in 0 of 20 seeds"


def test_what_is_not_told_apart_says_what_it_could_be() -> None:
    pair = paired(NEAR, np.ones(20))
    low, high = 100 * (pair.low - 1), 100 * (pair.high - 1)
    assert words(pair) == f"not told apart (could be {low:+.1f}% to {high:+.1f}%); better in {pair.wins} of 20 seeds"
    assert low < 0 < high


def test_holm_can_take_a_difference_back() -> None:
    pair = paired(0.99 * NEAR, np.ones(20))
    assert pair.p < 0.05
    assert verdict(pair, p=0.2) is Verdict.NOT_TOLD_APART
    assert words(pair, p=0.2).startswith("not told apart in this table (alone: -")
    assert verdict(pair) is Verdict.BETTER


def test_identical_and_constant_have_words_of_their_own() -> None:
    ones = np.ones(6)
    assert words(paired(ones, ones)) == "identical in 6 seeds"
    assert words(paired(0.5 * ones, ones)) == "0.5 times in every seed; better in 6 of 6 seeds"


def test_few_windows_of_a_trace_are_approximate() -> None:
    ones = np.ones(20)
    few = "better; better in 20 of 20 windows; approximate: about 300 windows are needed"
    assert words(paired(0.5 * NEAR, ones), unit="window") == few
    many = np.tile(0.5 * NEAR, 15)
    assert words(paired(many, np.ones(300)), unit="window") == "better; better in 300 of 300 windows"


def test_one_far_seed_is_said() -> None:
    ratios = 0.5 * NEAR
    ratios[3] = 4.0
    assert words(paired(ratios, np.ones(20))).endswith("depends on a few seeds")


def test_holm_multiplies_by_what_is_left() -> None:
    # Sorted .01, .03, .04: times 3, 2, 1 = .03, .06, .04; the last may not fall below the one before.
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.7, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


def test_what_cannot_be_tested_is_no_comparison_for_holm() -> None:
    adjusted = holm([math.nan, 0.02, math.nan, 0.01])
    assert adjusted[1::2] == pytest.approx([0.02, 0.02])
    assert np.isnan(adjusted[0::2]).all()


def test_rows_alike_count_once() -> None:
    rows = {
        "fifo": 1.0 + 0 * NEAR,
        "sjf": 0.99 * NEAR,
        "ljf": 1.3 * NEAR,
        "sjf-too": 0.99 * NEAR,
        "fifo-too": 0 * NEAR + 1,
    }
    verdicts = compared(rows, "fifo")
    assert verdicts["sjf"].alike == ("sjf-too",)
    assert verdicts["fifo-too"].alike == ("fifo",)
    assert math.isnan(verdicts["fifo-too"].p)
    # Two comparisons, not four: ljf's p is far smaller, so sjf's is multiplied by 1.
    assert verdicts["sjf"].p == verdicts["sjf-too"].p == verdicts["sjf"].pair.p
    assert verdicts["ljf"].p == 2 * verdicts["ljf"].pair.p


def test_an_unknown_reference_is_refused() -> None:
    with pytest.raises(InputError, match="no row 'sfj' among fifo"):
        compared({"fifo": [1.0]}, "sfj")


def test_a_bad_value_in_a_table_names_seed_and_row() -> None:
    with pytest.raises(InputError, match="sjf, seed 8"):
        compared({"fifo": [1.0, 1.0], "sjf": [1.0, 0.0]}, "fifo", seeds=[7, 8])


def test_holm_keeps_a_table_of_equals_from_error() -> None:
    # 54 correlated rows that are equal to the reference, 10 seeds: plain p-values err in most tables, Holm in 5 %.
    rng = np.random.default_rng(13)
    shared = rng.standard_t(5, (400, 1, 10))
    logs = 0.6 * shared + rng.standard_t(5, (400, 54, 10))
    p = two_sided_p(t_of_mean(logs), 9)
    assert np.mean(p.min(axis=1) < 0.05) > 0.5
    errs = np.mean([min(holm(table.tolist())) < 0.05 for table in p])
    assert errs <= 0.05
