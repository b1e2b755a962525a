"""What holds for every workload, policy and both sets of rules."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest
from families.spark.spark_cases import Anything, random_jobs

from dagsim.families.spark.api import Commit, ExecutorType, SparkKernel, SparkView
from dagsim.families.spark.spark_executors import ExecutorMove

RULES = pytest.mark.parametrize("parity", [True, False], ids=["parity", "default"])
SEEDS = pytest.mark.parametrize("seed", range(10))


@RULES
@SEEDS
def test_every_task_runs_once_after_all_parents_on_an_executor_at_its_job(seed: int, parity: bool) -> None:
    jobs = random_jobs(seed)
    episode = SparkKernel(4, jobs, moving_delay_ms=20, parity=parity, record=True).run(Anything(seed, parity))
    assert episode.launches is not None
    spans = defaultdict(list)
    busy = defaultdict(list)
    for start, length, executor, target in episode.launches:
        busy[executor.number].append((start, start + length, target))
        if not isinstance(target, ExecutorMove):
            spans[target].append((start, start + length))
    for job in episode.jobs:
        for stage in job.stages:
            # every task once, with its own duration
            wanted = sorted(job.job.durations[stage.index].ms)
            assert sorted(end - start for start, end in spans[stage]) == wanted
            for parent in stage.parents:
                assert min(spans[stage])[0] >= max(end for _, end in spans[parent])
        assert job.completed_ms == max(end for stage in job.stages for _, end in spans[stage])
        assert min(start for stage in job.stages for start, _ in spans[stage]) >= job.arrival_ms
    for number, launches in busy.items():
        at = None
        for (_, end, _), (start, _, _) in pairwise(launches):
            assert start >= end, number
        for _, _, target in launches:
            if isinstance(target, ExecutorMove):
                at = target.stage.job
            else:
                assert target.job is at


@RULES
@SEEDS
def test_same_seed_same_episode(seed: int, parity: bool) -> None:
    one, other = (
        SparkKernel(4, random_jobs(seed), moving_delay_ms=20, parity=parity).run(Anything(seed, parity))
        for _ in range(2)
    )
    assert one.jct_s.tolist() == other.jct_s.tolist()
    assert one.decisions == other.decisions


@RULES
@SEEDS
def test_executors_are_never_lost(seed: int, parity: bool) -> None:
    """At the end all are in the common pool, and nobody is counted anywhere."""
    simulation = SparkKernel(4, random_jobs(seed), moving_delay_ms=20, parity=parity)
    episode = simulation.run(Anything(seed, parity))
    cluster = simulation.cluster
    assert cluster.common.executors == set(range(4))
    assert not any(executor.running or executor.job for executor in cluster.executors)
    for job in episode.jobs:
        assert job.local == 0
        assert all(stage.inbound == 0 and stage.executing == 0 and not stage.waiting for stage in job.stages)
        if not parity:  # there executors that leave idle stay counted
            assert job.supply == 0


@SEEDS
def test_supply_counts_the_executors_of_a_job(seed: int) -> None:
    """Those at the job, on their way to it, or committed to it from elsewhere (the default's promise)."""
    simulation = SparkKernel(4, random_jobs(seed), moving_delay_ms=20)
    conversation, policy = simulation.decisions(), Anything(seed, False)
    view = next(conversation)
    try:
        while True:
            moving = defaultdict(int)
            for *_, target, _ in simulation.cluster.heap:
                if isinstance(target, ExecutorMove):
                    moving[target.stage.job] += 1
            pools = {executor.pool for executor in simulation.cluster.executors} - {None}
            for job in view.jobs:
                committed = sum(
                    count
                    for pool in pools
                    for target, count in pool.commitments.items()  # type: ignore[union-attr]
                    if target is not None and target.job is job and pool.job is not job  # type: ignore[union-attr]
                )
                assert job.supply == job.local + moving[job] + committed
            view = conversation.send(policy.decide(view))
    except StopIteration:
        pass


@SEEDS
def test_different_speeds_keep_the_promises(seed: int) -> None:
    types = (ExecutorType("A100", 2, 2.0), ExecutorType("T4", 2, 0.5))
    episode = SparkKernel(types, random_jobs(seed), moving_delay_ms=20, record=True).run(Anything(seed, False))
    assert episode.launches is not None
    for _, length, executor, target in episode.launches:
        if isinstance(target, ExecutorMove):
            assert length == 20
        else:
            assert length * executor.speed in (0, 10, 20, 50)
    assert all(job.completed_ms is not None for job in episode.jobs)


@pytest.mark.parametrize("seed", range(30))
def test_by_default_no_executor_idles_while_a_stage_wants_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a policy that gives all it can: before time moves on, no idle executor could be committed anywhere."""

    class Everything(Anything):
        def decide(self, view: SparkView) -> tuple[Commit, ...]:
            return tuple(Commit(commit.stage, view.committable) for commit in super().decide(view))

    simulation = SparkKernel(9, random_jobs(seed), moving_delay_ms=20)
    cluster, opens = simulation.cluster, simulation._opens
    checked = []

    def checking() -> bool:
        if opens():
            return True
        for pool in (cluster.common, *(job.pool for job in cluster.jobs)):
            if pool.executors:
                cluster.source = pool
                assert not cluster.any_schedulable()
                checked.append(pool)
        cluster.source = None
        return False

    monkeypatch.setattr(simulation, "_opens", checking)
    simulation.run(Everything(seed, parity=True))
    assert checked
