"""The default scheduler of Kubernetes, by the examples of its documentation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dagsim.model import Cluster, Job, Kind, Node, QueueNode, QueueTree, Task
from dagsim.model.gpu import GpuType
from dagsim.model.log import Schedule
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.policies.kube import LEAST, MOST, allocation_score
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.testing import check_policy

GPU = GpuType("G", 1.0, 16, 100, 100, 10)


def played(jobs: Sequence[Job], spec: str, cluster: Cluster, *queues: QueueNode) -> Schedule:
    scenario = ClusterScenario(cluster, list(jobs), queues=QueueTree(queues) if queues else None)
    return scenario.kernel(0).run(POLICIES.create(spec))


def starts(schedule: Schedule) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    for row in schedule.log:
        if row.kind == Kind.STARTED:
            times.setdefault(schedule.jobs[row.job].id, []).append(row.time_s)
    return times


def job(name: str, queue: str, at_s: float, seconds: float, gpus: int = 1, priority: float = 0) -> Job:
    return Job.single(name, Task("t", seconds, gpus=gpus), at_s, priority=priority, partition=queue)


GPUS = Cluster(tuple([Node(f"n{at}", GPU, 8) for at in range(3)]))


def test_the_scores_are_those_of_the_documentation() -> None:
    # resource-bin-packing, "Node scoring for capacity allocation": 2 foo, 256 MB and 2 CPUs are asked for
    shape = ((0, 0), (100, 10))
    one = allocation_score([(5, 3, 4), (1, 512, 1024), (3, 3, 8)], shape, nearest=True)  # foo, memory, CPU
    two = allocation_score([(5, 4, 8), (1, 768, 1024), (3, 8, 8)], shape, nearest=True)
    assert (one, two) == (5, 7)
    pods = [(1, 2, 8), (1, 1, 16)]
    assert allocation_score(pods, LEAST) == 84  # (75 + 93) / 2
    assert allocation_score(pods, MOST) == 15  # (25 + 6) / 2
    assert allocation_score([(1, 0, 0)], MOST) == 0
    ends = [[(1, used, 16)] for used in (0, 16)]  # from 0 to 100, as MinNodeScore and MaxNodeScore
    assert [allocation_score(parts, LEAST) for parts in ends] == [100, 0]
    assert [allocation_score(parts, MOST) for parts in ends] == [0, 100]


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
    assert starts(played(jobs, "kube-default", one))["high"] == [3]
    assert starts(played(jobs, "kube-default[preempt=false]", one))["high"] == [10]
    equal = [*pods(2, priority=2), jobs[2]]
    assert starts(played(equal, "kube-default", one))["high"] == [10]


def test_who_finds_no_node_blocks_nobody() -> None:
    one = Cluster((Node("n", GPU, 2, 32, 64),))
    jobs = [job("half", "", 0, 10), job("wide", "", 1, 1, 2), job("small", "", 2, 1)]
    assert starts(played(jobs, "kube-default", one)) == {"half": [0], "small": [2], "wide": [10]}


def test_it_keeps_the_promises_of_a_policy() -> None:
    check_policy(lambda: POLICIES.create("kube-default[scoring=most,gpu=1]"), workloads=2)
