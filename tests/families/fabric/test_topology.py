"""Placements that know racks and pods: worked examples, brute force, and levels that jobs require."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from support.log_reading import rows_of
from support.scripted_policy import ends

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, IllegalDecision, ModelError
from dagsim.experiment.scenario import scenario_of
from dagsim.families.fabric.collectives import StepTraffic
from dagsim.families.fabric.communication import ModelTraffic
from dagsim.families.fabric.shared_network import SharedNetwork
from dagsim.families.fabric.topologies import Dragonfly, FabricLevel, FatTree, Island, Tree, TreeSwitch
from dagsim.families.fabric.topology_placement import SegmentsInBlocks, SmallestDomain
from dagsim.families.fabric.topology_policies import EasyOnNodes
from dagsim.model import Cluster, Decision, Job, Kind, Node, Placement, Request, Share, Start, Task, gpu_type
from dagsim.systems.cluster import ClusterKernel, ClusterView, Preemption
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.network import Storage
from dagsim.systems.cluster.policies import PLACEMENT_RULES, POLICIES
from dagsim.testing.violations import as_recorded, violations
from dagsim.workload.accept import asking
from dagsim.workload.arrays import JobArrays

A100 = gpu_type("A100-80")


def fabric(count: int, gpus: int = 8) -> Cluster:
    return Cluster(tuple(Node(f"n{number}", A100, gpus) for number in range(1, count + 1)))


def gang(name: str, instances: int, gpus: float = 8, arrival_s: float = 0.0, **request: object) -> Job:
    task = Task("t", 10.0, instances, True, gpus=gpus, model="net")
    asked = Request(**request) if request else None  # type: ignore[arg-type]
    return Job.single(name, task, arrival_s, request=asked)


class Busy:
    """Holds nodes by jobs called ``busy``, and places all others by a rule."""

    def __init__(self, rule: str, nodes: Iterable[int] = ()) -> None:
        self.nodes = [*nodes]
        self.rule = PLACEMENT_RULES.create(rule)
        self.placed: dict[str, Placement | None] = {}

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        for task in view.ready:
            name = task.job.job.id
            if name == "busy":
                yield Start(task, (Share(self.nodes.pop()),))
            elif not self.nodes:
                placement = self.rule.place(view, task)
                self.placed.setdefault(name, placement)
                if placement is not None:
                    yield Start(task, placement)


def place(rule: str, cluster: Cluster, network: SharedNetwork, busy: Iterable[int], *jobs: Job) -> dict[str, set[str]]:
    """The names of the nodes that each job gets first while ``busy`` nodes (from 0) are taken."""
    held = [Job.single("busy", Task("t", 1000.0, gpus=cluster.nodes[0].gpus)) for _ in busy]
    policy = Busy(rule, busy)
    ClusterKernel(cluster, [*held, *jobs], Models(network=network)).run(policy, until_s=5)
    return {
        name: {cluster.nodes[share.node].name for share in placement or ()} for name, placement in policy.placed.items()
    }


SW = [
    ("sw11", "n1 n2"),
    ("sw12", "n3 n4"),
    ("sw13", "n5 n6"),
    ("sw14", "n7 n8"),
    ("sw15", "n9 n10"),
    ("sw16", "n11 n12"),
]
KNAVIGATOR = SharedNetwork(
    Tree(
        (
            *[TreeSwitch(name, tuple(nodes.split())) for name, nodes in SW],
            TreeSwitch("sw21", switches=("sw11", "sw12")),
            TreeSwitch("sw22", switches=("sw13", "sw14")),
            TreeSwitch("sw23", switches=("sw15", "sw16")),
            TreeSwitch("sw31", switches=("sw21", "sw22", "sw23")),
        )
    )
)


def test_the_optimal_nodes_of_knavigators_case_are_chosen() -> None:
    # NVIDIA/knavigator, resources/benchmarks/nwtopo/workflows/config-nodes.yaml: n1, n3, n6, n11 and n12 are busy.
    busy = [0, 2, 5, 10, 11]
    assert place("topology", fabric(12), KNAVIGATOR, busy, gang("j", 3)) == {"j": {"n5", "n7", "n8"}}
    assert place("best-fit", fabric(12), KNAVIGATOR, busy, gang("j", 3)) != {"j": {"n5", "n7", "n8"}}
    required = gang("j", 3, level="pod")
    for rule in ("best-fit", "worst-fit", "first-fit", "consolidate", "spread", "topology"):
        assert place(rule, fabric(12), KNAVIGATOR, busy, required) == {"j": {"n5", "n7", "n8"}}, rule


def test_the_tightest_rack_that_is_enough_is_taken() -> None:
    network = SharedNetwork(FatTree((4, 3), (1, 1), (1, 1)))
    # Racks n1-n4, n5-n8, n9-n12 with 4, 2 and 3 free nodes.
    busy = [4, 5, 8]
    assert place("topology", fabric(12), network, busy, gang("j", 2)) == {"j": {"n7", "n8"}}
    assert place("topology", fabric(12), network, busy, gang("j", 3)) == {"j": {"n10", "n11", "n12"}}
    assert place("topology", fabric(12), network, busy, gang("j", 4)) == {"j": {"n1", "n2", "n3", "n4"}}
    # 6 = the roomiest rack whole, and the tightest of the others for the rest of 2
    assert place("topology", fabric(12), network, busy, gang("j", 6)) == {"j": {"n1", "n2", "n3", "n4", "n7", "n8"}}


def spans(nodes: Iterable[int], levels: Iterable[FabricLevel]) -> tuple[int, ...]:
    """Number of domains that nodes lie in, widest level first."""
    nodes = [*nodes]
    return tuple(len({level.domains[node] for node in nodes}) for level in [*levels][::-1])


def test_no_placement_lies_in_a_smaller_domain() -> None:
    tree = FatTree((2, 2, 2), (1, 1, 1), (1, 1, 1))
    names = [f"n{number}" for number in range(1, 9)]
    levels, rng = tree.levels(names), np.random.default_rng(3)
    assert [level.name for level in levels] == ["rack", "pod"]
    for _ in range(60):
        free = [node for node in range(8) if rng.random() < 0.6]
        busy = [node for node in range(8) if node not in free]
        for needed in range(2, len(free) + 1):
            got = place("topology", fabric(8), SharedNetwork(tree), busy, gang("j", needed))["j"]
            mine = spans([names.index(name) for name in got], levels)
            assert mine[0] == min(spans(way, levels)[0] for way in combinations(free, needed))
            if mine[0] == 1:
                assert mine == min(spans(way, levels) for way in combinations(free, needed))


@pytest.mark.parametrize("rule", ["best-fit", "consolidate", "worst-fit", "random", "spread", "topology"])
def test_a_job_that_requires_a_rack_waits_for_one_under_any_rule(rule: str) -> None:
    network = SharedNetwork(FatTree((2, 2), (1, 1), (1, 1)))
    assert place(rule, fabric(4), network, [0, 2], gang("j", 2, level="rack")) in ({"j": set()}, {})
    assert place(rule, fabric(4), network, [0, 2], gang("j", 2, level="rack", level_required=False)) == {
        "j": {"n2", "n4"}
    }


@pytest.mark.parametrize(
    "policy",
    [
        *("fifo", "sjf", "easy", "conservative", "las", "fifo-fit[placement=block]", "topology", "block", "defrag"),
        *("slurm-multifactor", "kueue", "kube-default", "easy-events", "srtf"),
        pytest.param("tiresias-events", marks=pytest.mark.family("tiresias")),
        pytest.param("gavel", marks=pytest.mark.family("gavel")),
    ],
)
def test_every_job_that_requires_a_level_ends_within_it(policy: str) -> None:
    tree = FatTree((2, 3), (1, 1), (1, 1))
    rng = np.random.default_rng(1)
    jobs = [
        gang(f"j{number}", int(rng.integers(1, 9)), 2, float(number), level=("rack", "host", "rack")[number % 3])
        for number in range(40)
    ]
    jobs = [
        replace(job, request=None) if job.tasks[0].instances > 4 and job.request.level == "host" else job  # type: ignore[union-attr]
        for job in jobs
    ]
    cluster = fabric(6, 8)
    kernel = ClusterKernel(cluster, jobs, Models(network=SharedNetwork(tree)))
    kernel.run(POLICIES.create(policy))
    [level] = tree.levels([node.name for node in cluster.nodes])
    nodes: dict[int, set[int]] = {}
    for row in kernel.schedule.log:
        if row.kind == Kind.STARTED:
            nodes.setdefault(row.run, set()).add(row.node)
            job = jobs[row.job]
            if job.request is not None:
                assert len({level.domains[node] for node in nodes[row.run]}) == 1
                assert job.request.level == "rack" or len(nodes[row.run]) == 1
    assert sum(row.kind == Kind.COMPLETED for row in kernel.schedule.log) == 40


def test_nodes_of_several_racks_are_refused_and_named() -> None:
    class Across:
        def decide(self, view: ClusterView) -> Iterable[Decision]:
            for task in view.ready:
                yield Start(task, (Share(0), Share(2)))

    network = SharedNetwork(FatTree((2, 2), (1, 1), (1, 1)))
    kernel = ClusterKernel(fabric(4), [gang("j", 2, level="rack")], Models(network=network))
    with pytest.raises(IllegalDecision, match="requires nodes of one rack, but n1, n3 are in several"):
        kernel.run(Across())


def test_a_gang_too_large_for_its_level_is_rejected_and_an_unknown_level_is_named() -> None:
    network = SharedNetwork(FatTree((2, 2), (1, 1), (1, 1)))
    kernel = ClusterKernel(fabric(4), [gang("j", 3, level="rack")], Models(network=network))
    kernel.run(POLICIES.create("fifo"))
    assert [row.kind for row in kernel.schedule.log] == [Kind.ARRIVED, Kind.REJECTED]
    with pytest.raises(ModelError, match="no level 'zone'; levels: host, rack"):
        ClusterKernel(fabric(4), [gang("j", 3, level="zone")], Models(network=network)).run(POLICIES.create("fifo"))
    with pytest.raises(ModelError, match="segment must be 1 or more"):
        Request(segment=0)


def test_segments_lie_within_blocks_and_leave_whole_blocks_to_others() -> None:
    network = SharedNetwork(FatTree((4, 3), (1, 1), (1, 1)))
    # Free: 3, 2 and 4 nodes. Two segments of 2: no block but the last holds both.
    assert place("block", fabric(12), network, [0, 4, 5], gang("j", 4, segment=2)) == {"j": {"n9", "n10", "n11", "n12"}}
    # Free: 3, 2 and 3: a segment of 2 in the first (of those with one segment each, the tightest comes last).
    got = place("block", fabric(12), network, [0, 4, 5, 8], gang("j", 4, segment=2))["j"]
    assert len(got) == 4
    blocks = [sum((int(name[1:]) - 1) // 4 == block for name in got) for block in range(3)]
    assert sorted(blocks) == [0, 2, 2]
    # Free: 3, 1 and 1 nodes: a segment of 2 fits once.
    assert place("block", fabric(12), network, [0, 4, 5, 6, 8, 9, 10], gang("j", 4, segment=2))["j"] == set()
    # Without a segment, a gang that no block holds has the largest equal parts.
    assert place("block", fabric(12), network, [0, 4], gang("j", 6))["j"] == {"n2", "n3", "n4", "n6", "n7", "n8"}


def test_skewed_models_wait_for_few_nodes_and_others_fill_gaps() -> None:
    network = SharedNetwork(Island())

    def job(model: str) -> Job:
        return Job.single("j", Task("t", 10.0, 4, True, model=model))

    held = [Job.single("busy", Task("t", 1000.0, gpus=gpus)) for gpus in (6, 6, 4)]
    for model, nodes in (("VGG-16", {2}), ("resnet50", {0, 1})):
        policy = Busy("skew", [2, 1, 0])
        ClusterKernel(fabric(3), [*held, job(model)], Models(network=network)).run(policy, until_s=1)
        assert {share.node for share in policy.placed["j"] or ()} == nodes
    held[2] = held[0]
    policy = Busy("skew", [2, 1, 0])
    ClusterKernel(fabric(3), [*held, job("alexnet")], Models(network=network)).run(policy, until_s=1)
    assert policy.placed["j"] is None


def test_levels_follow_from_the_topology() -> None:
    names = [f"n{number}" for number in range(1, 13)]
    assert [(level.name, level.domains[4]) for level in KNAVIGATOR.levels(names)] == [("rack", 2), ("pod", 7)]
    dragonfly = Dragonfly(groups=2, chassis=2, routers=2, hosts_per_router=2)
    assert [level.name for level in dragonfly.levels([f"h{host}" for host in range(16)])] == [
        "router",
        "chassis",
        "group",
    ]
    assert Island().levels(names) == ()


def test_a_placement_by_topology_keeps_gangs_fast() -> None:
    network = SharedNetwork(FatTree((2, 2), (1, 1), (1, 1), bandwidth_gb_s=10.0))
    jobs = [
        Job.single("short", Task("t", 1.0, gpus=8)),
        gang("a", 2),
        gang("b", 1, arrival_s=0.5),
        gang("c", 2, arrival_s=2),
    ]
    mean = {}
    for rule in ("worst-fit", "topology"):
        kernel = ClusterKernel(
            fabric(4),
            jobs,
            Models(network=network, communication=ModelTraffic(default=StepTraffic(10.0, 1.0, calls=0))),
        )
        kernel.run(POLICIES.create(f"fifo[placement={rule}]"))
        mean[rule] = sum(row.time_s for row in kernel.schedule.log if row.kind == Kind.COMPLETED)
    assert mean["topology"] < mean["worst-fit"]


class Held:
    """Starts jobs called ``busy`` on given nodes, then plays a policy."""

    def __init__(self, policy: str, nodes: Iterable[int]) -> None:
        self.nodes = [*nodes]
        self.policy = POLICIES.create(policy)

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        if view.now == 0:
            for task in view.ready:
                yield Start(task, (Share(self.nodes.pop(0), task.waiting),))
        else:
            yield from self.policy.decide(view)


def fragmented(
    policy: str, preemption: Preemption, request: Request | None = None, *, arrival_s: float = 1.0, runs: int = 1
) -> tuple[dict[str, float], int]:
    """Completion times, and the number of moves, of a gang of 8 GPUs that finds three nodes of 8 half full, each
    by ``runs`` runs.
    """
    busy = [
        Job.single(f"busy{number // runs}", Task("t", 1000.0, gpus=4 // runs, memory_gb=10))
        for number in range(3 * runs)
    ]
    late = Job.single("j", Task("t", 100.0, 8, True, model="net"), arrival_s, request=request)
    cluster = Cluster(tuple(Node(f"n{number}", A100, 8, memory_gb=100) for number in range(3)))
    kernel = ClusterKernel(
        cluster,
        [*busy, late],
        Models(
            network=SharedNetwork(FatTree((3,), (1,), (1,), bandwidth_gb_s=10.0)),
            communication=ModelTraffic({"net": StepTraffic(10.0, 1.0, calls=0)}),
            preemption=preemption,
        ),
    )
    kernel.run(Held(policy, [number // runs for number in range(3 * runs)]))
    keeps = preemption.on_resume == "resume"
    assert not violations(kernel.schedule, [*busy, late], seconds=as_recorded, keeps_work=keeps, sharing=True)
    return ends(kernel), len(rows_of(kernel.schedule.log, Kind.PREEMPTED))


def test_a_run_moves_if_that_costs_less_than_the_gang_gains() -> None:
    # Ring of 8 on one node: 2 * 7/8 * 10 GB at 235 GB/s; on two nodes with one NIC of 10 GB/s each: at 10 GB/s.
    moved, stayed = (1 + 2 * 7 / 8 * 10 / rate for rate in (235, 10))
    ends, moves = fragmented("topology", Preemption())
    assert moves == 0
    assert ends["j"] == pytest.approx(1 + 100 * stayed)
    # A move costs 4 GPUs x (5 + 2 x 10 GB) s = 100 GPU-seconds; the gang gains 8 x 100 x (2.75 - 1.07) = 1340.
    ends, moves = fragmented("defrag", Preemption(restart_s=5, checkpoint_s_per_gb=2))
    assert moves == 1
    assert ends["j"] == pytest.approx(1 + 100 * moved)
    assert sorted(ends[f"busy{node}"] for node in range(3)) == pytest.approx([1000, 1000, 1025])
    # 4 x 340 s cost more than the gain, so that nothing moves.
    ends, moves = fragmented("defrag", Preemption(restart_s=340))
    assert moves == 0
    assert ends["j"] == pytest.approx(1 + 100 * stayed)


STORES = ("s0", "s1", "s2")


def moved_over_the_network(state_gb: float, *readers: int) -> tuple[dict[int, float], float]:
    """The moves of ``fragmented`` (run's job, and seconds until it computes again), and the end of the gang, if
    states go over links of 10 GB/s while tasks on the nodes ``readers`` read data, each from its own storage.
    """
    busy = [Job.single(f"busy{number}", Task("t", 1000.0, gpus=4, memory_gb=state_gb)) for number in range(3)]
    reads = [Job.single(f"r{node}", Task("t", 1.0, gpus=0, cpus=1, model="data")) for node in readers]
    late = Job.single("j", Task("t", 100.0, 8, True, model="net"), 1.0)
    nodes = [Node(f"n{number}", A100, 8, cpus=8, memory_gb=1e5) for number in range(3)]
    nodes += [Node(name, None, 0, 8) for name in STORES]
    kernel = ClusterKernel(
        Cluster(tuple(nodes)),
        [*busy, *reads, late],
        Models(
            network=SharedNetwork(FatTree((6,), (1,), (1,), bandwidth_gb_s=10.0), Storage(STORES, {"data": 1e5})),
            communication=ModelTraffic({"net": StepTraffic(10.0, 1.0, calls=0)}),
            preemption=Preemption(restart_s=5),
        ),
    )
    kernel.run(Held("defrag", [0, 1, 2, *readers]))
    log, computing_s = kernel.schedule.log, {}
    moved = [row.job for row in log if row.kind == Kind.PREEMPTED]
    for row in log:
        if row.kind == Kind.COMPUTING and row.time_s > 1:
            computing_s.setdefault(row.job, row.time_s - 1)
    [end_s] = [row.time_s for row in log if row.kind == Kind.COMPLETED and row.job == len(busy + reads)]
    return {job: computing_s[job] for job in moved}, end_s


def test_a_move_costs_what_its_state_takes_on_the_links_as_they_are() -> None:
    # The gang gains 1340 GPU-seconds (see above); a run of 4 GPUs pays 5 s, and its state at 10 GB/s.
    moved_s, stayed_s = (1 + 100 * (1 + 2 * 7 / 8 * 10 / rate) for rate in (235, 10))
    assert moved_over_the_network(3000) == (pytest.approx({0: 5 + 300}), pytest.approx(moved_s))  # 4 x 305
    assert moved_over_the_network(3400) == ({}, pytest.approx(stayed_s))  # 4 x 345
    # A task reads data on n1: a state would arrive there at 5 GB/s. The run on n1 moves to n0: 4 x 205 s.
    moves, end_s = moved_over_the_network(2000, 1)
    assert (moves, end_s) == (pytest.approx({1: 5 + 200}), pytest.approx(moved_s))
    # If all nodes read, a spread gang has 5 GB/s as well and would lose 8 x 100 x (4.5 - 1.07) = 2740.
    assert moved_over_the_network(3300, 0, 1, 2)[0] == pytest.approx({0: 5 + 660})  # 4 x 665
    assert moved_over_the_network(3500, 0, 1, 2) == ({}, pytest.approx(1 + 100 * 4.5))  # 4 x 705


def test_a_gang_that_starts_soon_anyway_gains_only_the_wait() -> None:
    host = Request(level="host")
    # All runs end at 1000. The gang would wait for 20 s: 8 x 20 GPU-seconds against 4 x 30 and 4 x 50.
    assert fragmented("defrag", Preemption(restart_s=30), host, arrival_s=980)[1] == 1
    assert fragmented("defrag", Preemption(restart_s=50), host, arrival_s=980)[1] == 0


def test_work_that_would_be_lost_and_the_number_of_moves_count() -> None:
    assert fragmented("defrag", Preemption(on_resume="restart"), arrival_s=100)[1] == 1  # 4 x 100 s against 1340
    assert fragmented("defrag", Preemption(on_resume="restart"), arrival_s=400)[1] == 0
    assert fragmented("defrag", Preemption(), runs=2)[1] == 2
    assert fragmented("defrag[most_moves=1]", Preemption(), runs=2)[1] == 0
    with pytest.raises(ConfigError, match="most_moves must be 1 or more, got 0"):
        POLICIES.create("defrag[most_moves=0]")


def test_nothing_moves_out_of_nodes_that_the_gang_may_not_use() -> None:
    busy = [Job.single(f"b{node}", Task("t", 100.0, gpus=4)) for node in range(3)]
    late = Job.single("j", Task("t", 10.0, 8, True), 1.0, request=Request("fast"))
    nodes = [Node(f"n{number}", A100, 8, features=("fast",) if number == 2 else ()) for number in range(3)]
    kernel = ClusterKernel(
        Cluster(tuple(nodes)),
        [*busy, late],
        Models(network=SharedNetwork(Island()), communication=ModelTraffic(default=StepTraffic(100.0, 1.0, calls=0))),
    )
    kernel.run(Held("defrag", range(3)))
    moved = [row.job for row in kernel.schedule.log if row.kind == Kind.PREEMPTED]
    assert moved in ([], [2])
    assert sum(row.kind == Kind.COMPLETED for row in kernel.schedule.log) == 4


def test_nothing_moves_where_cores_or_memory_would_be_missing() -> None:
    # A node has 8 cores. A gang of 16 fits on none, and a run of 6 finds no other node with as many free.
    for cores, cpus, moves in ((1.0, 2.0, 0), (6.0, 1.0, 0), (4.0, 1.0, 1)):
        busy = [Job.single(f"b{node}", Task("t", 100.0, gpus=4, cpus=cores)) for node in range(3)]
        late = Job.single("j", Task("t", 10.0, 8, True, cpus=cpus), 1.0)
        cluster = Cluster(tuple(Node(f"n{number}", A100, 8, cpus=8) for number in range(3)))
        kernel = ClusterKernel(
            cluster,
            [*busy, late],
            Models(
                network=SharedNetwork(Island()), communication=ModelTraffic(default=StepTraffic(100.0, 1.0, calls=0))
            ),
        )
        kernel.run(Held("defrag", range(3)))
        assert sum(row.kind == Kind.PREEMPTED for row in kernel.schedule.log) == moves
        assert sum(row.kind == Kind.COMPLETED for row in kernel.schedule.log) == 4


def test_a_gang_that_may_not_be_spread_gains_its_whole_time() -> None:
    host = Request(level="host")
    ends, moves = fragmented("topology", Preemption(), host)
    assert ends["j"] == pytest.approx(1000 + 100 * (1 + 2 * 7 / 8 * 10 / 235))
    ends, moves = fragmented("defrag", Preemption(restart_s=150), host)
    assert (moves, round(ends["j"])) == (1, 108)
    assert fragmented("defrag", Preemption(restart_s=250), host)[1] == 0


@pytest.mark.parametrize("policy", ["topology", "block", "fifo[placement=topology]", "fifo[placement=block]"])
def test_segments_lie_within_hosts_and_are_free_without_levels(policy: str) -> None:
    # 4 instances of 2 GPUs in segments of 2, on hosts with 6, 4 and 2 idle GPUs: 2 + 2, or any nodes without a level.
    for request, expected in (({"level": "host", "segment": 2}, {0: 2, 1: 2}), ({"segment": 2}, None)):
        busy = [Job.single("busy", Task("t", 100.0, gpus=gpus)) for gpus in (2, 4, 6)]
        kernel = ClusterKernel(
            fabric(3), [*busy, gang("j", 4, 2, 1.0, **request)], Models(network=SharedNetwork(Island()))
        )
        kernel.run(Held(policy, [0, 1, 2]))
        nodes = {row.node: row.instances for row in kernel.schedule.log if row.kind == Kind.STARTED and row.job == 3}
        assert sum(nodes.values()) == 4
        assert nodes == (expected or nodes)


def test_terms_of_the_configuration_hold_for_jobs_that_state_none() -> None:
    preferred = Request(level="rack", level_required=False, segment=4)
    assert Request(constraint="a").over(preferred) == replace(preferred, constraint="a")
    assert Request(level="pod").over(preferred) == Request(level="pod", segment=4)
    own = gang("i", 2, level="host")
    jobs = [*asking(JobArrays.of([own, gang("j", 2)]), preferred).jobs()]
    assert [job.request for job in jobs] == [Request(level="host", segment=4), preferred]
    assert asking(JobArrays.of([own]), None).request == JobArrays.of([own]).request


FOUR_NODES = "cluster.groups=[{name: n, count: 4, gpu: T4, gpus: 4}]"
TWO_RACKS = "network={kind: shared, topology: {kind: fat_tree, down: [2, 2], up: [1, 1], count: [1, 1]}}"


def test_a_level_that_the_network_lacks_is_an_error_of_the_configuration() -> None:
    for level, network, message in [
        ("pod", [TWO_RACKS], "no level 'pod'; its levels are host, rack"),
        ("rack", [], "no level 'rack'; there is no network with levels"),
    ]:
        with pytest.raises(ConfigError, match=message):
            load_config(None, [*network, FOUR_NODES, f"request.level={level}"])
    with pytest.raises(ConfigError, match=r"request\.segment: a segment lies within a domain of"):
        load_config(None, ["network.kind=shared", FOUR_NODES, "request.segment=2"])


@pytest.mark.parametrize("rule", ["random", "consolidate"])
def test_drawn_gangs_keep_within_the_racks_of_the_configuration(rule: str) -> None:
    scenario = scenario_of(load_config(None, [TWO_RACKS, FOUR_NODES, "request.level=rack", "workload.count=60"]))
    kernel = scenario.kernel(1)
    kernel.run(POLICIES.create(f"fifo-fit[placement={rule}]"))
    racks: dict[int, set[int]] = {}
    for row in kernel.schedule.log:
        if row.kind == Kind.STARTED:
            racks.setdefault(row.run, set()).add(row.node // 2)
    assert set(map(len, racks.values())) == {1}


class Watched:
    """Plays a policy and notes the first reservation of each oldest job."""

    def __init__(self, rule: SmallestDomain | SegmentsInBlocks) -> None:
        self.policy = EasyOnNodes(rule)
        self.reserved_s: dict[int, float] = {}

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        yield from self.policy.decide(view)
        if self.policy._reserved_for is not None:
            (order, _), reserved = self.policy._reserved_for
            self.reserved_s.setdefault(order >> 32, reserved.shadow.time_s)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("segments", [True, False])
def test_jobs_that_overtake_do_not_delay_the_oldest_one_that_needs_a_rack(segments: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs = [
        Job.single(
            f"j{number}",
            Task("t", float(rng.integers(1, 200)), size, size > 1, gpus=8),
            float(number),
            request=Request(level="rack", segment=min(size, 4) if segments else None),
        )
        for number, size in enumerate(rng.choice([1, 1, 2, 3, 4, *([8, 12] if segments else [5, 5])], 150).tolist())
    ]
    cluster = fabric(25)
    policy = Watched(SegmentsInBlocks() if segments else SmallestDomain())
    kernel = ClusterKernel(cluster, jobs, Models(network=SharedNetwork(FatTree((5, 5), (1, 1), (1, 1)))))
    kernel.run(policy)
    starts, nodes, arrived = {}, {}, 0  # type: ignore[var-annotated]
    for row in kernel.schedule.log:
        if row.kind == Kind.STARTED:
            starts.setdefault(row.job, row.time_s)
            nodes.setdefault(row.job, []).append(row.node)
        arrived += row.kind == Kind.COMPLETED
    assert arrived == len(jobs)
    assert len(policy.reserved_s) > 10
    for job, time_s in policy.reserved_s.items():
        assert starts[job] <= time_s
    assert sum(starts[job] == time_s for job, time_s in policy.reserved_s.items()) > 0.8 * len(policy.reserved_s)
    overtaken = sum(starts[job] > min([starts[later] for later in range(job + 1, len(jobs))]) for job in range(149))
    assert overtaken > 10
    for job, taken in nodes.items():  # every segment lies within a rack
        size, racks = jobs[job].tasks[0].instances, [sum(node // 5 == rack for node in taken) for rack in range(5)]
        segment = min(size, 4) if segments else size
        assert sum(count // segment for count in racks) >= size // segment
