"""The codec ``relative``: no unit of time, no size of cluster, and always the choice of the reference."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagsim.config.schema import load_config
from dagsim.families.learning.codecs.codec import RelativeConfig
from dagsim.families.learning.episode import Episode
from dagsim.families.learning.nets.actor import stack
from dagsim.model import Cluster, Job, Node, Start, Task, TaskGraph, gpu_type
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario, cluster_scenario_of
from dagsim.testing import engine_cases

CONFIG = RelativeConfig()
WEIGHTS = np.random.default_rng(5).normal(size=len(CONFIG.features["tokens"]))


def scaled(jobs: Sequence[Job], by: float) -> list[Job]:
    """The jobs with all their times multiplied."""

    def task(one: Task) -> Task:
        return replace(one, work=by * one.work, estimate=None if one.estimate is None else by * one.estimate)

    return [
        replace(
            job,
            arrival_s=by * job.arrival_s,
            graph=TaskGraph(tuple(map(task, job.graph.tasks)), job.graph.edges),
            deadline_s=None,
        )
        for job in jobs
    ]


def played(scenario: ClusterScenario, by: float = 1.0) -> tuple[list[np.ndarray], list[tuple[Any, ...]], np.ndarray]:
    """Observations and choices of a linear policy, and the log with times divided by ``by``."""
    episode = Episode(scenario.kernel(0), CONFIG.build())
    seen, chosen = [], []
    while (observation := episode.observation) is not None:
        choice = int((observation.tokens @ WEIGHTS).round(3).argmax())
        seen.append(np.concatenate([observation.tokens.ravel(), observation.context, observation.gpus.ravel()]))
        rows = episode.codec.rows
        pair = rows[choice] if choice < len(rows) else None
        chosen.append(() if pair is None else (pair[0].job.number, pair[0].index, pair[1]))
        episode.step(choice)
    log = episode.kernel.schedule.log.rows().copy()
    log["time_s"] /= by
    return seen, chosen, log


def cases(number: int) -> tuple[Cluster, list[Job]]:
    """A random cluster, and jobs whose seconds are not 0 and differ."""
    rng = random.Random(f"relative {number}")
    cluster, jobs = engine_cases.random_cluster(rng), engine_cases.jobs_of(rng)
    tasks = lambda job: tuple(replace(task, work=rng.lognormvariate(5.0, 1.5)) for task in job.graph.tasks)  # noqa: E731
    return cluster, [replace(job, graph=TaskGraph(tasks(job), job.graph.edges)) for job in jobs]


@settings(max_examples=12)
@given(number=st.integers(0, 10**6), by=st.sampled_from([1e-3, 1e3, 60.0]))
def test_multiplying_all_times_changes_no_decision(number: int, by: float) -> None:
    cluster, jobs = cases(number)
    seen, chosen, log = played(ClusterScenario(cluster, jobs))
    seen_scaled, chosen_scaled, log_scaled = played(ClusterScenario(cluster, scaled(jobs, by)), by)
    assert chosen_scaled == chosen
    for one, other in zip(seen, seen_scaled, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-5)
    for name in ("kind", "job", "task", "run", "node", "instances", "gpus"):
        np.testing.assert_array_equal(log_scaled[name], log[name])
    np.testing.assert_allclose(log_scaled["time_s"], log["time_s"], rtol=1e-9)


@pytest.mark.parametrize("number", range(12))
def test_the_choices_of_the_reference_and_of_the_least_work_are_always_offered(number: int) -> None:
    cluster, jobs = cases(number)
    episode = Episode(ClusterScenario(cluster, jobs).kernel(0), CONFIG.build())
    policies = [POLICIES.create(CONFIG.reference), POLICIES.create("srpt-work")]
    marked, rng = list(CONFIG.features["tokens"]).index("proposed"), np.random.default_rng(number)
    while (observation := episode.observation) is not None:
        view, rows = episode.view, episode.codec.rows
        for place, policy in enumerate(policies):
            decision = next(iter(policy.decide(view)), None)
            if isinstance(decision, Start):
                pair = decision.task, view.machines.list[decision.placement[0].node].type
                assert pair in rows
                assert place or observation.tokens[rows.index(pair), marked] == 1.0
            elif not place:
                assert observation.tokens[-1, [0, marked]].tolist() == [1.0, 1.0]
        assert observation.tokens[:, marked].sum() == 1.0
        episode.step(int(rng.integers(len(observation.tokens))))


def test_one_choice_starts_all_instances_that_the_type_has_room_for() -> None:
    jobs = [Job.single("wide", Task("t", 60.0, instances=10))]
    nodes = tuple(Node(f"n{number}", gpu_type("V100"), 1) for number in range(3))
    episode = Episode(ClusterScenario(Cluster(nodes), jobs).kernel(0), CONFIG.build())
    choices = 0
    while episode.observation is not None:
        episode.step(0)
        choices += 1
    assert choices == 4
    assert episode.now == 240.0


def test_observations_of_clusters_with_different_types_fit_into_one_batch() -> None:
    observations = []
    for cluster in (Cluster.of({"V100": 2}), Cluster.of({"V100": 2, "T4": 8, "A100-40": 1})):
        episode = Episode(ClusterScenario(cluster, [Job.single("j", Task("t", 60.0))]).kernel(0), CONFIG.build())
        observations.append(episode.observation)
    batch = stack(observations)
    assert (batch.size, len(batch.tokens)) == (2, 4)


def test_all_features_are_finite_and_bounded() -> None:
    scenario = cluster_scenario_of(load_config(None, ["workload=heterogeneous-dag", "workload.count=30"]))
    for seen in played(scenario)[0]:
        assert np.abs(seen).max() <= 8.0
