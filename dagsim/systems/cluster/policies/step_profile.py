"""The free amount of a resource over time, as a step function."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf


class StepProfile:
    """A step function of time. From ``times[i]`` onwards, ``free[i]`` GPUs (or units of another
    resource) are free.
    """

    def __init__(self, now: float, free: float) -> None:
        self.times = [now]
        self.free = [free]

    def release(self, time: float, gpus: float) -> None:
        """Increase the number of free GPUs by ``gpus`` from ``time`` on."""
        for place in range(self._cut(max(time, self.times[0])), len(self.free)):
            self.free[place] += gpus

    def take(self, start: float, end: float, gpus: float) -> None:
        """Reduce the number of free GPUs by ``gpus`` from ``start`` to ``end``."""
        first, last = self._cut(start), self._cut(end) if end < inf else len(self.free)
        for place in range(first, last):
            self.free[place] -= gpus

    def earliest(self, gpus: float, seconds: float, after: float = -inf) -> float:
        """Return the first time, not before ``after``, from which ``gpus`` GPUs are free for
        ``seconds``, or ``inf`` if there is no such time. The cost is O(steps).
        """
        start, times = max(self.times[0], after), self.times
        for place, free in enumerate(self.free):
            ends = times[place + 1] if place + 1 < len(times) else inf
            if ends <= start:
                continue
            if free + 1e-9 < gpus:
                start = ends
            elif start + seconds <= ends:
                return start
        return inf

    def at(self, time: float) -> float:
        """Return the number of GPUs that are free at a time."""
        return self.free[max(bisect_right(self.times, time) - 1, 0)]

    def least(self, start: float, end: float) -> float:
        """Return the smallest number of GPUs that are free at a time from ``start`` to ``end``."""
        first = max(bisect_right(self.times, start) - 1, 0)
        return min(self.free[first : max(bisect_left(self.times, end), first + 1)])

    def forget(self, now: float) -> None:
        """Drop the steps that end before ``now``."""
        gone = bisect_right(self.times, now) - 1
        if gone > 0:
            del self.times[:gone], self.free[:gone]
        self.times[0] = max(self.times[0], now)

    def _cut(self, time: float) -> int:
        """Return the index of the step that begins at ``time``, inserting it if necessary."""
        place = bisect_left(self.times, time)
        if place == len(self.times) or self.times[place] != time:
            self.times.insert(place, time)
            self.free.insert(place, self.free[place - 1])
        return place
