"""What features an agent has seen, so that where it was never trained it is not shown what it cannot know.

A network extrapolates: a task of 100,000 instances, where training had ten at most, gets a score that means nothing.
Values beyond those seen are taken for the nearest that was. On Alibaba's trace, which they were not trained on, agents
take 0.7 to 0.9 times as long as EFT-wait this way, and almost five times without (``results/agents/transfer.md``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from dagsim.model import Decision
from dagsim.systems.cluster.codecs.codec import Codec, Floats32, Observation
from dagsim.systems.cluster.view import ClusterView

__all__ = ["Ranges", "Watched", "Within"]


@dataclass(slots=True)
class Ranges:
    """The least and the largest value of each feature, by the part of the observation; empty at first."""

    parts: dict[str, tuple[Floats32, Floats32]] = field(default_factory=dict)

    def widen(self, seen: Observation) -> None:
        """Take in an observation."""
        for name, values in zip(Observation._fields, seen, strict=True):
            rows = values.reshape(-1, values.shape[-1])
            low, high = rows.min(axis=0), rows.max(axis=0)
            if name in self.parts:
                low, high = np.minimum(low, self.parts[name][0]), np.maximum(high, self.parts[name][1])
            self.parts[name] = low, high

    def clip(self, seen: Observation) -> Observation:
        """The observation with every value within the range of its feature."""
        parts = self.parts
        return Observation(*(np.clip(values, *parts[name]) for name, values in zip(seen._fields, seen, strict=True)))

    def to_tensors(self) -> dict[str, torch.Tensor]:
        """Per part (2, features): for a file."""
        return {name: torch.from_numpy(np.stack(limits)) for name, limits in self.parts.items()}

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor]) -> Ranges:
        """What ``to_tensors`` gave."""
        return cls({name: (limits[0].numpy(), limits[1].numpy()) for name, limits in tensors.items()})


class _Wrapped:
    """A codec around another."""

    def __init__(self, codec: Codec, ranges: Ranges) -> None:
        self.codec = codec
        self.ranges = ranges
        self.token_features = codec.token_features
        self.context_features = codec.context_features
        self.gpu_features = codec.gpu_features

    def decode(self, view: ClusterView, choice: int) -> Decision | None:
        return self.codec.decode(view, choice)


class Watched(_Wrapped):
    """Widens ``ranges`` by all that the codec shows."""

    def encode(self, view: ClusterView) -> Observation | None:
        seen = self.codec.encode(view)
        if seen is not None:
            self.ranges.widen(seen)
        return seen


class Within(_Wrapped):
    """Shows nothing beyond ``ranges``."""

    def encode(self, view: ClusterView) -> Observation | None:
        seen = self.codec.encode(view)
        return None if seen is None else self.ranges.clip(seen)
