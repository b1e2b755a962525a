"""Nodes that leave for good, all at once, or more than once: what goes on, and what is said when nothing can."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator

import pytest

from dagsim.errors import Stalled
from dagsim.model import Cluster, Decision, Job, Kind, Node, Start, Task, TaskGraph, Wait, gpu_type
from dagsim.model.log import Schedule
from dagsim.systems.cluster import ClusterKernel, Maintenance, MovingDelay, NodeFailures, Preemption
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.failures import FailureModel, Outages
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.resources.down_nodes import GONE
from dagsim.systems.cluster.view import ClusterView
from dagsim.systems.cluster.waits.stalled import why_unfinished

FOREVER = math.inf
LEAVING: dict[str, FailureModel] = {
    "outage": Outages(((0, 2.0, FOREVER), (1, 2.0, FOREVER))),
    "maintenance": Maintenance((0, 1), 2.0, FOREVER),
    "failures": NodeFailures(1.0, FOREVER),
}


def gpus(*counts: int) -> Cluster:
    """One node of A100 per count."""
    return Cluster(tuple(Node(f"n{index}", gpu_type("A100-40"), count, 8, 64) for index, count in enumerate(counts)))


def dag(*works: float) -> Job:
    """A job of independent one-GPU tasks ``t0``, ``t1`` ..."""
    return Job("j", TaskGraph(tuple(Task(f"t{index}", work) for index, work in enumerate(works))))


class Greedy:
    """Starts whatever there is room for."""

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        for task in list(view.ready):
            placement = view.fit(task)
            if placement is not None:
                yield Start(task, placement)


class Lazy:
    def decide(self, view: ClusterView) -> Iterable[Decision]:
        return ()


def run(cluster: Cluster, jobs: list[Job], *failures: FailureModel, policy: str = "fifo-fit") -> Schedule:
    return ClusterKernel(cluster, jobs, Models(failures=failures)).run(POLICIES.create(policy))


@pytest.mark.parametrize("how", LEAVING)
def test_when_all_nodes_have_left_the_jobs_stay_unfinished(how: str) -> None:
    jobs = [Job.single("j", Task("t", 50.0, instances=2)), Job.single("k", Task("t", 50.0, gpus=2))]
    kernel = ClusterKernel(gpus(2, 1), jobs, Models(failures=(LEAVING[how],)))
    assert not [row for row in kernel.run(POLICIES.create("fifo-fit")).log if row.kind == Kind.COMPLETED]
    assert why_unfinished(kernel) == {0: GONE, 1: GONE}


@pytest.mark.parametrize("policy", ["fifo", "fifo-fit", "easy", "conservative", "sjf", "srtf", "las"])
def test_a_job_without_nodes_holds_nobody_up(policy: str) -> None:
    # The only node with two GPUs leaves at 1 for good; the job that needs it is first in the queue from 2 on.
    jobs = [Job.single("wide", Task("t", 5.0, gpus=2), 2.0), Job.single("a", Task("t", 4.0), 3.0)]
    jobs += [Job.single("b", Task("t", 4.0), 4.0)]
    kernel = ClusterKernel(gpus(2, 1), jobs, Models(failures=(Outages(((0, 1.0, FOREVER),)),)))
    schedule = kernel.run(POLICIES.create(policy))
    assert [(row.job, row.time_s) for row in schedule.log if row.kind == Kind.COMPLETED] == [(1, 7.0), (2, 11.0)]
    assert why_unfinished(kernel) == {0: GONE}


def test_a_simulation_goes_on_with_the_nodes_that_stay() -> None:
    # Node 0 leaves at 2 for good; its run starts over on node 1 when the other one there ends, at 10.
    jobs = [Job.single("a", Task("t", 10.0)), Job.single("b", Task("t", 10.0))]
    schedule = run(gpus(1, 1), jobs, Outages(((0, 2.0, FOREVER),)))
    assert [row.time_s for row in schedule.log if row.kind == Kind.COMPLETED] == [10, 20]
    assert schedule.ended_s == 20


def test_nothing_ends_at_the_end_of_time() -> None:
    """``end_s = inf`` used to complete jobs at t = inf."""
    assert run(gpus(1), [dag(5)], Maintenance((0,), 2, FOREVER)).ended_s == 2
    kernel = ClusterKernel(gpus(1), [dag(5)], Models(failures=(Maintenance((0,), 2, FOREVER),)))
    kernel.run(POLICIES.create("fifo"), until_s=100)
    assert kernel.now == 2


def test_a_node_in_maintenance_is_not_repaired_before_its_end() -> None:
    # The second window ends at 4, while the first one has the node until 9.
    schedule = run(gpus(1), [dag(1)], Maintenance((0,), 0, 9), Maintenance((0,), 1, 4))
    assert [(row.kind, row.time_s) for row in schedule.log if row.kind in (Kind.DOWN, Kind.UP)] == [
        (Kind.DOWN, 0),
        (Kind.UP, 9),
    ]
    assert schedule.ended_s == 10


def test_a_node_that_left_for_good_is_not_repaired_by_its_failures() -> None:
    schedule = run(gpus(1), [dag(500)], NodeFailures(1.0, 1.0), Outages(((0, 5.0, FOREVER),)))
    assert schedule.ended_s == 5
    assert schedule.log.rows()["kind"][-1] in (Kind.DOWN, Kind.FAILED)


def test_all_nodes_at_once_come_back_at_once() -> None:
    # Runs start over at 5: 5 + 3.
    schedule = run(gpus(1, 1), [dag(3, 3)], Maintenance((0, 1), 2, 5))
    assert [row.time_s for row in schedule.log if row.kind == Kind.FINISHED] == [8, 8]
    assert schedule.ended_s == 8


def test_a_policy_that_could_start_something_is_told_so() -> None:
    with pytest.raises(Stalled, match=r"the policy returned no decision .*, although j/t0 could start"):
        ClusterKernel(gpus(1), [dag(1)]).run(Lazy())


def test_a_run_that_never_ends_leaves_its_job_unfinished() -> None:
    kernel = ClusterKernel(gpus(1), [dag(1)], Models(setup=MovingDelay(math.inf)))
    assert kernel.run(Greedy()).ended_s == 0
    assert why_unfinished(kernel) == {0: "a run of it never ends"}


def test_a_policy_that_could_start_something_beside_an_endless_run_has_stalled() -> None:
    class One:
        def decide(self, view: ClusterView) -> Iterator[Decision]:
            if not view.running:
                yield from list(Greedy().decide(view))[:1]

    with pytest.raises(Stalled, match="nothing is due: run 0 of j/t0 never ends"):
        ClusterKernel(gpus(2), [dag(1, 1)], Models(setup=MovingDelay(math.inf))).run(One())


@pytest.mark.parametrize("policy", ["easy-events", "committed", "rollout", "conservative"])
def test_policies_start_again_after_a_repair(policy: str) -> None:
    # The only node is away from 2 to 4, when nobody comes or ends; the run starts over: 4 + 3.
    assert run(gpus(1), [dag(3)], Maintenance((0,), 2, 4), policy=policy).ended_s == 7


def test_a_fork_of_what_is_known_ends_with_what_can_end() -> None:
    # One of two types is away: rollout tries its candidates in forks where the other one's tasks wait for ever.
    cluster = Cluster((Node("a", gpu_type("A100-40"), 1), Node("t", gpu_type("T4"), 1)))
    jobs = [Job.single(f"{name}{n}", Task("t", 3.0, gpu_types=(name,))) for n in range(2) for name in ("A100-40", "T4")]
    schedule = run(cluster, jobs, Maintenance((1,), 1, 20), policy="rollout")
    assert sorted(row.time_s for row in schedule.log if row.kind == Kind.COMPLETED) == [3, 6, 23, 26]


def test_a_fork_that_knows_all_sees_the_repairs_too() -> None:
    kernel = ClusterKernel(gpus(1), [dag(3)], Models(failures=(Maintenance((0,), 2, 4),)))
    kernel.run(POLICIES.create("fifo"), until_s=3)
    fork = kernel.fork()
    assert fork.pending
    assert fork.run(POLICIES.create("fifo")).ended_s == 7
    assert not kernel.fork(by_estimates=True).pending


def test_fgd_knows_which_gpus_are_free() -> None:
    """Machines with as many idle GPUs, but others, were taken for the same, and a full GPU was asked to take more."""
    rng = random.Random(3)
    jobs, now = [], 0.0
    for number in range(1000):
        now += rng.choice((0.0, 0.1, 0.2))
        task = Task("t", float(rng.randint(1, 9)), gpus=rng.choice((0.2, 0.5, 1.0)))
        jobs.append(Job.single(f"j{number}", task, now))
    schedule = run(gpus(8, 8), jobs, policy="fifo-fit[placement=fgd]")
    assert sum(row.kind == Kind.COMPLETED for row in schedule.log) == 1000


def test_energy_saver_takes_the_type_that_has_not_left() -> None:
    # Twice as slow as it allows itself on T4, but there is nothing else any more: 4 s of work at half speed.
    cluster = Cluster((Node("a", gpu_type("A100-40"), 1), Node("t", gpu_type("T4"), 1)))
    slow = Job.single("j", Task("t", 4.0, speeds={"A100-40": 2.0, "T4": 0.5}), 1.0)
    assert run(cluster, [slow], Outages(((0, 0.0, FOREVER),)), policy="energy-saver").ended_s == 1 + 8


def test_a_policy_that_asks_to_be_woken_for_ever_ends_with_the_last_node() -> None:
    class Patient:
        def decide(self, view: ClusterView) -> Iterable[Decision]:
            return (*Greedy().decide(view), Wait(view.now + 1))

    kernel = ClusterKernel(gpus(1), [dag(5)], Models(failures=(Maintenance((0,), 2, FOREVER),)))
    assert kernel.run(Patient()).ended_s == 2


def downs_and_ups(cluster: Cluster, *failures: FailureModel) -> list[tuple[float, str, int]]:
    rows = run(cluster, [dag(20)], *failures).log
    return [(row.time_s, row.kind.name, row.node) for row in rows if row.kind in (Kind.DOWN, Kind.UP)]


def test_maintenance_takes_nodes_by_number() -> None:
    changes = downs_and_ups(gpus(*[1] * 40), Maintenance((33, 1, 2, 32, 8), 5, 6))
    numbers = [1, 2, 8, 32, 33]
    assert changes == [(5, "DOWN", node) for node in numbers] + [(6, "UP", node) for node in numbers]


def test_nodes_return_before_others_leave_whichever_window_is_listed_first() -> None:
    early, late = Maintenance((1,), 2, 4), Maintenance((0, 1), 4, 6)
    outage = Outages(((2, 3.0, 4.0),))
    expected = [(2, "DOWN", 1), (3, "DOWN", 2), (4, "UP", 1), (4, "UP", 2), (4, "DOWN", 0), (4, "DOWN", 1)]
    expected += [(6, "UP", 0), (6, "UP", 1)]
    assert downs_and_ups(gpus(1, 1, 1), early, outage, late) == expected
    assert downs_and_ups(gpus(1, 1, 1), late, outage, early) == expected


def test_a_task_that_fails_faster_than_it_can_finish_stays_unfinished_and_holds_nobody_up() -> None:
    kernel = ClusterKernel(
        gpus(1), [dag(500), Job.single("k", Task("t", 0.1), 1.0)], Models(failures=(NodeFailures(1.0, 1.0),))
    )
    log = kernel.run(POLICIES.create("fifo")).log
    assert [row.job for row in log if row.kind == Kind.COMPLETED] == [1]
    assert "failed 1,000 times in a row with its nodes" in why_unfinished(kernel)[0]


def test_failures_that_keep_work_are_never_too_many() -> None:
    kernel = ClusterKernel(
        gpus(1), [dag(1500)], Models(failures=[NodeFailures(1.0, 1.0)], preemption=Preemption(on_failure="resume"))
    )
    schedule = kernel.run(POLICIES.create("fifo"))
    assert sum(row.kind == Kind.FAILED for row in schedule.log) > 1000
    assert [*schedule.log][-1].kind == Kind.COMPLETED
