"""Observed against simulated waits."""

from __future__ import annotations

from math import log, nan

import pytest

from dagsim.metrics.why import observed_against_simulated
from dagsim.model import Cluster, Job, Task
from dagsim.model.log import Schedule
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.policies import POLICIES


@pytest.fixture
def schedule() -> Schedule:
    """Three jobs of 10 s one after the other on one GPU, all there at 0, of 1, 1 and a half GPU."""
    jobs = [Job.single(f"j{n}", Task("t", 10, gpus=gpus), tenant=who) for n, (gpus, who) in enumerate(_JOBS)]
    return ClusterKernel(Cluster.of({"T4": 1}, per_node=1), jobs, Models(runtime=Recorded())).run(
        POLICIES.create("fifo")
    )


_JOBS = ((1, "a"), (1, "b"), (0.5, "b"))


def test_mean_median_and_p95_of_both_and_their_difference(schedule: Schedule) -> None:
    # simulated 0, 10, 20; observed 5, 10, 45
    got = observed_against_simulated(schedule, [5, 10, 45], [0, 0, 0])
    assert got is not None
    assert (got.total.jobs, got.total.observed_s.mean, got.total.observed_s.median) == (3, 20, 10)
    assert got.total.observed_s.p95 == pytest.approx(10 + 0.9 * 35)
    assert (got.total.simulated_s.mean, got.total.simulated_s.median) == (10, 10)
    assert got.total.difference_s == -10


def test_it_is_told_by_tenant_and_by_size(schedule: Schedule) -> None:
    got = observed_against_simulated(schedule, [5, 10, 45], [0, 0, 0])
    assert got is not None
    assert {name: (pair.jobs, pair.difference_s) for name, pair in got.by_tenant.items()} == {
        "a": (1, -5),
        "b": (2, -12.5),
    }
    assert {name: pair.jobs for name, pair in got.by_size.items()} == {"under 1 GPU": 1, "1 GPU": 2}


def test_both_waits_count_from_when_the_job_could_start(schedule: Schedule) -> None:
    # the last job could not start before 30 s, so that its start at 20 s here is no wait
    got = observed_against_simulated(schedule, [0, 10, 45], [0, 0, 30])
    assert got is not None
    assert (got.total.observed_s.mean, got.total.simulated_s.mean) == pytest.approx((25 / 3, 10 / 3))
    assert got.from_eligible


def test_both_waits_count_from_the_arrival_if_the_log_does_not_say_when_a_job_could_start(schedule: Schedule) -> None:
    # the second job waited for a condition until 8 s here, and the third one until 15 s
    got = observed_against_simulated(schedule, [0, 10, 45], [nan, nan, 30], became_eligible_s={1: 8.0, 2: 15.0})
    assert got is not None
    assert got.total.observed_s.mean == pytest.approx((0 + 10 + 15) / 3)
    assert got.total.simulated_s.mean == pytest.approx((0 + 10 + 5) / 3)
    assert got.from_eligible
    unknown = observed_against_simulated(schedule, [0, 10, 45], [nan] * 3, became_eligible_s={1: 8.0, 2: 15.0})
    assert unknown is not None
    assert unknown.total.simulated_s.mean == pytest.approx(10)
    assert not unknown.from_eligible


def test_the_ratio_of_waits_per_job_and_early_starts_are_counted(schedule: Schedule) -> None:
    # simulated 0, 10, 20, but the last job was eligible only at 30 s, and waited 15 s
    got = observed_against_simulated(schedule, [0, 30, 45], [0, 0, 30], ["p", "p", "q"])
    assert got is not None
    assert got.early == 1
    assert got.median_abs_log_ratio == pytest.approx(log(40 / 20))  # of 0, log(40 / 20), log(25 / 10)
    assert {name: pair.jobs for name, pair in got.by_partition.items()} == {"p": 2, "q": 1}


def test_jobs_that_were_not_observed_are_left_out(schedule: Schedule) -> None:
    got = observed_against_simulated(schedule, [nan, 10, nan], [nan, 0, nan])
    assert got is not None
    assert (got.total.jobs, got.left_out, got.total.difference_s) == (1, 2, 0)
    assert observed_against_simulated(schedule, [nan] * 3, [nan] * 3) is None
