"""Scorer: a score per row from its own features, the mean of all, and the context."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dagsim.agents.nets.actor import ScoreNet
from dagsim.agents.nets.layers import Sizes, indifferent, mean_rows
from dagsim.agents.ragged import ObservationBatch

__all__ = ["Scorer"]


class Scorer(ScoreNet):
    """Each row is scored by its own features, the mean over all rows and the context: any number of rows in any order
    (Zaheer et al. 2017)."""

    def __init__(self, sizes: Sizes, hidden: int) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(sizes.tokens, hidden), nn.ReLU())
        self.around = nn.Linear(hidden + sizes.context, hidden)
        self.own = nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), indifferent(hidden))

    def forward(self, batch: ObservationBatch) -> Tensor:
        rows = self.embed(batch.tokens)  # (N, H)
        around = self.around(torch.cat([mean_rows(rows, batch), batch.context], dim=1))  # (B, H)
        return self.score(self.own(rows) + around.index_select(0, batch.segment))[:, 0]  # type: ignore[no-any-return]
