"""Settings of the codecs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from dagsim.errors import ConfigError

if TYPE_CHECKING:
    from dagsim.systems.cluster.codecs.candidates import Candidates

__all__ = ["CandidatesConfig", "LookAhead", "Select"]

LookAhead = Literal["off", "per_gpu", "sorted", "cdf"]
Select = Literal["heads", "oldest", "mixed"]


@dataclass(frozen=True, slots=True)
class CandidatesConfig:
    """Settings: the tasks that can be chosen, and their features.

    ``select`` is ``heads`` for the first of each group of tasks that are alike, ``oldest`` for the ``window`` tasks
    that have been ready longest, ``mixed`` for half of those and as many of the shortest, so that none grows stale
    unseen.

    ``look_ahead`` says how the expected ends of what runs are shown, always in the same columns: ``off`` not at all
    (the columns are 0), ``sorted`` as the time until 1, 2, 4 and 8 GPUs of the type are idle, ``per_gpu`` as the ends
    of the four runs that started first, ``cdf`` as the share of the type that is idle within 1, 5, 15 and 60 minutes.
    """

    look_ahead: LookAhead = "sorted"
    select: Select = "heads"
    window: int = 32
    """Tasks that ``oldest`` and ``mixed`` look at."""
    placement: str = "best-fit"
    """Where on a type tasks go: one of ``dagsim list placements``."""
    kind: Literal["candidates"] = "candidates"

    version: ClassVar[int] = 1
    bounded: ClassVar[bool] = True
    """Agents note the bounds of its features, and see nothing beyond them."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.look_ahead not in ("off", "per_gpu", "sorted", "cdf"):
            raise ConfigError(f"codec: look_ahead must be off, per_gpu, sorted or cdf, got {self.look_ahead!r}")
        if self.select not in ("heads", "oldest", "mixed"):
            raise ConfigError(f"codec: select must be heads, oldest or mixed, got {self.select!r}")
        if not self.window >= 2:
            raise ConfigError(f"codec: window must be 2 or more, got {self.window!r}")

    @property
    def features(self) -> dict[str, tuple[str, ...]]:
        """The names of the columns of each part of an observation."""
        from dagsim.systems.cluster.codecs.candidates import Candidates

        return {
            "tokens": Candidates.token_features,
            "context": Candidates.context_features,
            "gpus": Candidates.gpu_features,
        }

    def build(self) -> Candidates:
        """A codec for one simulation."""
        from dagsim.systems.cluster.codecs.candidates import Candidates

        return Candidates(self)
