"""Rounds that nothing hangs on are passed over, and the schedule stays the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dagsim.model import Cluster, Job, Task
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.policies.rounds import Rounds, Service

SPECS = (
    "las[quantum_s=5]",
    "2d-las[quantum_s=3.3]",
    "2d-las[quantum_s=5,lead=0.1]",
    "tiresias[thresholds=[30,300],quantum_s=10]",
    "2d-gittins[history=[5,20,100,400],quantum_s=10]",
)


def crowd(seed: int, jobs: int = 25) -> list[Job]:
    """Jobs of one task of 1 to 4 GPUs, or of a gang, more than there is room for; of odd seeds some of instances."""
    rng, now, batch = random.Random(seed), 0.0, []
    for number in range(jobs):
        now += rng.choice((0.0, rng.expovariate(1 / 10)))
        task = Task("t", rng.expovariate(0.01), gpus=rng.choice((1, 1, 2, 4)), instances=rng.choice((1, 1 + seed % 2)))
        batch.append(
            Job.single(f"j{number}", task if rng.random() < 0.7 else Task("g", 90.0, instances=6, gang=True), now)
        )
    return batch


class Asked:
    """Count how often a policy is asked."""

    def __init__(self, policy: Rounds) -> None:
        self.policy, self.times = policy, 0

    def decide(self, view):
        self.times += 1
        return self.policy.decide(view)


def played(policy: Rounds, jobs: list[Job]) -> tuple[list[tuple[float, ...]], int]:
    asked = Asked(policy)
    schedule = ClusterKernel(Cluster.of({"V100": 8, "T4": 8}, per_node=4), jobs).run(asked)
    return list(schedule.log.since(0)), asked.times


@pytest.mark.parametrize("spec", SPECS)
def test_who_looks_at_every_round_finds_the_same_schedule(spec, monkeypatch):
    fewer = 0
    for seed in range(3):
        rows, times = played(POLICIES.create(spec), crowd(seed))
        every = POLICIES.create(spec)
        monkeypatch.setattr(every.rank, "exceeds_s", lambda key, service: np.zeros(len(service.run)))
        all_rows, all_times = played(every, crowd(seed))
        assert rows == all_rows
        fewer += times < all_times
    assert fewer


def test_nobody_is_asked_while_no_run_can_lose_its_place():
    # One GPU. The first falls a level at 60, the second at 120; then the first runs to its end at 5,060, and the second
    jobs = [Job.single(str(number), Task("t", 5_000.0)) for number in range(2)]
    rows, times = played_on_one(POLICIES.create("tiresias[thresholds=60]"), jobs)
    assert [row[1] for row in rows if row[0] == 3] == [0.0, 60.0, 120.0, 5060.0]
    assert times < 30  # of 167 rounds


def played_on_one(policy: Rounds, jobs: list[Job]) -> tuple[list[tuple[float, ...]], int]:
    asked = Asked(policy)
    return list(ClusterKernel(Cluster.of({"V100": 1}), jobs).run(asked).log.since(0)), asked.times


class Checked:
    """Compare the columns of service with what single jobs have had, at each decision of another policy."""

    def __init__(self) -> None:
        self.inner, self.service, self.several = POLICIES.create("srtf"), Service(), 0

    def decide(self, view):
        view.follow(self.service)
        self.service.now = view.now
        cols = self.service.columns()
        assert sorted(cols.run.tolist()) == sorted(view.running)
        for run, job, gpu_s, seconds in zip(
            *[column.tolist() for column in (cols.run, cols.job, *cols[3:5])], strict=True
        ):
            assert (gpu_s, seconds) == self.service.of(job)
            assert view.running[run].job.number == job
        self.several += int((cols.runs > 1).sum())
        assert self.service.running() == {run.job.number for run in view.running.values()}
        return self.inner.decide(view)


def test_columns_hold_the_service_of_each_job_to_the_last_bit():
    policy = Checked()
    ClusterKernel(Cluster.of({"V100": 8, "T4": 8}, per_node=4), crowd(7)).run(policy)
    assert policy.several > 20
