"""The outlook of a backfill cycle: whether anybody behind the present job could still start."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dagsim.systems.cluster.api import DemandClass, TaskState
from dagsim.systems.cluster.policies.production.slurm_queue import PendingJob

__all__ = ["BackfillOutlook"]


class BackfillOutlook:
    """Within a cycle room only shrinks, so that a job which cannot start once cannot start any more: each is looked at
    once, from the front. When nobody is left who could, nothing need be kept for anybody.

    ``listed`` are the jobs, of which ``tests`` are tested; one that is not ``testable`` (it is at a limit) does not
    count. ``could`` says that one may start now, ``fits`` that machines have room, whatever its limits.
    """

    def __init__(
        self,
        listed: Sequence[PendingJob],
        tests: int,
        testable: Callable[[TaskState], bool],
        could: Callable[[TaskState], bool],
        fits: Callable[[DemandClass], bool],
    ) -> None:
        self._listed, self._testable, self._could, self._fits = listed, testable, could, fits
        self._next = 0
        """Jobs before this place cannot start."""
        self._fitting = 0
        """Those before this place find no room on machines."""
        self._end = tests
        """Behind the last that may be tested."""
        self._passed: set[TaskState] = set()
        """Those seen ahead that do not count."""

    def removed(self, task: TaskState) -> None:
        """The present job left the list without a test."""
        self._next -= 1
        self._fitting -= 1
        if task in self._passed:
            self._passed.discard(task)
            self._end -= 1

    def started(self) -> None:
        """The present job had a test and started."""
        self._end -= 1

    def knows_no(self, at: int) -> bool:
        """True if the job at a place is known not to start."""
        return at < self._next

    def any_fits(self, at: int, left: int) -> bool:
        """True if machines have room for one of the next ``left`` jobs from ``at`` on."""
        place, last = max(self._fitting, at), min(at + left, len(self._listed))
        while place < last and not self._fits(self._listed[place].task.demand):
            place += 1
        self._fitting = place
        return place < last

    def is_hopeful(self, at: int) -> bool:
        """True if somebody from ``at`` on could start."""
        place = max(self._next, at)
        while place < min(self._end, len(self._listed)):
            task = self._listed[place].task
            if not self._testable(task):
                if task not in self._passed:
                    self._passed.add(task)
                    self._end += 1
            elif self._could(task):
                break
            place += 1
        self._next = place
        return place < min(self._end, len(self._listed))
