"""Bounds of features: where an agent was never trained it is not shown what it cannot know.

A network extrapolates: a task of 100,000 instances, where training had ten at most, gets a score that means nothing.
Values beyond those seen before are taken for the nearest that was. On Alibaba's trace, which they were not trained on,
agents take 0.7 to 0.9 times as long as EFT-wait this way, and almost five times without
(``results/agents/transfer.md``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from dagsim.systems.cluster.codecs.codec import Floats32, Observation
from dagsim.systems.seam import Codec

__all__ = ["BoundsRecorder", "Clipped", "ObservationBounds"]


@dataclass(slots=True)
class ObservationBounds:
    """The min and max of each feature, by the part of the observation; empty at first."""

    parts: dict[str, tuple[Floats32, Floats32]] = field(default_factory=dict)

    def widen(self, observation: Observation) -> None:
        """Take in an observation."""
        for name, values in zip(Observation._fields, observation, strict=True):
            rows = values.reshape(-1, values.shape[-1])
            low, high = rows.min(axis=0), rows.max(axis=0)
            if name in self.parts:
                low, high = np.minimum(low, self.parts[name][0]), np.maximum(high, self.parts[name][1])
            self.parts[name] = low, high

    def clip(self, observation: Observation) -> Observation:
        """The observation with every value within the range of its feature."""
        parts = self.parts
        return Observation(
            *(np.clip(values, *parts[name]) for name, values in zip(observation._fields, observation, strict=True))
        )

    def to_tensors(self) -> dict[str, torch.Tensor]:
        """Per part (2, features): for a file."""
        return {name: torch.from_numpy(np.stack(limits)) for name, limits in self.parts.items()}

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor]) -> ObservationBounds:
        """The inverse of ``to_tensors``."""
        return cls({name: (limits[0].numpy(), limits[1].numpy()) for name, limits in tensors.items()})


class _Wrapped:
    """A codec around another."""

    def __init__(self, codec: Codec, bounds: ObservationBounds) -> None:
        self.codec = codec
        self.bounds = bounds

    def decode(self, view: Any, choice: Any) -> Iterable[Any]:
        return self.codec.decode(view, choice)

    def choice_of(self, decisions: Iterable[Any]) -> Any | None:
        return self.codec.choice_of(decisions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.codec, name)


class BoundsRecorder(_Wrapped):
    """Widens ``bounds`` by all that the codec shows."""

    def encode(self, view: Any) -> Observation | None:
        observation: Observation | None = self.codec.encode(view)
        if observation is not None:
            self.bounds.widen(observation)
        return observation


class Clipped(_Wrapped):
    """Shows nothing beyond ``bounds``."""

    def encode(self, view: Any) -> Observation | None:
        observation: Observation | None = self.codec.encode(view)
        return None if observation is None else self.bounds.clip(observation)
