"""Parts that nets share: the widths that they read, means over rows, and indifferent last layers."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from dagsim.agents.ragged import ObservationBatch, segment_mean
from dagsim.errors import ConfigError
from dagsim.systems.seam import CodecSettings

__all__ = ["Sizes", "indifferent", "mean_rows"]


class Sizes(NamedTuple):
    """Columns of the observations that a net reads."""

    tokens: int
    context: int
    gpus: int

    @classmethod
    def of(cls, codec: CodecSettings, reader: str) -> Sizes:
        """Those of the codec's observations.

        Raises:
            ConfigError: They have other parts than a net over rows reads.
        """
        features = codec.features
        if not set(cls._fields) <= set(features):
            raise ConfigError(
                f"{reader} reads observations with {', '.join(cls._fields)}; those of {type(codec).__name__} have "
                f"{', '.join(features)}"
            )
        return cls(*(len(features[name]) for name in cls._fields))


def mean_rows(rows: Tensor, batch: ObservationBatch) -> Tensor:
    """(B, H) the mean of the rows (N, H) of each observation."""
    return segment_mean(rows, batch.segment, batch.size)


def indifferent(inputs: int, outputs: int = 1) -> nn.Linear:
    """A last layer that begins by giving 0 to everything."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
