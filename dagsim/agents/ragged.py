"""Observations of different lengths in one batch: rows laid end to end, and a softmax over each observation's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dagsim.systems.cluster.codecs.codec import Observation

__all__ = [
    "ObservationBatch",
    "Store",
    "entropy",
    "log_softmax",
    "sample",
    "segment_max",
    "segment_mean",
    "segment_sum",
    "stack",
]


class ObservationBatch(NamedTuple):
    """``B`` observations with ``N`` rows in all."""

    tokens: Tensor  # (N, F) float32
    context: Tensor  # (B, C) float32
    gpus: Tensor  # (B, g, D) float32
    segment: Tensor  # (N,) int64: the observation that a row belongs to
    first: Tensor  # (B,) int64: the first row of each observation

    @property
    def size(self) -> int:
        """Observations in the batch."""
        return len(self.context)


class Store:
    """Many observations, kept end to end, from which batches are taken."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        self.lengths = np.array([len(each.tokens) for each in observations], np.int64)
        self._offsets = np.concatenate([[0], np.cumsum(self.lengths)])
        self._tokens = np.concatenate([each.tokens for each in observations])
        self._context = np.stack([each.context for each in observations])
        self._gpus = np.stack([each.gpus for each in observations])

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def is_free(self) -> np.ndarray:
        """(T,) bool: there is more than one choice."""
        free: np.ndarray = self.lengths > 1
        return free

    def batch(self, picked: np.ndarray) -> ObservationBatch:
        """The observations numbered ``picked`` (int64), in that order."""
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
    """All of them as one batch."""
    tokens, context, gpus = zip(*[each[:3] for each in observations], strict=True)
    lengths = np.array([len(rows) for rows in tokens])
    return ObservationBatch(
        torch.from_numpy(np.concatenate(tokens)),
        torch.from_numpy(np.array(context)),
        torch.from_numpy(np.array(gpus)),
        torch.from_numpy(np.arange(len(lengths)).repeat(lengths)),
        torch.from_numpy(lengths.cumsum() - lengths),
    )


def segment_sum(values: Tensor, segment: Tensor, count: int) -> Tensor:
    """The sum of ``values`` (N, ...) over each segment: (count, ...)."""
    return torch.zeros(count, *values.shape[1:], dtype=values.dtype).index_add(0, segment, values)


def segment_mean(values: Tensor, segment: Tensor, count: int) -> Tensor:
    """The mean of ``values`` (N, ...) over each segment: (count, ...)."""
    lengths = torch.bincount(segment, minlength=count)
    return segment_sum(values, segment, count) / lengths.reshape(-1, *[1] * (values.dim() - 1))


def segment_max(values: Tensor, segment: Tensor, count: int) -> Tensor:
    """The largest of ``values`` (N,) in each segment: (count,)."""
    return torch.full((count,), -torch.inf).scatter_reduce(0, segment, values, "amax")


def log_softmax(scores: Tensor, segment: Tensor, count: int) -> Tensor:
    """(N,) log-probabilities of the rows within their own observation."""
    most = segment_max(scores.detach(), segment, count)
    above = scores - most.index_select(0, segment)
    return above - torch.log(segment_sum(torch.exp(above), segment, count)).index_select(0, segment)


def entropy(log_p: Tensor, segment: Tensor, count: int) -> Tensor:
    """(count,) entropy of each observation's choice, in nats; rows with probability 0 count nothing."""
    p = torch.exp(log_p)
    return -segment_sum(torch.where(p > 0, p * log_p, 0.0), segment, count)


def sample(log_p: np.ndarray, first: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
    """(B,) the row of each observation that is chosen, counted within it: drawn by its probability (the largest of
    log-probability + Gumbel noise), or without ``rng`` the likeliest."""
    noisy = log_p if rng is None else log_p + rng.gumbel(size=len(log_p))
    if len(first) == 1:  # an agent that plays alone
        return np.array([noisy.argmax()])
    most = np.maximum.reduceat(noisy, first)
    lengths = np.diff(np.append(first, len(noisy)))
    hits = np.flatnonzero(noisy == np.repeat(most, lengths))
    chosen: np.ndarray = hits[np.searchsorted(hits, first)] - first  # the first of equals
    return chosen
