"""Behaviour cloning: a network first learns to choose as a heuristic does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from dagsim.agents.config import TrainConfig
from dagsim.agents.field import Ground
from dagsim.agents.ragged import Store, log_softmax, segment_sum
from dagsim.systems.cluster.codecs.candidates import Candidates
from dagsim.systems.cluster.codecs.codec import Observation
from dagsim.systems.cluster.policies import POLICIES

__all__ = ["clone", "imitation"]

_EPISODES = 60
_SMOOTHING = 0.2
"""Probability spread over all choices, so that the network stays ready to learn otherwise."""


def imitation(ground: Ground, heuristic: str, seeds: Sequence[int]) -> tuple[list[Observation], list[int]]:
    """What the heuristic was shown and which row it chose; choices that are no candidates are left out."""
    observations: list[Observation] = []
    choices: list[int] = []
    for seed in seeds:
        simulation, codec = ground.maker(seed), Candidates(ground.codec)
        decide = POLICIES.create(heuristic, seed=seed).decide
        conversation = simulation.decisions()
        try:
            view = next(conversation)
            while True:
                observation = codec.encode(view)
                decision = next(iter(decide(view)), None)  # one by one: a policy sees each carried out before the next
                if observation is not None:
                    choice = codec.choice_of(decision)
                    if choice is not None and len(observation.tokens) > 1:
                        observations.append(observation)
                        choices.append(choice)
                view = conversation.send(() if decision is None else (decision,))
        except StopIteration:
            pass
    return observations, choices


def clone(net: nn.Module, train: TrainConfig, ground: Ground, seeds: Sequence[int], seed: int) -> float:
    """Fit ``net`` to the heuristic's choices on the first of ``seeds`` by smoothed cross-entropy; returns the last mean
    loss in nats."""
    assert train.warm_start is not None
    observations, choices = imitation(ground, train.warm_start, seeds[:_EPISODES])
    store, chosen = Store(observations), np.array(choices, np.int64)
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    rng = np.random.default_rng([seed, 3])
    mean = float("nan")
    for _ in range(train.warm_start_epochs):
        losses = []
        order = rng.permutation(len(store))
        for first in range(0, len(order), 512):
            picked = order[first : first + 512]
            batch = store.batch(picked)
            log_p = log_softmax(net(batch), batch.segment, batch.size)
            own = log_p[batch.first + torch.from_numpy(chosen[picked])]
            lengths = torch.from_numpy(store.lengths[picked])
            spread = segment_sum(log_p, batch.segment, batch.size) / lengths
            loss = -((1 - _SMOOTHING) * own + _SMOOTHING * spread).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(float(loss.detach()))
        mean = float(np.mean(losses))
    return mean
