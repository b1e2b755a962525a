"""kube-scheduler's plugins on small states, worked out by hand from the documentation of Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.log_reading import starts

from dagsim.errors import ConfigError, ModelError
from dagsim.families.kubernetes.kube.cycle import PodCycle, WaitingPod
from dagsim.families.kubernetes.kube.node_columns import BoundPod, NodeColumns
from dagsim.families.kubernetes.kube.objects import NodeObject, Pod
from dagsim.families.kubernetes.kube.plugins import scores
from dagsim.families.kubernetes.kube.profile import Profile, profile_of, read_profile
from dagsim.model import Cluster, Job, Kind, Node, NodeOutage, QueueTree, Task, canonical_json
from dagsim.model.gpu import GpuType
from dagsim.model.log import Schedule
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario

GPU = GpuType("G", 1.0, 16, 100, 100, 10)


def node(name: str = "n", cpu: str = "8", memory: str = "16Gi", labels: Any = None, **rest: Any) -> NodeObject:
    allocatable = {"cpu": cpu, "memory": memory} | rest.pop("allocatable", {})
    spec = {key: rest.pop(key) for key in ("taints", "unschedulable") if key in rest}
    return NodeObject(
        name, {"metadata": {"labels": labels or {}}, "spec": spec, "status": {"allocatable": allocatable} | rest}
    )


def pod(cpu: str = "1", memory: str = "1Gi", labels: Any = None, resolved: Any = None, **spec: Any) -> Pod:
    requests = {"cpu": cpu, "memory": memory} | spec.pop("requests", {})
    container = {"image": "registry.example/main:v1", "resources": {"requests": requests}}
    return Pod(
        {
            "metadata": {"labels": labels or {}},
            "spec": {"containers": [container]} | spec,
            "resolved": resolved or {},
        }
    )


def cycle(*nodes: NodeObject, profile: Profile | None = None) -> PodCycle:
    return PodCycle(profile or Profile(), NodeColumns(nodes))


def feasible(one: PodCycle, asked: Pod, priority: float = 0) -> list[int]:
    return one.feasible(WaitingPod("asked", asked, priority)).tolist()


def run(one: PodCycle, where: int, name: str, running: Pod, priority: float = 0, start_s: float = 0) -> None:
    one.snapshot.add(where, BoundPod(name, running, priority, start_s))


def score(one: PodCycle, asked: Pod, plugin: str) -> list[int]:
    nodes = np.arange(len(one.snapshot.nodes))
    return scores(one.profile, one.snapshot, asked, nodes)[plugin].tolist()


def profile(**parts: Any) -> Profile:
    return profile_of({"profiles": [parts]}, "file")


def strategy(**stated: Any) -> Profile:
    return profile(pluginConfig=[{"name": "NodeResourcesFit", "args": {"scoringStrategy": stated}}])


def test_least_and_most_allocated_are_means_rounded_down_at_each_step() -> None:
    asked = pod("2", "1Gi")
    assert score(cycle(node()), asked, "NodeResourcesFit") == [84]  # (75 + 93) / 2
    assert score(cycle(node(), profile=strategy(type="MostAllocated")), asked, "NodeResourcesFit") == [
        15
    ]  # (25 + 6) / 2


def test_a_ratio_follows_its_shape_and_leaves_out_what_scores_nothing() -> None:
    shape = [{"utilization": 0, "score": 0}, {"utilization": 50, "score": 10}, {"utilization": 100, "score": 0}]
    resources = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 3}]
    ratio = strategy(type="RequestedToCapacityRatio", resources=resources, requestedToCapacityRatio={"shape": shape})
    # cpu 25%: 50; memory 62%: 100 - 24 = 76; (50 + 3 x 76) / 4 = 69.5, rounded to the nearest
    assert score(cycle(node(), profile=ratio), pod("2", "10Gi"), "NodeResourcesFit") == [70]
    assert score(cycle(node(), profile=ratio), pod("2", "16Gi"), "NodeResourcesFit") == [50]  # memory counts no more


def test_balance_is_half_the_distance_of_two_fractions_and_the_deviation_of_three() -> None:
    assert score(cycle(node()), pod("6", "4Gi"), "NodeResourcesBalancedAllocation") == [75]  # .75 and .25
    resources = [{"name": name} for name in ("cpu", "memory", "nvidia.com/gpu")]
    three = profile(pluginConfig=[{"name": "NodeResourcesBalancedAllocation", "args": {"resources": resources}}])
    asked = pod("6", "4Gi", requests={"nvidia.com/gpu": "2"})
    one = cycle(node(allocatable={"nvidia.com/gpu": "4"}), profile=three)
    assert score(one, asked, "NodeResourcesBalancedAllocation") == [79]  # deviation of .75, .25 and .5 is .204
    assert score(cycle(node()), Pod({"spec": {"containers": [{}]}}), "NodeResourcesBalancedAllocation") == [0]


def test_init_containers_need_what_the_sidecars_before_them_hold_too() -> None:
    containers = [{"resources": {"requests": {"cpu": "100m"}}}]
    sidecar = {"restartPolicy": "Always", "resources": {"requests": {"cpu": "300m"}}}
    first = {"resources": {"requests": {"cpu": "500m"}}}
    after = Pod({"spec": {"containers": containers, "initContainers": [first, sidecar]}})
    before = Pod({"spec": {"containers": containers, "initContainers": [sidecar, first]}})
    assert (after.requests["cpu"], before.requests["cpu"]) == (500, 800)
    own = Pod(
        {
            "spec": {
                "containers": containers,
                "resources": {"limits": {"cpu": "2", "memory": ".5Gi"}},
                "overhead": {"cpu": "250m"},
            }
        }
    )
    assert own.requests == {"cpu": 350, "memory": 1 << 29}  # the containers' cpu, the pod's limit of memory
    assert own.scored_requests == {"cpu": 350, "memory": 200 << 20}  # its own resources do not count when it arrives
    assert own.nonzero == (350, 1 << 29)


@pytest.mark.parametrize(
    ("spec", "nodes"),
    [
        ({}, [0]),
        ({"tolerations": [{"key": "team", "operator": "Exists"}]}, [0, 1]),
        ({"tolerations": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}, [0, 1]),
        ({"tolerations": [{"key": "team", "value": "b"}]}, [0]),
        ({"tolerations": [{"operator": "Exists"}]}, [0, 1, 2]),
        ({"nodeSelector": {"disk": "ssd"}}, []),
    ],
)
def test_taints_and_cordons_keep_away_who_does_not_tolerate_them(spec: Any, nodes: list[int]) -> None:
    taints = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    one = cycle(node("a"), node("b", taints=taints, labels={"disk": "ssd"}), node("c", unschedulable=True))
    assert feasible(one, pod(**spec)) == nodes


def test_mild_taints_and_preferred_affinity_only_score() -> None:
    mild = [{"key": key, "effect": "PreferNoSchedule"} for key in ("x", "y")]
    one = cycle(node("a"), node("b", taints=mild[:1]), node("c", taints=mild))
    assert score(one, pod(), "TaintToleration") == [300, 150, 0]
    rules = [{"key": "gen", "operator": "Gt", "values": ["3"]}]
    preferred = [{"weight": 40, "preference": {"matchExpressions": rules}}]
    asked = pod(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})
    assert score(cycle(node("a", labels={"gen": "4"}), node("b", labels={"gen": "3"})), asked, "NodeAffinity") == [
        200,
        0,
    ]


def terms(kind: str, key: str, **labels: str) -> Any:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_affinity_follows_pods_by_domain_and_the_first_of_a_group_may_go_anywhere() -> None:
    racks = [node(name, labels={"rack": rack}) for name, rack in (("a", "r1"), ("b", "r1"), ("c", "r2"))]
    one = cycle(*racks, node("d"))
    own = pod(labels={"app": "db"}, affinity=terms("podAffinity", "rack", app="db"))
    assert feasible(one, own) == [0, 1, 2]  # a node without the label is in no domain
    run(one, 2, "first", pod(labels={"app": "db"}))
    assert feasible(one, own) == [2]
    assert feasible(one, pod(affinity=terms("podAntiAffinity", "rack", app="db"))) == [0, 1, 3]
    run(one, 0, "shy", pod(affinity=terms("podAntiAffinity", "rack", app="web")))
    assert feasible(one, pod(labels={"app": "web"})) == [2, 3]  # those there keep it away
    assert score(one, own, "InterPodAffinity") == [0, 0, 0, 0]
    one.snapshot.add(1, BoundPod("friend", own, 0, 0))
    assert score(one, pod(labels={"app": "db"}), "InterPodAffinity") == [200, 200, 0, 0]


def test_spreading_keeps_the_skew_and_counts_too_few_domains_as_an_empty_one() -> None:
    zones = [node(name, labels={"zone": zone}) for name, zone in (("a", "z1"), ("b", "z2"))]
    constraint = {
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }  # fmt: skip
    asked = pod(labels={"app": "x"}, topologySpreadConstraints=[constraint])
    one = cycle(*zones, node("c"))
    run(one, 0, "x1", pod(labels={"app": "x"}))
    assert feasible(one, asked) == [1]
    run(one, 1, "x2", pod(labels={"app": "x"}))
    assert feasible(one, asked) == [0, 1]
    wide = pod(labels={"app": "x"}, topologySpreadConstraints=[constraint | {"minDomains": 3}])
    assert feasible(one, wide) == []


def test_pods_of_a_service_spread_by_default_and_those_that_leave_do_not_count() -> None:
    one = cycle(node("a"), node("b"))
    served = pod(labels={"app": "s"}, resolved={"services": {"app": "s"}})
    run(one, 0, "s1", served)
    # ln 4 + 2 = 3.4 and 2, rounded to 3 and 2: 100 x (3 + 2 - 3) / 3 and 100, times 2
    assert score(one, served, "PodTopologySpread") == [132, 200]
    one.snapshot.add(0, one.snapshot.remove(0, "s1")._replace(leaving=True))
    assert score(one, served, "PodTopologySpread") == [200, 200]
    assert score(one, pod(), "PodTopologySpread") == [0, 0]


def test_images_ports_and_numbers_of_pods_count() -> None:
    images = [{"names": ["registry.example/main:v1"], "sizeBytes": 1000 << 20}]
    one = cycle(node("a", images=images), node("b"), node("c", allocatable={"pods": "1"}))
    assert score(one, pod(), "ImageLocality") == [31, 0, 0]  # a third of 1000 MB, of 23 to 1000
    run(one, 2, "full", pod())
    assert feasible(one, pod()) == [0, 1]
    port = {"resources": {}, "ports": [{"hostPort": 80, "containerPort": 80}]}
    run(one, 0, "web", Pod({"spec": {"containers": [port]}}))
    assert feasible(one, Pod({"spec": {"containers": [port]}})) == [1]


def test_a_resource_that_no_node_has_fits_nowhere() -> None:
    asked = pod(requests={"example.com/fpga": "1"})
    assert feasible(cycle(node()), asked) == []
    assert feasible(cycle(node(allocatable={"example.com/fpga": "1"})), asked) == [0]
    assert feasible(cycle(node(allocatable={"hugepages-2Mi": "4Mi"})), pod(requests={"hugepages-2Mi": "8Mi"})) == []


def preempted(one: PodCycle, asked: Pod, priority: float) -> tuple[int, list[str]] | None:
    found = one.candidates(WaitingPod("asked", asked, priority))
    return (found[0].node, [bound.key for bound in found[0].pods]) if found else None


def test_preemption_harms_the_least_important_and_as_few_as_possible() -> None:
    one = cycle(node("a"), node("b"))
    run(one, 0, "old", pod("4"), 10, 1)
    run(one, 0, "new", pod("4"), 10, 2)
    run(one, 1, "low", pod("8"), 20)
    assert preempted(one, pod("3"), 100) == (0, ["new"])
    assert preempted(one, pod("8"), 15) == (0, ["old", "new"])
    assert preempted(one, pod("8"), 10) is None
    assert not one.may_preempt(WaitingPod("asked", pod(preemptionPolicy="Never"), 100))


def test_of_equally_important_victims_the_sum_decides_with_each_priority_counted_from_the_lowest() -> None:
    """Kubernetes adds 2^31 to each priority, so that fewer pods are better unless theirs is very low."""
    for low, node_of_victims in ((-1_500_000_000, 0), (-1_000_000_000, 1)):
        one = cycle(node("a"), node("b"))
        for name, priority in (("high", 0), ("low", low), ("lower", low)):
            run(one, 0, name, pod("2"), priority)
        run(one, 1, "high", pod("3"), 0)
        run(one, 1, "plain", pod("3"), 0)
        got = preempted(one, pod("8"), 100)
        assert got is not None
        assert got[0] == node_of_victims


def test_budgets_are_violated_last() -> None:
    one = cycle(node("a"), node("b"))
    guarded = {"budgets": {"default/db": 0}}
    run(one, 0, "db", pod("8", resolved=guarded), 0)
    run(one, 1, "job", pod("8"), 50)
    assert preempted(one, pod("8"), 100) == (1, ["job"])  # although db has the lower priority


def test_room_that_is_promised_is_kept_from_equals_and_not_from_the_more_important() -> None:
    one = cycle(node("a"))
    one.snapshot.nominate(0, BoundPod("other", pod("6"), 10, 0))
    assert feasible(one, pod("4"), 10) == []
    assert feasible(one, pod("4"), 11) == [0]
    assert feasible(one, pod("2"), 10) == [0]


def test_pods_on_trial_are_gone_at_the_end_whatever_happens() -> None:
    one = cycle(node("a"))
    run(one, 0, "stays", pod("2"))
    with suppress(ZeroDivisionError), one.snapshot.trial() as add:
        add(0, BoundPod("tried", pod("6"), 0, 0))
        assert feasible(one, pod("1")) == []
        raise ZeroDivisionError
    assert list(one.snapshot.pods[0]) == ["stays"]
    assert feasible(one, pod("6")) == [0]


def test_a_profile_is_read_with_its_weights_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    file = tmp_path / "profile.yaml"
    document = {
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 30,
        "profiles": [
            {
                "schedulerName": "packing",
                "plugins": {
                    "score": {
                        "disabled": [{"name": "NodeResourcesBalancedAllocation"}],
                        "enabled": [{"name": "NodeResourcesFit", "weight": 7}, {"name": "Coscheduling"}],
                    },
                    "multiPoint": {"disabled": [{"name": "ImageLocality"}]},
                },
            }
        ],
    }
    file.write_text(json.dumps(document))
    read = read_profile(file)
    assert dict(read.weights)["NodeResourcesFit"] == 7
    assert not dict(read.weights).keys() & {"NodeResourcesBalancedAllocation", "ImageLocality"}
    assert read.unmodelled == ("percentageOfNodesToScore: 30", "plugin Coscheduling (score)")
    with pytest.raises(ConfigError, match="no profile 'other'; known profiles: 'packing'"):
        read_profile(file, "other")


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (
            {"type": "Tightest"},
            r"pluginConfig\[0\].args.scoringStrategy.type is 'Tightest'; it must be one of LeastAll",
        ),
        ({"type": "RequestedToCapacityRatio"}, "shape is \\[\\]; it must be at least one point"),
        ({"resources": [{"name": "cpu", "weight": 0}]}, "weight is 0; it must be a whole number from 1 to 100"),
    ],
)
def test_a_wrong_setting_is_named(stated: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        strategy(**stated)


# At simulated time.


def played(jobs: Sequence[Job], spec: str, *nodes: Node, **rest: Any) -> Schedule:
    scenario = ClusterScenario(Cluster(nodes), list(jobs), **rest)
    return scenario.kernel(0).run(POLICIES.create(spec))


def task(seconds: float, cpus: float = 1, gpus: float = 0, **manifest: Any) -> Task:
    requests = {"cpu": str(cpus)} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    spec = {"containers": [{"resources": {"requests": requests}}]} | manifest.pop("spec", {})
    text = canonical_json({"spec": spec} | manifest)
    return Task("t", seconds, gpus=gpus, cpus=cpus, manifest=text)


def test_a_pod_waits_for_a_node_that_its_manifest_allows() -> None:
    described = canonical_json(
        {"metadata": {"labels": {"pool": "b"}}, "status": {"allocatable": {"nvidia.com/gpu": "4"}}}
    )
    nodes = [Node("a", GPU, 4, 8, 16), Node("b", GPU, 4, 8, 16, manifest=described)]
    nodes[0] = Node("a", GPU, 4, 8, 16, manifest=described.replace('"b"', '"a"'))
    jobs = [
        Job.single("full", task(10, 8, 1, spec={"nodeSelector": {"pool": "b"}}), 0.0),
        Job.single("picky", task(5, 8, 1, spec={"nodeSelector": {"pool": "b"}}), 1.0),
        Job.single("easy", task(5, 4, 1), 2.0),
    ]
    assert starts(played(jobs, "kube-default", *nodes)) == {"full": [(0, 1)], "picky": [(10, 1)], "easy": [(2, 0)]}


def test_a_pod_that_needs_another_starts_when_that_one_has() -> None:
    labels = {"labels": {"app": "db"}}
    near = terms("podAffinity", "kubernetes.io/hostname", app="db")
    jobs = [
        Job.single("client", task(5, spec={"affinity": near}), 0.0),
        Job.single("db", task(5, metadata=labels), 3.0),
    ]
    assert starts(played(jobs, "kube-default", Node("a", cpus=8), Node("b", cpus=8))) == {
        "db": [(3, 0)],
        "client": [(3, 0)],
    }


def test_a_pod_starts_elsewhere_in_a_rack_when_one_that_kept_it_away_ends() -> None:
    labels = canonical_json({"metadata": {"labels": {"rack": "r"}}})
    away = {"affinity": terms("podAntiAffinity", "rack", app="web")}
    jobs = [
        Job.single("shy", task(10, 8, spec=away), 0.0),
        Job.single("web", task(5, 2, metadata={"labels": {"app": "web"}}), 1.0),
        Job.single("next", task(5, 8, spec={"tolerations": []}), 2.0, priority=5),
    ]
    got = starts(played(jobs, "kube-default[preempt=false]", Node("a", cpus=8, manifest=labels),
                        Node("b", cpus=2, manifest=labels)))  # fmt: skip
    assert got == {"shy": [(0, 0)], "next": [(10, 0)], "web": [(10, 1)]}


@pytest.mark.parametrize(
    ("waits", "urgent_s", "again_s"), [("", 2, 6), (",restart_s=7", 2, 9), (",grace_s=3,restart_s=1", 5, 9)]
)
def test_a_victim_comes_back_at_the_end_of_its_priority(waits: str, urgent_s: float, again_s: float) -> None:
    jobs = [
        Job.single("low", task(10, 8), 0.0),
        Job.single("later", task(1, 8), 1.0),
        Job.single("urgent", task(3, 8), 2.0, priority=10),
    ]
    got = starts(played(jobs, f"kube-default[scoring=least{waits}]", Node("a", cpus=8)))
    assert got["urgent"] == [(urgent_s, 0)]
    assert got["later"] == [(urgent_s + 3, 0)]  # it came before the victim came back
    assert got["low"] == [(0, 0), (again_s, 0)]


def test_pods_that_never_preempt_wait() -> None:
    jobs = [
        Job.single("low", task(10, 8), 0.0),
        Job.single("polite", task(3, 8, spec={"preemptionPolicy": "Never"}), 2.0, priority=10),
    ]
    assert starts(played(jobs, "kube-default", Node("a", cpus=8)))["polite"] == [(10, 0)]


def test_a_pod_that_no_node_will_ever_take_is_cancelled_when_nothing_else_happens() -> None:
    jobs = [Job.single("lost", task(2, spec={"nodeSelector": {"pool": "none"}}), 0.0), Job.single("p", task(2), 5.0)]
    schedule = played(jobs, "kube-default", Node("a", cpus=8, manifest=canonical_json({"spec": {}})))
    rows = [(row.kind, row.time_s) for row in schedule.log if row.job == 0]
    assert rows == [(Kind.ARRIVED, 0.0), (Kind.REJECTED, 7.0)]


def test_the_nodes_that_a_pod_may_use_explain_its_wait() -> None:
    policy = POLICIES.create("kube-default")
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    tainted = canonical_json({"spec": {"taints": [taint]}})
    nodes = Node("a", cpus=8, manifest=tainted), Node("b", cpus=8)
    jobs = [Job.single("p", task(2), 0.0), Job.single("picky", task(2, spec={"nodeSelector": {"x": "y"}}), 0.0)]
    view = next(ClusterScenario(Cluster(nodes[:1]), jobs).kernel(0).decisions())
    rules, (plain, picky) = policy.wait_rules(view), view.ready  # type: ignore[attr-defined]
    assert (rules.nodes(plain), list(rules.never(plain))) == (0, ["no node: 1 node(s) had untolerated taint(s)"])
    view = next(ClusterScenario(Cluster(nodes), jobs).kernel(0).decisions())
    plain, picky = view.ready
    rules = policy.wait_rules(view)  # type: ignore[attr-defined]
    assert (rules.nodes(plain), rules.nodes(picky), list(rules.never(plain))) == (2, 2, [])


def test_a_cordoned_node_takes_no_pod_until_it_is_back() -> None:
    queues = QueueTree(outages=(NodeOutage(("a",), 1.0, 6.0),))
    jobs = [Job.single(f"p{at}", task(2, 8), float(at)) for at in range(2)]
    assert starts(played(jobs, "kube-default", Node("a", cpus=8), queues=queues)) == {"p0": [(0, 0)], "p1": [(6, 0)]}


def pools(*names: str) -> list[Node]:
    return [Node(name, cpus=8, manifest=canonical_json({"metadata": {"labels": {"pool": name}}})) for name in names]


@pytest.mark.parametrize(("small_s", "order"), [(5, ["picky", "early"]), (1, ["early", "picky"])])
def test_a_pod_that_is_tried_again_goes_behind_one_that_is_not(small_s: float, order: list[str]) -> None:
    # picky may only use b, which is down, so that the end of small does not concern it
    jobs = [
        Job.single("long", task(100, 7, spec={"nodeSelector": {"pool": "a"}}), 0.0),
        Job.single("small", task(small_s, 1), 0.0),
        Job.single("early", task(3, 8), 1.5),
        Job.single("picky", task(3, 8, spec={"nodeSelector": {"pool": "b"}}), 2.0),
    ]
    queues = QueueTree(outages=(NodeOutage(("b",), 0.0, 10.0, "down"),))
    got = starts(played(jobs, "kube-default", *pools("a", "b"), queues=queues))
    assert [got[name] for name in order] == [[(10, 1)], [(13, 1)]]


@pytest.mark.parametrize(("lost", "order"), [(2, ["second", "first"]), (1, ["first", "second"])])
def test_the_first_pod_is_overtaken_when_a_failed_node_loses_several_pods(lost: int, order: list[str]) -> None:
    on = {name: {"nodeSelector": {"pool": name}} for name in "ab"}
    jobs = [
        Job.single("full", task(10, 8, spec=on["b"]), 0.0),
        *[Job.single(f"lost{number}", task(100, 1, spec=on["a"]), 0.0) for number in range(lost)],
        Job.single("first", task(3, 8, spec=on["b"]), 1.0),
        Job.single("second", task(3, 8, spec=on["b"]), 2.0),
    ]
    queues = QueueTree(outages=(NodeOutage(("a",), 5.0, 20.0, "down"),))
    got = starts(played(jobs, "kube-default", *pools("a", "b"), queues=queues))
    assert [got[name] for name in order] == [[(10, 1)], [(13, 1)]]


def test_pods_that_are_lost_at_once_come_back_in_the_order_of_their_creation() -> None:
    jobs = [Job.single("again", task(20, 8), 0.0), Job.single("once", task(20, 8), 1.0)]
    times = [(("a",), 2.0, 3.0), (("a", "b"), 5.0, 6.0), (("b",), 6.0, 99.0)]
    queues = QueueTree(outages=tuple(NodeOutage(nodes, start_s, end_s, "down") for nodes, start_s, end_s in times))
    got = starts(played(jobs, "kube-default", *pools("a", "b"), queues=queues))
    assert got == {"again": [(0, 0), (3, 0), (26, 0)], "once": [(1, 1), (6, 0)]}


def test_a_fork_knows_when_pods_were_last_tried() -> None:
    on = {name: {"nodeSelector": {"pool": name}} for name in "ab"}
    jobs = [
        Job.single("full", task(10, 8, spec=on["b"]), 0.0),
        *[Job.single(f"lost{number}", task(100, 1, spec=on["a"]), 0.0) for number in range(2)],
        Job.single("first", task(3, 8, spec=on["b"]), 1.0),
        Job.single("second", task(3, 8, spec=on["b"]), 2.0),
    ]
    queues = QueueTree(outages=(NodeOutage(("a",), 5.0, 20.0, "down"),))
    kernel = ClusterScenario(Cluster(tuple(pools("a", "b"))), jobs, queues=queues).kernel(0)
    policy = POLICIES.create("kube-default")
    kernel.run(policy, 7.0)
    fork = kernel.fork()
    fork.run(policy)
    assert starts(fork.schedule)["second"] == [(10, 1)]


def test_a_fork_decides_as_the_original() -> None:
    jobs = [Job.single(f"p{at}", task(5 + at % 4, 1 + at % 5), at / 3, priority=at % 3) for at in range(40)]
    scenario = ClusterScenario(Cluster((Node("a", cpus=8), Node("b", cpus=6))), jobs)
    spec = "kube-default[grace_s=2,restart_s=1]"
    whole = scenario.kernel(0)
    whole.run(POLICIES.create(spec))
    first, policy = scenario.kernel(0), POLICIES.create(spec)
    first.run(policy, 6.0)
    fork = first.fork()
    fork.run(policy)
    assert list(fork.schedule.log) == list(whole.schedule.log)


def test_a_manifest_that_is_none_is_named() -> None:
    broken = Task(
        "t", 1.0, manifest=canonical_json({"spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}]}})
    )
    with pytest.raises(ModelError, match="does not describe a pod"):
        played([Job.single("j", broken)], "kube-default", Node("a", GPU, 4))
