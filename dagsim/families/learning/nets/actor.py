"""The interface between algorithms and actor networks, and batches of observations of different
lengths.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.errors import ConfigError
from dagsim.families.learning.codecs.codec import Observation
from dagsim.families.learning.devices import on_device


class ObservationBatch(NamedTuple):
    """``B`` observations with ``N`` rows in total."""

    tokens: Tensor  # shape (N, F), float32
    context: Tensor  # shape (B, C), float32
    gpus: Tensor  # shape (B, g, D), float32
    segment: Tensor  # shape (N,), int64: the observation to which a row belongs
    first: Tensor  # shape (B,), int64: the first row of each observation

    @property
    def size(self) -> int:
        """Return the number of observations in the batch."""
        return len(self.context)


class ObservationStore:
    """A sequence of observations, stored in concatenated arrays, from which batches can be
    taken."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        self.lengths = np.array([len(observation.tokens) for observation in observations], np.int64)
        self._offsets = np.concatenate([[0], np.cumsum(self.lengths)])
        self._tokens = np.concatenate([observation.tokens for observation in observations])
        self._context = np.array([observation.context for observation in observations])
        self._gpus = np.array([observation.gpus for observation in observations])

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def is_free(self) -> np.ndarray:
        """Return a mask of the observations with more than one choice, (T,) bool."""
        free: np.ndarray = self.lengths > 1
        return free

    def batch(self, picked: np.ndarray) -> ObservationBatch:
        """Return a batch with the observations at the indices ``picked`` (int64), in that order."""
        lengths = self.lengths[picked]
        first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        rows = np.arange(lengths.sum()) - np.repeat(first - self._offsets[picked], lengths)
        return ObservationBatch(
            torch.from_numpy(self._tokens[rows]),
            torch.from_numpy(self._context[picked]),
            torch.from_numpy(self._gpus[picked]),
            torch.from_numpy(np.repeat(np.arange(len(picked)), lengths)),
            torch.from_numpy(first),
        )


def stack(observations: Sequence[Observation]) -> ObservationBatch:
    """Combine all observations into one batch."""
    tokens, context, gpus = zip(*[observation[:3] for observation in observations], strict=True)
    lengths = np.array([len(rows) for rows in tokens])
    return ObservationBatch(
        torch.from_numpy(np.concatenate(tokens)),
        torch.from_numpy(np.array(context)),
        torch.from_numpy(np.array(gpus)),
        torch.from_numpy(np.arange(len(lengths)).repeat(lengths)),
        torch.from_numpy(lengths.cumsum() - lengths),
    )


def chosen_rows(batch: ObservationBatch, choices: np.ndarray) -> Tensor:
    """Return the number of the row that was chosen in each observation. Shape (B,), int64. The
    result is on the device of the batch.
    """
    return batch.first + on_device(torch.from_numpy(choices), batch.first.device)


def segment_sum(values: Tensor, segment: Tensor, count: int) -> Tensor:
    """Return the sum of ``values`` (N, ...) over each segment. Shape (count, ...)."""
    none = torch.zeros(count, *values.shape[1:], dtype=values.dtype, device=values.device)
    return none.index_add(0, segment, values)


def segment_mean(values: Tensor, segment: Tensor, count: int) -> Tensor:
    """Return the mean of ``values`` (N, ...) over each segment. Shape (count, ...)."""
    lengths = torch.bincount(segment, minlength=count)
    return segment_sum(values, segment, count) / lengths.reshape(-1, *[1] * (values.dim() - 1))


def segment_max(values: Tensor, segment: Tensor, count: int) -> Tensor:
    """Return the maximum of ``values`` (N,) in each segment. Shape (count,)."""
    lowest = torch.full((count,), -torch.inf, device=values.device)
    return lowest.scatter_reduce(0, segment, values, "amax")


def log_softmax(scores: Tensor, segment: Tensor, count: int) -> Tensor:
    """Return the log-probability of each row within its observation. Shape (N,)."""
    maxima = segment_max(scores.detach(), segment, count)
    above = scores - maxima.index_select(0, segment)
    return above - torch.log(segment_sum(torch.exp(above), segment, count)).index_select(0, segment)


def entropy(log_p: Tensor, segment: Tensor, count: int) -> Tensor:
    """Return the entropy of each observation's choice, in nats. Shape (count,). Rows with
    probability 0 add nothing.
    """
    p = torch.exp(log_p)
    return -segment_sum(torch.where(p > 0, p * log_p, 0.0), segment, count)


def sample(log_p: np.ndarray, first: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
    """Return the index of the chosen row within each observation. Shape (B,). With ``rng``, the row
    is sampled, as the maximum of log-probability + Gumbel noise. Without it, the most likely row is
    chosen.
    """
    noisy = log_p if rng is None else log_p + rng.gumbel(size=len(log_p))
    if len(first) == 1:  # argmax is faster if there is only one observation
        return np.array([noisy.argmax()])
    maxima = np.maximum.reduceat(noisy, first)
    ends = np.concatenate([first[1:], [len(noisy)]])
    hits = np.flatnonzero(noisy == maxima.repeat(ends - first))
    # several rows may have the maximum, so take the first row of each observation in ``hits``
    chosen: np.ndarray = hits[np.searchsorted(hits, first)] - first
    return chosen


class Observations(Protocol):
    """A sequence of observations from which batches can be taken."""

    @property
    def is_free(self) -> np.ndarray:
        """Return a Boolean array, (T,), that is True if the observation has more than one choice."""

    def __len__(self) -> int: ...

    def batch(self, picked: np.ndarray) -> Any:
        """Return a batch with the observations at the indices ``picked`` (B,)."""


class ActorNet(nn.Module, ABC):
    """Makes choices for batches of observations. A choice is one number or, in a network with
    several output heads, one number per head.
    """

    settings: Any = None
    """The settings from which the network was built, for its checkpoint."""

    @abstractmethod
    def store(self, observations: Sequence[Any]) -> Observations:
        """Store observations in a form from which batches can be taken."""

    @abstractmethod
    def stack(self, observations: Sequence[Any]) -> Any:
        """Combine all observations into one batch."""

    @abstractmethod
    def act(
        self, batch: Any, rng: np.random.Generator | None, explore: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Make choices, without computing gradients. Return the choices, (B,) or (B, heads) int64,
        and the log-probability of each, (B,), summed over the heads.

        With ``rng`` alone, choices are sampled according to their probabilities. Without ``rng``,
        the most likely choice is taken. With ``explore`` as well, a random choice is taken with
        this probability, and the most likely one otherwise.
        """

    @abstractmethod
    def evaluate(self, batch: Any, choices: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the log-probability (B,) of the choices and the entropy (B,), both summed over the
        heads."""

    @abstractmethod
    def cross_entropy(self, batch: Any, choices: np.ndarray, smoothing: float = 0.0) -> Tensor:
        """Return the negative log-probability of the choices. Shape (B,). The fraction
        ``smoothing`` of the target is spread evenly over all legal choices.
        """


class ScoreNet(ActorNet):
    """A network that computes a score for every row (``forward(batch)``). Choices are sampled from
    a softmax over the rows of each observation."""

    observation: type[Any] = Observation
    """The named tuple that the network reads: an ``Observation``, or one with additional parts at
    the end."""

    def store(self, observations: Sequence[Any]) -> ObservationStore:
        return ObservationStore(observations)

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
            random_choices = sample(np.zeros(len(log_p)), first, rng)
            chosen = np.where(rng.random(len(chosen)) < explore, random_choices, chosen)
        return chosen, log_p[first + chosen]

    def evaluate(self, batch: ObservationBatch, choices: np.ndarray) -> tuple[Tensor, Tensor]:
        log_p = log_softmax(self(batch), batch.segment, batch.size)
        return log_p[chosen_rows(batch, choices)], entropy(log_p, batch.segment, batch.size)

    def cross_entropy(self, batch: ObservationBatch, choices: np.ndarray, smoothing: float = 0.0) -> Tensor:
        log_p = log_softmax(self(batch), batch.segment, batch.size)
        own = log_p[chosen_rows(batch, choices)]
        return (
            -own
            if not smoothing
            else -((1 - smoothing) * own + smoothing * segment_mean(log_p, batch.segment, batch.size))
        )


def scoring(net: ActorNet, algorithm: str) -> ScoreNet:
    """Return the network if it scores every choice.

    Raises:
        ConfigError: The network does not score choices, so no values can be learned for them.
    """
    if not isinstance(net, ScoreNet):
        raise ConfigError(f"{algorithm} needs a net that scores every choice, which {type(net).__name__} does not")
    return net
