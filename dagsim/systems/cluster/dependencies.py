"""Dependencies between jobs, and arrays of which only some tasks may be in the system at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from dagsim.model import Job, Request
from dagsim.systems.cluster.nodes import ClusterState
from dagsim.systems.cluster.state import JobState
from dagsim.systems.seam import CountedJobs
from dagsim.workload.arrays import JobArrays

__all__ = ["Dependencies", "any_depends"]


def any_depends(jobs: Iterable[Job] | JobArrays) -> bool:
    """True if any of the jobs may have to wait for others. Jobs that are read one by one may."""
    if isinstance(jobs, JobArrays):
        return jobs.request is not None and any(_depends(request) for request in jobs.request.words)
    if isinstance(jobs, list | tuple):
        return any(_depends(job.request) for job in jobs)
    if isinstance(jobs, CountedJobs):
        return any_depends(jobs.jobs)
    return bool(getattr(jobs, "may_depend", True))


def _depends(request: Request | None) -> bool:
    return request is not None and bool(request.after or request.array_limit)


class Dependencies:
    """Jobs that have arrived, and wait until others have left (``Request.after``), or until fewer
    tasks of their array are in the system than ``Request.array_limit`` allows. Plain data.

    Slurm calls a job eligible from then on: its age counts from that time (job_independent in
    job_mgr.c, Slurm 22.05). A job that ends in any way counts as having left: a log lists no job
    whose ``afterok`` was never met as one that ran. Ids that no earlier job has are not judged: such
    a job becomes eligible when the log says so. O(1) per arrival and departure.
    """

    def __init__(self) -> None:
        self.eligible_s: dict[int, float] = {}
        """When each job became eligible whose dependencies or array decided that."""
        self.waiting: dict[int, JobState] = {}
        """The jobs that wait, by number."""
        self._numbers: dict[str, list[int]] = {}
        """The jobs of each id; an array's own id has all of its tasks."""
        self._present: set[int] = set()
        """The jobs that have not left."""
        self._left_of: dict[int, int] = {}
        """The number of jobs for which a job still waits."""
        self._followers: dict[int, list[int]] = {}
        """The jobs that wait for a job."""
        self._inside: dict[str, int] = {}
        """The tasks of each array that are in the system and do not wait for it."""
        self._behind: dict[str, deque[int]] = {}
        """The tasks that wait for their array."""
        self._array_of: dict[int, str] = {}
        """The array of each task that is inside."""

    def arrived(self, active: JobState, now: float) -> bool | None:
        """Add a job. Returns True if it has to wait, False if it is eligible now, None if neither
        dependencies nor an array decide that.
        """
        number, job = active.number, active.job
        for id in {job.id, job.id.partition("_")[0]}:
            self._numbers.setdefault(id, []).append(number)
        self._present.add(number)
        request = job.request
        if request is None:
            return None
        if job.in_flight:
            if request.array_limit is not None:
                self._enters(active, request.array)
            return None
        named = [other for id in request.after for other in self._numbers.get(id, ()) if other != number]
        ahead = [other for other in named if other in self._present]
        if ahead:
            self._left_of[number], self.waiting[number] = len(ahead), active
            for other in ahead:
                self._followers.setdefault(other, []).append(number)
            return True
        if request.array_limit is not None and request.array:
            return self._joins(active, now)
        if named and all(id in self._numbers for id in request.after):
            self.eligible_s[number] = now
            return False
        return None

    def left(self, number: int, now: float) -> list[JobState]:
        """Remove a job. Returns the jobs that become eligible, in the order of their arrivals."""
        self._present.discard(number)
        self.waiting.pop(number, None)
        freed: list[JobState] = []
        for follower in self._followers.pop(number, ()):
            self._left_of[follower] -= 1
            if not self._left_of[follower]:
                del self._left_of[follower]
                active = self.waiting.pop(follower, None)
                request = None if active is None else active.job.request
                if active is None or request is None:
                    continue
                if request.array_limit is None or not self._joins(active, now):
                    self.eligible_s[follower] = now
                    freed.append(active)
        array = self._array_of.pop(number, None)
        if array is not None:
            self._inside[array] -= 1
            behind = self._behind.get(array)
            while behind:
                active = self.waiting.pop(behind.popleft(), None)
                if active is not None:
                    self._enters(active, array)
                    self.eligible_s[active.number] = now
                    freed.append(active)
                    break
        return sorted(freed, key=lambda active: active.number)

    def copy(self, machines: ClusterState) -> Dependencies:
        """An equal set of dependencies."""
        twin = Dependencies()
        twin.eligible_s = dict(self.eligible_s)
        twin.waiting = {number: active.copy(machines) for number, active in self.waiting.items()}
        twin._numbers = {id: list(numbers) for id, numbers in self._numbers.items()}
        twin._present, twin._left_of = set(self._present), dict(self._left_of)
        twin._followers = {number: list(followers) for number, followers in self._followers.items()}
        twin._inside, twin._array_of = dict(self._inside), dict(self._array_of)
        twin._behind = {array: deque(numbers) for array, numbers in self._behind.items()}
        return twin

    def _joins(self, active: JobState, now: float) -> bool:
        """Let a task into its array; True if it has to wait."""
        request = active.job.request
        assert request is not None
        most = request.array_limit or 1
        if self._inside.get(request.array, 0) >= most:
            self.waiting[active.number] = active
            self._behind.setdefault(request.array, deque()).append(active.number)
            return True
        self._enters(active, request.array)
        self.eligible_s[active.number] = now
        return False

    def _enters(self, active: JobState, array: str) -> None:
        self._inside[array] = self._inside.get(array, 0) + 1
        self._array_of[active.number] = array
