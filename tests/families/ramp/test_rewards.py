"""The six rewards of ddls as costs, with the arithmetic in comments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from math import log10

import pytest

from dagsim.errors import ConfigError
from dagsim.families.learning.episode import Reward, RewardConfig
from dagsim.families.ramp.api import (
    ComputationGraph,
    Fabric,
    Memo,
    Op,
    Partition,
    Planner,
    Ramp,
    RampJob,
    RampKernel,
    Rules,
)
from dagsim.families.ramp.rewards import RAMP_TERMS

RULES = Rules(quantum_s=0.01, max_degree=2)


def job(arrival_s: float, seconds: float = 1.0, beta: float = 1.0) -> RampJob:
    """Takes 2 x 5 x ``seconds`` on one server, half of it on two; 3 + 2 bytes on each of both passes."""
    op = Op("1", seconds, seconds, 3.0, 2.0)
    return RampJob(f"{arrival_s:g}", ComputationGraph(f"of {seconds:g}", [op], []), arrival_s, beta, 5)


def rewards(term: str, jobs: Iterable[RampJob], *degrees: int) -> list[float]:
    """The reward of each decision, on two servers."""
    jobs = tuple(jobs)
    kernel = RampKernel(jobs, Planner(Fabric(Ramp(2, 1, 1)), RULES, memo=Memo()), examples=jobs)
    reward = Reward(RewardConfig({term: 1.0}), kernel, RAMP_TERMS)
    conversation = kernel.decisions()
    values, view = [], next(conversation)
    for degree in degrees:
        with contextlib.suppress(StopIteration):
            view = conversation.send([Partition(view.number, degree)])
        values.append(reward.step())
    return values


TWO = (job(0.0), job(1.0))


def test_acceptance_is_worth_1_and_blocking_minus_1() -> None:
    assert rewards("job_acceptance", TWO, 1, 0) == [1.0, -1.0]
    assert rewards("job_acceptance[success=0,fail=-2]", TWO, 0, 1) == [-2.0, 0.0]


def test_what_is_too_slow_is_blocked() -> None:
    assert rewards("job_acceptance", (job(0.0, beta=0.5), job(1.0)), 1, 1) == [-1.0, 1.0]


@pytest.mark.parametrize(
    ("parameters", "accepted", "blocked"),
    [
        ("", -10.0, -10.0),
        ("fail_factor=3", -10.0, -30.0),
        ("fail=100", -10.0, -100.0),
        ("normalised=true,fail_factor=3", -1.0, -3.0),
        ("inverse=true,sign=1,fail_factor=2", 0.1, 0.05),
        ("log=true,fail=99", -log10(11), -2.0),
    ],
)
def test_completion_time_by_the_look_ahead(parameters: str, accepted: float, blocked: float) -> None:
    name = "lookahead_job_completion_time"
    values = rewards(f"{name}[{parameters}]" if parameters else name, TWO, 1, 0)
    assert values == [pytest.approx(accepted), pytest.approx(blocked)]


def test_both_objectives_in_one() -> None:
    # sequential times 10, 20 and 15 s: 15 lies half way
    jobs = (job(0.0), job(1.0, 2.0), job(2.0, 1.5))
    values = rewards("multi_objective_jct_blocking[weight=2]", jobs, 1, 0, 0)
    assert values == [pytest.approx(-1.0), pytest.approx(-4.0), pytest.approx(-3.0)]


def test_throughput_is_the_mean_over_stretches_however_long() -> None:
    # on one server each, 10 bytes of memory in 10 s: 1 B/s from 0 to 1 s; then 2 B/s until 10 s, and 1 B/s until 11 s
    assert rewards("mean_compute_throughput", TWO, 1, 1) == [pytest.approx(1.0), pytest.approx(1.5)]
    assert rewards("mean_compute_throughput[log=true,sign=-1]", TWO, 1, 0)[0] == pytest.approx(-log10(2))


def test_throughputs_count_what_they_say() -> None:
    graph = job(0.0).graph
    demand = rewards("mean_demand_total_throughput", TWO, 1, 1)[0]
    cluster = rewards("mean_cluster_throughput", TWO, 1, 1)[0]
    assert demand == pytest.approx((graph.memory_bytes + graph.dep_bytes) / 10)
    assert cluster > rewards("mean_compute_throughput", TWO, 1, 1)[0]


def test_normalised_throughput_is_over_what_the_servers_can_do() -> None:
    # each server at best 5 bytes in 1 s of a pass; two of them
    assert rewards("mean_compute_throughput[normalised=true]", TWO, 1, 0)[0] == pytest.approx(1.0 / 10)


def test_wrong_parameters_are_named() -> None:
    with pytest.raises(ConfigError, match="fail must be sequential or a number of seconds, got 'never'"):
        rewards("lookahead_job_completion_time[fail=never]", TWO, 1)
    with pytest.raises(ConfigError, match="sign must be 1 or -1, got 3"):
        rewards("mean_compute_throughput[sign=3]", TWO, 1)


def test_terms_that_need_examples_say_so() -> None:
    kernel = RampKernel(TWO, Planner(Fabric(Ramp(2, 1, 1)), RULES, memo=Memo()))
    for term in ("multi_objective_jct_blocking", "mean_cluster_throughput[normalised=true]"):
        with pytest.raises(ConfigError, match="needs a kernel with example jobs"):
            RAMP_TERMS.create(term, kernel=kernel)
