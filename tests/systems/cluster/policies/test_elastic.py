"""Policies of Pollux's simulator on the kernel."""

from __future__ import annotations

import pytest
from elastic_cases import job

from dagsim.elastic.policies import AttainedServiceQueues
from dagsim.elastic.stepping import SteppedCluster
from dagsim.errors import ConfigError
from dagsim.model import Cluster, Job, Kind, Node, Task, gpu_type
from dagsim.systems.cluster.policies.elastic import IntervalAllocation, elastic_job_of
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.testing.violations import violations


def cluster(*gpus: int) -> Cluster:
    return Cluster(tuple(Node(f"n{place}", gpu_type("T4"), count) for place, count in enumerate(gpus)))


def test_jobs_end_when_they_do_in_polluxs_simulator() -> None:
    jobs = [job(f"job-{number}", 35.0 * number, replicas=1 + number % 3, batch=20) for number in range(12)]
    stepped = SteppedCluster(jobs, AttainedServiceQueues(threshold_gpu_s=40), nodes=1, gpus_per_node=3).run()
    policy = AttainedServiceQueues(threshold_gpu_s=40)
    work = [elastic_job_of(job, policy, restart_s=30.0, whole_seconds=True) for job in jobs]
    schedule = ClusterScenario(cluster(3), work).kernel(0).run(IntervalAllocation(policy))
    done_s = {schedule.jobs[row.job].id: row.time_s for row in schedule.log if row.kind == Kind.COMPLETED}
    assert {job.name: int(round(done_s[job.name]) - job.arrival_s) for job in jobs} == stepped
    assert any(row.kind == Kind.PREEMPTED for row in schedule.log)
    assert not violations(schedule, work)


def test_without_whole_seconds_epochs_end_when_their_work_is_done() -> None:
    work = [elastic_job_of(job("a", batch=10), AttainedServiceQueues())]
    schedule = ClusterScenario(cluster(4), work).kernel(0).run(IntervalAllocation("tiresias"))
    # The job starts at 60 s and restarts for 30 s; 200 iterations of .1 s follow.
    assert schedule.ended_s == pytest.approx(110.0)


@pytest.mark.parametrize(
    ("sizes", "work", "message"),
    [
        ((4, 2), elastic_job_of(job("a"), AttainedServiceQueues()), r"nodes of one size, got nodes of \[2, 4\] GPUs"),
        ((4,), Job.single("b", Task("t", 1)), "play measured applications only; b/t is another task"),
    ],
)
def test_what_the_policies_cannot_play_is_refused(sizes: tuple[int, ...], work: Job, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClusterScenario(cluster(*sizes), [work]).kernel(0).run(IntervalAllocation("optimus"))


def test_an_unknown_elastic_policy_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="one of tiresias, optimus, pollux, got 'sia'"):
        IntervalAllocation("sia")
