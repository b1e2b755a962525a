"""Networks learn on another device with the same code. torch's device ``meta`` stands for a GPU here: it computes
nothing, but refuses operands that were left on the CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dagsim.errors import ConfigError
from dagsim.families.learning.codecs.codec import CandidatesConfig, Observation
from dagsim.families.learning.devices import device_named, device_of, on_cpu, on_device
from dagsim.families.learning.nets import NETS
from dagsim.families.learning.nets.actor import ObservationBatch, ObservationStore, chosen_rows
from dagsim.families.learning.nets.row_nets import Critic, Sizes
from dagsim.families.learning.off_policy.q_learning import Duelling
from dagsim.families.learning.off_policy.rainbow import RainbowNetConfig
from dagsim.families.learning.off_policy.sac import actor_loss
from dagsim.families.learning.on_policy.learners import policy_gradient_loss

ELSEWHERE = torch.device("meta")
CHOICES = np.array([0, 3, 1])


def batch() -> ObservationBatch:
    """Three observations with 1, 4 and 2 choices."""
    rng, features = np.random.default_rng(0), CandidatesConfig().features
    tokens, context, gpus = (len(features[name]) for name in ("tokens", "context", "gpus"))
    shapes = [((rows, tokens), (context,), (2, gpus)) for rows in (1, 4, 2)]
    seen = [Observation(*(rng.random(shape, np.float32) for shape in parts)) for parts in shapes]
    return ObservationStore(seen).batch(np.arange(3))


@pytest.fixture(autouse=True)
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``bincount`` work on ``meta``, for which torch lacks it."""
    here = torch.bincount

    def count(segment: torch.Tensor, minlength: int) -> torch.Tensor:
        return segment.new_zeros(minlength) if segment.device == ELSEWHERE else here(segment, minlength=minlength)

    monkeypatch.setattr(torch, "bincount", count)


def elsewhere(net: Any) -> Any:
    moved_net = net.to(ELSEWHERE)
    assert device_of(moved_net) == ELSEWHERE
    return moved_net


@pytest.mark.parametrize("name", ["scorer", "attention", "graph", "linear"])
def test_a_net_learns_with_all_its_operands_on_its_device(name: str) -> None:
    net, there = elsewhere(NETS.create(name).build(CandidatesConfig())), on_device(batch(), ELSEWHERE)
    log_p, entropy = net.evaluate(there, CHOICES)
    loss = policy_gradient_loss(log_p, entropy, on_device(torch.ones(3), ELSEWHERE), 0.01)
    (loss + net.cross_entropy(there, CHOICES, 0.1).mean()).backward()
    assert {weight.grad.device for weight in net.parameters()} == {ELSEWHERE}


def test_critics_and_the_nets_of_q_learning_learn_on_their_device() -> None:
    there = on_device(batch(), ELSEWHERE)
    actor = elsewhere(NETS.create("scorer").build(CandidatesConfig()))
    q = Duelling(actor, elsewhere(Critic(Sizes.of(CandidatesConfig(), "a critic"), 8)))(there)
    assert q[chosen_rows(there, CHOICES)].device == ELSEWHERE
    assert actor_loss(actor(there), there, q.detach(), 0.1)[0].device == ELSEWHERE
    rainbow = elsewhere(RainbowNetConfig(8, 5).build(CandidatesConfig()))
    rainbow.draw_noise(np.random.default_rng(0))
    assert rainbow(there).device == ELSEWHERE


def test_operands_left_on_the_cpu_are_noticed() -> None:
    net = elsewhere(NETS.create("scorer").build(CandidatesConfig()))
    with pytest.raises(RuntimeError, match="device"):
        net(batch())


def test_a_net_that_was_moved_scores_with_the_weights_it_has_now() -> None:
    net = NETS.create("scorer").build(CandidatesConfig()).to(torch.float64).to(torch.float32)
    with torch.no_grad():
        for weight in net.parameters():
            weight.fill_(0.01)
    assert float(net(batch())[0].detach()) > 0


def test_on_the_cpu_nothing_is_copied() -> None:
    net, here = NETS.create("scorer").build(CandidatesConfig()), batch()
    assert on_cpu(net) is net
    assert on_device(here, torch.device("cpu")) is here


@pytest.mark.skipif(torch.cuda.is_available() or torch.backends.mps.is_available(), reason="there is a GPU")
def test_a_device_that_is_missing_is_refused_before_a_run_folder_is_made(tmp_path: Path) -> None:
    assert device_named("auto").type == "cpu"
    argv = [sys.executable, "-m", "dagsim", "train", "--device", "cuda", "--out", str(tmp_path / "runs")]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "--device cuda: torch finds no such device on this machine; use cpu or auto" in ended.stderr
    assert not (tmp_path / "runs").exists()


def test_a_name_that_is_no_device_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected one of cpu, cuda, mps, auto, got 'tpu'"):
        device_named("tpu")
