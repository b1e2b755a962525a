"""Three iterations of learning from fixed seeds, and the sums of the weights: ``python tests/agents/learned.py``.

Prints one JSON object, in the form of ``golden.json`` beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from dagsim.agents.cloning import clone, imitation
from dagsim.agents.config import PpoConfig, ReinforceConfig, TrainConfig, WarmStart
from dagsim.agents.learner import LearnerContext, update_ema
from dagsim.agents.nets.config import DecimaNetConfig
from dagsim.agents.rollouts import InProcessRollouts, play
from dagsim.config.schema import load_config
from dagsim.envs.episode import EpisodeFactory, RewardConfig
from dagsim.experiment.store import RunFolder
from dagsim.experiment.training.trainer import TrainingRun
from dagsim.seeds import TRAIN
from dagsim.systems.spark.codecs import StagesConfig
from dagsim.systems.spark.scenario import SparkScenario

_CLUSTER = (
    "workload.count=15",
    "train.validation_seeds=3",
    "train.reference=sjf",
    "train.net.hidden=8",
    "train.validate_every=2",
    "train.iterations=3",
)
_REPLICAS = ("train.algorithm.sequences=2", "train.algorithm.replicas=2")
SETTINGS = {
    "ppo": (*_REPLICAS,),
    "critic": (*_REPLICAS, "train.algorithm.advantage=critic"),
    "warm": (*_REPLICAS, "train.warm_start={policy: eft-wait, epochs: 2}"),
    "d3qn": ("train.algorithm.kind=d3qn",),
    "sac": ("train.algorithm.kind=sac",),
}
DECIMA = ("ppo", "reinforce", "limit")
_SPARK: dict[str, Any] = {"sequences": 2, "replicas": 3, "minibatch": 64, "lr": 1e-3, "min_lr": 1e-5, "max_grad": 1.0}


def main() -> None:
    learned = {
        "cluster": {name: _cluster(settings) for name, settings in SETTINGS.items()},
        "decima": {name: _decima(name) for name in DECIMA},
    }
    print(json.dumps(learned))


def _cluster(settings: tuple[str, ...]) -> dict[str, Any]:
    with TemporaryDirectory() as place:
        folder = RunFolder.create(Path(place), "train", load_config(None, [*_CLUSTER, *settings]), argv=[])
        run = TrainingRun(folder)
        run.run()
        state = torch.load(folder.path / "checkpoint.pt", weights_only=True)
    return {"weights": _sums(state["learner"]["net"]), "best": run.best}


def _decima(name: str) -> list[float]:
    """As the former trainer went about it: one stream of random numbers, sequences from the hundredth on."""
    torch.set_num_threads(1)
    algorithm: Any = PpoConfig(advantage="fluid", epochs=2, **_SPARK)
    if name == "reinforce":
        algorithm = ReinforceConfig(advantage="fluid[differential=true]", entropy=0.003, **_SPARK)
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
    return _sums(mean.state_dict())


def _sums(weights: Mapping[str, torch.Tensor]) -> list[float]:
    """Of each tensor the sum of its values, and of their absolutes, by name."""
    return [float(part.double().sum()) for name in sorted(weights) for part in (weights[name], weights[name].abs())]


if __name__ == "__main__":
    main()
