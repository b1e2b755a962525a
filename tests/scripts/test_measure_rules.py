"""``scripts/measure_rules.py``: the figures of results/statistics/README.md that are not coverages."""

from __future__ import annotations

from math import log, sqrt

import measure_rules as rules
import numpy as np
import pytest
from scipy.stats import nct, t


@pytest.fixture(scope="module")
def normal() -> object:
    """Four policies whose logs are normal; those of the first two differ by 0.1 with a standard deviation of 0.1."""
    rng = np.random.default_rng(1)
    values = np.exp(rng.normal([0.0, 0.1, 0.3, 0.4], 0.1 / sqrt(2), (20_000, 4)))
    return rules.Population("made", "drawn", values, ("a", "b", "c", "d"), np.zeros(values.shape))


def test_power_is_that_of_the_t_test_whatever_the_two_differ_by(normal: object) -> None:
    power = rules.power(normal, ("a", "b"), 4000, 0)
    for n in (5, 10, 20, 30):
        shift, edge = log(1.05) / 0.1 * sqrt(n), t.ppf(0.975, n - 1)
        exact = nct.sf(edge, n - 1, shift) + nct.cdf(-edge, n - 1, shift)
        assert power[str(n)] == pytest.approx(exact, abs=0.03)  # se of 4,000 samples: .008


def test_tables_of_equal_rows_have_errors_that_holm_takes_out(normal: object) -> None:
    errors = rules.tables([normal], 150, 0)
    for n in ("5", "10", "20", "30"):
        assert errors["plain"]["made"][n] > 0.25
        assert errors["holm"]["made"][n] < 0.1


def test_blocks_of_independent_jobs_are_stopped_as_often_as_the_test_says() -> None:
    # Of five normal values the first and last differ by more than t(.975, 4) s / sqrt(5).
    values = np.random.default_rng(2).normal(size=(20_000, 5))
    half_width = t.ppf(0.975, 4) * values.std(axis=1, ddof=1) / sqrt(5)
    expected = np.mean(np.abs(values[:, 0] - values[:, 4]) > half_width)
    assert rules.blocks(300, 0)["stopped"] == pytest.approx(expected, abs=0.1)  # se .03
