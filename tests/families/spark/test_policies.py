from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest
from families.spark.spark_cases import random_jobs

from dagsim.errors import ModelError
from dagsim.families.spark.api import (
    SPARK_POLICIES,
    RecordedDurations,
    SparkJob,
    SparkKernel,
    parity_sequence,
    read_dump,
    read_profiles,
)
from dagsim.families.spark.policies import planned_order, span_ms

RULES = pytest.mark.parametrize("parity", [True, False], ids=["parity", "default"])
NAMES = (*SPARK_POLICIES.names(), "fair[counts=wanting]", "srpt-cp[cap=2]", "weighted-fair[alpha=-1,order=shortest]")


@RULES
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_every_policy_ends_every_job(name: str, seed: int, parity: bool) -> None:
    simulation = SparkKernel(4, random_jobs(seed), moving_delay_ms=20, parity=parity, seed=seed)
    episode = simulation.run(SPARK_POLICIES.create(name))
    assert all(job.completed_ms is not None for job in episode.jobs)
    assert episode.tasks == sum(job.job.tasks for job in episode.jobs)


def job(id: str, tasks: int, ms: float) -> SparkJob:
    return SparkJob.of(id, [RecordedDurations((ms,) * tasks, ms)])


def order(policy: str, jobs: list[SparkJob], executors: int = 1) -> list[str]:
    """Ids by when they end, without moving delay."""
    episode = SparkKernel(executors, jobs, moving_delay_ms=0).run(SPARK_POLICIES.create(policy))
    return [state.job.id for state in sorted(episode.jobs, key=lambda state: state.completed_ms or 0)]


def test_fifo_runs_the_oldest_job_and_srpt_the_one_with_least_work() -> None:
    jobs = [job("long", 5, 100), job("short", 2, 10), job("middle", 3, 50)]
    assert order("fifo", jobs) == ["long", "short", "middle"]
    assert order("srpt-cp", jobs) == ["short", "middle", "long"]
    assert order("sjf-cp", jobs) == ["short", "middle", "long"]


def test_fair_gives_equal_shares_at_the_start() -> None:
    # 4 executors, 2 jobs: 2 each, so both end after 4 tasks / 2 executors x 100 ms; FIFO would end the first at 100.
    jobs = [job("a", 4, 100), job("b", 4, 100)]
    episode = SparkKernel(4, jobs, moving_delay_ms=0).run(SPARK_POLICIES.create("fair"))
    assert [state.completed_ms for state in episode.jobs] == [200, 200]


@pytest.mark.parametrize(("counts", "second"), [("active", 2), ("wanting", 3)])
def test_shares_count_the_active_jobs_or_those_that_want_more(counts: str, second: int) -> None:
    # 4 executors, 2 jobs: 2 for a, which has one task and takes one. Then a wants no more: b may have 2, or all 4.
    conversation = SparkKernel(4, [job("a", 1, 100), job("b", 8, 100)], moving_delay_ms=0).decisions()
    policy = SPARK_POLICIES.create(f"fair[counts={counts}]")
    (first,) = policy.decide(next(conversation))
    assert (first.stage.job.job.id, first.executors) == ("a", 2)
    (then,) = policy.decide(conversation.send((first,)))
    assert (then.stage.job.job.id, then.executors) == ("b", second)


def test_weighted_fair_gives_in_proportion_to_work() -> None:
    # 4 executors, work 300 : 100, so 3 and 1 of them, and both end after one wave.
    jobs = [job("a", 3, 100), job("b", 1, 100)]
    conversation = SparkKernel(4, jobs, moving_delay_ms=0).decisions()
    policy = SPARK_POLICIES.create("weighted-fair[alpha=1]")
    (commit,) = policy.decide(next(conversation))
    assert (commit.stage.job.job.id, commit.executors) == ("a", 3)


def test_a_cap_leaves_executors_to_the_next_job() -> None:
    jobs = [job("short", 4, 10), job("long", 8, 100)]
    conversation = SparkKernel(4, jobs, moving_delay_ms=0).decisions()
    policy = SPARK_POLICIES.create("srpt-cp[cap=3]")
    (first,) = policy.decide(next(conversation))
    assert (first.stage.job.job.id, first.executors) == ("short", 3)
    (second,) = policy.decide(conversation.send((first,)))
    assert (second.stage.job.job.id, second.executors) == ("long", 1)


def test_the_critical_path_goes_first() -> None:
    # Stage 1 leads to 500 ms more; stage 0 to nothing.
    chain = SparkJob.of(
        "j",
        [RecordedDurations((100.0,), 100), RecordedDurations((50.0,), 50), RecordedDurations((500.0,), 500)],
        [(1, 2)],
    )
    episode = SparkKernel(1, [chain], moving_delay_ms=0, record=True).run(SPARK_POLICIES.create("srpt-cp"))
    assert episode.launches is not None
    assert [target.index for *_, target in episode.launches if hasattr(target, "index")][:2] == [1, 2]


def test_graphene_starts_what_leads_to_the_troublesome_stage() -> None:
    # 0 (60 ms) is free; 1 (10 ms) leads to 2 (100 ms). One executor each: 2 executors end at 110, not at 170.
    fork = SparkJob.of(
        "j",
        [RecordedDurations((60.0,), 60), RecordedDurations((10.0,), 10), RecordedDurations((100.0,), 100)],
        [(1, 2)],
    )
    assert planned_order(fork, 2)[0] == 1
    assert span_ms(fork, 2, [1, 2, 0]) == 110
    assert span_ms(fork, 1, [0, 1, 2]) == 170


@pytest.mark.parametrize(
    "spec", ["fair[counts=some]", "weighted-fair[order=none]", "srpt-cp[cap=0]", "tetris[weight=-1]"]
)
def test_impossible_parameters_are_refused(spec: str) -> None:
    with pytest.raises(ModelError, match="must be"):
        SPARK_POLICIES.create(spec)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "executors", "jobs", "mean_s"),
    [
        ("fair[counts=wanting]", 10, 50, 979.8),
        ("srpt-cp", 10, 50, 549.9),
        ("srpt-cp[cap=5]", 10, 50, 497.2),
        # ours, below the 52.7 s that fair with take-back had been measured to reach
        ("weighted-fair", 50, 200, 51.7),
    ],
)
def test_strong_heuristics_reach_what_was_measured_of_them(
    data: Path, name: str, executors: int, jobs: int, mean_s: float
) -> None:
    profiles = read_profiles(data / "traces" / "tpch-decima")
    means = []
    for seed in (1234, *range(1, 10)):
        drawn = parity_sequence(profiles, seed, jobs)
        simulation = SparkKernel(executors, drawn.jobs, parity=True, draws=drawn.draws)
        means.append(simulation.run(SPARK_POLICIES.create(name)).mean_jct_s)
    assert fmean(means) == pytest.approx(mean_s, abs=0.05)


@pytest.mark.data
@pytest.mark.parametrize(("name", "mean_s"), [("W1_s1234", 1045.0594), ("W1_s1", 1021.9266), ("W2_s1", 45.6669)])
def test_the_share_rule_of_decima_sim_comes_near_its_own_replay(data: Path, name: str, mean_s: float) -> None:
    """The two simulators differ in more than the rule; 2 % apart is near."""
    dump = read_dump(data / "golden" / "decima" / f"{name}.workload.json.gz")
    simulation = SparkKernel(dump.executors or 0, dump.jobs, parity=True)
    episode = simulation.run(SPARK_POLICIES.create("fair[counts=wanting]"))
    assert episode.mean_jct_s == pytest.approx(mean_s, rel=0.02)
