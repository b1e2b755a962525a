"""Settings of neural networks as plain values, so that reading a configuration does not require
torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dagsim.errors import ConfigError
from dagsim.systems.seam import CodecSettings

if TYPE_CHECKING:
    from dagsim.families.learning.nets.actor import ActorNet


class NetSettings(Protocol):
    """A network in a configuration: a dataclass with its settings."""

    def build(self, codec: CodecSettings) -> ActorNet:
        """Build a new network for the codec's observations. Its weights depend on torch's seed."""


def positive(**values: int) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ConfigError(f"net: {name} must be positive, got {value!r}")


@dataclass(frozen=True, slots=True)
class RowNetSettings:
    """Settings shared by all networks over rows, including their critics."""

    hidden: int = 64
    """Number of units in each hidden layer."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        positive(hidden=self.hidden)

    def sizes(self, codec: CodecSettings) -> Any:
        from dagsim.families.learning.nets.row_nets import Sizes

        return Sizes.of(codec, f"net {self.kind!r}")  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class ScorerConfig(RowNetSettings):
    """A network that scores each row from the row's features, the mean of all rows, and the
    context.
    """

    kind: Literal["scorer"] = "scorer"

    def build(self, codec: CodecSettings) -> ActorNet:
        """Build a new network for the codec's observations."""
        from dagsim.families.learning.nets.row_nets import Scorer

        return Scorer(self.sizes(codec), self.hidden)


@dataclass(frozen=True, slots=True)
class AttentionConfig(RowNetSettings):
    """Like ``scorer``, but each row also uses attention over the GPU types."""

    kind: Literal["attention"] = "attention"

    def build(self, codec: CodecSettings) -> ActorNet:
        """Build a new network for the codec's observations."""
        from dagsim.families.learning.nets.row_nets import Attention

        return Attention(self.sizes(codec), self.hidden)


@dataclass(frozen=True, slots=True)
class GraphConfig(RowNetSettings):
    """A graph network that passes messages between each row and the GPU types on which the row's
    task could run.
    """

    kind: Literal["graph"] = "graph"

    def build(self, codec: CodecSettings) -> ActorNet:
        """Build a new network for the codec's observations."""
        from dagsim.families.learning.nets.row_nets import Graph

        return Graph(self.sizes(codec), self.hidden)


@dataclass(frozen=True, slots=True)
class MlpConfig(RowNetSettings):
    """One multilayer perceptron that reads the first ``slots`` rows together."""

    slots: int = 64
    """Number of rows that the network reads. Rows after these cannot be chosen."""
    kind: Literal["mlp"] = "mlp"

    def __post_init__(self) -> None:
        positive(hidden=self.hidden, slots=self.slots)

    def build(self, codec: CodecSettings) -> ActorNet:
        """Build a new network for the codec's observations."""
        from dagsim.families.learning.nets.row_nets import Mlp

        return Mlp(self.sizes(codec), self.hidden, self.slots)


@dataclass(frozen=True, slots=True)
class LinearConfig(RowNetSettings):
    """One weight per feature. If there is a critic, ``hidden`` sets the width of its layers."""

    kind: Literal["linear"] = "linear"

    def build(self, codec: CodecSettings) -> ActorNet:
        """Build a new network for the codec's observations."""
        from dagsim.families.learning.nets.row_nets import Linear

        return Linear(self.sizes(codec))
