"""Each algorithm learns a tiny problem whose optimum is known: which job gets the fast GPU, and when to wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from families.learning.two_jobs import begun, best_jct_s, two_jobs

from dagsim.errors import RunFolderError
from dagsim.families.learning.episode import EpisodeFactory
from dagsim.families.learning.nets import NETS
from dagsim.families.learning.nets.actor import ActorNet
from dagsim.families.learning.off_policy import D3qnConfig, RainbowConfig, SacConfig
from dagsim.families.learning.off_policy.replay import ReplayArchive, ReplayBuffer
from dagsim.families.learning.on_policy import PpoConfig, ReinforceConfig
from dagsim.families.learning.settings import AlgorithmSettings
from dagsim.families.learning.training.learner import clone, imitation
from dagsim.families.learning.training.rollouts import evaluate_greedy, play
from dagsim.families.learning.training.train_config import WarmStart
from dagsim.metrics import summarize
from dagsim.systems.cluster.policies import POLICIES

JUDGED = range(1000, 1016)


def jct_s(factory: EpisodeFactory, net: ActorNet) -> float:
    return float(np.mean([summarize(done).jct_s.mean for done in evaluate_greedy(net, factory, JUDGED)]))


BEST_S = float(np.mean([best_jct_s(seed) for seed in JUDGED]))


def test_waiting_is_most_of_it_but_not_all() -> None:
    def mean(policy: str) -> float:
        done = [summarize(two_jobs(seed).run(POLICIES.create(policy))).jct_s.mean for seed in JUDGED]
        return float(np.mean(done))

    assert mean("sjf") > 1.5 * BEST_S
    assert BEST_S < mean("eft-wait") < 1.1 * BEST_S


def test_the_steps_of_an_episode_hold_the_mean_completion_time_of_its_jobs() -> None:
    learner, factory = begun(PpoConfig(sequences=1, replicas=2))
    [steps] = play(learner.net, [factory.episode(1000)], None)
    [schedule] = evaluate_greedy(learner.net, factory, [1000])
    assert steps.jct_s == summarize(schedule).jct_s.mean


@pytest.mark.parametrize(
    ("algorithm", "iterations"),
    [
        (PpoConfig(sequences=8, replicas=4, lr=5e-3, minibatch=32, discount_jcts=(100.0, 100.0)), 40),
        (
            PpoConfig(
                advantage="critic", sequences=32, replicas=1, lr=5e-3, minibatch=32, discount_jcts=(100.0, 100.0)
            ),
            40,
        ),
        (ReinforceConfig(sequences=8, replicas=4, lr=2e-2, discount_jcts=(100.0, 100.0)), 80),
        (D3qnConfig(episodes=8, lr=3e-3, updates=20, minibatch=64, n_step=3, discount_jcts=(100.0, 100.0)), 40),
        (RainbowConfig(episodes=8, lr=3e-3, updates=20, minibatch=64, n_step=3, discount_jcts=(100.0, 100.0)), 40),
        (SacConfig(episodes=8, lr=5e-3, updates=20, minibatch=64, n_step=3, discount_jcts=(100.0, 100.0)), 40),
    ],
    ids=["ppo", "ppo with a critic", "reinforce", "d3qn", "rainbow", "sac"],
)
def test_the_optimum_is_learned(algorithm: AlgorithmSettings, iterations: int) -> None:
    learns, factory = begun(algorithm)
    means_s = []
    for iteration in range(iterations):
        learns.iterate(iteration, iteration / iterations)
        if iteration % 10 == 9:
            means_s.append(jct_s(factory, learns.net))
            if means_s[-2:] == pytest.approx([BEST_S, BEST_S]):  # it is not lost again at once
                break
    assert means_s[-1] == pytest.approx(BEST_S)


@pytest.mark.parametrize("kind", ["attention", "graph", "mlp", "linear"])
def test_every_network_learns_something(kind: str) -> None:
    learns, factory = begun(
        PpoConfig(sequences=8, replicas=4, lr=1e-2, minibatch=32, discount_jcts=(100.0, 100.0)),
        NETS.create(f"{kind}[hidden=16,slots=6]" if kind == "mlp" else f"{kind}[hidden=16]"),
    )
    before = jct_s(factory, learns.net)
    for iteration in range(30):
        learns.iterate(iteration, iteration / 30)
        if iteration % 5 == 4 and jct_s(factory, learns.net) < 0.8 * before:
            return
    pytest.fail("30 iterations changed little")


OFF_POLICY: dict[str, Any] = {"episodes": 4, "updates": 3, "minibatch": 16, "n_step": 2, "replay": 20}


@pytest.mark.parametrize(
    "algorithm",
    [
        PpoConfig(sequences=2, replicas=2),
        PpoConfig(advantage="critic", sequences=4, replicas=1),
        ReinforceConfig(sequences=2, replicas=2),
        D3qnConfig(**OFF_POLICY),
        RainbowConfig(**OFF_POLICY),
        SacConfig(**OFF_POLICY),
    ],
    ids=["ppo", "ppo with a critic", "reinforce", "d3qn", "rainbow", "sac"],
)
def test_a_resumed_learner_goes_on_bit_for_bit(algorithm: AlgorithmSettings, tmp_path: Path) -> None:
    # Twenty transitions are kept and each iteration brings some ten: what is drawn after the stop came before it, too.
    whole, archive = begun(algorithm)[0], ReplayArchive(tmp_path)
    saved: dict[str, Any] = {}
    for iteration in range(6):
        whole.iterate(iteration, iteration / 6)
        if replay := getattr(whole, "replay", None):
            archive.write(replay)
        if iteration == 3:
            saved = deepcopy({"learner": whole.state(), "replay": replay.state() if replay else None})
        elif iteration < 3 and replay:
            archive.prune(replay)
    resumed, _ = begun(algorithm)
    resumed.load(saved["learner"])
    if saved["replay"]:
        assert len(list(tmp_path.iterdir())) > 3
        ReplayArchive(tmp_path).read(resumed.replay, saved["replay"])  # type: ignore[attr-defined]
    for iteration in range(4, 6):
        resumed.iterate(iteration, iteration / 6)
    assert fingerprint(whole.state()) == fingerprint(resumed.state())
    if replay:
        assert fingerprint(replay.since(0)) == fingerprint(resumed.replay.since(0))  # type: ignore[attr-defined]


def test_a_replay_of_nothing_is_read_and_one_that_is_gone_is_an_error(tmp_path: Path) -> None:
    # Killed before its first iteration, a training has a checkpoint and no files beside it.
    replay = ReplayBuffer(9)
    ReplayArchive(tmp_path / "replay").read(replay, ReplayBuffer(9).state())
    assert replay.span == (0, 0)
    with pytest.raises(RunFolderError, match="the replay buffer is damaged"):
        ReplayArchive(tmp_path / "replay").read(replay, {"span": [0, 4], "weights": torch.ones(4)})


def test_ppo_clips_where_it_is_told_to() -> None:
    # In its epochs the policy moves some percent: past a limit of a millionth nearly always, past 0.9 never.
    settings: dict[str, Any] = {"sequences": 4, "replicas": 4, "minibatch": 8, "target_kl": 10.0}
    near, far = (begun(PpoConfig(clip=clip, **settings))[0].iterate(0, 0.0)["clipped"] for clip in (1e-6, 0.9))
    assert near > 0.3
    assert far == 0


@pytest.mark.parametrize(
    ("algorithm", "lr"),
    [
        (ReinforceConfig(sequences=2, replicas=2, lr=1e-2, min_lr=1e-3), 1e-2 * 0.25 + 1e-3),
        (SacConfig(**OFF_POLICY, lr=1e-2), 1e-2 * 0.325),
    ],
    ids=["reinforce", "sac"],
)
def test_the_learning_rate_falls_as_training_goes_on(algorithm: AlgorithmSettings, lr: float) -> None:
    assert begun(algorithm)[0].iterate(3, 0.75)["lr"] == pytest.approx(lr)


def test_reinforce_takes_one_step_on_the_whole_batch() -> None:
    learns, _ = begun(ReinforceConfig(sequences=2, replicas=2))
    before = deepcopy(learns.net.state_dict())
    assert learns.iterate(0, 0.0)["entropy"] > 0
    assert any(not torch.equal(before[name], value) for name, value in learns.net.state_dict().items())


@pytest.mark.parametrize("algorithm", [D3qnConfig(**OFF_POLICY), RainbowConfig(**OFF_POLICY)], ids=["d3qn", "rainbow"])
def test_what_follows_is_valued_by_the_target_network(algorithm: AlgorithmSettings) -> None:
    learns: Any = begun(algorithm)[0]
    learns.iterate(0, 0.0)
    drawn = learns.replay.draw(16, np.random.default_rng(0))
    drawn = drawn._replace(discounts=torch.full_like(drawn.discounts, 0.5))  # as if no episode had ended
    before, again = (learns._loss(drawn, np.random.default_rng(1))[1] for _ in range(2))
    with torch.no_grad():
        for weights in learns.target.parameters():
            weights.zero_()
    after = learns._loss(drawn, np.random.default_rng(1))[1]
    assert torch.equal(before, again)
    assert not torch.allclose(before, after)


def fingerprint(state: Any) -> Any:
    """The state with the bytes of its tensors, to compare."""
    if isinstance(state, Mapping):
        return {name: fingerprint(value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return [fingerprint(value) for value in state]
    return state.numpy().tobytes() if isinstance(state, torch.Tensor) else state


def test_a_replay_with_a_gap_is_refused(tmp_path: Path) -> None:
    learns, archive = begun(D3qnConfig(**OFF_POLICY | {"replay": 1000}))[0], ReplayArchive(tmp_path)
    for iteration in range(3):
        learns.iterate(iteration, 0.0)
        archive.write(learns.replay)  # type: ignore[attr-defined]
    state = learns.replay.state()  # type: ignore[attr-defined]
    _, second, third = sorted(tmp_path.iterdir())
    damaged = bytearray(third.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    third.write_bytes(damaged)
    with pytest.raises(RunFolderError, match=third.name):
        ReplayArchive(tmp_path).read(ReplayBuffer(1000), state)
    second.unlink()
    with pytest.raises(RunFolderError, match="the replay buffer is damaged"):
        ReplayArchive(tmp_path).read(ReplayBuffer(1000), state)


def test_a_clone_chooses_as_the_heuristic_does() -> None:
    learns, factory = begun(PpoConfig())
    observations, choices = imitation(factory, "eft-wait", range(200))
    clone(learns.net, observations, choices, WarmStart("eft-wait", epochs=40), np.random.default_rng([1, 3]))
    observations, choices = imitation(factory, "eft-wait", range(2000, 2040))
    actions, _ = learns.net.act(learns.net.stack(observations), None)
    agree = actions == np.array(choices)
    assert len(choices) > 40
    assert agree.mean() > 0.85


def test_files_of_transitions_that_were_all_dropped_are_deleted(tmp_path: Path) -> None:
    archive = ReplayArchive(tmp_path)
    for name in ("000000000.pt", "000000010.pt", "000000025.pt"):
        (tmp_path / name).touch()
    for gone, left in ((9, 3), (10, 2), (24, 2), (25, 1), (99, 1)):
        archive.prune(SimpleNamespace(span=(gone, 100)))  # type: ignore[arg-type]
        assert len(list(tmp_path.iterdir())) == left, gone
