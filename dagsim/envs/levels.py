"""Action levels: the rows of the candidates that an agent chooses among."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from dagsim.envs.config import Level
from dagsim.model import Decision, Share, Start
from dagsim.systems.cluster.codecs.candidates import Candidates
from dagsim.systems.cluster.codecs.codec import Observation
from dagsim.systems.cluster.view import ClusterView

__all__ = ["Levelled"]


class _Row(NamedTuple):
    row: int
    """The row of the candidates."""
    parallelism: float
    """The share of the waiting instances with room that start."""


class Levelled:
    """The candidates codec with the rows of one action level; one more column, ``parallelism``, tells them apart where
    it is chosen, too."""

    token_features: tuple[str, ...] = (*Candidates.token_features, "parallelism")
    context_features = Candidates.context_features
    gpu_features = Candidates.gpu_features

    def __init__(self, codec: Candidates, level: Level) -> None:
        self.codec = codec
        self.level = level
        self._rows: list[_Row] = []

    def encode(self, view: ClusterView) -> Observation | None:
        """The choices of this level; ``None`` if there is nothing to choose."""
        observation = self.codec.encode(view)
        if observation is None:
            return None
        self._rows = self._chosen()
        picked = [row for row, _ in self._rows]
        if len(observation.tokens) > len(self.codec.rows):
            picked.append(-1)
        tokens = np.zeros((len(picked), len(self.token_features)), np.float32)
        tokens[:, :-1] = observation.tokens if self.level == "task_type" else observation.tokens[picked]
        tokens[: len(self._rows), -1] = [parallelism for _, parallelism in self._rows]
        return Observation(tokens, observation.context, observation.gpus)

    def decode(self, view: ClusterView, choice: int) -> tuple[Decision, ...]:
        """The decision of a row."""
        if choice >= len(self._rows):
            return ()
        row, parallelism = self._rows[choice]
        decisions = self.codec.decode(view, row)
        if parallelism == 1.0 or not decisions:
            return decisions
        (decision,) = decisions
        assert isinstance(decision, Start)
        wanted = max(int(sum(share.instances for share in decision.placement) * parallelism), 1)
        return (Start(decision.task, (Share(decision.placement[0].node, wanted),)),)

    def choice_of(self, decisions: Iterable[Decision]) -> int | None:
        """The row that stands for the first decision, ``None`` if this level has none."""
        row = self.codec.choice_of(decisions)
        if row is None:
            return None
        if row == len(self.codec.rows):
            return len(self._rows)
        return next((place for place, each in enumerate(self._rows) if each == (row, 1.0)), None)

    def _chosen(self) -> list[_Row]:
        rows = self.codec.rows
        if self.level == "task_type":
            return [_Row(row, 1.0) for row in range(len(rows))]
        if self.level == "task_type_par":
            some = [(0.0, 0.5, 1.0) if task.waiting > 2 and not task.demand.gang else (1.0,) for task, _ in rows]
            return [_Row(row, part) for row, parts in enumerate(some) for part in parts]
        best: dict[object, tuple[float, float, int]] = {}
        for row, (task, type_) in enumerate(rows):
            of = task.job if self.level == "job" else task
            key = (-task.rank_s if self.level == "job" else 0.0, task.seconds[type_], row)
            if of not in best or key < best[of]:
                best[of] = key
        return [_Row(row, 1.0) for _, _, row in sorted(best.values(), key=lambda each: each[2])]
