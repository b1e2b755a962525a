"""The work that a preempted run keeps, and the cost of coming back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dagsim.errors import ModelError

__all__ = ["Preemption"]


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
