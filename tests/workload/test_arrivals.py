from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagsim.errors import WorkloadError
from dagsim.workload.arrivals import Batch, Bursty, Diurnal, Poisson, Swing

DAY_S = 86400.0


def times(pattern, count=20_000, span_s=DAY_S, seed=0):
    return pattern.times(np.random.default_rng(seed), count, span_s)


@given(
    st.sampled_from([Poisson(), Bursty(), Bursty(1, 1.0, 0.9), Diurnal(), Diurnal(1.0), Batch()]),
    st.integers(1, 50),
    st.floats(1e-3, 1e8),
    st.integers(0, 99),
)
def test_times_are_sorted_and_not_negative(pattern, count, span_s, seed):
    drawn = times(pattern, count, span_s, seed)
    assert len(drawn) == count
    assert np.all(np.diff(drawn) >= 0)
    assert drawn[0] >= 0


def test_poisson_gaps_are_exponential():
    gaps = np.diff(times(Poisson()))
    assert gaps.mean() == pytest.approx(DAY_S / 20_000, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)  # the mark of an exponential


def test_bursty_puts_its_share_into_bursts():
    # One burst of width 1 % of a day: 95.4 % of the 70 % within 2 widths, and 4 % of the 30 % that are spread evenly.
    drawn = times(Bursty(1, 0.7, 0.01), seed=3) / DAY_S
    centre = np.median(drawn)
    assert np.mean(np.abs(drawn - centre) < 0.02) == pytest.approx(0.7 * 0.954 + 0.3 * 0.04, abs=0.02)


@pytest.mark.parametrize("pattern", [Bursty(), Bursty(3, 1.0, 0.5), Diurnal()])
def test_all_arrive_within_the_span(pattern):
    drawn = times(pattern)
    assert drawn[-1] <= DAY_S


def test_diurnal_peak_is_as_many_times_the_trough_as_asked():
    # Ten days; the hour around the peak (14:00) against the hour around the trough (02:00)
    hours = times(Diurnal(4.0), 200_000, 10 * DAY_S) % DAY_S / 3600
    peak, trough = (np.mean(np.abs(hours - hour) < 0.5) for hour in (14, 2))
    assert peak / trough == pytest.approx(4.0, rel=0.05)


def test_batch_is_all_at_once():
    assert not times(Batch(), 5).any()


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: Bursty(0), "bursts"),
        (lambda: Bursty(share=1.1), "share"),
        (lambda: Bursty(width=0), "width"),
        (lambda: Diurnal(0.5), "peak_to_trough"),
        (lambda: Diurnal(period_s=0), "period_s"),
    ],
)
def test_impossible_patterns_are_refused(build, named):
    with pytest.raises(WorkloadError, match=named):
        build()


def test_a_swing_goes_on_from_week_to_week_with_its_spread_and_correlation():
    swing = Swing(0.5, 5.0)
    whole, end = swing.factors(np.random.default_rng(0), 20_000, None)
    rng, parts, last = np.random.default_rng(0), [], None
    for hours in (1, 168, 19_831):
        part, last = swing.factors(rng, hours, last)
        parts.append(part)
    assert (np.concatenate(parts) == whole).all()
    assert last == end
    path = np.log(whole)
    assert path.std() == pytest.approx(0.5, rel=0.05)
    assert path.mean() == pytest.approx(-0.125, abs=0.05)  # so that the factors have mean 1
    assert np.corrcoef(path[1:], path[:-1])[0, 1] == pytest.approx(np.exp(-1 / 5), abs=0.02)
    assert end == pytest.approx((path[-1] + 0.125) / 0.5)
