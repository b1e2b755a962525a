"""Jobs that have arrived but may not start yet. They wait for a given time, for other jobs to leave
or start, for the limit of their array, or for admission by the policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from simpy.events import Event

from dagsim.systems.cluster.arrivals.dependencies import ArrivingJob, Dependencies
from dagsim.systems.cluster.forks import COPIED, SAME, Forked
from dagsim.systems.cluster.state import JobState, Run

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel


class Eligibility(Forked):
    """The jobs in a kernel that are not eligible yet. A kernel creates an object of this class only
    if it has such jobs or admission control.

    A job can become eligible only because a timer ends, a run starts, or another job leaves. The
    kernel therefore checks each job only once, on its arrival (``holds``), and is later notified
    through ``enter``.
    """

    __slots__ = {
        "_admission": SAME,
        "_condition_s": SAME,
        "_held": COPIED,
        "_kernel": COPIED,
        "dependencies": COPIED,
    }

    def __init__(self, kernel: ClusterKernel, *, depends: bool = False) -> None:
        self._kernel = kernel
        self._admission = kernel.models.admission
        self.dependencies = Dependencies() if depends else None
        """Conditions between jobs, and limits of arrays, or None if no job can have any."""
        self._held: list[tuple[float, int, JobState]] = []
        """Jobs that wait until a given time: a heap by time and number."""
        self._condition_s = inf
        """The time of the next timer for conditions."""

    def attach(self) -> None:
        """Register with the kernel to be notified when runs start, and put the timers on its clock.
        This is called at the beginning of a simulation and in each fork.
        """
        if self.dependencies is not None:
            self._kernel.frontier.started.append(self._started)
        for until_s, *_ in self._held:
            self._kernel.call_at(until_s, self._let_in)
        self._condition_s = inf
        self._time_conditions()

    @property
    def became_eligible_s(self) -> Mapping[int, float]:
        """Time at which each job became eligible, by job number, for the jobs that had to wait for
        a condition or for the limit of their array.
        """
        return {} if self.dependencies is None else self.dependencies.eligible_s

    @property
    def waiting(self) -> bool:
        """True if a job is waiting here for anything other than admission."""
        return bool(self._held) or (self.dependencies is not None and bool(self.dependencies.waiting))

    @property
    def pending(self) -> bool:
        """True if a job will become eligible just because time passes."""
        return bool(self._held) or (self.dependencies is not None and self.dependencies.next_s < inf)

    def behind(self, active: JobState) -> int:
        """Return how many tasks of a job's array are waiting because of the array's limit."""
        request = active.job.request
        if self.dependencies is None or request is None or request.array_limit is None:
            return 0
        return self.dependencies.behind(request.array)

    def why_waiting(self) -> dict[int, str]:
        """Return what each job is waiting for, by job number."""
        reasons = {number: "its begin time had not come" for _, number, _ in self._held}
        if self.dependencies is not None:
            for number, active in self.dependencies.waiting.items():
                unmet = list(self.dependencies.unmet(active, self._kernel.now))
                jobs = any(words.startswith("job") for words in unmet)
                reasons[number] = "a job that it depends on had not ended or started" if jobs else "; ".join(unmet)
        return reasons

    def holds(self, active: JobState) -> bool:
        """Hold back a job that arrives now if it is not eligible yet or has to be admitted first.
        Return True in this case.
        """
        kernel, job, outcome = self._kernel, active.job, ArrivingJob.FREE
        if self.dependencies is not None:
            outcome = self.dependencies.arrived(active, kernel.now)
            self._time_conditions()
            if outcome is ArrivingJob.WAITS:
                return True
        # Use the eligible time in the log only if the job has no conditions of its own.
        eligible_s = None if outcome is ArrivingJob.ELIGIBLE or job.in_flight else job.eligible_s
        if eligible_s is not None and eligible_s > kernel.now:
            heappush(self._held, (eligible_s, active.number, active))
            kernel.call_at(eligible_s, self._let_in)
            return True
        if self._admission:
            kernel.applicants[active.number] = active
        return self._admission

    @property
    def next_s(self) -> float:
        """The next time at which a job becomes eligible just because time passes."""
        held_s = self._held[0][0] if self._held else inf
        return held_s if self.dependencies is None else min(held_s, self.dependencies.next_s)

    def pass_time(self) -> None:
        """Add all jobs that are eligible by now to the system. This is called for times before
        the beginning of the simulation, when there are no timers yet.
        """
        self._let_in_due()
        if self.dependencies is not None:
            for active in self.dependencies.passed(self._kernel.now):
                self._becomes_eligible(active)

    def left(self, number: int) -> None:
        """Add jobs to the system if they were only waiting for this job to leave."""
        if self.dependencies is not None:
            for active in self.dependencies.left(number, self._kernel.now):
                self._becomes_eligible(active)
            self._time_conditions()

    def _started(self, run: Run, now: float) -> None:
        """Record the start of a run, because other jobs may be waiting for its job to start."""
        if self.dependencies is not None and self.dependencies.started(run.task.job.number, now):
            self._time_conditions()

    def _let_in(self, _: Event) -> None:
        self._let_in_due()

    def _let_in_due(self) -> None:
        while self._held and self._held[0][0] <= self._kernel.now:
            self._becomes_eligible(heappop(self._held)[2])

    def _becomes_eligible(self, active: JobState) -> None:
        self._kernel.changed = True
        if self._admission:
            self._kernel.applicants[active.number] = active
        else:
            self._kernel.enter(active)

    def _time_conditions(self) -> None:
        """Set a timer for the next time at which a condition of a waiting job is met just because
        time passes.
        """
        kernel = self._kernel
        if self.dependencies is not None and self.dependencies.next_s < self._condition_s:
            self._condition_s = self.dependencies.next_s
            kernel.call_at(max(self._condition_s, kernel.now, kernel.schedule.begins_s), self._time_has_come)

    def _time_has_come(self, _: Event) -> None:
        self._condition_s = inf
        if self.dependencies is not None:
            for active in self.dependencies.passed(self._kernel.now):
                self._becomes_eligible(active)
        self._time_conditions()
