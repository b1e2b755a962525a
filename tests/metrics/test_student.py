"""Student's t without scipy, against closed forms and against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dagsim.errors import InputError
from dagsim.metrics.student import t_quantile, two_sided_p


def test_one_and_two_degrees_have_closed_forms() -> None:
    t = np.array([0.0, 1e-6, 0.3, 2.0, 50.0, 1e6])
    # One degree is Cauchy's distribution: 1 - (2 / pi) atan t = (2 / pi) atan (1 / t). Two: 1 - t / sqrt(2 + t^2).
    assert two_sided_p(t[1:], 1) == pytest.approx(2 / math.pi * np.arctan(1 / t[1:]), rel=1e-12)
    assert two_sided_p(t, 2) == pytest.approx(1 - t / np.sqrt(2 + t**2), abs=1e-15)
    assert t_quantile(0.95, 1) == pytest.approx(math.tan(0.475 * math.pi), rel=1e-12)


def test_the_sign_does_not_matter_and_the_ends_are_exact() -> None:
    assert two_sided_p(-1.7, 9) == two_sided_p(1.7, 9)
    assert two_sided_p([0.0, math.inf], 9).tolist() == [1.0, 0.0]
    assert math.isnan(two_sided_p(math.nan, 9))


def test_quantiles_and_tails_are_scipys_up_to_1000_degrees() -> None:
    special = pytest.importorskip("scipy.special")
    df = np.r_[1:40, 40:1001:41]  # the series has other terms for odd and even ones
    ours = np.array([t_quantile(0.95, int(degrees)) for degrees in df])
    assert ours == pytest.approx(special.stdtrit(df, 0.975), rel=1e-9)
    t = np.array([0.01, 0.7, 2.0, 5.0, 12.0])
    tails = np.array([two_sided_p(t, int(degrees)) for degrees in df])
    assert tails == pytest.approx(2 * special.stdtr(df[:, None], -t), rel=1e-9)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99, 0.9999])
@pytest.mark.parametrize("df", [1, 2, 3, 7, 30, 1000])
def test_a_quantile_leaves_out_what_it_should(level: float, df: int) -> None:
    assert two_sided_p(t_quantile(level, df), df) == pytest.approx(1 - level, rel=1e-9)


@pytest.mark.parametrize(("level", "df"), [(0.0, 3), (1.0, 3), (95, 3), (0.95, 0)])
def test_an_impossible_level_is_refused(level: float, df: int) -> None:
    with pytest.raises(InputError, match="level must be between 0 and 1"):
        t_quantile(level, df)
