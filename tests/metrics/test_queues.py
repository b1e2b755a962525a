from __future__ import annotations

from dagsim.metrics import jobs_in_system, jobs_running, jobs_waiting, littles_law
from dagsim.model import Cluster, Kind, RejectReason

NODE = Cluster.of({"T4": 1})


def two_jobs(plan_of):
    """Job 0 arrives at 0 and runs 0..4; job 1 arrives at 1 and runs 4..6, is preempted, and runs 7..10."""
    plan = plan_of(NODE)
    first, second = plan.job(0.0, completed_s=4.0), plan.job(1.0, completed_s=10.0)
    plan.run(first, 0.0, 4.0)
    plan.run(second, 4.0, 6.0, outcome=Kind.PREEMPTED)
    plan.run(second, 7.0, 10.0)
    plan.reject(plan.job(2.0), 2.0, RejectReason.TOO_LARGE)
    return plan.schedule()


def test_jobs_are_in_the_system_from_arrival_to_completion(plan_of):
    counted = jobs_in_system(two_jobs(plan_of))
    assert counted.time_s.tolist() == [0.0, 1.0, 4.0]
    assert counted.value.tolist() == [1.0, 2.0, 1.0]
    assert counted.end_s == 10.0


def test_jobs_wait_before_their_first_run_and_after_preemption(plan_of):
    counted = jobs_waiting(two_jobs(plan_of))
    assert counted.time_s.tolist() == [0.0, 1.0, 4.0, 6.0, 7.0]
    assert counted.value.tolist() == [0.0, 1.0, 0.0, 1.0, 0.0]


def test_waiting_and_running_jobs_are_those_in_the_system(plan_of):
    schedule = two_jobs(plan_of)
    assert jobs_waiting(schedule).integral() == 4.0
    assert jobs_running(schedule).integral() == 9.0
    assert jobs_in_system(schedule).integral() == 13.0


def test_littles_law_holds(plan_of):
    # JCTs 4 and 9
    assert littles_law(two_jobs(plan_of)) == (13.0, 13.0)


def test_littles_law_counts_an_unfinished_job_to_the_end_of_the_log(plan_of):
    plan = plan_of(NODE)
    plan.job(0.0, completed_s=4.0)
    plan.job(2.0)
    assert littles_law(plan.schedule(ended_s=9.0)) == (11.0, 11.0)
