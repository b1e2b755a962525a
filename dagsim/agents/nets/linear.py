"""Linear: a weight per feature."""

from __future__ import annotations

from torch import Tensor

from dagsim.agents.nets.actor import ScoreNet
from dagsim.agents.nets.layers import Sizes, indifferent
from dagsim.agents.ragged import ObservationBatch

__all__ = ["Linear"]


class Linear(ScoreNet):
    """A weight per feature: what a tuned heuristic could be."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.score = indifferent(sizes.tokens)

    def forward(self, batch: ObservationBatch) -> Tensor:
        return self.score(batch.tokens)[:, 0]  # type: ignore[no-any-return]
