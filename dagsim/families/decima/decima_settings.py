"""Settings for Decima's network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dagsim.errors import ConfigError
from dagsim.families.learning.nets.net_settings import positive

if TYPE_CHECKING:
    from dagsim.families.learning.nets.actor import ActorNet
    from dagsim.systems.seam import CodecSettings


@dataclass(frozen=True, slots=True)
class DecimaNetConfig:
    """Decima's graph network (Mao et al. 2019). Messages pass up the DAG and are summarised for
    each job and for the whole system. One head scores the stages, and another scores the numbers of
    executors.
    """

    hidden: int = 16
    """Size of every embedding vector."""
    head: int = 32
    """Number of units in each layer of both heads."""
    kind: Literal["decima"] = "decima"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        positive(hidden=self.hidden, head=self.head)

    def build(self, codec: CodecSettings) -> ActorNet:
        """Build a new network for the codec's observations.

        Raises:
            ConfigError: The codec's observations do not contain stages.
        """
        from dagsim.families.decima.decima_net import DecimaNet
        from dagsim.families.spark.codecs import StagesConfig

        if not isinstance(codec, StagesConfig):
            raise ConfigError(
                f"net 'decima' works only with the codec 'stages', not with {getattr(codec, 'kind', codec)!r}"
            )
        return DecimaNet(self.hidden, self.head, codec.action)
