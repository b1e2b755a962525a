"""Batches of observations with computation graphs: rows laid end to end, and each distinct graph once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dagsim.agents.ragged import Store
from dagsim.systems.ramp.codecs import RampObservation

__all__ = ["ComputationBatch", "ComputationGraphs", "ComputationStore"]


class ComputationGraphs(NamedTuple):
    """``G`` computation graphs as one: N operations, M dependencies in all."""

    ops: Tensor  # (N, F)
    deps: Tensor  # (M, E)
    sources: Tensor  # (M,) int64
    targets: Tensor  # (M,) int64
    owner: Tensor  # (N,) int64: the graph of each operation
    heard: Tensor  # (N,) float32: dependencies into each operation, and one for itself
    many: int
    """Graphs."""

    @classmethod
    def of(cls, observations: Sequence[RampObservation]) -> ComputationGraphs:
        """The graph of each observation."""
        counts = np.array([len(each.ops) for each in observations])
        begins = (np.cumsum(counts) - counts).tolist()
        sources, targets = (
            np.concatenate([ends + begin for ends, begin in zip(of_all, begins, strict=True)])
            for of_all in ([each.sources for each in observations], [each.targets for each in observations])
        )
        heard = np.bincount(targets, minlength=int(counts.sum())) + 1
        return cls(
            torch.from_numpy(np.concatenate([each.ops for each in observations])),
            torch.from_numpy(np.concatenate([each.deps for each in observations])),
            torch.from_numpy(sources),
            torch.from_numpy(targets),
            torch.from_numpy(np.repeat(np.arange(len(counts)), counts)),
            torch.from_numpy(heard.astype(np.float32)),
            len(counts),
        )


class ComputationBatch(NamedTuple):
    """``B`` observations with ``N`` rows and ``G`` distinct graphs in all."""

    tokens: Tensor  # (N, F) float32
    context: Tensor  # (B, C) float32
    gpus: Tensor  # (B, g, D) float32
    segment: Tensor  # (N,) int64: the observation that a row belongs to
    first: Tensor  # (B,) int64: the first row of each observation
    graphs: ComputationGraphs
    graph: Tensor  # (B,) int64: the graph of each observation

    @property
    def size(self) -> int:
        """Observations in the batch."""
        return len(self.context)


class ComputationStore:
    """Many observations, from which batches are taken. Graphs that are one object are kept, and embedded, once."""

    def __init__(self, observations: Sequence[RampObservation]) -> None:
        self._rows = Store(observations)  # type: ignore[arg-type]
        places: dict[int, int] = {}
        self._graph = np.array([places.setdefault(id(each.ops), len(places)) for each in observations], np.int64)
        distinct = [observations[at] for at in np.unique(self._graph, return_index=True)[1]]
        self._graphs = ComputationGraphs.of(distinct)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_free(self) -> np.ndarray:
        """(T,) bool: there is more than one choice."""
        return self._rows.is_free

    def batch(self, picked: np.ndarray) -> ComputationBatch:
        """The observations numbered ``picked`` (int64), in that order."""
        return ComputationBatch(*self._rows.batch(picked), self._graphs, torch.from_numpy(self._graph[picked]))

    def everything(self) -> ComputationBatch:
        """All of them as one batch."""
        return self.batch(np.arange(len(self)))
