"""Settings of the nets: plain values, so that reading a configuration does not load torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dagsim.errors import ConfigError
from dagsim.systems.seam import CodecSettings

if TYPE_CHECKING:
    from dagsim.agents.nets.actor import ActorNet

__all__ = [
    "AttentionConfig",
    "DecimaNetConfig",
    "GraphConfig",
    "LinearConfig",
    "MlpConfig",
    "NetSettings",
    "PacMlConfig",
    "ScorerConfig",
]


class NetSettings(Protocol):
    """A net as a configuration names it: a dataclass of its settings."""

    def build(self, codec: CodecSettings) -> ActorNet:
        """Build a new net for the codec's observations. Its weights depend on torch's seed."""
        ...


def _positive(**values: int) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ConfigError(f"net: {name} must be positive, got {value!r}")


@dataclass(frozen=True, slots=True)
class _Net:
    """Settings of every net over rows, including its critic."""

    hidden: int = 64
    """Units of each hidden layer."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _positive(hidden=self.hidden)

    def _sizes(self, codec: CodecSettings) -> Any:
        from dagsim.agents.nets.rows import Sizes

        return Sizes.of(codec, f"net {self.kind!r}")  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class ScorerConfig(_Net):
    """Scores each row from its own features, the mean of all rows, and the context."""

    kind: Literal["scorer"] = "scorer"

    def build(self, codec: CodecSettings) -> ActorNet:
        """Build a new net for the codec's observations."""
        from dagsim.agents.nets.rows import Scorer

        return Scorer(self._sizes(codec), self.hidden)


@dataclass(frozen=True, slots=True)
class AttentionConfig(_Net):
    """Like ``scorer``, but rows also attend to the GPU types."""

    kind: Literal["attention"] = "attention"

    def build(self, codec: CodecSettings) -> ActorNet:
        """Build a new net for the codec's observations."""
        from dagsim.agents.nets.rows import Attention

        return Attention(self._sizes(codec), self.hidden)


@dataclass(frozen=True, slots=True)
class GraphConfig(_Net):
    """Passes messages between rows and the GPU types that they would run on."""

    kind: Literal["graph"] = "graph"

    def build(self, codec: CodecSettings) -> ActorNet:
        """Build a new net for the codec's observations."""
        from dagsim.agents.nets.rows import Graph

        return Graph(self._sizes(codec), self.hidden)


@dataclass(frozen=True, slots=True)
class MlpConfig(_Net):
    """One flat network over the first ``slots`` rows."""

    slots: int = 64
    """Number of rows that it sees. Later rows cannot be chosen."""
    kind: Literal["mlp"] = "mlp"

    def __post_init__(self) -> None:
        _positive(hidden=self.hidden, slots=self.slots)

    def build(self, codec: CodecSettings) -> ActorNet:
        """Build a new net for the codec's observations."""
        from dagsim.agents.nets.rows import Mlp

        return Mlp(self._sizes(codec), self.hidden, self.slots)


@dataclass(frozen=True, slots=True)
class LinearConfig(_Net):
    """One weight per feature. ``hidden`` sets the width of the critic, if there is one."""

    kind: Literal["linear"] = "linear"

    def build(self, codec: CodecSettings) -> ActorNet:
        """Build a new net for the codec's observations."""
        from dagsim.agents.nets.rows import Linear

        return Linear(self._sizes(codec))


@dataclass(frozen=True, slots=True)
class PacMlConfig(_Net):
    """PAC-ML's graph network (Parsonson et al. 2023): two rounds of messages over the job's graph,
    then a score for each row from the graph, the job, the mean of all rows and the row itself.
    """

    message: int = 16
    """Columns of the embeddings of an operation and of a dependency; a message has both."""
    embedding: int = 16
    """Columns of the graph's embedding."""
    job: int = 32
    """Columns of the embedding of the job and the servers (8 in the paper, which shows fewer features)."""
    kind: Literal["pac_ml"] = "pac_ml"

    def __post_init__(self) -> None:
        _positive(hidden=self.hidden, message=self.message, embedding=self.embedding, job=self.job)

    def build(self, codec: CodecSettings) -> ActorNet:
        """Build a new net for the codec's observations.

        Raises:
            ConfigError: The observations have no computation graph.
        """
        from dagsim.agents.nets.pac_ml import PacMl

        sizes, features = self._sizes(codec), codec.features
        if not {"ops", "deps"} <= set(features):
            raise ConfigError(
                f"net 'pac_ml' reads observations with ops and deps; those of {type(codec).__name__} have "
                f"{', '.join(features)}"
            )
        return PacMl(sizes, len(features["ops"]), len(features["deps"]), self)


@dataclass(frozen=True, slots=True)
class DecimaNetConfig:
    """Decima's graph network (Mao et al. 2019): messages up the DAG, summaries, a head that scores
    stages, and a head that scores numbers of executors.
    """

    hidden: int = 16
    """Columns of every embedding."""
    head: int = 32
    """Units of the layers of both heads."""
    kind: Literal["decima"] = "decima"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _positive(hidden=self.hidden, head=self.head)

    def build(self, codec: CodecSettings) -> ActorNet:
        """Build a new net for the codec's observations.

        Raises:
            ConfigError: The codec does not show stages.
        """
        from dagsim.agents.nets.decima import DecimaNet
        from dagsim.systems.spark.codecs import StagesConfig

        if not isinstance(codec, StagesConfig):
            raise ConfigError(f"net 'decima' reads the codec 'stages', not {type(codec).__name__}")
        return DecimaNet(self.hidden, self.head, codec.action)
