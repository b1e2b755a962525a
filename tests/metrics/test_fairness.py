from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from dagsim.metrics import (
    exclusive_fairness,
    finish_time_fairness,
    isolated_s,
    jain_fairness_index,
    tenant_gpu_seconds,
    unfair_job_fraction,
)
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
    assert jain_fairness_index(values) == pytest.approx(expected, rel=1e-15)


def test_jains_index_of_nobody_is_not_known():
    assert np.isnan(jain_fairness_index([]))


def test_tenants_get_the_gpu_time_of_their_jobs(plan_of):
    plan = plan_of(TWO_T4)
    ann, bob, eve = plan.job(0.0, tenant="ann"), plan.job(0.0, tenant="bob"), plan.job(0.0, tenant="eve")
    plan.job(0.0, tenant="dan")
    plan.run(ann, 0.0, 4.0, {0: (0, 1)})
    plan.run(bob, 4.0, 6.0)
    plan.run(plan.job(0.0, tenant="ann"), 6.0, 7.0)
    plan.reject(eve, 0.0, RejectReason.TOO_LARGE)
    assert tenant_gpu_seconds(plan.schedule()) == {"ann": 9.0, "bob": 2.0, "dan": 0.0}


def one_after_the_other(plan_of):
    """Two jobs of 4 s on both GPUs, both there at 0: one done at 4, the other at 8."""
    plan = plan_of(TWO_T4)
    for start_s in (0.0, 4.0):
        job = plan.job(0.0, ideal_s=4.0, ideal_gpu_s=8.0, gpus=2.0, completed_s=start_s + 4.0)
        plan.run(job, start_s, start_s + 4.0, {0: (0, 1)})
    return plan.schedule()


def test_the_isolated_time_is_that_on_a_share_of_the_cluster(plan_of):
    # the first job shares with N = 2 all its life: 8 GPU-s x 2 / 2 GPUs = 8 s;
    # the second with N = (2 x 4 + 1 x 4) / 8 = 1.5: 8 GPU-s x 1.5 / 2 GPUs = 6 s
    assert isolated_s(one_after_the_other(plan_of)).tolist() == [8.0, 6.0]


def test_the_isolated_time_is_no_shorter_than_the_ideal(plan_of):
    plan = plan_of(TWO_T4)
    plan.run(plan.job(0.0, ideal_s=4.0, completed_s=4.0), 0.0, 4.0)
    assert isolated_s(plan.schedule()).tolist() == [4.0]


def test_rho_is_jct_over_isolated_time(plan_of):
    rho = finish_time_fairness(one_after_the_other(plan_of))
    assert rho.tolist() == [0.5, 8 / 6]
    assert unfair_job_fraction(rho) == 0.5


def test_a_fixed_number_of_shares_can_be_given(plan_of):
    # 8 GPU-s on 2 / 4 GPUs: 16 s
    assert finish_time_fairness(one_after_the_other(plan_of), 4).tolist() == [0.25, 0.5]


def test_rho_of_an_unfinished_job_is_not_known(plan_of):
    plan = plan_of(TWO_T4)
    plan.job(0.0, completed_s=4.0)
    plan.job(0.0)
    rho = finish_time_fairness(plan.schedule())
    assert np.isnan(rho).tolist() == [False, True]
    assert np.isnan(unfair_job_fraction(rho))


def test_a_job_without_work_that_is_done_at_once_is_treated_fairly(plan_of):
    plan = plan_of(TWO_T4)
    plan.job(0.0, ideal_s=0.0, completed_s=0.0)
    assert finish_time_fairness(plan.schedule()).tolist() == [1.0]


def test_shockwaves_static_fairness_counts_all_jobs_of_the_log_per_gpu(plan_of):
    plan = plan_of(TWO_T4)
    for arrival_s in (0.0, 0.0, 100.0):
        plan.job(arrival_s, ideal_s=4.0, completed_s=arrival_s + 12.0)
    # 3 jobs on 2 GPUs: 12 / (4 x 1.5)
    assert exclusive_fairness(plan.schedule()).tolist() == [2.0, 2.0, 2.0]


def test_shockwaves_fairness_by_rounds_counts_the_jobs_in_the_system(plan_of):
    plan = plan_of(TWO_T4)
    for arrival_s, completed_s in ((0.0, 45.0), (5.0, 25.0), (12.0, 21.0), (11.0, None)):
        plan.job(arrival_s, ideal_s=4.0, completed_s=completed_s)
    # Rounds of 10 s hold 2, 4, 2, 2 jobs (the last one ends with the log): 2.5, 3, 4 and 8 / 3 per round of each job.
    rho = exclusive_fairness(plan.schedule(), 10.0)
    assert rho[:3] == pytest.approx([45 / (4 * 2.5 / 2), 20 / (4 * 3 / 2), 9 / (4 * 4 / 2)])
    assert np.isnan(rho[3])


def test_contention_below_one_job_per_gpu_counts_as_one(plan_of):
    plan = plan_of(TWO_T4)
    plan.job(0.0, ideal_s=4.0, completed_s=12.0)
    assert exclusive_fairness(plan.schedule()).tolist() == exclusive_fairness(plan.schedule(), 5.0).tolist() == [3.0]


@pytest.mark.data
@pytest.mark.parametrize("policy", ["allox", "max_min_fairness", "min_total_duration", "shockwave"])
def test_fairness_by_rounds_is_that_of_shockwaves_simulator(plan_of, data: Path, policy: str):
    # The times alone follow from the static values, which are rounded to five digits. Their rounds end a little early
    # when all jobs of a round do, so a few jobs end in another round.
    golden = data / "golden/elastic"
    with gzip.open(golden / "inputs/shockwave/tacc_120.trace.gz", "rt") as file:
        arrivals = [float(line.split("\t")[-1]) for line in file]
    with gzip.open(golden / f"shockwave/tacc_32gpus_comparison__{policy}__simulation.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    plan = plan_of(Cluster.of({"V100": 32}))
    for row in rows:
        arrival_s, jct_s = arrivals[int(row["job"])], float(row["jct_s"])
        alone_s = jct_s / (float(row["ftf_static"]) * 120 / 32)
        plan.job(arrival_s, ideal_s=alone_s, completed_s=arrival_s + jct_s)
    recorded = np.array([float(row["ftf_themis"]) for row in rows])
    static = np.array([float(row["ftf_static"]) for row in rows])
    assert exclusive_fairness(plan.schedule()) == pytest.approx(static)
    differences = abs(exclusive_fairness(plan.schedule(), 120.0) - recorded)
    assert np.median(differences) < 2e-4
    assert differences.max() < 0.01


def test_a_share_is_unfair_where_rho_is_above_1_by_more_than_rounding():
    assert unfair_job_fraction(np.array([0.5, 1.0, 1.0 + 1e-12, 1.1])) == 0.25
    assert np.isnan(unfair_job_fraction(np.array([1.0, np.nan])))
    assert np.isnan(unfair_job_fraction(np.array([])))
