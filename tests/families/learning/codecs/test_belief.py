"""The codec ``relative`` with ``beliefs``: what it expects of hidden durations, and that it shows nothing else."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dagsim.errors import ConfigError
from dagsim.families.learning.checkpoint import Checkpoint
from dagsim.families.learning.codecs.acting import ACTION_FEATURES
from dagsim.families.learning.codecs.belief import Belief
from dagsim.families.learning.codecs.codec import CandidatesConfig, Observation, RelativeConfig
from dagsim.families.learning.episode import Episode, Reward, RewardConfig
from dagsim.families.learning.nets.actor import stack
from dagsim.families.learning.training.session import train
from dagsim.model import Cluster, Job, Task
from dagsim.systems.cluster.learnable import TERMS
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.scenario import ClusterScenario

CODEC = RelativeConfig(actions=("preempt",), beliefs=True)
PLACES = {name: place for place, name in enumerate(CODEC.features["tokens"])}


def episode_of(jobs: list[Job], estimates: Any = "hidden", gpus: int = 1, codec: RelativeConfig = CODEC) -> Episode:
    scenario = ClusterScenario(
        Cluster.of({"T4": gpus}), jobs, estimates=Estimates(estimates), preemption=Preemption(restart_s=5.0)
    )
    kernel = scenario.kernel(0)
    return Episode(kernel, codec.build(), Reward(RewardConfig({"job_seconds": 1.0}), kernel, TERMS))


def belief_of(episode: Episode) -> Belief:
    belief = episode.codec._belief
    assert isinstance(belief, Belief)
    return belief


def shown(episode: Episode, row: int, name: str) -> float:
    assert episode.observation is not None
    return float(episode.observation.tokens[row][PLACES[name]])


def job(name: str, seconds: float, arrival_s: float = 0.0, tenant: str | None = None) -> Job:
    return replace(Job.single(name, Task("t", seconds), arrival_s), tenant=tenant)


def test_ended_tasks_of_the_same_tenant_count_more_than_others() -> None:
    ended = [job("a", 10.0, tenant="x"), job("b", 1000.0, tenant="y")]
    episode = episode_of([*ended, job("c", 50.0, 2000.0, "x"), job("d", 1.0, 2000.0)], gpus=2)
    while episode.now < 2000.0:
        episode.step(0)
    belief, view = belief_of(episode), episode.view
    of = {task.job.job.id: belief.typical_s(task) for task in view.ready}
    mean = (log(600) + log(10) + log(1000)) / 3
    assert of["d"] == pytest.approx(exp(mean))
    assert of["c"] == pytest.approx(exp((2 * mean + log(10)) / 3))


@pytest.mark.parametrize("long_s", [3000.0, 70000.0])
def test_observations_do_not_depend_on_hidden_durations(long_s: float) -> None:
    """Also not after a run was stopped, whose remaining work a kernel knows."""

    def seen(long: float) -> list[np.ndarray]:
        arrivals = [job("long", long), *[job(f"short-{number}", 20.0, 700.0 + 100 * number) for number in range(3)]]
        episode = episode_of(arrivals)
        tokens = []
        while episode.observation is not None and episode.now < 950.0:
            tokens.append(episode.observation.tokens.copy())
            episode.step(0)
        return tokens

    one, other = seen(long_s), seen(1500.0)
    assert len(one) == len(other) > 4
    for mine, theirs in zip(one, other, strict=True):
        assert (mine == theirs).all()


def test_a_new_task_may_stop_a_run_that_was_served_for_longer_than_expected() -> None:
    episode = episode_of([job("first", 10.0), job("long", 5000.0, 20.0), job("new", 10.0, 900.0)])
    episode.step(0)
    episode.step(0)
    assert episode.now == 900.0
    assert shown(episode, 0, "stops") > 0
    assert shown(episode, 0, "hidden") == 1.0
    episode.step(0)
    assert [run.task.job.job.id for run in episode.view.running.values()] == []
    assert shown(episode, 0, "served") > 0


def test_estimates_are_believed_where_they_are_known() -> None:
    jobs, plain = [job("a", 70.0), job("b", 30.0)], replace(CODEC, beliefs=False)
    exact, episode = episode_of(jobs, "exact"), episode_of(jobs, "exact", codec=plain)
    width = len(plain.features["tokens"]) - len(ACTION_FEATURES)
    assert exact.observation is not None
    assert episode.observation is not None
    assert (exact.observation.tokens[:, :width] == episode.observation.tokens[:, :width]).all()
    assert shown(exact, 0, "hidden") == 0.0


def test_beliefs_are_not_compiled() -> None:
    scenario = ClusterScenario(Cluster.of({"T4": 1}), [job("a", 1.0)])
    plain = RelativeConfig()
    assert "beliefs" not in scenario.why_no_episodes(plain, {"job_seconds": 1.0})
    assert "beliefs" in scenario.why_no_episodes(replace(plain, beliefs=True), {"job_seconds": 1.0})


def test_an_agent_ignores_columns_that_are_added_to_its_codec(tmp_path: Path) -> None:
    """``--init`` from an agent without beliefs, which a warm start may imitate."""
    tiny = ["workload.count=5", "train.validation_seeds=1", "train.reference=sjf", "train.iterations=1"]
    small = [*tiny, "train.algorithm.sequences=1", "train.algorithm.replicas=2", "train.codec.kind=relative"]
    first = train(None, small, out=tmp_path, report=False).folder.path / "best.pt"
    agent = Checkpoint.load(first)
    wide = replace(agent, codec=CODEC, weights=agent.weights_for(CODEC))
    rows = np.random.default_rng(0).normal(size=(4, len(PLACES))).astype(np.float32)
    context, gpus = np.ones(len(CODEC.features["context"]), np.float32), np.ones((1, 8), np.float32)
    known = len(agent.codec.features["tokens"])
    shown = [Observation(tokens, context, gpus) for tokens in (rows, rows[:, :known])]
    scores = [of.network().forward(stack([one])) for of, one in zip((wide, agent), shown, strict=True)]
    assert torch.allclose(*scores)
    with pytest.raises(ConfigError, match="but the configuration sets CandidatesConfig"):
        agent.weights_for(CandidatesConfig())
    imitated = f"train.warm_start={{policy: 'ppo[checkpoint={first}]', episodes: 1, epochs: 1}}"
    more = [*small, "train.codec.beliefs=true", imitated]
    told: list[str] = []
    train(None, more, out=tmp_path, report=False, init=first, watch=lambda step: told.append(step.what))
    assert any(what.startswith("imitating ppo") for what in told)
