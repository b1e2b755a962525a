"""Action levels: the rows of the candidates that an agent chooses among."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct

from dagsim.envs.config import Level
from dagsim.model import Decision, Share, Start
from dagsim.systems.cluster.codecs.candidates import Candidates
from dagsim.systems.cluster.codecs.codec import Observation
from dagsim.systems.cluster.codecs.config import CandidatesConfig
from dagsim.systems.cluster.view import ClusterView

__all__ = ["Levelled"]


class Levelled:
    """The candidates codec with the rows of one action level; one more column, ``parallelism``, tells them apart where
    it is chosen, too."""

    token_features: tuple[str, ...] = (*Candidates.token_features, "parallelism")
    context_features = Candidates.context_features
    gpu_features = Candidates.gpu_features

    def __init__(self, config: CandidatesConfig, level: Level) -> None:
        self.codec = Candidates(config, tail=Struct("f").pack(1.0))
        self.level = level
        self._rows: Sequence[int] = ()
        """The rows of the candidates that can be chosen; not used under ``task_type``, where it is all of them."""
        self._parallelism: Sequence[float] = ()
        """For each the share of the waiting instances with room that start."""

    def encode(self, view: ClusterView) -> Observation | None:
        """The choices of this level; ``None`` if there is nothing to choose."""
        observation = self.codec.encode(view)
        if observation is None or self.level == "task_type":
            return observation
        self._rows, self._parallelism = self._chosen()
        waits = len(observation.tokens) > len(self.codec.rows)
        tokens = observation.tokens[[*self._rows, -1] if waits else self._rows]
        tokens[: len(self._parallelism), -1] = self._parallelism
        return observation._replace(tokens=tokens)

    def decode(self, view: ClusterView, choice: int) -> tuple[Decision, ...]:
        """The decision of a row."""
        if self.level == "task_type":
            return self.codec.decode(view, choice)
        if choice >= len(self._rows):
            return ()
        decisions, parallelism = self.codec.decode(view, self._rows[choice]), self._parallelism[choice]
        if parallelism == 1.0 or not decisions:
            return decisions
        (decision,) = decisions
        assert isinstance(decision, Start)
        wanted = max(int(sum(share.instances for share in decision.placement) * parallelism), 1)
        return (Start(decision.task, (Share(decision.placement[0].node, wanted),)),)

    def choice_of(self, decisions: Iterable[Decision]) -> int | None:
        """The row that stands for the first decision, ``None`` if this level has none."""
        row = self.codec.choice_of(decisions)
        if row is None or self.level == "task_type":
            return row
        if row == len(self.codec.rows):
            return len(self._rows)
        chosen = zip(self._rows, self._parallelism, strict=True)
        return next((place for place, each in enumerate(chosen) if each == (row, 1.0)), None)

    def _chosen(self) -> tuple[Sequence[int], Sequence[float]]:
        rows = self.codec.rows
        if self.level == "task_type_par":
            some = [(0.0, 0.5, 1.0) if task.waiting > 2 and not task.demand.gang else (1.0,) for task, _ in rows]
            picked = [row for row, parts in enumerate(some) for _ in parts]
            return picked, [part for parts in some for part in parts]
        best: dict[object, tuple[float, float, int]] = {}
        for row, (task, type_) in enumerate(rows):
            of = task.job if self.level == "job" else task
            key = (-task.rank_s if self.level == "job" else 0.0, task.seconds[type_], row)
            if of not in best or key < best[of]:
                best[of] = key
        picked = sorted([row for _, _, row in best.values()])
        return picked, [1.0] * len(picked)
