"""The past of a simulation that begins in the middle: what policies are told of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.log_reading import start_times

from dagsim.config.schema import Config, load_config
from dagsim.errors import ModelError
from dagsim.experiment.simulate import run_policy
from dagsim.model import (
    Cluster,
    Decision,
    InFlight,
    Job,
    Kind,
    Node,
    Preempt,
    QueueTree,
    Request,
    Share,
    Start,
    Task,
    TaskGraph,
    Wait,
    gpu_type,
)
from dagsim.model.log import Schedule
from dagsim.model.queues import NodePartition
from dagsim.systems.cluster import ClusterView
from dagsim.systems.cluster.past.recall import forgotten, unknown_past
from dagsim.systems.cluster.past.rehearsal import with_past
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.cluster.state import Run
from dagsim.systems.seam import drive
from dagsim.workload.records import job_of, record_of

T4 = gpu_type("T4")
TWO = Cluster((Node("a", T4, 1), Node("b", T4, 1)))


def whole_of(scenario: ClusterScenario, policy: str) -> tuple[Schedule, dict[int, int]]:
    """The schedule of a policy, and the number of the piece of each run."""
    kernel, pieces = scenario.kernel(0), dict[int, int]()
    kernel.frontier.started.append(lambda run, _: pieces.setdefault(run.id, run.task.piece))
    return drive(kernel, POLICIES.create(policy)), pieces


def play(jobs: list[Job], policy: str, begins_s: float, cluster: Cluster = TWO, **models: object) -> Schedule:
    scenario = ClusterScenario(cluster, jobs, begins_s=begins_s, **models)  # type: ignore[arg-type]
    return drive(scenario.kernel(0), POLICIES.create(policy))


def limited(id: str, arrival_s: float, work_s: float, limit_s: float, gpus: int = 1, **rest: object) -> Job:
    task = Task("t", work_s, instances=gpus, gang=gpus > 1, estimate=limit_s)
    return Job.single(id, task, arrival_s, **rest)  # type: ignore[arg-type]


def test_slurm_counts_the_limit_of_a_run_in_flight_from_its_own_start() -> None:
    # It runs since 0 s with a limit of 5,000 s: the wide job can start at 5,000 s at the latest, so that the small
    # one, with a limit of 2,000 s, must not start at 3,600 s.
    jobs = [
        limited("runs", 0.0, 5000.0, 5000.0, in_flight=(InFlight(0.0, (Share(0),)),)),
        limited("wide", 3500.0, 600.0, 1200.0, gpus=2),
        limited("small", 3600.0, 1500.0, 2000.0),
    ]
    queues = QueueTree(partitions=(NodePartition("p"),))
    begun = start_times(play(jobs, "slurm-multifactor", 3000.0, queues=queues))
    assert begun["wide"][0] == 5000.0
    assert begun["small"] == [5600.0]


def test_an_index_is_told_of_past_runs_with_their_own_times() -> None:
    heard: list[tuple[str, str, float]] = []

    class Listener:
        def push(self, task: object) -> None:
            heard.append(("ready", task.task.name, task.ready_s))  # type: ignore[attr-defined]

        def started(self, run: Run, now: float) -> None:
            heard.append(("started", run.task.task.name, now))

        def ended(self, run: Run, now: float) -> None:
            heard.append(("ended", run.task.task.name, now))

    class Listens:
        def decide(self, view: ClusterView) -> list[object]:
            view.index("listener", Listener)
            return []

    graph = TaskGraph.of([Task("one", 10.0), Task("two", 10.0), Task("three", 10.0)], {"two": ["one"]})
    past = (
        InFlight(1.0, (Share(0),), 0, 11.0),
        InFlight(2.0, (Share(1),), 2, 5.0, "preempted", (0, 1)),
        InFlight(12.0, (Share(0),), 1),
        InFlight(13.0, (Share(1),), 2, resumes=0),
    )
    kernel = ClusterScenario(TWO, [Job("j", graph, 0.5, in_flight=past)], begins_s=15.0).kernel(0)
    schedule = kernel.run(Listens())  # type: ignore[arg-type]
    assert heard[:9] == [
        ("ready", "one", 0.5), ("ready", "three", 0.5), ("started", "one", 1.0), ("started", "three", 2.0),
        ("ended", "three", 5.0), ("ready", "three", 5.0), ("ended", "one", 11.0), ("ready", "two", 11.0),
        ("started", "two", 12.0),
    ]  # fmt: skip
    ends = {row.task: row.time_s for row in schedule.log if row.kind == Kind.FINISHED}
    assert ends == {0: 11.0, 1: 22.0, 2: 20.0}  # the third had 7 of its 10 s left


def test_service_before_the_beginning_counts_for_las() -> None:
    preempted = InFlight(0.0, (Share(0),), 0, 50.0, "preempted")
    jobs = [
        Job.single("served", Task("t", 100.0), 0.0, in_flight=(preempted,)),
        Job.single("new", Task("t", 100.0), 60.0),
        Job.single("runs", Task("t", 30.0), 5.0, in_flight=(InFlight(60.0, (Share(0),)),)),
    ]
    jobs.sort(key=lambda job: job.arrival_s)
    begun = start_times(play(jobs, "las[quantum_s=1000]", 70.0, Cluster((Node("a", T4, 1),))))
    assert begun["new"] == [90.0]
    assert begun["served"] == [0.0, 190.0]


def test_a_job_that_runs_and_waits_at_the_beginning_is_ranked_by_its_service_until_then() -> None:
    two = TaskGraph((Task("one", 100.0), Task("two", 100.0)))
    jobs = [
        Job("served", two, 0.0, in_flight=(InFlight(10.0, (Share(0),)),)),
        Job.single("new", Task("t", 100.0), 5.0),
    ]
    assert start_times(play(jobs, "2d-las[quantum_s=1000]", 20.0)) == {"served": [10.0, 110.0], "new": [20.0]}


def test_jobs_become_ready_when_they_did() -> None:
    # Slurm's age counts from the time at which a job became eligible, not from its arrival or the beginning.
    jobs = [
        limited("runs", 0.0, 100.0, 100.0, in_flight=(InFlight(0.0, (Share(0),)),)),
        limited("late", 1.0, 10.0, 10.0, eligible_s=40.0),
        limited("early", 2.0, 10.0, 10.0, request=Request(begin_s=8.0)),
    ]
    scenario = ClusterScenario(Cluster((Node("a", T4, 1),)), jobs, begins_s=50.0)
    kernel = scenario.kernel(0)
    assert [(task.job.job.id, task.ready_s) for task in kernel.frontier.ready] == [("early", 10.0), ("late", 40.0)]


def test_one_of_several_conditions_may_have_been_met_by_a_job_that_has_left() -> None:
    either = Request(after=("waits", "start:gone"), after_one=True)
    jobs = [
        limited("runs", 0.0, 100.0, 100.0, in_flight=(InFlight(0.0, (Share(0),)),)),
        limited("waits", 1.0, 50.0, 50.0),
        limited("free", 2.0, 10.0, 10.0, eligible_s=40.0, request=either),
    ]
    kernel = ClusterScenario(Cluster((Node("a", T4, 1),)), jobs, begins_s=50.0).kernel(0)
    assert [(task.job.job.id, task.ready_s) for task in kernel.frontier.ready] == [("waits", 1.0), ("free", 40.0)]


def test_an_array_lets_no_more_tasks_in_than_before() -> None:
    def member(id: str, arrival_s: float, *past: InFlight) -> Job:
        request = Request(array="arr", array_limit=1)
        return Job.single(id, Task("t", 50.0), arrival_s, request=request, in_flight=past)

    jobs = [
        member("arr_1", 0.0, InFlight(0.0, (Share(0),), 0, 50.0)),
        member("arr_2", 1.0, InFlight(50.0, (Share(0),))),
        member("arr_3", 2.0),
    ]
    assert start_times(play(jobs, "fifo", 70.0))["arr_3"] == [100.0]


def test_a_memory_is_not_taken_from_the_past_of_another_policy() -> None:
    jobs = [Job.single(f"j{number}", Task("t", 10.0 + number), float(number)) for number in range(9)]
    whole, pieces = whole_of(ClusterScenario(TWO, jobs), "ljf")
    scenario = ClusterScenario(TWO, with_past(whole, jobs, 30.0, pieces), begins_s=30.0, left=())
    for name, notes in {"ljf": 0, "heft": 1, "slurm-multifactor": 1}.items():
        kernel, policy = scenario.kernel(0), POLICIES.create(name)
        drive(kernel, policy)
        assert len(unknown_past(kernel, policy)) == notes, name


def test_no_memory_is_taken_from_a_past_that_is_not_whole() -> None:
    jobs = [Job.single(f"j{number}", Task("t", 10.0 + number), float(number)) for number in range(9)]
    whole, pieces = whole_of(ClusterScenario(TWO, jobs), "heft")
    then = with_past(whole, jobs, 30.0, pieces)  # some of these jobs are done
    for left, notes in ((), 0), (None, 1):
        scenario = ClusterScenario(TWO, then, begins_s=30.0, left=left)
        kernel, policy = scenario.kernel(0), POLICIES.create("heft")
        drive(kernel, policy)
        assert len(unknown_past(kernel, policy)) == notes, left


class Alternating:
    """A policy of a user, with slots: it starts one job at a time, on each node in turn."""

    __slots__ = ("turns",)
    forgets = "which node comes next"

    def __init__(self) -> None:
        self.turns = 0

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        for task in [] if view.running else list(view.ready)[:1]:
            yield Start(task, (Share(self.turns % 2),))
            self.turns += 1


def test_a_policy_of_a_user_with_slots_takes_over_its_memory_of_its_own_past_alone() -> None:
    jobs = [Job.single(f"j{number}", Task("t", 10.0), 0.0) for number in range(5)]
    kernel = ClusterScenario(TWO, jobs).kernel(0)
    own = drive(kernel, Alternating())
    nodes = [row.node for row in own.log if row.kind == Kind.STARTED]
    assert nodes == [0, 1, 0, 1, 0]
    other, pieces = whole_of(ClusterScenario(TWO, jobs), "ljf")
    for past, notes in (own, 0), (other, 1):
        then = with_past(past, jobs, 15.0, pieces)
        kernel, policy = ClusterScenario(TWO, then, begins_s=15.0, left=()).kernel(0), Alternating()
        rest = drive(kernel, policy)
        assert len(unknown_past(kernel, policy)) == notes
        assert notes or [row.node for row in rest.log if row.kind == Kind.STARTED] == nodes


def test_qssf_predicts_the_same_whether_or_not_it_was_asked_at_that_time() -> None:
    one = Cluster((Node("a", T4, 1),))
    jobs = [
        limited("first", 0.0, 100.0, 100.0, tenant="a"),
        limited("second", 10.0, 50.0, 50.0, tenant="b"),
        # becomes ready at 100 s, after the policy has learned that the first job ended and started the second
        limited("linked", 20.0, 10.0, 10.0, tenant="c", request=Request(after=("start:second",))),
        limited("waits", 30.0, 10.0, 10.0, tenant="d"),
    ]
    whole, pieces = whole_of(ClusterScenario(one, jobs), "qssf")
    rest = play(with_past(whole, jobs, 120.0, pieces), "qssf", 120.0, one)
    later = {id: times for id, times in start_times(whole).items() if times[0] >= 120.0}
    assert later == {id: times for id, times in start_times(rest).items() if times[0] >= 120.0}
    assert later


def test_jobs_that_are_done_are_told_in_the_order_of_their_arrivals() -> None:
    three = Cluster((*TWO.nodes, Node("c", T4, 1)))
    jobs = [
        limited("long", 1.0, 900.0, 900.0, tenant="x", weight=1.0),  # decides what tenant x is entitled to
        limited("short", 1.0, 10.0, 10.0, tenant="x", weight=9.0),  # arrives at the same time, and is done
        limited("other", 2.0, 900.0, 900.0, tenant="y", weight=2.0),
        limited("holds", 12.0, 40.0, 40.0, tenant="z"),
        limited("second-x", 20.0, 10.0, 10.0, tenant="x"),
        limited("second-y", 21.0, 10.0, 10.0, tenant="y"),
    ]
    whole, pieces = whole_of(ClusterScenario(three, jobs), "drf")
    scenario = ClusterScenario(three, with_past(whole, jobs, 30.0, pieces), begins_s=30.0, left=())
    rest = drive(scenario.kernel(0), POLICIES.create("drf"))
    assert start_times(whole)["second-y"] < start_times(whole)["second-x"]
    assert start_times(rest)["second-y"] == start_times(whole)["second-y"]


def test_a_job_whose_begin_time_is_that_of_a_preemption_is_ready_before_the_stopped_run() -> None:
    one = Cluster((Node("a", T4, 1),))
    jobs = [
        Job.single("long", Task("t", 200.0), 0.0),
        Job.single("other", Task("t", 200.0), 1.0),
        Job.single("later", Task("t", 200.0), 2.0, request=Request(begin_s=118.0)),  # at 120 s, as a slice ends
    ]
    whole, pieces = whole_of(ClusterScenario(one, jobs), "round-robin")
    scenario = ClusterScenario(one, with_past(whole, jobs, 170.0, pieces), begins_s=170.0, left=())
    rest = drive(scenario.kernel(0), POLICIES.create("round-robin"))
    after = {id: [time_s for time_s in times if time_s >= 170.0] for id, times in start_times(whole).items()}
    assert after == {id: [time_s for time_s in times if time_s >= 170.0] for id, times in start_times(rest).items()}


def log_of(folder: Path, runs: list[tuple[str, str, float, float, float]]) -> Path:
    """A log of jobs on one GPU: id, user, arrival, start and seconds."""
    lines = ["id,arrival_s,start_s,duration_s,gpus,user,tenant"]
    lines += [f"{id},{arrival},{start},{seconds},1,{user},{user}" for id, user, arrival, start, seconds in runs]
    path = folder / "log.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def config_of(folder: Path, *settings: str) -> Config:
    path = folder / "c.yaml"
    path.write_text("cluster:\n  groups:\n    - {name: a, gpu: T4, gpus: 1, count: 1}\n", encoding="utf-8")
    return load_config(path, settings)


RUNS = [
    ("slow-1", "slow", 0.0, 0.0, 1000.0),
    ("quick-1", "quick", 10.0, 1000.0, 10.0),
    ("slow-2", "slow", 20.0, 1010.0, 500.0),
    ("slow-3", "slow", 1050.0, 1510.0, 500.0),
    ("quick-2", "quick", 1200.0, 2010.0, 10.0),
]


def test_a_policy_with_a_memory_learns_from_the_log_before_the_beginning(tmp_path: Path) -> None:
    config = config_of(tmp_path, f"workload={{kind: trace, path: {log_of(tmp_path, RUNS)}, since: 1300}}")
    outcome = run_policy(config, "qssf", 0)
    begun = start_times(outcome.schedule)
    assert begun["quick-2"] < begun["slow-3"]
    assert "notes" not in outcome.decider


def test_what_no_log_holds_is_said(tmp_path: Path) -> None:
    config = config_of(tmp_path, f"workload={{kind: trace, path: {log_of(tmp_path, RUNS)}, since: 1300}}")
    notes = run_policy(config, "random", 0).decider["notes"]
    assert notes == ["the policy starts anew, because a log does not show how many random numbers had been drawn"]


def test_what_a_placement_forgets_is_the_policys() -> None:
    assert forgotten(POLICIES.create("sjf")) == []
    assert forgotten(POLICIES.create("sjf[placement=random]")) == ["how many random numbers had been drawn"]
    assert forgotten(POLICIES.create("srtf[placement=fgd]")) == ["the demands that it was asked to place"]


def test_past_runs_survive_a_file() -> None:
    past = (InFlight(1.0, (Share(0),), 0, 5.0, "failed", (3, 9)), InFlight(6.0, (Share(1),), resumes=3))
    job = Job.single("j", Task("t", 10.0), 0.0, in_flight=past)
    assert job_of(json.loads(json.dumps(record_of(job)))) == job
    plain = replace(job, in_flight=(InFlight(6.0, (Share(1),)),))
    assert record_of(plain)["in_flight"] == [(6.0, (Share(1),), 0)]


def test_a_task_in_flight_needs_its_parents_done() -> None:
    graph = TaskGraph.of([Task("one", 10.0), Task("two", 10.0)], {"two": ["one"]})
    with pytest.raises(ModelError, match="it waits for task 'one', which is not done"):
        Job("j", graph, 0.0, in_flight=(InFlight(3.0, (Share(0),), 1),))


@pytest.mark.parametrize("policy", ["las[quantum_s=20]", "srsf", "srtf"])
def test_pieces_of_a_preempted_task_keep_their_own_work(policy: str) -> None:
    lengths_s = (90.0, 61.0, 35.0, 20.0)
    jobs = [
        Job.single(f"j{number}", Task("t", of_s, instances=2), 10.0 * number) for number, of_s in enumerate(lengths_s)
    ]
    whole, pieces = whole_of(ClusterScenario(TWO, jobs), policy)
    assert len({*pieces.values()}) > 4
    for at_s in (25.0, 41.0, 95.0, 200.0):
        rest = play(with_past(whole, jobs, at_s, pieces), policy, at_s)
        assert [row for row in rest.log if row.time_s > at_s] == [row for row in whole.log if row.time_s > at_s]


class _Halfway:
    """Preempts the run of the first instance at 5 s, and lets it go on at once, before the second instance."""

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        if view.now == 5.0 and 0 in view.running:
            yield Preempt(0)
            yield Start(next(task for task in view.ready if task.piece), (Share(0),))
        elif view.ready and not view.running:
            yield Start(next(iter(view.ready)), (Share(0),))
            if view.now == 0.0:
                yield Wait(5.0)


def test_a_run_in_flight_states_the_start_of_the_run_that_it_resumes() -> None:
    jobs = [Job.single("j", Task("t", 10.0, instances=2), 0.0)]
    one = Cluster((Node("a", T4, 1),))
    kernel, pieces = ClusterScenario(one, jobs).kernel(0), dict[int, int]()
    kernel.frontier.started.append(lambda run, _: pieces.setdefault(run.id, run.task.piece))
    whole = drive(kernel, _Halfway())
    begun = [(place, row.time_s) for place, row in enumerate(whole.log) if row.kind == Kind.STARTED]
    assert [time_s for _, time_s in begun] == [0.0, 5.0, 10.0]
    assert [*pieces.values()] == [0, 1, 0]
    [job] = with_past(whole, jobs, 12.0, pieces)
    runs = [(run.since_s, run.until_s, run.resumes) for run in job.in_flight]
    assert runs == [(0.0, 5.0, -1), (5.0, 10.0, begun[0][0]), (10.0, None, -1)]
