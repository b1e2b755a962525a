from __future__ import annotations

from math import exp, isnan, log, sqrt
from statistics import mean as average
from statistics import stdev
from typing import Any, NamedTuple

import pytest

from dagsim.errors import InputError
from dagsim.metrics.paired import Verdict
from dagsim.metrics.standings import PolicyResult, Sample, mean, standings


class RunMetrics(NamedTuple):
    policy: str
    seed: int
    metrics: dict[str, Any]


def lines(metric: str = "jct_s.mean", **values: list[float | None]) -> list[RunMetrics]:
    return [RunMetrics(policy, seed, {metric: v}) for policy, row in values.items() for seed, v in enumerate(row)]


def by_name(ranked: list[PolicyResult]) -> dict[str, PolicyResult]:
    return {standing.policy: standing for standing in ranked}


FIFO: list[float | None] = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
HALF: list[float | None] = [5.0, 9.0, 15.0, 21.0, 25.0, 30.0]


def test_a_mean_has_an_interval_from_five_seeds_on() -> None:
    values: list[float | None] = [8.0, 9.0, 10.0, 11.0, 12.0]
    value, low, high = mean(lines(fifo=values), "jct_s.mean")
    # The delta method on the logarithm: 10 exp(+- 2.776 sd / 10 / sqrt 5), sd = 1.5811; t(.975, 4) = 2.776.
    assert (value, low, high) == pytest.approx((10.0, 10 / exp(0.19631), 10 * exp(0.19631)), rel=1e-4)
    assert isnan(mean(lines(fifo=values[:4]), "jct_s.mean").low)
    assert isnan(mean(lines(fifo=[8.0, None]), "jct_s.mean").value)


def test_the_headline_is_the_geometric_mean_ratio_with_t_on_the_logs() -> None:
    sjf = by_name(standings(lines(fifo=FIFO, sjf=HALF)))["sjf"]
    logs = [log(a / b) for a, b in zip(HALF, FIFO, strict=True) if a and b]
    half = 2.570582 * stdev(logs) / sqrt(6)  # t(.975, 5)
    assert sjf.pair is not None
    expected = [exp(average(logs) + sign * half) for sign in (0, -1, 1)]
    assert [sjf.pair.ratio, sjf.pair.low, sjf.pair.high] == pytest.approx(expected, rel=1e-6)
    assert sjf.pair.of_means == pytest.approx(105 / 210)
    words = "better; better in 6 of 6 seeds; approximate: about 10 seeds are needed"
    assert (sjf.verdict, sjf.wins, sjf.words) == (Verdict.BETTER, 6, words)


def test_the_best_comes_first_and_the_reference_is_the_first_given() -> None:
    first, second = standings(lines(fifo=FIFO, sjf=HALF))
    assert (first.policy, first.best, first.is_reference) == ("sjf", True, False)
    assert (second.policy, second.best, second.is_reference, second.words) == ("fifo", False, True, "reference")
    assert second.pair is not None
    assert second.pair.ratio == 1


def test_fewer_than_five_seeds_have_no_verdict() -> None:
    sjf = by_name(standings(lines(fifo=FIFO[:4], sjf=HALF[:4])))["sjf"]
    assert (sjf.verdict, sjf.words) == (Verdict.TOO_FEW, "too few seeds for a verdict; better in 4 of 4 seeds")


def test_holm_takes_back_a_verdict_that_stands_alone() -> None:
    near: list[float | None] = [9.0, 19.0, 29.5, 38.0, 49.5, 61.0]
    alone = by_name(standings(lines(fifo=FIFO, near=near)))["near"]
    others: dict[str, list[float | None]] = {
        f"p{place}": [value * (1 + 0.1 * ((7 * place + seed) % 5 - 2)) for seed, value in enumerate(FIFO) if value]
        for place in range(8)
    }
    among = by_name(standings(lines(fifo=FIFO, near=near, **others)))["near"]
    assert alone.pair == among.pair
    assert among.p > alone.p


def test_equal_policies_are_named_and_count_once() -> None:
    ranked = by_name(standings(lines(fifo=FIFO, sjf=HALF, twin=HALF, lazy=FIFO)))
    assert ranked["sjf"].alike == ("twin",)
    assert ranked["twin"].alike == ("sjf",)
    assert ranked["lazy"].alike == ("fifo",)
    assert ranked["fifo"].alike == ("lazy",)
    assert ranked["lazy"].verdict is Verdict.IDENTICAL
    assert ranked["sjf"].pair is not None
    assert ranked["sjf"].p == ranked["sjf"].pair.p  # the twins are one comparison, lazy is none


def test_a_metric_that_is_zero_has_no_ratio_and_orders_by_means() -> None:
    ranked = standings(lines("failures", fifo=[2.0, 0.0], sjf=[0.0, 0.0]), "failures")
    assert [(standing.policy, standing.mean.value, standing.pair, standing.words) for standing in ranked] == [
        ("sjf", 0.0, None, "no ratio: a value is 0"),
        ("fifo", 1.0, None, "reference"),
    ]
    assert ranked[0].to_dict()["ratio"] is None


def test_one_row_with_a_zero_leaves_the_others_their_ratios() -> None:
    ranked = by_name(standings(lines("wait_s.mean", fifo=FIFO, sjf=HALF, free=[0.0] * 6), "wait_s.mean"))
    assert ranked["free"].pair is None
    assert ranked["sjf"].verdict is Verdict.BETTER


def test_ratios_order_by_geometric_means_below_1_too() -> None:
    # Geometric 0.3 and 0.4, arithmetic 0.5 and 0.4.
    assert [standing.policy for standing in standings(lines(even=[0.4, 0.4], uneven=[0.1, 0.9]))] == ["uneven", "even"]


def test_more_is_better_where_it_is() -> None:
    first, second = standings(lines("jain_fairness_index", fifo=HALF, fair=FIFO), "jain_fairness_index")
    assert (first.policy, first.verdict, first.wins) == ("fair", Verdict.BETTER, 6)
    assert second.policy == "fifo"


def test_one_trace_has_no_interval_and_no_verdict() -> None:
    sjf = by_name(standings(lines(fifo=FIFO, sjf=HALF), sample=Sample.TRACE))["sjf"]
    plain = sjf.to_dict()
    assert (sjf.verdict, plain["ratio_low"], plain["median_high"], plain["p"]) == (None, None, None, None)
    assert plain["verdict"] == "one trace is one sample: no verdict"
    assert plain["ratio"] == pytest.approx(0.5, rel=0.05)


def test_a_policy_with_unfinished_jobs_comes_last_and_has_no_ratio() -> None:
    ranked = standings(lines(slow=[None, 1.0], fifo=[10.0, 20.0]), reference="fifo")
    assert [(standing.policy, standing.best, standing.words) for standing in ranked] == [
        ("fifo", True, "reference"),
        ("slow", False, "not known: unfinished jobs"),
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


def test_seeds_of_few_unequal_jobs_are_marked_approximate() -> None:
    rows = []
    for policy, values in (("fifo", FIFO), ("sjf", HALF)):
        for seed, value in enumerate(values):
            assert value is not None
            tail = {"jct_s.mean": value, "jct_s.p95": 2 * value, "jct_s.p99": 8 * value, "jobs_completed": 60}
            rows.append(RunMetrics(policy, seed, {**tail, "jobs_arrived": 60}))
    sjf = by_name(standings(rows))["sjf"]
    assert sjf.seeds_needed >= 200
    assert sjf.to_dict()["seeds_needed"] == sjf.seeds_needed
    assert "approximate" in sjf.words


def test_metrics_of_groups_are_ranked_as_those_of_all_jobs() -> None:
    low, high = [0.2, 0.3, 0.2, 0.3, 0.25, 0.2], [0.8, 0.9, 0.8, 0.9, 0.85, 0.8]
    for metric in ("utilization", "gpu[T4].utilization", "tenant[ann].completed"):
        assert [row.policy for row in standings(lines(metric, low=low, high=high), metric)] == ["high", "low"]
    assert [row.policy for row in standings(lines("x", low=low, high=high), "x")] == ["low", "high"]
