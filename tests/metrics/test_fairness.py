from __future__ import annotations

import numpy as np
import pytest

from dagsim.metrics import finish_time_fairness, isolated_s, jain, tenant_gpu_seconds, unfair_share
from dagsim.model import Cluster, RejectReason

TWO_T4 = Cluster.of({"T4": 2})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1, 1, 1, 0), 0.75),
        ((1, 2, 3, 4), 100 / 120),
        ((5, 5), 1.0),
        ((0, 0, 7), 1 / 3),
        ((0, 0), 1.0),
        ((1e300,) * 2, 1.0),
    ],
)
def test_jains_index(values, expected):
    assert jain(values) == pytest.approx(expected, rel=1e-15)


def test_jains_index_of_nobody_is_not_known():
    assert np.isnan(jain([]))


def test_tenants_get_the_gpu_time_of_their_jobs(made):
    plan = made(TWO_T4)
    ann, bob, eve = plan.job(0.0, tenant="ann"), plan.job(0.0, tenant="bob"), plan.job(0.0, tenant="eve")
    plan.job(0.0, tenant="dan")
    plan.run(ann, 0.0, 4.0, {0: (0, 1)})
    plan.run(bob, 4.0, 6.0)
    plan.run(plan.job(0.0, tenant="ann"), 6.0, 7.0)
    plan.reject(eve, 0.0, RejectReason.TOO_LARGE)
    assert tenant_gpu_seconds(plan.schedule()) == {"ann": 9.0, "bob": 2.0, "dan": 0.0}


def one_after_the_other(made):
    """Two jobs of 4 s on both GPUs, both there at 0: one done at 4, the other at 8."""
    plan = made(TWO_T4)
    for start_s in (0.0, 4.0):
        job = plan.job(0.0, ideal_s=4.0, ideal_gpu_s=8.0, gpus=2.0, completed_s=start_s + 4.0)
        plan.run(job, start_s, start_s + 4.0, {0: (0, 1)})
    return plan.schedule()


def test_the_isolated_time_is_that_on_a_share_of_the_cluster(made):
    # the first job shares with N = 2 all its life: 8 GPU-s x 2 / 2 GPUs = 8 s;
    # the second with N = (2 x 4 + 1 x 4) / 8 = 1.5: 8 GPU-s x 1.5 / 2 GPUs = 6 s
    assert isolated_s(one_after_the_other(made)).tolist() == [8.0, 6.0]


def test_the_isolated_time_is_no_shorter_than_the_ideal(made):
    plan = made(TWO_T4)
    plan.run(plan.job(0.0, ideal_s=4.0, completed_s=4.0), 0.0, 4.0)
    assert isolated_s(plan.schedule()).tolist() == [4.0]


def test_rho_is_jct_over_isolated_time(made):
    rho = finish_time_fairness(one_after_the_other(made))
    assert rho.tolist() == [0.5, 8 / 6]
    assert unfair_share(rho) == 0.5


def test_a_fixed_number_of_shares_can_be_given(made):
    # 8 GPU-s on 2 / 4 GPUs: 16 s
    assert finish_time_fairness(one_after_the_other(made), 4).tolist() == [0.25, 0.5]


def test_rho_of_an_unfinished_job_is_not_known(made):
    plan = made(TWO_T4)
    plan.job(0.0, completed_s=4.0)
    plan.job(0.0)
    rho = finish_time_fairness(plan.schedule())
    assert np.isnan(rho).tolist() == [False, True]
    assert np.isnan(unfair_share(rho))


def test_a_job_without_work_that_is_done_at_once_is_treated_fairly(made):
    plan = made(TWO_T4)
    plan.job(0.0, ideal_s=0.0, completed_s=0.0)
    assert finish_time_fairness(plan.schedule()).tolist() == [1.0]


def test_a_share_is_unfair_where_rho_is_above_1_by_more_than_rounding():
    assert unfair_share(np.array([0.5, 1.0, 1.0 + 1e-12, 1.1])) == 0.25
    assert np.isnan(unfair_share(np.array([1.0, np.nan])))
    assert np.isnan(unfair_share(np.array([])))
