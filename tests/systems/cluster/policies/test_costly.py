"""Policies that solve something at every decision, and what they must find."""

from __future__ import annotations

import numpy as np
import pytest
from support.log_reading import ends, rows_of, starts_in_order

from dagsim.errors import ConfigError
from dagsim.model import Cluster, Job, Start, Task
from dagsim.model.log import Kind
from dagsim.systems.cluster import ClusterKernel, Estimates
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.policies.look_ahead import assign, plan_slots
from dagsim.systems.cluster.policies.step_profile import StepProfile

FIVE = ((0, 3, 2), (0, 1, 3), (0, 1, 4), (0, 3, 1), (0, 6, 1))
"""(arrival, seconds, GPUs) on 4 GPUs."""


def test_conservative_delays_nobody(run, rows):
    # 2 is due at 3 (needs 3 GPUs), 3 at 4 (all). 4 fits in 0 to 3. 5 (6 s) would hold 3 up until 6: it is due at 5.
    assert starts_in_order(run("conservative", rows(*FIVE), 4)) == [0, 3, 4, 0, 5]


def test_conservative_moves_everybody_up_when_a_run_ends_early():
    jobs = [Job.single("1", Task("t", 4.0, estimate=10.0)), Job.single("2", Task("t", 1.0, estimate=1.0))]
    simulation = ClusterKernel(Cluster.of({"V100": 1}), jobs, Models(estimates=Estimates("predicted")))
    assert starts_in_order(simulation.run(POLICIES.create("conservative"))) == [0, 4]


def test_a_profile_finds_the_first_gap_that_is_long_enough():
    profile = StepProfile(0.0, 2.0)
    profile.take(1.0, 3.0, 2.0)
    profile.take(5.0, 6.0, 1.0)
    assert profile.earliest(1.0, 1.0) == 0.0
    assert profile.earliest(1.0, 2.0) == 3.0
    assert profile.earliest(2.0, 2.0) == 3.0
    assert profile.earliest(2.0, 3.0) == 6.0
    assert profile.earliest(3.0, 1.0) == float("inf")
    profile.forget(4.0)
    assert profile.earliest(2.0, 1.0) == 4.0


def test_allox_finds_the_least_sum_of_completion_times():
    # Jobs 1 and 2 on M1 (2, 5), 3 and 4 on M2 (2, 7): 16
    seconds = np.array([[2.0, 4.0], [3.0, 3.0], [4.0, 2.0], [6.0, 5.0]])
    queues = assign(seconds, np.zeros(2), 4)
    assert queues == [[0, 1], [2, 3]]
    ends = [np.cumsum([seconds[job, lane] for job in queue]).sum() for lane, queue in enumerate(queues)]
    assert sum(ends) == 16


def test_allox_counts_the_time_until_a_lane_is_free():
    # M1 is busy for 9 s: both go to M2, though it is slower, the shorter one first.
    assert assign(np.array([[2.0, 4.0], [1.0, 3.0]]), np.array([9.0, 0.0]), 2) == [[], [1, 0]]


def test_allox_runs_its_assignment():
    speeds = [{"V100": 1 / a, "T4": 1 / b} for a, b in ((2, 4), (3, 3), (4, 2), (6, 5))]
    jobs = [Job.single(str(number), Task("t", 1.0, speeds=factors)) for number, factors in enumerate(speeds)]
    schedule = ClusterKernel(Cluster.of({"V100": 1, "T4": 1}), jobs).run(POLICIES.create("allox"))
    assert sum(ends(schedule).values()) == pytest.approx(16)


def test_energy_is_saved_within_the_slowdown():
    # Busy less idle watts: A100-40 0.8 x 400 - idle, T4 0.8 x 70 - idle. 1.4 times as long on the T4 needs less energy.
    jobs = [Job.single("j", Task("t", 10.0, speeds={"A100-40": 1.0, "T4": 1 / 1.4}))]

    def on(spec):
        schedule = ClusterKernel(Cluster.of({"A100-40": 1, "T4": 1}), jobs).run(POLICIES.create(spec))
        return [schedule.cluster.nodes[row.node].gpu.name for row in rows_of(schedule.log, Kind.STARTED)]

    assert on("energy-saver[slowdown=1.5]") == ["T4"]
    assert on("energy-saver[slowdown=1.3]") == ["A100-40"]
    with pytest.raises(ConfigError, match="slowdown must be 1 or more"):
        POLICIES.create("energy-saver[slowdown=0.5]")


def test_the_cap_holds_what_would_draw_too_much(rows):
    # A V100 draws 0.8 x 300 = 240 W: two fit under 500 W, the third waits.
    schedule = ClusterKernel(Cluster.of({"V100": 4}, per_node=4), rows((0, 5), (0, 5), (0, 5))).run(
        POLICIES.create("power-cap[watts=500]")
    )
    assert starts_in_order(schedule) == [0, 0, 5]
    alone = ClusterKernel(Cluster.of({"V100": 4}, per_node=4), rows((0, 5, 4))).run(
        POLICIES.create("power-cap[watts=500]")
    )
    assert starts_in_order(alone) == [0]


def test_plan_ahead_waits_for_the_fast_type_where_that_ends_sooner():
    # One V100, free at 2, one T4, free now. The task takes 3 s and 10 s: at 2 on the V100 it ends at 5.
    free = np.array([[0.0, 1.0], [1.0, 1.0]])
    assert plan_slots(np.array([[3.0, 10.0]]), np.ones(1), np.array([0.0, 2.0]), free) == [(0, 0, 1)]
    # 4.5 s on the T4 end sooner. Two tasks share: one now on the T4, one later on the V100.
    assert plan_slots(np.array([[3.0, 4.5]]), np.ones(1), np.array([0.0, 2.0]), free) == [(0, 1, 0)]
    both = plan_slots(np.array([[3.0, 6.0], [3.0, 6.0]]), np.ones(2), np.array([0.0, 2.0]), free)
    assert sorted((type_, slot) for _, type_, slot in both) == [(0, 1), (1, 0)]


def test_a_rollout_sees_what_its_base_policy_does_not():
    # SJF starts a 10 s task on the T4 (100 s there) as soon as the A100 is taken; trying shows that to wait is better.
    jobs = [Job.single(str(number), Task("t", 10.0, speeds={"A100-40": 1.0, "T4": 0.1})) for number in range(2)]
    cluster = Cluster.of({"A100-40": 1, "T4": 1})

    def total(spec):
        schedule = ClusterKernel(cluster, jobs).run(POLICIES.create(spec))
        return sum(ends(schedule).values())

    assert total("sjf") == pytest.approx(10 + 100)
    assert total("rollout[base=sjf]") == pytest.approx(10 + 20)


def test_a_fork_of_the_view_knows_neither_truth_nor_what_is_to_come():
    seen = {}

    class Asking:
        def decide(self, view):
            if "done" not in seen and view.now == 0:
                fork = view.fork()
                seen["done"] = fork.run(POLICIES.create("fifo")).ended_s
            for task in list(view.ready)[:1]:
                if placement := view.fit(task):
                    yield Start(task, placement)

    jobs = [Job.single("1", Task("t", 4.0, estimate=9.0)), Job.single("2", Task("t", 1.0, estimate=1.0), 2.0)]
    simulation = ClusterKernel(Cluster.of({"V100": 1}), jobs, Models(estimates=Estimates("predicted")))
    assert simulation.run(Asking()).ended_s == 5.0
    assert seen["done"] == 9.0
