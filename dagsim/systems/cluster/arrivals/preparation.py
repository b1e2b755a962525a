"""Creation of the states of arriving jobs. Each state contains the nodes that may run each task, the
true run times, and the run times that policies see.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from dagsim.model import Job, RejectReason, Task, TimeLimits
from dagsim.systems.cluster.forks import COPIED, SAME, Forked
from dagsim.systems.cluster.models.estimates import limit_seconds
from dagsim.systems.cluster.resources.site import SiteState
from dagsim.systems.cluster.runs.life import Life
from dagsim.systems.cluster.state import JobState, TaskState

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel

_NO_LIMITS = TimeLimits()


class Preparation(Forked):
    """The preparation of a kernel's jobs: it creates the state of each arriving job."""

    __slots__ = {"_estimates": SAME, "_kernel": COPIED, "_runtime": SAME, "shows_truth": SAME}

    def __init__(self, kernel: ClusterKernel) -> None:
        self._kernel = kernel
        self._runtime = kernel.models.runtime
        self._estimates = kernel.models.estimates
        self.shows_truth = False
        """True if the policy declared itself clairvoyant and may read true durations."""

    def state_of(self, job: Job, number: int) -> tuple[JobState, RejectReason | None]:
        """Create the state of a job and its tasks. Return the state, and the reason why the job can
        never run (None if it can run).
        """
        kernel = self._kernel
        graph, machines, seconds_of = job.graph, kernel.machines, self._runtime.seconds
        if machines.site is None and job.request is not None and SiteState.is_needed_for(job.request):
            machines.site = SiteState(kernel.schedule.cluster, kernel.queues)
        types, restricts = machines.types, machines.site is not None
        active = JobState(job, number)
        active.shows_truth = self.shows_truth
        rejected, parents = None, graph.parents
        for index, task in enumerate(graph.tasks):
            demand = machines.demand_of(task)
            seconds = seconds_of(task, types)
            if restricts:
                demand = machines.restricted(job, task, self.time_limit_s(job, task, seconds), kernel.now) or demand
            if inf in seconds:
                demand = machines.narrowed(demand, seconds)
            entry = TaskState(active, index, task, demand, seconds, len(parents[index]))
            active.tasks.append(entry)
            if task.elastic is not None:
                kernel.life = kernel.life or Life(kernel, kernel.schedule.cluster)
                if kernel.suspensions is not None:
                    kernel.suspensions.refuse_rates()
                demand = kernel.life.enter_elastic(entry, task.elastic)
            if demand.rejected is not None:
                rejected = demand.rejected
        active.rank()
        return active, rejected

    def estimate(self, active: JobState) -> None:
        """Replace the true run times of a job by the estimates that policies see."""
        if self._estimates.kind != "exact":
            job, seed = active.job, self._kernel.schedule.seed
            self._estimates.apply(active, seed, lambda task: self._limits_s(job, task.task, task.seconds))

    def as_arrived(self, job: Job, number: int) -> JobState:
        """See ``ClusterView.as_arrived``."""
        active, _ = self.state_of(job, number)
        self.estimate(active)
        return active

    def requested_s(self, task: TaskState) -> tuple[float, ...] | None:
        """See ``ClusterView.requested_s``."""
        claimed = task.task.estimate
        if claimed is None or not 0 <= claimed < inf:
            return None
        return self._runtime.seconds(replace(task.task, work=claimed), self._kernel.machines.types)

    def time_limit_s(self, job: Job, task: Task, seconds: tuple[float, ...]) -> float:
        """Return the time limit of a task on its slowest type. A task only starts before a
        reservation if this limit ends before the reservation begins. ``seconds`` are the true run
        times, which replace a missing limit if policies may know true run times.
        """
        limits = self._site_limits(job)
        if task.estimate is None and self._estimates.kind != "predicted":
            return min(min(seconds) if limits.default_s is None else limits.default_s, limits.most_s)
        return max([limit_s for limit_s in self._limits_s(job, task, seconds) if limit_s < inf], default=0.0)

    def _limits_s(self, job: Job, task: Task, seconds: tuple[float, ...]) -> tuple[float, ...]:
        """Return the time limit of a task on each type, according to the site's scheduler."""
        runtime, types = self._runtime, self._kernel.machines.types
        return limit_seconds(task, job.id, lambda task: runtime.seconds(task, types), seconds, self._site_limits(job))

    def _site_limits(self, job: Job) -> TimeLimits:
        queues = self._kernel.queues
        return _NO_LIMITS if queues is None else queues.time_limits(job)
