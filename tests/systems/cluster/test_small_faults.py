"""Worked examples in which one small fault of the kernel or of a policy changes the schedule.

Each fault was once put into the code, and no other test saw it.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import pytest
from support.log_reading import ends, start_times
from support.scripted_policy import Scripted

from dagsim.model import (
    Admit,
    Cluster,
    Decision,
    Edge,
    Job,
    Kill,
    Kind,
    Node,
    Preempt,
    Record,
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
from dagsim.systems.cluster import ClusterKernel, Maintenance, MovingDelay, Preemption, UniformNetwork
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.failures import Outages
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.resources.down_nodes import GONE
from dagsim.systems.cluster.view import ClusterView
from dagsim.systems.cluster.waits.stalled import why_unfinished
from dagsim.testing import engine_cases

A100, T4 = gpu_type("A100-40"), gpu_type("T4")
ONE = Cluster((Node("n", A100, 1),))


def single(name: str, work: float, arrival_s: float = 0.0, **rest: object) -> Job:
    return Job.single(name, Task("t", work, **rest), arrival_s)  # type: ignore[arg-type]


def job(name: str, *works: float, arrival_s: float = 0.0, chained: bool = False) -> Job:
    tasks = tuple(Task(f"t{index}", work) for index, work in enumerate(works))
    edges = tuple(Edge(index, index + 1) for index in range(len(works) - 1)) if chained else ()
    return Job(name, TaskGraph(tasks, edges), arrival_s)


def play(cluster: Cluster, jobs: list[Job], policy: str, **models: object) -> Schedule:
    return ClusterKernel(cluster, jobs, Models(**models)).run(POLICIES.create(policy))  # type: ignore[arg-type]


def stopping(stops: dict[float, float]) -> Scripted:
    """Runs the only task, stops it at each time, and goes on at the time beside it."""

    def decide(view: ClusterView) -> Iterable[Decision]:
        resting = any(stop <= view.now < again for stop, again in stops.items())
        if resting and view.running:
            yield Preempt(next(iter(view.running)))
        elif view.ready and not resting:
            yield Start(next(iter(view.ready)), (Share(0),))
        later = [time_s for times in stops.items() for time_s in times if time_s > view.now]
        if later:
            yield Wait(min(later))

    return Scripted(decide)


@pytest.mark.parametrize(("mode", "end_s"), [("resume", 12.0), ("restart", 18.0)])
def test_a_second_preemption_keeps_what_the_first_one_kept(mode: str, end_s: float) -> None:
    # 10 s: 4 are done by 4, then 2 of the 6 left from 5 to 7, the last 4 from 8 to 12 (or all 10 from 8 to 18).
    kernel = ClusterKernel(ONE, [single("j", 10.0)], Models(preemption=Preemption(mode)))  # type: ignore[arg-type]
    schedule = kernel.run(stopping({4.0: 5.0, 7.0: 8.0}))
    assert [row.time_s for row in schedule.log if row.kind == Kind.PREEMPTED] == [4, 7]
    assert schedule.ended_s == end_s


def test_every_instance_gives_its_memory_and_cores_back() -> None:
    # Three instances run together from 0 to 1 with all 12 GB and 6 cores; the next job needs all of them at once.
    cluster = Cluster((Node("n", A100, 4, 6, 12),))
    jobs = [single("three", 1.0, instances=3, memory_gb=4, cpus=2), single("all", 1.0, memory_gb=12, cpus=6)]
    schedule = play(cluster, jobs, "fifo")
    assert start_times(schedule) == {"three": [0], "all": [1]}


def test_a_child_reads_from_each_node_what_ran_there() -> None:
    # Two instances of the parent on two nodes: of 4 GB the child reads 2 from the other node, at 1 GB/s: 1 + 2 + 1.
    cluster = Cluster((Node("a", A100, 1), Node("b", A100, 1)))
    graph = TaskGraph((Task("parent", 1.0, instances=2), Task("child", 1.0)), (Edge(0, 1, 4e9),))
    assert play(cluster, [Job("j", graph)], "fifo", network=UniformNetwork(1.0)).ended_s == 4


def test_each_instance_of_a_child_reads_its_part() -> None:
    # One of two instances of the child runs beside the parent; the other one reads its half of 4 GB: 1 + 2 + 1.
    cluster = Cluster((Node("a", A100, 1), Node("b", A100, 1)))
    graph = TaskGraph((Task("parent", 1.0), Task("child", 1.0, instances=2)), (Edge(0, 1, 4e9),))
    schedule = play(cluster, [Job("j", graph)], "fifo", network=UniformNetwork(1.0))
    assert [row.time_s for row in schedule.log if row.kind == Kind.FINISHED] == [1, 2, 4]


def test_srpt_work_goes_by_what_is_left() -> None:
    # At 10 the first job has 1 s of its 11 left, the second one 5: the first goes on.
    jobs = [job("long", 10.0, 1.0, chained=True), single("short", 5.0, 1.0)]
    assert ends(play(ONE, jobs, "srpt-work")) == {"long": 11, "short": 16}
    assert ends(play(ONE, jobs, "sjf-cp")) == {"short": 15, "long": 16}


def test_easy_lxf_fills_the_most_slowed_down_in_first() -> None:
    # Two GPUs; "wide" wants both and waits for 10. One is free from 4: "a" would be slowed down (3 + 5) / 5 by then,
    # "b" (2 + 1) / 1, so b runs from 4 to 5 and a from 5 to 10.
    jobs = [
        single("r", 10.0),
        single("s", 4.0),
        single("wide", 1.0, 1.0, gpus=2),
        single("a", 5.0, 1.0),
        single("b", 1.0, 2.0),
    ]
    schedule = play(Cluster((Node("n", A100, 2),)), jobs, "easy-lxf")
    assert start_times(schedule) == {"r": [0], "s": [0], "b": [4], "a": [5], "wide": [10]}


def test_2d_las_breaks_ties_by_arrival() -> None:
    # Rounds of 4 s on one GPU: one 0-4, two 4-8; then both have had 4 GPU-seconds, and the older one takes its turn.
    schedule = play(ONE, [single("one", 8.0), single("two", 8.0)], "2d-las[quantum_s=4]")
    assert ends(schedule) == {"one": 12, "two": 16}


def test_2d_las_counts_gpus() -> None:
    # One GPU of two for 4 s is less than two for 4 s: at 8 the narrow job goes first although it came last.
    jobs = [single("wide", 8.0, gpus=2), single("narrow", 8.0)]
    schedule = play(Cluster((Node("n", A100, 2),)), jobs, "2d-las[quantum_s=4]")
    # wide 0-4 (8 GPU-s), narrow 4-12 (4, then 8 GPU-s at 12 with 8 s done), wide 12-16.
    assert ends(schedule) == {"narrow": 12, "wide": 16}


@pytest.mark.parametrize(("speed", "start_s", "node"), [(0.5, 1.0, 1), (0.48, 5.0, 0)])
def test_eft_wait_waits_for_enough_gpus(speed: float, start_s: float, node: int) -> None:
    # Two A100 are busy until 3 and 5. A task for two of them takes 4 s there: at 1, both are 4 s away, 8 s in all. On
    # T4 it takes 4 / .5 = 8 s, which is no later, or 4 / .48 = 8.3 s, which is.
    cluster = Cluster((Node("a", A100, 2), Node("t", T4, 2)))
    jobs = [
        single("r", 3.0, gpu_types=("A100-40",)),
        single("s", 5.0, gpu_types=("A100-40",)),
        single("x", 4.0, 1.0, gpus=2, speeds={"A100-40": 1.0, "T4": speed}),
    ]
    schedule = play(cluster, jobs, "eft-wait[theta=1.0]")
    (begun,) = [row for row in schedule.log if row.kind == Kind.STARTED and row.job == 2]
    assert (begun.time_s, begun.node) == (start_s, node)


def test_eft_wait_by_work_takes_the_job_with_the_least_work() -> None:
    # The shortest task is one of two of 2 s, but its job has 4 s of work, the other one 3.
    jobs = [job("pair", 2.0, 2.0), single("one", 3.0)]
    assert ends(play(ONE, jobs, "eft-wait[order=work]")) == {"one": 3, "pair": 7}
    assert ends(play(ONE, jobs, "eft-wait[order=task]")) == {"pair": 4, "one": 7}


def test_eft_wait_by_work_counts_what_is_left() -> None:
    # "chain" has 6 s, "first" 3: first 0-3, the chain's 5 s 3-8. At 8 it has 1 s left, and "late", of 2 s, waits.
    jobs = [job("chain", 5.0, 1.0, chained=True), single("first", 3.0), single("late", 2.0, 4.0)]
    assert ends(play(ONE, jobs, "eft-wait[order=work]")) == {"first": 3, "chain": 9, "late": 11}


def test_a_fork_draws_from_streams_of_its_own() -> None:
    # Whatever the fork draws, from a stream that was there or from a new one, the original draws as if it did not.
    kernel, alone = (ClusterKernel(ONE, [single("j", 1.0)], seed=3) for _ in range(2))
    assert kernel.streams.of("old").random() == alone.streams.of("old").random()
    fork = kernel.fork()
    drawn = [(fork.streams.of(name).random(), kernel.streams.of(name).random()) for name in ("old", "new")]
    assert drawn == [(number, number) for number in (alone.streams.of(name).random() for name in ("old", "new"))]


def test_a_fork_goes_on_with_what_is_being_fetched() -> None:
    # As above: 2 of 4 GB from the other node at 1 GB/s, from 1 to 3. At 1.5 the fork still has three quarters to fetch.
    cluster = Cluster((Node("a", A100, 1), Node("b", A100, 1)))
    graph = TaskGraph((Task("parent", 1.0, instances=2), Task("child", 1.0)), (Edge(0, 1, 4e9),))
    kernel = ClusterKernel(cluster, [Job("j", graph)], Models(network=UniformNetwork(1.0)))
    kernel.run(POLICIES.create("fifo"), until_s=1.5)
    assert kernel.fork().run(POLICIES.create("fifo")).ended_s == 4
    assert kernel.run(POLICIES.create("fifo")).ended_s == 4


def test_what_is_due_at_the_end_still_happens() -> None:
    # 4 s of work seen for 4: it has ended.
    kernel = ClusterKernel(ONE, [single("j", 4.0)])
    assert ends(kernel.run(POLICIES.create("fifo"), until_s=4.0)) == {"j": 4}


def test_what_a_row_of_the_log_does_not_speak_of_is_left_out() -> None:
    # One job is too large, one rejected, one killed at 2; the node is away from 1 to 3; the last comes at 3 and waits.
    def decide(view: ClusterView) -> Iterable[Decision]:
        yield from [Reject(1)] if 1 in view.applicants else []
        yield from [Admit(2)] if 2 in view.applicants else []
        yield Wait(4.0) if view.now >= 2 else Wait(2.0)
        if view.now == 2:
            yield Kill(2)

    jobs = [single("large", 1.0, gpus=2), single("one", 1.0), single("two", 1.0), single("late", 1.0, 3.0)]
    kernel = ClusterKernel(ONE, jobs, Models(admission=True, failures=[Maintenance((0,), 1.0, 3.0)]))
    log = list(kernel.run(Scripted(decide), until_s=3.5).log)
    assert log == [
        Record(Kind.ARRIVED, 0.0, job=0),
        Record(Kind.REJECTED, 0.0, job=0, value=RejectReason.TOO_LARGE),
        Record(Kind.ARRIVED, 0.0, job=1),
        Record(Kind.ARRIVED, 0.0, job=2),
        Record(Kind.REJECTED, 0.0, job=1, value=RejectReason.BY_POLICY),
        Record(Kind.ADMITTED, 0.0, job=2),
        Record(Kind.DOWN, 1.0, node=0),
        Record(Kind.REJECTED, 2.0, job=2, value=RejectReason.TIME_LIMIT),
        Record(Kind.UP, 3.0, node=0),
        Record(Kind.ARRIVED, 3.0, job=3),
    ]


def test_a_fork_wakes_its_policy_when_the_original_would() -> None:
    # The policy asked at 0 to be woken at 5, and forks at 2, where nobody asks again: 5 + 1 + 1.
    forked: list[float] = []

    def decide(view: ClusterView) -> Iterable[Decision]:
        if view.now == 0:
            yield Wait(5.0)
        elif view.now == 2 and not forked:
            forked.append(0.0)
            forked[0] = view.fork().run(Scripted(decide)).ended_s
        elif view.now >= 5 and not view.running:
            yield from [Start(task, (Share(0),)) for task in list(view.ready)[:1]]

    ClusterKernel(ONE, [single("one", 1.0), single("two", 1.0, 2.0)]).run(Scripted(decide))
    assert forked == [7]


def test_an_idle_gpu_beside_shared_ones_comes_before_an_untouched_machine() -> None:
    # The second half-and-more goes to the other GPU of the first machine.
    cluster = Cluster((Node("a", A100, 2), Node("b", A100, 2)))
    schedule = play(cluster, [single("one", 1.0, gpus=0.6), single("two", 1.0, gpus=0.6)], "fifo")
    assert [row.node for row in schedule.log if row.kind == Kind.STARTED] == [0, 0]


def test_a_killed_job_leaves_the_queues_of_policies() -> None:
    # The second waits behind the first, and is killed at 1, as the third comes: that one is next.
    sjf = POLICIES.create("sjf")

    def decide(view: ClusterView) -> Iterable[Decision]:
        yield from sjf.decide(view)
        if view.now == 1 and 1 in view.jobs:
            yield Kill(1)

    jobs = [single("first", 2.0), single("second", 3.0), single("third", 4.0, 1.0)]
    schedule = ClusterKernel(ONE, jobs).run(Scripted(decide))
    assert start_times(schedule) == {"first": [0], "third": [2]}


def test_an_observer_is_told_every_row_of_the_log() -> None:
    rows: list[tuple[float, ...]] = []
    schedule = ClusterKernel(ONE, [single("j", 1.0)], observers=[rows.append]).run(POLICIES.create("fifo"))
    assert rows == [tuple(row) for row in schedule.log]
    assert len(rows) == 4


def test_every_gpu_of_a_run_remembers_the_job_that_it_served() -> None:
    # A task on both GPUs, then one on the first of them: 2 to set up, 3, and 3 on a GPU that knows the job.
    tasks = (Task("first", 3.0, gpus=2), Task("second", 3.0, gpus=1))
    jobs = [Job("j", TaskGraph(tasks, (Edge(0, 1),)))]
    assert play(Cluster((Node("n", A100, 2),)), jobs, "fifo", setup=MovingDelay(2.0)).ended_s == 8


def test_a_node_that_came_back_and_left_for_good_is_missed() -> None:
    # Away from 1 to 2, and for good from 3: a policy that only asks to be woken again would do so for ever.
    away = Outages(((0, 1.0, 2.0), (0, 3.0, inf)))
    waiting = Scripted(lambda view: [Wait(view.now + 1.0)])
    kernel = ClusterKernel(ONE, [single("j", 1.0)], Models(failures=[away]))
    assert kernel.run(waiting, until_s=50.0).ended_s == 3.0
    assert why_unfinished(kernel) == {0: GONE}


@pytest.mark.family("gavel")
def test_a_run_that_is_late_can_be_stopped_in_a_fork() -> None:
    """By its estimate there is nothing left of it: 0 s where it may run, never elsewhere."""
    late = Job.single("late", Task("t", 100.0, gpu_types=("A100-40",), estimate=10.0))
    cluster = Cluster((Node("a", A100, 1), Node("b", T4, 1)))
    seen: list[tuple[tuple[float, ...], float]] = []

    def again(view: ClusterView) -> Iterable[Decision]:
        for run in list(view.running):
            yield Preempt(run)
        for task in list(view.ready):
            seen.append((task.seconds, task.left))
            assert view.fork().run(POLICIES.create("gavel")).ended_s == 50.0
            yield Start(task, (Share(0, 1),))

    def decide(view: ClusterView) -> Iterable[Decision]:
        if view.now == 50.0:
            assert view.fork().run(Scripted(again)).ended_s == 50.0
        yield from (Start(task, (Share(0, 1),)) for task in list(view.ready) if view.now == 0.0)
        yield Wait(50.0 if view.now < 50.0 else 1000.0)

    kernel = ClusterKernel(cluster, [late], Models(estimates=Estimates("predicted")))
    assert kernel.run(Scripted(decide)).ended_s == 100.0
    assert seen == [((0.0, inf), 0.0)]


MIXED = Cluster((Node("t", T4, 1), Node("a", A100, 1)))


@pytest.mark.parametrize("policy", ["fifo", "fifo-fit", "sjf", "srtf", "eft-wait", "easy"])
def test_a_task_does_not_start_on_a_type_on_which_its_speed_is_0(policy: str) -> None:
    jobs = [single(f"j{number}", 10.0, speeds={"A100-40": 1.0, "T4": 0.0}) for number in range(2)]
    schedule = ClusterKernel(MIXED, jobs).run(POLICIES.create(policy))
    assert [(row.time_s, row.node) for row in schedule.log if row.kind == Kind.FINISHED] == [(10, 1), (20, 1)]


def test_a_task_whose_speed_is_0_on_every_type_is_rejected() -> None:
    jobs = [single("never", 10.0, speeds={"A100-40": 0.0, "T4": 0.0}), single("fine", 5.0)]
    schedule = ClusterKernel(MIXED, jobs).run(POLICIES.create("fifo"))
    assert [row.value for row in schedule.log if row.kind == Kind.REJECTED] == [float(RejectReason.NO_SUCH_GPU)]
    assert schedule.ended_s == 5


def test_both_engines_know_where_a_speed_of_0_leaves_a_task() -> None:
    slow_on = [{"T4": 0.0}, {"A100-40": 0.0}, {"A100-40": 0.0, "T4": 0.0}, {"A100-40": 1e-300}, {}]
    jobs = [single(f"j{n}", 1e200 if n % 5 == 3 else n % 4, n / 3, speeds=slow_on[n % 5]) for n in range(40)]
    for policy in ("fifo", "sjf"):
        live = ClusterKernel(MIXED, [*jobs]).run(POLICIES.create(policy)).log
        assert engine_cases.compiled_schedule(MIXED, jobs, policy).log == live


class Natural:
    """The first loop that comes to mind, over everything that a view shows."""

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        for number in view.applicants:
            yield Admit(number)
        for run in view.running.values():
            if view.now == 3 and run.started_s < 3:
                yield Preempt(run.id)
        for task in view.ready:
            if placement := view.fit(task):
                yield Start(task, placement)


def test_a_policy_may_loop_over_what_its_decisions_change() -> None:
    jobs = [single(f"j{number}", 4.0, number // 2) for number in range(8)]
    cluster = Cluster((Node("n", A100, 4),))
    schedule = ClusterKernel(cluster, jobs, Models(admission=True)).run(Natural())
    assert sum(row.kind == Kind.COMPLETED for row in schedule.log) == 8
    assert sum(row.kind == Kind.PREEMPTED for row in schedule.log) == 4


class Noted(Start):
    """A start of a policy that notes something beside it."""


def test_a_subclass_of_a_decision_is_carried_out_like_it() -> None:
    class Plain:
        kind = Start

        def decide(self, view: ClusterView) -> Iterable[Decision]:
            for task in list(view.ready):
                placement = view.fit(task)
                if placement is not None:
                    yield self.kind(task, placement)

    class Subclassed(Plain):
        kind = Noted

    jobs = [Job.single(str(at), Task("t", 2.0 + at), float(at)) for at in range(5)]
    logs = [ClusterKernel(Cluster.of({"T4": 2}), jobs).run(policy).log for policy in (Plain(), Subclassed())]
    assert logs[0] == logs[1]
    assert len(logs[0]) == 4 * len(jobs)
