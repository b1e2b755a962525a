"""Jobs that an operator suspends: worked examples with known starts and ends."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from dagsim.errors import ModelError
from dagsim.model import (
    Cluster,
    Job,
    JobSuspension,
    Kind,
    Node,
    NodePartition,
    QueueTree,
    Task,
    TaskGraph,
    gpu_type,
)
from dagsim.systems.cluster import ClusterKernel, Preemption
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.past.rehearsal import with_past
from dagsim.systems.cluster.policies import POLICIES

Times = dict[str, tuple[float, float]]


def job(id: str, arrival_s: float, work_s: float, cpus: float, limit_s: float | None = None) -> Job:
    task = Task("t", work_s, gpus=0, cpus=cpus, estimate=limit_s)
    return Job(id, TaskGraph((task,)), arrival_s)


def played(
    jobs: list[Job],
    *suspensions: JobSuspension,
    policy: str = "fifo-fit",
    fork_at_s: float = 0.0,
    begin_at_s: float = 0.0,
) -> Times:
    """Start and end of each job on one node with 8 CPUs, played from the state at ``begin_at_s`` if that is set."""
    cluster = Cluster((Node("n", None, 0, cpus=8, memory_gb=64),))
    parts = (NodePartition("work", ("n",)), NodePartition("other", ("n",)))
    queues = QueueTree(partitions=parts, suspensions=suspensions)
    kernel = ClusterKernel(cluster, jobs, Models(queues=queues))
    if fork_at_s:
        kernel.run(POLICIES.create(policy), fork_at_s)
        kernel = kernel.fork()
    if begin_at_s:
        whole = kernel.run(POLICIES.create(policy))
        past = with_past(whole, jobs, begin_at_s, defaultdict(int))
        kernel = ClusterKernel(cluster, past, Models(queues=queues), begins_s=begin_at_s, left=())
    log = kernel.run(POLICIES.create(policy)).log
    at = {(int(row.kind), row.job): row.time_s for row in log}
    names = {number: one.id for number, one in enumerate(jobs)}
    return {
        names[number]: (at[Kind.STARTED, number], at[Kind.FINISHED, number])
        for number in names
        if (Kind.FINISHED, number) in at
    }


@pytest.mark.parametrize("policy", ["fifo-fit", "slurm-multifactor"])
@pytest.mark.parametrize("fork_at_s", [0.0, 40.0])
def test_a_suspended_job_stands_still_and_lends_its_cpus(policy: str, fork_at_s: float) -> None:
    jobs = [job("a", 0, 100, 8), job("b", 5, 10, 8)]
    times = played(jobs, JobSuspension("a", 20, 60), policy=policy, fork_at_s=fork_at_s)
    assert times == {"a": (0, 140), "b": (20, 30)}


def test_a_job_that_resumes_holds_no_cores_if_a_job_of_its_partition_has_taken_some() -> None:
    """``job_res_add_job`` in job_resources.c: "job overflow: could not find idle resources"."""
    # c takes the cores of a while a is suspended; once c ends they are free, although a goes on
    jobs = [job("a", 0, 100, 8), job("c", 25, 100, 8), job("d", 26, 5, 8), job("e", 27, 5, 8)]
    times = played(jobs, JobSuspension("a", 20, 60))
    assert times == {"a": (0, 140), "c": (25, 125), "d": (125, 130), "e": (130, 135)}
    # c takes two of them, and the other six are free for d as well, until a ends and after that
    jobs = [job("a", 0, 100, 8), job("c", 25, 200, 2), job("d", 70, 5, 6), job("e", 71, 100, 7)]
    assert played(jobs, JobSuspension("a", 20, 60)) == {"a": (0, 140), "c": (25, 225), "d": (70, 75), "e": (225, 325)}


def test_a_core_that_jobs_of_two_partitions_share_is_held_until_both_have_ended() -> None:
    def other(name: str, at_s: float, seconds: float, cpus: float) -> Job:
        return replace(job(name, at_s, seconds, cpus), partition="other")

    # c takes two cores of a; a holds all eight again from 60 to 140, and c its two until it ends
    early = [job("a", 0, 100, 8), other("c", 25, 60, 2), job("d", 61, 5, 1)]
    assert played(early, JobSuspension("a", 20, 60)) == {"a": (0, 140), "c": (25, 85), "d": (140, 145)}
    late = [job("a", 0, 100, 8), other("c", 25, 200, 2), job("d", 61, 5, 6), job("e", 62, 5, 7)]
    assert played(late, JobSuspension("a", 20, 60)) == {"a": (0, 140), "c": (25, 225), "d": (140, 145), "e": (225, 230)}


@pytest.mark.parametrize("policy", ["fifo-fit", "slurm-multifactor"])
@pytest.mark.parametrize("begin_at_s", [10.0, 20.0, 24.0, 40.0, 60.0, 61.0, 124.0, 125.0, 139.0])
def test_a_state_knows_which_jobs_are_suspended_and_which_have_been(policy: str, begin_at_s: float) -> None:
    jobs = [job("a", 0, 100, 8, 300), job("c", 25, 100, 8, 300), job("d", 26, 5, 8, 300), job("e", 27, 5, 8, 300)]
    times = played(jobs, JobSuspension("a", 20, 60), policy=policy, begin_at_s=begin_at_s)
    assert times == played(jobs, JobSuspension("a", 20, 60), policy=policy)
    assert times["a"] == (0, 140)


def test_a_job_that_resumes_on_free_cores_holds_them_again() -> None:
    jobs = [job("a", 0, 100, 6), job("b", 70, 5, 4)]
    assert played(jobs, JobSuspension("a", 20, 60)) == {"a": (0, 140), "b": (140, 145)}


def test_a_job_that_does_not_run_is_not_suspended() -> None:
    jobs = [job("a", 0, 30, 8), job("b", 5, 10, 8)]
    assert played(jobs, JobSuspension("b", 10, 20), JobSuspension("x", 1, 2)) == {"a": (0, 30), "b": (30, 40)}


def test_slurm_kills_a_suspended_job_when_it_has_run_for_its_limit() -> None:
    jobs = [job("a", 0, 500, 8, limit_s=100.0), job("b", 101, 10, 8)]
    cluster = Cluster((Node("n", None, 0, cpus=8, memory_gb=64),))
    queues = QueueTree(partitions=(NodePartition("work", ("n",)),), suspensions=(JobSuspension("a", 20, 60),))
    log = ClusterKernel(cluster, jobs, Models(queues=queues)).run(POLICIES.create("slurm-multifactor[kill=limit]")).log
    starts = {row.job: row.time_s for row in log if row.kind == Kind.STARTED}
    assert starts == {0: 0, 1: 140}


def test_runs_with_phases_cannot_be_suspended() -> None:
    cluster = Cluster((Node("n", gpu_type("T4"), 4, cpus=8, memory_gb=64),))
    queues, preemption = QueueTree(suspensions=(JobSuspension("a", 20, 60),)), Preemption(restart_s=5.0)
    with pytest.raises(ModelError, match="'a' cannot be suspended, because runs have phases or rates here"):
        ClusterKernel(cluster, [job("a", 0, 100, 8)], Models(queues=queues, preemption=preemption)).run(
            POLICIES.create("fifo")
        )


def test_a_suspension_names_a_job_and_ends_after_it_begins() -> None:
    with pytest.raises(ModelError, match="suspension: the end must follow the beginning, got 5 to 5"):
        JobSuspension("a", 5, 5)
    with pytest.raises(ModelError, match="suspension: no job is named"):
        JobSuspension("", 5, 6)
