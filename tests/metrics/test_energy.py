from __future__ import annotations

import pytest

from dagsim.errors import ModelError
from dagsim.metrics import PowerModel, ScheduleColumns, Watts, job_energy_j, watts
from dagsim.metrics.utilization import energy
from dagsim.model import Cluster, gpu_type
from dagsim.model.log import Schedule

TWO_T4 = Cluster.of({"T4": 2})
ROUND = PowerModel(watts={"T4": (10.0, 60.0)})


def test_busy_watts_are_a_fraction_of_the_tdp():
    # T4: idle 9 W, TDP 70 W
    assert PowerModel(busy_fraction=0.9).of(gpu_type("T4")) == Watts(9.0, 63.0)
    assert PowerModel(busy_fraction=0.9, activity=0.5).of(gpu_type("T4")) == Watts(9.0, 36.0)
    assert ROUND.of(gpu_type("T4")) == Watts(10.0, 60.0)


def test_a_gpu_may_draw_at_work_what_it_draws_idle_and_no_less():
    assert PowerModel(busy_fraction=9.0 / 70.0).of(gpu_type("T4")) == Watts(9.0, 9.0)
    with pytest.raises(ModelError, match="is below its idle power of 9 W"):
        PowerModel(busy_fraction=8.9 / 70.0).of(gpu_type("T4"))


@pytest.mark.parametrize(("gpu", "seconds"), [("T4", 86400.0), ("A100-40", 7.3), ("V100-16", 1e7)])
def test_an_idle_cluster_draws_exactly_its_idle_watts(gpu, seconds):
    unrolled = ScheduleColumns.of(Schedule(Cluster.of({gpu: 24})), start_s=0.0, end_s=seconds)
    drawn = energy(unrolled)
    assert drawn.idle_kwh == 24 * seconds * gpu_type(gpu).idle_watts / 3.6e6
    assert drawn.allocated_kwh == 0.0
    assert drawn.total_kwh == drawn.idle_kwh


def test_held_gpus_draw_busy_watts_and_the_others_idle_watts(plan_of):
    # 3600 s: one GPU busy for 1800 s, so 60 W x 0.5 h and 10 W x 1.5 h
    plan = plan_of(TWO_T4)
    plan.run(plan.job(0.0, completed_s=3600.0), 1800.0, 3600.0, {0: (1,)})
    drawn = energy(plan.schedule(), ROUND)
    assert drawn.allocated_kwh == 0.030
    assert drawn.idle_kwh == 0.015
    assert drawn.total_kwh == pytest.approx(0.045)
    assert drawn.total_j == pytest.approx(162_000)
    assert drawn.by_type_kwh == {"T4": pytest.approx(0.045)}


def test_a_shared_gpu_draws_in_proportion(plan_of):
    # 0.25 held: 10 + (60 - 10) x 0.25 = 22.5 W beside an idle 10 W
    plan = plan_of(TWO_T4)
    plan.run(plan.job(0.0, completed_s=3600.0), 0.0, 3600.0, {0: (0,)}, held=0.25)
    assert energy(plan.schedule(), ROUND).total_kwh == pytest.approx(0.0325)


def test_a_node_that_is_down_draws_nothing(plan_of):
    # both GPUs are up for 0.75 h at 10 W
    plan = plan_of(TWO_T4)
    plan.job(0.0, completed_s=3600.0)
    plan.down(0, 900.0, 1800.0)
    assert energy(plan.schedule(), ROUND).total_kwh == pytest.approx(0.015)


def test_the_energy_of_the_jobs_is_the_allocated_energy(plan_of):
    plan = plan_of(TWO_T4)
    first, second = plan.job(0.0, completed_s=10.0), plan.job(0.0, completed_s=20.0)
    plan.run(first, 0.0, 10.0, {0: (0, 1)})
    plan.run(second, 10.0, 20.0, {0: (0,)})
    assert job_energy_j(plan.schedule(), ROUND).tolist() == [1200.0, 600.0]
    assert energy(plan.schedule(), ROUND).allocated_kwh * 3.6e6 == pytest.approx(1800.0)


@pytest.mark.parametrize(
    ("faulty", "named"),
    [
        (lambda: PowerModel(busy_fraction=0.0), "busy_fraction"),
        (lambda: PowerModel(busy_fraction=1.5), "busy_fraction"),
        (lambda: PowerModel(activity=-0.1), "activity"),
        (lambda: PowerModel(watts={"T4": (70.0, 9.0)}), "T4"),
        (lambda: PowerModel(busy_fraction=0.1).of(gpu_type("A100")), "A100-40"),
    ],
)
def test_an_impossible_power_model_is_refused(faulty, named):
    with pytest.raises(ModelError, match=named):
        faulty()


def test_the_watts_add_up_to_the_energy():
    from dagsim import simulate

    schedule = simulate("heterogeneous", seed=2).schedule
    assert watts(schedule).integral() == pytest.approx(energy(schedule).total_j, rel=1e-9)


def test_a_gpu_may_draw_less_than_a_watt_or_nothing_while_it_is_idle():
    for idle in (0.0, 0.5):
        assert PowerModel(watts={"T4": (idle, 60.0)}).of(gpu_type("T4")) == Watts(idle, 60.0)
