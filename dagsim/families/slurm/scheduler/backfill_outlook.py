"""The jobs that may still start in a cycle of Slurm's backfill."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dagsim.families.slurm.scheduler.pending_jobs import PendingJob
from dagsim.systems.cluster.api import DemandClass


class BackfillOutlook:
    """The jobs that may still start in a backfill cycle. Free resources only shrink during a cycle,
    so a job that cannot start now cannot start later in the cycle either. It is therefore enough to
    check each job once, in order. As soon as no remaining job could start, no further reservations
    are needed.

    ``tests`` is how many jobs in ``listed`` may be tested. Jobs that are not ``testable``, because
    they have reached a limit, do not count as tests. ``could`` tells whether a job may start now,
    and ``fits`` whether it fits on the free resources, apart from its limits.
    """

    def __init__(
        self,
        listed: Sequence[PendingJob],
        tests: int,
        testable: Callable[[PendingJob], bool],
        could: Callable[[PendingJob], bool],
        fits: Callable[[DemandClass], bool],
    ) -> None:
        self._listed, self._testable, self._could, self._fits = listed, testable, could, fits
        self._next = 0
        """Index before which no job can start."""
        self._fitting = 0
        """Index before which no job fits on the machines."""
        self._end = tests
        """Index after the last job that may be tested."""
        self._passed: set[tuple[int, int, int]] = set()
        """Jobs examined in advance that do not count, by order, piece and place."""

    def removed(self, job: PendingJob, at: int) -> None:
        """Record that the job at index ``at`` was removed from the list without a test."""
        self._next -= at < self._next
        self._fitting -= at < self._fitting
        if self._passed and (key := (job.order, job.piece, job.place)) in self._passed:
            self._passed.discard(key)
            self._end -= 1

    def started(self) -> None:
        """Record that the current job was tested, and has started."""
        self._end -= 1

    @property
    def hopeful_at(self) -> int:
        """Index of the first job that could start, according to the last search."""
        return self._next

    @property
    def counts_all(self) -> bool:
        """True if all jobs examined in advance count as tests."""
        return not self._passed

    def knows_no(self, at: int) -> bool:
        """Return True if the job at this index certainly cannot start."""
        return at < self._next

    def any_fits(self, at: int, left: int) -> bool:
        """Return True if the free resources suffice for at least one of the ``left`` jobs from
        index ``at`` on."""
        place, last = max(self._fitting, at), min(at + left, len(self._listed))
        while place < last and not self._fits(self._listed[place].task.demand):
            place += 1
        self._fitting = place
        return place < last

    def is_hopeful(self, at: int) -> bool:
        """Return True if some job from index ``at`` on could start."""
        place = max(self._next, at)
        while place < min(self._end, len(self._listed)):
            job = self._listed[place]
            if not self._testable(job):
                if (key := (job.order, job.piece, job.place)) not in self._passed:
                    self._passed.add(key)
                    self._end += 1
            elif self._could(job):
                break
            place += 1
        self._next = place
        return place < min(self._end, len(self._listed))
