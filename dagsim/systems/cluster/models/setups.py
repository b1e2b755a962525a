"""Set-up models: the delay before a run computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from dagsim.errors import ModelError
from dagsim.model import Task


class Setup(Protocol):
    """The interface for set-up models."""

    def seconds(self, task: Task, job: int, previous: tuple[int, ...]) -> float:
        """Return the seconds of set-up before a run of ``task`` computes. ``previous`` contains,
        for each GPU of the run, the number of the job that used it last, or -1 if none did.
        """


@dataclass(frozen=True, slots=True)
class MovingDelay:
    """A delay whenever a GPU switches to another job and has to load its images, weights and data.

    Spark executors that move between jobs need about 2 s (Mao et al., SIGCOMM 2019).
    """

    delay_s: float = 2.0
    """The delay in seconds whenever a GPU switches to another job."""
    first: bool = True
    """True if the first job on each GPU is delayed as well."""
    kind: Literal["moving_delay"] = "moving_delay"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not self.delay_s >= 0:
            raise ModelError(f"moving delay: delay_s must be 0 or more, got {self.delay_s!r}")

    def seconds(self, task: Task, job: int, previous: tuple[int, ...]) -> float:
        """Return ``delay_s`` if any GPU of the run was last used by another job, otherwise 0."""
        for last in previous:
            if last != job and (last >= 0 or self.first):
                return self.delay_s
        return 0.0
