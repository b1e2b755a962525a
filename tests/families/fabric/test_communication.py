"""Gangs that communicate: step times by closed forms, shares of links, and the view's estimates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

import pytest
from support.scripted_policy import Scripted, ends

from dagsim.errors import ModelError
from dagsim.families.fabric.collectives import GroupTraffic, Member, StepTraffic, exchange, nvlink_bytes_s
from dagsim.families.fabric.communication import Llm, ModelTraffic
from dagsim.families.fabric.llm import LlmTraining, step_s
from dagsim.families.fabric.shared_network import SharedNetwork
from dagsim.families.fabric.topologies import Cable, Explicit, FatTree, Island, Route
from dagsim.families.sharing.pairs import MeasuredPairs
from dagsim.model import Cluster, Decision, Job, Kill, Kind, Node, Preempt, Share, Start, Task, Wait, gpu_type
from dagsim.systems.cluster import ClusterKernel, ClusterView, Preemption
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.runtime import Flops, Recorded
from dagsim.systems.cluster.network import UniformNetwork
from dagsim.testing.violations import as_recorded, violations

A100 = gpu_type("A100-80")
FOUR = Cluster(tuple(Node(name, A100, 8) for name in "abcd"))
NAMES = [node.name for node in FOUR.nodes]
NIC_GB_S = 10.0
ONE_NIC = SharedNetwork(Island(rails=1, bandwidth_gb_s=NIC_GB_S))
Policy = Callable[[ClusterView], Iterator[Decision]]


def placed(nodes: dict[str, list[int]]) -> Scripted:
    """Starts each job on the nodes of its name, with equally many instances on each."""

    def decide(view: ClusterView) -> Iterator[Decision]:
        for task in view.ready:
            on = nodes[task.job.job.id]
            yield Start(task, tuple(Share(node, task.waiting // len(on)) for node in on))

    return Scripted(decide)


def gang(name: str, work: float, instances: int, model: str = "net", arrival_s: float = 0.0) -> Job:
    return Job.single(name, Task("t", work, instances=instances, gang=True, model=model), arrival_s)


def kernel(jobs: list[Job], network: SharedNetwork = ONE_NIC, **traffic: StepTraffic) -> ClusterKernel:
    return ClusterKernel(FOUR, jobs, Models(network=network, communication=ModelTraffic(traffic)))


def spread(collective: str, gb: float, ranks: list[int], nvlink_gb_s: float, rails: int, nic_gb_s: float) -> float:
    """Seconds of bandwidth of a collective on an island."""
    routing = Island(rails, nic_gb_s).routing([f"n{node}" for node in range(len(ranks))])
    members = [Member(node, count) for node, count in enumerate(ranks)]
    traffic = StepTraffic(gb, 1.0, collective, calls=0)  # type: ignore[arg-type]
    way = exchange(traffic, members, routing, nvlink_gb_s * 1e9)
    return way.seconds(way.alone(routing))


@pytest.mark.parametrize(
    ("collective", "ranks", "seconds"),
    [
        # S = 4 GB, NVLink 200 GB/s, rails of 10 GB/s (8 per node).
        ("ring", [8], 2 * 7 / 8 * 4 / 200),
        ("ring", [1] * 4, 2 * 3 / 4 * 4 / 10),
        ("ring", [8, 8], 2 * 15 / 16 * 4 / 80),
        ("all_gather", [8, 8], 15 / 16 * 4 / 80),
        ("tree", [1] * 4, 2 * 4 / 10),
        ("tree", [1] * 7, 2 * 4 / 10),
        ("hierarchical", [8] * 4, 2 * 7 / 8 * 4 / 200 + 2 * 3 / 4 * (4 / 8) / 10),
        ("hierarchical", [4, 4], 2 * 3 / 4 * 4 / 200 + 2 * 1 / 2 * (4 / 4) / 10),
        ("all_to_all", [1] * 4, 3 / 4 * 4 / 10),
        ("all_to_all", [8, 8], (8 * 8 / 16 * 4) / 80),  # a node sends half of what its 8 ranks have
        ("all_to_all", [8], 7 / 8 * 4 / 200),
        ("pipeline", [1] * 2, 4 / 10),
        ("pipeline", [1] * 4, 2 * 4 / 10),  # a node within sends forward and backward
    ],
)
def test_flows_of_a_collective_take_the_time_of_its_closed_form(
    collective: str, ranks: list[int], seconds: float
) -> None:
    assert spread(collective, 4.0, ranks, 200.0, 8 if max(ranks) > 1 else 1, 10.0) == pytest.approx(seconds, rel=1e-12)


def test_bandwidths_within_nodes_are_measured_ones() -> None:
    # docs/networks.md; GPUs without NVLink have PCIe.
    for name, gb_s in (("H100", 370), ("A100-80", 235), ("GB200", 770), ("T4", 12)):
        assert nvlink_bytes_s(name, gpu_type(name).nvlink_gb_s) == pytest.approx(gb_s * 1e9)


def test_nvlink_bounds_a_ring_that_passes_through_nodes() -> None:
    assert spread("ring", 4.0, [8, 8], 50.0, 8, 10.0) == pytest.approx(2 * 15 / 16 * 4 / 50, rel=1e-12)


def test_latencies_are_those_of_the_tuner_per_call() -> None:
    routing = Island(1, 10.0, latency_s=1e-6).routing(NAMES)
    members = [Member(node, 8) for node in range(4)]
    one, two = (exchange(StepTraffic(1.0, 1.0, "ring", calls=calls), members, routing, 2e11) for calls in (1, 2))
    # base + (2 * 31 - 2 * 3) steps over NVLink + 2 * 3 over the network, and the 2 links of a hop
    assert one.latency_s == pytest.approx(8.4e-6 + 56 * 3.4e-6 + 6 * 9.6e-6 + 2e-6)
    assert two.latency_s == 2 * one.latency_s


def test_a_spread_gang_is_slower_by_its_communication_and_the_log_shows_its_rate() -> None:
    # Ring of 4 on 4 nodes: 2 * 3/4 * 4 GB at 10 GB/s take .6 s beside 1 s of compute.
    jobs = [gang("j", 100, 4)]
    simulated = kernel(jobs, net=StepTraffic(4.0, 1.0, calls=0))
    simulated.run(placed({"j": [0, 1, 2, 3]}))
    assert ends(simulated)["j"] == pytest.approx(160.0, rel=1e-12)
    rows = [row.value for row in simulated.schedule.log if row.kind == Kind.RATE]
    assert rows == pytest.approx([1 / 1.6] * 4)
    assert not violations(simulated.schedule, jobs, seconds=as_recorded, keeps_work=True, sharing=True)


def test_with_overlap_only_the_longer_of_both_counts() -> None:
    for gb, factor in ((4.0, 1.0), (10.0, 1.5)):
        simulated = kernel([gang("j", 100, 4)], net=StepTraffic(gb, 1.0, overlap=1, calls=0))
        simulated.run(placed({"j": [0, 1, 2, 3]}))
        assert ends(simulated)["j"] == pytest.approx(100 * factor, rel=1e-12)


def test_a_gang_with_overlap_takes_no_more_than_it_needs_from_others() -> None:
    # SimGrid's ptask_L07: 10 GB beside 20 GB on 10 GB/s, 4 s of compute: 2.5 GB/s, the other ends at 2.667 s.
    # Here both have one link; the second one has next to no compute.
    cable, pairs = Cable("l", 10.0), [("a", "b"), ("b", "a")]
    routes = tuple(Route(*pair, ("l",) if pair == ("a", "b") else ()) for pair in pairs)
    network = SharedNetwork(Explicit((cable,), routes))
    cluster = Cluster(tuple(Node(name, None, 0, 4) for name in "ab"))
    slow, fast = StepTraffic(10.0, 4.0, "all_gather", 1, 0), StepTraffic(20.0, 1e-9, "all_gather", 1, 0)
    jobs = [
        Job.single(name, Task("t", work, 2, True, gpus=0, cpus=1, model=name))
        for name, work in (("slow", 4.0), ("fast", 1e-9))
    ]
    simulated = ClusterKernel(
        cluster, jobs, Models(network=network, communication=ModelTraffic({"slow": slow, "fast": fast}))
    )  # a ring of two sends half of the bytes over the link
    simulated.run(placed({"slow": [0, 1], "fast": [0, 1]}))
    assert ends(simulated) == pytest.approx({"slow": 4.0, "fast": 10.0 / (10.0 - 1.25)}, rel=1e-9)


def test_two_gangs_share_a_link_until_one_of_them_ends() -> None:
    # Pairs of nodes a-b and a-c share the NIC of a: 5 GB/s each. Ring of 2: 4 GB per step and hop.
    jobs = [gang("i", 100, 2), gang("j", 100, 2, arrival_s=90.0)]
    simulated = kernel(jobs, net=StepTraffic(4.0, 1.0, calls=0))
    simulated.run(placed({"i": [0, 1], "j": [0, 2]}))
    # i: 90 s at rate 1/1.4; both at 1/1.8 until i ends; j alone after that.
    i_s = 90 + (100 - 90 / 1.4) * 1.8
    j_s = i_s + (100 - (i_s - 90) / 1.8) * 1.4
    assert ends(simulated) == pytest.approx({"i": i_s, "j": j_s}, rel=1e-12)
    assert not violations(simulated.schedule, jobs, seconds=as_recorded, keeps_work=True, sharing=True)


def test_a_gang_that_is_killed_or_preempted_leaves_its_share() -> None:
    for stop in (Kill(1), Preempt(1)):

        def decide(view: ClusterView, stop: Decision = stop) -> Iterator[Decision]:
            for task in view.ready:
                if task.piece == 0:
                    yield Start(task, (Share(0), Share(1 + task.job.number)))
                elif 0 not in view.jobs:
                    yield Start(task, (Share(0), Share(1)))
            if view.now == 10 and len(view.running) == 2:
                yield stop
            elif view.now < 10:
                yield Wait(10)

        simulated = kernel([gang("i", 100, 2), gang("j", 100, 2)], net=StepTraffic(4.0, 1.0, calls=0))
        simulated.run(Scripted(decide))
        assert ends(simulated)["i"] == pytest.approx(10 + (100 - 10 / 1.8) * 1.4, rel=1e-12)
        if isinstance(stop, Preempt):  # it kept the 10 / 1.8 s that it did
            assert ends(simulated)["j"] == pytest.approx(ends(simulated)["i"] + (100 - 10 / 1.8) * 1.4, rel=1e-12)


def test_a_gang_on_one_node_pays_only_nvlink() -> None:
    simulated = kernel([gang("j", 100, 8)], net=StepTraffic(4.0, 1.0, calls=0))
    simulated.run(placed({"j": [2]}))
    assert ends(simulated)["j"] == pytest.approx(100 * (1 + 2 * 7 / 8 * 4 / 235), rel=1e-12)


def test_a_slower_type_computes_longer_per_step_and_sends_as_much() -> None:
    v100 = gpu_type("V100-16")
    cluster = Cluster((*FOUR.nodes[:2], Node("x", v100, 8), Node("y", v100, 8)))
    jobs = [Job.single("j", Task("t", 100.0, 2, True, speeds={"A100-80": 2.0, "V100-16": 1.0}, model="net"))]
    simulated = ClusterKernel(
        cluster, jobs, Models(network=ONE_NIC, communication=ModelTraffic({"net": StepTraffic(4.0, 1.0, calls=0)}))
    )
    simulated.run(placed({"j": [2, 3]}))
    assert ends(simulated)["j"] == pytest.approx(50 * (2 + 0.4), rel=1e-12)  # 50 steps


def test_the_view_says_what_a_placement_would_cost_beside_the_present_flows() -> None:
    rates: list[float] = []

    def decide(view: ClusterView) -> Iterator[Decision]:
        for task in view.ready:
            near, far = (Share(3, 2),), (Share(0), Share(2))
            rates.extend([view.expected_rate(task, near), view.expected_rate(task, far)])
            yield Start(task, (Share(0), Share(1 + task.job.number)))

    jobs = [gang("i", 100, 2), gang("j", 100, 2, arrival_s=1.0)]
    simulated = kernel(jobs, net=StepTraffic(4.0, 1.0, calls=0))
    simulated.run(Scripted(decide))
    assert rates == pytest.approx([1 / (1 + 4 / 235), 1 / 1.4, 1 / (1 + 4 / 235), 1 / 1.8], rel=1e-12)
    logged_rates = [row.value for row in simulated.schedule.log if row.kind == Kind.RATE and row.time_s == 1.0]
    assert logged_rates == pytest.approx([1 / 1.8] * 4)  # asking has changed nothing


def test_a_fork_under_way_ends_as_the_original_does() -> None:
    jobs = [gang("i", 100, 2), gang("j", 100, 2, arrival_s=5.0), gang("k", 30, 3, arrival_s=7.0)]
    nodes = {"i": [0, 1], "j": [0, 2], "k": [1, 2, 3]}
    original = kernel(jobs, net=StepTraffic(4.0, 1.0, calls=0))
    original.run(placed(nodes), until_s=20.0)
    forked = original.fork()
    forked.run(placed(nodes))
    original.run(placed(nodes))
    assert [*forked.schedule.log] == [*original.schedule.log]
    assert len(ends(forked)) == 3


def test_a_run_in_flight_at_the_beginning_communicates_from_then_on() -> None:
    from dataclasses import replace

    from dagsim.model import InFlight

    past = replace(gang("i", 100, 2), in_flight=(InFlight(0.0, (Share(0), Share(1))),))
    simulated = ClusterKernel(
        FOUR,
        [past],
        Models(network=ONE_NIC, communication=ModelTraffic({"net": StepTraffic(4.0, 1.0, calls=0)})),
        begins_s=30.0,
    )
    simulated.run(placed({}))
    assert ends(simulated)["i"] == pytest.approx(30 + 70 * 1.4, rel=1e-12)


@pytest.mark.parametrize("gpus", [8, 16, 32])
def test_a_language_model_takes_the_steps_of_the_measured_model_on_rails(gpus: int) -> None:
    train_on_rails(gpus)


@pytest.mark.parametrize(
    ("tensor", "pipeline", "gpus"),
    [(8, 1, 8), (8, 1, 32), (4, 1, 32), (2, 2, 32), (1, 4, 32), (8, 4, 32), (2, 8, 32), (16, 1, 32), (1, 2, 16)],
)
def test_tensor_and_pipeline_groups_take_the_time_of_their_closed_forms(tensor: int, pipeline: int, gpus: int) -> None:
    train_on_rails(gpus, tensor=tensor, pipeline=pipeline, accumulation=4)


def test_degrees_that_do_not_divide_the_gang_are_named() -> None:
    with pytest.raises(ModelError, match="task 't': llm: 8 GPUs are not a multiple of 16 tensor x 1 pipeline ranks"):
        train_on_rails(8, tensor=16)
    with pytest.raises(ModelError, match="pipeline must divide the 32 layers, got 5"):
        train_on_rails(8, pipeline=5)


def test_groups_of_ranks_send_one_after_the_other() -> None:
    # 2 nodes of 4 ranks, 4 rails of 10 GB/s: rings of 2 within nodes, then of 4 over both (2 rings side by side, whose
    # ends cross), then a pipeline of 2 (4 pairs, a rail each).
    routing = Island(4, 10.0).routing(["a", "b"])
    members = [Member(0, 4), Member(1, 4)]
    groups = (
        GroupTraffic(6.0, 2, 1),
        GroupTraffic(8.0, 4, 2, "all_gather"),
        GroupTraffic(3.0, 2, 4, "pipeline"),
    )
    way = exchange(StepTraffic(0.0, 1.0, calls=0, groups=groups), members, routing, 1e11)
    assert way.seconds(way.alone(routing)) == pytest.approx(6 / 100 + 3 / 4 * 8 / (40 / 2) + 3 / 10)
    # A pipeline of four nodes has two streams on the NICs within, a ring over pairs of nodes one: two count for both.
    routing = Island(1, 10.0).routing(NAMES)
    line = (GroupTraffic(3.0, 4, 1, "pipeline"), GroupTraffic(4.0, 2, 1))
    for groups in (line, line[::-1]):
        way = exchange(
            StepTraffic(0.0, 1.0, calls=0, groups=groups), [Member(node, 1) for node in range(4)], routing, 1e11
        )
        assert way.seconds(way.alone(routing)) == pytest.approx((3 + 4) / (10 / 2))
    members, routing = [Member(0, 4), Member(1, 4)], Island(4, 10.0).routing(["a", "b"])
    with pytest.raises(ModelError, match="8 ranks cannot be divided into groups of 3 with stride 1"):
        exchange(StepTraffic(0.0, 1.0, groups=(GroupTraffic(1.0, 3),)), members, routing, 1e11)


def train_on_rails(gpus: int, **changes: int) -> None:
    """A model on HDR rails takes the seconds of the closed form."""
    training = LlmTraining(7e9, 32, 4096, 2048, 4, checkpointing=True, **changes)  # type: ignore[arg-type]
    network = SharedNetwork(Island(rails=8, bandwidth_gb_s=24.0))  # HDR, as the measured A100 runs
    job = Job.single("j", Task("t", 50.0, gpus, True, model="mpt-7b"))
    simulated = ClusterKernel(FOUR, [job], Models(runtime=Llm({"mpt-7b": training}), network=network))
    simulated.run(placed({"j": list(range(gpus // 8))}))
    assert ends(simulated)["j"] == pytest.approx(50 * step_s(training, A100, gpus), rel=1e-9)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ({}, "need a network that carries them: network {kind: shared}"),
        ({"network": UniformNetwork()}, "need a network that carries them"),
        (
            {"network": ONE_NIC, "sharing": MeasuredPairs(default=0.7)},
            "cannot share GPUs, so remove the key 'sharing' from the configuration",
        ),
        ({"network": ONE_NIC, "runtime": Llm({"m": LlmTraining(1e9, 1, 1, 1, 1)})}, "leave out the key communication"),
    ],
)
def test_models_that_do_not_go_together_are_refused(models: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ClusterKernel(FOUR, [], Models(communication=ModelTraffic(default=StepTraffic(1.0, 1.0)), **models))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: StepTraffic(-1.0, 1.0),
        lambda: StepTraffic(1.0, 0.0),
        lambda: StepTraffic(inf, 1.0),
        lambda: StepTraffic(1.0, 1.0, "star"),  # type: ignore[arg-type]
        lambda: StepTraffic(1.0, 1.0, overlap=2),
        lambda: StepTraffic(1.0, 1.0, calls=-1),
        lambda: GroupTraffic(1.0, 1),
        lambda: GroupTraffic(-1.0, 2),
        lambda: ModelTraffic(),
        lambda: Llm({}),
    ],
)
def test_numbers_out_of_range_are_errors(make: Callable[[], object]) -> None:
    with pytest.raises(ModelError):
        make()


def test_an_unknown_language_model_and_a_gpu_without_measurements_are_named() -> None:
    runtime = Llm({"mpt-7b": LlmTraining(7e9, 32, 4096, 2048, 4)})
    with pytest.raises(ModelError, match=r"runtime llm has no model 'mpt-7'.*mpt-7b"):
        ClusterKernel(FOUR, [gang("j", 1, 2, "mpt-7")], Models(runtime=runtime, network=ONE_NIC)).run(placed({}))
    cluster = Cluster((Node("n", gpu_type("T4"), 8),))
    simulated = ClusterKernel(cluster, [gang("j", 1, 2, "mpt-7b")], Models(runtime=runtime, network=ONE_NIC))
    simulated.run(placed({}))
    assert [row.kind for row in simulated.schedule.log] == [Kind.ARRIVED, Kind.REJECTED]


def test_gangs_on_an_oversubscribed_tree_share_its_links_upward() -> None:
    # 2 leaves of 2 nodes with one link of 10 GB/s upward: two gangs across the leaves have 5 GB/s each.
    network = SharedNetwork(FatTree((2, 2), (1, 1), (1, 1), 10.0))
    for other, factor in (([0, 1], 1.4), ([1, 3], 1.8)):
        simulated = kernel([gang("i", 100, 2), gang("j", 100, 2)], network, net=StepTraffic(4.0, 1.0, calls=0))
        simulated.run(placed({"i": [0, 2], "j": other}))
        assert ends(simulated)["i"] == pytest.approx(100 * (factor if other == [1, 3] else 1.8), rel=1e-12)


def test_preemption_that_begins_again_loses_the_work_at_any_rate() -> None:
    simulated = ClusterKernel(
        FOUR,
        [gang("i", 100, 2)],
        Models(
            network=ONE_NIC,
            communication=ModelTraffic(default=StepTraffic(4.0, 1.0, calls=0)),
            preemption=Preemption(on_resume="restart"),
            runtime=Recorded(),
        ),
    )

    def decide(view: ClusterView) -> Iterator[Decision]:
        for task in view.ready:
            yield Start(task, (Share(0), Share(1)))
        if view.now == 10 and 0 in view.running:
            yield Preempt(0)
        elif view.now < 10:
            yield Wait(10)

    simulated.run(Scripted(decide))
    assert ends(simulated)["i"] == pytest.approx(10 + 140, rel=1e-12)
    assert str(Flops())  # other runtimes know no traffic
