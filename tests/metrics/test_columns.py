from __future__ import annotations

import numpy as np
import pytest

from dagsim.metrics import ScheduleColumns, columns
from dagsim.model import Cluster, Kind, RejectReason
from dagsim.model.log import Schedule, ScheduleLog

TWO_NODES = Cluster.of({"T4": 4}, per_node=2)


def test_a_run_that_spans_nodes_has_one_entry_per_node(plan_of):
    plan = plan_of(TWO_NODES)
    job = plan.job(0.0, completed_s=8.0)
    plan.run(job, 1.0, 8.0, {0: (0, 1), 1: (1,)})
    runs = columns(plan.schedule()).runs
    assert runs.run.tolist() == [0, 0]
    assert runs.node.tolist() == [0, 1]
    assert runs.held.tolist() == [2.0, 1.0]
    assert runs.end_s.tolist() == [8.0, 8.0]
    assert runs.gpu_s.tolist() == [14.0, 7.0]
    assert runs.outcome.tolist() == [Kind.FINISHED] * 2


def test_runs_are_paired_with_their_own_ends(plan_of):
    plan = plan_of(TWO_NODES)
    job = plan.job(0.0)
    plan.run(job, 0.0, 9.0, {0: (0,)})
    plan.run(job, 1.0, 3.0, {0: (1,)}, outcome=Kind.PREEMPTED)
    plan.run(job, 2.0, None, {1: (0,)})
    plan.run(job, 3.0, 5.0, {1: (1,)}, outcome=Kind.FAILED)
    runs = columns(plan.schedule()).runs
    assert runs.end_s.tolist() == [9.0, 3.0, 9.0, 5.0]  # the third still runs when the log ends at 9
    assert runs.running.tolist() == [False, False, True, False]


def test_a_row_that_does_not_belong_to_a_start_ends_no_run(plan_of):
    plan = plan_of(TWO_NODES)
    job = plan.job(0.0)
    plan.run(job, 0.0, 4.0, {0: (0,)})
    plan.run(job, 1.0, 5.0, {0: (1,)})
    schedule = plan.schedule()
    rows = schedule.log.rows()
    ends = rows[rows["kind"] == Kind.FINISHED]
    assert columns(schedule).runs.end_s.tolist() == [4.0, 5.0]
    again = np.concatenate([rows, ends[:1], ends[-1:]])  # the first run ends a second time, the other one elsewhere
    again["time_s"][-2:], again["node"][-1] = 9.0, 1
    for some, ended in ((again[:-1], [4.0, 5.0]), (again, [4.0, 5.0]), (again[[0, 1, 2, -1]], [9.0, 9.0])):
        damaged = Schedule(TWO_NODES, schedule.jobs, ScheduleLog.of(some), ended_s=9.0)
        assert columns(damaged).runs.end_s.tolist() == ended
        assert (columns(damaged).runs.outcome == Kind.FINISHED).tolist() == [end_s < 9.0 for end_s in ended]


def test_computing_is_known_only_where_the_log_says_it(plan_of):
    plan = plan_of(TWO_NODES)
    job = plan.job(0.0)
    plan.run(job, 0.0, 9.0, computing_s=2.0)
    plan.run(job, 1.0, 3.0)
    np.testing.assert_equal(columns(plan.schedule()).runs.computing_s, [2.0, np.nan])


def test_computing_on_every_node_of_a_run_is_found(plan_of):
    plan = plan_of(TWO_NODES)
    plan.run(plan.job(0.0), 1.0, 3.0)
    plan.run(plan.job(0.0), 0.0, 9.0, {0: (0,), 1: (0,)}, computing_s=2.0)
    np.testing.assert_equal(columns(plan.schedule()).runs.computing_s, [2.0, 2.0, np.nan])


def test_phases_cut_a_job_where_its_runs_start_and_end(plan_of):
    # arrives 1, runs 2..6 and 4..8, waits 8..9, runs 9..10
    plan = plan_of(TWO_NODES)
    job = plan.job(1.0, completed_s=10.0)
    plan.run(job, 2.0, 6.0, {0: (0,)})
    plan.run(job, 4.0, 8.0, {0: (1,)})
    plan.run(job, 9.0, 10.0, {0: (0,)})
    phases = columns(plan.schedule()).phases
    assert phases.start_s.tolist() == [1.0, 2.0, 4.0, 6.0, 8.0, 9.0]
    assert phases.end_s.tolist() == [2.0, 4.0, 6.0, 8.0, 9.0, 10.0]
    assert phases.running.tolist() == [0, 1, 2, 1, 0, 1]


def test_what_one_job_leaves_running_does_not_count_for_the_next(plan_of):
    plan = plan_of(TWO_NODES)
    first, second = plan.job(0.0), plan.job(0.0, completed_s=4.0)
    plan.run(first, 0.0, None, {0: (0,)})
    plan.run(second, 1.0, 4.0, {0: (1,)})
    phases = columns(plan.schedule()).phases
    assert phases.job.tolist() == [first, second, second]
    assert phases.running.tolist() == [1, 0, 1]


def test_window_runs_from_the_first_arrival_to_the_last_completion(plan_of):
    plan = plan_of(TWO_NODES)
    job = plan.job(3.0, completed_s=7.0)
    plan.run(job, 4.0, 7.0)
    plan.down(1, 5.0, 90.0)
    unrolled = columns(plan.schedule(ended_s=90.0))
    assert (unrolled.start_s, unrolled.end_s) == (3.0, 7.0)


def test_window_of_an_unfinished_schedule_ends_where_the_simulation_stopped(plan_of):
    plan = plan_of(TWO_NODES)
    plan.run(plan.job(3.0), 4.0, None)
    assert columns(plan.schedule(ended_s=20.0)).end_s == 20.0
    assert columns(plan.schedule()).end_s == 4.0


def test_an_empty_schedule_has_empty_columns():
    unrolled = columns(Schedule(TWO_NODES))
    assert len(unrolled.jobs) == len(unrolled.runs) == len(unrolled.phases.job) == len(unrolled.outages.node) == 0
    assert unrolled.horizon_s == 0.0


def test_a_window_can_be_given(plan_of):
    unrolled = ScheduleColumns.of(Schedule(TWO_NODES), start_s=5.0, end_s=25.0)
    assert unrolled.horizon_s == 20.0


def test_columns_of_columns_are_themselves(random_schedule):
    unrolled = columns(random_schedule(1))
    assert columns(unrolled) is unrolled


@pytest.mark.parametrize("end_s", [None, 6.0])
def test_a_node_that_stays_down_is_down_to_the_end(plan_of, end_s):
    plan = plan_of(TWO_NODES)
    plan.job(0.0, completed_s=10.0)
    plan.down(0, 1.0, 2.0)
    plan.down(1, 3.0, 4.0)
    plan.down(0, 5.0, end_s)
    outages = columns(plan.schedule()).outages
    assert outages.node.tolist() == [0, 1, 0]
    assert outages.end_s.tolist() == [2.0, 4.0, end_s or 10.0]


def test_unfinished_jobs_end_with_the_log_or_count_as_turned_away(plan_of):
    # One job is done at 3, one turned away for want of a place, one still runs when the log ends at 9.
    plan = plan_of(TWO_NODES)
    plan.run(plan.job(0.0, completed_s=3.0), 0.0, 3.0)
    plan.reject(plan.job(1.0), 1.0, RejectReason.NO_PLACE)
    plan.run(plan.job(2.0), 3.0, None)
    plan.job(4.0, completed_s=9.0)
    cols = columns(plan.schedule())
    np.testing.assert_equal(cols.jobs.completed_s, [3.0, np.nan, np.nan, 9.0])
    np.testing.assert_equal(cols.at_horizon().jobs.completed_s, [3.0, np.nan, 9.0, 9.0])
    assert cols.without_unfinished().jobs.rejected.tolist() == [0, RejectReason.NO_PLACE, -1, 0]
