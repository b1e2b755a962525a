"""Simulations that begin with running and waiting jobs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from support.log_reading import ends, starts

from dagsim.errors import ModelError
from dagsim.experiment.schedule_files import jobs_text, packed_schedule
from dagsim.metrics import summarize
from dagsim.model import Cluster, InFlight, Job, Kind, Node, Share, Task, gpu_type
from dagsim.model.log import Schedule
from dagsim.systems.cluster import Maintenance
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.testing import engine_cases, violations
from dagsim.workload.arrays import JobArrays

T4 = gpu_type("T4")
TWO = Cluster((Node("a", T4, 2), Node("b", T4, 2)))
STATE = [
    Job.single("long", Task("t", 100.0, gpus=2), 0.0, in_flight=(InFlight(5.0, (Share(1),)),)),
    Job.single("waits", Task("t", 10.0, gpus=2), 10.0),
    Job.single("short", Task("t", 30.0, gpus=2), 12.0, in_flight=(InFlight(20.0, (Share(0),)),)),
    Job.single("later", Task("t", 10.0), 45.0),
]


def play(jobs: list[Job], policy: str = "fifo", begins_s: float = 40.0, **models: object) -> Schedule:
    scenario = ClusterScenario(TWO, jobs, begins_s=begins_s, **models)  # type: ignore[arg-type]
    return drive(scenario.kernel(0), POLICIES.create(policy))


def test_jobs_in_flight_go_on_where_they_run_and_end_when_their_work_is_done() -> None:
    schedule = play(STATE)
    begun = {"long": [(5.0, 1)], "short": [(20.0, 0)], "waits": [(50.0, 0)], "later": [(60.0, 0)]}
    assert starts(schedule) == begun
    assert ends(schedule) == {"short": 50.0, "waits": 60.0, "later": 70.0, "long": 105.0}
    assert violations(schedule, STATE) == []


def test_the_compiled_engine_begins_in_the_middle_too() -> None:
    live = play(STATE)
    assert engine_cases.equal(engine_cases.compiled_schedule(TWO, STATE, "fifo", begins_s=40.0), live)
    assert live.begins_s == 40.0


def test_a_policy_without_memory_goes_on_as_if_it_had_never_stopped() -> None:
    rng = random.Random("go on")
    for _ in range(10):
        cluster, jobs = engine_cases.random_cluster(rng), engine_cases.jobs_of(rng)
        jobs = [replace(job, graph=replace(job.graph, tasks=job.graph.tasks[:1], edges=())) for job in jobs]
        whole = drive(ClusterScenario(cluster, jobs).kernel(0), POLICIES.create("fifo"))
        begins_s = jobs[len(jobs) // 2].arrival_s + 0.5
        kernel = ClusterScenario(cluster, jobs).kernel(0)
        drive(kernel, POLICIES.create("fifo"), begins_s)
        left = [
            engine_cases.left_of(random.Random(2), active, [r for r in kernel.running.values() if r.task.job is active])
            for active in kernel.frontier.jobs.values()
        ]
        later = [*left, *(job for job in jobs if job.arrival_s > begins_s)]
        rest = drive(ClusterScenario(cluster, later, begins_s=begins_s).kernel(0), POLICIES.create("fifo"))
        assert ends(rest) == {job: end_s for job, end_s in ends(whole).items() if end_s > begins_s}


@pytest.mark.parametrize("policy", POLICIES.names())
def test_every_policy_plays_a_state_by_the_rules(policy: str) -> None:
    for number in (3,):
        rng = random.Random(f"middle {number}")
        cluster = engine_cases.random_cluster(rng)
        jobs, begins_s = engine_cases.in_the_middle(rng, cluster, engine_cases.jobs_of(rng))
        schedule = drive(ClusterScenario(cluster, jobs, begins_s=begins_s).kernel(0), POLICIES.create(policy))
        assert violations(schedule, jobs) == []


def test_a_run_that_is_overdue_ends_at_the_beginning() -> None:
    late = Job.single("late", Task("t", 3.0), 0.0, in_flight=(InFlight(1.0, (Share(0),)),))
    assert ends(play([late])) == {"late": 40.0}
    assert engine_cases.compiled_schedule(TWO, [late], "fifo", begins_s=40.0).log == play([late]).log


def test_a_state_in_which_nothing_runs_and_no_job_is_to_come_begins_with_its_waiting_jobs() -> None:
    waiting = Job.single("waits", Task("t", 9.0), 6.0)
    assert ends(play([waiting])) == {"waits": 49.0}


def test_metrics_count_the_jobs_that_arrive_later_and_the_time_from_the_beginning() -> None:
    summary = summarize(play(STATE))
    assert (summary.jobs_arrived, summary.wait_s.mean) == (1, 15.0)
    assert summary.horizon_s == 65.0
    assert summary.utilization == (2 * 65 + 2 * 10 + 2 * 10 + 10) / (4 * 65)


def test_without_later_arrivals_metrics_count_the_jobs_that_waited() -> None:
    summary = summarize(play(STATE[:3]))
    assert (summary.jobs_arrived, summary.wait_s.mean) == (1, 40.0)


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (
            replace(STATE[0], in_flight=(InFlight(5.0, (Share(7),)),)),
            "'long' is in flight on node number 7, but there are 2",
        ),
        (
            Job.single("big", Task("t", 9.0, gpus=2), 6.0, in_flight=(InFlight(6.0, (Share(1),)),)),
            "'big' is in flight on node 'b' with 1 x 2 GPUs, but only 0 fit",
        ),
        (
            Job.single("v", Task("t", 9.0, gpu_types=("V100-16",)), 6.0, in_flight=(InFlight(6.0, (Share(1),)),)),
            "'v' is in flight on node 'b', but the task requests more than the whole cluster has",
        ),
        (
            Job.single("now", Task("t", 9.0), 6.0, in_flight=(InFlight(40.0, (Share(1),)),)),
            "'now' has been running since 40.0 s",
        ),
    ],
)
def test_a_state_that_does_not_fit_names_job_and_node(job: Job, says: str) -> None:
    jobs = [STATE[0], job] if job.id != "long" else [job]
    for run in (play, lambda jobs: engine_cases.compiled_schedule(TWO, jobs, "fifo", begins_s=40.0)):
        with pytest.raises(ModelError, match=says):
            run(jobs)


def test_impossible_flights_are_refused_with_the_job() -> None:
    for flight in (InFlight(-1.0, (Share(0),)), InFlight(1.0, (Share(0, 2),)), InFlight(1.0, (Share(0),), 3)):
        with pytest.raises(ModelError, match="job 'j'"):
            Job.single("j", Task("t", 1.0), 0.5, in_flight=(flight,))


def test_disturbances_count_from_the_beginning() -> None:
    schedule = play(STATE, failures=(Maintenance((0,), 4.0, 100.0),))
    assert [(row.time_s, row.node) for row in schedule.log if row.kind == Kind.DOWN] == [(44.0, 0)]


def test_arrays_keep_the_state_and_scale_only_what_comes_later() -> None:
    arrays = replace(JobArrays.of(STATE), begins_s=40.0)
    assert list(arrays.jobs()) == STATE
    slower = JobArrays.joined([arrays.between(0, 2), arrays.between(2, 4)]).shifted(0.0, 2.0)
    assert slower.arrival_s.tolist() == [0.0, 10.0, 12.0, 50.0]
    assert slower.begins_s == 40.0
    moved = arrays.shifted(-5.0, 1.0)
    assert (moved.begins_s, next(moved.jobs()).in_flight[0].since_s) == (45.0, 10.0)


def test_files_keep_the_beginning() -> None:
    assert '"begins_s": 40.0' in jobs_text(play(STATE))
    assert '"begins_s"' not in jobs_text(play(STATE[3:], begins_s=0.0))
    assert b"begins_s.npy" in packed_schedule(play(STATE))


def test_a_state_in_which_nothing_runs_is_decided_at_once() -> None:
    assert starts(play([Job.single("waits", Task("t", 5.0), 2.0)])) == {"waits": [(40.0, 0)]}
