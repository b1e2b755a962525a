"""Kueue: the engine on small states of its own, and the policy in simulated time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any

import pytest

from dagsim.errors import ConfigError
from dagsim.families.fabric.shared_network import SharedNetwork
from dagsim.families.fabric.topologies import FatTree
from dagsim.families.kubernetes.api.terms import Requirement, Taint, Toleration
from dagsim.families.kubernetes.kueue.amounts import text, whole
from dagsim.families.kubernetes.kueue.engine import Admission, Cycle, EndlessPreemption
from dagsim.families.kubernetes.kueue.kueue_objects import (
    AdmissionFairSharing,
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    FlavorFungibility,
    FlavorQuotas,
    KueueObjects,
    KueueTopology,
    LocalQueue,
    PodSet,
    PodSetAssignment,
    QueuePreemption,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    TopologyNode,
    TopologyRequest,
    Workload,
)
from dagsim.families.kubernetes.kueue.kueue_policy import Kueue
from dagsim.families.kubernetes.kueue.quota import QuotaForest, QuotaNode
from dagsim.families.kubernetes.kueue.victims import Preemptor
from dagsim.model import Cluster, InFlight, Job, Kind, Node, QueueNode, QueueTree, RejectReason, Request, Share, Task
from dagsim.model.gpu import GpuType
from dagsim.model.log import Schedule
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.testing import check_policy

GPU = GpuType("G", 1.0, 16, 100, 100, 10)
GPUS = Cluster(tuple([Node(f"n{at}", GPU, 8) for at in range(3)]))


def quota(nominal: float, borrow: float | None = None, lend: float | None = None, *, flavor: str = "f") -> FlavorQuotas:
    return FlavorQuotas(flavor, {"cpu": ResourceQuota(nominal, borrow, lend)})


def queue(name: str, *quotas: FlavorQuotas, cohort: str = "all", **settings: Any) -> ClusterQueue:
    groups = (ResourceGroup(quotas),) if quotas else ()
    if preemption := {key: settings.pop(key) for key in ("within", "reclaim", "borrowing") if key in settings}:
        borrowing = BorrowWithinCohort(preemption.get("borrowing", "Never"))
        settings["preemption"] = QueuePreemption(
            preemption.get("within", "Never"), preemption.get("reclaim", "Never"), borrowing
        )
    return ClusterQueue(name, cohort, resource_groups=groups, **settings)


def objects(queues: Sequence[ClusterQueue], cohorts: Sequence[Cohort] = (), **settings: Any) -> KueueObjects:
    names = {flavor.name for one in queues for group in one.resource_groups for flavor in group.flavors}
    settings.setdefault("resource_flavors", tuple(map(ResourceFlavor, sorted(names))))
    settings.setdefault("local_queues", tuple([LocalQueue(one.name, one.name) for one in queues]))
    return KueueObjects(tuple(queues), tuple(cohorts), **settings)


def workload(name: str, queue: str, cpus: float, at_s: float, priority: float = 0.0, **rest: Any) -> Workload:
    sets = rest.pop("pod_sets", None) or (PodSet("main", 1, {"cpu": cpus}),)
    return Workload(name, queue, priority, at_s, name, sets, **rest)


def held(name: str, queue: str, cpus: float, at_s: float, priority: float = 0.0, flavor: str = "f") -> Workload:
    given = PodSetAssignment("main", {"cpu": flavor}, {"cpu": cpus}, 1)
    sets = (PodSet("main", 1, {"cpu": cpus}),)
    return Workload(name, queue, priority, at_s, name, sets, queue, (given,), at_s)


def admission(setup: KueueObjects, workloads: Iterable[Workload], **settings: Any) -> Admission:
    engine = Admission(setup, **settings)
    for one in workloads:
        engine.submit(one)
    return engine


def decided(engine: Admission, now: float = 100.0) -> list[Cycle]:
    return list(engine.cycles(now))


def admitted(engine: Admission, now: float = 100.0) -> list[list[str]]:
    """Names admitted in each cycle."""
    return [names for cycle in decided(engine, now) if (names := [one.name for one in cycle.admitted])]


def preempted(cycles: Iterable[Cycle]) -> list[tuple[str, str, str]]:
    return [(one.workload.name, one.by, one.reason) for cycle in cycles for one in cycle.preempted]


# Quota.


def tree(*queues: ClusterQueue, cohorts: Sequence[Cohort] = ()) -> dict[str, QuotaNode]:
    setup = objects(queues, cohorts)
    return QuotaForest(setup, [one.name for one in queues]).queues


def test_a_queue_may_use_all_that_the_cohort_leaves_unused() -> None:
    nodes = tree(queue("a", quota(9)), queue("b", quota(12)))  # Kueue's own example of borrowing
    a, b = nodes["a"], nodes["b"]
    assert (a.available(0), b.available(0)) == (21_000, 21_000)
    b.take(0, 5_000)
    assert (a.available(0), b.available(0)) == (16_000, 16_000)
    a.take(0, 10_000)
    assert b.available(0) == 6_000
    assert (a.exceeds(0), b.exceeds(0)) == (True, False)
    a.give(0, 10_000)
    b.give(0, 5_000)
    assert a.available(0) == a.most[0] == 21_000


def test_a_borrowing_limit_binds_the_one_who_has_it() -> None:
    nodes = tree(queue("a", quota(9, borrow=1)), queue("b", quota(12)))
    assert (nodes["a"].available(0), nodes["b"].available(0)) == (10_000, 21_000)


def test_a_lending_limit_keeps_the_rest_for_its_owner() -> None:
    nodes = tree(queue("a", quota(9, lend=2)), queue("b", quota(12)))  # a keeps 7 for itself
    assert (nodes["a"].available(0), nodes["b"].available(0)) == (21_000, 14_000)
    nodes["b"].take(0, 14_000)
    assert nodes["a"].available(0) == 7_000


def test_a_cohort_of_cohorts_lends_across_its_tree() -> None:
    nodes = tree(
        queue("x", quota(2, borrow=3), cohort="left"),
        queue("y", quota(1), cohort="right"),
        cohorts=(
            Cohort("left", "all", (ResourceGroup((quota(0, borrow=1),)),)),
            Cohort("right", "all", (ResourceGroup((quota(4),)),)),
        ),
    )
    # x: 2 of its own, and of the 3 that it may borrow no more than the 1 that its cohort may
    assert (nodes["x"].available(0), nodes["y"].available(0)) == (3_000, 7_000)
    assert nodes["y"].height_that_fits(0, 5_000) == (1, True)
    assert nodes["y"].height_that_fits(0, 6_000) == (2, False)


@pytest.mark.parametrize(
    ("resource", "amount", "written"),
    [
        ("cpu", 1.5, "1500m"),
        ("cpu", 2000, "2k"),
        ("cpu", 0, "0"),
        ("memory", 16 * 2**30, "16Gi"),
        ("memory", 1500, "1500"),
        ("nvidia.com/gpu", 3, "3"),
    ],
)
def test_amounts_are_written_as_kubernetes_writes_them(resource: str, amount: float, written: str) -> None:
    assert text(resource, whole(resource, amount)) == written


# Cycles.


def test_each_queue_offers_one_head_per_cycle_and_who_borrows_less_goes_first() -> None:
    setup = objects([queue("a", quota(4)), queue("b", quota(4))])
    wide, behind = workload("a0", "a", 6, 1, 9.0), workload("a1", "a", 1, 2)
    engine = admission(setup, [wide, behind, workload("b0", "b", 2, 3), workload("b1", "b", 0.5, 4)])
    assert admitted(engine) == [["b0", "a0"]]  # a0 would borrow; no quota is left for the second heads
    assert engine.workloads["a1"].message is not None


def test_a_head_of_strict_fifo_that_can_never_fit_blocks_its_queue_for_good() -> None:
    for strategy, got in (("StrictFIFO", []), ("BestEffortFIFO", [["small"]])):
        setup = objects([queue("a", quota(4), cohort="", queueing_strategy=strategy)])
        engine = admission(setup, [workload("huge", "a", 9, 1), workload("small", "a", 1, 2)])
        assert admitted(engine) == got
        assert "maximum capacity (4)" in (engine.workloads["huge"].message or "")


def test_a_blocked_head_reserves_quota_for_as_long_as_it_stays_the_head() -> None:
    for strategy, got in (("StrictFIFO", []), ("BestEffortFIFO", [["b1"]])):
        # a0 would fit into nominal quota, but b0, whose priority is higher, holds one of the two CPUs
        first = queue("a", quota(2), reclaim="LowerPriority", queueing_strategy=strategy)
        waits = [held("b0", "b", 1, 1, 9.0), workload("a0", "a", 2, 2), workload("b1", "b", 1, 3)]
        engine = admission(objects([first, queue("b", quota(0))]), waits)
        cycles = decided(engine)
        assert [[one.name for one in cycle.admitted] for cycle in cycles if cycle.admitted] == got
        (skipped,) = [message for workload, message in cycles[0].pending if workload.name == "b1"]
        assert skipped == "Workload no longer fits after processing another workload"


def test_what_was_set_aside_comes_back_after_the_period_of_releases() -> None:
    engine = admission(
        objects([queue("a", quota(2), cohort="")]), [held("run", "a", 2, 0), workload("next", "a", 2, 1)], requeue_s=1.0
    )
    assert admitted(engine, 5.0) == []
    engine.finish(engine.workloads["run"], 7.0)
    assert admitted(engine, 7.0) == []
    assert engine.next_return() == 8.0
    assert engine.bring_back(8.0)
    assert admitted(engine, 8.0) == [["next"]]


# Flavors.


def test_a_flavor_on_which_it_would_have_to_preempt_is_passed_over() -> None:
    rules = {"default": FlavorFungibility(), "stop": FlavorFungibility(when_can_preempt="MayStopSearch")}
    for name, flavor in (("default", "g"), ("stop", "f")):
        one = queue(
            "a", quota(2), quota(2, flavor="g"), cohort="", within="LowerPriority", flavor_fungibility=rules[name]
        )
        engine = admission(objects([one]), [held("low", "a", 2, 0), workload("high", "a", 2, 1, 5.0)])
        decided(engine)
        assert engine.assignments(engine.workloads["high"])[0].flavors == {"cpu": flavor}


def test_flavors_are_chosen_by_taints_selectors_and_affinity() -> None:
    flavors = (
        ResourceFlavor("f", {"kind": "spot"}, (Taint("spot", "yes"),)),
        ResourceFlavor("g", {"kind": "plain"}, (Taint("old", effect="PreferNoSchedule"),)),
    )
    setup = objects([queue("a", quota(9), quota(9, flavor="g"), cohort="")], resource_flavors=flavors)
    cpu, anything = {"cpu": 1.0}, (Toleration(operator="Exists"),)
    sets = {
        "plain": PodSet("main", 1, cpu),
        "tolerant": PodSet("main", 1, cpu, tolerations=(Toleration("spot", "Exists"),)),
        "selective": PodSet("main", 1, cpu, node_selector={"kind": "plain", "unknown": "x"}, tolerations=anything),
        "averse": PodSet("main", 1, cpu, affinity=((Requirement("kind", "NotIn", ("spot",)),),), tolerations=anything),
    }
    engine = admission(
        setup, [workload(name, "a", 1, at, pod_sets=(one,)) for at, (name, one) in enumerate(sets.items())]
    )
    decided(engine)
    got = {name: engine.assignments(engine.workloads[name])[0].flavors["cpu"] for name in sets}
    assert got == {"plain": "g", "tolerant": "f", "selective": "g", "averse": "g"}


def test_pod_sets_see_the_usage_of_those_before_them_and_fewer_pods_may_be_admitted() -> None:
    sets = (PodSet("driver", 1, {"cpu": 2.0}), PodSet("workers", 4, {"cpu": 1.0}, min_count=1))
    engine = admission(objects([queue("a", quota(5), cohort="")]), [workload("job", "a", 0, 1, pod_sets=sets)])
    decided(engine)
    assert [one.count for one in engine.assignments(engine.workloads["job"])] == [1, 3]
    alone = (PodSet("workers", 4, {"cpu": 2.0}, min_count=2),)
    engine = admission(objects([queue("a", quota(6), cohort="")]), [workload("job", "a", 0, 1, pod_sets=alone)])
    decided(engine)
    assert [one.count for one in engine.assignments(engine.workloads["job"])] == [3]


# Preemption.


def test_victims_are_those_of_the_lowest_priority_that_got_their_quota_last() -> None:
    setup = objects([queue("a", quota(3), cohort="", within="LowerPriority")])
    runs = [held("old", "a", 1, 5), held("young", "a", 1, 7), held("equal", "a", 1, 9, 5.0)]
    cycles = decided(admission(setup, [*runs, workload("new", "a", 1, 10, 5.0)]))
    assert preempted(cycles) == [("young", "new", "InClusterQueue")]


@pytest.mark.parametrize("fair", [None, ()])
def test_a_search_for_victims_that_fails_leaves_the_usage_as_it_was(
    monkeypatch: pytest.MonkeyPatch, fair: tuple[str, ...] | None
) -> None:
    setup = objects([queue("a", quota(4), within="LowerPriority")], fair_sharing=fair)
    engine = admission(setup, [held("run", "a", 4, 1), workload("new", "a", 4, 10, 5.0)])
    used = list(engine.snapshot.queues["a"].node.usage)

    def fail(*_: object, **__: object) -> bool:
        assert engine.snapshot.queues["a"].node.usage != used
        raise ZeroDivisionError

    monkeypatch.setattr(Preemptor, "_fits", fail)
    with pytest.raises(ZeroDivisionError):
        decided(engine)
    assert used == engine.snapshot.queues["a"].node.usage != [0]


def test_lent_quota_is_reclaimed_from_who_borrows_only() -> None:
    setup = objects([queue("a", quota(2), reclaim="Any"), queue("b", quota(2)), queue("c", quota(2))])
    runs = [held("own", "b", 2, 1), held("borrowed", "b", 2, 2), held("other", "c", 2, 3)]
    cycles = decided(admission(setup, [*runs, workload("new", "a", 2, 10)]))
    assert preempted(cycles) == [("borrowed", "new", "InCohortReclamation")]


def test_who_borrows_preempts_lower_priorities_only_if_allowed() -> None:
    for borrowing, got in (("LowerPriority", [("b0", "new", "InCohortReclaimWhileBorrowing")]), ("Never", [])):
        setup = objects(
            [
                queue("a", quota(1), reclaim="LowerPriority", borrowing=borrowing),
                queue("b", quota(1)),
                queue("c", quota(2)),
            ]
        )
        runs = [held("b0", "b", 3, 1), held("a0", "a", 1, 2, 9.0)]
        assert preempted(decided(admission(setup, [*runs, workload("new", "a", 1, 10, 5.0)]))) == got


def test_two_heads_never_share_a_target() -> None:
    setup = objects([queue("a", quota(1), reclaim="Any"), queue("b", quota(1), reclaim="Any"), queue("c", quota(0))])
    engine = admission(setup, [held("run", "c", 2, 0), workload("a0", "a", 1, 1), workload("b0", "b", 1, 2)])
    cycles = decided(engine)
    assert preempted(cycles) == [("run", "a0", "InCohortReclamation")]
    assert [message for _, message in cycles[0].pending if "overlapping" in message]
    assert sorted(name for cycle in cycles for name in [one.name for one in cycle.admitted]) == ["a0", "b0"]


def test_a_preempting_workload_stays_first_of_its_queue() -> None:  # kueue#7101
    setup = objects([queue("a", quota(2), cohort="", within="LowerPriority")])
    engine = admission(setup, [held("run", "a", 2, 0), workload("first", "a", 2, 1, 5.0)])
    first = engine.cycle(10.0)
    assert first is not None
    assert preempted([first]) == [("run", "first", "InClusterQueue")]
    engine.submit(workload("urgent", "a", 2, 2, 9.0))
    second = engine.cycle(10.0)
    assert second is not None
    assert [one.name for one in second.admitted] == ["first"]


def test_a_preempted_workload_waits_at_its_old_place() -> None:
    setup = objects([queue("a", quota(2), cohort="", within="LowerPriority")])
    engine = admission(setup, [held("run", "a", 2, 0), workload("later", "a", 2, 5), workload("high", "a", 2, 9, 5.0)])
    decided(engine, 10.0)
    engine.finish(engine.workloads["high"], 20.0)
    assert admitted(engine, 20.0) == [["run"]]


def test_a_circle_of_preemptions_ends_with_its_names() -> None:  # kueue#3779
    sharing = AdmissionFairSharing(usage_half_life_s=0.0, usage_sampling_interval_s=300.0)
    locals_ = (
        LocalQueue("low", "a", consumed_resources={"cpu": 0.0}),
        LocalQueue("high", "a", consumed_resources={"cpu": 9.0}),
    )
    setup = objects(
        [queue("a", quota(2), cohort="", within="LowerPriority", usage_based=True)],
        local_queues=locals_, admission_fair_sharing=sharing,
    )  # fmt: skip
    run = Workload(
        "run",
        "low",
        0,
        0,
        "run",
        (PodSet("main", 1, {"cpu": 2.0}),),
        "a",
        (PodSetAssignment("main", {"cpu": "f"}, {"cpu": 2.0}, 1),),
        0.0,
    )
    engine = admission(setup, [run, workload("new", "high", 2, 1, 5.0)])
    with pytest.raises(EndlessPreemption, match="new preempts run"):
        decided(engine)


def test_a_preemptor_that_borrows_goes_before_its_victim_comes_back() -> None:  # kueue#2821
    first = queue("a", quota(1), reclaim="Any", borrowing="LowerPriority")
    setup = objects([first, queue("b", quota(0)), queue("c", quota(2))])
    runs = [held("a0", "a", 1, 1, 9.0), held("low", "b", 2, 2)]
    cycles = decided(admission(setup, [*runs, workload("new", "a", 2, 10, 5.0)]))
    assert preempted(cycles) == [("low", "new", "InCohortReclaimWhileBorrowing")]
    assert [one.name for cycle in cycles for one in cycle.admitted] == ["new"]


# Fair sharing.


def test_fair_sharing_takes_from_the_largest_share_and_stops_at_equality() -> None:
    fair = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
    setup = objects(
        [queue("a", quota(0), reclaim="Any"), queue("b", quota(0)), queue("c", quota(6), cohort="all")],
        fair_sharing=fair,
    )
    runs = [held(f"b{at}", "b", 1, at) for at in range(6)]
    engine = admission(setup, [*runs, *[workload(f"a{at}", "a", 1, 10 + at) for at in range(6)]])
    cycles = decided(engine)
    assert {reason for _, _, reason in preempted(cycles)} == {"InCohortFairSharing"}
    holders = [one.cluster_queue for one in engine.workloads.values() if one.where == "admitted"]
    assert (holders.count("a"), holders.count("b")) == (3, 3)


def test_a_queue_without_cohort_that_lacks_candidates_waits() -> None:  # kueue#12541; Kueue v0.17.0 crashes
    both = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
    setup = objects([queue("a", quota(4), cohort="", within="LowerPriority")], fair_sharing=both)
    engine = admission(setup, [held("low", "a", 1, 0), held("high", "a", 3, 1, 9.0), workload("new", "a", 2, 5, 5.0)])
    assert preempted(decided(engine)) == []


def test_a_spared_target_of_fair_sharing_leads_to_a_circle_that_ends_with_its_names() -> None:  # kueue#14543
    both = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")

    def started(within: str) -> Admission:
        queues = [queue(name, quota(5), within=within, reclaim="Any") for name in ("a", "b")]
        runs = [held("base", "a", 3, 50), held("lender", "b", 6.5, 51)]
        return admission(objects(queues, fair_sharing=both), [*runs, workload("new", "a", 4, 10, 10.0)])

    # base is taken first, which lowers the share of its queue, so that lender may be taken; then base is spared
    engine = started("LowerPriority")
    first, second = engine.cycle(100.0), engine.cycle(100.0)
    assert first is not None
    assert second is not None
    assert preempted([first]) == [("lender", "new", "InCohortFairSharing")]
    assert [one.name for one in second.admitted] == ["lender"]  # the victim, not its preemptor
    with pytest.raises(EndlessPreemption, match="new preempts lender"):
        decided(engine)
    assert preempted(decided(started("Never"))) == []


# Stop policies.


def test_stopped_queues_admit_nothing_keep_their_quota_and_drain() -> None:
    for stop, drained in (("Hold", []), ("HoldAndDrain", ["run"])):
        setup = objects([queue("a", quota(2), stop_policy=stop), queue("b", quota(1), reclaim="Any")])
        engine = admission(setup, [held("run", "a", 3, 0), workload("a1", "a", 1, 1), workload("b1", "b", 1, 2)])
        assert [one.name for one in engine.drain(50.0)] == drained
        assert admitted(engine) == ([["b1"]] if drained else [])


# Topology.


def racks(*rooms: float) -> tuple[TopologyNode, ...]:
    return tuple(
        [
            TopologyNode(
                f"n{at}", {"rack": f"r{at // 2}", "kubernetes.io/hostname": f"n{at}"}, {"cpu": room, "pods": 110.0}
            )
            for at, room in enumerate(rooms)
        ]
    )


def placed(request: TopologyRequest | None, count: int, *rooms: float) -> dict[str, int] | str:
    setup = objects(
        [queue("a", quota(99), cohort="")],
        resource_flavors=(ResourceFlavor("f", topology_name="t"),),
        topologies=(KueueTopology("t", ("rack", "kubernetes.io/hostname")),),
        nodes=racks(*rooms),
    )
    engine = admission(
        setup, [workload("job", "a", 0, 1, pod_sets=(PodSet("main", count, {"cpu": 1.0}, topology=request),))]
    )
    decided(engine)
    job = engine.workloads["job"]
    if job.where != "admitted":
        return job.message or ""
    (given,) = engine.assignments(job)
    return {address[-1]: pods for address, pods in given.domains or ()}


def test_a_required_level_is_best_fit_and_a_preferred_one_goes_up() -> None:
    assert placed(TopologyRequest(required="rack"), 4, 4, 4, 2, 3) == {"n2": 1, "n3": 3}
    assert placed(TopologyRequest(required="rack"), 9, 4, 4, 2, 3) == (
        'couldn\'t assign flavors to pod set main: topology "t" allows to fit only 8 out of 9 pod(s)'
    )
    assert placed(TopologyRequest(preferred="rack"), 9, 4, 4, 2, 3) == {"n0": 4, "n1": 4, "n2": 1}


def test_no_request_fills_the_smallest_rests_and_slices_stay_in_their_domain() -> None:
    assert placed(None, 2, 4, 4, 2, 3) == {"n2": 2}
    assert placed(TopologyRequest(unconstrained=True), 12, 4, 4, 2, 3) == {"n0": 4, "n1": 3, "n2": 2, "n3": 3}
    slices = TopologyRequest(slice_level="kubernetes.io/hostname", slice_size=2)
    assert placed(slices, 6, 4, 4, 2, 3) == {"n0": 4, "n1": 2}


def test_a_queue_with_a_plain_flavor_too_places_by_topology_only_what_asks_for_it() -> None:
    """Without a request a workload goes to the plain flavor, and where all flavors have one by topology."""
    flavors = (ResourceFlavor("f", topology_name="t"), ResourceFlavor("g"))
    setup = objects(
        [queue("a", quota(9), quota(9, flavor="g"), cohort="")],
        resource_flavors=flavors,
        topologies=(KueueTopology("t", ("rack", "kubernetes.io/hostname")),),
        nodes=racks(4, 4),
    )
    asks = TopologyRequest(required="rack")
    sets = {"plain": PodSet("main", 1, {"cpu": 1.0}), "near": PodSet("main", 1, {"cpu": 1.0}, topology=asks)}
    engine = admission(setup, [workload(name, "a", 1, 1, pod_sets=(one,)) for name, one in sets.items()])
    decided(engine)
    assert {name: engine.assignments(engine.workloads[name])[0].flavors["cpu"] for name in sets} == {
        "plain": "g",
        "near": "f",
    }


def test_topology_usage_counts_once_for_each_resource_until_the_next_cycle() -> None:
    asked = {"cpu": 2.0, "nvidia.com/gpu": 2.0}
    quotas = FlavorQuotas("f", dict.fromkeys(asked, ResourceQuota(9)))
    node = TopologyNode("n", {"kubernetes.io/hostname": "n"}, {"cpu": 4.0, "nvidia.com/gpu": 4.0, "pods": 110.0})
    setup = objects(
        [queue("a", quotas), queue("b", quotas)],
        resource_flavors=(ResourceFlavor("f", topology_name="t"),),
        topologies=(KueueTopology("t", ("kubernetes.io/hostname",)),),
        nodes=(node,),
    )
    pods = (PodSet("main", 1, asked),)
    engine = admission(setup, [workload("a0", "a", 0, 1, pod_sets=pods), workload("b0", "b", 0, 2, pod_sets=pods)])
    assert admitted(engine) == [["a0"], ["b0"]]  # both would fit at once


# The policy.


def played(jobs: Sequence[Job], spec: str, cluster: Cluster, *queues: QueueNode, **settings: Any) -> Schedule:
    trees = QueueTree(queues, **settings) if queues or settings else None
    return ClusterScenario(cluster, list(jobs), queues=trees).kernel(0).run(POLICIES.create(spec))


def starts(schedule: Schedule) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    for row in schedule.log:
        if row.kind == Kind.STARTED:
            times.setdefault(schedule.jobs[row.job].id, []).append(row.time_s)
    return times


def job(name: str, queue: str, at_s: float, seconds: float, gpus: int = 1, priority: float = 0) -> Job:
    return Job.single(name, Task("t", seconds, gpus=gpus), at_s, priority=priority, partition=queue)


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


def test_a_workload_beyond_its_nominal_quota_stops_nobody_in_its_own_queue() -> None:
    queues = (QueueNode("a", quota={"gpus": 2}, within="lower-priority"), QueueNode("b", quota={"gpus": 6}))
    jobs = [job("low", "a", 0, 100, 8), job("high", "a", 2, 5, 8, 5)]  # both need the 6 GPUs that b does not use
    schedule = played(jobs, "kueue", GPUS, QueueNode("ab", children=queues))
    assert starts(schedule)["high"] == [100]


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
    assert starts(schedule) == {"many": [0, 0, 10, 10, 20], "other": [20]}


def test_admission_checks_hold_quota_and_delay_the_start() -> None:
    queue = QueueNode("q", quota={"gpus": 2})
    schedule = played([job("a", "q", 0, 5, 2), job("b", "q", 0, 5, 2)], "kueue[checks_s=3]", GPUS, queue)
    assert starts(schedule) == {"a": [3], "b": [11]}


def test_released_quota_is_offered_after_the_batch_period() -> None:
    queue = QueueNode("q", quota={"gpus": 2})
    schedule = played([job("a", "q", 0, 5, 2), job("b", "q", 0, 5, 2)], "kueue[requeue_s=1]", GPUS, queue)
    assert starts(schedule) == {"a": [0], "b": [6]}


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
    assert starts(played(jobs, "kueue", GPUS, kueue=setup))["whole"] == [9]
    assert starts(played(jobs, "kueue", GPUS, kueue=setup))["small"] == [2]


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
    assert starts(schedule)["wide"][0] == 9.0  # the racks are full, or have one node

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
