"""PAC-ML's network in plain torch (Parsonson et al. 2023): rounds of messages over the computation graph of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from dagsim.agents.nets.actor import ScoreNet
from dagsim.agents.nets.computation import ComputationBatch, ComputationGraphs, ComputationStore
from dagsim.agents.nets.layers import Sizes, indifferent
from dagsim.agents.ragged import segment_mean, segment_sum
from dagsim.systems.ramp.codecs import RampObservation

if TYPE_CHECKING:
    from dagsim.agents.nets.config import PacMlConfig

__all__ = ["PacMl", "Round"]

_WIDE = 64
"""Columns between the two rounds."""


class Round(nn.Module):
    """One round of messages: an operation takes the mean of what its parents and itself say.

    A message is what its sender says beside what the dependency says, or beside 0 where it is one's own.
    """

    def __init__(self, ops: int, deps: int, message: int, outputs: int) -> None:
        super().__init__()
        self.message = message
        self.of_op = nn.Sequential(nn.LayerNorm(ops), nn.Linear(ops, message), nn.ReLU())
        self.of_dep = nn.Sequential(nn.LayerNorm(deps), nn.Linear(deps, message), nn.ReLU())
        self.reduce = nn.Sequential(nn.LayerNorm(2 * message), nn.Linear(2 * message, outputs), nn.ReLU())

    def forward(self, ops: Tensor, graphs: ComputationGraphs) -> Tensor:
        """(N, outputs) from the rows (N, ops)."""
        said = self.of_op(ops)
        own = self.reduce(torch.cat([said, said.new_zeros(len(said), self.message)], 1))
        sent = self.reduce(torch.cat([said[graphs.sources], self.of_dep(graphs.deps)], 1))
        heard = segment_sum(sent, graphs.targets, len(ops)) + own
        mean: Tensor = heard / graphs.heard[:, None]
        return mean


class PacMl(ScoreNet):
    """Embeds the graph of the job and the job among its fellows; then scores each way to partition it."""

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
        """(G, embedding) the mean over the operations of each graph."""
        rows = self.second(self.first(graphs.ops, graphs), graphs)
        return segment_mean(rows, graphs.owner, graphs.many)

    def forward(self, batch: ComputationBatch) -> Tensor:
        rows = self.rows(batch.tokens)  # (N, H)
        types = self.types(batch.gpus).mean(dim=1)
        known = [_mean_rows(rows, batch), self.embed(batch.graphs)[batch.graph], self.job(batch.context), types]
        around = self.around(torch.cat(known, dim=1))  # (B, H)
        return self.score(self.own(rows) + around[batch.segment])[:, 0]  # type: ignore[no-any-return]

    def store(self, observations: Sequence[RampObservation]) -> ComputationStore:  # type: ignore[override]
        return ComputationStore(observations)

    def stack(self, observations: Sequence[RampObservation]) -> ComputationBatch:  # type: ignore[override]
        return ComputationStore(observations).everything()


def _mean_rows(rows: Tensor, batch: ComputationBatch) -> Tensor:
    """(B, H) the mean of the rows (N, H) of each observation."""
    return segment_mean(rows, batch.segment, batch.size)
