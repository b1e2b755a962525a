"""Observations of the GPU cluster, and the codecs that make them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np

from dagsim.model import Decision
from dagsim.systems.cluster.api import ClusterView

__all__ = ["ClusterCodec", "Floats32", "Observation"]

Floats32 = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


class Observation(NamedTuple):
    """The choices of the present, and the state around them."""

    tokens: Floats32
    """(n, F) float32: one row per choice; where waiting is allowed it is the last."""
    context: Floats32
    """(C,) float32: the state of queue and cluster."""
    gpus: Floats32
    """(g, D) float32: one row per GPU type."""

    @property
    def is_forced(self) -> bool:
        """There is one choice only."""
        return len(self.tokens) <= 1


class ClusterCodec(Protocol):
    """Translates for one simulation, which it may keep state about."""

    token_features: tuple[str, ...]
    """Names of the F columns of ``Observation.tokens``."""
    context_features: tuple[str, ...]
    """Names of the C entries of ``Observation.context``."""
    gpu_features: tuple[str, ...]
    """Names of the D columns of ``Observation.gpus``."""

    def encode(self, view: ClusterView) -> Observation | None:
        """The choices; ``None`` where nothing can be done but wait."""
        ...

    def decode(self, view: ClusterView, choice: int) -> Iterable[Decision]:
        """The decisions that row ``choice`` of the last observation stands for; none is to wait for a change."""
        ...

    def choice_of(self, decisions: Iterable[Decision]) -> int | None:
        """The row of the last observation that stands for a heuristic's decisions; ``None`` if there is none."""
        ...
