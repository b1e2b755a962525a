"""A base class for codecs of your own that add columns to the candidates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dagsim.errors import ConfigError
from dagsim.families.learning.codecs.candidates import Candidates
from dagsim.families.learning.codecs.codec import Observation
from dagsim.model import Decision
from dagsim.systems.cluster.api import ClusterView


@dataclass(frozen=True)
class FurtherColumns:
    """The choices of the codec ``candidates``, with additional columns. A subclass lists their
    names in ``names`` and computes them in ``columns``. The compiled engine supports only
    subclasses of ``DerivedColumns``."""

    names: ClassVar[tuple[str, ...]] = ()

    def columns(self, view: ClusterView, rows: list[Any]) -> Any:
        """Return the values of ``names`` for each choice. ``rows`` contains the task and the GPU
        type of each choice that starts a task. If waiting is allowed, it is an additional choice at
        the end.

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

    def added(self, view: ClusterView, rows: list[Any], seen: Observation) -> Any:
        """Return the values of ``names`` for the choices of one observation."""
        return self.columns(view, rows)


@dataclass(frozen=True)
class DerivedColumns(FurtherColumns):
    """Additional columns that are computed from columns of the codec ``candidates``. ``derive``
    computes them for the choices of all episodes together, so the compiled engine supports them.

    ``of`` names the columns that ``derive`` receives: features of the choice, or of the state of the
    system. ``derive`` must not keep any state.

        class Areas(DerivedColumns):
            names = ("area_per_work",)
            of = ("log_area", "work")

            def derive(self, log_area, work):
                return log_area / (1 + work)

    Raises:
        ConfigError: ``of`` contains an unknown name or is empty.
    """

    of: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        features = (*Candidates.token_features, *Candidates.context_features)
        if wrong := [name for name in self.of if name not in features]:
            raise ConfigError(f"{type(self).__name__}: of: {wrong[0]!r} is not one of {', '.join(features)}")
        if not self.of:
            raise ConfigError(f"{type(self).__name__}: of: name at least one of {', '.join(features)}")

    def derive(self, **columns: np.ndarray) -> Any:
        """Compute the values of ``names`` from the columns ``of``, each of shape (choices,). Shape
        (choices,) or (choices, names).
        """
        raise NotImplementedError

    def added(self, view: ClusterView, rows: list[Any], seen: Observation) -> np.ndarray:
        """Return the values of ``names`` for the choices of one observation."""
        return self.of_rows(seen.tokens, seen.context[None], np.zeros(len(seen.tokens), np.int64))

    def of_rows(self, tokens: np.ndarray, context: np.ndarray, owners: np.ndarray) -> np.ndarray:
        """Return the values for the rows ``tokens`` (rows, F) of several observations. Shape (rows,
        names), float32. ``context`` is (observations, C), and ``owners`` contains the observation
        of each row.

        Raises:
            ConfigError: ``derive`` does not return one value, or one for each name, per row.
        """
        places = {name: at for at, name in enumerate(Candidates.context_features)}
        columns = {name: context[owners, at] for name, at in places.items() if name in self.of}
        places = {name: at for at, name in enumerate(Candidates.token_features)}
        columns |= {name: tokens[:, at].copy() for name, at in places.items() if name in self.of}
        values = np.asarray(self.derive(**columns), np.float32)
        shape = (len(tokens), len(self.names))
        if values.shape not in (shape, shape[:1]) or (values.ndim == 1 and shape[1] != 1):
            raise ConfigError(f"{type(self).__name__}: derive must return shape {shape}, got {values.shape}")
        return values.reshape(shape)


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
        values = np.asarray(self._settings.added(view, self._inner.rows, seen), np.float32)
        added = np.broadcast_to(values, (len(seen.tokens), len(self._settings.names)))
        return seen._replace(tokens=np.hstack([seen.tokens, added]))

    def decode(self, view: ClusterView, choice: int) -> Iterable[Decision]:
        """Start the task on the type, or wait."""
        return self._inner.decode(view, choice)

    def choice_of(self, decisions: Iterable[Decision]) -> int | None:
        """Return the row that represents the decisions of a heuristic."""
        return self._inner.choice_of(decisions)
