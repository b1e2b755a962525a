"""The causes of waits: worked examples in which one kind of cause is the true one, and what can never be said."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.command_line import fine, invoke

from dagsim.errors import InputError
from dagsim.metrics.why import wait_reasons
from dagsim.model import (
    Caps,
    Cluster,
    Edge,
    Job,
    Kind,
    Node,
    NodePartition,
    Qos,
    QueueNode,
    QueueTree,
    Request,
    Task,
    TaskGraph,
    gpu_type,
)
from dagsim.model.log import Schedule
from dagsim.own_code import Allowed, allow
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.failures import Maintenance
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.cluster.waits.causes import Stretch, binding_causes, causes_by_time
from dagsim.systems.cluster.waits.present import Obstacles
from dagsim.systems.cluster.waits.wait_rules import rules_of_named

FIFO = "slurm-multifactor[order=basic,bf_interval_s=1,bf_resolution_s=1]"


def job(name: str, seconds: float, gpus: float, arrival_s: float = 0.0, **rest: object) -> Job:
    asked = {key: rest.pop(key) for key in ("cpus", "memory_gb", "instances", "gang", "gpu_types") if key in rest}
    return Job.single(name, Task("t", seconds, gpus=gpus, **asked), arrival_s, **rest)  # type: ignore[arg-type]


def nodes(count: int = 2, gpus: int = 2, kind: str = "T4", cpus: float = 8, memory_gb: float = 64) -> tuple[Node, ...]:
    return tuple([Node(f"{kind}-{at}", gpu_type(kind), gpus, cpus, memory_gb) for at in range(count)])


def why(
    jobs: Sequence[Job],
    name: str,
    machines: tuple[Node, ...] = nodes(),
    policy: str = "fifo-fit",
    queues: QueueTree | None = None,
    **models: object,
) -> list[tuple[float, float, tuple[str, ...]]]:
    """From when to when the job waited, and for what."""
    kernel = ClusterKernel(Cluster(machines), jobs, Models(queues=queues, **models))  # type: ignore[arg-type]
    schedule = kernel.run(POLICIES.create(policy))
    number = [fact.id for fact in schedule.jobs].index(name)
    return [
        (stretch.from_s, stretch.until_s, kinds(stretch))
        for stretch in explained(schedule, jobs, number, policy, queues)
    ]


def explained(
    schedule: Schedule, jobs: Sequence[Job], number: int, policy: str, queues: QueueTree | None = None
) -> tuple[Stretch, ...]:
    return binding_causes(schedule, jobs, number, wait_reasons(schedule, number).periods, policy, queues)


def kinds(stretch: Stretch) -> tuple[str, ...]:
    return tuple([str(cause.kind) for cause in stretch.causes])


def test_too_few_gpus_are_told_from_gpus_that_are_not_together() -> None:
    jobs = [job("a", 10, 2), job("b", 6, 1), job("b2", 4, 1), job("c", 5, 2, 1.0)]
    # until 4 s nothing is free, then a GPU, from 6 s on a whole node
    assert why(jobs, "c") == [(1, 6, ("gpus",))]
    apart = [job("a", 10, 1), job("x", 2, 1), job("b", 6, 1), job("y", 2, 1), job("c", 5, 2, 1.0)]
    assert why(apart, "c") == [(1, 2, ("gpus",)), (2, 6, ("scattered",))]


def test_conditions_of_a_job_are_named_until_they_are_met() -> None:
    two = Request(array="7", array_limit=1)
    jobs = [job("a", 10, 1), job("b", 6, 1), job("7_1", 12, 1, request=two), job("7_2", 1, 1, request=two)]
    jobs += [
        job("after", 5, 1, 1.0, request=Request(after=("a",), begin_s=12.0)),
        job("start", 1, 1, 1.0, request=Request(after=("start:b+2", "start:after"))),
        job("one", 1, 1, 1.0, request=Request(after=("a", "b"), after_one=True)),
        job("held", 1, 1, 1.0, eligible_s=8.0),
    ]
    schedule = ClusterKernel(Cluster(nodes(1, 3)), jobs).run(POLICIES.create("fifo-fit"))
    reasons = {
        fact.id: [
            (stretch.from_s, stretch.until_s, *[cause.what for cause in stretch.causes])
            for stretch in explained(schedule, jobs, number, "fifo-fit")
        ]
        for number, fact in enumerate(schedule.jobs)
    }
    later = "its begin time had not come"
    assert reasons == {
        "a": [],
        "b": [],
        "7_1": [],
        "7_2": [(0, 12, "its array may have 1 of its tasks in the system at a time")],
        "after": [(1, 10, "job a had not ended", later), (10, 13, later)],
        "start": [
            (1, 2, "it was to wait 2 s after the start of job b", "job after had not started"),
            (2, 13, "job after had not started"),
        ],
        "one": [(1, 6, "jobs a, b had not ended (one is enough)")],
        "held": [(1, 8, "according to the log, it was not eligible yet (a hold or a dependency)")],
    }


def test_limits_of_a_users_own_policy_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_limits.py").write_text(
        "from dagsim.systems.cluster.api import WaitRules\n"
        "from dagsim.systems.cluster.policies import POLICIES\n"
        "class Rules(WaitRules):\n"
        "    def limits(self, task):\n"
        "        return [f'{task.job.job.id} may not start']\n"
        "class Own:\n"
        "    def decide(self, view):\n"
        "        yield from POLICIES.create('fifo').decide(view)\n"
        "    def wait_rules(self, view):\n"
        "        return Rules()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    jobs, own = [job("a", 10, 2), job("b", 1, 1, 1.0)], "own_limits:Own"
    assert why(jobs, "b", nodes(1), own) == [(1, 10, ("limit", "gpus"))]
    schedule = ClusterKernel(Cluster(nodes(1)), jobs).run(POLICIES.create(own))
    with allow(Allowed()):  # a command that must not import it explains the wait without its limits
        (stretch,) = explained(schedule, jobs, 1, own)
    assert kinds(stretch) == ("gpus",)


def test_gpus_of_types_that_a_job_may_not_use_do_not_count() -> None:
    machines = (*nodes(1, 2, "T4"), *nodes(1, 4, "V100-16"))
    jobs = [job("a", 10, 2, gpu_types=("T4",)), job("b", 1, 1, 1.0, gpu_types=("T4",))]
    assert why(jobs, "b", machines) == [(1, 10, ("gpus",))]


@pytest.mark.parametrize(("what", "kind"), [({"cpus": 6}, "cpus"), ({"memory_gb": 60}, "memory")])
def test_what_lacks_beside_free_gpus_is_named(what: dict[str, float], kind: str) -> None:
    jobs = [job("a", 10, 1, **what), job("b", 1, 1, 1.0, **what)]
    assert why(jobs, "b", nodes(1)) == [(1, 10, (kind,))]
    # c takes the second GPU until 5 s: then both are lacking
    jobs.insert(1, job("c", 5, 1))
    assert why(jobs, "b", nodes(1)) == [(1, 5, ("gpus", kind)), (5, 10, (kind,))]


def test_parts_of_gpus_that_are_too_small_are_fragmented() -> None:
    jobs = [job("a", 10, 0.6), job("b", 6, 0.6), job("c", 1, 0.7, 1.0)]
    assert why(jobs, "c", nodes(1)) == [(1, 6, ("fragmented",))]
    whole = [job("a", 10, 0.5), job("b", 6, 0.5), job("b2", 10, 0.5), job("c", 1, 1, 1.0)]
    # a and b share one GPU, b2 has the other: 0.5 is free, from 6 s on half of each
    assert why(whole, "c", nodes(1)) == [(1, 6, ("gpus",)), (6, 10, ("fragmented",))]


def test_a_node_that_is_down_is_named_with_what_else_binds() -> None:
    down = Maintenance(nodes=(1,), start_s=0.5, end_s=8.0)
    jobs = [job("a", 20, 2), job("b", 1, 2, 1.0)]
    assert why(jobs, "b", failures=(down,)) == [(1, 8, ("gpus", "down"))]
    both = [job("b", 1, 2, 1.0, instances=2, gang=True)]
    assert why(both, "b", failures=(down,)) == [(1, 8, ("down",))]


def test_a_job_that_would_fit_is_kept_by_the_order() -> None:
    jobs = [job("a", 10, 2), job("b", 3, 2, 1.0, instances=2, gang=True), job("c", 2, 1, 2.0)]
    assert why(jobs, "c", policy="fifo") == [(2, 10, ("order",)), (10, 13, ("gpus",))]


def test_each_limit_of_slurm_is_named_with_who_has_reached_it() -> None:
    lab = QueueNode("lab", limits=Caps(gpus=3), user_limits=Caps(jobs=1))
    queues = QueueTree(
        tree=(lab,),
        qos=(Qos("normal", user_limits=Caps(cpus=4)),),
        partitions=(NodePartition("p", limits=Caps(jobs=2)),),
    )
    ada, bo = {"account": "lab", "user": "ada"}, {"account": "lab", "user": "bo"}
    jobs = [job("a", 10, 2, **ada), job("b", 1, 1, 1.0, **ada), job("c", 1, 2, 2.0, **bo), job("d", 1, 1, 3.0, cpus=5)]

    def causes_of(name: str, among: Sequence[Job]) -> list[str]:
        schedule = ClusterKernel(Cluster(nodes(2)), among, Models(queues=queues)).run(POLICIES.create(FIFO))
        number = [fact.id for fact in schedule.jobs].index(name)
        return [cause.what for stretch in explained(schedule, among, number, FIFO, queues) for cause in stretch.causes]

    assert causes_of("b", jobs[:3]) == ["the limit of 1 running jobs of the user ada in the account lab was reached"]
    assert causes_of("c", jobs[:3]) == ["the limit of 3 GPUs of the account lab was reached"]
    eve = [job(f"e{at}", 5, 1, 0.1 * at, cpus=2 if at else 3, user="eve", account="x") for at in range(2)]
    assert causes_of("e1", eve) == ["the limit of 4 CPUs of the user eve in the QOS normal was reached"]
    many = [job(f"m{at}", 5, 1, 0.1 * at, user=f"u{at}", account="x") for at in range(3)]
    assert causes_of("m2", many) == ["the limit of 2 running jobs of the partition p was reached"]
    # without the limit it would have started: another policy knows nothing of it
    assert why(jobs[:2], "b", queues=queues) == []


def test_a_limit_and_too_few_gpus_bind_together() -> None:
    queues = QueueTree(tree=(QueueNode("lab", limits=Caps(gpus=2)),))
    jobs = [job("a", 10, 2, account="lab"), job("x", 6, 2, account="y"), job("b", 1, 1, 1.0, account="lab")]
    waits = why(jobs, "b", policy=FIFO, queues=queues)
    assert waits == [(1, 6, ("limit", "gpus")), (6, 10, ("limit",))]
    # the other way round: what the account held comes back at 6 s
    jobs = [job("a", 6, 1, account="lab"), job("x", 10, 1, account="y"), job("b", 1, 2, 1.0, account="lab")]
    waits = why(jobs, "b", nodes(1), FIFO, queues)
    assert waits == [(1, 6, ("limit", "gpus")), (6, 10, ("gpus",))]


def test_a_gang_counts_with_all_its_instances() -> None:
    queues = QueueTree(tree=(QueueNode("lab", limits=Caps(gpus=3)),))
    jobs = [job("a", 10, 1, account="lab", instances=2, gang=True), job("b", 1, 2, 1.0, account="lab")]
    assert why(jobs, "b", policy=FIFO, queues=queues) == [(1, 10, ("limit",))]


def test_room_outside_the_partition_and_on_whole_nodes_is_told() -> None:
    queues = QueueTree(partitions=(NodePartition("all"), NodePartition("small", nodes=("T4-0",))))
    jobs = [job("a", 10, 2, partition="small"), job("b", 1, 1, 1.0, partition="small")]
    assert why(jobs, "b", policy=FIFO, queues=queues) == [(1, 10, ("gpus", "elsewhere"))]
    alone = QueueTree(partitions=(NodePartition("whole", exclusive=True),))
    assert why([job("a", 10, 1), job("b", 1, 1, 1.0)], "b", nodes(1), FIFO, alone) == [(1, 10, ("whole_nodes",))]


@pytest.mark.family("kubernetes")
def test_quotas_of_kueue_are_told_used_up_or_lent() -> None:
    tree = QueueNode("cohort", children=(QueueNode("a", quota={"gpus": 2}), QueueNode("b", quota={"gpus": 1})))
    queues = QueueTree(tree=(tree,))
    jobs = [
        job("x", 10, 1, account="a"),
        job("y", 10, 1, account="a"),
        job("z", 6, 1, account="a"),
        job("b", 1, 1, 1.0),
    ]
    jobs[3] = job("b", 1, 1, 1.0, account="b")

    def causes_of(among: Sequence[Job], number: int) -> list[str]:
        schedule = ClusterKernel(Cluster(nodes(2)), among, Models(queues=queues)).run(POLICIES.create("kueue"))
        return [
            cause.what for stretch in explained(schedule, among, number, "kueue", queues) for cause in stretch.causes
        ]

    assert causes_of(jobs, 3) == ["the quota of 1 gpus of the queue b was lent to others"]
    more = [*jobs[:3], job("w", 1, 1, 1.0, account="a")]
    alone = QueueTree(tree=(QueueNode("a", quota={"gpus": 2}), QueueNode("b", quota={"gpus": 2})))
    few = [job("x", 6, 1, account="a"), job("y", 10, 1, account="b"), job("w", 1, 2, 1.0, account="a")]
    assert why(few, "w", nodes(1), "kueue", alone) == [(1, 6, ("limit", "gpus")), (6, 10, ("gpus",))]
    assert causes_of(more, 3) == ["the quota of 2 gpus of the queue a was used up, and its cohort could lend no more"]


def test_a_quota_of_memory_is_told_in_the_gb_of_the_configuration() -> None:
    tree = QueueNode("cohort", children=(QueueNode("a", quota={"memory_gb": 6}), QueueNode("b", quota={"gpus": 4})))

    def asking(name: str, arrival_s: float) -> Job:
        return Job.single(name, Task("t", 10.0, memory_gb=4.0), arrival_s, account="a")

    roomy = tuple([replace(node, memory_gb=64.0) for node in nodes(1)])
    queues, jobs = QueueTree(tree=(tree,)), [asking("x", 0.0), asking("y", 1.0)]
    schedule = ClusterKernel(Cluster(roomy), jobs, Models(queues=queues)).run(POLICIES.create("kueue"))
    (stretch,) = explained(schedule, jobs, 1, "kueue", queues)
    assert [cause.what for cause in stretch.causes] == [
        "the quota of 6 memory_gb of the queue a was used up, and its cohort could lend no more"
    ]


def test_a_job_of_several_tasks_waits_for_the_task_that_starts_next() -> None:
    graph = TaskGraph((Task("first", 2, gpus=1), Task("wide", 2, gpus=2)), (Edge(0, 1),))
    jobs = [job("a", 9, 1), Job("dag", graph, 0.0), job("b", 7, 1, 1.0)]
    assert why(jobs, "dag", nodes(1)) == [(2, 9, ("gpus",))]
    roots = TaskGraph((Task("fat", 2, gpus=2, cpus=8), Task("thin", 2, gpus=1)))
    jobs = [job("a", 4, 1, cpus=1), job("a2", 9, 1, cpus=1), Job("dag", roots, 1.0)]
    assert why(jobs, "dag", nodes(1)) == [(1, 4, ("gpus",)), (6, 9, ("gpus", "cpus"))]


def random_jobs(rng: random.Random, count: int = 60) -> list[Job]:
    jobs, now = [], 0.0
    for number in range(count):
        now += rng.expovariate(0.5)
        gpus = rng.choice((0, 0.3, 0.5, 0.8, 1, 1, 2, 4))
        gang = gpus >= 1 and rng.random() < 0.2
        asked = {"cpus": rng.choice((0, 1, 5)), "memory_gb": rng.choice((0, 4, 40)), "gang": gang}
        types = rng.choice((None, ("T4",), ("V100-16",))) if gpus else None
        account = rng.choice(("a", "b"))
        extra = {"instances": rng.choice((2, 3)) if gang else 1, "gpu_types": types, "account": account, **asked}
        jobs.append(job(f"j{number}", rng.uniform(1, 30), gpus, now, user=rng.choice("uv"), **extra))
    return jobs


@pytest.mark.parametrize("policy", ["fifo-fit", "fifo-fit[placement=fgd]"])
def test_who_starts_whenever_there_is_room_is_never_kept_by_the_order(policy: str) -> None:
    machines = (*nodes(2, 4), *nodes(2, 4, "V100-16"))
    down = Maintenance(nodes=(0,), start_s=30, end_s=60)
    seen: set[str] = set()
    for seed in range(3):
        jobs = random_jobs(random.Random(seed))
        kernel = ClusterKernel(Cluster(machines), jobs, Models(failures=(down,)))
        schedule = kernel.run(POLICIES.create(policy))
        for number in range(0, len(jobs), 2):
            if not _rejected(schedule, number):
                stretches = explained(schedule, jobs, number, policy)
                waited = sum(seconds for _, seconds in causes_by_time(stretches))
                assert waited == pytest.approx(wait_reasons(schedule, number).queueing_s)
                seen |= {kind for stretch in stretches for kind in kinds(stretch)}
    assert "order" not in seen
    assert {"gpus", "cpus", "memory"} <= seen


def _rejected(schedule: Schedule, number: int) -> bool:
    return any(row.kind == Kind.REJECTED and row.job == number for row in schedule.log)


def test_other_jobs_than_those_of_the_schedule_are_refused() -> None:
    jobs = [job("a", 10, 2), job("b", 1, 2, 1.0)]
    schedule = ClusterKernel(Cluster(nodes(1)), jobs).run(POLICIES.create("fifo"))
    for others in ([], jobs[:1], [job("z", 1, 1)]):
        with pytest.raises(InputError, match="is not in the workload"):
            explained(schedule, others, 1, "fifo")


@pytest.mark.parametrize(
    ("gpus", "instances", "gang", "obstacle"),
    [
        (2, 1, False, ""),
        (2, 2, True, ""),
        (2, 9, False, ""),  # its instances start one by one
        (2, 3, True, "its partition, idle, has no room for 3 x (2 GPUs)"),  # two nodes have room for two of three
        (3, 1, False, "its partition, idle, has no room for 3 GPUs"),  # only the other partition has such a node
        (5, 1, False, "the cluster, idle, has no room for 5 GPUs"),
    ],
)
def test_a_job_that_its_partition_could_never_hold_is_told_so(
    gpus: int, instances: int, gang: bool, obstacle: str
) -> None:
    machines = (*nodes(3, 2), *nodes(1, 4, "V100-16"))
    small, large = NodePartition("small", ("T4-0", "T4-1")), NodePartition("large", ("T4-2", "V100-16-0"))
    scenario = ClusterScenario(Cluster(machines), [], queues=QueueTree(partitions=(small, large)))
    asked = job("j", 1.0, gpus, instances=instances, gang=gang, partition="small")
    assert obstacle in Obstacles(scenario, partial(rules_of_named, "fifo")).of(asked, 0.0)
    assert bool(obstacle) == bool(Obstacles(scenario, partial(rules_of_named, "fifo")).of(asked, 0.0))


@pytest.mark.family("fabric")
def test_a_gang_of_one_rack_waits_for_nodes_that_are_down_although_others_are_free(tmp_path: Path) -> None:
    """Two racks of three nodes, one node of each down until 80 s: four nodes are free, but no rack has three."""
    (tmp_path / "c.yaml").write_text(
        "cluster: {groups: [{name: r, count: 6, gpu: T4, gpus: 1}]}\n"
        "network: {kind: shared, topology: {kind: fat_tree, down: [3, 2], up: [1, 1], count: [1, 1], "
        "bandwidth_gb_s: 10}}\n"
        "queues: {outages: [{nodes: [r-1, r-4], start_s: 0, end_s: 80, kind: down}]}\n"
    )
    (tmp_path / "jobs.csv").write_text(
        "id,arrival_s,gpus,duration_s,instances,gang,level,level_required\nwide,0,1,20,3,true,rack,true\n"
        "narrow,5,1,20,1,false,,\n"
    )
    out = tmp_path / "runs"
    common = ["--trace", str(tmp_path / "jobs.csv"), "--config", str(tmp_path / "c.yaml"), "--no-plots"]
    fine("replay", *common, "--policy", "topology", "--out", out)
    told = invoke("why", next(out.iterdir()), "wide", "--json")
    assert "nodes were down, and all of its nodes must be of one rack" in told.output
    assert "the order of" not in told.output
