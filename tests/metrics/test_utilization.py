from __future__ import annotations

import numpy as np
import pytest

from dagsim.metrics import (
    availability,
    columns,
    goodput,
    gpu_allocation_ratio,
    gpu_node_fragmentation_ratio,
    gpu_seconds,
    gpu_utilization,
    gpus_held,
    gpus_up,
    peak_weighted_utilization,
    scheduling_occupancy_rate,
    utilization_by_type,
)
from dagsim.model import Cluster, Kind, Node, gpu_type
from dagsim.model.log import Schedule

MIXED = Cluster.of({"A100-40": 2, "T4": 2}, per_node=2)


def busy_a100s(plan_of):
    """Over 10 s: both A100s for 5 s, half a T4 for 8 s; the T4 node is down 8..10."""
    plan = plan_of(MIXED)
    job = plan.job(0.0, completed_s=10.0)
    plan.run(job, 0.0, 5.0, {0: (0, 1)})
    plan.run(job, 0.0, 8.0, {1: (0,)}, held=0.5)
    plan.down(1, 8.0)
    return plan.schedule()


def test_gpu_seconds_are_held_idle_or_down(plan_of):
    spent = gpu_seconds(busy_a100s(plan_of))
    assert [gpu.name for gpu in spent.types] == ["A100-40", "T4"]
    assert spent.capacity.tolist() == [20.0, 20.0]
    assert spent.held.tolist() == [10.0, 4.0]
    assert spent.down.tolist() == [0.0, 4.0]
    assert spent.idle.tolist() == [10.0, 12.0]


def test_utilization_is_gpu_seconds_over_capacity(plan_of):
    schedule = busy_a100s(plan_of)
    assert gpu_utilization(schedule) == 14 / 40
    assert utilization_by_type(schedule) == {"A100-40": 0.5, "T4": 0.2}
    assert availability(schedule) == 0.9


def test_ratios_of_operators_count_only_gpus_that_are_up(plan_of):
    schedule = busy_a100s(plan_of)
    assert gpu_allocation_ratio(schedule) == pytest.approx((5 * 2.5 / 4 + 3 * 0.5 / 4 + 2 * 0 / 2) / 10)
    assert scheduling_occupancy_rate(schedule) == 14 / 36
    assert gpu_node_fragmentation_ratio(schedule) == 8 / 18  # the T4 node, up to its end at 8 s


def test_goodput_is_the_part_of_held_gpu_time_whose_work_was_kept(plan_of):
    lost, kept, killed = (plan_of(Cluster.of({"T4": 1})) for _ in range(3))
    job = lost.job(0.0, ideal_gpu_s=10.0, completed_s=14.0)
    lost.run(job, 0.0, 4.0, {0: (0,)}, outcome=Kind.FAILED)
    lost.run(job, 4.0, 14.0, {0: (0,)})
    assert goodput(lost.schedule()) == 10 / 14
    job = kept.job(0.0, ideal_gpu_s=10.0, completed_s=12.0)  # 4 s of work, 2 s to set up again, 6 s of work
    kept.run(job, 0.0, 4.0, {0: (0,)}, outcome=Kind.PREEMPTED)
    kept.run(job, 4.0, 12.0, {0: (0,)}, computing_s=6.0)
    assert goodput(kept.schedule()) == pytest.approx(10 / 12)
    job = killed.job(0.0, ideal_gpu_s=10.0)
    killed.run(job, 0.0, 4.0, {0: (0,)}, outcome=Kind.FAILED)
    assert goodput(killed.schedule()) == 0.0


def test_flops_weigh_the_gpus(plan_of):
    # (10 x 19.49 + 4 x 8.14) / (20 x 19.49 + 20 x 8.14)
    assert peak_weighted_utilization(busy_a100s(plan_of)) == pytest.approx(
        (10 * 19.49 + 4 * 8.14) / (20 * 27.63), rel=1e-15
    )
    assert peak_weighted_utilization(busy_a100s(plan_of), "fp16") == pytest.approx(
        (10 * 311.9 + 4 * 65.1) / (20 * 377.0)
    )


def test_a_gang_counts_on_each_of_its_nodes(plan_of):
    plan = plan_of(MIXED)
    plan.run(plan.job(0.0, completed_s=4.0), 0.0, 4.0, {0: (0, 1), 1: (0,)})
    assert gpu_seconds(plan.schedule()).held.tolist() == [8.0, 4.0]


def test_a_run_still_running_holds_its_gpus_to_the_end(plan_of):
    plan = plan_of(MIXED)
    plan.run(plan.job(0.0), 2.0, None, {0: (0,)})
    assert gpu_seconds(plan.schedule(ended_s=10.0)).held.tolist() == [8.0, 0.0]


def test_gpus_held_over_time(plan_of):
    held = gpus_held(busy_a100s(plan_of))
    assert held.time_s.tolist() == [0.0, 5.0, 8.0]
    assert held.value.tolist() == [2.5, 0.5, 0.0]
    assert gpus_held(busy_a100s(plan_of), "T4").value.tolist() == [0.5, 0.0]


def test_gpus_up_over_time(plan_of):
    up = gpus_up(busy_a100s(plan_of))
    assert up.time_s.tolist() == [0.0, 8.0]
    assert up.value.tolist() == [4.0, 2.0]
    assert gpus_up(busy_a100s(plan_of), "A100-40").value.tolist() == [2.0]


def test_cpu_machines_have_no_gpu_seconds(plan_of):
    cluster = Cluster((Node("cpu", cpus=8), Node("gpu", gpu_type("T4"), 2)))
    plan = plan_of(cluster)
    job = plan.job(0.0, completed_s=4.0)
    plan.run(job, 0.0, 4.0, {0: ()})
    plan.run(job, 0.0, 2.0, {1: (0,)})
    plan.down(0, 3.0)
    assert gpu_seconds(plan.schedule()).held.tolist() == [2.0]
    assert gpu_utilization(plan.schedule()) == 0.25
    assert availability(plan.schedule()) == 1.0
    assert gpus_up(plan.schedule()).value.tolist() == [2.0]


def test_utilization_is_not_known_without_gpus_or_time(plan_of):
    assert np.isnan(gpu_utilization(Schedule(MIXED)))
    plan = plan_of(Cluster((Node("cpu", cpus=8),)))
    plan.run(plan.job(0.0, completed_s=4.0), 0.0, 4.0, {0: ()})
    assert np.isnan(gpu_utilization(plan.schedule()))
    assert columns(plan.schedule()).horizon_s == 4.0
