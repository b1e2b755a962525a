"""Scorer: a score per row from its own features, the mean of all, and the context."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu

from dagsim.agents.nets.actor import ScoreNet
from dagsim.agents.nets.layers import Sizes, indifferent, mean_rows
from dagsim.agents.ragged import ObservationBatch

__all__ = ["Scorer"]


class Scorer(ScoreNet):
    """Each row is scored by its own features, the mean over all rows and the context: any number of rows in any order
    (Zaheer et al. 2017)."""

    def __init__(self, sizes: Sizes, hidden: int) -> None:
        super().__init__()
        embed = nn.Linear(sizes.tokens, hidden)
        self.embed = nn.Sequential(embed, nn.ReLU())
        self.around = nn.Linear(hidden + sizes.context, hidden)
        self.own = nn.Linear(hidden, hidden, bias=False)
        inner, score = nn.Linear(hidden, hidden), indifferent(hidden)
        self.score = nn.Sequential(nn.ReLU(), inner, nn.ReLU(), score)
        self._layers = [(each.weight, each.bias) for each in (embed, self.around, self.own, inner, score)]
        """The same parameters: for a batch this small, calls of modules would take as long as what they compute."""

    def forward(self, batch: ObservationBatch) -> Tensor:
        embed, around, own, inner, score = self._layers
        rows = relu(linear(batch.tokens, *embed))  # (N, H)
        shared = linear(torch.cat([mean_rows(rows, batch), batch.context], dim=1), *around)  # (B, H)
        mixed = relu(linear(rows, *own) + shared.index_select(0, batch.segment))
        return linear(relu(linear(mixed, *inner)), *score)[:, 0]
