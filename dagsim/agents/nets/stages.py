"""Batches of stage graphs: many observations of Decima's codec as one graph, and the numbers that a stage can get."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dagsim.systems.spark.codecs import OPTION, StageObservation, option_rows

__all__ = ["Graphs", "Level", "Options", "StageBatch", "StageStore", "collate", "options"]


_ADDED = np.array([name in ("added", "log added", "all that can go") for name in OPTION])
"""Options that are about the stage, not about its job."""


class Level(NamedTuple):
    """Stages of one height, rows ``begin`` to ``end`` - 1, and the E edges to their children."""

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


def collate(observations: Sequence[StageObservation]) -> Graphs:
    """All observations as one batch. O(their size)."""
    counts = np.array([(len(each.stages), len(each.jobs), len(each.choices)) for each in observations])
    begins = np.cumsum(counts, axis=0) - counts
    stage_at, job_at = begins[:, 0].tolist(), begins[:, 1].tolist()
    numbers = np.arange(len(observations))
    height = _joined([each.height for each in observations])
    job = _joined([each.job for each in observations], job_at)
    edges, level = (
        _joined([each.edges for each in observations], stage_at),
        _joined([each.level for each in observations]),
    )
    if len(observations) > 1:
        by_level = np.argsort(level, kind="stable")
        edges, level = edges[by_level], level[by_level]
    order = np.argsort(height, kind="stable")
    row = np.empty_like(order)
    row[order] = np.arange(len(order))
    return Graphs(
        torch.from_numpy(_joined([each.stages for each in observations])[order]),
        torch.from_numpy(_joined([each.jobs for each in observations])),
        torch.from_numpy(np.stack([each.context for each in observations])),
        torch.from_numpy(job[order]),
        torch.from_numpy(np.repeat(numbers, counts[:, 1])),
        _levels(height[order], row[edges], level),
        torch.from_numpy(row[_joined([each.choices for each in observations], stage_at)]),
        torch.from_numpy(np.repeat(numbers, counts[:, 2])),
        torch.from_numpy(begins[:, 2].copy()),
    )


def options(observations: Sequence[StageObservation], chosen: np.ndarray) -> Options:
    """Every number of executors that the stages ``chosen`` (B,), counted among the choices, can be given; of a limit
    only what it means for the job is shown."""
    picked = list(zip(observations, chosen.tolist(), strict=True))
    most = np.array([each.most[at] for each, at in picked])
    segment = np.repeat(np.arange(len(most)), most)
    first = np.cumsum(most) - most
    rows = option_rows(
        np.arange(len(segment)) - first[segment] + 1,
        most[segment],
        np.array([each.has[at] for each, at in picked])[segment],
        np.stack([each.shares[at] for each, at in picked])[segment],
        np.array([each.work_s[at] for each, at in picked])[segment],
        np.array([each.executors for each in observations])[segment],
    )
    if observations[0].action == "limit":
        rows[:, _ADDED] = 0.0
    return Options(torch.from_numpy(rows), torch.from_numpy(segment), torch.from_numpy(first))


class StageBatch(NamedTuple):
    """Observations, and the graph that they are together."""

    observations: Sequence[StageObservation]
    graphs: Graphs

    @classmethod
    def of(cls, observations: Sequence[StageObservation]) -> StageBatch:
        """All of them as one batch."""
        return cls(observations, collate(observations))

    @property
    def size(self) -> int:
        """Observations in the batch."""
        return len(self.observations)


class StageStore:
    """Observations that batches are taken from."""

    def __init__(self, observations: Sequence[StageObservation]) -> None:
        self._observations = observations
        self.is_free = np.array([bool(each.most.sum() > 1) for each in observations], bool)

    def __len__(self) -> int:
        return len(self._observations)

    def batch(self, picked: np.ndarray) -> StageBatch:
        """The observations numbered ``picked`` (B,)."""
        return StageBatch.of([self._observations[at] for at in picked])


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
