"""Events folded into the life of a task, as both Google traces tell it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Attempts", "Event"]


class Event(Enum):
    """The meaning of an event for a task or a machine."""

    SUBMIT = "S"
    """It waits to be scheduled; a machine joins."""
    SCHEDULE = "R"
    """It begins to run."""
    END = "E"
    """It is evicted, fails, finishes, is killed or lost; a machine leaves."""
    UPDATE = "U"
    """Its demand or capacity changes, or it moves from queue to queue."""


@dataclass(slots=True)
class Attempts:
    """The life of one task: it may run many times before it stays dead, each time from the beginning."""

    rows: int = 0
    attempts: int = 0
    last_s: float = 0.0
    """How long the last finished attempt ran."""
    total_s: float = 0.0
    """How long all finished attempts ran together."""
    running_since: float | None = None
    alive: bool = False
    """It waits or runs at the end of what was read."""
    headless: bool = False
    """Its first event is an end: it began before what was read."""

    def take(self, event: Event, time_s: float) -> None:
        """The next event in order of time."""
        self.rows += 1
        if event is Event.SUBMIT:
            self.alive = True
        elif event is Event.SCHEDULE:
            self.alive = True
            self.attempts += 1
            self.running_since = time_s
        elif event is Event.END:
            self.headless = self.headless or self.rows == 1
            self._end(time_s)

    def cut(self, time_s: float) -> None:
        """End it where the trace ends."""
        self._end(time_s)

    def _end(self, time_s: float) -> None:
        self.alive = False
        if self.running_since is not None:
            self.last_s = max(0.0, time_s - self.running_since)
            self.total_s += self.last_s
            self.running_since = None
