"""Training jobs: a computation graph, how often it is gone through, and how long that may take."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from dagsim.errors import ModelError
from dagsim.systems.ramp.graph import ComputationGraph

__all__ = ["RampJob"]


@dataclass(frozen=True, slots=True)
class RampJob:
    """``steps`` training steps of one graph. ``beta`` is the acceptable fraction of the time one GPU would need.

    Raises:
        ModelError: A negative arrival, no steps, or a ``beta`` that is not above 0.
    """

    id: str
    graph: ComputationGraph
    arrival_s: float = 0.0
    beta: float = 1.0
    steps: int = 50

    def __post_init__(self) -> None:
        if not (isfinite(self.arrival_s) and self.arrival_s >= 0):
            raise ModelError(f"job {self.id!r}: arrival_s must be 0 or more, got {self.arrival_s!r}")
        if self.steps < 1:
            raise ModelError(f"job {self.id!r}: steps must be at least 1, got {self.steps!r}")
        if not (isfinite(self.beta) and self.beta > 0):
            raise ModelError(f"job {self.id!r}: beta must be above 0, got {self.beta!r}")

    @property
    def sequential_s(self) -> float:
        """Time on one GPU of the profiled type: every operation after the other."""
        return self.steps * self.graph.step_s

    @property
    def acceptable_s(self) -> float:
        """The longest completion time that is accepted."""
        return self.beta * self.sequential_s
