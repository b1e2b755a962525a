"""Set-up: time a run spends on its GPUs before it computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from dagsim.errors import ModelError
from dagsim.model import Task

__all__ = ["MovingDelay", "Setup"]


class Setup(Protocol):
    """The seam where set-up costs attach."""

    def seconds(self, task: Task, job: int, previous: tuple[int, ...]) -> float:
        """Seconds before a run of ``task`` computes. ``previous`` holds the job number that each GPU the run now holds
        served last, -1 for none."""
        ...


@dataclass(frozen=True, slots=True)
class MovingDelay:
    """``delay_s`` whenever a GPU changes jobs (its first job included if ``first``): loading images, weights and data.

    Spark executors that move between jobs pay about 2 s (Mao et al., SIGCOMM 2019).
    """

    delay_s: float = 2.0
    first: bool = True
    kind: Literal["moving_delay"] = "moving_delay"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not self.delay_s >= 0:
            raise ModelError(f"moving delay: delay_s must be 0 or more, got {self.delay_s!r}")

    def seconds(self, task: Task, job: int, previous: tuple[int, ...]) -> float:
        """``delay_s`` if any GPU of the run served another job last."""
        for last in previous:
            if last != job and (last >= 0 or self.first):
                return self.delay_s
        return 0.0
