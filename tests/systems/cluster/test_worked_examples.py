"""Small schedules worked out by hand; the arithmetic stands in the comments."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from support.scripted_policy import Scripted

from dagsim.errors import IllegalDecision, ModelError, Stalled
from dagsim.model import (
    Admit,
    Cluster,
    Decision,
    Edge,
    Job,
    Kind,
    Migrate,
    Node,
    Preempt,
    Reject,
    RejectReason,
    Share,
    Start,
    Task,
    TaskGraph,
    Wait,
    gpu_type,
)
from dagsim.model.log import Schedule
from dagsim.systems.cluster import (
    ClusterKernel,
    Estimates,
    Maintenance,
    MovingDelay,
    NodeFailures,
    Preemption,
    UniformNetwork,
)
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.failures import Outages
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.view import ClusterView

A100, T4 = gpu_type("A100-40"), gpu_type("T4")


def gpus(*counts: int, cpus: float = 8, memory_gb: float = 64) -> Cluster:
    """One node of A100 per count."""
    return Cluster(tuple(Node(f"n{index}", A100, count, cpus, memory_gb) for index, count in enumerate(counts)))


def dag(*works: float, edges: Iterable[tuple[int, int]] = (), size: float = 0.0, arrival_s: float = 0.0) -> Job:
    """A job of one-GPU tasks ``t0``, ``t1`` ..."""
    tasks = tuple(Task(f"t{index}", work) for index, work in enumerate(works))
    return Job("j", TaskGraph(tasks, tuple(Edge(parent, child, size) for parent, child in edges)), arrival_s)


def run(cluster: Cluster, jobs: Iterable[Job], policy: str = "fifo-fit", **models: object) -> Schedule:
    return ClusterKernel(cluster, jobs, Models(**models)).run(POLICIES.create(policy))  # type: ignore[arg-type]


def times(schedule: Schedule, kind: Kind) -> list[tuple[float, int, int]]:
    """``(time, job, task)`` of every row of a kind."""
    return [(row.time_s, row.job, row.task) for row in schedule.log if row.kind == kind]


def test_a_chain_takes_the_sum() -> None:
    # 1 + 2 + 3 = 6, however many GPUs there are.
    schedule = run(gpus(8), [dag(1, 2, 3, edges=[(0, 1), (1, 2)])])
    assert times(schedule, Kind.FINISHED) == [(1, 0, 0), (3, 0, 1), (6, 0, 2)]
    assert times(schedule, Kind.COMPLETED) == [(6, 0, -1)]


def test_a_diamond_waits_for_its_longer_side() -> None:
    # 1, then 2 beside 5, then 1: 1 + 5 + 1 = 7 on two GPUs, 1 + 2 + 5 + 1 = 9 on one.
    diamond = dag(1, 2, 5, 1, edges=[(0, 1), (0, 2), (1, 3), (2, 3)])
    assert run(gpus(2), [diamond]).ended_s == 7
    assert run(gpus(1), [diamond]).ended_s == 9


def test_fork_join_runs_in_waves() -> None:
    # Five tasks of 2 s on two GPUs are three waves: 1 + 3 x 2 + 1 = 8.
    edges = [(0, child) for child in range(1, 6)] + [(parent, 6) for parent in range(1, 6)]
    assert run(gpus(2), [dag(1, 2, 2, 2, 2, 2, 1, edges=edges)]).ended_s == 8


def test_a_gang_spans_nodes_and_starts_whole() -> None:
    # Three instances of two GPUs need nodes of 4 and 2; the 1 s task on node 1 delays them all: 1 + 5 = 6.
    first = Job.single("first", Task("t", 1, gpus=2))
    gang = Job.single("gang", Task("t", 5, instances=3, gang=True, gpus=2))
    schedule = run(gpus(4, 2), [first, gang])
    started = [(row.time_s, row.run, row.node, row.instances) for row in schedule.log if row.kind == Kind.STARTED]
    assert started == [(0, 0, 1, 1), (1, 1, 0, 2), (1, 1, 1, 1)]
    assert schedule.ended_s == 6


def test_fractions_share_a_gpu() -> None:
    # Two halves share the GPU until 4; three quarters fit beside none of them: 4 + 4 = 8.
    works = [Job.single(str(asked), Task("t", 4, gpus=asked)) for asked in (0.5, 0.5, 0.75)]
    schedule = run(gpus(1), works)
    assert times(schedule, Kind.STARTED) == [(0, 0, 0), (0, 1, 0), (4, 2, 0)]


def test_cpu_only_tasks_run_on_cpu_machines() -> None:
    # 5 instances of 2 cores on 4 cores: waves of 2, 2, 1 of 3 s each.
    cluster = Cluster((Node("cpu", None, 0, 4, 16),))
    assert run(cluster, [Job.single("j", Task("t", 3, instances=5, gpus=0, cpus=2))]).ended_s == 9


def test_memory_limits_what_runs_side_by_side() -> None:
    # 64 GB hold two tasks of 30 GB, though four GPUs are there: two waves of 1 s.
    works = [Job.single(str(number), Task("t", 1, memory_gb=30)) for number in range(4)]
    assert run(gpus(4), works).ended_s == 2


def test_instances_that_start_together_are_one_run() -> None:
    # 20 instances on 8 GPUs: runs of 8, 8 and 4 instances, 2 s each.
    schedule = run(gpus(8), [Job.single("j", Task("t", 2, instances=20))])
    started = [(row.time_s, row.instances) for row in schedule.log if row.kind == Kind.STARTED]
    assert started == [(0, 8), (2, 8), (4, 4)]
    assert schedule.ended_s == 6


def test_inside_an_instant_ends_come_before_failures_before_arrivals_before_decisions() -> None:
    # At 5 s the first job ends, node 1 goes down and node 2 comes up, the second job arrives, and starts.
    first = Job.single("first", Task("t", 5, gpus=2))
    jobs = [first, Job.single("second", Task("t", 1, gpus=2), 5.0)]
    schedule = run(gpus(2, 2, 2), jobs, failures=(Maintenance((2,), 1, 5), Maintenance((1,), 5, 9)))
    at_five = [row.kind for row in schedule.log if row.time_s == 5]
    assert at_five[:2] == [Kind.FINISHED, Kind.COMPLETED]
    assert set(at_five[2:4]) == {Kind.DOWN, Kind.UP}
    assert at_five[4:] == [Kind.ARRIVED, Kind.STARTED]


def test_a_run_that_ends_as_its_node_fails_has_finished() -> None:
    schedule = run(gpus(1), [dag(5)], failures=(Maintenance((0,), 5, 6),))
    assert times(schedule, Kind.FINISHED) == [(5, 0, 0)]
    assert times(schedule, Kind.FAILED) == []


def test_jobs_that_can_never_run_are_turned_away_with_the_reason() -> None:
    jobs = [
        Job.single("wide", Task("t", 1, gpus=9)),
        Job.single("gang", Task("t", 1, instances=9, gang=True)),
        Job.single("other", Task("t", 1, gpu_types=("T4",))),
        Job.single("fits", Task("t", 1, instances=9)),
    ]
    schedule = run(gpus(8), jobs)
    rejected = [(row.job, row.value) for row in schedule.log if row.kind == Kind.REJECTED]
    assert rejected == [(0, RejectReason.TOO_LARGE), (1, RejectReason.TOO_LARGE), (2, RejectReason.NO_SUCH_GPU)]
    assert times(schedule, Kind.COMPLETED) == [(2, 3, -1)]


@pytest.mark.parametrize("task", [Task("t", 1, gpus=1e300), Task("t", 1, cpus=1e308), Task("t", 1, memory_gb=1e308)])
def test_a_demand_beyond_counting_is_turned_away(task: Task) -> None:
    schedule = run(gpus(8), [Job.single("j", task)])
    assert [row.value for row in schedule.log if row.kind == Kind.REJECTED] == [RejectReason.TOO_LARGE]


def test_a_policy_that_waits_for_nothing_has_stalled() -> None:
    with pytest.raises(Stalled, match=r"the policy returned no decision at 0 s: 1 ready tasks wait, j/t0 among them"):
        ClusterKernel(gpus(1), [dag(1)]).run(Scripted(lambda view: ()))


CASES = {
    "the placement is empty": lambda task: Start(task, ()),
    "0 instances": lambda task: Start(task, (Share(0, 0),)),
    "3 instances placed, but only 2 waiting": lambda task: Start(task, (Share(0, 3),)),
    "node 't4' is not of a type it may run on": lambda task: Start(task, (Share(2, 1),)),
    r"node 'small' has no room for 2 x": lambda task: Start(task, (Share(1, 2),)),
    "node 'down' is down": lambda task: Start(task, (Share(3, 1),)),
    "run 7 is not running": lambda task: Preempt(7),
    "cannot wait until 0.5 s": lambda task: Wait(0.5),
    "job 4 is not waiting for admission": lambda task: Admit(4),
    "job 5 is not waiting for admission": lambda task: Reject(5),
    "'nonsense' is not a decision": lambda task: "nonsense",
}


@pytest.mark.parametrize("why", CASES)
def test_an_illegal_decision_names_time_and_reason(why: str) -> None:
    nodes = (Node("big", A100, 4), Node("small", A100, 1), Node("t4", T4, 4), Node("down", A100, 4))
    job = Job.single("j", Task("t", 1, instances=2, gpu_types=("A100-40",)), 1.0)
    decide = Scripted(lambda view: [CASES[why](next(iter(view.ready)))] if view.ready else [])
    simulation = ClusterKernel(Cluster(nodes), [job], Models(failures=(Maintenance((3,), 0, 9),)))
    with pytest.raises(IllegalDecision, match=f"at 1 s: .*{why}"):
        simulation.run(decide)


def test_a_gang_in_parts_is_illegal() -> None:
    job = Job.single("j", Task("t", 1, instances=2, gang=True))
    decide = Scripted(lambda view: [Start(next(iter(view.ready)), (Share(0, 1),))])
    with pytest.raises(IllegalDecision, match=r"cannot start j/t: a gang of 2 must start as a whole"):
        ClusterKernel(gpus(4), [job]).run(decide)


def test_a_full_gpu_cannot_be_shared_further() -> None:
    job = Job.single("j", Task("t", 1, instances=3, gpus=0.4))
    decide = Scripted(lambda view: [Start(next(iter(view.ready)), (Share(0, 3, 1),))])
    with pytest.raises(IllegalDecision, match=r"GPU 1 of node 'n0' has no room for 3 such shares"):
        ClusterKernel(gpus(2), [job]).run(decide)


def preempting_at(time_s: float) -> Scripted:
    """Starts the oldest task that fits, and stops run 0 once, at ``time_s``."""
    fifo = POLICIES.create("fifo-fit")

    def decide(view: ClusterView) -> Iterable[Decision]:
        if view.now < time_s:
            yield Wait(time_s)
        elif view.now == time_s and 0 in view.running:
            yield Preempt(0)
        yield from fifo.decide(view)

    return Scripted(decide)


@pytest.mark.parametrize(
    ("preemption", "ends_s"),
    [
        # Stopped at 4 of 10 s and started again at once.
        (Preemption("resume"), 10),
        # 4 lost: 4 + 10.
        (Preemption("restart"), 14),
        # 4 + 1 + 0.5 x 8 GB + 6 left.
        (Preemption("resume", restart_s=1, checkpoint_s_per_gb=0.5), 15),
        # 4 + 1 + 10: there is nothing to load.
        (Preemption("restart", restart_s=1, checkpoint_s_per_gb=0.5), 15),
    ],
)
def test_preemption_keeps_or_loses_work_and_costs(preemption: Preemption, ends_s: float) -> None:
    job = Job.single("j", Task("t", 10, memory_gb=8))
    schedule = ClusterKernel(gpus(1), [job], Models(preemption=preemption)).run(preempting_at(4))
    assert [row.time_s for row in schedule.log if row.kind == Kind.PREEMPTED] == [4]
    assert schedule.ended_s == ends_s


def test_migration_goes_on_elsewhere_at_once() -> None:
    # 4 s on node 0, then the remaining 6 on node 1.
    def decide(view: ClusterView) -> Iterable[Decision]:
        if view.now == 4 and 0 in view.running:
            yield Migrate(0, (Share(1),))
        for task in list(view.ready):
            yield Start(task, (Share(0),))
        if view.now < 4:
            yield Wait(4)

    schedule = ClusterKernel(gpus(1, 1), [dag(10)]).run(Scripted(decide))
    assert [(row.time_s, row.node) for row in schedule.log if row.kind == Kind.STARTED] == [(0, 0), (4, 1)]
    assert schedule.ended_s == 10


def test_a_gpu_that_changes_jobs_pays_the_moving_delay() -> None:
    # Job 0: 2 to set up + 3, then its second task on the same GPU at once: 3. Job 1: 2 + 1. In all 2 + 6 + 3 = 11.
    jobs = [dag(3, 3, edges=[(0, 1)]), dag(1, arrival_s=4)]
    schedule = run(gpus(1), jobs, setup=MovingDelay(2))
    assert times(schedule, Kind.COMPUTING) == [(2, 0, 0), (10, 1, 0)]
    assert schedule.ended_s == 11


def test_a_child_elsewhere_waits_for_its_bytes() -> None:
    # Parents on nodes 0 and 1; the child, on one of them, reads 2 GB of the other at 1 GB/s + 0.5 s: 1 + 2.5 + 1.
    job = dag(1, 1, 1, edges=[(0, 2), (1, 2)], size=2e9)
    schedule = run(gpus(1, 1), [job], network=UniformNetwork(1.0, 0.5))
    assert times(schedule, Kind.COMPUTING) == [(3.5, 0, 2)]
    assert schedule.ended_s == 4.5


def test_a_failed_node_loses_its_work_and_comes_back() -> None:
    # 4 of 10 s are lost; the node is back at 6: 6 + 10.
    schedule = run(gpus(1), [dag(10)], failures=(Maintenance((0,), 4, 6),))
    assert [(row.time_s, row.kind) for row in schedule.log if row.kind in (Kind.DOWN, Kind.FAILED, Kind.UP)] == [
        (4, Kind.DOWN),
        (4, Kind.FAILED),
        (6, Kind.UP),
    ]
    assert schedule.ended_s == 16


def test_nodes_come_and_leave_as_listed() -> None:
    # Of two nodes the second comes at 3 and leaves at 8. Jobs of 4, 4 and 2 s at 0: on the first 0 to 4, on the second
    # 3 to 7, and the third on the first from 4 to 6. A fourth, of 4 s at 7, gets the first: 7 to 11.
    jobs = [dag(4), dag(4), dag(2), dag(4, arrival_s=7)]
    downtimes = Outages(((1, 8, math.inf), (1, 0, 3)))
    schedule = run(gpus(1, 1), jobs, failures=(downtimes,))
    assert times(schedule, Kind.COMPLETED) == [(4, 0, -1), (6, 2, -1), (7, 1, -1), (11, 3, -1)]


def test_a_downtime_of_no_node_is_refused() -> None:
    with pytest.raises(ModelError, match=r"nodes must be from 0 to 0, got 1"):
        run(gpus(1), [dag(1)], failures=(Outages(((1, 0, 3),)),))


def test_random_failures_are_repaired_and_do_not_depend_on_the_policy() -> None:
    jobs = [dag(*[3.0] * 10)]
    failures = NodeFailures(10, 2)
    downs = []
    for policy in ("fifo-fit", "random"):
        schedule = run(gpus(1, 1), jobs, policy, failures=(failures,))
        downs.append([row.time_s for row in schedule.log if row.kind == Kind.DOWN])
        assert len(times(schedule, Kind.FINISHED)) == 10
    shorter = min(map(len, downs))
    assert shorter > 0
    assert downs[0][:shorter] == downs[1][:shorter]


def test_estimates_are_what_policies_see_and_truth_is_what_happens() -> None:
    # True 3 s and 1 s; SJF starts the short one first, unless the claims (1 s and 2 s) or ignorance say otherwise.
    jobs = [
        Job.single("long", Task("t", 3, estimate=1)),
        Job.single("short", Task("t", 1, estimate=2)),
    ]
    first = {}
    for kind in ("exact", "predicted", "hidden"):
        schedule = run(gpus(1), jobs, "sjf", estimates=Estimates(kind))  # type: ignore[arg-type]
        first[kind] = times(schedule, Kind.STARTED)[0][1]
        assert schedule.ended_s == 4
    assert first == {"exact": 1, "predicted": 0, "hidden": 0}


def test_jobs_wait_to_be_admitted() -> None:
    # Job 0 is turned away at once; job 1 is let in at 2, a second after it came.
    def decide(view: ClusterView) -> Iterable[Decision]:
        for number in list(view.applicants):
            if number == 0:
                yield Reject(0)
            elif view.now >= 2:
                yield Admit(number)
            else:
                yield Wait(2)
        for task in list(view.ready):
            yield Start(task, (Share(0),))

    jobs = [dag(1), dag(1, arrival_s=1)]
    schedule = ClusterKernel(gpus(1), jobs, Models(admission=True)).run(Scripted(decide))
    assert [(row.time_s, row.job, row.value) for row in schedule.log if row.kind == Kind.REJECTED] == [
        (0, 0, RejectReason.BY_POLICY)
    ]
    assert times(schedule, Kind.ADMITTED) == [(2, 1, -1)]
    assert times(schedule, Kind.COMPLETED) == [(3, 1, -1)]


def test_until_stops_with_work_under_way() -> None:
    # 10 s of work seen for 4.
    schedule = ClusterKernel(gpus(1), [dag(10)]).run(POLICIES.create("fifo"), until_s=4)
    assert schedule.ended_s == 4
    assert times(schedule, Kind.FINISHED) == []


def test_what_a_policy_forks_ends_when_it_expects_it_to() -> None:
    # One GPU. The first job claims 6 s and takes 10; the second, of 1 s, comes at 1. Seen from there all is over at 7.
    jobs = [Job.single("a", Task("t", 10, estimate=6)), Job.single("b", Task("t", 1, estimate=1), 1.0)]
    seen: list[float] = []

    def decide(view: ClusterView) -> Iterable[Decision]:
        if view.now == 1:
            seen.append(view.fork().run(POLICIES.create("fifo")).ended_s)
        yield from POLICIES.create("fifo").decide(view)

    schedule = ClusterKernel(gpus(1), jobs, Models(estimates=Estimates("predicted"))).run(Scripted(decide))
    assert seen[0] == 7
    assert schedule.ended_s == 11


def test_equal_claims_tie_to_the_last_bit() -> None:
    """49 * (1 / 49) is less than 1 in floating point: of equal claims the first that came was not the first to go."""
    works = (3.0, 49.0, 98.0, 103.0, 0.0)
    assert works[1] * (1.0 / works[1]) < works[0] * (1.0 / works[0])
    jobs = [Job.single(f"j{n}", Task("t", work, estimate=1.0)) for n, work in enumerate(works)]
    schedule = run(gpus(1), jobs, "sjf", estimates=Estimates("predicted"))
    assert [row.job for row in schedule.log if row.kind == Kind.STARTED] == [0, 1, 2, 3, 4]


def test_a_claim_is_scaled_as_work_is() -> None:
    seen = []

    def decide(view: ClusterView) -> Iterable[Decision]:
        for task in list(view.ready):
            seen.append(task.seconds)
            yield Start(task, (Share(0),))

    cluster = Cluster((Node("a", A100, 2), Node("t", T4, 2)))
    task = Task("t", 5.0, speeds={"A100-40": 3.0, "T4": 0.7}, estimate=11.0)
    ClusterKernel(cluster, [Job.single("j", task)], Models(estimates=Estimates("predicted"))).run(Scripted(decide))
    assert seen == [(11.0 / 3.0, 11.0 / 0.7)]
