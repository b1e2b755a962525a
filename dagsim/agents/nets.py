"""Networks: from a batch of observations to a score per row, or to a value per observation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from dagsim.agents.config import NetConfig
from dagsim.agents.ragged import Batch, segment_sum

__all__ = ["Critic", "Sizes", "build"]


class Sizes(NamedTuple):
    """Columns of the observations that a network reads."""

    tokens: int
    context: int
    gpus: int


def build(config: NetConfig, sizes: Sizes) -> nn.Module:
    """The network of that kind: ``forward(batch)`` gives (N,) scores. All start indifferent: every score is 0."""
    match config.kind:
        case "scorer":
            return Scorer(sizes, config.hidden)
        case "attention":
            return Attention(sizes, config.hidden)
        case "graph":
            return Graph(sizes, config.hidden)
        case "mlp":
            return Flat(sizes, config.hidden, config.slots)
        case "linear":
            return Linear(sizes)
    raise AssertionError(config.kind)


class Scorer(nn.Module):
    """Each row is scored by its own features, the mean over all rows and the context: any number of rows in any order
    (Zaheer et al. 2017)."""

    def __init__(self, sizes: Sizes, hidden: int) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(sizes.tokens, hidden), nn.ReLU())
        self.around = nn.Linear(hidden + sizes.context, hidden)
        self.own = nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), _indifferent(hidden))

    def forward(self, batch: Batch) -> Tensor:
        rows = self.embed(batch.tokens)  # (N, H)
        around = self.around(torch.cat([_mean(rows, batch), batch.context], dim=1))  # (B, H)
        return self.score(self.own(rows) + around[batch.segment])[:, 0]  # type: ignore[no-any-return]


class Attention(nn.Module):
    """As ``Scorer``, but each row also attends to the GPU types (one head, Vaswani et al. 2017)."""

    def __init__(self, sizes: Sizes, hidden: int) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(sizes.tokens, hidden), nn.ReLU())
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(sizes.gpus, hidden, bias=False)
        self.value = nn.Linear(sizes.gpus, hidden)
        self.around = nn.Linear(hidden + sizes.context, hidden)
        self.own = nn.Linear(2 * hidden, hidden, bias=False)
        self.score = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), _indifferent(hidden))

    def forward(self, batch: Batch) -> Tensor:
        rows = self.embed(batch.tokens)  # (N, H)
        keys, values = self.key(batch.gpus)[batch.segment], self.value(batch.gpus)[batch.segment]  # (N, g, H)
        weights = torch.softmax((keys @ self.query(rows)[:, :, None])[:, :, 0] / keys.shape[2] ** 0.5, dim=1)  # (N, g)
        seen = (weights[:, :, None] * values).sum(dim=1)  # (N, H)
        around = self.around(torch.cat([_mean(rows, batch), batch.context], dim=1))
        return self.score(self.own(torch.cat([rows, seen], dim=1)) + around[batch.segment])[:, 0]  # type: ignore[no-any-return]


class Graph(nn.Module):
    """Messages pass twice along the edges between candidates and the GPU type that each would run on, so that
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
        self.score = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), _indifferent(hidden))

    def forward(self, batch: Batch) -> Tensor:
        rows, types = self.embed(batch.tokens), self.embed_type(batch.gpus)  # (N, H), (B, g, H)
        told = batch.tokens[:, None, -batch.gpus.shape[2] :] - batch.gpus[batch.segment]  # (N, g, D)
        edges = (told.abs().amax(dim=2) < 1e-6).float() * (batch.tokens[:, :1] == 0)  # (N, g)
        edges = edges / edges.sum(dim=1, keepdim=True).clamp(min=1.0)
        for to_type, to_row in zip(self.to_type, self.to_row, strict=True):
            sent = edges[:, :, None] * to_type(rows)[:, None, :]  # (N, g, H)
            types = torch.relu(types + segment_sum(sent, batch.segment, batch.size))
            rows = torch.relu(rows + (edges[:, :, None] * to_row(types)[batch.segment]).sum(dim=1))
        around = self.around(torch.cat([_mean(rows, batch), batch.context], dim=1))
        return self.score(self.own(rows) + around[batch.segment])[:, 0]  # type: ignore[no-any-return]


class Flat(nn.Module):
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
            _indifferent(4 * hidden, slots),
        )

    def forward(self, batch: Batch) -> Tensor:
        count, rows = batch.size, torch.arange(len(batch.segment))
        place = rows - batch.first[batch.segment]
        last = torch.cat([batch.first[1:], torch.tensor([len(rows)])])[batch.segment] - 1 == rows
        place = torch.where(last, torch.clamp(place, max=self.slots - 1), place)
        seen = (place < self.slots - 1) | last
        padded = torch.zeros(count, self.slots, batch.tokens.shape[1])
        padded[batch.segment[seen], place[seen]] = batch.tokens[seen]
        scores = self.net(torch.cat([padded.flatten(1), batch.context], dim=1))  # (B, slots)
        picked = scores[batch.segment, torch.clamp(place, max=self.slots - 1)]
        return torch.where(seen, picked, -torch.inf)


class Linear(nn.Module):
    """A weight per feature: what a tuned heuristic could be."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.score = _indifferent(sizes.tokens)

    def forward(self, batch: Batch) -> Tensor:
        return self.score(batch.tokens)[:, 0]  # type: ignore[no-any-return]


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
            _indifferent(hidden),
        )

    def forward(self, batch: Batch) -> Tensor:
        around = _mean(self.embed(batch.tokens), batch)
        return self.value(torch.cat([around, batch.context], dim=1))[:, 0]  # type: ignore[no-any-return]


def _mean(rows: Tensor, batch: Batch) -> Tensor:
    """(B, H) the mean of the rows (N, H) of each observation."""
    lengths = segment_sum(torch.ones(len(rows)), batch.segment, batch.size)
    return segment_sum(rows, batch.segment, batch.size) / lengths[:, None]


def _indifferent(inputs: int, outputs: int = 1) -> nn.Linear:
    """A last layer that begins by giving 0 to everything."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
