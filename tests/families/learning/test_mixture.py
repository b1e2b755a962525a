"""Mixtures: another world for every seed, with a unit of time of its own."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.training_log import read_log
from dagsim.families.compiled import jit
from dagsim.families.learning.codecs.codec import RelativeConfig
from dagsim.families.learning.episode import EpisodeFactory, RewardConfig
from dagsim.families.learning.mixture import MixtureScenario
from dagsim.families.learning.on_policy.policy_gradient import equal_weights, in_own_unit
from dagsim.families.learning.training.rollouts import EpisodeSteps, InProcessRollouts, evaluate_greedy
from dagsim.families.learning.training.train_section import check_training
from dagsim.families.learning.training.trainer import TrainingRun
from dagsim.metrics import summarize
from dagsim.seeds import REPORT, TRAIN, VALIDATION
from dagsim.systems.cluster.models.runtime import Flops, Recorded, Throughput
from dagsim.systems.seam import drive
from dagsim.traces.trace_file import TraceFile

SMALL = MixtureScenario(jobs=(5, 15), instances=6)


def test_seeds_differ_in_all_that_is_drawn() -> None:
    worlds = [SMALL.world(seed) for seed in range(60)]
    assert {type(world.runtime) for world in worlds} == {Flops, Recorded, Throughput}
    assert {world.estimates.kind for world in worlds} == {"exact", "noisy"}
    assert {len(set(world.cluster.gpu_types)) for world in worlds} >= {1, 2, 3}
    arrays = [world.workload.arrays for world in worlds]  # type: ignore[union-attr]
    assert {len(jobs) for jobs in arrays} <= set(range(5, 16))
    assert any(jobs.tasks > len(jobs) for jobs in arrays)
    assert any(jobs.tasks == len(jobs) for jobs in arrays)
    assert all(2 <= sum(node.gpus for node in world.cluster.nodes) <= 68 for world in worlds)


def test_knowledge_failures_and_prices_are_drawn_without_changing_the_jobs() -> None:
    uncertain = replace(SMALL, noisy=0.2, hidden=0.4, limited=0.3, noise=(2.0, 3.0), failing=0.5, restart_s=(0.0, 90.0))
    worlds = [uncertain.world(seed) for seed in range(60)]
    assert {world.estimates.kind for world in worlds} == {"exact", "noisy", "hidden", "predicted"}
    assert all(2.0 <= world.estimates.sigma <= 3.0 for world in worlds if world.estimates.kind == "noisy")
    assert 5 < sum(world.preemption.restart_s == 0 for world in worlds) < 30
    assert all(0 <= world.preemption.restart_s <= 90 for world in worlds)
    assert 15 < sum(bool(world.failures) for world in worlds) < 45
    for seed, world in enumerate(worlds):
        arrays = world.workload.arrays  # type: ignore[union-attr]
        limited = world.estimates.kind == "predicted"
        assert (arrays.estimate is not None) == limited
        if limited:
            assert (arrays.estimate >= arrays.work).all()
        if world.estimates.kind in ("hidden", "predicted") and SMALL.world(seed).estimates.kind == "exact":
            assert (arrays.work == SMALL.world(seed).workload.arrays.work).all()  # type: ignore[union-attr]


def test_in_some_worlds_every_task_has_the_typical_duration_as_its_estimate() -> None:
    limited = replace(SMALL, noisy=0.2, limited=0.6)
    kinds = []
    for seed in range(40):
        world, other = replace(limited, limited=0.2, typical=0.4).world(seed), limited.world(seed)
        arrays, limits = (one.workload.arrays for one in (world, other))  # type: ignore[union-attr]
        assert (arrays.work == limits.work).all()
        assert world.estimates == other.estimates
        if arrays.estimate is not None and (kind := len(set(arrays.estimate)) == 1):
            assert arrays.estimate[0] == pytest.approx(np.exp(np.log(arrays.work).mean()))
        elif arrays.estimate is not None:
            assert (arrays.estimate == limits.estimate).all()
        kinds.append(arrays.estimate is not None and kind)
    assert 8 < sum(kinds) < 25


def test_nodes_of_a_drawn_type_are_full_except_the_last() -> None:
    smaller = 0
    for world in map(SMALL.world, range(40)):
        of_type: dict[str, list[int]] = {}
        for node in world.cluster.nodes:
            of_type.setdefault(node.gpu.name, []).append(int(node.gpus))
        assert all(set(sizes[:-1]) <= {sizes[0]} and sizes[-1] <= sizes[0] for sizes in of_type.values())
        assert sum(map(sum, of_type.values())) <= 64 + len(of_type)
        smaller += sum(sizes[-1] < sizes[0] for sizes in of_type.values())
    assert smaller > 0


def test_a_seed_gives_the_same_world_in_every_process() -> None:
    here, there = SMALL.world(7), replace(SMALL).world(7)
    assert here.cluster == there.cluster
    assert list(here.workload) == list(there.workload)  # type: ignore[arg-type]


def test_no_job_of_a_drawn_world_asks_for_more_than_its_cluster_has() -> None:
    for seed in range(25):
        schedule = drive(SMALL.kernel(seed), SMALL.policies.create("fifo-fit"))
        assert summarize(schedule).jobs_completed == len(schedule.jobs)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gpus": (0, 4)}, "gpus"),
        ({"jobs": (9, 3)}, r"jobs must be \[smallest, largest\]"),
        ({"noisy": 1.5}, "noisy"),
        ({"noisy": 0.6, "hidden": 0.6}, "their sum must be 1 or less"),
        ({"limited": 0.6, "typical": 0.6}, "their sum must be 1 or less"),
        ({"restart_s": (9.0, 3.0)}, r"restart_s must be \[smallest, largest\]"),
        ({"traces": (TraceFile("jobs.csv"),)}, "needs a window"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MixtureScenario(**settings)  # type: ignore[arg-type]


def test_a_mixture_has_no_best_heuristic() -> None:
    train = load_config(None, ["system.kind=mixture"]).training()
    with pytest.raises(ConfigError, match="name a policy"):
        check_training(train, SMALL)


def test_times_and_rewards_of_a_sequence_are_in_units_of_its_mean_completion_time() -> None:
    def steps(jct_s: float) -> EpisodeSteps:
        return EpisodeSteps(times_s=[0.0, 30.0, 60.0], rewards=[-10.0, -20.0], jct_s=jct_s)

    for one in in_own_unit([steps(20.0), steps(40.0)]):  # 30 s on average
        assert one.times_s == [0.0, 1.0, 2.0]
        assert one.rewards == [-10 / 30, -20 / 30]
    assert in_own_unit([steps(float("nan"))])[0].times_s == [0.0, 30.0, 60.0]


def test_all_sequences_have_the_same_weight() -> None:
    advantages = equal_weights(np.array([1.0, -1.0, 1.0, 100.0, -300.0]), [3, 2])
    assert advantages[:3].std() == pytest.approx(1.0)
    assert advantages[3:].std() == pytest.approx(1.0)


@pytest.mark.timeout(600)
@pytest.mark.skipif(not jit.jitted(), reason="numba is not installed")
def test_compiled_episodes_of_different_sizes_play_side_by_side_as_in_the_kernel() -> None:
    config = load_config(None, ["system.kind=mixture", "train.codec=relative"])
    reward = RewardConfig({"shaped_job_seconds": 1.0})
    assert SMALL.why_no_episodes(RelativeConfig(), reward.terms) == ""
    net = config.training().net.build(RelativeConfig())
    plain = EpisodeFactory(SMALL, RelativeConfig(), reward)
    fast = EpisodeFactory(SMALL, RelativeConfig(), reward, compiled=True)
    for one, other in zip(*(evaluate_greedy(net, factory, range(6)) for factory in (plain, fast)), strict=True):
        assert one.log == other.log
        assert one.cluster == other.cluster
    slow, quick = (InProcessRollouts(factory).play(net, [3, 3, 4, 4], (1,)) for factory in (plain, fast))
    assert [steps.rewards for steps in slow] == [steps.rewards for steps in quick]
    assert [steps.jct_s for steps in slow] == pytest.approx([steps.jct_s for steps in quick], rel=1e-12)
    assert slow[0].jct_s > 0


def test_a_training_judges_every_seed_by_its_own_reference(tmp_path: Path) -> None:
    settings = [
        *("system.kind=mixture", "system.jobs=[5, 10]", "system.instances=4", "train.codec=relative"),
        *("train.reference=sjf", "train.iterations=2", "train.validate_every=1", "train.validation_seeds=4"),
        *("train.algorithm.sequences=2", "train.algorithm.replicas=2", "train.net.hidden=8"),
    ]
    folder = RunStore.create(tmp_path, "train", load_config(None, settings), argv=[], label="ppo")
    run = TrainingRun(folder)
    run.run()
    reference = run.reference_merits
    assert len(reference) == 4
    assert max(reference) > 3 * min(reference)  # no common unit
    ratios = [row["ratio"] for row in read_log(folder.path)]
    assert all(ratio is not None and 0.5 < ratio < 3 for ratio in ratios)


@pytest.mark.data
def test_windows_of_a_trace_come_from_the_part_of_the_seed() -> None:
    trace = TraceFile("$DAGSIM_DATA/traces/microsoft-itp-2021/raw-traces.tar.gz", format="itp", window=30)
    assert trace.path.startswith(os.environ["DAGSIM_DATA"])
    mixture = MixtureScenario(traces=(trace,), trace_share=1.0)
    ids = np.array([job.id for job in trace.whole().jobs()])
    place = {name: number / len(ids) for number, name in enumerate(ids)}
    for pool, low, high in ((TRAIN, 0.0, 0.6), (VALIDATION, 0.6, 0.8), (REPORT, 0.8, 1.0)):
        for number in (3, 20_000):  # more worlds than there are disjoint windows
            jobs = list(mixture.world(pool[number]).workload)  # type: ignore[arg-type]
            assert len(jobs) == 30
            assert all(low <= place[job.id] <= high for job in jobs)
