"""Decima's network: what it sees, that batches change nothing, and that it learns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from dagsim.errors import ConfigError, RunFolderError
from dagsim.families.decima.decima_net import DecimaNet, StageBatch, collate, options
from dagsim.families.decima.decima_settings import DecimaNetConfig
from dagsim.families.decima.fluid import FluidWitness, differential, fluid_advantages
from dagsim.families.learning.agent_policy import AgentPolicy, load_agent
from dagsim.families.learning.checkpoint import Checkpoint
from dagsim.families.learning.checkpoint_file import write_plain
from dagsim.families.learning.codecs.codec import CandidatesConfig
from dagsim.families.learning.episode import Episode, EpisodeFactory, Reward, RewardConfig
from dagsim.families.learning.on_policy import PpoConfig, ReinforceConfig
from dagsim.families.learning.training.learner import LearnerContext, clone, imitation
from dagsim.families.learning.training.rollouts import EpisodeSteps, InProcessRollouts, play
from dagsim.families.learning.training.train_config import TrainConfig, WarmStart
from dagsim.families.spark.api import (
    SPARK_POLICIES,
    Action,
    RecordedDurations,
    SparkJob,
    SparkKernel,
    sequence,
    synthetic_profiles,
)
from dagsim.families.spark.codecs import JOB, STAGE, Stages, StagesConfig, observe
from dagsim.families.spark.rewards import SPARK_TERMS
from dagsim.families.spark.scenario import SparkScenario
from dagsim.systems import system_named

POOL = synthetic_profiles()


def simulation(seed: int = 0, jobs: int = 5) -> SparkKernel:
    return SparkKernel(10, sequence(POOL, seed, jobs=jobs, batch=jobs), seed=seed)


def episode(kernel: SparkKernel, action: Action = "executors") -> Episode:
    reward = Reward(RewardConfig({"job_seconds": 1.0}), kernel, SPARK_TERMS)
    return Episode(kernel, Stages(action), reward, witness=FluidWitness(kernel))


def played(net: DecimaNet, kernels: list[SparkKernel], rng: np.random.Generator | None) -> list[EpisodeSteps]:
    return play(net, [episode(kernel, net.action) for kernel in kernels], rng)


def factory(jobs: int = 5, action: Action = "executors") -> EpisodeFactory:
    scenario = SparkScenario(10, jobs, batch=jobs)
    return EpisodeFactory(scenario, StagesConfig(action), RewardConfig({"job_seconds": 1.0}))


def checkpoint(net: DecimaNet) -> Checkpoint:
    settings = DecimaNetConfig(net.hidden, net.head)
    return Checkpoint("ppo", settings, StagesConfig(net.action), net.state_dict(), {"iteration": 3}, None, "spark")


def trained(action: Action = "executors") -> DecimaNet:
    """Weights that are not 0 anywhere."""
    torch.manual_seed(1)
    net = DecimaNet(action=action)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return net


def test_path_is_the_longest_sum_of_work_to_the_sink() -> None:
    # 0 -> 1 -> 3 and 0 -> 2 -> 3; work 1, 4, 2, 1 s: paths 1+4+1 = 6, 4+1 = 5, 2+1 = 3, 1; the longest is 6
    lengths = (1000.0, 4000.0, 2000.0, 1000.0)
    diamond = SparkJob.of("d", [RecordedDurations((ms,), ms) for ms in lengths], [(0, 1), (0, 2), (1, 3), (2, 3)])
    seen = observe(next(SparkKernel(1, [diamond]).decisions()).graph())
    paths = np.expm1(8 * seen.stages[:, STAGE.index("path")])
    assert paths == pytest.approx([6, 5, 3, 1], rel=1e-5)
    assert np.expm1(8 * seen.jobs[0, JOB.index("work")]) == pytest.approx(8, rel=1e-5)
    assert seen.choices.tolist() == [0]
    assert seen.most.tolist() == [1]


def test_observations_do_not_change_each_other_in_a_batch() -> None:
    net = trained()
    views = [next(simulation(seed, 2 + seed).decisions()).graph() for seed in range(4)]
    seen = [observe(graph) for graph in views]
    with torch.no_grad():
        graphs = collate(seen)
        together = net.stage_scores(net.embed(graphs))
        alone = torch.cat([net.stage_scores(net.embed(collate([observation]))) for observation in seen])
    assert torch.allclose(together, alone, atol=1e-5)
    assert alone.std() > 0


def test_a_stage_hears_of_those_below_it() -> None:
    def chain(last_ms: float) -> SparkJob:
        return SparkJob.of(
            "c", [RecordedDurations((1000.0,), 1000.0), RecordedDurations((last_ms,), last_ms)], [(0, 1)]
        )

    net = trained()
    embeddings = []
    for last_ms in (1000.0, 9000.0):
        seen = observe(next(SparkKernel(1, [chain(last_ms)]).decisions()).graph())
        same = seen._replace(stages=np.where(np.arange(2)[:, None] == 0, 0.5, seen.stages).astype(np.float32))
        with torch.no_grad():
            embeddings.append(net.embed(collate([same._replace(jobs=np.zeros_like(seen.jobs))]))[0])
    assert not torch.allclose(embeddings[0], embeddings[1])


def test_what_was_played_has_the_likelihood_that_was_noted() -> None:
    net = trained()
    (steps,) = played(net, [simulation()], np.random.default_rng(0))
    with torch.no_grad():
        log_p, entropy = net.evaluate(net.stack(steps.observations), np.array(steps.choices))
    assert log_p.numpy() == pytest.approx(steps.log_p, abs=1e-4)
    assert (entropy >= -1e-5).all()


def test_smoothed_cross_entropy_lies_between_the_choice_and_all_of_them() -> None:
    # one executor, two jobs of one stage: two stages, one number each, so the heads together have two choices
    net, jobs = (
        trained(),
        [SparkJob.of(name, [RecordedDurations((ms,), ms)]) for name, ms in (("a", 9000.0), ("b", 1000.0))],
    )
    batch = net.stack([observe(next(SparkKernel(1, jobs).decisions()).graph())])
    with torch.no_grad():
        losses = [net.cross_entropy(batch, np.array([[stage, 1]])) for stage in (0, 1)]
        smoothed = net.cross_entropy(batch, np.array([[0, 1]]), 0.2)
    assert float(smoothed) == pytest.approx(0.8 * float(losses[0]) + 0.2 * float(sum(losses)) / 2)
    assert float(losses[0]) != pytest.approx(float(losses[1]))


def test_rewards_add_up_to_minus_all_completion_times() -> None:
    kernel = simulation()
    (steps,) = played(trained(), [kernel], np.random.default_rng(0))
    assert -sum(steps.rewards) / 5 == pytest.approx(kernel.episode.mean_jct_s)
    assert len(steps.times_s) == len(steps.rewards) + 1 == len(steps.notes) + 1
    assert len(steps.hindsight) == 5


def test_played_side_by_side_or_alone_greedy_decides_the_same() -> None:
    net, kernels = trained(), [simulation(seed) for seed in range(3)]
    played(net, kernels, None)
    agent = checkpoint(net)
    alone = [simulation(seed).run(AgentPolicy(agent)).mean_jct_s for seed in range(3)]
    assert [kernel.episode.mean_jct_s for kernel in kernels] == pytest.approx(alone)


def test_sampled_episodes_repeat_with_the_seed() -> None:
    agent = checkpoint(trained())
    first, again = (simulation().run(AgentPolicy(agent, sampled=True)).mean_jct_s for _ in range(2))
    assert first == again != simulation().run(AgentPolicy(agent)).mean_jct_s


@pytest.mark.parametrize("action", ["executors", "limit"])
def test_the_choices_of_a_heuristic_play_its_own_episode(action: Action) -> None:
    episodes = factory(action=action)
    _, choices = imitation(episodes, "srpt-cp[cap=3]", [0])
    again = episode(episodes.scenario.kernel(0), action)  # type: ignore[arg-type]
    for choice in choices:
        again.step(choice)
    alone = episodes.scenario.kernel(0)
    assert isinstance(alone, SparkKernel)
    assert again.observation is None
    assert again.now == alone.run(SPARK_POLICIES.create("srpt-cp[cap=3]")).ended_ms / 1000


def test_imitation_comes_close_to_its_teacher() -> None:
    torch.manual_seed(0)
    net, rng, teacher = DecimaNet(), np.random.default_rng(0), "srpt-cp[cap=3]"
    how = WarmStart(teacher, epochs=12, minibatch=64, lr=5e-3, final_lr=1e-4, smoothing=0.0, max_grad=1.0)
    assert clone(net, *imitation(factory(), teacher, range(6)), how, rng) < 0.5
    kernels = [simulation(100 + seed) for seed in range(4)]
    played(net, kernels, None)
    own = [simulation(100 + seed).run(SPARK_POLICIES.create(teacher)).mean_jct_s for seed in range(4)]
    assert np.mean([kernel.episode.mean_jct_s for kernel in kernels]) < 1.1 * np.mean(own)


def test_a_limit_is_scored_for_the_job_whichever_stage_is_chosen() -> None:
    # two stages of one job: 3 and 8 tasks; 6 executors, of which the job has none: limits 1 to 6 for both
    job = SparkJob.of("j", [RecordedDurations((1000.0,) * 3, 1000.0), RecordedDurations((2000.0,) * 8, 2000.0)])
    graph = next(SparkKernel(6, [job]).decisions()).graph()
    assert observe(graph).most.tolist() == [3, 6]
    seen = observe(graph, "limit")
    assert seen.most.tolist() == [6, 6]
    net = trained("limit")
    embedded = net.embed(collate([seen]))
    first, second = (net.number_scores(embedded[[at]], options([seen], np.array([at]))) for at in (0, 1))
    assert torch.allclose(first, second)
    assert first.std() > 0


COMMON = {
    "advantage": "fluid[horizon=1e7]",
    "sequences": 1,
    "replicas": 8,
    "lr": 0.01,
    "minibatch": 64,
    "max_grad": 1.0,
}


@pytest.mark.parametrize("action", ["executors", "limit"])
@pytest.mark.parametrize("algorithm", [PpoConfig(target_kl=1.0, **COMMON), ReinforceConfig(**COMMON)])  # type: ignore[arg-type]
def test_learning_prefers_the_better_of_two_first_choices(
    algorithm: PpoConfig | ReinforceConfig, action: Action
) -> None:
    """One executor, one long and one short job: the short one first is better."""
    jobs = [SparkJob.of(name, [RecordedDurations((ms,), ms)]) for name, ms in (("long", 50_000.0), ("short", 1_000.0))]
    episodes = factory(action=action)
    train = TrainConfig(
        algorithm=algorithm,
        net=DecimaNetConfig(),
        codec=episodes.codec,
        reward={"job_seconds": 1.0},
        time_constant_s=(100.0, 100.0),
    )
    learner = algorithm.build(LearnerContext(train, InProcessRollouts(episodes), 0, 1.0, range(9)))
    net, rng = learner.net, np.random.default_rng(0)
    assert isinstance(net, DecimaNet)
    for _ in range(15):
        metrics = learner.learn(played(net, [SparkKernel(1, jobs) for _ in range(8)], rng), 0.0, rng, rng)  # type: ignore[attr-defined]
    assert np.isfinite(metrics["entropy"])
    choices, _ = net.act(StageBatch.of([observe(next(SparkKernel(1, jobs).decisions()).graph(), action)]), None)
    assert choices[0, 0] == 1


def test_replicas_that_did_the_same_have_no_advantage() -> None:
    (steps,) = played(trained(), [simulation()], None)
    assert np.concatenate(fluid_advantages([[steps, steps]], 100.0, 50.0)) == pytest.approx(0, abs=1e-6)


def test_advantage_is_higher_where_less_was_waited() -> None:
    def steps(cost: float) -> EpisodeSteps:
        (trajectory,) = played(DecimaNet(), [simulation(jobs=1)], None)
        trajectory.rewards = [-cost] * len(trajectory.rewards)
        return trajectory

    good, bad = fluid_advantages([[steps(1.0), steps(2.0)]], 100.0, 1e9)
    assert good[0] > 0 > bad[0]


def test_differential_rewards_add_up_to_nothing() -> None:
    groups = [played(trained(), [simulation(seed), simulation(seed)], np.random.default_rng(seed)) for seed in (0, 1)]
    jobs = [-sum(steps.rewards) for group in groups for steps in group]
    span_s = sum(steps.times_s[-1] for group in groups for steps in group)
    first_s, first = groups[0][0].times_s[1] - groups[0][0].times_s[0], groups[0][0].rewards[0]
    differential(groups)
    assert sum(sum(steps.rewards) for group in groups for steps in group) == pytest.approx(0, abs=1e-6)
    assert groups[0][0].rewards[0] == pytest.approx(first + first_s * sum(jobs) / span_s)


def test_without_discount_what_comes_last_counts_in_full() -> None:
    def steps(last: float) -> EpisodeSteps:
        (trajectory,) = played(DecimaNet(), [simulation(jobs=1)], None)
        trajectory.rewards = [0.0] * (len(trajectory.rewards) - 1) + [last]
        return trajectory

    short = fluid_advantages([[steps(1.0), steps(-1.0)]], 0.1, 1e9)[0][0]
    whole = fluid_advantages([[steps(1.0), steps(-1.0)]], 0.1, 1e9, discounted=False)[0][0]
    assert whole == pytest.approx(2) != short


@pytest.mark.parametrize("action", ["executors", "limit"])
def test_a_file_brings_back_the_same_decisions(tmp_path: Path, action: Action) -> None:
    agent = checkpoint(trained(action))
    agent.save(tmp_path / "net.pt")
    assert Checkpoint.load(tmp_path / "net.pt").about == {"iteration": 3}
    again = simulation().run(load_agent(tmp_path / "net.pt", system=system_named("spark")))
    assert again.mean_jct_s == simulation().run(AgentPolicy(agent)).mean_jct_s


def test_a_file_of_another_system_codec_or_version_is_refused(tmp_path: Path) -> None:
    agent, path = checkpoint(trained()), tmp_path / "net.pt"
    agent.save(path)
    with pytest.raises(RunFolderError, match="trained for the system 'spark', so it cannot schedule 'cluster'"):
        load_agent(path, system=system_named("cluster"))
    plain = torch.load(path, weights_only=True)
    write_plain(path, plain | {"codec_version": 7})
    with pytest.raises(RunFolderError, match="version 7 of the codec 'stages', which now has version 1"):
        load_agent(path)
    write_plain(path, plain | {"codec": {"kind": "candidates"}, "system": "cluster"})
    with pytest.raises(RunFolderError, match="trained on different observations"):
        load_agent(path)
    with pytest.raises(ConfigError, match="works only with the codec 'stages', not with 'candidates'"):
        DecimaNetConfig().build(CandidatesConfig())


def test_the_fluid_is_for_spark() -> None:
    from dagsim.model import Cluster
    from dagsim.systems.cluster import ClusterKernel

    with pytest.raises(ConfigError, match="requires the system 'spark'"):
        FluidWitness(ClusterKernel(Cluster.of({"T4": 1}), []))


@pytest.mark.parametrize("sizes", [{"hidden": 0}, {"head": 0}, {"hidden": -1}])
def test_a_net_without_units_is_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(sizes))):
        DecimaNetConfig(**sizes)
