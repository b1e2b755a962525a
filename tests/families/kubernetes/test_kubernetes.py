"""The default scheduler of Kubernetes, by the examples of its documentation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.log_reading import start_times

from dagsim.model import Cluster, Job, Kind, Node, QueueNode, QueueTree, Task
from dagsim.model.gpu import GpuType
from dagsim.model.log import Schedule
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.testing import check_policy

GPU = GpuType("G", 1.0, 16, 100, 100, 10)


def played(jobs: Sequence[Job], spec: str, cluster: Cluster, *queues: QueueNode) -> Schedule:
    scenario = ClusterScenario(cluster, list(jobs), queues=QueueTree(queues) if queues else None)
    return scenario.kernel(0).run(POLICIES.create(spec))


def job(name: str, queue: str, at_s: float, seconds: float, gpus: int = 1, priority: float = 0) -> Job:
    return Job.single(name, Task("t", seconds, gpus=gpus), at_s, priority=priority, partition=queue)


GPUS = Cluster(tuple([Node(f"n{at}", GPU, 8) for at in range(3)]))


def pods(count: int, **rest: float) -> list[Job]:
    return [Job.single(f"p{at}", Task("t", 9, gpus=1, cpus=4, memory_gb=8), float(at), **rest) for at in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("scoring", "nodes"), [("least", [0, 1, 2, 0]), ("most", [0, 0, 0, 0])])
def test_pods_spread_or_pack(scoring: str, nodes: list[int]) -> None:
    cluster = Cluster(tuple([Node(f"n{at}", GPU, 4, 32, 64) for at in range(3)]))
    schedule = played(pods(4), f"kube-default[scoring={scoring}]", cluster)
    assert [row.node for row in schedule.log if row.kind == Kind.STARTED] == nodes


def test_pods_that_ask_for_no_cpu_count_as_a_tenth_of_one() -> None:
    cluster = Cluster(tuple([Node(f"n{at}", GPU, 4, 2, 4) for at in range(2)]))
    jobs = [Job.single(f"p{at}", Task("t", 9, gpus=1), float(at)) for at in range(3)]
    schedule = played(jobs, "kube-default", cluster)
    assert [row.node for row in schedule.log if row.kind == Kind.STARTED] == [0, 1, 0]


def test_a_higher_priority_class_stops_a_lower_one() -> None:
    one = Cluster((Node("n", GPU, 2, 32, 64),))
    jobs = [*pods(2, priority=1), Job.single("high", Task("t", 5, gpus=2), 3.0, priority=2)]
    assert start_times(played(jobs, "kube-default", one))["high"] == [3]
    assert start_times(played(jobs, "kube-default[preempt=false]", one))["high"] == [10]
    equal = [*pods(2, priority=2), jobs[2]]
    assert start_times(played(equal, "kube-default", one))["high"] == [10]


def test_who_finds_no_node_blocks_nobody() -> None:
    one = Cluster((Node("n", GPU, 2, 32, 64),))
    jobs = [job("half", "", 0, 10), job("wide", "", 1, 1, 2), job("small", "", 2, 1)]
    assert start_times(played(jobs, "kube-default", one)) == {"half": [0], "small": [2], "wide": [10]}


def test_it_keeps_the_promises_of_a_policy() -> None:
    check_policy(lambda: POLICIES.create("kube-default[scoring=most,gpu=1]"), workloads=2)
