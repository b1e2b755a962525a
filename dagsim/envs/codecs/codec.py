"""The seam between kernel and networks: what a codec gives and takes."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from dagsim.model import Decision
from dagsim.systems.cluster.api import ClusterView

__all__ = ["Codec", "Floats32", "Observation"]

Floats32 = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


class Observation(NamedTuple):
    """What there is to choose from now, and the state around it."""

    tokens: Floats32
    """(n, F) float32: one row per choice; where waiting is allowed it is the last."""
    context: Floats32
    """(C,) float32: the state of queue and cluster."""
    gpus: Floats32
    """(g, D) float32: one row per GPU type."""


class Codec(Protocol):
    """Translates for one simulation, which it may keep state about."""

    token_features: tuple[str, ...]
    """Names of the F columns of ``Observation.tokens``."""
    context_features: tuple[str, ...]
    """Names of the C entries of ``Observation.context``."""
    gpu_features: tuple[str, ...]
    """Names of the D columns of ``Observation.gpus``."""

    def encode(self, view: ClusterView) -> Observation | None:
        """What to choose from; ``None`` where nothing can be done but wait."""
        ...

    def decode(self, view: ClusterView, choice: int) -> Decision | None:
        """The decision that row ``choice`` of the last observation stands for; ``None`` is to wait for a change."""
        ...
