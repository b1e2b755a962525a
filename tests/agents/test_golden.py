"""Three iterations from fixed seeds give the weights that the two former stacks gave (checked there bit for bit)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dagsim.agents.cloning import clone, imitation
from dagsim.agents.config import PpoConfig, ReinforceConfig, TrainConfig, WarmStart
from dagsim.agents.learner import LearnerContext, update_ema
from dagsim.agents.nets.config import DecimaNetConfig
from dagsim.agents.rollouts import InProcessRollouts, play
from dagsim.config.schema import load_config
from dagsim.envs.episode import EpisodeFactory
from dagsim.envs.rewards import RewardConfig
from dagsim.experiment.agents import make_policy
from dagsim.experiment.folder import RunFolder
from dagsim.experiment.run import run_policy
from dagsim.experiment.training.trainer import TrainingRun
from dagsim.seeds import TRAIN
from dagsim.systems.spark.codecs.stages import StagesConfig
from dagsim.systems.spark.scenario import SparkScenario

ROOT = Path(__file__).parents[2]
GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden.json").read_text())
CLUSTER = (
    "workload.count=15",
    "train.validation_seeds=3",
    "train.reference=sjf",
    "train.net.hidden=8",
    "train.validate_every=2",
    "train.iterations=3",
)
ROUNDING = 1.5e-3
"""By how much sums of weights may differ: torch rounds otherwise on another kind of CPU, and Adam makes a step of it
(up to 1.0e-3 with other kernels of the same machine). Twice the entropy bonus makes 2.2e-3."""
REPLICAS = ("train.algorithm.sequences=2", "train.algorithm.replicas=2")
SETTINGS = {
    "ppo": (*REPLICAS,),
    "critic": (*REPLICAS, "train.algorithm.advantage=critic"),
    "warm": (*REPLICAS, "train.warm_start={policy: eft-wait, epochs: 2}"),
    "d3qn": ("train.algorithm.kind=d3qn",),
    "sac": ("train.algorithm.kind=sac",),
}
SPARK: dict[str, Any] = {"sequences": 2, "replicas": 3, "minibatch": 64, "lr": 1e-3, "min_lr": 1e-5, "max_grad": 1.0}


def checksums(weights: Mapping[str, torch.Tensor]) -> list[float]:
    """Of each tensor the sum of its values, and of their absolutes, by name."""
    return [float(part.double().sum()) for name in sorted(weights) for part in (weights[name], weights[name].abs())]


@pytest.mark.parametrize("name", SETTINGS)
def test_the_cluster_learns_as_it_did(name: str, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "train", load_config(None, [*CLUSTER, *SETTINGS[name]]), argv=[])
    run = TrainingRun(folder)
    run.run()
    state = torch.load(folder.path / "checkpoint.pt", weights_only=True)
    golden = GOLDEN["cluster"][name]
    assert checksums(state["learner"]["net"]) == pytest.approx(golden["weights"], rel=1e-6, abs=ROUNDING)
    assert run.best == pytest.approx(golden["best"], rel=1e-9)


@pytest.mark.parametrize("name", ["ppo", "reinforce", "limit"])
def test_decima_learns_as_it_did(name: str) -> None:
    """As the former trainer went about it: one stream of random numbers, sequences from the hundredth on."""
    torch.set_num_threads(1)
    algorithm: Any = PpoConfig(advantage="fluid", epochs=2, **SPARK)
    if name == "reinforce":
        algorithm = ReinforceConfig(advantage="fluid[differential=true]", entropy=0.003, **SPARK)
    scenario = SparkScenario(executors=5, jobs=6)
    codec = StagesConfig("limit" if name == "limit" else "executors")
    factory = EpisodeFactory(scenario, codec, RewardConfig({"job_seconds": 1.0}))
    first = 3 if name == "limit" else None
    train = TrainConfig(
        algorithm=algorithm, net=DecimaNetConfig(), codec=codec, time_constant_s=(100.0, 400.0), first_jobs=first
    )
    context = LearnerContext(train, InProcessRollouts(factory), 0, 1.0, TRAIN, scenario.jobs)
    learner, rng = algorithm.build(context), np.random.default_rng(0)
    how = WarmStart("srpt-cp[cap=3]", epochs=2, minibatch=128, final_lr=1e-4, smoothing=0.0, max_grad=1.0)
    clone(learner.net, *imitation(factory, how.policy, TRAIN[:2]), how, rng)
    mean = train.net.build(codec)
    mean.load_state_dict(learner.net.state_dict())
    for iteration in range(3):
        progress = iteration / 3
        seeds = [TRAIN[102 + 2 * iteration + sequence] for sequence in range(2) for _ in range(3)]
        jobs, witness = context.jobs_at(progress), learner.estimator.witness
        played = play(learner.net, [factory.episode(seed, jobs, witness) for seed in seeds], rng)
        learner.learn(played, progress, rng, rng)
        update_ema(mean, learner.net, 0.7)
    assert checksums(mean.state_dict()) == pytest.approx(GOLDEN["decima"][name], rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("path", sorted((ROOT / "results" / "agents").glob("*.pt")), ids=lambda path: path.stem)
def test_kept_agents_play_the_same_schedules(path: Path) -> None:
    workload = "heterogeneous-dag" if "dag" in path.stem else "heterogeneous"
    config = load_config(None, [f"workload={workload}", "workload.count=60"])
    for seed in (1, 2):
        result = run_policy(config, f'ppo[checkpoint="{path}"]', seed)
        assert result.summary.jct_s.mean == GOLDEN["schedules"][f"agents/{path.name} {seed}"]


@pytest.mark.parametrize("path", sorted((ROOT / "results" / "decima").glob("*.pt")), ids=lambda path: path.stem)
def test_kept_decima_nets_play_the_same_schedules(path: Path) -> None:
    scenario = SparkScenario(executors=10, jobs=15)
    for seed in (1, 2):
        episode = scenario.kernel(seed).run(make_policy(scenario, f'decima[checkpoint="{path}"]'))
        assert episode.mean_jct_s == GOLDEN["schedules"][f"decima/{path.name} {seed}"]
