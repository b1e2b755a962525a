"""Ranges of executors and of gaps between arrivals: drawn from the seed, within their limits."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from support.command_line import invoke

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, ModelError
from dagsim.experiment.scenario import scenario_of
from dagsim.families.decima.decima_env import DecimaEnv
from dagsim.families.learning.training.train_section import check_training
from dagsim.families.spark.api import ExecutorType, SparkKernel
from dagsim.families.spark.scenario import SparkScenario
from dagsim.systems.seam import Kernel, drive
from dagsim.testing import check_system

SEEDS = range(200)


def gap_ms(kernel: Kernel[object, object]) -> float:
    """The mean gap between the arrivals of a kernel's jobs after a run."""
    assert isinstance(kernel, SparkKernel)
    arrivals = [job.arrival_ms for job in kernel.episode.jobs]
    return float(np.diff(arrivals).mean())


def test_executors_and_gaps_keep_to_their_limits_and_fill_them_evenly_on_a_log_scale() -> None:
    scenario = SparkScenario((4, 64), 5, (5.0, 80.0))
    executors = np.array([scenario.executors_of(seed) for seed in SEEDS])
    gaps = np.array([scenario.mean_gap_s_of(seed) for seed in SEEDS])
    for values, least, largest in ((executors, 4, 64), (gaps, 5.0, 80.0)):
        assert least <= values.min() < 1.1 * least
        assert 0.9 * largest < values.max() <= largest
        assert np.median(values) == pytest.approx(np.sqrt(least * largest), rel=0.3)
    assert abs(np.corrcoef(executors, gaps)[0, 1]) < 0.2


def test_loads_are_drawn_evenly_and_executors_and_gaps_keep_to_their_limits() -> None:
    scenario = SparkScenario((8, 64), 5, (8.0, 60.0), load=(0.35, 3.5))
    work_s = np.mean([job.work_ms for job in scenario.pool]) / 1000
    executors = np.array([scenario.executors_of(seed) for seed in SEEDS])
    gaps = np.array([scenario.mean_gap_s_of(seed) for seed in SEEDS])
    loads = work_s / executors / gaps
    assert executors.min() >= 8
    assert executors.max() <= 64
    assert gaps.min() >= 8.0
    assert gaps.max() <= 60.0
    assert np.quantile(loads, [0.05, 0.5, 0.95]) == pytest.approx([0.39, 1.11, 3.12], rel=0.15)
    one = SparkScenario(10, 5, (0.1, 1e6), load=2.0)
    assert one.mean_gap_s_of(3) == pytest.approx(work_s / 20)
    fast = SparkScenario((ExecutorType("fast", 5, 2.0),), 5, (0.1, 1e6), load=2.0)
    assert fast.mean_gap_s_of(3) == one.mean_gap_s_of(3)


def test_a_load_needs_limits_for_the_gap_that_it_determines() -> None:
    with pytest.raises(ConfigError, match="mean_gap_s must be a range"):
        SparkScenario(10, load=1.0)
    with pytest.raises(ConfigError, match="load must be positive"):
        SparkScenario(10, 5, (1.0, 9.0), load=0.0)


def test_a_kernel_has_the_executors_and_the_gap_of_its_seed() -> None:
    scenario = SparkScenario((2, 9), 30, (0.1, 1000.0))
    for seed in range(4):
        kernel = scenario.kernel(seed)
        schedule = drive(kernel, scenario.policies.create("fair"))
        assert len(schedule.cluster.nodes) == scenario.executors_of(seed)
        assert scenario.facts(kernel)["cluster"] == f"{scenario.executors_of(seed)} executors"
        assert gap_ms(kernel) == pytest.approx(1000 * scenario.mean_gap_s_of(seed), rel=0.6)
    assert len(scenario.cluster.nodes) == scenario.executors_of(0)


def test_a_range_changes_neither_the_mix_of_jobs_nor_the_other_draw() -> None:
    one, other = SparkScenario((2, 9), 8, (1.0, 9.0)), SparkScenario(5, 8, (1.0, 9.0))
    kernels = [scenario.kernel(3) for scenario in (one, other)]
    for kernel in kernels:
        drive(kernel, one.policies.create("fair"))
    arrived = [[(job.job.id, job.arrival_ms) for job in kernel.episode.jobs] for kernel in kernels]
    assert arrived[0] == arrived[1]


def test_a_range_of_one_number_is_that_number() -> None:
    fixed, ranged = SparkScenario(7, 6, 12.5), SparkScenario((7, 7), 6, (12.5, 12.5))
    logs = [drive(scenario.kernel(2), scenario.policies.create("fair")).log for scenario in (fixed, ranged)]
    assert logs[0] == logs[1]
    assert not fixed.varied
    assert ranged.varied
    assert not SparkScenario((ExecutorType("slow", 2), ExecutorType("fast", 2, 2.0))).varied


@pytest.mark.parametrize(
    ("count", "speed", "message"),
    [(0, 1.0, "executor type 'x': count must be at least 1"), (1, 0.0, "executor type 'x': speed must be positive")],
)
def test_a_type_without_executors_or_speed_is_refused(count: int, speed: float, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ExecutorType("x", count, speed)


def test_a_scenario_with_ranges_keeps_to_the_contract() -> None:
    settings = ["system.kind=spark", "system.jobs=5", "system.executors=[3, 30]", "system.mean_gap_s=[5, 50]"]
    scenario = scenario_of(load_config(None, settings))
    assert scenario == SparkScenario((3, 30), 5, (5.0, 50.0))
    check_system(scenario, "fair")


@pytest.mark.parametrize(
    "setting", ["executors=[9, 3]", "executors=[0, 3]", "mean_gap_s=[9, 3]", "mean_gap_s=[0, 3]", "load=[2, 1]"]
)
def test_limits_that_are_no_range_are_refused_by_key(setting: str) -> None:
    result = invoke("eval", "--system", "spark", "--set", f"system.{setting}", "--seeds", "1")
    assert result.exit_code == 2
    key = setting.partition("=")[0]
    assert f"--set system.{key}: must be [smallest, largest], both positive and finite, got [" in result.output


def test_a_training_on_ranges_needs_a_reference_and_no_seconds() -> None:
    scenario = SparkScenario((3, 9))
    for settings, message in (
        ([], "name a policy"),
        (["train.reference=fair", "train.time_constant_s=[1, 2]"], "discount_jcts"),
    ):
        train = load_config(None, ["system={kind: spark, executors: [3, 9]}", *settings]).training()
        with pytest.raises(ConfigError, match=message):
            check_training(train, scenario)


def test_an_environment_has_room_for_the_largest_cluster() -> None:
    env = gymnasium.make("dagsim.envs:dagsim/Decima-v0", executors=(2, 12), jobs=3, mean_gap_s=(1.0, 9.0))
    counts = set()
    for seed in range(6):
        seen, info = env.reset(seed=seed)
        assert seen in env.observation_space
        assert info["number_mask"].shape == (12,)
        inner = env.unwrapped
        assert isinstance(inner, DecimaEnv)
        count = len(inner.simulation.cluster.executors)
        assert info["number_mask"].sum() == count  # all of them are free at the first decision
        counts.add(count)
        over = False
        while not over:
            action = np.array([int(np.flatnonzero(seen["action_mask"])[0]), int(info["number_mask"].sum()) - 1])
            seen, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        assert terminated
    assert len(counts) > 1
