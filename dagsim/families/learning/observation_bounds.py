"""The range of each feature in training, and codecs that record it or clip observations to it.

Features are clipped to the range that they had in training, because networks extrapolate badly. For
example, suppose that no task in training had more than ten instances. A task with 100,000 instances
would then get a meaningless score, so the number is replaced by the nearest bound, ten. This was
measured on Alibaba's trace, on which the agents were not trained. With clipping, their mean
completion time is 0.7 to 0.9 times that of EFT-wait, and without clipping almost five times
(``results/agents/transfer.md``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from dagsim.systems.seam import Codec


@dataclass(slots=True)
class ObservationBounds:
    """The smallest and the largest value of each feature, for each part of the observation. The
    bounds are empty until they are widened."""

    parts: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def widen(self, observation: Any) -> None:
        """Widen the bounds to include an observation."""
        for name, values in zip(observation._fields, observation, strict=True):
            rows = values.reshape(-1, values.shape[-1])
            low, high = rows.min(axis=0), rows.max(axis=0)
            if name in self.parts:
                low, high = np.minimum(low, self.parts[name][0]), np.maximum(high, self.parts[name][1])
            self.parts[name] = low, high

    def clip(self, observation: Any) -> Any:
        """Return the observation with each value clipped to the range of its feature."""
        parts = self.parts
        return type(observation)(
            *(np.clip(values, *parts[name]) for name, values in zip(observation._fields, observation, strict=True))
        )

    def to_tensors(self) -> dict[str, torch.Tensor]:
        """Return one tensor (2, features) per part of the observation, for a file."""
        return {name: torch.from_numpy(np.stack(limits)) for name, limits in self.parts.items()}

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor]) -> ObservationBounds:
        """Rebuild the bounds from the tensors that ``to_tensors`` returned."""
        return cls({name: (limits[0].numpy(), limits[1].numpy()) for name, limits in tensors.items()})


class _Wrapped:
    """The base class of codecs that wrap another codec."""

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
    """Widens ``bounds`` to include every observation that the codec produces."""

    def encode(self, view: Any) -> Any | None:
        observation = self.codec.encode(view)
        if observation is not None:
            self.bounds.widen(observation)
        return observation


class Clipped(_Wrapped):
    """Clips every observation of the codec to ``bounds``, and counts the values that were
    outside."""

    def __init__(self, codec: Codec, bounds: ObservationBounds) -> None:
        super().__init__(codec, bounds)
        self.values = 0
        """Number of values in all observations so far."""
        self.outside = 0
        """Number of those values outside the bounds."""

    def encode(self, view: Any) -> Any | None:
        observation = self.codec.encode(view)
        if observation is None:
            return None
        clipped = self.bounds.clip(observation)
        for seen, inside in zip(observation, clipped, strict=True):
            self.values += seen.size
            self.outside += int(np.count_nonzero(seen != inside))
        return clipped
