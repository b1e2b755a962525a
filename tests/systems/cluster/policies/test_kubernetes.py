"""Kueue and the default scheduler of Kubernetes, by the examples of their documentation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dagsim.errors import ConfigError
from dagsim.model import Cluster, Job, Kind, Node, QueueNode, QueueTree, RejectReason, Task
from dagsim.model.gpu import GpuType
from dagsim.model.log import Schedule
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.policies.kueue.policy import QuotaTree
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


def team_ab(**limits: dict[str, float]) -> QuotaTree:
    """The two cluster queues of Kueue's borrowing example: 9 and 12 CPUs in one cohort."""
    queues = (QueueNode("a", quota={"cpus": 9}, **limits), QueueNode("b", quota={"cpus": 12}))  # type: ignore[arg-type]
    return QuotaTree((QueueNode("team-ab", children=queues),))


def test_a_queue_may_use_all_that_the_cohort_leaves_unused() -> None:
    quotas = team_ab()
    assert (quotas.available("a", "cpus"), quotas.available("b", "cpus")) == (21, 21)
    quotas.take("b", {"cpus": 5})
    assert (quotas.available("a", "cpus"), quotas.available("b", "cpus")) == (16, 16)
    quotas.take("a", {"cpus": 10})
    assert quotas.available("b", "cpus") == 6
    assert quotas.borrows("a", {"cpus": 1})
    assert not quotas.borrows("b", {"cpus": 1})
    quotas.give("a", {"cpus": 10})
    quotas.give("b", {"cpus": 5})
    assert quotas.available("a", "cpus") == quotas.most("a", "cpus") == 21


def test_a_borrowing_limit_binds_the_one_who_has_it() -> None:
    quotas = team_ab(borrow={"cpus": 1})
    assert (quotas.available("a", "cpus"), quotas.available("b", "cpus")) == (10, 21)


def test_a_lending_limit_keeps_the_rest_for_its_owner() -> None:
    quotas = team_ab(lend={"cpus": 2})  # a keeps 7 for itself
    assert (quotas.available("a", "cpus"), quotas.available("b", "cpus")) == (21, 14)
    quotas.take("b", {"cpus": 14})
    assert quotas.available("a", "cpus") == 7


def test_a_cohort_of_cohorts_lends_across_its_tree() -> None:
    left = QueueNode("left", children=(QueueNode("x", quota={"gpus": 2}, borrow={"gpus": 3}),), borrow={"gpus": 1})
    right = QueueNode("right", quota={"gpus": 4}, children=(QueueNode("y", quota={"gpus": 1}),))
    quotas = QuotaTree((QueueNode("all", children=(left, right)),))
    # x: 2 of its own, and of the 3 that it may borrow no more than the 1 that its cohort may
    assert (quotas.available("x", "gpus"), quotas.available("y", "gpus")) == (3, 7)


def test_who_has_nominal_quota_left_goes_before_who_would_borrow() -> None:
    cohort = QueueNode("ab", children=(QueueNode("a", quota={"gpus": 8}), QueueNode("b", quota={"gpus": 8})))
    jobs = [job("a0", "a", 0, 10, 8), job("b0", "b", 0, 5, 8), job("a1", "a", 1, 10, 8), job("b1", "b", 2, 10, 8)]
    got = starts(played(jobs, "kueue", GPUS, cohort))
    # at 5 s b gives 8 back: b1 is admitted, although a1 is older and would fit by borrowing
    assert got == {"a0": [0], "b0": [0], "b1": [5], "a1": [10]}


def test_strict_queues_stop_at_the_first_others_go_on() -> None:
    jobs = [job("half", "q", 0, 10, 6), job("wide", "q", 1, 5, 8), job("small", "q", 2, 1, 2)]
    for order, start in (("best-effort", 2), ("strict", 15)):
        queue = QueueNode("q", quota={"gpus": 8}, order=order)  # type: ignore[arg-type]
        assert starts(played(jobs, "kueue", GPUS, queue))["small"] == [start]


@pytest.mark.parametrize(("reclaim", "start"), [("any", 3), ("lower-priority", 10), ("never", 10)])
def test_nominal_quota_is_reclaimed_from_who_borrows(reclaim: str, start: float) -> None:
    queues = (QueueNode("a", quota={"gpus": 8}), QueueNode("b", quota={"gpus": 8}, reclaim=reclaim))  # type: ignore[arg-type]
    jobs = [job("own", "a", 0, 10, 8), job("borrowed", "a", 1, 9, 8), job("b", "b", 3, 5, 8)]
    schedule = played(jobs, "kueue", GPUS, QueueNode("ab", children=queues))
    assert starts(schedule)["b"] == [start]
    preempted = [row.job for row in schedule.log if row.kind == Kind.PREEMPTED]
    assert preempted == ([1] if reclaim == "any" else [])  # the one that borrows, the youngest


def test_within_a_queue_lower_priorities_go_and_no_more_than_needed() -> None:
    queue = QueueNode("q", quota={"gpus": 8}, within="lower-priority")
    jobs = [job("big", "q", 0, 100, 4, 1), job("one", "q", 0, 100, 2), job("two", "q", 1, 100, 2)]
    jobs += [job("urgent", "q", 2, 1, 2, 5), job("equal", "q", 2, 1, 8, 0)]
    schedule = played(jobs, "kueue", GPUS, queue)
    assert starts(schedule)["urgent"] == [2]
    assert [row.job for row in schedule.log if row.kind == Kind.PREEMPTED] == [2]  # of the lowest, the youngest


def test_within_its_own_queue_a_job_may_stop_others_and_still_borrow() -> None:
    queues = (QueueNode("a", quota={"gpus": 2}, within="lower-priority"), QueueNode("b", quota={"gpus": 6}))
    jobs = [job("low", "a", 0, 100, 8), job("high", "a", 2, 5, 8, 5)]  # both hold the 6 GPUs that b does not use
    schedule = played(jobs, "kueue", GPUS, QueueNode("ab", children=queues))
    assert starts(schedule)["high"] == [2]


def test_a_target_that_turns_out_not_to_be_needed_is_spared() -> None:
    queue = QueueNode("q", quota={"gpus": 10}, within="lower-priority")
    jobs = [job("big", "q", 0, 100, 8, 1), job("small", "q", 1, 100, 2), job("urgent", "q", 2, 1, 8, 5)]
    schedule = played(jobs, "kueue", GPUS, queue)
    # small is the first candidate, and big, which must go as well, is enough without it
    assert [row.job for row in schedule.log if row.kind == Kind.PREEMPTED] == [0]


def test_flavors_are_tried_in_the_order_of_the_quota() -> None:
    fast = GpuType("F", 1.0, 16, 100, 100, 10)
    cluster = Cluster((Node("f", fast, 8), Node("g", GPU, 8)))
    queue = QueueNode("q", quota={"G": 1, "F": 8})
    schedule = played([job("first", "q", 0, 5), job("second", "q", 0, 5)], "kueue", cluster, queue)
    assert [row.node for row in schedule.log if row.kind == Kind.STARTED] == [1, 0]


def test_what_no_quota_allows_is_cancelled_and_a_queue_needs_a_quota() -> None:
    queue = QueueNode("q", quota={"gpus": 4})
    schedule = played([job("wide", "q", 0, 1, 8), job("fits", "q", 0, 1, 2)], "kueue", GPUS, queue)
    assert [(row.job, row.value) for row in schedule.log if row.kind == Kind.REJECTED] == [(0, RejectReason.CANCELLED)]
    with pytest.raises(ConfigError, match="the queue 'q' has no quota"):
        played([job("x", "q", 0, 1)], "kueue", GPUS, QueueNode("q"))


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


@pytest.mark.parametrize("spec", ["kueue", "kube-default[scoring=most,gpu=1]"])
def test_they_keep_the_promises_of_a_policy(spec: str) -> None:
    check_policy(lambda: POLICIES.create(spec), workloads=2)
