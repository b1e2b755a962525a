"""A base class for codecs of your own that add columns to the candidates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dagsim.families.learning.codecs.candidates import Candidates
from dagsim.families.learning.codecs.codec import Observation
from dagsim.model import Decision
from dagsim.systems.cluster.api import ClusterView


@dataclass(frozen=True)
class FurtherColumns:
    """The choices of the codec ``candidates``, with further columns. A subclass lists their names in
    ``names`` and computes them in ``columns``.
    """

    names: ClassVar[tuple[str, ...]] = ()

    def columns(self, view: ClusterView, rows: list[Any]) -> Any:
        """Return the values of ``names`` for each choice. ``rows`` has the task and the GPU type of
        each choice that starts a task. If waiting is allowed, it is an additional choice at the
        end.

        Returns:
            A number or an array that NumPy can broadcast to shape (choices, names).
        """
        raise NotImplementedError

    @property
    def features(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the columns in each part of an observation."""
        tokens = (*Candidates.token_features, *self.names)
        return {"tokens": tokens, "context": Candidates.context_features, "gpus": Candidates.gpu_features}

    def build(self) -> _Further:
        """Build a codec for one simulation."""
        return _Further(self)


class _Further:
    """The codec of ``FurtherColumns``."""

    def __init__(self, settings: FurtherColumns) -> None:
        self._settings = settings
        self._inner = Candidates()
        self.token_features = (*Candidates.token_features, *settings.names)
        self.context_features, self.gpu_features = Candidates.context_features, Candidates.gpu_features

    def __deepcopy__(self, memo: object) -> _Further:
        return _Further(self._settings)

    def fork(self, view: ClusterView) -> _Further:
        """Return the codec for a fork of the simulation."""
        twin = _Further(self._settings)
        twin._inner = self._inner.fork(view)
        return twin

    def encode(self, view: ClusterView) -> Observation | None:
        """Encode the choices. Return ``None`` if no ready task fits."""
        seen = self._inner.encode(view)
        if seen is None:
            return None
        values = np.asarray(self._settings.columns(view, self._inner.rows), np.float32)
        added = np.broadcast_to(values, (len(seen.tokens), len(self._settings.names)))
        return seen._replace(tokens=np.hstack([seen.tokens, added]))

    def decode(self, view: ClusterView, choice: int) -> Iterable[Decision]:
        """Start the task on the type, or wait."""
        return self._inner.decode(view, choice)

    def choice_of(self, decisions: Iterable[Decision]) -> int | None:
        """Return the row that represents the decisions of a heuristic."""
        return self._inner.choice_of(decisions)
