"""Slurm's main loop, which starts jobs in order of priority whenever something has happened."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from math import floor, inf

from dagsim.families.slurm.scheduler.job_placing import JobPlacing
from dagsim.families.slurm.scheduler.job_priorities import JobPriorities
from dagsim.families.slurm.scheduler.pending_jobs import PendingJob, PendingJobs
from dagsim.families.slurm.scheduler.running_jobs import LATE_S, RunningJobs
from dagsim.families.slurm.scheduler.slurm_preemption import SlurmPreemption
from dagsim.families.slurm.scheduler.slurm_rules import SlurmRules, together
from dagsim.families.slurm.scheduler.slurm_settings import SlurmSettings
from dagsim.families.slurm.scheduler.start_limits import StartLimits, licensed
from dagsim.model import Decision, Kill, Placement, RejectReason
from dagsim.systems.cluster.api import ClusterView


@dataclass(frozen=True, slots=True)
class SchedulerParts:
    """The objects that the main loop and backfill share: the site's rules and the state of its jobs."""

    settings: SlurmSettings
    rules: SlurmRules
    priorities: JobPriorities
    running: RunningJobs
    limits: StartLimits
    placing: JobPlacing
    preemption: SlurmPreemption


@dataclass(slots=True)
class _Blocked:
    """The partitions, nodes and reservations that later jobs may not use, because an earlier job
    did not fit."""

    nodes: int = 0
    partitions: set[str] = field(default_factory=set)
    reservations: set[int] = field(default_factory=set)

    def blocks(self, job: PendingJob) -> bool:
        """Return True if an earlier job has blocked the reservation in which this job runs, or
        (without one) this job's partition."""
        return job.part.name in self.partitions if job.reservation < 0 else job.reservation in self.reservations

    def close(self, job: PendingJob, nodes: int) -> None:
        """Block the job's partition and its nodes."""
        self.partitions.add(job.part.name)
        self.nodes |= nodes


class MainLoop:
    """The main loop. In each partition, it stops at the first job that does not fit."""

    def __init__(self, parts: SchedulerParts) -> None:
        self._parts, self._settings = parts, parts.settings
        self.latest_s = -inf
        """Time of the last main loop."""
        self.sweep_s = inf
        """Time when the main loop next examines all jobs; otherwise it examines ``queue_depth`` of
        them.
        """

    def is_due(self, now: float) -> bool:
        """Return True if a main loop may run now."""
        return now == self.latest_s or now >= self.latest_s + self._settings.sched_min_interval_s - LATE_S

    def decisions(self, view: ClusterView, pending: PendingJobs) -> Iterator[Decision]:
        """Start jobs in order of priority."""
        parts, now, listed = self._parts, view.now, pending.listed
        rules, limits = parts.rules, parts.limits
        most = inf if now >= self.sweep_s else self._settings.queue_depth
        self.latest_s, self.sweep_s = now, inf
        allowed = ((job.task, job.part) for job in listed if limits.room(job)[0] > 0)
        blocked, at, tested = _Blocked(rules.off_limits(view, allowed)), 0, 0
        while at < len(listed) and len(blocked.partitions) < len(rules.partitions):
            job = listed[at]
            task = job.task
            if not task.waiting:
                del listed[at]
                continue
            # the nodes of reservations that have not begun are also off limits
            later = job.attracted and job.reservation not in parts.placing.attracting
            if later or blocked.blocks(job) or not licensed(view.machines, task):
                at += 1
                continue
            # Only backfill starts jobs that have to start together. Until then, this job blocks its
            # partition.
            if together(task):
                blocked.close(job, rules.nodes[job.part.name])
                at += 1
                continue
            if tested >= most:
                self.sweep_s = (floor(now / self._settings.sched_interval_s) + 1) * self._settings.sched_interval_s
                return
            if job.refused:
                tested, at = tested + 1, at + 1
                continue
            room, holder = limits.room(job)
            if not room and holder is not None:
                if rules.holdings.never(holder, job.amounts):
                    yield Kill(task.job.number, RejectReason.CANCELLED)
                else:
                    pending.set_aside(at, holder, job.amounts)
                continue
            tested += 1
            placement = yield from self._placement(view, job, room, blocked)
            if placement is None or not limits.may_hold(job, view.machines, [share.node for share in placement]):
                at += 1
                continue
            yield parts.running.start(task, job.part, placement)

    def _placement(
        self, view: ClusterView, job: PendingJob, room: float, blocked: _Blocked
    ) -> Generator[Decision, None, Placement | None]:
        """Return a placement of a job, for which runs may be preempted. If there is none, record
        what this job blocks for the jobs behind it.
        """
        parts = self._parts
        nodes = parts.placing.open_to(job) & ~blocked.nodes
        placement = parts.placing.fit(view.machines, job, nodes, room)
        if placement is not None:
            return placement
        over = parts.limits.is_over_nodes(job)
        if not over and parts.preemption.possible:
            yield from parts.preemption.make_way(view, job, nodes)
            placement = parts.placing.fit(view.machines, job, nodes, room)
        if placement is None:
            if named := parts.rules.named(job.task):
                blocked.nodes |= named
            elif job.reservation >= 0:
                blocked.reservations.add(job.reservation)
            elif not over and parts.placing.is_held_up(view, job, nodes):
                blocked.close(job, parts.rules.nodes[job.part.name])
        return placement
