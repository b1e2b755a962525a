"""Decisions that must be refused: each names time, task and reason, and changes nothing."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cases import clusters, job_lists, models, simulation
from systems.cluster.kernel_state import cluster_state

from dagsim.errors import IllegalDecision
from dagsim.experiment.simulate import Timed
from dagsim.model import (
    Admit,
    Cluster,
    Edge,
    Job,
    Kill,
    Kind,
    Migrate,
    Node,
    Preempt,
    Reject,
    Share,
    Start,
    Task,
    TaskGraph,
    Wait,
    gpu_type,
)
from dagsim.systems.cluster import ClusterKernel, Maintenance
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.state import TaskState
from dagsim.systems.cluster.view import ClusterView
from dagsim.testing.violations import violations

A100, T4 = gpu_type("A100-40"), gpu_type("T4")
CLUSTER = Cluster((Node("a", A100, 4, 8, 64), Node("b", A100, 2, 8, 64), Node("t", T4, 4, 8, 64), Node("off", A100, 4)))
JOBS = [
    Job(
        "dag",
        TaskGraph(
            (
                Task("first", 1.0, instances=3, gpu_types=("A100-40",)),
                Task("child", 1.0),
                Task("gang", 1.0, instances=2, gang=True, gpus=0, cpus=8),
                Task("share", 1.0, instances=3, gpus=0.4),
            ),
            (Edge(0, 1),),
        ),
    )
]


def conversation() -> tuple[ClusterKernel, Iterator[ClusterView], ClusterView]:
    """At 0 s: three ready tasks, nothing running, the node ``off`` down."""
    kernel = ClusterKernel(CLUSTER, JOBS, Models(failures=(Maintenance((3,), 0, 9),)))
    decisions = kernel.decisions()
    view = next(decisions)
    return kernel, decisions, view


def task(view: ClusterView, name: str) -> TaskState:
    return next(state for state in view.jobs[0].tasks if state.task.name == name)


def refused(decide: Callable[[ClusterView], object], why: str, *before: Callable[[ClusterView], object]) -> None:
    """``decide`` is refused because of ``why`` after the decisions ``before``, and leaves everything as it was."""
    kernel, decisions, view = conversation()
    for step in before:
        view = decisions.send(step(view))  # type: ignore[attr-defined]
    decided = decide(view)
    state = cluster_state(kernel)
    with pytest.raises(IllegalDecision, match=rf"^at {kernel.now:g} s: .*{why}"):
        decisions.send(decided)  # type: ignore[attr-defined]
    assert cluster_state(kernel) == state


def starting(name: str, *shares: object) -> Callable[[ClusterView], object]:
    return lambda view: [Start(task(view, name), shares)]  # type: ignore[arg-type]


PLACEMENTS: dict[str, tuple[str, object, str]] = {
    "none": ("first", None, "None is not a placement; give a tuple of Share"),
    "empty": ("first", (), "the placement is empty"),
    "number": ("first", 3, "3 is not a placement"),
    "bare share": ("first", Share(0, 1), "0 is not a Share"),
    "short share": ("first", ((0, 1),), r"\(0, 1\) is not a Share"),
    "node 99": ("first", (Share(99),), r"there is no node 99; nodes are the integers 0\.\.3"),
    "node -1": ("first", (Share(-1),), "there is no node -1"),
    "node -4": ("first", (Share(-4),), "there is no node -4"),  # "a", if counted from the end
    "node 1.0": ("first", (Share(1.0),), r"there is no node 1\.0"),  # type: ignore[arg-type]
    "node True": ("first", (Share(True),), "there is no node True"),
    "node None": ("first", (Share(None),), "there is no node None"),  # type: ignore[arg-type]
    "node a": ("first", (Share("a"),), "there is no node 'a'"),  # type: ignore[arg-type]
    "1.5 instances": ("first", (Share(0, 1.5),), r"1\.5 instances; there must be at least one"),  # type: ignore[arg-type]
    "NaN instances": ("first", (Share(0, math.nan),), "nan instances"),  # type: ignore[arg-type]
    "True instances": ("first", (Share(0, True),), "True instances"),
    "-1 instances": ("first", (Share(0, -1),), "-1 instances"),
    "4 instances": ("first", (Share(0, 4),), "4 instances placed, but only 3 waiting"),
    "too many on two": ("first", (Share(0, 2), Share(1, 2)), "4 instances placed, but only 3 waiting"),
    "no room": ("first", (Share(1, 3),), r"node 'b' has no room for 3 x .*, only for 2; view\.fit\(task\) finds room"),
    "second share full": ("first", (Share(0, 1), Share(3, 1)), "node 'off' is down"),
    "wrong type": ("first", (Share(2),), "node 't' is not of a type it may run on"),
    "node twice": ("first", (Share(0, 1), Share(0, 1)), "a node occurs twice"),
    "gpu of whole": (
        "first",
        (Share(0, 1, 0),),
        "it requests no share of a GPU, so a placement may not name a GPU; got gpu=0",
    ),
    "gpu -1": ("share", (Share(0, 1, -1),), r"node 'a' has no GPU -1; its GPUs are the integers 0\.\.3"),
    "gpu 4": ("share", (Share(0, 1, 4),), "node 'a' has no GPU 4"),
    "gpu 1.0": ("share", (Share(0, 1, 1.0),), r"node 'a' has no GPU 1\.0"),  # type: ignore[arg-type]
    "gpu True": ("share", (Share(0, 1, True),), "node 'a' has no GPU True"),
    "full gpu": ("share", (Share(0, 3, 1),), "GPU 1 of node 'a' has no room for 3 such shares"),
    "gang in part": ("gang", (Share(0, 1),), "a gang of 2 must start as a whole"),
    "gang of two types": (
        "gang",
        (Share(0, 1), Share(2, 1)),
        "a gang of 2 must start as a whole, on distinct nodes of one type",
    ),
    "gang twice on a node": (
        "gang",
        (Share(0, 1), Share(0, 1)),
        "a gang of 2 must start as a whole, on distinct nodes of one type",
    ),
    "gang on node -1": ("gang", (Share(-1, 1), Share(1, 1)), "there is no node -1"),
}


@pytest.mark.parametrize("case", PLACEMENTS)
def test_a_placement_that_cannot_be_is_refused(case: str) -> None:
    name, placement, why = PLACEMENTS[case]
    refused(lambda view: [Start(task(view, name), placement)], f"cannot start dag/{name}: {why}")  # type: ignore[arg-type]


def test_a_gang_that_would_hold_more_cores_than_there_are_is_refused() -> None:
    """``Share(-1, 8)`` used to mean the last node, so that 16 of 8 cores were held."""
    cluster = Cluster((Node("a", None, 0, 8), Node("b", None, 0, 8)))
    kernel = ClusterKernel(cluster, [Job.single("j", Task("t", 1, instances=16, gang=True, gpus=0, cpus=1))])
    decisions = kernel.decisions()
    waiting = next(iter(next(decisions).ready))
    with pytest.raises(IllegalDecision, match="there is no node -1"):
        decisions.send([Start(waiting, (Share(-1, 8), Share(1, 8)))])


TASKS: dict[str, tuple[Callable[[ClusterView], object], str]] = {
    "none": (lambda view: None, "cannot start None: it is not a task"),
    "list": (lambda view: [], r"cannot start \[\]: it is not a task"),
    "name": (lambda view: "first", "cannot start 'first': it is not a task"),
    "model": (lambda view: view.jobs[0].job.tasks[0], "it is not a task; choose one from view.ready"),
    "child": (lambda view: task(view, "child"), "cannot start dag/child: it still waits for first"),
    "fork": (lambda view: next(iter(view.fork().frontier.ready)), "it belongs to another simulation"),
    "copy": (lambda view: copy.copy(task(view, "first")), "cannot start dag/first: none of its instances wait"),
}


@pytest.mark.parametrize("case", TASKS)
def test_a_task_that_cannot_start_is_refused(case: str) -> None:
    which, why = TASKS[case]
    refused(lambda view: [Start(which(view), (Share(0),))], why)  # type: ignore[arg-type]


def test_a_child_of_a_parent_with_instances_left_is_refused() -> None:
    refused(starting("child", Share(1)), "dag/child: it still waits for first", starting("first", Share(0, 2)))


def test_a_task_with_nothing_left_to_start_is_refused() -> None:
    refused(starting("first", Share(1)), "dag/first: none of its instances wait", starting("first", Share(0, 3)))


def test_a_task_of_another_kernel_is_refused() -> None:
    _, _, other = conversation()
    refused(lambda view: [Start(task(other, "first"), (Share(0),))], "dag/first: it belongs to another simulation")


def test_a_task_of_a_job_that_is_done_is_refused() -> None:
    jobs = [Job.single("one", Task("t", 1)), Job.single("two", Task("t", 1), 5)]
    kernel = ClusterKernel(CLUSTER, jobs)
    decisions = kernel.decisions()
    first = next(iter(next(decisions).ready))
    decisions.send([Start(first, (Share(0),))])
    with pytest.raises(IllegalDecision, match="at 1 s: cannot start one/t: its job is not in the system"):
        decisions.send([Start(first, (Share(0),))])


def test_an_applicants_task_is_refused_until_it_is_admitted() -> None:
    kernel = ClusterKernel(CLUSTER, JOBS, Models(admission=True))
    decisions = kernel.decisions()
    first = next(decisions).applicants[0].tasks[0]
    state = cluster_state(kernel)
    with pytest.raises(IllegalDecision, match=r"its job waits to be admitted; yield Admit\(0\) first"):
        decisions.send([Start(first, (Share(0),))])
    assert cluster_state(kernel) == state


ANSWERS: dict[str, tuple[object, str]] = {
    "number": (5, r"decide\(\) returned 5, but it must yield decisions"),
    "bare decision": (Wait(3.0), r"decide\(\) returned a bare Wait, .*yield Wait\(\.\.\.\), or return \[Wait"),
    "text": (["nonsense"], "'nonsense' is not a decision"),
    "preempt list": ([Preempt([])], r"run \[\] is not running"),  # type: ignore[arg-type]
    "preempt 0.0": ([Preempt(0.0)], r"run 0\.0 is not running"),  # type: ignore[arg-type]
    "preempt False": ([Preempt(False)], "run False is not running"),
    "preempt unknown": ([Preempt(7)], "run 7 is not running, so it cannot be preempted; choose a key of view.running"),
    "kill unknown": ([Kill(7)], "job 7 is not in the system, so it cannot be killed; choose a key from view.jobs"),
    "kill text": ([Kill("0")], "job '0' is not in the system"),  # type: ignore[arg-type]
    "kill nonsense": ([Kill(0, 99)], "99 is not a RejectReason"),  # type: ignore[arg-type]
    "migrate unknown": ([Migrate(7, (Share(0),))], "run 7 is not running"),
    "wait x": ([Wait("x")], "cannot wait until 'x' s; give a time after view.now"),  # type: ignore[arg-type]
    "wait NaN": ([Wait(math.nan)], "cannot wait until nan s"),
    "wait now": ([Wait(0.0)], r"cannot wait until 0\.0 s"),
    "wait True": ([Wait(True)], "cannot wait until True s"),
    "wait huge": ([Wait(10**400)], "cannot wait until 10"),
    "wait None": ([Wait(None)], "cannot wait until None s"),  # type: ignore[arg-type]
    "admit nobody": ([Admit(4)], "job 4 is not waiting for admission; choose a key from view.applicants"),
    "reject list": ([Reject([])], r"job \[\] is not waiting for admission"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_that_is_no_decision_is_refused(case: str) -> None:
    answer, why = ANSWERS[case]
    refused(lambda view: answer, why)


def test_a_run_cannot_be_stopped_in_the_instant_of_its_start() -> None:
    why = r"run 0 of dag/first started at this very moment.*; choose a run with run\.started_s < view\.now"
    refused(lambda view: [Preempt(0)], why, starting("first", Share(0)))
    refused(lambda view: [Migrate(0, (Share(1),))], why, starting("first", Share(0)))


def running() -> tuple[ClusterKernel, Iterator[ClusterView]]:
    """At 0.5 s: ``first`` on two GPUs of node ``b``, which it fills, and one instance of ``share`` on ``a``."""
    kernel, decisions, view = conversation()
    decisions.send([*starting("first", Share(1, 2))(view), *starting("share", Share(0))(view), Wait(0.5)])  # type: ignore
    view = decisions.send([])  # type: ignore[attr-defined]
    assert view.now == 0.5
    return kernel, decisions


@pytest.mark.parametrize(
    ("placement", "why"),
    [
        ((Share(0, 3),), "3 instances placed, but only 2 waiting"),
        ((Share(2, 2),), "not of a type"),
        (None, "not a placement"),
    ],
)
def test_a_migration_that_cannot_end_does_not_begin(placement: object, why: str) -> None:
    kernel, decisions = running()
    state = cluster_state(kernel)
    with pytest.raises(IllegalDecision, match=f"cannot start dag/first: .*{why}"):
        decisions.send([Migrate(0, placement)])  # type: ignore
    assert cluster_state(kernel) == state


def test_a_run_may_migrate_onto_what_it_holds_itself() -> None:
    kernel, decisions = running()
    decisions.send([Migrate(0, (Share(1, 2),)), Migrate(1, (Share(0, 1, 0),))])  # type: ignore[attr-defined]
    assert [row.kind for row in kernel.schedule.log][-4:] == [Kind.PREEMPTED, Kind.STARTED] * 2
    assert len(kernel.running) == 2


def test_integers_of_numpy_are_integers() -> None:
    kernel, decisions, view = conversation()
    shares = (Share(np.int64(0), np.int32(2)),)  # type: ignore[arg-type]
    decisions.send([Start(task(view, "first"), shares), Wait(np.float32(0.5))])  # type: ignore
    assert kernel.running[0].instances == 2


class Bad:
    """Answers with what is no answer."""

    def decide(self, view: ClusterView) -> Iterable[object]:
        return 5  # type: ignore[return-value]


def test_the_error_names_the_policy() -> None:
    with pytest.raises(IllegalDecision, match=r"^policy 'Bad': at 0 s: decide\(\) returned 5"):
        ClusterKernel(CLUSTER, JOBS).run(Bad())  # type: ignore[arg-type]
    with pytest.raises(IllegalDecision, match=r"^policy 'mine:Bad\[x=1\]': at 0 s: decide\(\) returned 5"):
        ClusterKernel(CLUSTER, JOBS).run(Timed(Bad(), "mine:Bad[x=1]"))  # type: ignore[arg-type]


class Corrupting:
    """FIFO until the ``at``-th question, then one illegal decision; the state before it is kept."""

    def __init__(self, at: int, draw: Callable[[ClusterView], object]) -> None:
        self.at, self.draw, self.asked = at, draw, 0
        self.fifo = POLICIES.create("fifo-fit")
        self.kernel: ClusterKernel
        """The kernel that asks, set before it runs."""
        self.state: object = None

    def decide(self, view: ClusterView) -> Iterable[object]:
        self.asked += 1
        if self.asked < self.at:
            return self.fifo.decide(view)
        decision = self.draw(view)
        self.state = cluster_state(self.kernel)
        return [decision]


ODD = st.sampled_from((-1, 99, 1.0, 1.5, math.nan, None, True, "x", []))


@st.composite
def illegal(draw: st.DrawFn) -> Callable[[ClusterView], object]:
    """A decision that is illegal wherever it is made."""
    kind, odd, at, count = draw(st.integers(0, 5)), draw(ODD), draw(st.integers(0, 9)), draw(st.integers(1, 6))

    def decide(view: ClusterView) -> object:
        tasks = [state for job in view.jobs.values() for state in job.tasks]
        some = tasks[at % len(tasks)] if tasks else None
        match kind:
            case 0:
                return Start(some, (Share(0), Share(odd, count)))  # type: ignore[arg-type]
            case 1:
                return Start(some, (Share(0, odd),))  # type: ignore[arg-type]
            case 2:
                return Start(some, (Share(0, count, odd), Share(0, count, odd)))  # type: ignore[arg-type]
            case 3:
                return Preempt(odd)  # type: ignore[arg-type]
            case 4:
                run = next(iter(view.running), 0)
                return Migrate(run, (Share(0, 1), Share(0, odd)))  # type: ignore[arg-type]
            case _:
                return Start(copy.copy(some), (Share(0, 1),))  # type: ignore[arg-type]

    return decide


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(clusters(), job_lists(), models(), st.integers(1, 12), illegal())
def test_what_is_refused_leaves_the_state_as_it_was(
    cluster: Cluster, jobs: list[Job], models: dict[str, object], at: int, decide: Callable[[ClusterView], object]
) -> None:
    policy = Corrupting(at, decide)
    policy.kernel = kernel = simulation(cluster, jobs, models)
    refusal = ""
    try:
        kernel.run(policy)  # type: ignore[arg-type]
    except IllegalDecision as error:
        refusal = str(error)
    if policy.asked < at:
        assert not refusal
        assert violations(kernel.schedule, jobs) == []
    else:
        assert refusal.startswith(f"policy 'Corrupting': at {kernel.now:g} s: ")
        assert cluster_state(kernel) == policy.state
