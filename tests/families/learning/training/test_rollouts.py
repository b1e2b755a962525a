"""Roll-outs in the compiled engine: the same samples, schedules and weights, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dagsim.config.schema import load_config
from dagsim.families.compiled import jit
from dagsim.families.episodes.side_by_side import CompiledEpisodes
from dagsim.families.learning.episode import EpisodeFactory, RewardConfig
from dagsim.families.learning.observation_bounds import ObservationBounds
from dagsim.families.learning.on_policy import PpoConfig
from dagsim.families.learning.training.learner import LearnerContext
from dagsim.families.learning.training.rollouts import InProcessRollouts, evaluate_greedy
from dagsim.families.learning.training.train_config import TrainConfig
from dagsim.systems.cluster.scenario import cluster_scenario_of

pytestmark = [
    pytest.mark.skipif(not jit.jitted(), reason="numba is not installed"),
    pytest.mark.timeout(600),  # the first run on a machine compiles
]

TRAIN = TrainConfig(algorithm=PpoConfig(sequences=2, replicas=3, epochs=1))


@pytest.fixture
def simulated() -> EpisodeFactory:
    settings = ["workload=heterogeneous-dag", "workload.count=8", "estimates={kind: noisy, sigma: 0.5}"]
    scenario = cluster_scenario_of(load_config(None, settings))
    return EpisodeFactory(scenario, TRAIN.codec, RewardConfig(TRAIN.reward))


@pytest.fixture
def compiled(simulated: EpisodeFactory) -> EpisodeFactory:
    return replace(simulated, compiled=True)


def learner(factory: EpisodeFactory) -> Any:
    return TRAIN.algorithm.build(LearnerContext(TRAIN, InProcessRollouts(factory, 4), 0, 1500.0, range(100)))


def test_samples_are_the_same_in_either_engine(
    simulated: EpisodeFactory, compiled: EpisodeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, seeds = learner(simulated).net, [3, 3, 4, 5, 5]
    slow = InProcessRollouts(simulated, 4).play(net, seeds, (1, 2))
    monkeypatch.setattr(EpisodeFactory, "episode", None)  # nothing is played in the kernel
    fast = InProcessRollouts(compiled, 4).play(net, seeds, (1, 2))
    for one, other in zip(fast, slow, strict=True):
        assert (one.choices, one.log_p, one.rewards) == (other.choices, other.log_p, other.rewards)
        assert one.times_s == other.times_s
        assert all(
            part.tobytes() == there.tobytes()
            for mine, theirs in zip(one.observations, other.observations, strict=True)
            for part, there in zip(mine, theirs, strict=True)
        )


def test_weights_are_the_same_in_either_engine(simulated: EpisodeFactory, compiled: EpisodeFactory) -> None:
    weights = []
    for factory in (simulated, compiled):
        ppo = learner(factory)
        for iteration in range(2):
            ppo.iterate(iteration, iteration / 2)
        weights.append(b"".join(value.numpy().tobytes() for value in ppo.net.state_dict().values()))
    assert weights[0] == weights[1]


def test_validations_are_the_same_in_either_engine(simulated: EpisodeFactory, compiled: EpisodeFactory) -> None:
    net, limits, logs = learner(simulated).net, [], []
    for factory in (simulated, compiled):
        bounds = ObservationBounds()
        logs.append([done.log for done in evaluate_greedy(net, factory, [7, 8, 9], at_once=2, bounds=bounds)])
        limits.append(bounds.parts)
    assert logs[0] == logs[1]
    for part, (low, high) in limits[0].items():
        np.testing.assert_array_equal((low, high), limits[1][part])


def test_what_is_not_compiled_is_played_in_the_kernel(
    compiled: EpisodeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CompiledEpisodes, "begin", None)
    factory = replace(compiled, reward=RewardConfig({"makespan": 1.0}))
    assert len(InProcessRollouts(factory).play(learner(factory).net, [3], (1, 2))) == 1
