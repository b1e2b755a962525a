"""The jobs of a simulation that have not arrived yet."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import tee

from dagsim.model import Job


class JobsToCome:
    """The jobs that have not arrived yet. They are read one by one when they are needed."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._source = iter(jobs)
        self._next: Job | None = None
        self.any_left = True
        """False once the last job has been taken and another one was requested."""

    def peek(self) -> Job | None:
        """Return the next job without removing it, or None if there is none."""
        if self._next is None and self.any_left:
            self._next = next(self._source, None)
            self.any_left = self._next is not None
        return self._next

    def take(self) -> None:
        """Remove the next job. The one after it becomes the next job."""
        self._next = None

    def copy(self) -> JobsToCome:
        """Return a copy that shares the jobs. Each job is read only once, by the copy that needs it
        first.
        """
        twin = JobsToCome(())
        self._source, twin._source = tee(self._source)
        twin._next, twin.any_left = self._next, self.any_left
        return twin
