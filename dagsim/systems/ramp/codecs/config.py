"""Settings of RAMP's codec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from dagsim.errors import ConfigError

if TYPE_CHECKING:
    from dagsim.systems.ramp.codecs.partition import RampCodec

__all__ = ["PartitionConfig"]


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """A row per degree that can be placed now, after one for turning the job away (Parsonson et al. 2023).

    With ``blocks`` it also chooses where: a row per degree and block of servers, of each degree so many, those that
    leave most room to later jobs. Without, the placer of the scenario chooses the servers.
    """

    blocks: int = 0
    outlooks: bool = True
    """Show what each row comes to by the look-ahead, and leave out those that would be too slow."""
    kind: Literal["partition"] = "partition"

    version: ClassVar[int] = 1

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.blocks < 0:
            raise ConfigError(f"codec: blocks must be 0 or more, got {self.blocks!r}")
        if self.blocks and not self.outlooks:
            raise ConfigError("codec: choosing blocks needs outlooks=true")

    @property
    def features(self) -> dict[str, tuple[str, ...]]:
        """The names of the columns of each part of an observation."""
        from dagsim.systems.ramp.codecs.features import CONTEXT, DEP_FEATURES, OP_FEATURES, ROW_FEATURES, TYPE_FEATURES

        return {
            "tokens": ROW_FEATURES,
            "context": CONTEXT,
            "gpus": TYPE_FEATURES,
            "ops": OP_FEATURES,
            "deps": DEP_FEATURES,
        }

    def build(self) -> RampCodec:
        """A codec for one simulation."""
        from dagsim.systems.ramp.codecs.partition import RampCodec

        return RampCodec(blocks=self.blocks, outlooks=self.outlooks)
