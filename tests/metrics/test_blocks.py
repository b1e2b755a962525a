"""An interval over time within one trace."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dagsim.errors import InputError
from dagsim.metrics.ratio_over_time import over_time
from dagsim.metrics.student import t_quantile


def test_five_blocks_have_students_t_with_4_degrees() -> None:
    # Blocks of 2,000 jobs whose ratios are 2^0, 2^1, 2^2, 2^1, 2^0: logs (0, 1, 2, 1, 0) ln 2, mean .8, variance
    # ((.8^2 + .2^2 + 1.2^2 + .2^2 + .8^2) / 4) = .7, half-width 2.776 sqrt(.7 / 5).
    values = np.repeat([1.0, 2.0, 4.0, 2.0, 1.0], 2000)
    interval = over_time(values, np.ones(10_000))
    half = t_quantile(0.95, 4) * math.sqrt(0.7 / 5)
    assert (interval.ratio, interval.low, interval.high) == pytest.approx(
        (2**0.8, 2 ** (0.8 - half), 2 ** (0.8 + half))
    )
    assert interval.pieces == (1.0, 2.0, 4.0, 2.0, 1.0)
    assert str(interval).endswith("over time within this trace")


def test_a_piece_is_a_ratio_of_means() -> None:
    reference = np.tile([1.0, 9.0], 5000)
    values = np.tile([3.0, 12.0], 5000)  # 15 / 10, not the mean of 3 and 4/3
    assert over_time(values, reference).pieces == (1.5,) * 5


def test_a_trace_that_drifts_has_no_interval() -> None:
    values = np.repeat([1.0, 1.1, 1.2, 1.3, 1.4], 2000)
    interval = over_time(values, np.ones(10_000))
    assert interval.drifts
    assert math.isnan(interval.low)
    assert str(interval) == "no interval: the ratio drifts from 1.000 to 1.400 within this trace"


def test_a_block_that_stands_out_before_the_last_is_no_drift() -> None:
    assert not over_time(np.repeat([1.0, 1.0, 1.0, 1.3, 1.0], 2000), np.ones(10_000)).drifts


def test_swapping_the_two_mirrors_the_interval() -> None:
    values, reference = np.repeat([1.0, 2.0, 4.0, 2.0, 1.0], 2000), np.repeat([1.0, 1.0, 1.0, 3.0, 1.0], 2000)
    here, there = over_time(values, reference), over_time(reference, values)
    assert (here.ratio * there.ratio, here.low * there.high) == pytest.approx((1, 1))


def test_a_remainder_is_spread_over_the_blocks() -> None:
    assert over_time(np.ones(10_003), np.ones(10_003) * 2).jobs == 10_003


def test_few_jobs_are_refused() -> None:
    with pytest.raises(InputError, match=r"needs at least 10,000 jobs, .* but this one has 9,999"):
        over_time(np.ones(9_999), np.ones(9_999))


@pytest.mark.parametrize("blocks", [0, 1, 101])
def test_a_number_of_blocks_that_makes_no_sense_is_refused(blocks: int) -> None:
    with pytest.raises(InputError, match="blocks: must be 2 to 100"):
        over_time(np.ones(10_000), np.ones(10_000), blocks)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0])
def test_a_job_without_a_time_is_refused_with_its_block(wrong: float) -> None:
    values = np.ones(10_000)
    values[4_500] = wrong
    with pytest.raises(InputError, match="block 3"):
        over_time(values, np.ones(10_000))


def test_independent_blocks_are_covered_as_said() -> None:
    rng, held, kept = np.random.default_rng(2), 0, 0
    for _ in range(400):
        ratios = np.repeat(np.exp(rng.normal(0, 0.1, 5)), 2000)
        interval = over_time(ratios, np.ones(10_000))
        kept += not interval.drifts
        held += interval.low <= 1 <= interval.high
    assert 0.45 < kept / 400 < 0.63  # by chance alone first and last differ so much in 46 %
    assert held / kept > 0.92
