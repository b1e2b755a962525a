"""A profile of the GPUs of a type that are expected to be free over time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf

__all__ = ["Profile"]


class Profile:
    """A step function of time: from ``times[i]`` on ``free[i]`` GPUs are free."""

    def __init__(self, now: float, free: float) -> None:
        self.times = [now]
        self.free = [free]

    def release(self, time: float, gpus: float) -> None:
        """From ``time`` on ``gpus`` more are free."""
        for place in range(self._cut(max(time, self.times[0])), len(self.free)):
            self.free[place] += gpus

    def take(self, start: float, end: float, gpus: float) -> None:
        """Between the two times ``gpus`` fewer are free."""
        first, last = self._cut(start), self._cut(end) if end < inf else len(self.free)
        for place in range(first, last):
            self.free[place] -= gpus

    def earliest(self, gpus: float, seconds: float) -> float:
        """The first time from which ``gpus`` are free for ``seconds``; ``inf`` if they never are. O(steps)."""
        start, times = self.times[0], self.times
        for place, free in enumerate(self.free):
            if free + 1e-9 < gpus:
                start = times[place + 1] if place + 1 < len(times) else inf
            elif start + seconds <= (times[place + 1] if place + 1 < len(times) else inf):
                return start
        return inf

    def forget(self, now: float) -> None:
        """Drop what lies before ``now``."""
        gone = bisect_right(self.times, now) - 1
        if gone > 0:
            del self.times[:gone], self.free[:gone]
        self.times[0] = max(self.times[0], now)

    def _cut(self, time: float) -> int:
        """The place of the step that begins at ``time``, made if there is none."""
        place = bisect_left(self.times, time)
        if place == len(self.times) or self.times[place] != time:
            self.times.insert(place, time)
            self.free.insert(place, self.free[place - 1])
        return place
