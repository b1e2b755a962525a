"""Decima's network in plain torch (Mao et al. 2019, section 5): messages up the DAG, summaries, two scoring heads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from dagsim.agents.decima_features import CONTEXT, JOB, OPTION, STAGE, Seen, option_rows
from dagsim.agents.ragged import segment_sum
from dagsim.systems.spark import Action

__all__ = ["DecimaNet", "Graphs", "Level", "Options", "blend", "collate", "new_net", "options"]


_ADDED = np.array([name in ("added", "log added", "all that can go") for name in OPTION])
"""Options that are about the stage, not about its job."""


class Level(NamedTuple):
    """Stages of one height, which are rows ``begin`` to ``end`` - 1, and the E edges to their children."""

    begin: int
    end: int
    parents: Tensor  # (E,) int64, counted from ``begin``
    children: Tensor  # (E,) int64


class Graphs(NamedTuple):
    """``B`` observations as one: N stages, the lowest first, J jobs, S choices in all."""

    stages: Tensor  # (N, F)
    jobs: Tensor  # (J, G)
    context: Tensor  # (B, C)
    job: Tensor  # (N,) int64: the job of each stage
    of_job: Tensor  # (J,) int64: the observation of each job
    levels: tuple[Level, ...]
    """Heights from 1 on."""
    choices: Tensor  # (S,) int64: stages that can be chosen
    segment: Tensor  # (S,) int64: the observation of each choice
    first: Tensor  # (B,) int64: the first choice of each observation

    @property
    def size(self) -> int:
        """Observations in the batch."""
        return len(self.context)


class Options(NamedTuple):
    """Numbers of executors for one chosen stage per observation, K in all."""

    rows: Tensor  # (K, len(OPTION))
    segment: Tensor  # (K,) int64
    first: Tensor  # (B,) int64


def collate(seen: Sequence[Seen]) -> Graphs:
    """All observations as one batch. O(their size)."""
    counts = np.array([(len(each.stages), len(each.jobs), len(each.choices)) for each in seen])
    begins = np.cumsum(counts, axis=0) - counts
    stage_at, job_at = begins[:, 0].tolist(), begins[:, 1].tolist()
    numbers = np.arange(len(seen))
    height = _joined([each.height for each in seen])
    job = _joined([each.job for each in seen], job_at)
    edges, level = _joined([each.edges for each in seen], stage_at), _joined([each.level for each in seen])
    if len(seen) > 1:
        by_level = np.argsort(level, kind="stable")
        edges, level = edges[by_level], level[by_level]
    order = np.argsort(height, kind="stable")
    row = np.empty_like(order)
    row[order] = np.arange(len(order))
    return Graphs(
        torch.from_numpy(_joined([each.stages for each in seen])[order]),
        torch.from_numpy(_joined([each.jobs for each in seen])),
        torch.from_numpy(np.stack([each.context for each in seen])),
        torch.from_numpy(job[order]),
        torch.from_numpy(np.repeat(numbers, counts[:, 1])),
        _levels(height[order], row[edges], level),
        torch.from_numpy(row[_joined([each.choices for each in seen], stage_at)]),
        torch.from_numpy(np.repeat(numbers, counts[:, 2])),
        torch.from_numpy(begins[:, 2].copy()),
    )


def options(seen: Sequence[Seen], chosen: np.ndarray) -> Options:
    """Every number of executors that the stages ``chosen`` (B,), counted among the choices, can be given; of a limit
    only what it means for the job is told."""
    picked = list(zip(seen, chosen.tolist(), strict=True))
    most = np.array([each.most[at] for each, at in picked])
    segment = np.repeat(np.arange(len(most)), most)
    first = np.cumsum(most) - most
    rows = option_rows(
        np.arange(len(segment)) - first[segment] + 1,
        most[segment],
        np.array([each.has[at] for each, at in picked])[segment],
        np.stack([each.shares[at] for each, at in picked])[segment],
        np.array([each.work_s[at] for each, at in picked])[segment],
        np.array([each.executors for each in seen])[segment],
    )
    if seen[0].action == "limit":
        rows[:, _ADDED] = 0.0
    return Options(torch.from_numpy(rows), torch.from_numpy(segment), torch.from_numpy(first))


class DecimaNet(nn.Module):
    """Embeds every stage with what lies below it, every job, and the whole; then scores stages, and numbers of
    executors for one of them. It starts indifferent: all scores are 0.

    With ``action="limit"`` it scores limits on the executors of the stage's job, blind to which of its stages it is.
    """

    def __init__(self, hidden: int = 16, head: int = 32, action: Action = "executors") -> None:
        super().__init__()
        self.hidden, self.head, self.action = hidden, head, action
        self.stage = nn.Linear(len(STAGE), hidden)
        self.message = nn.Linear(hidden, hidden, bias=False)
        self.of_stages = nn.Linear(hidden, hidden)
        self.summary = nn.Linear(hidden + len(JOB), hidden)
        self.whole = nn.Linear(hidden + len(CONTEXT), hidden)
        inputs = len(STAGE) + len(JOB) + 3 * hidden + len(CONTEXT)
        self.which = nn.Sequential(nn.Linear(inputs, head), nn.LeakyReLU(0.2), nn.Linear(head, head), nn.LeakyReLU(0.2))
        self.which_score = _indifferent(head)
        self.many = nn.Linear(inputs, head)
        self.option = nn.Linear(len(OPTION), head, bias=False)
        self.many_score = nn.Sequential(nn.LeakyReLU(0.2), nn.Linear(head, head), nn.LeakyReLU(0.2), _indifferent(head))

    @property
    def form(self) -> tuple[int, int, Action]:
        """What ``DecimaNet`` takes to make one that fits the same weights."""
        return self.hidden, self.head, self.action

    @property
    def _of_stage(self) -> int:
        """How many of the first columns of an embedding are about the stage."""
        return len(STAGE) + self.hidden

    def embed(self, graphs: Graphs) -> Tensor:
        """(S, H) all that is known about each choice: its stage, job, and the whole."""
        own = self.stage(graphs.stages)  # (N, h)
        below = leaky_relu(own, 0.2)
        for begin, end, parents, children in graphs.levels:
            sent = segment_sum(below[children], parents, end - begin)
            below[begin:end] = leaky_relu(torch.addmm(own[begin:end], sent, self.message.weight.T), 0.2)
        total = segment_sum(leaky_relu(self.of_stages(below), 0.2), graphs.job, len(graphs.jobs)) / 8
        summary = leaky_relu(self.summary(torch.cat([total, graphs.jobs], 1)), 0.2)  # (J, h)
        all_jobs = segment_sum(summary, graphs.of_job, graphs.size) / 8
        whole = leaky_relu(self.whole(torch.cat([all_jobs, graphs.context], 1)), 0.2)  # (B, h)
        stage, segment = graphs.choices, graphs.segment
        job = graphs.job[stage]
        return torch.cat(
            [
                graphs.stages[stage],
                below[stage],
                graphs.jobs[job],
                summary[job],
                whole[segment],
                graphs.context[segment],
            ],
            1,
        )

    def stage_scores(self, embedded: Tensor) -> Tensor:
        """(S,) scores of the choices."""
        return self.which_score(self.which(embedded))[:, 0]  # type: ignore[no-any-return]

    def number_scores(self, chosen: Tensor, numbers: Options) -> Tensor:
        """(K,) scores of numbers of executors; ``chosen`` (B, H) are the embeddings of the stages they are for."""
        if self.action == "limit":
            chosen = torch.cat([torch.zeros_like(chosen[:, : self._of_stage]), chosen[:, self._of_stage :]], 1)
        mixed = self.many(chosen)[numbers.segment] + self.option(numbers.rows)
        return self.many_score(mixed)[:, 0]  # type: ignore[no-any-return]


def new_net(hidden: int, head: int, seed: int, action: Action = "executors") -> DecimaNet:
    """A new network; the seed decides its weights. One torch thread from now on: the matrices are small."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    return DecimaNet(hidden, head, action)


def blend(slow: DecimaNet, net: DecimaNet, kept: float) -> None:
    """Move ``slow`` towards ``net``: an average over the last 1 / (1 - ``kept``) nets or so, which wavers less."""
    with torch.no_grad():
        for mean, new in zip(slow.parameters(), net.parameters(), strict=True):
            mean.lerp_(new, 1 - kept)


def _joined(parts: list[np.ndarray], offsets: Sequence[int] | None = None) -> np.ndarray:
    """The parts end to end, each with its offset added; not to be written to."""
    if len(parts) == 1:
        return parts[0]
    if offsets is not None:
        parts = [part + offset for part, offset in zip(parts, offsets, strict=True)]
    return np.concatenate(parts)


def _levels(height: np.ndarray, edges: np.ndarray, level: np.ndarray) -> tuple[Level, ...]:
    """Rows and edges by height; both are in its order, and a stage of height 1 or more always has a child."""
    if not len(level):
        return ()
    heights = np.arange(1, level[-1] + 2)
    rows, ends = np.searchsorted(height, heights).tolist(), np.searchsorted(level, heights).tolist()
    parents, children = edges.T
    return tuple(
        Level(begin, end, torch.from_numpy(parents[low:high] - begin), torch.from_numpy(children[low:high]))
        for (begin, end), (low, high) in zip(pairwise(rows), pairwise(ends), strict=True)
        if begin < end
    )


def _indifferent(inputs: int) -> nn.Linear:
    """A last layer that begins by giving 0 to everything."""
    layer = nn.Linear(inputs, 1)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
