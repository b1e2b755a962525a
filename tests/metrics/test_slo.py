from __future__ import annotations

import numpy as np

from dagsim.metrics import deadline_hit_rate, tardiness
from dagsim.model import Cluster, RejectReason

NODE = Cluster.of({"T4": 1})


def test_attainment_counts_the_jobs_that_have_a_deadline(plan_of):
    # met at the last moment, missed by 3 s, without a deadline, rejected: 1 of 3
    plan = plan_of(NODE)
    plan.job(0.0, completed_s=5.0, deadline_s=5.0)
    plan.job(0.0, completed_s=8.0, deadline_s=5.0)
    plan.job(0.0, completed_s=9.0)
    plan.reject(plan.job(0.0, deadline_s=50.0), 0.0, RejectReason.BY_POLICY)
    assert deadline_hit_rate(plan.schedule()) == 1 / 3
    np.testing.assert_equal(tardiness(plan.schedule()), [0.0, 3.0, np.nan, np.nan])


def test_an_unfinished_job_has_missed_a_deadline_that_has_passed(plan_of):
    # one completed in time, one late and still running, one that may yet make it
    plan = plan_of(NODE)
    plan.job(0.0, completed_s=5.0, deadline_s=5.0)
    plan.job(0.0, deadline_s=9.0)
    plan.job(0.0, deadline_s=99.0)
    assert deadline_hit_rate(plan.schedule(ended_s=10.0)) == 0.5


def test_attainment_is_not_known_without_deadlines(plan_of):
    plan = plan_of(NODE)
    plan.job(0.0, completed_s=5.0)
    assert np.isnan(deadline_hit_rate(plan.schedule()))
