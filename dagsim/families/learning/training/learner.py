"""Learners. A learner has a network and roll-outs, and learns one iteration at a time. This module
also contains behaviour cloning, which trains a network to imitate a heuristic before
the training itself, and the writer of TensorBoard events (if TensorBoard is installed).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from dagsim.errors import ConfigError
from dagsim.experiment.simulate import make_policy
from dagsim.families.learning.devices import CPU, device_of, on_cpu, on_device
from dagsim.families.learning.episode import EpisodeFactory
from dagsim.families.learning.nets.actor import ActorNet, ScoreNet
from dagsim.families.learning.training.rollouts import EpisodeSteps, RngPurpose, Rollouts
from dagsim.families.learning.training.train_config import TrainConfig, WarmStart
from dagsim.systems.seam import Conversation


@dataclass(frozen=True, slots=True)
class LearnerContext:
    """Everything that is needed to build a learner."""

    config: TrainConfig
    rollouts: Rollouts
    seed: int
    jct_s: float
    """Mean completion time under the reference heuristic: the unit of time constants."""
    seeds: Sequence[int]
    """Seeds of the job sequences to learn from. Each seed is used once; after the last one, the
    first is used again."""
    jobs: int | None = None
    """Number of jobs in a whole episode, if episodes grow up to it (``TrainConfig.first_jobs``)."""
    varied: bool = False
    """True if every job sequence has its own cluster and its own unit of time. The unit is then the
    mean completion time on that sequence instead of ``jct_s``, and all sequences have the same
    weight."""
    device: torch.device = CPU
    """Where the networks learn (``devices``)."""

    def job_seeds(self, iteration: int, count: int) -> list[int]:
        """Return the seeds of the ``count`` job sequences used in an iteration."""
        begin = iteration * count
        return [self.seeds[(begin + place) % len(self.seeds)] for place in range(count)]

    def jobs_at(self, progress: float) -> int | None:
        """Return the number of jobs per episode at ``progress`` (0 to 1), or ``None`` for all jobs.
        It increases during the first half of training."""
        first, last = self.config.first_jobs, self.jobs
        if first is None or last is None:
            return None
        return round(min(last, first + (last - first) * 2 * progress))

    def rng_key(self, iteration: int) -> tuple[int, int]:
        """Return the seed of the random numbers with which choices are drawn in an iteration."""
        return self.seed, iteration

    def rng(self, iteration: int, purpose: RngPurpose) -> np.random.Generator:
        """Return a random generator for one purpose in an iteration. It does not depend on what was
        drawn before."""
        return np.random.default_rng([self.seed, iteration, purpose])

    def time_constant_s(self, discount_jcts: tuple[float, float], progress: float) -> float:
        """Return the time constant of the discount in seconds, at ``progress`` (0 to 1) of
        training."""
        absolute = self.config.time_constant_s
        first, last = discount_jcts if absolute is None else absolute
        unit_s = self.jct_s if absolute is None else 1.0
        return float(unit_s * first * (last / first) ** progress)

    def net(self) -> ActorNet:
        """Build a new network. Its weights depend on the seed."""
        torch.manual_seed(self.seed)
        net = self.config.net.build(self.config.codec)
        net.settings = self.config.net
        if self.device.type != "cpu" and not (isinstance(net, ScoreNet) and type(net).stack is ScoreNet.stack):
            raise ConfigError(f"--device: {type(net).__name__} learns only on the CPU, unlike nets over rows")
        return net.to(self.device)

    def play(self, net: ActorNet, seeds: Sequence[int], rng_key: Sequence[int], **options: Any) -> list[EpisodeSteps]:
        """Run episodes like ``Rollouts.play``. They always run on the CPU, even if the network
        learns on another device."""
        return self.rollouts.play(on_cpu(net), seeds, rng_key, **options)

    def critic(self) -> torch.nn.Module:
        """Build a network that estimates the value of an observation. It is as wide as the network
        of the policy.

        Raises:
            ConfigError: The codec's observations do not have the parts that the network reads.
        """
        from dagsim.families.learning.nets.row_nets import Critic, Sizes

        return Critic(Sizes.of(self.config.codec, "a critic"), getattr(self.config.net, "hidden", 64)).to(self.device)


def update_ema(mean: ActorNet, net: ActorNet, decay: float) -> None:
    """Move the weights of ``mean`` towards those of ``net``. Over many calls, ``mean`` becomes an
    average of approximately the last 1 / (1 - ``decay``) networks, so it fluctuates less."""
    with torch.no_grad():
        for old, new in zip(mean.parameters(), net.parameters(), strict=True):
            old.lerp_(new, 1 - decay)


class Learner(Protocol):
    """An algorithm during a training run. If it has a ``ReplayBuffer`` named ``replay``, the buffer
    is saved separately from the state."""

    @property
    def net(self) -> ActorNet:
        """Return the network that makes choices. Validation uses the network's most likely
        choices."""

    def iterate(self, iteration: int, progress: float) -> dict[str, float]:
        """Run one iteration: simulate episodes, learn from them, and return metrics for the log.
        ``progress`` increases from 0 to 1 during training."""

    def state(self) -> dict[str, Any]:
        """Return the state needed to resume a training run, as tensors and plain values."""

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved ``state``."""


def imitation(factory: EpisodeFactory, heuristic: str, seeds: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """Run episodes of the heuristic or agent. Return the observations, and the choice that it made
    in each.

    Decisions that match no choice are left out, and so are observations with a single choice
    (``is_forced``).
    """
    observations: list[Any] = []
    choices: list[Any] = []
    for seed in seeds:
        codec, conversation = factory.codec.build(), Conversation[Any, Any](factory.kernel(seed))
        decide = make_policy(factory.scenario, heuristic, seed).decide
        while (view := conversation.view) is not None:
            observation = codec.encode(view)
            # Take one decision at a time, so that the policy sees its effect before it decides
            # again.
            decisions = list(islice(decide(view), 1))
            if observation is not None and not getattr(observation, "is_forced", False):
                choice = codec.choice_of(decisions)
                if choice is not None:
                    observations.append(observation)
                    choices.append(choice)
            conversation.answer(decisions)
    return observations, choices


def clone(
    net: ActorNet, observations: Sequence[Any], choices: Sequence[Any], how: WarmStart, rng: np.random.Generator
) -> float:
    """Fit ``net`` to the choices by smoothed cross-entropy. Return the mean loss of the last epoch,
    in nats.

    Raises:
        ConfigError: There is nothing to fit.
    """
    if not observations:
        raise ConfigError("train.warm_start: train.codec offers none of the decisions that the warm-start policy makes")
    store, targets = net.store(observations), np.array(choices, np.int64)
    optimizer = torch.optim.Adam(net.parameters(), how.lr)
    mean = float("nan")
    for epoch in range(how.epochs):
        if how.final_lr is not None:
            for group in optimizer.param_groups:
                group["lr"] = how.lr * (1 - epoch / how.epochs) + how.final_lr
        losses = []
        order = rng.permutation(len(store))
        for begin in range(0, len(order), how.minibatch):
            minibatch = order[begin : begin + how.minibatch]
            batch = on_device(store.batch(minibatch), device_of(net))
            loss = net.cross_entropy(batch, targets[minibatch], how.smoothing).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if how.max_grad is not None:
                nn.utils.clip_grad_norm_(net.parameters(), how.max_grad)
            optimizer.step()
            losses.append(float(loss.detach()))
        mean = float(np.mean(losses))
    return mean


def writer(folder: Path) -> Any:
    """Open a writer of TensorBoard events in ``folder``. Return ``None`` if TensorBoard is not
    installed (``pip install -e ".[tensorboard]"``)."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder))
