"""Slurm's backfill: the queue by tier and priority, and the plan of one cycle."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from math import ceil, floor, inf
from typing import NamedTuple

from dagsim.systems.cluster.api import ClusterState, ClusterView, DemandClass, NodeState, Run, TaskState
from dagsim.systems.cluster.policies.slurm_placement import NodeChoice
from dagsim.systems.cluster.policies.slurm_priority import PriorityBook, RankColumns
from dagsim.systems.cluster.policies.slurm_rules import Amounts, Holder, Holdings

__all__ = ["BackfillOutlook", "NodePlan", "PendingJob", "PendingJobs", "Reservation", "may_fit"]


class Reservation(NamedTuple):
    """Whole nodes reserved for a job; ``nodes`` is a bit set."""

    begin_s: float
    end_s: float
    nodes: int


class NodePlan:
    """Reservations over named nodes, around the runs under way and the ends of their time limits.

    A reservation takes whole nodes, whatever its job needs of them, as in Slurm. If the limit of a
    job ends at the very instant at which a reservation of its nodes begins, ``ties`` decides
    whether the job may start now: no (``"wait"``, as in slurmctld) or yes (``"fit"``). A later
    reservation may always end where another begins.
    """

    def __init__(
        self,
        view: ClusterView,
        ends_s: Mapping[int, float],
        whole: int,
        choice: NodeChoice,
        *,
        window_s: float,
        resolution_s: float,
    ) -> None:
        self.now = view.now
        self._choice = choice
        self.reserved: list[Reservation] = []
        """Reservations, sorted by their ends."""
        self._ends: list[float] = []
        self._view, self._ends_s, self._whole = view, ends_s, whole
        self._until_s, self._resolution_s = view.now + window_s, resolution_s
        self._known: dict[tuple[DemandClass, bool, int], list[tuple[float, float]]] = {}
        """Cached for a demand on some nodes: limits, and the first possible time of each, which can
        only become later.
        """
        self._runs: dict[int, list[Run]] = {}
        """The runs on each node."""
        self._rooms: dict[tuple[DemandClass, bool], list[tuple[float, int, int]]] = {}
        self._of: dict[int, dict[tuple[DemandClass, bool], list[tuple[float, int, int]]]] = {}
        for run in view.running.values():
            self.started(run)

    def started(self, run: Run) -> None:
        """Add a run; cached room of its nodes is dropped."""
        for node in run.nodes:
            self._runs.setdefault(node, []).append(run)
            self._of.pop(node, None)
        self._rooms.clear()

    def kept(self, begin_s: float, end_s: float, *, closed: bool, of: int = -1) -> int:
        """Return the nodes that are reserved at some time between the two; with ``closed`` also
        those of reservations that begin exactly at the end. The search stops once all nodes
        ``of`` are among them.
        """
        kept_nodes = 0
        for reservation in self.reserved[bisect_right(self._ends, begin_s) :]:
            if reservation.begin_s < end_s or (closed and reservation.begin_s == end_s):
                kept_nodes |= reservation.nodes
                if not of & ~kept_nodes:
                    break
        return kept_nodes

    def reserve(self, begin_s: float, end_s: float, nodes: int) -> None:
        """Reserve nodes; times are widened to the resolution."""
        step = self._resolution_s
        kept = Reservation(floor(begin_s / step) * step, ceil(end_s / step) * step, nodes)
        at = bisect_right(self._ends, kept.end_s)
        self._ends.insert(at, kept.end_s)
        self.reserved.insert(at, kept)

    def earliest(
        self, demand: DemandClass, nodes: int, limit_s: float, *, alone: bool, distinct: bool
    ) -> tuple[float, int] | None:
        """Return the first time within the window at which ``nodes`` have room for a start of
        ``demand`` for ``limit_s``, and the first such nodes in their order. ``alone`` requires
        nodes without other users, ``distinct`` one node per instance.
        """
        tried = self._known.setdefault((demand, alone, nodes), [])
        least_s = max([begin_s for limit, begin_s in tried if limit <= limit_s], default=self.now)
        if least_s > self._until_s:
            return None
        steps = [step for step in self._steps(demand, alone) if nodes >> step[1] & 1]
        times = {least_s, *(step[0] for step in steps), *(reservation.end_s for reservation in self.reserved)}
        site, terms = self._view.machines.site, demand.terms
        if site is not None and terms is not None:
            times.update(site.boundaries)
        room: dict[int, int] = {}
        with_room, at = 0, 0
        for begin_s in sorted([time_s for time_s in times if least_s <= time_s <= self._until_s]):
            while at < len(steps) and steps[at][0] <= begin_s:
                _, node, count = steps[at]
                room[node] = count
                with_room = with_room | 1 << node if count else with_room & ~(1 << node)
                at += 1
            free = with_room
            if free and site is not None and terms is not None:
                free &= site.open_between(terms, begin_s, begin_s + limit_s)
            if free:
                free &= ~self.kept(begin_s, begin_s + limit_s, closed=False, of=free)
            chosen = self._choice.nodes(free, room, room, demand.gang or 1, spread=distinct) if free else 0
            if chosen:
                tried.append((limit_s, begin_s))
                return begin_s, chosen
        tried.append((limit_s, inf))
        return None

    def _steps(self, demand: DemandClass, alone: bool) -> list[tuple[float, int, int]]:
        """Return time, node and the number of instances it has room for from then on, sorted by
        time.
        """
        steps = self._rooms.get((demand, alone))
        if steps is None:
            steps = []
            for machine in self._view.machines.list:
                if machine.up and machine.type in demand.types:
                    steps += self._steps_of(machine, demand, alone)
            steps.sort()
            self._rooms[demand, alone] = steps
        return steps

    def _steps_of(self, machine: NodeState, demand: DemandClass, alone: bool) -> list[tuple[float, int, int]]:
        of = self._of.setdefault(machine.index, {})
        steps = of.get((demand, alone))
        if steps is None:
            steps = of[demand, alone] = list(self._freed(machine, demand, alone))
        return steps

    def _freed(self, machine: NodeState, demand: DemandClass, alone: bool) -> Iterator[tuple[float, int, int]]:
        runs = sorted(self._runs.get(machine.index, ()), key=lambda run: (self._end_s(run), run.id))
        shared = not (alone or self._whole >> machine.index & 1)
        node, plain = machine.index, not (demand.share or machine.shares)
        idle, cpus, memory = machine.idle, machine.cpus, machine.memory
        if shared or not runs:
            yield self.now, node, machine.room(demand)
        for place, run in enumerate(runs):
            gives = run.task.demand
            for held, count, mask, on in run.held:
                if held.index != node:
                    continue
                if plain:
                    idle, cpus = idle + gives.whole * count, cpus + gives.cpus * count
                    memory += gives.memory * count
                else:
                    machine = machine.after(gives, count, mask, on)
            if shared or place == len(runs) - 1:
                yield self._end_s(run), node, _room(demand, idle, cpus, memory) if plain else machine.room(demand)

    def _end_s(self, run: Run) -> float:
        """Time when the limit of a run ends, at least 1 s from now: a run past its limit may end at
        any moment.
        """
        return max(self._ends_s.get(run.id, inf), self.now + 1.0)


def _room(demand: DemandClass, idle: int, cpus: int, memory: int) -> int:
    """``NodeState.room`` of a node that is up and shares no GPU, for a demand of whole GPUs or none."""
    room = idle // demand.whole if demand.whole else 1 << 40
    if demand.cpus:
        room = min(room, cpus // demand.cpus)
    return min(room, memory // demand.memory) if demand.memory else room


def may_fit(machines: ClusterState, demand: DemandClass) -> bool:
    """True if nodes may have room for a start. A gang without GPUs may combine nodes of different
    types, so it is not judged here.
    """
    return bool(demand.gang and not demand.demand.gpus) or machines.fits(demand)


class PendingJob(NamedTuple):
    """A ready task with its sort keys other than its priority."""

    tier: int
    order: int
    piece: int
    slot: int
    """Slot of its priority in ``RankColumns``; -1 if all jobs have the same priority."""
    task: TaskState
    place: int = 0
    """Index of its partition among those that the job may run in; it is listed once for each."""


class PendingJobs:
    """An index of the ready tasks (``ClusterView.index``) in the order in which they are examined:
    by tier and priority, highest first, then by submission. ``rank`` returns tier and slot of a
    new task in each of its partitions, ``ranks`` holds the priority of a slot, ``eligible_s``
    returns the time from which a task may start.

    Cost: a search and a shift of the list per task added or removed, O(n log n) when all priorities
    change.
    """

    def __init__(
        self,
        rank: Callable[[TaskState], Sequence[tuple[int, int]]],
        ranks: RankColumns,
        eligible_s: Callable[[TaskState], float],
    ) -> None:
        self.listed: list[PendingJob] = []
        self.arrived: list[TaskState] = []
        """Tasks that became eligible since the last call."""
        self.changed = True
        """True if a task has been added since the last backfill."""
        self._rank, self._ranks, self._eligible_s = rank, ranks, eligible_s
        self._later: list[tuple[float, int, int, TaskState]] = []
        self._counted: set[TaskState] = set()
        self._demands: dict[DemandClass, int] = {}
        """Waiting tasks by demand; killed tasks may be among them."""
        self._aside: dict[Holder, dict[Amounts, list[PendingJob]]] = {}

    def any_fits(self, machines: ClusterState) -> bool:
        """True if nodes may have room for any of the jobs, whatever their limits. O(demand classes)."""
        return bool(self.listed) and any(may_fit(machines, demand) for demand in self._demands)

    def push(self, task: TaskState) -> None:
        """Add a task that became ready."""
        if task not in self._counted:
            self._counted.add(task)
            self._demands[task.demand] = self._demands.get(task.demand, 0) + 1
        heappush(self._later, (self._eligible_s(task), task.order, task.piece, task))

    def started(self, run: Run, now: float) -> None:
        """Stop counting a task when its last instance has started."""
        task = run.task
        if not task.waiting and task in self._counted:
            self._counted.discard(task)
            self._demands[task.demand] -= 1
            if not self._demands[task.demand]:
                del self._demands[task.demand]

    def admit(self, now: float) -> Iterator[TaskState]:
        """List the tasks that have become eligible, and yield each of them first."""
        while self._later and self._later[0][0] <= now:
            task = heappop(self._later)[3]
            if task.waiting:
                yield task
                if task.waiting:
                    for place, (tier, slot) in enumerate(self._rank(task)):
                        self._list(PendingJob(tier, task.order, task.piece, slot, task, place))
                    self.changed = True

    def next_s(self) -> float:
        """Time when the next task becomes eligible."""
        while self._later and not self._later[0][3].waiting:
            heappop(self._later)
        return self._later[0][0] if self._later else inf

    def set_aside(self, at: int, holder: Holder, amounts: Amounts) -> None:
        """Remove a listed job until ``holder`` frees something."""
        self._aside.setdefault(holder, {}).setdefault(amounts, []).append(self.listed.pop(at))

    def recall(self, freed: Iterable[Holder], holdings: Holdings) -> None:
        """List jobs again that waited for limits which now have room, up to that room for each
        demand.
        """
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
        """Sort all jobs by their priorities at ``at_s``."""
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

    def _key(self, job: PendingJob) -> tuple[int, float, int, int, int]:
        priority = 0.0 if job.slot < 0 else self._ranks.latest(job.slot)
        return -job.tier, -priority, job.order, job.piece, job.place


class BackfillOutlook:
    """The jobs that may still start in a backfill cycle. Within a cycle room only shrinks, so a job
    that cannot start once cannot start later. Each job is therefore checked once, from the
    front. When no job is left that could start, no more reservations are needed.

    ``listed`` are the jobs; ``tests`` of them are tested. A job that is not ``testable`` (it is at
    a limit) does not count. ``could`` returns True if a job may start now, ``fits`` if machines
    have room, whatever its limits.
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
        """Index before which no job finds room on machines."""
        self._end = tests
        """Index after the last job that may be tested."""
        self._passed: set[PendingJob] = set()
        """Jobs seen ahead that do not count."""

    def removed(self, job: PendingJob) -> None:
        """Record that the current job left the list untested."""
        self._next -= 1
        self._fitting -= 1
        if job in self._passed:
            self._passed.discard(job)
            self._end -= 1

    def started(self) -> None:
        """Record that the current job was tested and started."""
        self._end -= 1

    def knows_no(self, at: int) -> bool:
        """True if the job at an index is known not to start."""
        return at < self._next

    def any_fits(self, at: int, left: int) -> bool:
        """True if machines have room for one of the ``left`` jobs from index ``at`` on."""
        place, last = max(self._fitting, at), min(at + left, len(self._listed))
        while place < last and not self._fits(self._listed[place].task.demand):
            place += 1
        self._fitting = place
        return place < last

    def is_hopeful(self, at: int) -> bool:
        """True if some job from index ``at`` on could start."""
        place = max(self._next, at)
        while place < min(self._end, len(self._listed)):
            job = self._listed[place]
            if not self._testable(job):
                if job not in self._passed:
                    self._passed.add(job)
                    self._end += 1
            elif self._could(job):
                break
            place += 1
        self._next = place
        return place < min(self._end, len(self._listed))
