"""A tiny scheduling problem whose optimum is known: which job gets the fast GPU, and when to wait for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dagsim.families.learning.episode import EpisodeFactory, RewardConfig
from dagsim.families.learning.nets.net_settings import NetSettings, ScorerConfig
from dagsim.families.learning.settings import AlgorithmSettings
from dagsim.families.learning.training.learner import Learner, LearnerContext
from dagsim.families.learning.training.rollouts import InProcessRollouts
from dagsim.families.learning.training.train_config import TrainConfig
from dagsim.model import Cluster, Job, Task
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.scenario import ClusterScenario


def two_jobs(seed: int) -> ClusterKernel:
    """Two jobs of 10 s on an A100; on a T4 each takes 11 s or 100 s."""
    slower = np.random.default_rng(seed).choice([1.1, 10.0], 2)
    jobs = [
        Job.single(f"j{number}", Task("t", 10.0, speeds={"A100-40": 1.0, "T4": 1 / float(factor)}))
        for number, factor in enumerate(slower)
    ]
    return ClusterKernel(Cluster.of({"A100-40": 1, "T4": 1}), jobs, seed=seed)


def best_jct_s(seed: int) -> float:
    """Side by side with an 11 s job on the T4: (10 + 11) / 2. Two of 100 s take turns on the A100: (10 + 20) / 2."""
    slower = np.random.default_rng(seed).choice([1.1, 10.0], 2)
    return 10.5 if slower.min() < 2 else 15.0


class TwoJobs(ClusterScenario):
    """Two other jobs for every seed."""

    def kernel(self, seed: int, **_: object) -> ClusterKernel:  # type: ignore[override]
        return two_jobs(seed)


def begun(
    algorithm: AlgorithmSettings, net: NetSettings | None = None, **train_settings: Any
) -> tuple[Learner, EpisodeFactory]:
    """A learner of this problem that has not learned yet, and its episodes."""
    torch.set_num_threads(1)
    train = TrainConfig(algorithm=algorithm, net=net or ScorerConfig(hidden=16), **train_settings)
    scenario = TwoJobs(Cluster.of({"A100-40": 1}), ())
    factory = EpisodeFactory(scenario, train.codec, RewardConfig(train.reward))
    return algorithm.build(LearnerContext(train, InProcessRollouts(factory), 1, 15.0, range(900))), factory
