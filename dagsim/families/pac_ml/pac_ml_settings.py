"""Settings for PAC-ML's network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dagsim.errors import ConfigError
from dagsim.families.learning.nets.net_settings import RowNetSettings, positive

if TYPE_CHECKING:
    from dagsim.families.learning.nets.actor import ActorNet
    from dagsim.systems.seam import CodecSettings


@dataclass(frozen=True, slots=True)
class PacMlConfig(RowNetSettings):
    """PAC-ML's graph network (Parsonson et al. 2023). After two rounds of messages over the job's
    graph, the network computes a score for each row from four inputs: the graph, the job, the mean
    of all rows, and the row itself.
    """

    message: int = 16
    """Size of the embeddings of an operation and of a dependency. A message consists of one
    embedding of each.
    """
    embedding: int = 16
    """Size of the graph's embedding."""
    job: int = 32
    """Size of the embedding of the job and the servers. In the paper, which has fewer features, it
    is 8.
    """
    kind: Literal["pac_ml"] = "pac_ml"

    def __post_init__(self) -> None:
        positive(hidden=self.hidden, message=self.message, embedding=self.embedding, job=self.job)

    def build(self, codec: CodecSettings) -> ActorNet:
        """Build a new network for the codec's observations.

        Raises:
            ConfigError: The observations have no computation graph.
        """
        from dagsim.families.pac_ml.pac_ml_net import PacMl

        sizes, features = self.sizes(codec), codec.features
        if not {"ops", "deps"} <= set(features):
            raise ConfigError(
                "net 'pac_ml' reads observations with the fields ops and deps, but "
                f"{type(codec).__name__} writes {', '.join(features)}"
            )
        return PacMl(sizes, len(features["ops"]), len(features["deps"]), self)
