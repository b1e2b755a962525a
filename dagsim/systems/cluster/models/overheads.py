"""Set-up delays and the price of preemption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from dagsim.errors import ModelError
from dagsim.model import Task

__all__ = ["MovingDelay", "Preemption", "Setup"]


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


@dataclass(frozen=True, slots=True)
class Preemption:
    """``on_resume="resume"`` keeps the work done (checkpoint on preemption), ``"restart"`` loses it.

    A run that comes back pays ``restart_s`` plus, if it resumes, ``checkpoint_s_per_gb`` for each GB of its task's
    memory (saving and loading together), as set-up before it computes. ``on_failure`` says the same for runs killed by
    a node's failure, where nothing could be saved in time; the default is to start over. Measured restart costs are 25
    to 250 s per model (Sia, SOSP 2023, artifact).

    Raises:
        ModelError: An unknown mode or a negative cost.
    """

    on_resume: Literal["resume", "restart"] = "resume"
    on_failure: Literal["resume", "restart"] = "restart"
    restart_s: float = 0.0
    checkpoint_s_per_gb: float = 0.0

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        for name in ("on_resume", "on_failure"):
            if getattr(self, name) not in ("resume", "restart"):
                raise ModelError(f"preemption: {name} must be 'resume' or 'restart', got {getattr(self, name)!r}")
        for name in ("restart_s", "checkpoint_s_per_gb"):
            if not getattr(self, name) >= 0:
                raise ModelError(f"preemption: {name} must be 0 or more, got {getattr(self, name)!r}")

    def cost_s(self, memory_gb: float, kept: bool) -> float:
        """Set-up seconds that one instance owes when it comes back."""
        return self.restart_s + (self.checkpoint_s_per_gb * memory_gb if kept else 0.0)
