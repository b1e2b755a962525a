from __future__ import annotations

import numpy as np
import pytest

from dagsim.metrics import (
    bounded_slowdown,
    bounded_stretch,
    jct,
    makespan,
    queueing,
    running,
    stretch,
    throughput,
    wait,
)
from dagsim.model import Cluster, Kind, RejectReason

NODE = Cluster.of({"T4": 4})


def waited_and_ran(plan_of, wait_s, run_s, ideal_s=1.0):
    plan = plan_of(NODE)
    job = plan.job(5.0, ideal_s=ideal_s, completed_s=5.0 + wait_s + run_s)
    plan.run(job, 5.0 + wait_s, 5.0 + wait_s + run_s)
    return plan.schedule()


def test_jct_counts_from_arrival_to_completion(plan_of):
    assert jct(waited_and_ran(plan_of, 3.0, 4.0)).tolist() == [7.0]


def test_queueing_and_running_make_up_the_jct(plan_of):
    schedule = waited_and_ran(plan_of, 3.0, 4.0)
    assert queueing(schedule).tolist() == [3.0]
    assert running(schedule).tolist() == [4.0]


def test_runs_side_by_side_are_running_time_once(plan_of):
    # runs 2..6 and 4..8 overlap, a preempted one lasts 9..10, the last 12..13: running 6 + 1 + 1, queueing 2 + 1 + 2
    plan = plan_of(NODE)
    job = plan.job(0.0, completed_s=13.0)
    plan.run(job, 2.0, 6.0, {0: (0,)})
    plan.run(job, 4.0, 8.0, {0: (1,)})
    plan.run(job, 9.0, 10.0, {0: (0,)}, task=1, outcome=Kind.PREEMPTED)
    plan.run(job, 12.0, 13.0, {0: (0,)}, task=1)
    assert queueing(plan.schedule()).tolist() == [5.0]
    assert wait(plan.schedule()).tolist() == [2.0]  # to the first start only
    assert running(plan.schedule()).tolist() == [8.0]


def test_queueing_is_exactly_zero_where_a_job_never_queued(plan_of):
    plan = plan_of(NODE)
    job = plan.job(0.1, completed_s=0.7)
    plan.run(job, 0.1, 0.3)
    plan.run(job, 0.3, 0.7)
    assert queueing(plan.schedule()).tolist() == [0.0]


def test_wait_is_first_start_minus_submission(plan_of):
    plan = plan_of(NODE)
    stopped = plan.job(1.0, completed_s=20.0)
    plan.run(stopped, 3.0, 4.0, outcome=Kind.PREEMPTED)
    plan.run(stopped, 15.0, 20.0)
    plan.job(2.0, completed_s=2.5)  # done without a run
    schedule = plan.schedule()
    assert wait(schedule).tolist() == [2.0, 0.5]
    assert queueing(schedule).tolist() == [13.0, 0.5]


def test_bounded_slowdown_of_a_preempted_job_counts_all_its_queueing(plan_of):
    plan = plan_of(NODE)
    job = plan.job(0.0, completed_s=100.0)
    plan.run(job, 0.0, 10.0, outcome=Kind.PREEMPTED)
    plan.run(job, 90.0, 100.0)
    assert bounded_slowdown(plan.schedule()).tolist() == [5.0]  # 100 / (10 + 10)


def test_stretch_is_jct_over_ideal(plan_of):
    assert stretch(waited_and_ran(plan_of, 3.0, 4.0, ideal_s=2.0)).tolist() == [3.5]


def test_stretch_of_a_job_without_work(plan_of):
    plan = plan_of(NODE)
    plan.job(0.0, ideal_s=0.0, completed_s=0.0)
    plan.job(0.0, ideal_s=0.0, completed_s=2.0)
    assert stretch(plan.schedule()).tolist() == [1.0, np.inf]


@pytest.mark.parametrize(("wait_s", "run_s", "expected"), [(100.0, 5.0, 10.5), (100.0, 200.0, 1.5), (0.0, 3.0, 1.0)])
def test_bounded_slowdown_of_batch_systems(plan_of, wait_s, run_s, expected):
    # (100 + 5) / 10, (100 + 200) / 200, and never below 1
    assert bounded_slowdown(waited_and_ran(plan_of, wait_s, run_s)).tolist() == [expected]


def test_bounded_stretch_is_by_the_ideal_time(plan_of):
    # 300 / 100: ran twice as long as on the fastest GPU; 105 / max(5, 10)
    assert bounded_stretch(waited_and_ran(plan_of, 100.0, 200.0, ideal_s=100.0)).tolist() == [3.0]
    assert bounded_stretch(waited_and_ran(plan_of, 100.0, 5.0, ideal_s=5.0)).tolist() == [10.5]
    assert bounded_stretch(waited_and_ran(plan_of, 100.0, 5.0, ideal_s=5.0), tau_s=3.0).tolist() == [21.0]


def test_rejected_and_unfinished_jobs_have_no_times(plan_of):
    plan = plan_of(NODE)
    plan.reject(plan.job(0.0), 0.0, RejectReason.TOO_LARGE)
    plan.run(plan.job(1.0), 1.0, None)
    for metric in (jct, wait, queueing, running, stretch, bounded_stretch, bounded_slowdown):
        assert np.isnan(metric(plan.schedule())).all()


def test_makespan_is_first_arrival_to_last_completion(plan_of):
    plan = plan_of(NODE)
    plan.job(3.0, completed_s=20.0)
    plan.job(4.0, completed_s=9.0)
    plan.reject(plan.job(1.0), 1.0, RejectReason.TOO_LARGE)
    assert makespan(plan.schedule()) == 17.0


def test_makespan_is_refused_while_a_job_is_unfinished(plan_of):
    plan = plan_of(NODE)
    plan.job(3.0, completed_s=20.0)
    plan.job(4.0)
    assert np.isnan(makespan(plan.schedule()))
    assert np.isnan(makespan(plan_of(NODE).schedule()))


def test_throughput_counts_a_job_that_is_done_at_once(plan_of):
    plan = plan_of(NODE)
    plan.job(100.0, completed_s=100.0)
    plan.job(200.0, completed_s=1900.0)
    assert throughput(plan.schedule()) == 4.0


def test_throughput_is_jobs_per_hour(plan_of):
    # 2 jobs in 100..1900 s: half an hour
    plan = plan_of(NODE)
    plan.job(100.0, completed_s=1900.0)
    plan.job(200.0, completed_s=300.0)
    assert throughput(plan.schedule()) == 4.0
