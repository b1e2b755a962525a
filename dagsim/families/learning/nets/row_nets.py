"""Networks that score the rows of an observation, and a critic that estimates the value of the
whole observation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from dagsim.errors import ConfigError
from dagsim.families.learning.nets.actor import ObservationBatch, ScoreNet, segment_mean, segment_sum
from dagsim.systems.seam import CodecSettings


class Sizes(NamedTuple):
    """The number of columns in each part of an observation that a network reads."""

    tokens: int
    context: int
    gpus: int

    @classmethod
    def of(cls, codec: CodecSettings, reader: str) -> Sizes:
        """Return the sizes for the observations that ``codec`` produces.

        Raises:
            ConfigError: The observations lack parts that a network over rows reads.
        """
        features = codec.features
        if not set(cls._fields) <= set(features):
            raise ConfigError(
                f"{reader} reads observations with the fields {', '.join(cls._fields)}, but "
                f"{type(codec).__name__} writes {', '.join(features)}"
            )
        return cls(*(len(features[name]) for name in cls._fields))


def mean_rows(rows: Tensor, batch: ObservationBatch) -> Tensor:
    """Return the mean of the rows (N, H) of each observation. Shape (B, H)."""
    return segment_mean(rows, batch.segment, batch.size)


def indifferent(inputs: int, outputs: int = 1) -> nn.Linear:
    """Build a final layer whose output is 0 for every input before training."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class Linear(ScoreNet):
    """A network with one weight per feature, like a tuned linear heuristic."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.score = indifferent(sizes.tokens)

    def forward(self, batch: ObservationBatch) -> Tensor:
        return self.score(batch.tokens)[:, 0]  # type: ignore[no-any-return]


class Mlp(ScoreNet):
    """A network that gets the first ``slots`` rows side by side, padded with zeros, like most
    schedulers based on reinforcement learning. Rows after these are never chosen, except the last
    row, which may stand for waiting.
    """

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
        count, rows = batch.size, torch.arange(len(batch.segment), device=batch.segment.device)
        place = rows - batch.first[batch.segment]
        last = torch.cat([batch.first[1:], batch.first.new_tensor([len(rows)])])[batch.segment] - 1 == rows
        place = torch.where(last, torch.clamp(place, max=self.slots - 1), place)
        shown = (place < self.slots - 1) | last
        padded = batch.tokens.new_zeros(count, self.slots, batch.tokens.shape[1])
        padded[batch.segment[shown], place[shown]] = batch.tokens[shown]
        scores = self.net(torch.cat([padded.flatten(1), batch.context], dim=1))  # shape (B, slots)
        row_scores = scores[batch.segment, torch.clamp(place, max=self.slots - 1)]
        return torch.where(shown, row_scores, -torch.inf)


class Scorer(ScoreNet):
    """Scores each row based on its own features, on the mean over all rows, and on the context.
    This works for any number of rows in any order (Zaheer et al. 2017)."""

    def __init__(self, sizes: Sizes, hidden: int) -> None:
        super().__init__()
        embed = nn.Linear(sizes.tokens, hidden)
        self.embed = nn.Sequential(embed, nn.ReLU())
        self.around = nn.Linear(hidden + sizes.context, hidden)
        self.own = nn.Linear(hidden, hidden, bias=False)
        inner, score = nn.Linear(hidden, hidden), indifferent(hidden)
        self.score = nn.Sequential(nn.ReLU(), inner, nn.ReLU(), score)
        self._linear = (embed, self.around, self.own, inner, score)
        self._layers = [(layer.weight, layer.bias) for layer in self._linear]
        """The same parameters, called directly, because for a batch this small, calling modules
        takes as long as their computations."""

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Scorer:
        # moving a module to another device may replace its parameters, so collect them again
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._layers = [(layer.weight, layer.bias) for layer in self._linear]
        return self

    def forward(self, batch: ObservationBatch) -> Tensor:
        embed, around, own, inner, score = self._layers
        rows = linear(batch.tokens, *embed).relu_()  # shape (N, H)
        shared = linear(torch.cat([mean_rows(rows, batch), batch.context], dim=1), *around)  # shape (B, H)
        mixed = linear(rows, *own).add_(shared.index_select(0, batch.segment)).relu_()
        return linear(linear(mixed, *inner).relu_(), *score)[:, 0]


class Attention(ScoreNet):
    """Like ``Scorer``, but each row also attends to the GPU types (one head, Vaswani et al. 2017)."""

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
        rows = self.embed(batch.tokens)  # shape (N, H)
        keys, values = self.key(batch.gpus)[batch.segment], self.value(batch.gpus)[batch.segment]  # shape (N, g, H)
        weights = torch.softmax((keys @ self.query(rows)[:, :, None])[:, :, 0] / keys.shape[2] ** 0.5, dim=1)  # (N, g)
        attended = (weights[:, :, None] * values).sum(dim=1)  # shape (N, H)
        around = self.around(torch.cat([mean_rows(rows, batch), batch.context], dim=1))
        return self.score(self.own(torch.cat([rows, attended], dim=1)) + around.index_select(0, batch.segment))[:, 0]  # type: ignore[no-any-return]


class Graph(ScoreNet):
    """Passes messages between candidates and GPU types. Each candidate is connected to the type on
    which it would run. Messages are passed along the edges twice, so candidates for the same type
    receive information about each other. Each candidate is then scored as in ``Scorer`` (Gilmer et
    al. 2017, here on a bipartite graph).

    The features of a candidate's type are at the end of its row. The row for waiting is connected
    to no type.
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
        rows, types = self.embed(batch.tokens), self.embed_type(batch.gpus)  # shapes (N, H) and (B, g, H)
        difference = batch.tokens[:, None, -batch.gpus.shape[2] :] - batch.gpus[batch.segment]  # shape (N, g, D)
        edges = (difference.abs().amax(dim=2) < 1e-6).float() * (batch.tokens[:, :1] == 0)  # shape (N, g)
        edges = edges / edges.sum(dim=1, keepdim=True).clamp(min=1.0)
        for to_type, to_row in zip(self.to_type, self.to_row, strict=True):
            sent = edges[:, :, None] * to_type(rows)[:, None, :]  # shape (N, g, H)
            types = torch.relu(types + segment_sum(sent, batch.segment, batch.size))
            rows = torch.relu(rows + (edges[:, :, None] * to_row(types)[batch.segment]).sum(dim=1))
        around = self.around(torch.cat([mean_rows(rows, batch), batch.context], dim=1))
        return self.score(self.own(rows) + around.index_select(0, batch.segment))[:, 0]  # type: ignore[no-any-return]


class Critic(nn.Module):
    """Estimates the value of each observation, as (B,)."""

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
