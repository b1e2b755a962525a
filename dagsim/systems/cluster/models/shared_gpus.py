"""The interface for sharing models, which determine how tasks run on the same GPUs."""

from __future__ import annotations

from typing import Protocol

from dagsim.model import Task


class Sharing(Protocol):
    """A sharing model: the rates of two tasks on the same GPUs, relative to their rates when each
    runs alone.
    """

    def pair(self, first: Task, second: Task, gpu: str) -> tuple[float, float] | None:
        """Return the rates of two tasks that share GPUs of a type, or None if the two tasks do not
        fit on these GPUs together.

        Raises:
            ModelError: The model has no entry for the pair.
        """

    def rate(self, task: Task, other: Task, gpu: str, now: float) -> float:
        """Return the current rate of a task that shares its GPUs with another task."""
