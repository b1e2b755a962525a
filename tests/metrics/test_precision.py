"""The rule that adds seeds until the interval is narrow enough."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dagsim.errors import InputError
from dagsim.metrics.paired import Ending, Precision
from dagsim.metrics.student import t_quantile


def alternating(size: float, n: int) -> np.ndarray:
    """+size, -size, ...: sd is size sqrt(n / (n - 1)) for an even n."""
    return size * np.where(np.arange(n) % 2, -1.0, 1.0)


def test_nothing_is_said_before_20_seeds() -> None:
    look = Precision(0.02).look(alternating(1e-6, 13))
    assert (look.ending, look.more) == (Ending.GOES_ON, 7)


def test_enough_as_soon_as_the_half_width_is_below_2_percent() -> None:
    # n = 20: half-width = 2.093 x size x sqrt(20 / 19) / sqrt 20 = .48018 size, and ln 1.02 = .0198026: size .04124.
    assert Precision(0.02).look(alternating(0.0412, 20)).ending is Ending.ENOUGH
    look = Precision(0.02).look(alternating(0.0413, 20))
    assert (look.ending, look.more) == (Ending.GOES_ON, 10)
    assert look.half_width == pytest.approx(math.expm1(t_quantile(0.95, 19) * 0.0413 / math.sqrt(19)), rel=1e-12)


def test_the_forecast_is_that_of_a_fixed_design() -> None:
    # sd = .1 sqrt(20 / 19) = .1025978; (1.959964 x .1025978 / .0198026)^2 = 103.1
    look = Precision(0.02).look(alternating(0.1, 20))
    assert look.needs == 104
    assert look.ending is Ending.GOES_ON


def test_a_hopeless_comparison_ends_after_20_seeds_with_its_forecast() -> None:
    # Ten times the spread needs a hundred times the seeds: 10,311.6.
    look = Precision(0.02).look(alternating(1.0, 20))
    assert (look.ending, look.more, look.needs) == (Ending.HOPELESS, 0, 10_312)
    assert str(look).endswith("after 20 seeds; needs about 10,312 seeds")


def test_hope_is_judged_by_the_first_20_seeds() -> None:
    logs = np.concatenate([alternating(0.1, 20), alternating(5.0, 20)])
    assert Precision(0.02).look(logs).ending is Ending.GOES_ON
    assert Precision(0.02).look(logs[::-1]).ending is Ending.HOPELESS


def test_one_seed_more_at_a_time_is_allowed() -> None:
    assert Precision(0.02, step=1).look(alternating(0.0413, 20)).more == 1


def test_the_cap_ends_it_and_the_last_step_may_be_short() -> None:
    rule = Precision(0.02, cap=105)
    assert rule.look(alternating(0.1, 100)).more == 5
    look = rule.look(np.append(alternating(0.1, 104), 0.3))
    assert (look.ending, look.more) == (Ending.USED_UP, 0)


def test_ties_do_not_end_it_before_5_seeds_differ() -> None:
    logs = np.zeros(30)
    logs[[3, 9, 17, 25]] = 1e-4  # narrow, but by four seeds only
    look = Precision(0.02).look(logs)
    assert (look.ending, look.more) == (Ending.GOES_ON, 10)
    assert look.needs == 38  # 5 x 30 / 4
    logs[29] = 1e-4
    assert Precision(0.02).look(logs).ending is Ending.ENOUGH


def test_identical_after_20_seeds_is_an_end() -> None:
    look = Precision(0.02).look(np.zeros(20))
    assert (look.ending, look.more, str(look)) == (Ending.IDENTICAL, 0, "identical in 20 seeds")


def test_the_interval_at_the_end_still_covers() -> None:
    # Normal logs of sd .1 need about 104 seeds. Looking every 10 costs little: at least .915 of 600 (here .94).
    rng, rule, held = np.random.default_rng(5), Precision(0.02), 0
    for _ in range(600):
        logs = rng.normal(0.3, 0.1, rule.cap)
        look = rule.look(logs[:20])
        while look.more:
            look = rule.look(logs[: look.n + look.more])
        assert look.ending is Ending.ENOUGH
        held += abs(logs[: look.n].mean() - 0.3) <= math.log1p(look.half_width)
    assert held / 600 >= 0.915


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"within": 0.0}, "above 0% and below 100%, got 0%"),
        ({"within": 1.0}, "got 100%"),
        ({"within": 2.0}, "got 200%"),
        ({"within": 0.02, "start": 3}, "start must be at least 5"),
        ({"within": 0.02, "cap": 12}, "needs 20 seeds or windows to start with, but there are only 12"),
    ],
)
def test_an_impossible_rule_is_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Precision(**options)  # type: ignore[arg-type]


def test_equal_schedulers_need_no_seeds_to_be_told_exact() -> None:
    assert Precision(0.02).look(np.zeros(20)).approximate == ""
