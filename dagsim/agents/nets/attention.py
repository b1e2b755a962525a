"""Attention: rows attend to the GPU types."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dagsim.agents.nets.actor import ScoreNet
from dagsim.agents.nets.layers import Sizes, indifferent, mean_rows
from dagsim.agents.ragged import ObservationBatch

__all__ = ["Attention"]


class Attention(ScoreNet):
    """As ``Scorer``, but each row also attends to the GPU types (one head, Vaswani et al. 2017)."""

    def __init__(self, sizes: Sizes, hidden: int) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(sizes.tokens, hidden), nn.ReLU())
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(sizes.gpus, hidden, bias=False)
        self.value = nn.Linear(sizes.gpus, hidden)
        self.around = nn.Linear(hidden + sizes.context, hidden)
        self.own = nn.Linear(2 * hidden, hidden, bias=False)
        self.score = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), indifferent(hidden))

    def forward(self, batch: ObservationBatch) -> Tensor:
        rows = self.embed(batch.tokens)  # (N, H)
        keys, values = self.key(batch.gpus)[batch.segment], self.value(batch.gpus)[batch.segment]  # (N, g, H)
        weights = torch.softmax((keys @ self.query(rows)[:, :, None])[:, :, 0] / keys.shape[2] ** 0.5, dim=1)  # (N, g)
        attended = (weights[:, :, None] * values).sum(dim=1)  # (N, H)
        around = self.around(torch.cat([mean_rows(rows, batch), batch.context], dim=1))
        return self.score(self.own(torch.cat([rows, attended], dim=1)) + around.index_select(0, batch.segment))[:, 0]  # type: ignore[no-any-return]
