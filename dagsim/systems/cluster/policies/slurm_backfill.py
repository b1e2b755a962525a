"""Slurm's backfill: the queue by tier and priority, and the plan of one cycle."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from math import ceil, floor, inf
from typing import NamedTuple

from dagsim.model.arithmetic import bits
from dagsim.systems.cluster.api import ClusterState, ClusterView, DemandClass, NodeState, Run, TaskState
from dagsim.systems.cluster.policies.slurm_priority import PriorityBook, RankColumns
from dagsim.systems.cluster.policies.slurm_rules import Amounts, Holder, Holdings

__all__ = ["BackfillOutlook", "NodePlan", "PendingJob", "PendingJobs", "Reservation"]


class Reservation(NamedTuple):
    """Whole nodes that are kept for a job; ``nodes`` is a bit set."""

    begin_s: float
    end_s: float
    nodes: int


class NodePlan:
    """Reservations over named nodes, around the runs under way and the ends of their time limits.

    A reservation takes whole nodes, whatever its job asks of them, as Slurm's does. A job may not start now if its
    limit ends in the very instant in which a reservation of its nodes begins (``ties`` ``"wait"``, as slurmctld has
    it), or it may (``"fit"``); a later reservation may always end where another begins.
    """

    def __init__(
        self, view: ClusterView, ends_s: Mapping[int, float], whole: int, *, window_s: float, resolution_s: float
    ) -> None:
        self.now = view.now
        self.reserved: list[Reservation] = []
        """By their ends."""
        self._ends: list[float] = []
        self._view, self._ends_s, self._whole = view, ends_s, whole
        self._until_s, self._resolution_s = view.now + window_s, resolution_s
        self._known: dict[tuple[DemandClass, bool, int], list[tuple[float, float]]] = {}
        """Limits asked before for a demand on some nodes, and the first time found, which can only come later."""
        self._runs: dict[int, list[Run]] = {}
        """The runs on each node."""
        self._rooms: dict[tuple[DemandClass, bool], list[tuple[float, int, int]]] = {}
        self._of: dict[int, dict[tuple[DemandClass, bool], list[tuple[float, int, int]]]] = {}
        for run in view.running.values():
            self.started(run)

    def started(self, run: Run) -> None:
        """Take in a run; what was known of the room of its nodes is out of date."""
        for node in run.nodes:
            self._runs.setdefault(node, []).append(run)
            self._of.pop(node, None)
        self._rooms.clear()

    def kept(self, begin_s: float, end_s: float, *, closed: bool, of: int = -1) -> int:
        """The nodes that are reserved at some time between; ``closed`` counts what begins just at the end. No more is
        looked for when all nodes ``of`` are among them."""
        found = 0
        for each in self.reserved[bisect_right(self._ends, begin_s) :]:
            if each.begin_s < end_s or (closed and each.begin_s == end_s):
                found |= each.nodes
                if not of & ~found:
                    break
        return found

    def reserve(self, begin_s: float, end_s: float, nodes: int) -> None:
        """Keep nodes; times are widened to the resolution."""
        step = self._resolution_s
        kept = Reservation(floor(begin_s / step) * step, ceil(end_s / step) * step, nodes)
        at = bisect_right(self._ends, kept.end_s)
        self._ends.insert(at, kept.end_s)
        self.reserved.insert(at, kept)

    def earliest(
        self, demand: DemandClass, nodes: int, limit_s: float, *, alone: bool, distinct: bool
    ) -> tuple[float, int] | None:
        """The first time within the window at which ``nodes`` have room for a start of ``demand`` for ``limit_s``, and
        which of them: the first in their order. ``alone`` needs nodes that nobody uses, ``distinct`` one per instance.
        """
        known = self._known.setdefault((demand, alone, nodes), [])
        least_s = max([begin_s for limit, begin_s in known if limit <= limit_s], default=self.now)
        if least_s > self._until_s:
            return None
        steps = [step for step in self._steps(demand, alone) if nodes >> step[1] & 1]
        times = {least_s, *(step[0] for step in steps), *(each.end_s for each in self.reserved)}
        room: dict[int, int] = {}
        with_room, at = 0, 0
        for begin_s in sorted([time_s for time_s in times if least_s <= time_s <= self._until_s]):
            while at < len(steps) and steps[at][0] <= begin_s:
                _, node, count = steps[at]
                room[node] = count
                with_room = with_room | 1 << node if count else with_room & ~(1 << node)
                at += 1
            free = with_room and with_room & ~self.kept(begin_s, begin_s + limit_s, closed=False, of=with_room)
            chosen = _chosen(free, room, demand.gang or 1, distinct) if free else 0
            if chosen:
                known.append((limit_s, begin_s))
                return begin_s, chosen
        known.append((limit_s, inf))
        return None

    def _steps(self, demand: DemandClass, alone: bool) -> list[tuple[float, int, int]]:
        """Time, node and how many instances it has room for from then on, in order of time."""
        known = self._rooms.get((demand, alone))
        if known is None:
            known = []
            for machine in self._view.machines.list:
                if machine.up and machine.type in demand.types:
                    known += self._steps_of(machine, demand, alone)
            known.sort()
            self._rooms[demand, alone] = known
        return known

    def _steps_of(self, machine: NodeState, demand: DemandClass, alone: bool) -> list[tuple[float, int, int]]:
        of = self._of.setdefault(machine.index, {})
        known = of.get((demand, alone))
        if known is None:
            known = of[demand, alone] = list(self._freed(machine, demand, alone))
        return known

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
        """When its limit ends; one that is past it may end any second."""
        return max(self._ends_s.get(run.id, inf), self.now + 1.0)


def _room(demand: DemandClass, idle: int, cpus: int, memory: int) -> int:
    """``NodeState.room`` of a node that is up and shares no GPU, for a demand of whole GPUs or none."""
    room = idle // demand.whole if demand.whole else 1 << 40
    if demand.cpus:
        room = min(room, cpus // demand.cpus)
    return min(room, memory // demand.memory) if demand.memory else room


def _chosen(free: int, room: Mapping[int, int], wanted: int, distinct: bool) -> int:
    """The first nodes of ``free`` that have room for ``wanted`` instances together; 0 if they do not."""
    chosen = 0
    for node in bits(free):
        chosen |= 1 << node
        wanted -= 1 if distinct else room[node]
        if wanted <= 0:
            return chosen
    return 0


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
        """Tasks that became eligible since the last look."""
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


class BackfillOutlook:
    """Within a cycle room only shrinks, so that a job which cannot start once cannot start any more: each is looked at
    once, from the front. When nobody is left who could, nothing need be kept for anybody.

    ``listed`` are the jobs, of which ``tests`` are tested; one that is not ``testable`` (it is at a limit) does not
    count. ``could`` says that one may start now, ``fits`` that machines have room, whatever its limits.
    """

    def __init__(
        self,
        listed: Sequence[PendingJob],
        tests: int,
        testable: Callable[[TaskState], bool],
        could: Callable[[TaskState], bool],
        fits: Callable[[DemandClass], bool],
    ) -> None:
        self._listed, self._testable, self._could, self._fits = listed, testable, could, fits
        self._next = 0
        """Jobs before this place cannot start."""
        self._fitting = 0
        """Those before this place find no room on machines."""
        self._end = tests
        """Behind the last that may be tested."""
        self._passed: set[TaskState] = set()
        """Those seen ahead that do not count."""

    def removed(self, task: TaskState) -> None:
        """The present job left the list without a test."""
        self._next -= 1
        self._fitting -= 1
        if task in self._passed:
            self._passed.discard(task)
            self._end -= 1

    def started(self) -> None:
        """The present job had a test and started."""
        self._end -= 1

    def knows_no(self, at: int) -> bool:
        """True if the job at a place is known not to start."""
        return at < self._next

    def any_fits(self, at: int, left: int) -> bool:
        """True if machines have room for one of the next ``left`` jobs from ``at`` on."""
        place, last = max(self._fitting, at), min(at + left, len(self._listed))
        while place < last and not self._fits(self._listed[place].task.demand):
            place += 1
        self._fitting = place
        return place < last

    def is_hopeful(self, at: int) -> bool:
        """True if a job from ``at`` on could start."""
        place = max(self._next, at)
        while place < min(self._end, len(self._listed)):
            task = self._listed[place].task
            if not self._testable(task):
                if task not in self._passed:
                    self._passed.add(task)
                    self._end += 1
            elif self._could(task):
                break
            place += 1
        self._next = place
        return place < min(self._end, len(self._listed))
