"""Rules of a site hold under every policy, and no job that they keep from starting stops the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.log_reading import first_starts, rows_of

from dagsim.errors import Stalled
from dagsim.model import Cluster, Decision, Job, Node, Request, Start, Task, TaskGraph, gpu_type
from dagsim.model.log import Kind, RejectReason, Schedule
from dagsim.model.queues import Caps, NodeOutage, NodeReservation, Qos, QueueNode, QueueTree
from dagsim.systems.cluster.api import ClusterView
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive

TWO = Cluster((Node("m0", gpu_type("T4"), 1, 8, 8, features=("ib",)), Node("m1", gpu_type("T4"), 1, 8, 8)))
POLICIES_TRIED = ("fifo", "sjf", "easy", "easy-events", "conservative", "committed", "las", "round-robin",
                  "slurm-multifactor", "kube-default")  # fmt: skip


def play(cluster: Cluster, queues: QueueTree, jobs: list[Job], policy: str) -> Schedule:
    scenario = ClusterScenario(cluster, jobs, queues=queues)
    return drive(scenario.kernel(0), POLICIES.create(policy))


def unfinished(schedule: Schedule) -> list[str]:
    left = {row.job for row in rows_of(schedule.log, Kind.COMPLETED, Kind.REJECTED)}
    return [facts.id for number, facts in enumerate(schedule.jobs) if number not in left]


def rejected(schedule: Schedule) -> dict[str, RejectReason]:
    rows = rows_of(schedule.log, Kind.REJECTED)
    return {schedule.jobs[row.job].id: RejectReason(int(row.value)) for row in rows}


def job(id: str, seconds: float, at_s: float = 0.0, **terms: object) -> Job:
    request = Request(**terms) if terms else None
    return Job(id, TaskGraph((Task("t", seconds, estimate=seconds),)), at_s, request=request)


@pytest.mark.parametrize("policy", POLICIES_TRIED)
def test_what_became_ready_as_late_as_possible_does_not_run_into_a_reservation(policy: str) -> None:
    """At 20 s a job of 40 s would end just as the reservation begins; its node is free only 10 s later."""
    one = Cluster(TWO.nodes[:1])
    queues = QueueTree(reservations=(NodeReservation("day", ("m0",), 60.0, 90.0),))
    late = play(one, queues, [job("first", 30.0), job("second", 40.0, 20.0)], policy)
    assert first_starts(late) == {"first": 0.0, "second": 90.0}
    exact = play(one, queues, [job("first", 20.0), job("second", 40.0, 20.0)], policy)
    assert first_starts(exact) == {"first": 0.0, "second": 20.0}


class Listener:
    """Start everything at once; keep what the view says of rejected jobs."""

    def __init__(self) -> None:
        self.shown: list[tuple[float, list[str]]] = []

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        self.shown.append((view.now, [active.job.id for active in view.rejected]))
        yield from [Start(task, placement) for task in view.ready if (placement := view.fit(task))]


def test_a_rejected_job_is_shown_when_it_arrives_and_not_kept() -> None:
    jobs = [job("a", 30.0), Job.single("never", Task("t", 5.0, gpus=9), 10.0), job("b", 5.0, 20.0)]
    policy = Listener()
    kernel = ClusterScenario(TWO, jobs, queues=QueueTree(qos=(Qos("q"),))).kernel(0)
    schedule = kernel.run(policy)
    assert rejected(schedule) == {"never": RejectReason.TOO_LARGE}
    assert {at_s: ids for at_s, ids in policy.shown if ids} == {10.0: ["never"]}


STUCK = {
    "a reservation that is over": (Request(reservation="past"), RejectReason.CANCELLED),
    "a reservation that was over before": (Request(reservation="before"), RejectReason.CANCELLED),
    "more licences than there are": (Request(licences=(("cad", 3),)), RejectReason.TOO_LARGE),
    "a constraint that no node satisfies": (Request(constraint="none"), RejectReason.TOO_LARGE),
    "a reservation without its nodes": (Request(reservation="late", constraint="ib"), RejectReason.TOO_LARGE),
}


@pytest.mark.parametrize("policy", POLICIES_TRIED)
@pytest.mark.parametrize("what", STUCK)
def test_what_can_never_run_is_rejected_when_it_arrives(policy: str, what: str) -> None:
    request, reason = STUCK[what]
    queues = QueueTree(
        reservations=(
            NodeReservation("before", ("m0",), 0.0, 0.5),
            NodeReservation("past", ("m0",), 1.0, 3.0),
            NodeReservation("late", ("m1",), 500.0, 510.0),
        ),
        licences={"cad": 2},
    )
    jobs = [job("a", 1.0, 10.0), Job("stuck", TaskGraph((Task("t", 1.0),)), 11.0, request=request), job("b", 1.0, 12.0)]
    schedule = play(TWO, queues, jobs, policy)
    assert rejected(schedule) == {"stuck": reason}
    assert sorted(first_starts(schedule)) == ["a", "b"]


@pytest.mark.parametrize("policy", POLICIES_TRIED)
def test_what_is_left_behind_by_its_reservation_holds_nobody_up(policy: str) -> None:
    """The second job of the reservation finds no room before its end; what came later starts, and the run ends."""
    queues = QueueTree(reservations=(NodeReservation("hour", ("m0",), 0.0, 20.0),))
    own = {"reservation": "hour"}
    jobs = [job("in", 25.0, 1.0, **own), job("behind", 5.0, 2.0, **own), job("c", 30.0, 3.0), job("d", 5.0, 40.0)]
    schedule = play(TWO, queues, jobs, policy)
    assert sorted(first_starts(schedule)) == ["c", "d", "in"]
    assert unfinished(schedule) == ["behind"]
    assert not rejected(schedule)


@pytest.mark.parametrize("policy", POLICIES_TRIED)
@pytest.mark.parametrize("kind", ["drain", "down"])
def test_what_waits_for_nodes_that_are_gone_for_good_stays_unfinished(policy: str, kind: str) -> None:
    queues = QueueTree(outages=(NodeOutage(("m0",), 5.0, None, kind),))  # type: ignore[arg-type]
    jobs = [job("x", 2.0), job("needs", 2.0, 6.0, constraint="ib"), job("y", 2.0, 7.0), job("z", 2.0, 8.0)]
    schedule = play(TWO, queues, jobs, policy)
    assert sorted(first_starts(schedule)) == ["x", "y", "z"]
    assert first_starts(schedule)["y"] == 7.0  # although an older job can never start


@pytest.mark.parametrize("policy", [*POLICIES_TRIED, "heft", "min-min", "gavel", "tetris"])
@pytest.mark.parametrize("kind", ["drain", "down"])
def test_no_policy_waits_for_a_gpu_type_whose_nodes_are_gone_for_good(policy: str, kind: str) -> None:
    """The T4 is listed first, and as fast; the other node is idle."""
    nodes = (Node("m0", gpu_type("T4"), 1, 8, 8), Node("m1", gpu_type("V100-16"), 1, 8, 8))
    queues = QueueTree(outages=(NodeOutage(("m0",), 5.0, None, kind),))  # type: ignore[arg-type]
    work = TaskGraph((Task("t", 4.0, gpus=1, estimate=9.0),))
    jobs = [Job("x", work, 0.0), Job("late", work, 6.0), Job("later", work, 6.5)]
    schedule = play(Cluster(nodes), queues, jobs, policy)
    started_s = first_starts(schedule)
    assert started_s["x"] == 0.0
    assert max(started_s["late"], started_s["later"]) < 50.0


def test_no_policy_waits_for_a_gpu_type_on_which_a_gang_finds_no_nodes_that_are_alike() -> None:
    """Each T4 has another feature: ``[a|b]`` asks for one feature on all nodes, as the others have."""
    kinds = [("T4", "a"), ("T4", "b"), ("V100-16", "a"), ("V100-16", "a")]
    nodes = tuple([Node(f"m{at}", gpu_type(kind), 1, 8, 8, features=(of,)) for at, (kind, of) in enumerate(kinds)])
    pair = Job("pair", TaskGraph((Task("t", 4.0, 2, gang=True, gpus=1),)), request=Request(constraint="[a|b]"))
    for policy in POLICIES_TRIED:
        assert first_starts(play(Cluster(nodes), QueueTree(), [pair], policy)) == {"pair": 0.0}, policy


def test_jobs_that_wait_for_each_other_do_not_end_a_run() -> None:
    jobs = [job("p", 1.0, after=("nobody",)), job("q", 1.0, 1.0, begin_s=5.0), job("r", 2.0, 2.0, after=("q",))]
    schedule = play(TWO, QueueTree(licences={"cad": 1}), jobs, "fifo")
    assert first_starts(schedule) == {"p": 0.0, "q": 6.0, "r": 7.0}
    # The first waits for a job of the reservation that never starts.
    queues = QueueTree(reservations=(NodeReservation("hour", ("m0",), 0.0, 10.0),))
    own = {"reservation": "hour"}
    jobs = [job("in", 15.0, **own), job("behind", 5.0, 1.0, **own), job("after", 1.0, 2.0, after=("behind",))]
    schedule = play(TWO, queues, jobs, "fifo")
    assert sorted(first_starts(schedule)) == ["in"]
    assert unfinished(schedule) == ["behind", "after"]


def test_a_limit_on_one_gpu_type_rejects_what_may_use_only_that_type() -> None:
    """The constraint leaves the T4, of which a user may have none; without it, the other type is free to use."""
    nodes = (Node("m0", gpu_type("T4"), 2, 8, 8, features=("old",)), Node("m1", gpu_type("V100-16"), 2, 8, 8))
    queues = QueueTree(tree=(QueueNode("lab", user_limits=Caps(gpus_of={"T4": 0})),), qos=(Qos("std"),))

    def asked(id: str, **terms: object) -> Job:
        return Job(id, TaskGraph((Task("t", 1.0, gpus=2),)), account="lab", request=Request(**terms) if terms else None)

    schedule = play(Cluster(nodes), queues, [asked("old", constraint="old"), asked("any")], "slurm-multifactor")
    assert rejected(schedule) == {"old": RejectReason.CANCELLED}
    assert sorted(first_starts(schedule)) == ["any"]


def test_a_policy_that_waits_without_cause_has_stalled() -> None:
    class Idle:
        def decide(self, view: object) -> tuple[()]:
            return ()

    scenario = ClusterScenario(TWO, [job("a", 1.0)], queues=QueueTree(licences={"cad": 1}))
    with pytest.raises(Stalled, match="although a/t could start"):
        drive(scenario.kernel(0), Idle())
