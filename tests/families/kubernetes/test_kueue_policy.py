"""Kueue as a policy, in simulated time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest
from support.log_reading import start_times

from dagsim.errors import ConfigError
from dagsim.families.fabric.shared_network import SharedNetwork
from dagsim.families.fabric.topologies import FatTree
from dagsim.families.kubernetes.kueue.kueue_objects import (
    ClusterQueue,
    FlavorQuotas,
    KueueObjects,
    KueueTopology,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
)
from dagsim.families.kubernetes.kueue.kueue_policy import Kueue
from dagsim.model import Cluster, InFlight, Job, Kind, Node, QueueNode, QueueTree, RejectReason, Request, Share, Task
from dagsim.model.gpu import GpuType
from dagsim.model.log import Schedule
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.testing import check_policy

GPU = GpuType("G", 1.0, 16, 100, 100, 10)
GPUS = Cluster(tuple([Node(f"n{at}", GPU, 8) for at in range(3)]))


def played(jobs: Sequence[Job], spec: str, cluster: Cluster, *queues: QueueNode, **settings: Any) -> Schedule:
    trees = QueueTree(queues, **settings) if queues or settings else None
    return ClusterScenario(cluster, list(jobs), queues=trees).kernel(0).run(POLICIES.create(spec))


def job(name: str, queue: str, at_s: float, seconds: float, gpus: int = 1, priority: float = 0) -> Job:
    return Job.single(name, Task("t", seconds, gpus=gpus), at_s, priority=priority, partition=queue)


def test_who_has_nominal_quota_left_goes_before_who_would_borrow() -> None:
    cohort = QueueNode("ab", children=(QueueNode("a", quota={"gpus": 8}), QueueNode("b", quota={"gpus": 8})))
    jobs = [job("a0", "a", 0, 10, 8), job("b0", "b", 0, 5, 8), job("a1", "a", 1, 10, 8), job("b1", "b", 2, 10, 8)]
    got = start_times(played(jobs, "kueue", GPUS, cohort))
    # at 5 s b gives 8 back: b1 is admitted, although a1 is older and would fit by borrowing
    assert got == {"a0": [0], "b0": [0], "b1": [5], "a1": [10]}


def test_strict_queues_stop_at_the_first_others_go_on() -> None:
    jobs = [job("half", "q", 0, 10, 6), job("wide", "q", 1, 5, 8), job("small", "q", 2, 1, 2)]
    for order, start in (("best-effort", 2), ("strict", 15)):
        queue = QueueNode("q", quota={"gpus": 8}, order=order)  # type: ignore[arg-type]
        assert start_times(played(jobs, "kueue", GPUS, queue))["small"] == [start]


@pytest.mark.parametrize(("reclaim", "start"), [("any", 3), ("lower-priority", 10), ("never", 10)])
def test_nominal_quota_is_reclaimed_from_who_borrows(reclaim: str, start: float) -> None:
    queues = (QueueNode("a", quota={"gpus": 8}), QueueNode("b", quota={"gpus": 8}, reclaim=reclaim))  # type: ignore[arg-type]
    jobs = [job("own", "a", 0, 10, 8), job("borrowed", "a", 1, 9, 8), job("b", "b", 3, 5, 8)]
    schedule = played(jobs, "kueue", GPUS, QueueNode("ab", children=queues))
    assert start_times(schedule)["b"] == [start]
    preempted = [row.job for row in schedule.log if row.kind == Kind.PREEMPTED]
    assert preempted == ([1] if reclaim == "any" else [])  # the one that borrows, the youngest


def test_within_a_queue_lower_priorities_go_and_no_more_than_needed() -> None:
    queue = QueueNode("q", quota={"gpus": 8}, within="lower-priority")
    jobs = [job("big", "q", 0, 100, 4, 1), job("one", "q", 0, 100, 2), job("two", "q", 1, 100, 2)]
    jobs += [job("urgent", "q", 2, 1, 2, 5), job("equal", "q", 2, 1, 8, 0)]
    schedule = played(jobs, "kueue", GPUS, queue)
    assert start_times(schedule)["urgent"] == [2]
    assert [row.job for row in schedule.log if row.kind == Kind.PREEMPTED] == [2]  # of the lowest, the youngest


def test_a_workload_beyond_its_nominal_quota_stops_nobody_in_its_own_queue() -> None:
    queues = (QueueNode("a", quota={"gpus": 2}, within="lower-priority"), QueueNode("b", quota={"gpus": 6}))
    jobs = [job("low", "a", 0, 100, 8), job("high", "a", 2, 5, 8, 5)]  # both need the 6 GPUs that b does not use
    schedule = played(jobs, "kueue", GPUS, QueueNode("ab", children=queues))
    assert start_times(schedule)["high"] == [100]


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


def test_what_can_never_be_admitted_waits_until_nothing_else_happens_and_is_named() -> None:
    policy = Kueue()
    queue = QueueNode("q", quota={"gpus": 4}, order="strict")
    jobs = [job("first", "q", 0, 9, 2), job("wide", "q", 1, 1, 8), job("fits", "q", 2, 1, 2)]
    schedule = ClusterScenario(GPUS, jobs, queues=QueueTree((queue,))).kernel(0).run(policy)
    rejected = [(row.job, row.time_s, row.value) for row in schedule.log if row.kind == Kind.REJECTED]
    assert rejected == [(1, 9.0, RejectReason.CANCELLED), (2, 9.0, RejectReason.CANCELLED)]
    assert policy.notes == ["job 'wide' can never be admitted, and blocks 1 behind it (ClusterQueue 'q', 2 waiting)"]


def test_a_queue_needs_a_quota() -> None:
    with pytest.raises(ConfigError, match="the queue 'q' has no quota"):
        played([job("x", "q", 0, 1)], "kueue", GPUS, QueueNode("q"))


def test_runs_in_flight_hold_quota_since_their_true_start() -> None:
    queue = QueueNode("q", quota={"gpus": 4}, within="lower-priority")
    runs = [
        Job.single(name, Task("t", 100, gpus=2), at_s, partition="q", in_flight=(InFlight(since_s, (Share(0),)),))
        for name, at_s, since_s in (("late", 1.0, 20.0), ("early", 2.0, 10.0))
    ]
    jobs = [*runs, job("new", "q", 41, 5, 2, priority=5)]
    scenario = ClusterScenario(GPUS, jobs, queues=QueueTree((queue,)), begins_s=40.0)
    schedule = scenario.kernel(0).run(POLICIES.create("kueue"))
    assert [schedule.jobs[row.job].id for row in schedule.log if row.kind == Kind.PREEMPTED] == ["late"]
    at_once = [*runs, job("new", "q", 40, 5, 2, priority=5)]  # also at the instant at which the simulation begins
    scenario = ClusterScenario(GPUS, at_once, queues=QueueTree((queue,)), begins_s=40.0)
    schedule = scenario.kernel(0).run(POLICIES.create("kueue"))
    assert [schedule.jobs[row.job].id for row in schedule.log if row.kind == Kind.PREEMPTED] == ["late"]


def test_independent_instances_are_workloads_of_their_own_and_keep_their_place() -> None:
    queue = QueueNode("q", quota={"gpus": 2})
    many = Job.single("many", Task("t", 10, gpus=1, instances=5), 0.0, partition="q")
    schedule = played([many, job("other", "q", 1, 1)], "kueue", GPUS, queue)
    assert start_times(schedule) == {"many": [0, 0, 10, 10, 20], "other": [20]}


def test_admission_checks_hold_quota_and_delay_the_start() -> None:
    queue = QueueNode("q", quota={"gpus": 2})
    schedule = played([job("a", "q", 0, 5, 2), job("b", "q", 0, 5, 2)], "kueue[checks_s=3]", GPUS, queue)
    assert start_times(schedule) == {"a": [3], "b": [11]}


def test_released_quota_is_offered_after_the_batch_period() -> None:
    queue = QueueNode("q", quota={"gpus": 2})
    schedule = played([job("a", "q", 0, 5, 2), job("b", "q", 0, 5, 2)], "kueue[requeue_s=1]", GPUS, queue)
    assert start_times(schedule) == {"a": [0], "b": [6]}


def test_an_admitted_workload_waits_for_room_and_blocks_nobody() -> None:
    setup = KueueObjects(
        (
            ClusterQueue(
                "q", resource_groups=(ResourceGroup((FlavorQuotas("any", {"nvidia.com/gpu": ResourceQuota(100)}),)),)
            ),
        ),
        resource_flavors=(ResourceFlavor("any"),),
    )
    jobs = [job(f"half{at}", "q", 0, 9 + at, 5) for at in range(3)] + [
        job("whole", "q", 1, 1, 8),
        job("small", "q", 2, 1, 2),
    ]
    assert start_times(played(jobs, "kueue", GPUS, kueue=setup))["whole"] == [9]
    assert start_times(played(jobs, "kueue", GPUS, kueue=setup))["small"] == [2]


def fabric_of(level: str) -> KueueObjects:
    devices = FlavorQuotas("gpus", {"nvidia.com/gpu": ResourceQuota(99)})
    levels = (f"cloud.provider.com/topology-{level}", "kubernetes.io/hostname")
    return KueueObjects(
        (ClusterQueue("q", resource_groups=(ResourceGroup((devices,)),)),),
        resource_flavors=(ResourceFlavor("gpus", topology_name="t"),),
        topologies=(KueueTopology("t", levels),),
    )


def test_gangs_go_where_the_topology_says() -> None:
    cluster = Cluster(tuple([Node(f"n{at}", GPU, 8) for at in range(6)]))
    network = SharedNetwork(FatTree((2, 3), (1, 1), (1, 1)))  # racks n0 n1, n2 n3, n4 n5
    gang = Task("t", 9, instances=2, gang=True, gpus=8)
    asked = [
        Job.single("one", Task("t", 9, gpus=1), 0.0),
        Job.single("rack", gang, 1.0, request=Request(level="rack")),
        Job.single("other", gang, 2.0, request=Request(level="rack")),
        Job.single("wide", gang, 3.0, request=Request(level="rack")),
        Job.single("anywhere", gang, 4.0, request=Request(level="rack", level_required=False)),
    ]
    scenario = ClusterScenario(cluster, asked, queues=QueueTree(kueue=fabric_of("rack")), network=network)
    schedule = scenario.kernel(0).run(POLICIES.create("kueue"))
    nodes: dict[str, set[int]] = {}
    for row in schedule.log:
        if row.kind == Kind.STARTED:
            nodes.setdefault(schedule.jobs[row.job].id, set()).add(row.node)
    assert nodes["one"] == {0}  # without a request: the first of the nodes with the least room
    assert {*map(frozenset, (nodes["rack"], nodes["other"]))} == {frozenset({2, 3}), frozenset({4, 5})}
    assert start_times(schedule)["wide"][0] == 9.0  # the racks are full, or have one node

    hall = ClusterScenario(cluster, asked, queues=QueueTree(kueue=fabric_of("hall")), network=network)
    with pytest.raises(ConfigError, match=r"the network has no level 'hall' for .*topology-hall; levels: rack"):
        hall.kernel(0).run(POLICIES.create("kueue"))


def test_it_keeps_the_promises_of_a_policy() -> None:
    check_policy(lambda: POLICIES.create("kueue"), workloads=2)


class _Looks:
    """Kueue, with what another one says of the quotas and the queue at 10 s."""

    def __init__(self) -> None:
        self.kueue = POLICIES.create("kueue")
        self.seen: dict[str, Any] = {}

    def decide(self, view: Any) -> Iterator[Any]:
        if view.now == 10.0 and not self.seen:
            rules, standings = POLICIES.create("kueue").outlook(view)  # type: ignore[attr-defined]
            for one in standings:
                self.seen[one.task.job.job.id] = one[1:6], list(rules.reached(one.task)), list(rules.never(one.task))
        yield from self.kueue.decide(view)


@pytest.mark.parametrize(
    ("queues", "of_b", "limit", "most", "runs", "because"),
    [
        ((QueueNode("a", quota={"gpus": 2}), QueueNode("b", quota={"gpus": 5})), 4, 2.0, 2, (0,),
         "2 more needed: its nominalQuota is 2, of which 2 are in use, and it belongs to no cohort that could lend"),
        ((QueueNode("c", children=(QueueNode("a", quota={"gpus": 2}), QueueNode("b", quota={"gpus": 5}))),), 4, 3.0,
         7, (0, 1), "1 more needed: its nominalQuota is 2, of which 2 are in use, "
         "and of the 7 in the cohort c, 6 are in use"),
        ((QueueNode("c", children=(QueueNode("a", quota={"gpus": 2}, borrow={"gpus": 1}),
                                   QueueNode("b", quota={"gpus": 5}))),), 1, 3.0, 3, (0, 1),
         "1 more needed: its nominalQuota is 2, of which 2 are in use, and its borrowingLimit is 1"),
    ],
    ids=["alone", "in a cohort", "with a limit"],
)  # fmt: skip
def test_what_a_queue_lacks_is_told_with_what_holds_it_back(
    queues: Sequence[QueueNode], of_b: int, limit: float, most: int, runs: tuple[int, ...], because: str
) -> None:
    jobs = [job("x", "a", 0, 50, 2), job("y", "b", 0, 50, of_b), job("w", "a", 1, 9, 8), job("v", "a", 2, 9, 2, 5)]
    jobs.append(job("z", "b", 10, 1, 1))
    looks = _Looks()
    ClusterScenario(GPUS, jobs, queues=QueueTree(tuple(queues))).kernel(0).run(looks)
    standing, (lacks,), never = looks.seen["v"]
    assert standing == ("a", 0, 5.0, {"priority": 5.0}, 0b111)
    assert (lacks.reason, lacks.owner, lacks.unit) == ("quota", "the ClusterQueue a", "gpus")
    assert (lacks.limit, lacks.held, lacks.asked, lacks.excess) == (limit, 2.0, 2.0, 4.0 - limit)
    assert lacks.detail == f"insufficient unused quota for gpus, {because}"
    assert (lacks.runs, never) == (runs, [])
    assert looks.seen["z"][1:] == ([], [])
    assert looks.seen["w"][2] == [f"quota of gpus ({most}) < 8: the queue a"]


def test_a_run_is_never_stopped_in_its_first_instant() -> None:
    rng, now = Random(1), 0.0
    jobs = []
    for number in range(400):
        now += rng.expovariate(1 / 6)
        gpus = rng.choice((1, 1, 1, 2, 4, 8))
        task = Task("t", rng.uniform(60, 3600), gpus=gpus, cpus=4 * gpus)
        priority, name = rng.choice((0, 0, 5)), rng.choice("abcd")
        jobs.append(Job.single(f"j{number}", task, now, priority=priority, partition=name))
    quotas = {"gpus": 16.0, "cpus": 300.0}
    queues = [QueueNode(name, quota=quotas, reclaim="any", within="lower-priority") for name in "abcd"]
    cluster = Cluster(tuple([Node(f"n{at}", GPU, 8, 64, 512) for at in range(8)]))
    schedule = played(jobs, "kueue", cluster, QueueNode("all", children=tuple(queues)))
    started: dict[int, float] = {}
    for row in schedule.log:
        if row.kind == Kind.STARTED:
            started[row.run] = row.time_s
        assert row.kind != Kind.PREEMPTED or row.time_s > started[row.run]
    assert any(row.kind == Kind.PREEMPTED for row in schedule.log)
