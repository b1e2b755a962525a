"""Changes that could let a job start sooner, and what each makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dagsim.families.forecast.job_changes import JobChange, changed, changes_of
from dagsim.families.forecast.job_log import JobLog
from dagsim.model import Cluster, Demand, Node, NodePartition, QueueTree, Request, gpu_type
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.workload.array_tools import objects
from dagsim.workload.arrays import JobArrays, Labels, TaskKind

A100 = gpu_type("A100-40")
DEMAND = Demand(4.0, 8.0, 64.0, (A100.name,))


def log_of(demand: Demand, instances: int, request: Request, limit_s: float = 7200.0) -> JobLog:
    """Two equal jobs of the partition day, of which the second starts after an hour."""
    jobs = JobArrays.of_single_tasks(
        objects(["0", "1"]),
        np.array([0.0, 10.0]),
        "job",
        work=np.full(2, 600.0),
        estimate=np.full(2, limit_s),
        instances=np.full(2, instances),
        kind=np.zeros(2, np.int32),
        kinds=(TaskKind(demand, gang=True),),
        user=Labels.numbered(["ann", "ann"]),
        account=Labels.numbered(["bio", "bio"]),
        partition=Labels.numbered(["day", "day"]),
        request=Labels.numbered([request, request]),
    )
    return JobLog.of(jobs, 1e9, np.array([0.0, 3600.0]))


@pytest.fixture
def scenario() -> ClusterScenario:
    nodes = tuple([Node(f"n{place}", A100, 4, 32, 256) for place in range(4)])
    return ClusterScenario(
        Cluster(nodes), (), queues=QueueTree(partitions=(NodePartition("day"), NodePartition("all")))
    )


def test_a_job_may_become_smaller_shorter_or_less_particular(scenario: ClusterScenario) -> None:
    log = log_of(DEMAND, 4, Request(constraint="nvlink", exclusive=True))
    day = JobChange("", partition="all")
    assert list(changes_of(log, 1, scenario)) == [
        JobChange("8 instead of 16 GPUs", size=0.5),
        JobChange("4 instead of 16 GPUs", size=0.25),
        JobChange("2 instead of 4 nodes", nodes=2),
        JobChange("1 instead of 4 nodes", nodes=1),
        JobChange("a time limit of 60 min instead of 2.0 h", limit_s=3600.0),
        JobChange("a time limit of 30 min instead of 2.0 h", limit_s=1800.0),
        replace(day, words="the partition all instead of day"),
        JobChange("any GPU type instead of A100-40", any_type=True),
        JobChange("no constraint instead of nvlink", any_node=True),
        JobChange("shared nodes instead of --exclusive", shared=True),
    ]


def test_what_cannot_be_divided_or_is_not_asked_for_is_not_offered(scenario: ClusterScenario) -> None:
    log = log_of(Demand(0.0, 3.0, 0.0, None), 1, Request(), limit_s=180.0)
    alone = replace(scenario, queues=None)
    assert list(changes_of(log, 1, alone)) == [JobChange("a time limit of 90 s instead of 3 min", limit_s=90.0)]
    assert [
        str(change) for change in changes_of(log_of(Demand(0.0, 8.0, 0.0, None), 1, Request(), 60.0), 1, alone)
    ] == [
        "4 instead of 8 CPUs",
        "2 instead of 8 CPUs",
    ]


@pytest.mark.parametrize(
    ("change", "instances", "demand"),
    [
        (JobChange("", size=0.5), 2, DEMAND),
        (JobChange("", nodes=2), 2, Demand(8.0, 16.0, 128.0, (A100.name,))),
        (JobChange("", any_type=True), 4, DEMAND._replace(gpu_types=None)),
        (JobChange("", limit_s=900.0), 4, DEMAND),
    ],
)
def test_only_the_job_that_is_asked_about_changes(change: JobChange, instances: int, demand: Demand) -> None:
    log = log_of(DEMAND, 4, Request())
    other = changed(log, [1], change)
    assert [other.jobs.kinds[kind].demand for kind in other.jobs.kind.tolist()] == [DEMAND, demand]
    assert other.jobs.instances.tolist() == [4, instances]
    assert other.limit_s.tolist() == [7200.0, change.limit_s or 7200.0]
    assert other.jobs.estimate is not None
    assert other.jobs.estimate.tolist() == other.limit_s.tolist()


def test_a_serial_job_keeps_its_instance_and_gets_less_of_each_resource() -> None:
    other = changed(log_of(DEMAND, 1, Request()), [1], JobChange("", size=0.25))
    assert other.jobs.kinds[int(other.jobs.kind[1])].demand == Demand(1.0, 2.0, 16.0, (A100.name,))


@pytest.mark.parametrize(
    ("change", "terms", "partition"),
    [
        (JobChange("", partition="all"), Request(constraint="nvlink", exclusive=True), "all"),
        (JobChange("", any_node=True), Request(partitions=("day", "night"), exclusive=True), "day"),
        (JobChange("", shared=True), Request(constraint="nvlink", partitions=("day", "night")), "day"),
    ],
)
def test_terms_are_dropped_one_at_a_time(change: JobChange, terms: Request, partition: str) -> None:
    own = Request(constraint="nvlink", exclusive=True, partitions=("day", "night"))
    other = changed(log_of(DEMAND, 1, own), [1], change)
    assert other.jobs.request is not None
    assert other.jobs.request.tolist() == [own, terms]
    assert other.partition[1] == partition
