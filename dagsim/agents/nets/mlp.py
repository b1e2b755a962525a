"""MLP: one flat network over the first rows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dagsim.agents.nets.actor import ScoreNet
from dagsim.agents.nets.layers import Sizes, indifferent
from dagsim.agents.ragged import ObservationBatch

__all__ = ["Mlp"]


class Mlp(ScoreNet):
    """One network over the first ``slots`` rows side by side, padded with zeros: what most schedulers by reinforcement
    learning use. Rows beyond are never chosen, but for the last, which may be the one that waits."""

    def __init__(self, sizes: Sizes, hidden: int, slots: int) -> None:
        super().__init__()
        self.slots = slots
        self.net = nn.Sequential(
            nn.Linear(slots * sizes.tokens + sizes.context, 4 * hidden),
            nn.ReLU(),
            nn.Linear(4 * hidden, 4 * hidden),
            nn.ReLU(),
            indifferent(4 * hidden, slots),
        )

    def forward(self, batch: ObservationBatch) -> Tensor:
        count, rows = batch.size, torch.arange(len(batch.segment))
        place = rows - batch.first[batch.segment]
        last = torch.cat([batch.first[1:], torch.tensor([len(rows)])])[batch.segment] - 1 == rows
        place = torch.where(last, torch.clamp(place, max=self.slots - 1), place)
        shown = (place < self.slots - 1) | last
        padded = torch.zeros(count, self.slots, batch.tokens.shape[1])
        padded[batch.segment[shown], place[shown]] = batch.tokens[shown]
        scores = self.net(torch.cat([padded.flatten(1), batch.context], dim=1))  # (B, slots)
        picked = scores[batch.segment, torch.clamp(place, max=self.slots - 1)]
        return torch.where(shown, picked, -torch.inf)
