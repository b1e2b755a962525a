"""The network of PAC-ML for the system ``ramp`` (Parsonson et al. 2023). It passes messages over
the computation graph of a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.families.learning.nets.actor import ObservationStore, ScoreNet, segment_mean, segment_sum
from dagsim.families.learning.nets.row_nets import Sizes, indifferent
from dagsim.families.ramp.codecs import RampObservation

if TYPE_CHECKING:
    from dagsim.families.pac_ml.pac_ml_settings import PacMlConfig


class ComputationGraphs(NamedTuple):
    """``G`` computation graphs in a single graph, with N operations and M dependencies in total."""

    ops: Tensor  # shape (N, F)
    deps: Tensor  # shape (M, E)
    sources: Tensor  # shape (M,), int64
    targets: Tensor  # shape (M,), int64
    owner: Tensor  # shape (N,), int64: the graph of each operation
    in_degree: Tensor  # shape (N,), float32: number of dependencies into the operation, plus 1 for itself
    many: int
    """Number of graphs."""

    @classmethod
    def of(cls, observations: Sequence[RampObservation]) -> ComputationGraphs:
        """Combine the graphs of all observations into a single graph."""
        counts = np.array([len(observation.ops) for observation in observations])
        begins = (np.cumsum(counts) - counts).tolist()
        sources, targets = (
            np.concatenate([ends + begin for ends, begin in zip(of_all, begins, strict=True)])
            for of_all in (
                [observation.sources for observation in observations],
                [observation.targets for observation in observations],
            )
        )
        messages = np.bincount(targets, minlength=int(counts.sum())) + 1
        return cls(
            torch.from_numpy(np.concatenate([observation.ops for observation in observations])),
            torch.from_numpy(np.concatenate([observation.deps for observation in observations])),
            torch.from_numpy(sources),
            torch.from_numpy(targets),
            torch.from_numpy(np.repeat(np.arange(len(counts)), counts)),
            torch.from_numpy(messages.astype(np.float32)),
            len(counts),
        )


class ComputationBatch(NamedTuple):
    """``B`` observations, with ``N`` rows and ``G`` distinct graphs in total."""

    tokens: Tensor  # shape (N, F), float32
    context: Tensor  # shape (B, C), float32
    gpus: Tensor  # shape (B, g, D), float32
    segment: Tensor  # shape (N,), int64: index of the observation to which the row belongs
    first: Tensor  # shape (B,), int64: the first row of each observation
    graphs: ComputationGraphs
    graph: Tensor  # shape (B,), int64: the graph of each observation

    @property
    def size(self) -> int:
        """The number of observations in the batch."""
        return len(self.context)


class ComputationStore:
    """Stored observations, from which batches can be taken. A graph object that several
    observations share is stored and embedded only once.
    """

    def __init__(self, observations: Sequence[RampObservation]) -> None:
        self._rows = ObservationStore(observations)  # type: ignore[arg-type]
        places: dict[int, int] = {}
        self._graph = np.array(
            [places.setdefault(id(observation.ops), len(places)) for observation in observations], np.int64
        )
        distinct = [observations[at] for at in np.unique(self._graph, return_index=True)[1]]
        self._graphs = ComputationGraphs.of(distinct)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_free(self) -> np.ndarray:
        """(T,) bool: True for observations with more than one choice."""
        return self._rows.is_free

    def batch(self, picked: np.ndarray) -> ComputationBatch:
        """Return a batch with the observations at the indices ``picked`` (int64), in that order."""
        return ComputationBatch(*self._rows.batch(picked), self._graphs, torch.from_numpy(self._graph[picked]))

    def everything(self) -> ComputationBatch:
        """Combine all observations into one batch."""
        return self.batch(np.arange(len(self)))


_WIDE = 64
"""Columns between the two rounds."""


class Round(nn.Module):
    """One round of messages. Each operation receives the mean of the messages from its parents and
    from itself.

    A message combines the embeddings of the sender and of the dependency. The message from an
    operation to itself has zeros in place of a dependency.
    """

    def __init__(self, ops: int, deps: int, message: int, outputs: int) -> None:
        super().__init__()
        self.message = message
        self.of_op = nn.Sequential(nn.LayerNorm(ops), nn.Linear(ops, message), nn.ReLU())
        self.of_dep = nn.Sequential(nn.LayerNorm(deps), nn.Linear(deps, message), nn.ReLU())
        self.reduce = nn.Sequential(nn.LayerNorm(2 * message), nn.Linear(2 * message, outputs), nn.ReLU())

    def forward(self, ops: Tensor, graphs: ComputationGraphs) -> Tensor:
        """Return the new embeddings of the operations, computed from the rows ``ops``. Shape (N,
        outputs).
        """
        embedded = self.of_op(ops)
        own = self.reduce(torch.cat([embedded, embedded.new_zeros(len(embedded), self.message)], 1))
        sent = self.reduce(torch.cat([embedded[graphs.sources], self.of_dep(graphs.deps)], 1))
        received = segment_sum(sent, graphs.targets, len(ops)) + own
        mean: Tensor = received / graphs.in_degree[:, None]
        return mean


class PacMl(ScoreNet):
    """Computes embeddings of the job's graph and of the job in its context, and from these a score
    for each way to partition the job."""

    observation = RampObservation

    def __init__(self, sizes: Sizes, ops: int, deps: int, settings: PacMlConfig) -> None:
        super().__init__()
        hidden, message, embedding, job = settings.hidden, settings.message, settings.embedding, settings.job
        self.first = Round(ops, deps, message, _WIDE)
        self.second = Round(_WIDE, deps, message, embedding)
        self.job = nn.Sequential(nn.LayerNorm(sizes.context), nn.Linear(sizes.context, job), nn.ReLU())
        self.types = nn.Sequential(nn.Linear(sizes.gpus, message), nn.ReLU())
        self.rows = nn.Sequential(nn.Linear(sizes.tokens, hidden), nn.ReLU())
        self.around = nn.Linear(hidden + embedding + job + message, hidden)
        self.own = nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), indifferent(hidden))

    def embed(self, graphs: ComputationGraphs) -> Tensor:
        """Return the embedding of each graph, which is the mean of the embeddings of its
        operations. Shape (G, embedding).
        """
        rows = self.second(self.first(graphs.ops, graphs), graphs)
        return segment_mean(rows, graphs.owner, graphs.many)

    def forward(self, batch: ComputationBatch) -> Tensor:
        rows = self.rows(batch.tokens)  # shape (N, H)
        types = self.types(batch.gpus).mean(dim=1)
        mean = segment_mean(rows, batch.segment, batch.size)
        summaries = [mean, self.embed(batch.graphs)[batch.graph], self.job(batch.context), types]
        around = self.around(torch.cat(summaries, dim=1))  # shape (B, H)
        return self.score(self.own(rows) + around[batch.segment])[:, 0]  # type: ignore[no-any-return]

    def store(self, observations: Sequence[RampObservation]) -> ComputationStore:  # type: ignore[override]
        return ComputationStore(observations)

    def stack(self, observations: Sequence[RampObservation]) -> ComputationBatch:  # type: ignore[override]
        return ComputationStore(observations).everything()
