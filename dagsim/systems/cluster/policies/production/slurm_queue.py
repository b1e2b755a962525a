"""Pending jobs of Slurm by tier and priority; those that wait for a limit stand aside."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from dagsim.systems.cluster.api import ClusterState, DemandClass, Run, TaskState
from dagsim.systems.cluster.policies.production.limits import Amounts, Holder, Holdings
from dagsim.systems.cluster.policies.production.slurm_priority import PriorityBook
from dagsim.systems.cluster.policies.production.slurm_ranks import RankColumns

__all__ = ["PendingJob", "PendingJobs"]


class PendingJob(NamedTuple):
    """A ready task with what it is sorted by beside its priority."""

    tier: int
    order: int
    piece: int
    slot: int
    """Where its priority stands in ``RankColumns``; -1 where all are alike."""
    task: TaskState


class PendingJobs:
    """An index of the ready tasks (``ClusterView.index``) in the order in which they are looked at: by tier and
    priority, the highest first, then by submission. ``rank`` gives tier and slot of a task as it comes, ``ranks`` the
    priority of a slot, ``eligible_s`` the time from which a task may start.

    Cost: a search and a shift of the list per task that comes or goes, O(n log n) when all priorities change.
    """

    def __init__(
        self,
        rank: Callable[[TaskState], tuple[int, int]],
        ranks: RankColumns,
        eligible_s: Callable[[TaskState], float],
    ) -> None:
        self.listed: list[PendingJob] = []
        self.arrived: list[TaskState] = []
        """Tasks that became eligible since somebody last looked."""
        self.changed = True
        """Something has come since the last backfill."""
        self._rank, self._ranks, self._eligible_s = rank, ranks, eligible_s
        self._later: list[tuple[float, int, int, TaskState]] = []
        self._counted: set[TaskState] = set()
        self._demands: dict[DemandClass, int] = {}
        """Waiting tasks by demand; what was killed may be among them."""
        self._aside: dict[Holder, dict[Amounts, list[PendingJob]]] = {}

    def any_fits(self, machines: ClusterState) -> bool:
        """True if nodes have room for any of the jobs, whatever their limits. O(demand classes)."""
        return bool(self.listed) and any(machines.fits(demand) for demand in self._demands)

    def push(self, task: TaskState) -> None:
        """Take in a task that became ready."""
        if task not in self._counted:
            self._counted.add(task)
            self._demands[task.demand] = self._demands.get(task.demand, 0) + 1
        heappush(self._later, (self._eligible_s(task), task.order, task.piece, task))

    def started(self, run: Run, now: float) -> None:
        """Count a task no more when its last instance has started."""
        task = run.task
        if not task.waiting and task in self._counted:
            self._counted.discard(task)
            self._demands[task.demand] -= 1
            if not self._demands[task.demand]:
                del self._demands[task.demand]

    def admit(self, now: float) -> Iterator[TaskState]:
        """List the tasks that have become eligible, and hand each out first."""
        while self._later and self._later[0][0] <= now:
            task = heappop(self._later)[3]
            if task.waiting:
                yield task
                if task.waiting:
                    tier, slot = self._rank(task)
                    self._list(PendingJob(tier, task.order, task.piece, slot, task))
                    self.changed = True

    def next_s(self) -> float:
        """When the next task becomes eligible."""
        while self._later and not self._later[0][3].waiting:
            heappop(self._later)
        return self._later[0][0] if self._later else inf

    def set_aside(self, at: int, holder: Holder, amounts: Amounts) -> None:
        """Take a listed job out until ``holder`` gives something back."""
        self._aside.setdefault(holder, {}).setdefault(amounts, []).append(self.listed.pop(at))

    def recall(self, freed: Iterable[Holder], holdings: Holdings) -> None:
        """List those again that waited for limits which now have room: as many of each demand as there is room for."""
        for holder in freed:
            by_amounts = self._aside.get(holder)
            if by_amounts is None:
                continue
            for amounts, jobs in list(by_amounts.items()):
                room, _ = holdings.room((holder,), amounts)
                jobs.sort(key=self._key)
                count = len(jobs) if room >= len(jobs) else int(room)
                self._list_again(jobs[:count])
                del jobs[:count]
                if not jobs:
                    del by_amounts[amounts]

    def rank_anew(self, book: PriorityBook, at_s: float) -> None:
        """Sort all jobs by the priorities that they have at ``at_s``."""
        waiting = [job for job in self.listed if job.task.waiting]
        waiting += [job for by in self._aside.values() for jobs in by.values() for job in jobs if job.task.waiting]
        self._aside.clear()
        places = self._ranks.rank([job.slot for job in waiting], book, at_s)
        self.listed[:] = [waiting[place] for place in places]
        self.changed = True

    def _list_again(self, jobs: Iterable[PendingJob]) -> None:
        for job in jobs:
            if job.task.waiting:
                self._list(job)

    def _list(self, job: PendingJob) -> None:
        insort(self.listed, job, key=self._key)
        self.changed = True

    def _key(self, job: PendingJob) -> tuple[int, float, int, int]:
        priority = 0.0 if job.slot < 0 else self._ranks.latest(job.slot)
        return -job.tier, -priority, job.order, job.piece
