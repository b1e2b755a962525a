"""The codec ``relative`` with actions: what stops, moves and admits, and what that costs."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dagsim.config.schema import Config
from dagsim.errors import ConfigError
from dagsim.experiment.simulate import make_policy
from dagsim.families.learning.agent_policy import load_agent
from dagsim.families.learning.codecs.codec import RelativeConfig
from dagsim.families.learning.episode import Episode, Reward, RewardConfig
from dagsim.model import Cluster, Job, Kind, RejectReason, Task
from dagsim.systems import system_named
from dagsim.systems.cluster.learnable import TERMS
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.scenario import ClusterScenario, cluster_scenario_of
from dagsim.systems.seam import drive
from dagsim.testing import engine_cases

ALL = RelativeConfig(actions=("preempt", "migrate", "admit"))
PLACES = {name: place for place, name in enumerate(ALL.features["tokens"])}


def episode_of(scenario: ClusterScenario, codec: RelativeConfig = ALL, **terms: float) -> Episode:
    kernel = scenario.kernel(0)
    return Episode(kernel, codec.build(), Reward(RewardConfig(terms or {"job_seconds": 1.0}), kernel, TERMS))


def shown(episode: Episode, row: int, *names: str) -> list[float]:
    assert episode.observation is not None
    return [float(episode.observation.tokens[row][PLACES[name]]) for name in names]


def ends(episode: Episode) -> dict[str, float]:
    schedule = episode.kernel.schedule
    rows = schedule.log.rows()
    done = rows[rows["kind"] == Kind.COMPLETED]
    return {schedule.jobs[job].id: float(time) for job, time in zip(done["job"], done["time_s"], strict=True)}


def long_and_short() -> ClusterScenario:
    """A job of 100 s holds the only GPU when one of 10 s arrives; a stopped run pays 5 s."""
    jobs = [Job.single("long", Task("t", 100.0)), Job.single("short", Task("t", 10.0), 20.0)]
    return ClusterScenario(Cluster.of({"T4": 1}), jobs, preemption=Preemption(restart_s=5.0))


def test_a_task_takes_over_the_gpu_of_a_longer_one_and_the_reward_has_the_price() -> None:
    episode = episode_of(long_and_short(), job_seconds=1.0, lost_gpu_seconds=2.0)
    total = 0.0
    episode.step(0)  # the long job starts
    total += episode.reward()
    assert episode.now == 20.0
    assert shown(episode, 0, "stops", "moves") == [pytest.approx(np.log1p(1) / 2), 0.0]
    assert shown(episode, 0, "price")[0] > 0
    episode.step(0)
    while episode.observation is not None:
        total += episode.reward()
        episode.step(0)
    total += episode.reward()
    assert ends(episode) == {"short": 30.0, "long": 115.0}
    assert total == pytest.approx(-(115.0 + 10.0 + 2 * 5.0))


def test_waiting_remains_possible_and_nothing_stops_a_run_with_less_left() -> None:
    episode = episode_of(long_and_short())
    episode.step(0)
    assert len(episode.observation.tokens) == 2  # type: ignore[union-attr]
    episode.step(1)
    episode.step(0)
    assert ends(episode) == {"long": 100.0, "short": 110.0}
    equal = [Job.single("a", Task("t", 30.0)), Job.single("b", Task("t", 20.0), 15.0)]
    episode = episode_of(ClusterScenario(Cluster.of({"T4": 1}), equal))
    episode.step(0)
    assert (episode.now, shown(episode, 0, "stops")) == (30.0, [0.0])  # 15 s were left when 20 s arrived: no choice


def test_a_run_moves_to_a_faster_type_that_became_idle() -> None:
    jobs = [
        Job.single("a", Task("t", 10.0, speeds={"V100-16": 2.0, "T4": 1.0})),
        Job.single("b", Task("t", 100.0, speeds={"V100-16": 2.0, "T4": 1.0})),
    ]
    scenario = ClusterScenario(Cluster.of({"V100-16": 1, "T4": 1}), jobs, preemption=Preemption(restart_s=1.0))
    episode = episode_of(scenario)
    fast = episode.kernel.machines.types.index(scenario.cluster.nodes[0].gpu)  # type: ignore[attr-defined]
    while not any(action for action in episode.codec._actions):  # type: ignore[attr-defined]
        rows = episode.codec.rows  # type: ignore[attr-defined]
        wanted = [place for place, (task, type_) in enumerate(rows) if (task.job.job.id == "a") == (type_ == fast)]
        episode.step(wanted[0])
    assert episode.now == 5.0
    assert shown(episode, 0, "moves", "stops") == [1.0, 0.0]
    episode.step(0)
    assert ends(episode)["b"] == pytest.approx(5.0 + 1.0 + 95.0 / 2)


def test_jobs_are_admitted_or_rejected_and_rejections_have_a_price() -> None:
    jobs = [Job.single("a", Task("t", 10.0)), Job.single("b", Task("t", 10.0))]
    episode = episode_of(ClusterScenario(Cluster.of({"T4": 1}), jobs, admission=True), rejections=7.0)
    assert shown(episode, 0, "admits", "rejects") == [1.0, 0.0]
    assert shown(episode, 1, "admits", "rejects") == [0.0, 1.0]
    episode.step(0)
    episode.step(1)
    assert episode.reward() == -7.0
    episode.step(0)
    assert ends(episode) == {"a": 10.0}
    rows = episode.kernel.schedule.log.rows()
    assert rows["value"][rows["kind"] == Kind.REJECTED].tolist() == [RejectReason.BY_POLICY]


def test_random_choices_end_and_all_rows_can_be_carried_out() -> None:
    assert sum(map(stops_of_random_choices, range(8))) > 20


def stops_of_random_choices(number: int) -> int:
    """The number of runs that random choices stopped or moved, on a random cluster."""
    rng = random.Random(f"acting {number}")
    scenario = ClusterScenario(
        engine_cases.random_cluster(rng),
        engine_cases.jobs_of(rng),
        preemption=Preemption("resume" if number % 2 else "restart", restart_s=float(number)),
        admission=number % 3 == 0,
    )
    draw, stops = np.random.default_rng(number), 0
    episode = episode_of(scenario)
    for _ in range(20_000):
        if episode.observation is None:
            break
        tokens = episode.observation.tokens
        assert tokens.shape[1] == len(PLACES)
        assert np.isfinite(tokens).all()
        choice = int(draw.integers(len(tokens)))
        before, wanted = len(episode.kernel.schedule.log), tokens[choice][[PLACES["stops"], PLACES["moves"]]].any()
        episode.step(choice)
        stops += bool(wanted)
        rows = episode.kernel.schedule.log.rows()[before:]
        assert not wanted or (rows["kind"] == Kind.PREEMPTED).any()
    assert episode.observation is None
    return stops


def test_multiplying_all_times_changes_no_observation() -> None:
    def seen(by: float) -> list[np.ndarray]:
        jobs = [
            Job.single("long", Task("t", by * 100.0, 2, True)),
            Job.single("b", Task("t", by * 10.0), by * 20.0),
            Job.single("c", Task("t", by * 7.0), by * 21.0),
        ]
        episode = episode_of(ClusterScenario(Cluster.of({"T4": 2}), jobs, preemption=Preemption(restart_s=by * 5.0)))
        rows = []
        while episode.observation is not None:
            rows.append(episode.observation.tokens)
            episode.step(0)
        return rows

    for one, other in zip(seen(1.0), seen(1e3), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_decisions_of_heuristics_are_found_among_the_rows() -> None:
    episode = episode_of(long_and_short())
    episode.step(0)
    view: Any = episode.view
    decisions = list(make_policy(long_and_short(), "srtf").decide(view))
    assert episode.codec.choice_of(decisions) == 0  # type: ignore[attr-defined]
    assert episode.codec.choice_of([]) == 1  # type: ignore[attr-defined]


def test_without_actions_nothing_changes_and_with_them_the_kernel_decides_live() -> None:
    scenario = cluster_scenario_of(Config())
    reward = RewardConfig({"job_seconds": 1.0})
    assert scenario.why_no_episodes(RelativeConfig(), reward.terms) == ""
    assert "actions" in scenario.why_no_episodes(replace(RelativeConfig(), actions=("preempt",)), reward.terms)
    assert ALL.features["tokens"][: len(RelativeConfig().features["tokens"])] == RelativeConfig().features["tokens"]
    with pytest.raises(ConfigError, match="actions may only contain preempt, migrate, admit"):
        RelativeConfig(actions=("stop",))  # type: ignore[arg-type]
    assert not load_agent_admits()


def load_agent_admits() -> bool:
    from dagsim.families.learning.agents import shipped_agent

    return load_agent(shipped_agent("ppo", system_named("cluster"))).admits


def test_heuristics_admit_all_jobs_of_a_configuration_with_admission() -> None:
    document = {
        "cluster": {"groups": [{"name": "t", "gpu": "T4", "gpus": 2}]},
        "workload": {"preset": "heterogeneous", "count": 20},
    }
    with_admission, without = (
        cluster_scenario_of(Config.model_validate(document | {"admission": admission})) for admission in (True, False)
    )
    logs = [
        drive(scenario.kernel(3), make_policy(scenario, "sjf")).log.rows() for scenario in (with_admission, without)
    ]
    admitted = logs[0]["kind"] == Kind.ADMITTED
    assert admitted.sum() == (logs[1]["kind"] == Kind.COMPLETED).sum()
    assert logs[0][~admitted].tobytes() == logs[1].tobytes()
