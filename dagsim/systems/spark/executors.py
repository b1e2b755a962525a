"""The executors of a Spark cluster: how many, and how fast."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from dagsim.errors import ModelError

__all__ = ["ExecutorType", "executor_types"]


@dataclass(frozen=True, slots=True)
class ExecutorType:
    """``count`` executors on one kind of machine; ``speed`` 2 halves every task's duration.

    Raises:
        ModelError: A count below 1, or a speed that is not positive.
    """

    name: str
    count: int
    speed: float = 1.0

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ModelError(f"executor type {self.name!r}: count must be at least 1, got {self.count!r}")
        if not 0 < self.speed < inf:
            raise ModelError(f"executor type {self.name!r}: speed must be positive, got {self.speed!r}")


def executor_types(executors: int | tuple[ExecutorType, ...]) -> tuple[ExecutorType, ...]:
    """Types as given, or one type of so many executors."""
    return (ExecutorType("executor", executors),) if isinstance(executors, int) else executors
