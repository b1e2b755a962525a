"""Behaviour cloning: a net learns to imitate a heuristic before its training."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import nn

from dagsim.agents.config import WarmStart
from dagsim.agents.nets.actor import ActorNet
from dagsim.envs.episode import EpisodeFactory
from dagsim.systems.seam import Conversation

__all__ = ["clone", "imitation"]


def imitation(factory: EpisodeFactory, heuristic: str, seeds: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """Collect observations of the heuristic's episodes, and its choices.

    Decisions without a matching choice are left out, and so are observations with a single choice
    (``is_forced``).
    """
    observations: list[Any] = []
    choices: list[Any] = []
    for seed in seeds:
        codec, conversation = factory.codec.build(), Conversation[Any, Any](factory.kernel(seed))
        decide = factory.scenario.policies.create(heuristic, seed=seed).decide
        while (view := conversation.view) is not None:
            observation = codec.encode(view)
            # One at a time: a policy sees the effect of each decision before it makes the next.
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
    """Fit ``net`` to the choices by smoothed cross-entropy. Returns the last epoch's mean loss in
    nats.
    """
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
            loss = net.cross_entropy(store.batch(minibatch), targets[minibatch], how.smoothing).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if how.max_grad is not None:
                nn.utils.clip_grad_norm_(net.parameters(), how.max_grad)
            optimizer.step()
            losses.append(float(loss.detach()))
        mean = float(np.mean(losses))
    return mean
