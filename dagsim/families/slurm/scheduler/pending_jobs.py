"""The pending jobs of Slurm's scheduler, in the order in which it examines them."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from dagsim.families.slurm.scheduler.holdings import Amounts, Holder, Holdings
from dagsim.families.slurm.scheduler.node_choice import CountedNodes, NodeLayout, TimedGroups
from dagsim.families.slurm.scheduler.slurm_priority import PriorityBook, RankColumns
from dagsim.model import NodePartition, Qos
from dagsim.systems.cluster.api import ClusterState, DemandClass, Run, TaskState


def may_fit(machines: ClusterState, demand: DemandClass) -> bool:
    """Return True if the demand may fit on the nodes. The result is always True for gangs that may
    run on several types, because such a gang may combine types."""
    return bool(demand.gang and (len(demand.types) > 1 or not demand.demand.gpus)) or machines.fits(demand)


class PendingJob(NamedTuple):
    """A ready task in one partition, with all its sort keys except its priority."""

    tier: int
    order: int
    piece: int
    slot: int
    """Slot of its priority in ``RankColumns``; -1 if all jobs have the same priority."""
    task: TaskState
    place: int
    """Index of this partition among those in which the job may run; the job is listed once for
    each."""
    part: NodePartition
    holders: tuple[Holder, ...]
    """The holders against whose limits a start counts."""
    amounts: Amounts
    alone: bool
    """True if the job does not share nodes."""
    layout: NodeLayout
    """How the instances have to be distributed over nodes."""
    span: int
    """The nodes of the partition, as a bit set."""
    asked: tuple[TimedGroups, ...]
    """The alternatives for a reservation."""
    counts: tuple[CountedNodes, ...] = ()
    """For each feature that the job's constraint counts: the nodes with the feature, and the number
    of instances for which a plan has to find space on them."""
    refused: bool = False
    """True if the partition refuses the job's account, so that the job never starts there."""
    quality: Qos | None = None
    """The job's QOS, if any QOS may preempt others."""
    reservation: int = -1
    """The number of the reservation in which the job would start, or -1."""
    attracted: bool = False
    """True if this entry is for a magnetic reservation, which the job did not request."""

    def preempts(self, other: PendingJob) -> bool:
        """Return True if this job's QOS may preempt the QOS of the other job."""
        own, its = self.quality, other.quality
        return own is not None and its is not None and its.name in own.preempts


_BESIDE = 100
"""Number of jobs at a limit that are listed beyond what the limit allows."""


class PendingJobs:
    """The ready tasks in the order in which they are examined, as an index (``ClusterView.index``):
    by tier and priority, highest first, then by submission. A job moves ahead of the first job that
    its QOS may preempt, regardless of their priorities (``sort_job_queue2``).

    ``listing`` returns a new task's entries, one per partition. ``ranks`` stores the priority of
    each slot. ``eligible_s`` returns the time from which a task may start. ``changed`` is True if a
    task was added after the last backfill. Tasks that were eligible by ``known_s`` do not count,
    because the policy had already listed them.

    Adding or removing a task takes a binary search and a shift of the list. When all priorities
    change, sorting takes O(n log n).
    """

    def __init__(
        self,
        listing: Callable[[TaskState], Sequence[PendingJob]],
        ranks: RankColumns,
        eligible_s: Callable[[TaskState], float],
        *,
        changed: bool = True,
        known_s: float = -inf,
    ) -> None:
        self.listed: list[PendingJob] = []
        self.arrived: list[TaskState] = []
        """Tasks that became eligible since the last call."""
        self.changed = changed
        """True if a task has been added since the last backfill."""
        self.untested: list[PendingJob] = []
        """Jobs that take whole nodes and were listed after the last backfill."""
        self._known_s = known_s
        self._listing, self._ranks, self._eligible_s = listing, ranks, eligible_s
        self._later: list[tuple[float, int, int, TaskState]] = []
        self._counted: set[TaskState] = set()
        self._demands: dict[DemandClass, int] = {}
        """Waiting tasks by demand; killed tasks may be among them."""
        self._fitting: DemandClass | None = None
        """A demand that fitted on the nodes at the last test."""
        self._aside: dict[Holder, dict[Amounts, list[PendingJob]]] = {}

    def any_fits(self, machines: ClusterState) -> bool:
        """Return True if some waiting task may fit on the nodes, regardless of limits. The cost is
        O(demand classes).
        """
        latest = self._fitting
        if latest is not None and latest in self._demands and may_fit(machines, latest):
            return True
        for demand in self._demands:
            if may_fit(machines, demand):
                self._fitting = demand
                return True
        return False

    def push(self, task: TaskState) -> None:
        """Add a task that has become ready."""
        if task not in self._counted:
            self._counted.add(task)
            self._demands[task.demand] = self._demands.get(task.demand, 0) + 1
        heappush(self._later, (self._eligible_s(task), task.order, task.piece, task))

    def started(self, run: Run, now: float) -> None:
        """Stop counting a task as waiting once its last instance has started."""
        task = run.task
        if not task.waiting and task in self._counted:
            self._counted.discard(task)
            self._demands[task.demand] -= 1
            if not self._demands[task.demand]:
                del self._demands[task.demand]

    def admit(self, now: float) -> Iterator[TaskState]:
        """List the tasks that have become eligible. Yield each task before it is listed."""
        while self._later and self._later[0][0] <= now:
            eligible_s, *_, task = heappop(self._later)
            if task.waiting:
                yield task
                if task.waiting:
                    for job in self._listing(task):
                        self._insert(job)
                        if job.alone and not job.attracted:
                            self.untested.append(job)
                    self.changed = self.changed or eligible_s > self._known_s
        self._known_s = -inf

    def list_task(self, task: TaskState) -> None:
        """Add a task to the list although the kernel no longer counts it as ready."""
        for job in self._listing(task):
            self._list(job)

    def next_s(self) -> float:
        """Return the time at which the next task becomes eligible."""
        while self._later and not self._later[0][3].waiting:
            heappop(self._later)
        return self._later[0][0] if self._later else inf

    def set_aside(self, at: int, holder: Holder, amounts: Amounts) -> None:
        """Remove a job from the list until ``holder`` frees resources that its limit counts."""
        self._aside.setdefault(holder, {}).setdefault(amounts, []).append(self.listed.pop(at))

    def after_s(self, holdings: Holdings, decay: float) -> float:
        """Return how many seconds usage must decay until one of the jobs that wait for a budget may
        start, or infinity if that never happens.
        """
        waits = [
            holdings.budgets[holder].after_s(amounts, decay)
            for holder, by_amounts in self._aside.items()
            if holder in holdings.budgets
            for amounts in by_amounts
        ]
        return min(waits, default=inf)

    def hopeless(self, holdings: Holdings) -> list[int]:
        """Return the numbers of the waiting jobs that no budget will ever allow to start."""
        lost = [
            job.task.job.number
            for holder, by_amounts in self._aside.items()
            for amounts, jobs in by_amounts.items()
            if holdings.never(holder, amounts)
            for job in jobs
            if job.task.waiting and not job.refused
        ]
        return list(dict.fromkeys(lost))

    def drop_left(self, most: int) -> None:
        """Remove jobs that no longer wait from the first ``most`` entries of the list."""
        first = self.listed[:most]
        waiting = [job for job in first if job.task.waiting]
        if len(waiting) < len(first):
            self.listed[: len(first)] = waiting

    def drop(self, at: int, *, several: bool) -> Iterator[tuple[PendingJob, int]]:
        """Remove the job at index ``at``, which has started, and yield it with its index. If the
        job has entries in ``several`` partitions, remove and yield all of them, starting with the
        last one in the list.
        """
        task = self.listed[at].task
        places = [place for place, job in enumerate(self.listed) if job.task is task] if several else [at]
        for place in reversed(places):
            yield self.listed.pop(place), place

    def recall(self, freed: Iterable[Holder], holdings: Holdings) -> None:
        """Put jobs that were set aside back in the list if their limits now allow them to start. Of
        jobs with equal amounts, list ``_BESIDE`` more than the limit allows, because some of the
        jobs may not fit on the nodes.
        """
        for holder in freed:
            by_amounts = self._aside.get(holder)
            if by_amounts is None:
                continue
            for amounts, jobs in list(by_amounts.items()):
                room, _ = holdings.room((holder,), amounts)
                jobs[:] = sorted([job for job in jobs if job.task.waiting], key=self._key)
                count = int(min(room + _BESIDE, len(jobs))) if room else 0
                for job in jobs[:count]:
                    self._list(job)
                del jobs[:count]
                if not jobs:
                    del by_amounts[amounts]

    def rank_anew(self, book: PriorityBook, at_s: float) -> None:
        """Sort all jobs by their priorities as of ``at_s``."""
        waiting = [job for job in self.listed if job.task.waiting]
        waiting += [job for by in self._aside.values() for jobs in by.values() for job in jobs if job.task.waiting]
        self._aside.clear()
        places = self._ranks.rank([job.slot for job in waiting], book, at_s)
        self.listed[:] = self._lifted([waiting[place] for place in places])
        self.changed = True

    def _insert(self, job: PendingJob) -> None:
        """Insert a job at its position in the order of the list."""
        if job.quality is None:
            insort(self.listed, job, key=self._key)
            return
        key, at = self._key(job), len(self.listed)
        while at and not self.listed[at - 1].preempts(job) and key < self._key(self.listed[at - 1]):
            at -= 1
        self.listed.insert(_first_preempted(self.listed[:at], job), job)

    def _lifted(self, jobs: list[PendingJob]) -> list[PendingJob]:
        """Move each job before the first one that its QOS may preempt."""
        names = {job.quality.name for job in jobs if job.quality is not None}
        lifted: list[PendingJob] = []
        for job in jobs:
            moves = job.quality is not None and names.intersection(job.quality.preempts)
            lifted.insert(_first_preempted(lifted, job) if moves else len(lifted), job)
        return lifted

    def _list(self, job: PendingJob) -> None:
        self._insert(job)
        self.changed = True

    def _key(self, job: PendingJob) -> tuple[int, float, int, int, int]:
        priority = 0.0 if job.slot < 0 else self._ranks.latest(job.slot)
        return -job.tier, -priority, job.order, job.piece, job.place


def _first_preempted(jobs: Sequence[PendingJob], job: PendingJob) -> int:
    """Return the index of the first job that the QOS of ``job`` may preempt, or the number of jobs
    if there is none.
    """
    return next((place for place, other in enumerate(jobs) if job.preempts(other)), len(jobs))
