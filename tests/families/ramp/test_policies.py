"""Policies: what each decides."""

from __future__ import annotations

import pytest

from dagsim.errors import ConfigError, UnknownName
from dagsim.families.ramp.api import (
    RAMP_POLICIES,
    ComputationGraph,
    Fabric,
    Memo,
    Op,
    Planner,
    Ramp,
    RampJob,
    RampKernel,
    Rules,
)


def degrees(policy: str, *betas: float) -> list[int]:
    """What is decided of jobs that arrive together on eight servers; each takes 1 s on one."""
    graph = ComputationGraph("one", [Op("1", 0.5, 0.5, 0.0, 0.0)], [])
    jobs = [RampJob(str(number), graph, 0.0, beta, 1) for number, beta in enumerate(betas)]
    kernel = RampKernel(jobs, Planner(Fabric(Ramp(2, 2, 2)), Rules(quantum_s=0.01, max_degree=8), memo=Memo()))
    kernel.run(RAMP_POLICIES.create(policy))
    return [outcome.degree for outcome in kernel.outcomes]


@pytest.mark.parametrize(
    ("policy", "decided"),
    [
        ("no", [1, 1, 1]),
        ("min", [2, 2, 2]),
        ("max", [8, 0, 0]),
        ("sip_ml[degree=4]", [4, 4, 0]),
        ("sip_ml[degree=7]", [4, 4, 0]),
        ("constant[degree=4]", [4, 4, 0]),
        ("acceptable_jct", [1, 2, 4]),
        ("on_time", [1, 2, 4]),
        ("on_time[least=2]", [2, 2, 4]),
    ],
)
def test_each_policy_decides_by_its_rule(policy: str, decided: list[int]) -> None:
    assert degrees(policy, 1.0, 0.6, 0.3) == decided


def test_min_takes_what_is_left() -> None:
    assert degrees("min", *[1.0] * 5) == [2, 2, 2, 2, 0]


def test_acceptable_jct_takes_the_largest_where_none_is_enough() -> None:
    assert degrees("acceptable_jct", 0.01) == [8]


def test_acceptable_jct_splits_no_job_that_takes_no_time() -> None:
    jobs = [RampJob("idle", ComputationGraph("idle", [Op("1", 0.0, 0.0, 0.0, 0.0)], []), 0.0, 1.0, 1)]
    kernel = RampKernel(jobs, Planner(Fabric(Ramp(2, 2, 2)), Rules(quantum_s=0.01, max_degree=8), memo=Memo()))
    kernel.run(RAMP_POLICIES.create("acceptable_jct"))
    assert kernel.outcomes[0].degree == 1


def test_on_time_turns_away_what_would_be_late() -> None:
    assert degrees("on_time", 0.01, 0.5, 0.124, 0.125) == [0, 2, 0, 0]  # 8 servers in 1/8 s; two are taken
    assert degrees("on_time", 0.125) == [8]  # just in time
    with pytest.raises(ConfigError, match="least must be at least 1, got 0"):
        RAMP_POLICIES.create("on_time[least=0]")


def test_constant_turns_away_rather_than_take_another_degree() -> None:
    assert degrees("constant[degree=8]", 1.0, 1.0) == [8, 0]


def test_random_never_turns_a_job_away_that_can_be_placed() -> None:
    assert all(degrees("random", *[1.0] * 2))


def test_a_degree_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="degree must be at least 1, got 0"):
        RAMP_POLICIES.create("constant[degree=0]")


def test_an_unknown_policy_gets_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="did you mean 'sip_ml'"):
        RAMP_POLICIES.create("sipml")
