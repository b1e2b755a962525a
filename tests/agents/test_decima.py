"""Decima's network: what it sees, that batches change nothing, and that it learns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from dagsim.agents.decima_baseline import advantages, differential
from dagsim.agents.decima_features import JOB, STAGE, observe
from dagsim.agents.decima_file import load_decima, load_net, save_net
from dagsim.agents.decima_net import DecimaNet, collate, options
from dagsim.agents.decima_play import DecimaPolicy, Steps, choose, play, watch
from dagsim.agents.decima_ppo import DecimaLearner, LearnConfig, imitate, likelihood
from dagsim.errors import RunFolderError
from dagsim.systems.spark import SPARK_POLICIES, Action, Replay, SparkJob, SparkKernel, sequence, synthetic_profiles

POOL = synthetic_profiles()


def simulation(seed: int = 0, jobs: int = 5) -> SparkKernel:
    return SparkKernel(10, sequence(POOL, seed, jobs=jobs, batch=jobs), seed=seed)


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
    diamond = SparkJob.of("d", [Replay((ms,), ms) for ms in lengths], [(0, 1), (0, 2), (1, 3), (2, 3)])
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
        alone = torch.cat([net.stage_scores(net.embed(collate([each]))) for each in seen])
    assert torch.allclose(together, alone, atol=1e-5)
    assert alone.std() > 0


def test_a_stage_hears_of_those_below_it() -> None:
    def chain(last_ms: float) -> SparkJob:
        return SparkJob.of("c", [Replay((1000.0,), 1000.0), Replay((last_ms,), last_ms)], [(0, 1)])

    net = trained()
    found = []
    for last_ms in (1000.0, 9000.0):
        seen = observe(next(SparkKernel(1, [chain(last_ms)]).decisions()).graph())
        same = seen._replace(stages=np.where(np.arange(2)[:, None] == 0, 0.5, seen.stages).astype(np.float32))
        with torch.no_grad():
            found.append(net.embed(collate([same._replace(jobs=np.zeros_like(seen.jobs))]))[0])
    assert not torch.allclose(found[0], found[1])


def test_what_was_played_has_the_likelihood_that_was_noted() -> None:
    net = trained()
    (steps,) = play(net, [simulation()], np.random.default_rng(0))
    with torch.no_grad():
        log_p, spread = likelihood(net, [(steps, at) for at in range(len(steps.seen))])
    assert log_p.numpy() == pytest.approx(steps.log_p, abs=1e-4)
    assert (spread >= -1e-5).all()


def test_rewards_add_up_to_minus_all_completion_times() -> None:
    (steps,) = play(trained(), [simulation()], np.random.default_rng(0))
    assert -sum(steps.rewards) / 5 == pytest.approx(steps.mean_jct_s)
    assert len(steps.times_s) == len(steps.rewards) + 1


def test_played_side_by_side_or_alone_greedy_decides_the_same() -> None:
    net = trained()
    together = play(net, [simulation(seed) for seed in range(3)], None)
    alone = [simulation(seed).run(DecimaPolicy(net)).mean_jct_s for seed in range(3)]
    assert [steps.mean_jct_s for steps in together] == pytest.approx(alone)


def test_sampled_episodes_repeat_with_the_seed() -> None:
    net = trained()
    first, again = (simulation().run(DecimaPolicy(net, sampled=True)).mean_jct_s for _ in range(2))
    assert first == again


@pytest.mark.parametrize("action", ["executors", "limit"])
def test_watching_a_heuristic_gives_its_own_episode(action: Action) -> None:
    steps = watch(SPARK_POLICIES.create("srpt-cp[cap=3]"), simulation(), action)
    assert steps.mean_jct_s == simulation().run(SPARK_POLICIES.create("srpt-cp[cap=3]")).mean_jct_s


def test_imitation_comes_close_to_its_teacher() -> None:
    torch.manual_seed(0)
    net, rng = DecimaNet(), np.random.default_rng(0)
    lessons = [watch(SPARK_POLICIES.create("srpt-cp[cap=3]"), simulation(seed)) for seed in range(6)]
    assert imitate(net, lessons, rng, epochs=12, lr=5e-3, minibatch=64) < 0.5
    taught = np.mean([steps.mean_jct_s for steps in play(net, [simulation(100 + seed) for seed in range(4)], None)])
    teacher = np.mean(
        [watch(SPARK_POLICIES.create("srpt-cp[cap=3]"), simulation(100 + s)).mean_jct_s for s in range(4)]
    )
    assert taught < 1.1 * teacher


def test_a_limit_is_scored_for_the_job_whichever_stage_is_chosen() -> None:
    # two stages of one job: 3 and 8 tasks; 6 executors, of which the job has none: limits 1 to 6 for both
    job = SparkJob.of("j", [Replay((1000.0,) * 3, 1000.0), Replay((2000.0,) * 8, 2000.0)])
    graph = next(SparkKernel(6, [job]).decisions()).graph()
    assert observe(graph).most.tolist() == [3, 6]
    seen = observe(graph, "limit")
    assert seen.most.tolist() == [6, 6]
    net = trained("limit")
    embedded = net.embed(collate([seen]))
    first, second = (net.number_scores(embedded[[at]], options([seen], np.array([at]))) for at in (0, 1))
    assert torch.allclose(first, second)
    assert first.std() > 0


@pytest.mark.parametrize("action", ["executors", "limit"])
@pytest.mark.parametrize("loss", ["ppo", "reinforce"])
def test_learning_prefers_the_better_of_two_first_choices(loss: str, action: Action) -> None:
    """One executor, one long and one short job: the short one first is better."""
    jobs = [SparkJob.of(name, [Replay((ms,), ms)]) for name, ms in (("long", 50_000.0), ("short", 1_000.0))]
    torch.manual_seed(0)
    net, rng = DecimaNet(action=action), np.random.default_rng(0)
    learner = DecimaLearner(net, LearnConfig(loss=loss, lr=0.01, minibatch=64, target_kl=1.0))  # type: ignore[arg-type]
    for _ in range(15):
        played = play(net, [SparkKernel(1, jobs) for _ in range(8)], rng)
        told = learner.learn([played], 100.0, 1e9, 0.0, rng)
    assert np.isfinite(told["kl"])
    stages, _, _ = choose(net, [observe(next(SparkKernel(1, jobs).decisions()).graph(), action)], None)
    assert stages.tolist() == [1]


def test_replicas_that_did_the_same_have_no_advantage() -> None:
    (steps,) = play(trained(), [simulation()], None)
    assert np.concatenate(advantages([[steps, steps]], 100.0, 50.0)) == pytest.approx(0, abs=1e-6)


def test_advantage_is_higher_where_less_was_waited() -> None:
    def steps(cost: float) -> Steps:
        (found,) = play(DecimaNet(), [simulation(jobs=1)], None)
        found.rewards = [-cost] * len(found.rewards)
        return found

    good, bad = advantages([[steps(1.0), steps(2.0)]], 100.0, 1e9)
    assert good[0] > 0 > bad[0]


def test_differential_rewards_add_up_to_nothing() -> None:
    groups = [play(trained(), [simulation(seed), simulation(seed)], np.random.default_rng(seed)) for seed in (0, 1)]
    jobs = [-sum(steps.rewards) for group in groups for steps in group]
    span_s = sum(steps.times_s[-1] for group in groups for steps in group)
    first_s, first = groups[0][0].times_s[1] - groups[0][0].times_s[0], groups[0][0].rewards[0]
    differential(groups)
    assert sum(sum(steps.rewards) for group in groups for steps in group) == pytest.approx(0, abs=1e-6)
    assert groups[0][0].rewards[0] == pytest.approx(first + first_s * sum(jobs) / span_s)


def test_without_discount_what_comes_last_counts_in_full() -> None:
    def steps(last: float) -> Steps:
        (found,) = play(DecimaNet(), [simulation(jobs=1)], None)
        found.rewards = [0.0] * (len(found.rewards) - 1) + [last]
        return found

    short = advantages([[steps(1.0), steps(-1.0)]], 0.1, 1e9)[0][0]
    whole = advantages([[steps(1.0), steps(-1.0)]], 0.1, 1e9, discounted=False)[0][0]
    assert whole == pytest.approx(2) != short


@pytest.mark.parametrize("action", ["executors", "limit"])
def test_file_brings_back_the_same_decisions(tmp_path: Path, action: Action) -> None:
    net = trained(action)
    save_net(net, tmp_path / "net.pt", {"iteration": 3})
    assert load_net(tmp_path / "net.pt")[1] == {"iteration": 3}
    assert (
        simulation().run(load_decima(tmp_path / "net.pt")).mean_jct_s == simulation().run(DecimaPolicy(net)).mean_jct_s
    )


def test_damaged_or_missing_file_is_said_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "net.pt").write_bytes(b"nothing")
    for name in ("net.pt", "none.pt"):
        with pytest.raises(RunFolderError, match=name):
            load_net(tmp_path / name)
