"""Job arrays with a limit on how many of their tasks are in the system at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from math import inf

from dagsim.systems.cluster.forks import COPIED, Forked
from dagsim.systems.cluster.state import JobState


class ArrayLimits(Forked):
    """The tasks of job arrays, of which some are in the system and others wait for the limit of their
    array (``Request.array_limit``). All attributes are plain data.
    """

    __slots__ = {
        "_array_of": COPIED,
        "_at_work": COPIED,
        "_behind": COPIED,
        "_full_until_s": COPIED,
        "_inside": COPIED,
        "_limits": COPIED,
        "_queued_s": COPIED,
    }

    def __init__(self) -> None:
        self._inside: dict[str, int] = {}
        """Number of tasks of each array that are in the system and not waiting for the limit of the array."""
        self._behind: dict[str, deque[int]] = {}
        """The tasks of each array that are waiting for its limit, and some that have left since."""
        self._array_of: dict[int, str] = {}
        """The array of each task that is inside."""
        self._queued_s: dict[int, float] = {}
        """For each task of an array, the time from which nothing but the array's limit could prevent its start."""
        self._at_work: dict[str, int] = {}
        """Number of tasks of each array that have started and not left."""
        self._limits: dict[str, int] = {}
        """Maximum number of tasks of each array that may run at a time."""
        self._full_until_s: dict[str, float] = {}
        """For each array, the last time at which as many of its tasks were running as its limit allows."""

    def joins(self, active: JobState, now: float) -> bool:
        """Add a task to its array. Return True if the task has to wait for the array's limit."""
        request = active.job.request
        assert request is not None
        self._queued_s[active.number] = now
        self._limits[request.array] = _most(active)
        if self._inside.get(request.array, 0) >= _most(active):
            self._behind.setdefault(request.array, deque()).append(active.number)
            active.queued_s = now
            return True
        self.enters(active, request.array)
        return False

    def enters(self, active: JobState, array: str) -> None:
        """Count a task as inside, regardless of the limit."""
        self._inside[array] = self._inside.get(array, 0) + 1
        self._array_of[active.number] = array

    def started(self, number: int, now: float) -> float | None:
        """Record that a task started for the first time, or left without ever starting. Return the
        time at which it became eligible, or None if the job is not inside an array.
        """
        array = self._array_of.get(number)
        if array is None:
            return None
        # Slurm holds back a task of an array only while as many of the array's tasks are running as
        # its limit allows
        self._at_work[array] = self._at_work.get(array, 0) + 1
        return max(self._queued_s.pop(number, now), self._full_until_s.get(array, 0.0))

    def left(self, number: int, now: float, waiting: Mapping[int, JobState]) -> JobState | None:
        """Remove a task that has left the system. Return the task of its array that enters instead,
        or None if there is none. ``waiting`` contains the jobs that are still waiting.
        """
        array = self._array_of.pop(number, None)
        if array is None:
            return None
        if self._at_work.get(array, 0) >= self._limits.get(array, inf):
            self._full_until_s[array] = now
        self._at_work[array] = self._at_work.get(array, 0) - 1
        self._inside[array] -= 1
        behind = self._behind.get(array)
        while behind:
            active = waiting.get(behind[0])
            # At the beginning of the simulation, more tasks may have been running than the limit
            # allows.
            if active is not None and self._inside[array] >= _most(active):
                break
            behind.popleft()
            if active is not None:
                self.enters(active, array)
                return active
        return None

    def behind(self, array: str) -> Collection[int]:
        """Return the tasks that wait for the limit of this array. Some of them may have left since."""
        return self._behind.get(array, ())


def _most(active: JobState) -> int:
    """Return the maximum number of tasks of a job's array that may be in the system at a time."""
    return (active.job.request and active.job.request.array_limit) or 1
