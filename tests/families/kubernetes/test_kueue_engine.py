"""Kueue's engine, on small states of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

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
from dagsim.families.kubernetes.kueue.quota import QuotaForest, QuotaNode
from dagsim.families.kubernetes.kueue.victims import Preemptor


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
