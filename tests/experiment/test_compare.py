from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from dagsim.errors import InputError
from dagsim.metrics.standings import mean, standings


class RunMetrics(NamedTuple):
    policy: str
    seed: int
    metrics: dict[str, Any]


def lines(**jct: list[float | None]) -> list[RunMetrics]:
    return [
        RunMetrics(policy, seed, {"jct_s.mean": v}) for policy, values in jct.items() for seed, v in enumerate(values)
    ]


def test_a_mean_has_an_interval() -> None:
    value, low, high = mean(lines(fifo=[8.0, 10.0, 12.0]), "jct_s.mean")
    assert value == 10
    assert 8 <= low < 10 < high <= 12


def test_a_mean_over_a_seed_without_a_value_is_refused() -> None:
    assert str(mean(lines(fifo=[8.0, None]), "jct_s.mean").value) == "nan"


def test_the_least_mean_is_best_and_compared_with_the_first() -> None:
    first, second = standings(lines(fifo=[10.0, 20.0, 30.0], sjf=[5.0, 10.0, 15.0]))
    assert (first.policy, first.best, first.tied) == ("sjf", True, True)
    assert (first.ratio.value, first.ratio.low, first.ratio.high) == (0.5, 0.5, 0.5)  # each seed halved
    assert first.wins == 1
    assert (second.policy, second.best, second.tied, second.ratio.value) == ("fifo", False, False, 1)


def test_what_cannot_be_told_from_the_best_is_tied() -> None:
    # Against sjf, fit is 1 s better on one seed and 2 s worse on the other.
    ranked = standings(lines(sjf=[10.0, 20.0], fit=[9.0, 22.0], fifo=[30.0, 60.0]))
    assert [(standing.policy, standing.best, standing.tied) for standing in ranked] == [
        ("sjf", True, True),
        ("fit", False, True),
        ("fifo", False, False),
    ]


def test_a_policy_with_unfinished_jobs_comes_last_and_wins_nothing() -> None:
    ranked = standings(lines(slow=[None, 1.0], fifo=[10.0, 20.0]), reference="fifo")
    assert [(standing.policy, standing.best, standing.tied) for standing in ranked] == [
        ("fifo", True, True),
        ("slow", False, False),
    ]


def test_order_of_the_seeds_does_not_matter() -> None:
    forward = lines(fifo=[10.0, 20.0], sjf=[5.0, 18.0])
    backward = [*forward[:2], *reversed(forward[2:])]
    assert [standing.to_dict() for standing in standings(forward)] == [
        standing.to_dict() for standing in standings(backward)
    ]


def test_policies_on_other_seeds_are_not_compared() -> None:
    with pytest.raises(InputError, match="'sjf' and 'fifo' did not run on the same seeds"):
        standings(lines(fifo=[10.0, 20.0], sjf=[5.0]))
    with pytest.raises(InputError, match="there is no policy 'heft' among fifo"):
        standings(lines(fifo=[10.0]), reference="heft")


def test_no_lines_no_standings() -> None:
    assert standings([]) == []
