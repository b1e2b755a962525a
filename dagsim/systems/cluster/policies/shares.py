"""Policies for fair sharing between jobs or tenants."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush
from typing import Literal, TypeAlias

from dagsim.errors import require
from dagsim.model import Decision
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.systems.cluster.api import MICRO, ClusterView, DemandClass, Run, TaskState
from dagsim.systems.cluster.policies.orders import width
from dagsim.systems.cluster.policies.placement import PlacementRule, placing, start_of

By: TypeAlias = Literal["tenant", "job"]
_Amounts: TypeAlias = tuple[float, float, float]
"""GPUs, CPU cores and GB of memory."""
_NOTHING: _Amounts = (0.0, 0.0, 0.0)
Entitlement: TypeAlias = Callable[[TaskState], float]
"""Share to which the holder of the task is entitled, relative to other holders. It must not change
while the task is in the system."""


class FairShares:
    """Start the oldest task that fits, from the *holder* (a tenant or a job) with the smallest
    share (progressive filling, Bertsekas and Gallager 1992, section 6.5.2). The share is the amount
    of resources that the runs of the holder use, divided by the holder's entitlement. With
    ``dominant``, the policy computes which fractions of the cluster's GPUs, cores and memory the
    runs hold, and uses the largest of the three. Otherwise, the amount is the number of GPUs (or
    cores, if the runs hold no GPUs).

    The cost per decision is O(demand classes x log tasks).
    """

    def __init__(self, by: By, due: Entitlement, dominant: bool, placement: str | PlacementRule) -> None:
        require(by in ("tenant", "job"), "fair shares: by must be tenant or job", by)
        self.by = by
        self.due = due
        self.dominant = dominant
        self._place = placing(placement).place
        self._dues: dict[Hashable, float] = {}

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        turns = view.index(self, lambda: _Turns(self, _capacity(view)))
        yield from start_of(self._place, view, turns.first(view))

    def share(self, holder: Hashable, held: _Amounts, total: _Amounts) -> float:
        """Return the share of a holder: the resources ``held`` by its runs, divided by its
        entitlement. ``total`` contains the resources of the cluster.
        """
        gpus, cpus, _ = held
        if self.dominant:
            parts = [amount / all_ for amount, all_ in zip(held, total, strict=True) if all_]
            return max(parts, default=0.0) / self._dues[holder]
        return (gpus + (cpus / (total[1] or 1.0) if not gpus else 0.0)) / self._dues[holder]

    def note(self, task: TaskState) -> Hashable:
        """Return the holder to which the task belongs. A holder's first task determines the
        entitlement.
        """
        holder = task.job.job.tenant if self.by == "tenant" else task.job.number
        if holder not in self._dues:
            self._dues[holder] = self.due(task)
        return holder


_Entry: TypeAlias = tuple[float, int, int, Hashable]
"""Share and first task (order, piece) of a holder when the entry was made, and the holder."""


class _Turns:
    """An index of the resources that each holder's runs use, and of the ready tasks, sorted by
    holder within each demand class. The holders in a class form a heap sorted by ``(share, oldest
    task)``.
    """

    def __init__(self, shares: FairShares, total: _Amounts) -> None:
        self.remembers = "" if shares.by == "job" or shares.due is _alike else "the first job of each tenant"
        self._shares = shares
        self._total = total
        self._held: dict[Hashable, _Amounts] = {}
        self._tasks: dict[DemandClass, dict[Hashable, list[tuple[int, int, TaskState]]]] = {}
        self._heaps: dict[DemandClass, list[_Entry]] = {}
        self._latest: dict[tuple[DemandClass, Hashable], _Entry] = {}
        """The valid entry of each holder; other entries in the heap are out of date."""

    def push(self, task: TaskState) -> None:
        holder = self._shares.note(task)
        tasks = self._tasks.setdefault(task.demand, {}).setdefault(holder, [])
        heappush(tasks, (task.order, task.piece, task))
        if tasks[0][2] is task:
            self._enter(task.demand, holder)

    def started(self, run: Run, now: float) -> None:
        self._add(run, 1.0)

    def ended(self, run: Run, now: float) -> None:
        self._add(run, -1.0)

    def _add(self, run: Run, sign: float) -> None:
        """Add the resources of a run to its holder's resources, or subtract them. Then update the
        rank of the holder.
        """
        holder, asked = self._shares.note(run.task), run.task.demand
        gpus, cpus, memory = self._held.get(holder, _NOTHING)
        self._held[holder] = (
            round(gpus + sign * run.gpus, 6),
            round(cpus + sign * asked.cpus / MICRO * run.instances, 6),
            round(memory + sign * asked.memory / MICRO * run.instances, 6),
        )
        for demand, tasks in self._tasks.items():
            if holder in tasks:
                self._enter(demand, holder)

    def first(self, view: ClusterView) -> TaskState | None:
        """Return the first task of the holder with the smallest share, among the tasks that fit, or
        None if none fits.
        """
        best: tuple[tuple[float, int, int], TaskState] | None = None
        for demand, heap in self._heaps.items():
            if not heap or not view.machines.fits(demand):
                continue
            while heap:
                entry = heap[0]
                holder = entry[3]
                if self._latest.get((demand, holder)) is not entry:
                    heappop(heap)
                    continue
                task = self._oldest(demand, holder)
                if task is not None and entry[1:3] == (task.order, task.piece):
                    if best is None or entry[:3] < best[0]:
                        best = entry[:3], task
                    break
                heappop(heap)
                self._enter(demand, holder)
        return None if best is None else best[1]

    def _oldest(self, demand: DemandClass, holder: Hashable) -> TaskState | None:
        tasks = self._tasks[demand].get(holder)
        if tasks is None:
            return None
        while tasks and not tasks[0][2].waiting:
            heappop(tasks)
        if not tasks:
            del self._tasks[demand][holder]
            return None
        return tasks[0][2]

    def _enter(self, demand: DemandClass, holder: Hashable) -> None:
        task = self._oldest(demand, holder)
        if task is not None:
            share = self._shares.share(holder, self._held.get(holder, _NOTHING), self._total)
            entry = (share, task.order, task.piece, holder)
            latest = self._latest.get((demand, holder))
            if latest != entry:
                self._latest[demand, holder] = entry
                heappush(self._heaps.setdefault(demand, []), entry)
        else:
            self._latest.pop((demand, holder), None)


def _capacity(view: ClusterView) -> _Amounts:
    nodes = view.cluster.nodes
    return whole_sum(n.gpus for n in nodes), ordered_sum(n.cpus for n in nodes), ordered_sum(n.memory_gb for n in nodes)


def max_min_fair(by: By = "tenant", placement: str | PlacementRule = "best-fit") -> FairShares:
    """Max-min fairness (Bertsekas and Gallager 1992, section 6.5.2): the tenant or job that holds
    the fewest GPUs comes first. All tenants (with ``by=job``, all jobs) are entitled to the same
    number of GPUs. The policy needs no estimates. Its time complexity is that of ``FairShares``.

    Shares are compared between tenants or between jobs (``by``).
    """
    return FairShares(by, _alike, False, placement)


def weighted_fair(alpha: float = 0.0, by: By = "job", placement: str | PlacementRule = "best-fit") -> FairShares:
    """Weighted fairness: the number of GPUs to which a job is entitled is proportional to weight x
    work ^ ``alpha``, where the work of a job is its estimated GPU-seconds. With ``alpha`` 0, only
    the weight counts. With 1, the size of a job counts as well. Below 0, small jobs get more. With
    a tuned ``alpha``, this is the strongest baseline of Decima (Mao et al., SIGCOMM 2019, section
    7.1). With ``by=tenant``, the first job of a tenant determines the tenant's entitlement. The
    policy uses estimates. Its time complexity is that of ``FairShares``.

    Shares are compared between tenants or between jobs (``by``).

    Raises:
        ConfigError: ``alpha`` is not between -4 and 4.
    """
    require(-4 <= alpha <= 4, "weighted-fair: alpha must be between -4 and 4", alpha)

    def due(task: TaskState) -> float:
        work = (
            ordered_sum([width(sibling) * sibling.task.instances * sibling.best_s for sibling in task.job.tasks])
            if alpha
            else 1.0
        )
        return float(task.job.job.weight * max(work, 1e-9) ** alpha) or 1e-9

    return FairShares(by, due, False, placement)


def drf(by: By = "tenant", placement: str | PlacementRule = "best-fit") -> FairShares:
    """Dominant resource fairness (Ghodsi et al., NSDI 2011): the tenant with the smallest dominant
    share comes first. The dominant share is the largest of the tenant's shares of GPUs, cores and
    memory, divided by the weight of the tenant's first job. The policy needs no estimates. Its time
    complexity is that of ``FairShares``.

    Shares are compared between tenants or between jobs (``by``).
    """
    return FairShares(by, _weight, True, placement)


def _alike(task: TaskState) -> float:
    return 1.0


def _weight(task: TaskState) -> float:
    return task.job.job.weight or 1e-9
