"""Conditions on which jobs become eligible: dependencies on other jobs, begin times, and the limits
of job arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from heapq import heappop, heappush
from math import inf

from dagsim.model import Condition, Job, Request
from dagsim.systems.cluster.arrivals.array_limits import ArrayLimits
from dagsim.systems.cluster.forks import COPIED, Forked
from dagsim.systems.cluster.state import JobState
from dagsim.systems.seam import CountedJobs
from dagsim.workload.arrays import JobArrays


def any_depends(jobs: Iterable[Job] | JobArrays) -> bool:
    """Return True if any of the jobs may have to wait for others. This is assumed for jobs that are
    read one by one.
    """
    if isinstance(jobs, JobArrays):
        return jobs.request is not None and any(_depends(request) for request in jobs.request.words)
    if isinstance(jobs, list | tuple):
        return any(True for job in jobs if job.request is not None and _depends(job.request))
    if isinstance(jobs, CountedJobs):
        return any_depends(jobs.jobs)
    return bool(getattr(jobs, "may_depend", True))


def _depends(request: Request | None) -> bool:
    return request is not None and bool(request.after or request.array_limit or request.begin_s)


def _begins_s(job: Job, request: Request) -> float:
    """Return the time before which a job may not start."""
    if not request.after and request.begin_s is not None and job.eligible_s is not None:
        # Use the eligible time in the log, because it also reflects holds and later changes,
        # which no policy can influence.
        return job.eligible_s
    return job.arrival_s + (request.begin_s or 0.0)


_NAMED = 3
"""Maximum number of jobs that a description names."""


class ArrivingJob(Enum):
    """The state in which the conditions of a job leave it when it arrives."""

    WAITS = "it has to wait"
    ELIGIBLE = "its conditions are met, or its array has room"
    FREE = "it has no conditions and belongs to no array"


class Dependencies(Forked):
    """Jobs that have arrived but are not eligible. They wait until other jobs have left or started
    (``Request.after``), until a given time has passed (``Request.begin_s``), or until few enough
    tasks of their array are in the system (``Request.array_limit``). All attributes are plain data.

    In Slurm's terms, the job is eligible once its wait here ends, and its age is counted from that
    time (job_independent in job_mgr.c, Slurm 22.05). However, the limit of an array does not
    prevent the tasks of this array from ageing (``JobState.queued_s``). It does not matter whether
    a job succeeded, even for ``afterok``. If an ``afterok`` is never met, the waiting job never
    runs, so no log lists it. Ids that belong to no earlier job are ignored, and the job becomes
    eligible at the time in the log. An arrival, a start or a departure costs O(log waiting).
    """

    __slots__ = {
        "_numbers": COPIED,
        "_on_left": COPIED,
        "_on_start": COPIED,
        "_one_of": COPIED,
        "_present": COPIED,
        "_started_s": COPIED,
        "_times": COPIED,
        "_unmet": COPIED,
        "arrays": COPIED,
        "eligible_s": COPIED,
        "waiting": COPIED,
    }

    def __init__(self) -> None:
        self.eligible_s: dict[int, float] = {}
        """For each job that had to wait for conditions or its array, the time at which it became eligible."""
        self.waiting: dict[int, JobState] = {}
        """The waiting jobs, by number."""
        self._numbers: dict[str, list[int]] = {}
        """The jobs with each id; an array's own id stands for all of its tasks."""
        self._present: set[int] = set()
        """The jobs that have not left."""
        self._started_s: dict[int, float] = {}
        """When each job first started, or left without having started."""
        self._unmet: dict[int, int] = {}
        """The number of conditions of each job that are not met yet."""
        self._one_of: set[int] = set()
        """Jobs that need only one of the jobs that they name (``Request.after_one``)."""
        self._on_left: dict[int, list[int]] = {}
        """For each job, the jobs that wait until it has left."""
        self._on_start: dict[int, list[tuple[int, float]]] = {}
        """For each job, the jobs that wait until a number of seconds after its start."""
        self._times: list[tuple[float, int, bool]] = []
        """A heap of the times at which other conditions will be met: the time, the job, and whether
        the condition is the job's own begin time."""
        self.arrays = ArrayLimits()

    @property
    def next_s(self) -> float:
        """The next time at which a condition will be met just because time passes."""
        return self._times[0][0] if self._times else inf

    def arrived(self, active: JobState, now: float) -> ArrivingJob:
        """Add a job that arrives."""
        number, job = active.number, active.job
        for id in {job.id, job.id.partition("_")[0]}:
            self._numbers.setdefault(id, []).append(number)
        self._present.add(number)
        request = job.request
        if job.in_flight:
            self._started_s[number] = min([run.since_s for run in job.in_flight])
            if request is not None and request.array_limit is not None:
                self.arrays.enters(active, request.array)
            return ArrivingJob.FREE
        if request is None:
            return ArrivingJob.FREE
        conditions = [Condition.of(text) for text in request.after]
        needed, met = self._ask(number, conditions, now)
        if request.after_one and needed:
            needed = self._ask_one(active, conditions, is_met=met)
        begins_s = _begins_s(job, request)
        if begins_s > now:
            needed += 1
            heappush(self._times, (begins_s, number, True))
        if needed:
            self._unmet[number], self.waiting[number] = needed, active
            return ArrivingJob.WAITS
        if request.array_limit is not None and request.array:
            return ArrivingJob.WAITS if self._joins(active, now) else ArrivingJob.ELIGIBLE
        if (met or request.begin_s) and all(condition.id in self._numbers for condition in conditions):
            self.eligible_s[number] = now
            return ArrivingJob.ELIGIBLE
        return ArrivingJob.FREE

    def _ask_one(self, active: JobState, conditions: Sequence[Condition], *, is_met: bool) -> int:
        """For a job that waits until any one of the conditions is met, return the number of
        conditions that it still waits for: 0 or 1.
        """
        # If a job had left before the simulation began, only the eligible time in the log shows
        # when a condition on this job was met.
        lacks_one = any(condition.id not in self._numbers for condition in conditions)
        if is_met or (lacks_one and active.job.eligible_s is not None):
            return 0
        self._one_of.add(active.number)
        return 1

    def _ask(self, number: int, conditions: Sequence[Condition], now: float) -> tuple[int, bool]:
        """Register a job for its unmet conditions. Return the number of unmet conditions, and
        whether any condition is already met.
        """
        needed, met = 0, False
        for id, starts, delay_s in conditions:
            for other in self._numbers.get(id, ()):
                if other == number:
                    continue
                if not starts and other in self._present:
                    self._on_left.setdefault(other, []).append(number)
                elif starts and other not in self._started_s:
                    self._on_start.setdefault(other, []).append((number, delay_s))
                elif starts and self._started_s[other] + delay_s > now:
                    heappush(self._times, (self._started_s[other] + delay_s, number, False))
                else:
                    met = True
                    continue
                needed += 1
        return needed, met

    def started(self, number: int, now: float) -> bool:
        """Record that a job started for the first time, or that it left without ever starting.
        Return True if ``next_s`` may be earlier as a result.
        """
        if number in self._started_s:
            return False
        self._started_s[number] = now
        if (eligible_s := self.arrays.started(number, now)) is not None:
            self.eligible_s[number] = eligible_s
        followers = self._on_start.pop(number, ())
        for follower, delay_s in followers:
            heappush(self._times, (now + delay_s, follower, False))
        return bool(followers)

    def passed(self, now: float) -> list[JobState]:
        """Return the jobs that become eligible now because time has passed, in order of arrival."""
        freed: list[JobState] = []
        while self._times and self._times[0][0] <= now:
            _, number, is_begin = heappop(self._times)
            self._meet(number, now, freed, is_begin=is_begin)
        return sorted(freed, key=lambda active: active.number)

    def left(self, number: int, now: float) -> list[JobState]:
        """Remove a job that has left the system. Return the jobs that become eligible, in order of
        arrival.
        """
        self._present.discard(number)
        self.waiting.pop(number, None)
        self._unmet.pop(number, None)
        self.started(number, now)
        freed: list[JobState] = []
        for follower in self._on_left.pop(number, ()):
            self._meet(follower, now, freed)
        if (active := self.arrays.left(number, now, self.waiting)) is not None:
            del self.waiting[active.number]
            self.eligible_s[active.number] = now
            freed.append(active)
        return sorted(freed, key=lambda active: active.number)

    def behind(self, array: str) -> int:
        """Return the number of tasks that are waiting because of the limit of their array."""
        return sum(number in self.waiting for number in self.arrays.behind(array))

    def unmet(self, active: JobState, now: float) -> Iterator[str]:
        """Describe the conditions that keep a job from being eligible. If one of several conditions
        would be sufficient, describe all of them.
        """
        if active.number not in self.waiting:
            return
        request = active.job.request or Request()
        ends: list[str] = []
        for id, starts, delay_s in map(Condition.of, request.after):
            others = [other for other in self._numbers.get(id, ()) if other != active.number]
            if not starts and any(other in self._present for other in others):
                ends.append(id)
            elif starts and any(other not in self._started_s for other in others):
                yield f"job {id} had not started"
            elif starts and any(self._started_s[other] + delay_s > now for other in others):
                yield f"it was to wait {delay_s:g} s after the start of job {id}"
        if ends:
            more = f" and {len(ends) - _NAMED} more" if len(ends) > _NAMED else ""
            enough = " (one is enough)" if request.after_one else ""
            yield f"{'jobs' if len(ends) > 1 else 'job'} {', '.join(ends[:_NAMED])}{more} had not ended{enough}"
        if any(number == active.number and is_begin for _, number, is_begin in self._times):
            yield "its begin time had not come"
        if active.number in self.arrays.behind(request.array):
            yield f"its array may have {request.array_limit} of its tasks in the system at a time"

    def _meet(self, number: int, now: float, freed: list[JobState], *, is_begin: bool = False) -> None:
        """Record that one condition of a job is met. Add the job to ``freed`` if this was its last
        unmet condition.
        """
        if number not in self._unmet:
            return
        if not is_begin and (request := self.waiting[number].job.request) is not None and request.after_one:
            if number not in self._one_of:
                return
            self._one_of.discard(number)
        self._unmet[number] -= 1
        if self._unmet[number]:
            return
        del self._unmet[number]
        active = self.waiting.pop(number)
        request = active.job.request
        if request is None or request.array_limit is None or not self._joins(active, now):
            self.eligible_s[number] = now
            freed.append(active)

    def _joins(self, active: JobState, now: float) -> bool:
        """Add a task to its array. Return True if the task has to wait for the array's limit."""
        waits = self.arrays.joins(active, now)
        if waits:
            self.waiting[active.number] = active
        else:
            self.eligible_s[active.number] = now
        return waits
