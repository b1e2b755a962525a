from __future__ import annotations

import json
import math

import numpy as np
import pytest

from dagsim.errors import InputError
from dagsim.metrics import Distribution, PowerModel, columns, glossary, summarize
from dagsim.metrics.incomplete import incomplete_facts, incomplete_sentence
from dagsim.model import Cluster, Kind, RejectReason
from dagsim.model.log import Schedule

TWO_T4 = Cluster.of({"T4": 2})


def three_jobs(plan_of, *, last_completes=True, **rest):
    """Jobs at 0, 0, 10 with JCT 10, 30, 20 (or the last unfinished when the simulation stops at 40), one rejected."""
    plan = plan_of(TWO_T4)
    first = plan.job(0.0, ideal_s=10.0, completed_s=10.0, tenant="ann", priority=1.0, weight=3.0, deadline_s=10.0)
    second = plan.job(0.0, ideal_s=15.0, completed_s=30.0, tenant="bob", deadline_s=20.0)
    third = plan.job(10.0, ideal_s=10.0, completed_s=30.0 if last_completes else None, tenant="ann")
    plan.run(first, 0.0, 10.0, {0: (0,)})
    plan.run(second, 0.0, 5.0, {0: (1,)}, outcome=Kind.PREEMPTED)
    plan.run(second, 15.0, 30.0, {0: (1,)})
    plan.run(third, 10.0, 30.0 if last_completes else None, {0: (0,)})
    plan.reject(plan.job(12.0, tenant="bob"), 12.0, RejectReason.TOO_LARGE)
    return plan.schedule(ended_s=30.0 if last_completes else 40.0, **rest)


def test_a_schedule_in_numbers(plan_of):
    summary = summarize(
        three_jobs(plan_of, decision_s=0.006, decisions=2000), power=PowerModel(watts={"T4": (10.0, 60.0)})
    )
    assert (summary.jobs_arrived, summary.jobs_completed, summary.jobs_unfinished) == (4, 3, 0)
    assert (summary.rejected_too_large, summary.rejected_no_such_gpu, summary.rejected_by_policy) == (1, 0, 0)
    assert summary.jct_s.mean == 20.0
    assert summary.jct_s.p50 == 20.0
    assert summary.jct_s.p95 == pytest.approx(29.0)  # between the 2nd and 3rd of 3, 0.9 of the way
    assert summary.jct_s.p99 == pytest.approx(29.8)
    assert summary.weighted_jct_s == (3 * 10 + 30 + 20) / 5
    assert (summary.wait_s.mean, summary.queueing_s.mean) == (0.0, pytest.approx(10 / 3))
    areas = [job.ideal_gpu_s for job in three_jobs(plan_of).jobs if job.id != "job-3"][:3]
    assert summary.area_weighted_jct_s == pytest.approx(np.dot(areas, [10, 30, 20]) / sum(areas))
    assert summary.stretch.mean == pytest.approx((1 + 2 + 2) / 3)
    assert summary.bounded_slowdown.mean == pytest.approx((1 + 1.5 + 1) / 3)
    assert (summary.makespan_s, summary.horizon_s, summary.throughput_per_h) == (30.0, 30.0, 360.0)
    assert summary.utilization == 50 / 60
    assert summary.mean_queue_length == pytest.approx(10 / 30)
    assert summary.max_queue_length == 1.0
    assert summary.mean_jobs_in_system == 2.0
    assert (summary.runs, summary.preemptions, summary.failures, summary.restarts) == (4, 1, 0, 1)
    assert summary.energy_kwh == pytest.approx((50 * 60 + 10 * 10) / 3.6e6)
    assert summary.joules_per_job == pytest.approx(3100 / 3)
    assert summary.jain_fairness_index == pytest.approx(50**2 / (2 * (30**2 + 20**2)))
    assert summary.deadline_hit_rate == 0.5
    assert summary.decision_time_us == pytest.approx(3.0)


def test_groups_split_the_jobs(plan_of):
    summary = summarize(three_jobs(plan_of))
    assert list(summary.by_priority) == ["0", "1"]
    assert list(summary.by_tenant) == ["ann", "bob"]
    ann, bob = summary.by_tenant["ann"], summary.by_tenant["bob"]
    assert (ann.arrived, ann.completed, ann.rejected, ann.jct_s.mean) == (2, 2, 0, 15.0)
    assert (bob.arrived, bob.completed, bob.rejected, bob.jct_s.mean) == (2, 1, 1, 30.0)
    assert ann.gpu_hours == 30 / 3600
    assert summary.by_gpu["T4"].gpus == 2
    assert summary.by_gpu["T4"].utilization == summary.utilization


def test_a_mean_over_unfinished_jobs_is_refused(plan_of):
    summary = summarize(three_jobs(plan_of, last_completes=False))
    assert summary.jobs_unfinished == 1
    refused = (summary.jct_s, summary.wait_s, summary.stretch, summary.bounded_slowdown, summary.bounded_stretch)
    for distribution in refused:
        assert np.isnan([distribution.mean, distribution.p50, distribution.p95, distribution.p99]).all()
    for value in (
        summary.makespan_s,
        summary.weighted_jct_s,
        summary.area_weighted_jct_s,
        summary.max_ftf,
        summary.joules_per_job,
    ):
        assert math.isnan(value)
    assert math.isnan(summary.by_tenant["ann"].jct_s.mean)
    assert summary.by_tenant["bob"].jct_s.mean == 30.0
    assert summary.utilization == pytest.approx(60 / 80)


def test_unfinished_jobs_can_be_counted_to_the_horizon(plan_of):
    # the third job arrived at 10 and is there at 40: 30 s so far
    summary = summarize(three_jobs(plan_of, last_completes=False), unfinished="horizon")
    assert summary.jct_s.mean == pytest.approx(70 / 3)
    assert (summary.makespan_s, summary.jobs_completed, summary.jobs_unfinished) == (40.0, 2, 1)
    assert (summary.wait_s.mean, summary.queueing_s.mean) == (0.0, pytest.approx(10 / 3))


def test_unfinished_jobs_can_be_dropped(plan_of):
    summary = summarize(three_jobs(plan_of, last_completes=False), unfinished="drop")
    assert summary.jct_s.mean == 20.0
    assert (summary.makespan_s, summary.jobs_completed, summary.jobs_unfinished) == (30.0, 2, 1)
    assert np.isfinite(summary.max_ftf)


def test_another_way_of_counting_is_refused(plan_of):
    with pytest.raises(InputError, match="'ignore'"):
        summarize(three_jobs(plan_of), unfinished="ignore")


def test_nothing_happened_is_a_summary_too():
    summary = summarize(Schedule(TWO_T4))
    assert summary.jobs_arrived == 0
    assert math.isnan(summary.jct_s.mean)
    assert summary.by_tenant == {}


def test_a_summary_of_rejected_jobs_only(plan_of):
    plan = plan_of(TWO_T4)
    plan.reject(plan.job(3.0), 3.0, RejectReason.BY_POLICY)
    summary = summarize(plan.schedule())
    assert summary.rejected_by_policy == 1
    assert math.isnan(summary.makespan_s)
    assert math.isnan(summary.by_priority["0"].jct_s.mean)


def test_the_dictionary_is_flat_and_safe_for_json(plan_of):
    flat = summarize(three_jobs(plan_of, last_completes=False)).to_dict()
    assert json.loads(json.dumps(flat, allow_nan=False)) == flat
    assert flat["jct_s.p99"] is None
    assert flat["tenant[bob].jct_s.mean"] == 30.0
    assert flat["gpu[T4].gpus"] == 2
    assert all(not isinstance(value, dict) for value in flat.values())


def test_the_glossary_explains_every_key(plan_of):
    terms = {term.name: term for term in glossary()}
    for key in summarize(three_jobs(plan_of)).to_dict():
        name = "".join((key.partition("[")[0], "[...]", key.partition("]")[2])) if "[" in key else key
        assert terms[name].meaning
    assert terms["jct_s.p99"].unit == "s"
    assert len(terms) == len(glossary())


def test_the_smallest_of_many_tenants_are_pooled(plan_of):
    plan = plan_of(TWO_T4)
    for tenant in range(40):
        for _ in range(2 if tenant >= 8 else 1):
            plan.job(0.0, completed_s=float(tenant), tenant=f"t{tenant:02}")
    groups = summarize(plan.schedule()).by_tenant
    assert list(groups) == [*(f"t{tenant:02}" for tenant in range(8, 40)), "(other)"]
    assert groups["(other)"].arrived == 8
    assert groups["(other)"].jct_s.mean == 3.5


def test_priorities_are_in_the_order_of_numbers(plan_of):
    plan = plan_of(TWO_T4)
    for priority in (10.0, 2.0, 0.5, -1.0):
        plan.job(0.0, completed_s=1.0, priority=priority)
    assert list(summarize(plan.schedule()).by_priority) == ["-1", "0.5", "2", "10"]


def test_columns_give_the_same_summary(random_schedule):
    schedule = random_schedule(5, finish=True)
    # From Python 3.13 on, dataclasses with NaN are unequal.
    assert summarize(columns(schedule)).to_dict() == summarize(schedule).to_dict()


def test_a_distribution_of_one_value_is_that_value():
    assert Distribution.of(np.array([3.0])) == Distribution(3.0, 3.0, 3.0, 3.0)


def test_only_measured_jobs_are_counted(plan_of):
    whole, part = (summarize(three_jobs(plan_of), measured=measured) for measured in (None, (1, 3)))
    assert (part.jobs_arrived, part.jobs_completed, part.rejected_too_large) == (2, 2, 0)
    assert part.jct_s.mean == 25.0  # of 10, 30 and 20 s the last two
    assert {name: group.arrived for name, group in part.by_tenant.items()} == {"ann": 1, "bob": 1}
    assert part.deadline_hit_rate == 0.0  # bob's deadline; ann's met one is not measured
    assert part.horizon_s == 10.0  # from the arrival of the second job to that of the third
    assert part.utilization == pytest.approx((10 + 5) / 20)  # both runs hold a GPU at first, one of them for 5 s
    assert part.makespan_s == whole.makespan_s
    assert summarize(three_jobs(plan_of), measured=(0, None)).jct_s == whole.jct_s


def test_measuring_no_job_is_refused(plan_of):
    with pytest.raises(InputError, match="measure 7:: there are only 4 jobs"):
        summarize(three_jobs(plan_of), measured=(7, None))


def test_rejected_jobs_are_counted_by_reason(plan_of):
    plan = plan_of(TWO_T4)
    counts = {
        RejectReason.TOO_LARGE: 1,
        RejectReason.NO_SUCH_GPU: 2,
        RejectReason.BY_POLICY: 3,
        RejectReason.NO_PLACE: 4,
        RejectReason.TOO_SLOW: 5,
        RejectReason.TIME_LIMIT: 6,
        RejectReason.CANCELLED: 7,
    }
    for reason, count in counts.items():
        for _ in range(count):
            plan.reject(plan.job(0.0), 0.0, reason)
    summary = summarize(plan.schedule())
    assert [
        summary.rejected_too_large,
        summary.rejected_no_such_gpu,
        summary.rejected_by_policy,
        summary.rejected_no_place,
        summary.rejected_too_slow,
        summary.jobs_killed,
    ] == [1, 2, 3, 4, 5, 13]
    assert summary.blocking_rate == 15 / 28


@pytest.mark.parametrize(
    ("gpus", "sizes"),
    [
        (900.0, "; a task of job0 requests 900 GPUs, the largest node has 4 and the cluster 4)"),
        (4.0, "; a task of job0 requests 4 GPUs and the largest node has 4, so compare its CPUs, memory, licences"),
    ],
)
def test_a_job_that_is_too_large_is_told_with_its_size_and_the_clusters(plan_of, gpus, sizes):
    plan = plan_of(Cluster.of({"T4": 4}))
    plan.reject(plan.job(0.0, gpus=gpus), 0.0, RejectReason.TOO_LARGE)
    sentence = incomplete_sentence([incomplete_facts(plan.schedule(), {})])
    assert sentence.startswith("not completed: 1 of 1 job (100%): 1 rejected: it requests more than all the nodes")
    assert sizes in sentence
