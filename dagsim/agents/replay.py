"""Replay for learning off-policy: n-step transitions of ragged observations, drawn by priority."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dagsim.agents.nets.actor import Observations
from dagsim.agents.ragged import ObservationBatch, Store
from dagsim.agents.rollouts import EpisodeSteps

__all__ = ["Drawn", "ReplayBuffer"]


class Drawn(NamedTuple):
    """A minibatch of transitions."""

    batch: ObservationBatch
    """Where the choice was made."""
    choices: Tensor  # (B,) int64
    rewards: Tensor  # (B,) float32: discounted over the n steps
    following: ObservationBatch
    """Where it led; of an episode that ended, any observation."""
    discounts: Tensor  # (B,) float32: of what follows; 0 where the episode ended
    weights: Tensor  # (B,) float32: importance weights, at most 1
    places: np.ndarray  # (B,) int64: for ``update``


class ReplayBuffer:
    """The last ``capacity`` transitions. Drawn with probability proportional to priority ** ``priority`` (Schaul et al.
    2016), new ones with the largest priority seen; ``priority`` 0 draws uniformly. O(capacity) per draw, by a
    cumulative sum in NumPy. ``store`` makes batches of observations as the net that learns reads them."""

    def __init__(
        self,
        capacity: int,
        priority: float = 0.0,
        importance: float = 0.0,
        store: Callable[[Sequence[Any]], Observations] = Store,
    ) -> None:
        self._capacity = capacity
        self._store = store
        self._priority, self._importance = priority, importance
        self._from: list[Any] = []
        self._to: list[Any] = []
        self._choices, self._rewards, self._discounts = np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
        self._weights = np.zeros(0)

    def __len__(self) -> int:
        return len(self._from)

    def add(self, steps: EpisodeSteps, discounts: np.ndarray, n_step: int, scale: float) -> None:
        """Take in an episode; rewards are divided by ``scale``, ``discounts`` (T,) are as ``returns.discounts`` gives
        them."""
        count = len(steps.choices)
        rewards = np.zeros(count)
        along = np.ones(count)
        for ahead in range(n_step):
            there = np.arange(count - ahead)
            rewards[there] += along[there] * np.asarray(steps.rewards)[there + ahead]
            along[there] *= discounts[there + ahead]
            along[count - ahead :] = 0.0
        ends = np.minimum(np.arange(count) + n_step, count - 1)
        along[np.arange(count) + n_step >= count] = 0.0
        self._from += steps.observations
        self._to += [steps.observations[end] for end in ends]
        self._choices = np.append(self._choices, steps.choices)
        self._rewards = np.append(self._rewards, rewards / scale)
        self._discounts = np.append(self._discounts, along)
        most = self._weights.max() if len(self._weights) else 1.0
        self._weights = np.append(self._weights, np.full(count, most))
        if (over := len(self._from) - self._capacity) > 0:
            del self._from[:over], self._to[:over]
            self._choices, self._rewards = self._choices[over:], self._rewards[over:]
            self._discounts, self._weights = self._discounts[over:], self._weights[over:]

    def draw(self, count: int, rng: np.random.Generator) -> Drawn:
        """``count`` transitions, with replacement."""
        chances = np.cumsum(self._weights)
        places = np.searchsorted(chances, rng.random(count) * chances[-1], side="right")
        share = self._weights[places] / chances[-1]
        weights = (share * len(self)) ** -self._importance
        return Drawn(
            self._store([self._from[place] for place in places]).batch(np.arange(count)),
            torch.from_numpy(self._choices[places]),
            torch.from_numpy(self._rewards[places].astype(np.float32)),
            self._store([self._to[place] for place in places]).batch(np.arange(count)),
            torch.from_numpy(self._discounts[places].astype(np.float32)),
            torch.from_numpy((weights / weights.max()).astype(np.float32)),
            places,
        )

    def update(self, places: np.ndarray, errors: np.ndarray) -> None:
        """Set the priorities of drawn transitions by their absolute errors (B,)."""
        if self._priority:
            self._weights[places] = (np.abs(errors) + 1e-3) ** self._priority
