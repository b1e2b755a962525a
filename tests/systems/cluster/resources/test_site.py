"""Rules of a site that bind every policy: eligibility, partitions, constraints, reservations, licences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from systems.cluster.site_jobs import BINDING, GPU, cluster, job, placed

from dagsim.errors import IllegalDecision, ModelError
from dagsim.model import (
    GPU_TYPES,
    Cluster,
    InFlight,
    Job,
    Kind,
    Node,
    NodeOutage,
    NodePartition,
    NodeReservation,
    QueueTree,
    Request,
    Share,
    Start,
    Task,
)
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.api import ClusterView
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.policies import POLICIES


@pytest.mark.parametrize("policy", BINDING)
def test_a_job_runs_only_on_the_nodes_of_its_partition(policy: str) -> None:
    queues = QueueTree(partitions=(NodePartition("slow", ("s0",)), NodePartition("fast", ("f0",))))
    jobs = [job("first", 0, 10, 4, partition="fast"), job("next", 1, 5, 4, partition="fast")]
    assert placed(jobs, policy, queues) == {"first": (0, 1), "next": (10, 1)}


@pytest.mark.parametrize("policy", BINDING)
def test_a_job_for_several_partitions_takes_the_one_with_room(policy: str) -> None:
    queues = QueueTree(partitions=(NodePartition("slow", ("s0",)), NodePartition("fast", ("f0",))))
    both = Request(partitions=("fast", "slow"))
    jobs = [job("first", 0, 10, 4, partition="fast"), job("next", 1, 5, 4, partition="fast", request=both)]
    assert placed(jobs, policy, queues)["next"] == (1, 0)


@pytest.mark.parametrize("policy", BINDING)
@pytest.mark.parametrize(("constraint", "node"), [("slow", 0), ("fast&big", 1), ("!fast", 0), ("(none|fast)&big", 1)])
def test_every_node_of_a_job_satisfies_its_constraint(policy: str, constraint: str, node: int) -> None:
    assert placed([job("j", 0, 5, request=Request(constraint))], policy)["j"] == (0, node)


@pytest.mark.parametrize("policy", BINDING)
def test_all_nodes_of_a_job_take_the_same_way_of_a_constraint_in_brackets(policy: str) -> None:
    """A gang over both nodes would mix them: with brackets it can never run, without it does."""
    if policy.startswith("slurm"):
        policy = policy.replace("[", "[gangs=distinct,")
    pair = Task("t", 5, instances=2, gang=True, gpus=3, cpus=1, estimate=5)
    jobs = [
        Job.single("same", pair, 0, request=Request("[slow|fast]")),
        Job.single("any", pair, 0, request=Request("slow|fast")),
        Job.single("counted", pair, 0, request=Request("[slow*1&fast*1]")),
        Job.single("some", pair, 0, request=Request("fast*1")),
    ]
    schedule = ClusterKernel(cluster(), jobs).run(POLICIES.create(policy))
    started = {schedule.jobs[row.job].id: row.job for row in schedule.log if row.kind == Kind.STARTED}
    assert set(started) == {"any", "counted", "some"}


@pytest.mark.parametrize("policy", BINDING)
def test_counts_of_a_constraint_hold_for_the_nodes_of_a_job_together(policy: str) -> None:
    """Seven empty nodes: four red, two blue and one of both colours."""
    if policy.startswith("slurm"):
        policy = policy.replace("[", "[gangs=distinct,")
    colours = [("red",)] * 4 + [("blue",)] * 2 + [("red", "blue", "gold")]
    nodes = tuple([Node(f"m{number}", None, 0, 8, 64, features) for number, features in enumerate(colours)])

    def chosen(constraint: str, width: int) -> list[set[str]] | None:
        part = Task("t", 5, instances=width, gang=True, gpus=0, cpus=1, estimate=5)
        kernel = ClusterKernel(Cluster(nodes), [Job.single("j", part, 0, request=Request(constraint))])
        log = kernel.run(POLICIES.create(policy)).log
        rows = [row for row in log if row.kind == Kind.STARTED]
        assert len(rows) in (0, width)
        return [set(colours[row.node]) for row in rows] or None

    pairs = chosen("[red*2&blue*2]", 4)
    assert pairs is not None
    assert sum("blue" in of for of in pairs) == 2
    assert sum("gold" in of for of in chosen("gold*1", 3) or ()) == 1
    both = chosen("red*1&blue*1&gold*1", 1)  # one node may serve several counts, unless they stand in brackets
    assert both == [{"red", "blue", "gold"}]
    assert chosen("[red*1&gold*1]", 2) is not None
    assert chosen("[blue*3&gold*1]", 4) is None  # gold is one of the three
    assert chosen("gold*2", 3) is None


@pytest.mark.parametrize("policy", [*BINDING, "dls"])
def test_the_only_node_of_a_gang_meets_all_counts(policy: str) -> None:
    """The first node has room, and only the second is both fast and big."""

    def nodes_of(constraint: str) -> list[int]:
        gang = Job.single("j", Task("t", 5, gang=True, gpus=1, cpus=1, estimate=5), request=Request(constraint))
        log = ClusterKernel(cluster(), [gang]).run(POLICIES.create(policy)).log
        return [row.node for row in log if row.kind == Kind.STARTED]

    assert nodes_of("slow*1") == [0]
    assert nodes_of("fast*1&big*1") == [1]
    assert nodes_of("[fast*1&big*1]") == []  # the counts in brackets need a node each
    assert nodes_of("fast*2") == []


def test_a_gang_on_nodes_that_do_not_meet_its_counts_is_an_illegal_decision() -> None:
    class Careless:
        def decide(self, view: ClusterView) -> Iterator[Start]:
            for task in view.ready:
                yield Start(task, (Share(0), Share(1)))

    nodes = [*cluster().nodes, Node("f1", GPU, 4, 8, 64, ("fast",))]
    gang = Job.single("j", Task("t", 5, instances=2, gang=True, gpus=1, estimate=5), request=Request("fast*2"))
    with pytest.raises(IllegalDecision, match=r"requires nodes that meet fast\*2, but s0, f0 do not"):
        ClusterKernel(Cluster(tuple(nodes)), [gang]).run(Careless())


def test_a_gang_that_ran_on_two_gpu_types_is_not_rejected_for_its_counts() -> None:
    nodes = [Node(f"{name}{at}", GPU_TYPES[gpu], 2, 8, 64, (name,)) for name, gpu in (("t", "T4"), ("v", "V100-16"))
             for at in range(2)]  # fmt: skip
    part = Task("t", 5, instances=2, gang=True, gpus=1, cpus=1, estimate=5)
    jobs = [
        Job.single("both", part, 0, request=Request("[t*1&v*1]")),
        Job.single("none", part, 0, request=Request("[t*1&x*1]")),
    ]
    log = ClusterKernel(Cluster(tuple(nodes)), jobs).run(POLICIES.create("fifo")).log
    assert {row.job for row in log if row.kind == Kind.STARTED} == {0}
    assert {row.job for row in log if row.kind == Kind.REJECTED} == {1}


@pytest.mark.parametrize("policy", BINDING)
def test_named_and_excluded_nodes_bind_on_a_cluster_without_other_rules(policy: str) -> None:
    """No node has a feature, and there is no partition, reservation or licence."""
    plain = Cluster(tuple([replace(node, features=()) for node in cluster().nodes]))
    requests = {
        "named": Request(nodes=("f0",)),
        "kept_away": Request(excluded=("s0",)),
        "nowhere": Request(excluded=("s0", "f0")),
        "free": Request(),
    }
    jobs = [job(name, 0, 5, request=request) for name, request in requests.items()]
    schedule = ClusterKernel(plain, jobs).run(POLICIES.create(policy))
    nodes = {schedule.jobs[row.job].id: row.node for row in schedule.log if row.kind == Kind.STARTED}
    assert nodes == {"named": 1, "kept_away": 1, "free": nodes["free"]}
    assert [schedule.jobs[row.job].id for row in schedule.log if row.kind == Kind.REJECTED] == ["nowhere"]


@pytest.mark.parametrize("policy", BINDING)
def test_jobs_hold_licences_while_they_run(policy: str) -> None:
    asked = Request(licences=(("matlab", 1),))
    jobs = [job("one", 0, 10, request=asked), job("two", 1, 5, request=asked), job("other", 2, 5)]
    got = placed(jobs, policy, QueueTree(licences={"matlab": 1}))
    assert got["two"][0] == 10
    assert got["other"][0] == (2 if policy != "fifo" else 10)  # strict fifo waits behind the job without a licence


@pytest.mark.parametrize("policy", BINDING)
def test_no_job_whose_limit_crosses_a_reservation_starts_on_its_nodes(policy: str) -> None:
    queues = QueueTree(reservations=(NodeReservation("maint", ("s0", "f0"), 30, 50),))
    jobs = [job("short", 0, 10, limit_s=30), job("long", 1, 10, limit_s=40)]
    got = placed(jobs, policy, queues)
    assert (got["short"][0], got["long"][0]) == (0, 50)


@pytest.mark.parametrize("policy", BINDING)
def test_the_jobs_of_a_reservation_run_inside_it(policy: str) -> None:
    queues = QueueTree(reservations=(NodeReservation("course", ("f0",), 30, 50),))
    jobs = [job("pupil", 0, 5, request=Request(reservation="course")), job("other", 31, 5, gpus=4)]
    assert placed(jobs, policy, queues) == {"pupil": (30, 1), "other": (31, 0)}


@pytest.mark.parametrize("policy", ["fifo", "defrag", "easy"])
def test_where_no_gpu_type_meets_the_counts_the_features_bind_alone(policy: str) -> None:
    """Two V100 nodes have ``a``, a gang takes three nodes, and only the T4 node has room for it from the beginning."""
    nodes = [Node("v0", GPU_TYPES["V100-16"], 4, 8, 64, ("a",)), Node("v1", GPU_TYPES["V100-16"], 1, 8, 64, ("a",))]
    nodes.append(Node("t0", GPU_TYPES["T4"], 4, 8, 64, ("b",)))
    first = Job.single("first", Task("t", 10, gpus=3, gpu_types=("V100-16",), estimate=10))
    gang = Job.single("gang", Task("t", 5, instances=3, gang=True, gpus=1, estimate=5), 1, request=Request("a*2"))
    schedule = ClusterKernel(Cluster(tuple(nodes)), [first, gang]).run(POLICIES.create(policy))
    assert {row.node for row in schedule.log if row.kind == Kind.STARTED and row.job == 1} <= {0, 1}
    assert {row.job for row in schedule.log if row.kind == Kind.COMPLETED} == {0, 1}


def test_backfill_reserves_nodes_around_a_reservation() -> None:
    # "wide" needs both nodes' GPUs in turn; it cannot begin before 50 s, and "small" may run until then
    queues = QueueTree(reservations=(NodeReservation("maint", ("s0", "f0"), 40, 50),))
    jobs = [job("now", 0, 20, 4), job("wide", 1, 30, 4, limit_s=45), job("small", 2, 5, 4, limit_s=35)]
    got = placed(jobs, "slurm-multifactor[order=basic,bf_interval_s=1,bf_resolution_s=1]", queues)
    assert (got["small"][0], got["wide"][0]) == (2, 50)


def test_a_fork_keeps_licences_reservations_and_jobs_that_are_not_eligible() -> None:
    queues = QueueTree(licences={"matlab": 1}, reservations=(NodeReservation("maint", ("s0",), 30, 50),))
    asked = Request(licences=(("matlab", 1),))
    jobs = [job("one", 0, 10, request=asked), job("two", 1, 5, request=asked), job("held", 2, 5, eligible_s=40.0)]
    kernel = ClusterKernel(cluster(), jobs, Models(queues=queues))
    kernel.run(POLICIES.create("fifo-fit"), until_s=5)
    twin = kernel.fork()
    logs = [list(simulation.run(POLICIES.create("fifo-fit")).log) for simulation in (kernel, twin)]
    assert logs[0] == logs[1]


@pytest.mark.parametrize("policy", BINDING)
def test_nothing_starts_on_a_drained_node_and_its_runs_go_on(policy: str) -> None:
    queues = QueueTree(outages=(NodeOutage(("s0",), 5, 30), NodeOutage(("f0",), 1)))
    jobs = [job("runs", 0, 10, 4, request=Request("slow")), job("waits", 6, 3, 4), job("later", 40, 3, 4)]
    assert placed(jobs, policy, queues) == {"runs": (0, 0), "waits": (30, 0), "later": (40, 0)}


@pytest.mark.parametrize("policy", BINDING)
def test_runs_fail_on_a_node_that_goes_down_and_start_again(policy: str) -> None:
    queues = QueueTree(outages=(NodeOutage(("s0",), 4, 20, "down"), NodeOutage(("s0",), 15, 25, "down")))
    schedule = ClusterKernel(cluster(), [job("a", 0, 10, request=Request("slow"))], Models(queues=queues)).run(
        POLICIES.create(policy)
    )
    rows = [(row.kind, row.time_s) for row in schedule.log if row.kind in (Kind.STARTED, Kind.FAILED, Kind.FINISHED)]
    again_s = 125 if policy.startswith("slurm") else 25  # Slurm holds a requeued job back for two minutes
    assert rows == [(Kind.STARTED, 0), (Kind.FAILED, 4), (Kind.STARTED, again_s), (Kind.FINISHED, again_s + 10)]


def test_outages_are_on_the_clock_of_the_log() -> None:
    queues = QueueTree(outages=(NodeOutage(("s0", "f0"), 1000, 1030), NodeOutage(("s0",), 1060, 1070, "down")))
    kernel = ClusterKernel(
        cluster(), [job("a", 5, 50, request=Request("slow"))], Models(queues=queues), origin_s=1000.0
    )
    schedule = kernel.run(POLICIES.create("fifo"))
    assert [row.time_s for row in schedule.log if row.kind == Kind.STARTED] == [30, 70]


def test_an_outage_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ModelError, match="outage: the end must follow the beginning, got 5 to 5"):
        NodeOutage(("s0",), 5, 5)


def test_a_run_that_began_before_keeps_its_node_whatever_its_constraint_counts() -> None:
    nodes = tuple([Node(f"n{at}", None, 0, 8, 64, features) for at, features in enumerate((("red",), (), ()))])
    part = Task("t", 50, instances=2, gang=True, gpus=0, cpus=1, estimate=50)
    past = (InFlight(0.0, (Share(1, 2),)),)
    job = Job.single("j", part, 0, request=Request("red*1"), in_flight=past)
    log = ClusterKernel(Cluster(nodes), [job], begins_s=10.0).run(POLICIES.create("fifo")).log
    assert [row.time_s for row in log if row.kind == Kind.FINISHED] == [50.0]
