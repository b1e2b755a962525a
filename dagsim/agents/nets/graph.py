"""Graph: messages pass between rows and GPU types."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dagsim.agents.nets.actor import ScoreNet
from dagsim.agents.nets.layers import Sizes, indifferent, mean_rows
from dagsim.agents.ragged import ObservationBatch, segment_sum

__all__ = ["Graph"]


class Graph(ScoreNet):
    """Messages between candidates and the GPU type that each would run on. They pass twice along the edges, so that
    candidates for one type learn of each other; then each is scored as in ``Scorer`` (Gilmer et al. 2017, on a
    bipartite graph).

    A candidate's type is the one whose features its row ends with; the row that waits has none.
    """

    def __init__(self, sizes: Sizes, hidden: int) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(sizes.tokens, hidden), nn.ReLU())
        self.embed_type = nn.Sequential(nn.Linear(sizes.gpus, hidden), nn.ReLU())
        self.to_type = nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(2)])
        self.to_row = nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(2)])
        self.around = nn.Linear(hidden + sizes.context, hidden)
        self.own = nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), indifferent(hidden))

    def forward(self, batch: ObservationBatch) -> Tensor:
        rows, types = self.embed(batch.tokens), self.embed_type(batch.gpus)  # (N, H), (B, g, H)
        difference = batch.tokens[:, None, -batch.gpus.shape[2] :] - batch.gpus[batch.segment]  # (N, g, D)
        edges = (difference.abs().amax(dim=2) < 1e-6).float() * (batch.tokens[:, :1] == 0)  # (N, g)
        edges = edges / edges.sum(dim=1, keepdim=True).clamp(min=1.0)
        for to_type, to_row in zip(self.to_type, self.to_row, strict=True):
            sent = edges[:, :, None] * to_type(rows)[:, None, :]  # (N, g, H)
            types = torch.relu(types + segment_sum(sent, batch.segment, batch.size))
            rows = torch.relu(rows + (edges[:, :, None] * to_row(types)[batch.segment]).sum(dim=1))
        around = self.around(torch.cat([mean_rows(rows, batch), batch.context], dim=1))
        return self.score(self.own(rows) + around.index_select(0, batch.segment))[:, 0]  # type: ignore[no-any-return]
