from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagsim.errors import WorkloadError
from dagsim.workload.distributions import (
    Choice,
    Constant,
    LogNormal,
    LogUniform,
    Mixture,
    Pareto,
    Part,
    Quantiles,
    Uniform,
    Whole,
)

N = 200_000


def draw(distribution, count=N):
    return distribution.draw(np.random.default_rng(1), count)


@pytest.mark.parametrize(
    ("distribution", "mean"),
    [
        (Constant(3.0), 3.0),
        (Uniform(2.0, 6.0), 4.0),
        (Whole(1, 8), 4.5),
        (LogUniform(1.0, 100.0), 99 / log(100)),  # (high - low) / ln(high / low)
        (LogNormal(10.0, 0.5), 10 * exp(0.125)),  # median * exp(sigma^2 / 2)
        (Pareto(2.0, 3.0), 3.0),  # scale * alpha / (alpha - 1)
        (Choice((1, 2, 4, 8), (0.65, 0.17, 0.14, 0.04)), 1.87),
        (Choice((1, 3)), 2.0),
        (Mixture((Part(3.0, Constant(1.0)), Part(1.0, Uniform(4.0, 6.0)))), 2.0),  # (3 * 1 + 1 * 5) / 4
        (Quantiles(((0.0, 0.0), (0.5, 0.0), (1.0, 8.0))), 2.0),  # evenly from 0 to 8 for half of the draws
    ],
)
def test_mean_is_the_one_of_the_textbook(distribution, mean):
    assert draw(distribution).mean() == pytest.approx(mean, rel=0.02)


def test_clipping_keeps_what_lies_outside_at_the_bound():
    drawn = draw(LogNormal(600.0, 1.3, 20.0, 20000.0))
    assert drawn.min() == 20.0
    assert drawn.max() == 20000.0
    assert np.median(drawn) == pytest.approx(600.0, rel=0.02)


def test_pareto_tail_falls_as_its_power():
    # P(X > 10 * scale) = 10 ** -1.5 = 3.16 %
    assert np.mean(draw(Pareto(2.0, 1.5)) > 20.0) == pytest.approx(0.0316, rel=0.05)


def test_whole_reaches_both_ends():
    assert set(draw(Whole(2, 4)).tolist()) == {2.0, 3.0, 4.0}


def test_quantiles_grow_geometrically_between_points():
    # Half way between the median 1 and the maximum 100 lies 10.
    drawn = draw(Quantiles(((0.0, 1.0), (0.5, 1.0), (1.0, 100.0))))
    assert np.quantile(drawn, 0.75) == pytest.approx(10.0, rel=0.02)


def test_whole_quantiles_keep_the_published_percentiles():
    drawn = draw(Quantiles(((0.0, 1.0), (0.6, 1.0), (0.9, 47.0), (1.0, 1000.0)), whole=True))
    assert np.array_equal(drawn, np.rint(drawn))
    assert np.quantile(drawn, 0.59, method="inverted_cdf") == 1
    assert np.quantile(drawn, 0.9, method="inverted_cdf") == pytest.approx(47, abs=1)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1e9)), max_size=8), st.integers(0, 99))
def test_quantiles_stay_between_their_points(inner, seed):
    chances = sorted([0.0, 1.0, *(chance for chance, _ in inner)])
    values = sorted([3.0, 1e9, *(value for _, value in inner)])
    drawn = Quantiles(tuple(zip(chances, values, strict=True))).draw(np.random.default_rng(seed), 50)
    assert np.all((drawn >= values[0] * (1 - 1e-9)) & (drawn <= values[-1] * (1 + 1e-9)))


def test_a_mixture_takes_parts_by_weight():
    drawn = draw(Mixture((Part(85, Uniform(100, 800)), Part(15, LogUniform(800, 10000)))))
    assert np.mean(drawn < 800) == pytest.approx(0.85, abs=0.005)


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: Constant(float("nan")), "value"),
        (lambda: Uniform(2, 1), "low"),
        (lambda: LogUniform(0, 1), "low"),
        (lambda: LogNormal(0), "median"),
        (lambda: LogNormal(1, -1), "sigma"),
        (lambda: LogNormal(1, 1, 5, 4), "high"),
        (lambda: Pareto(alpha=0), "alpha"),
        (lambda: Pareto(scale=5, high=4), "high"),
        (lambda: Choice(()), "values"),
        (lambda: Choice((1, 2), (1,)), "weights"),
        (lambda: Choice((1, 2), (0, 0)), "weights"),
        (lambda: Mixture(()), "weights"),
        (lambda: Quantiles(((0, 1),)), "points"),
        (lambda: Quantiles(((0, 1), (0.5, 3), (1, 2))), "points"),
        (lambda: Quantiles(((0.1, 1), (1, 2))), "points"),
    ],
)
def test_what_is_no_distribution_is_refused_by_name(build, named):
    with pytest.raises(WorkloadError, match=named):
        build()


def test_quantiles_below_1_grow_geometrically_too_and_from_0_linearly():
    drawn = Quantiles(((0.0, 0.0), (0.5, 0.5), (1.0, 2.0)))
    assert drawn.at(np.array([0.25, 0.75, 0.875])) == pytest.approx([0.25, 1.0, 2**0.5])
