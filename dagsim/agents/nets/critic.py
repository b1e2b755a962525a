"""Critic: the value of an observation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dagsim.agents.nets.layers import Sizes, indifferent, mean_rows
from dagsim.agents.ragged import ObservationBatch

__all__ = ["Critic"]


class Critic(nn.Module):
    """The value of an observation: (B,)."""

    def __init__(self, sizes: Sizes, hidden: int) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(sizes.tokens, hidden), nn.ReLU())
        self.value = nn.Sequential(
            nn.Linear(hidden + sizes.context, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            indifferent(hidden),
        )

    def forward(self, batch: ObservationBatch) -> Tensor:
        around = mean_rows(self.embed(batch.tokens), batch)
        return self.value(torch.cat([around, batch.context], dim=1))[:, 0]  # type: ignore[no-any-return]
