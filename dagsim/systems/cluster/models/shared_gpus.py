"""The interface for sharing, which lets tasks use the same GPUs."""

from __future__ import annotations

from typing import Protocol

from dagsim.model import Task


class Sharing(Protocol):
    """The interface for sharing: the rates of two tasks on the same GPUs, relative to their rates
    alone."""

    def pair(self, first: Task, second: Task, gpu: str) -> tuple[float, float] | None:
        """Return the rate of each of two tasks on a GPU type; None if they do not fit together.

        Raises:
            ModelError: Nothing is known about the pair.
        """
        ...

    def rate(self, task: Task, other: Task, gpu: str, now: float) -> float:
        """Return the current rate of a task beside another."""
        ...
