"""Actor nets: all that an algorithm knows of a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.agents.ragged import ObservationBatch, Store, entropy, log_softmax, sample, segment_mean, stack
from dagsim.errors import ConfigError
from dagsim.systems.cluster.codecs.codec import Observation

__all__ = ["ActorNet", "Observations", "ScoreNet", "scoring"]


class Observations(Protocol):
    """Many observations, kept so that batches can be taken from them."""

    @property
    def is_free(self) -> np.ndarray:
        """(T,) bool: there is more than one choice."""
        ...

    def __len__(self) -> int: ...

    def batch(self, picked: np.ndarray) -> Any:
        """The observations numbered ``picked`` (B,) as a batch."""
        ...


class ActorNet(nn.Module):
    """Chooses for batches of observations. A choice is one number, or several, one per head."""

    settings: Any = None
    """What the net was built from, for its checkpoint."""

    def store(self, observations: Sequence[Any]) -> Observations:
        """Observations to take batches from."""
        raise NotImplementedError

    def stack(self, observations: Sequence[Any]) -> Any:
        """All of them as one batch."""
        raise NotImplementedError

    def act(
        self, batch: Any, rng: np.random.Generator | None, explore: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Choices (B,) or (B, heads) int64, and the log-probability of each (B,): the sum over the heads.

        Drawn by their probabilities; without ``rng``, or with ``explore``, the likeliest, but for that share of
        choices, which may be any. No gradients.
        """
        raise NotImplementedError

    def evaluate(self, batch: Any, choices: np.ndarray) -> tuple[Tensor, Tensor]:
        """The log-probability (B,) of the choices, and the entropy (B,): each the sum over the heads."""
        raise NotImplementedError

    def cross_entropy(self, batch: Any, choices: np.ndarray, smoothing: float = 0.0) -> Tensor:
        """(B,) minus the log-probability of the choices, ``smoothing`` of it spread over all that there were."""
        raise NotImplementedError


class ScoreNet(ActorNet):
    """A net whose ``forward(batch)`` scores every row: choices are drawn by the softmax of each observation's rows."""

    observation: type[Any] = Observation
    """The named tuple of what it reads: an ``Observation``, or one with further parts behind those."""

    def store(self, observations: Sequence[Any]) -> Store:
        return Store(observations)

    def stack(self, observations: Sequence[Any]) -> ObservationBatch:
        return stack(observations)

    def act(
        self, batch: ObservationBatch, rng: np.random.Generator | None, explore: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        with torch.inference_mode():
            log_p = log_softmax(self(batch), batch.segment, batch.size).numpy()
        first = batch.first.numpy()
        chosen = sample(log_p, first, None if explore is not None else rng)
        if explore is not None and rng is not None:
            anything = sample(np.zeros(len(log_p)), first, rng)
            chosen = np.where(rng.random(len(chosen)) < explore, anything, chosen)
        return chosen, log_p[first + chosen]

    def evaluate(self, batch: ObservationBatch, choices: np.ndarray) -> tuple[Tensor, Tensor]:
        log_p = log_softmax(self(batch), batch.segment, batch.size)
        return log_p[batch.first + torch.from_numpy(choices)], entropy(log_p, batch.segment, batch.size)

    def cross_entropy(self, batch: ObservationBatch, choices: np.ndarray, smoothing: float = 0.0) -> Tensor:
        log_p = log_softmax(self(batch), batch.segment, batch.size)
        own = log_p[batch.first + torch.from_numpy(choices)]
        return (
            -own
            if not smoothing
            else -((1 - smoothing) * own + smoothing * segment_mean(log_p, batch.segment, batch.size))
        )


def scoring(net: ActorNet, algorithm: str) -> ScoreNet:
    """The net, if it scores every choice.

    Raises:
        ConfigError: It does not, so that no values can be learned for its choices.
    """
    if not isinstance(net, ScoreNet):
        raise ConfigError(f"{algorithm} needs a net that scores every choice, which {type(net).__name__} does not")
    return net
