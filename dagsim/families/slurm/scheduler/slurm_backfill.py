"""Slurm's backfill: the plan for one cycle, with the reservations of jobs that cannot start yet."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from math import floor, inf, nextafter
from operator import or_
from typing import NamedTuple

import numpy as np

from dagsim.families.slurm.scheduler.node_choice import NodeChoice, NodeLayout
from dagsim.families.slurm.scheduler.pending_jobs import PendingJob
from dagsim.families.slurm.scheduler.run_table import Numbers, RunTable, inner_loops
from dagsim.families.slurm.scheduler.slurm_times import FitSteps, Held, Reserved, SiteClock, Where
from dagsim.model.arithmetic import bits
from dagsim.model.queues import UNLIMITED_S
from dagsim.systems.cluster.api import ClusterView, DemandClass, NodeState


class Reservation(NamedTuple):
    """Whole nodes that are reserved for a job. ``nodes`` is a bit set."""

    begin_s: float
    end_s: float
    nodes: int

    def meets(self, begin_s: float, end_s: float, closed: bool) -> bool:
        """Return True if the reservation overlaps the interval from ``begin_s`` to ``end_s``. With
        ``closed``, a reservation that begins exactly at ``end_s`` also counts.
        """
        return self.end_s > begin_s and (self.begin_s < end_s or (closed and self.begin_s == end_s))


@dataclass(slots=True)
class _Search:
    """The inputs that remain constant during the search for the time at which a demand can start on
    some groups of nodes."""

    nodes: int
    listed: list[int]
    where: Where
    least_s: float
    never_s: float
    """The shortest limit for which no time was found. No time will be found later in the cycle
    either."""
    steps: FitSteps | None = None
    """The steps of these nodes, or None if a run has started since they were computed."""


class NodePlan:
    """The reservations of specific nodes that one backfill cycle makes, in addition to the running
    jobs with their time limits.

    As in Slurm, a reservation takes whole nodes, even if the job needs only a part of each node.
    ``ties`` applies if a job's limit ends exactly when a reservation of its nodes begins. With
    ``"wait"``, as in slurmctld, the job may not start now. With ``"fit"``, it may. In both cases, a
    reservation may end exactly when another begins.
    """

    def __init__(
        self,
        view: ClusterView,
        table: RunTable,
        whole: int,
        choice: NodeChoice,
        *,
        window_s: float,
        resolution_s: float,
        linear_s: float = 0.0,
    ) -> None:
        self.now, self._now = view.now, float(view.now)
        self.reserved: list[Reservation] = []
        """Reservations, sorted by their ends."""
        self.made: list[Reservation] = []
        """Reservations in the order in which they were made."""
        self._ends: list[float] = []
        self._space = [Reservation(view.now, view.now + window_s, 0)]
        """Slurm's map: periods, each with the nodes that are reserved in it."""
        self._table, self._choice, self._whole = table, choice, whole
        self._view, self._until_s, self._resolution_s = view, view.now + window_s, resolution_s
        self._searches: dict[tuple[DemandClass, bool, tuple[int, ...], int, frozenset[int], int], _Search] = {}
        machines = view.machines
        self._origin_s = 0.0 if machines.site is None else float(machines.site.origin_s)
        self._clock = SiteClock(self._now, self._origin_s, resolution_s, float(linear_s))
        self._of_type = [0] * len(machines.types)
        for machine in machines.list:
            self._of_type[machine.type] |= machine.bit if machine.up else 0
        self._all_up = reduce(or_, self._of_type)
        self._up_of: dict[tuple[int, ...], int] = {}
        self._steps: dict[tuple[DemandClass, bool, frozenset[int]], FitSteps] = {}
        self._tables: dict[frozenset[int], RunTable] = {}
        """The runs under way without those that a job may stop."""
        table.refresh(machines.list)
        table.begin()
        self._fill, self._earliest = inner_loops(compiled=table.compiled)
        table.sort(self._now)
        self._drained = 0
        """Nodes on which nothing may start for an unknown time."""
        if machines.site is not None:
            for drain in machines.site.drained:
                self._drained |= drain.nodes if drain.start_s <= self.now < drain.end_s else 0
            for closed in machines.site.closed:
                if closed.known_s <= self.now < closed.end_s and closed.start_s < self.now + UNLIMITED_S:
                    for node in bits(closed.nodes):
                        table.keep(node, closed.start_s, closed.end_s, closed.number)

    def started(self) -> None:
        """Drop the cached free resources, because a run has started."""
        self._table.refresh(self._view.machines.list)
        self._table.sort(self._now)
        self._steps.clear()
        self._tables.clear()
        for search in self._searches.values():
            search.steps = None

    def kept(self, begin_s: float, end_s: float, *, closed: bool, of: int = -1) -> int:
        """Return the nodes that are reserved at some time between ``begin_s`` and ``end_s``. With
        ``closed``, reservations that begin exactly at ``end_s`` also count. The search stops once
        it has found all the nodes in ``of``.
        """
        kept_nodes = 0
        for reservation in self.reserved[bisect_right(self._ends, begin_s) :]:
            if reservation.begin_s < end_s or (closed and reservation.begin_s == end_s):
                kept_nodes |= reservation.nodes
                if not of & ~kept_nodes:
                    break
        return kept_nodes

    def reserve(self, begin_s: float, end_s: float, nodes: int) -> None:
        """Reserve nodes. Both times are rounded down to a multiple of the resolution, on the site's
        clock."""
        step, origin_s = self._resolution_s, self._origin_s
        begin_s = max(floor((begin_s + origin_s) / step) * step - origin_s, self.now)
        kept = Reservation(begin_s, max(floor((end_s + origin_s) / step) * step - origin_s, begin_s + step), nodes)
        at = bisect_right(self._ends, kept.end_s)
        self._ends.insert(at, kept.end_s)
        self.reserved.insert(at, kept)
        self.made.append(kept)
        for node in bits(nodes):
            self._table.keep(node, kept.begin_s, kept.end_s, -1)
        self._map(kept)

    def _map(self, kept: Reservation) -> None:
        """Enter a reservation into Slurm's map of periods. Split the periods in which the
        reservation begins and ends, and merge two periods that have the same nodes, like
        ``_add_reservation``. Like Slurm, merge at most one pair.
        """
        entries: list[Reservation] = []
        for period in self._space:
            begin_s, end_s, nodes = period
            if kept.end_s <= begin_s < end_s or begin_s < end_s <= kept.begin_s:
                entries.append(period)
                continue
            edges = sorted({begin_s, end_s, *[one for one in kept[:2] if begin_s < one < end_s]})
            for from_s, until_s in pairwise(edges):
                inside = kept.begin_s <= from_s and until_s <= kept.end_s
                entries.append(Reservation(from_s, until_s, nodes | kept.nodes if inside else nodes))
        for place in range(len(entries) - 1):
            first, second = entries[place : place + 2]
            if first.nodes == second.nodes and second.end_s >= kept.begin_s and first.begin_s <= kept.end_s:
                entries[place : place + 2] = [Reservation(first.begin_s, second.end_s, first.nodes)]
                break
        self._space = entries

    def make_room(
        self,
        job: PendingJob,
        may_hold: Callable[[int], bool],
        gone: frozenset[int] = frozenset(),
        barred: int = 0,
    ) -> bool:
        """Reserve nodes for the earliest possible start of a job, if the job's limits allow it to
        hold these nodes (``may_hold``). The job may stop the runs ``gone``, but may never use nodes
        in ``barred`` (``filter_by_node_owner``). Return True if nodes were reserved.
        """
        best = self._start_of(job, gone, barred)
        if best is None or not may_hold(best.nodes):
            return False
        self.reserve(*best)
        return True

    def counts_delay(self, job: PendingJob, gone: frozenset[int] = frozenset(), barred: int = 0) -> bool:
        """Return True if the job's constraint, which states numbers of nodes, keeps it from
        starting in this cycle.
        """
        best = self._start_of(job, gone, barred)
        return best is None or best.begin_s > self.now

    def _start_of(self, job: PendingJob, gone: frozenset[int], barred: int) -> Reservation | None:
        """Return the nodes that a job would take at its earliest possible start, until the end of
        its time limit."""
        best: Reservation | None = None
        for limit_s, listed in job.asked:
            groups = tuple([nodes & ~barred for nodes in listed]) if barred else listed
            search = partial(
                self.earliest, job.task.demand, span=job.span & ~barred, limit_s=limit_s,
                alone=job.alone, layout=job.layout._replace(shares=()) if job.counts else job.layout, gone=gone,
            )  # fmt: skip
            earliest = self._counted_start(job, groups, limit_s, search) if job.counts else search(groups=groups)
            if earliest is not None and (best is None or earliest[0] < best.begin_s):
                best = Reservation(earliest[0], earliest[0] + limit_s, earliest[1])
        return best

    def _counted_start(
        self,
        job: PendingJob,
        groups: tuple[int, ...],
        limit_s: float,
        search: Callable[..., tuple[float, int] | None],
    ) -> tuple[float, int] | None:
        """Return the start and the nodes of a job whose constraint states numbers of nodes for
        several features. Slurm searches for one feature after another, each time for as many CPUs
        as the whole job needs. It may therefore plan more nodes than the job takes (``_try_sched``
        in backfill.c). The start is when the last of these searches finds nodes.
        """
        from_s = self.now
        while True:
            begin_s, chosen = from_s, 0
            for nodes, wanted in job.counts:
                earliest = search(
                    groups=tuple([part & nodes & ~chosen for part in groups]), from_s=from_s, wanted=wanted
                )
                if earliest is None:
                    return None
                begin_s, chosen = max(begin_s, earliest[0]), chosen | earliest[1]
            if (lacking := (job.task.demand.gang or 1) - chosen.bit_count()) > 0 and job.layout.spread:
                open_ = tuple([nodes & ~chosen for nodes in groups])
                earliest = search(groups=open_, from_s=from_s, wanted=lacking)
                if earliest is None:
                    return None
                chosen |= earliest[1]
            if begin_s <= from_s or not self._taken(chosen, begin_s, begin_s + limit_s):
                return begin_s, chosen
            from_s = begin_s

    def earliest(
        self,
        demand: DemandClass,
        groups: tuple[int, ...],
        span: int,
        limit_s: float,
        *,
        alone: bool,
        layout: NodeLayout,
        gone: frozenset[int] = frozenset(),
        from_s: float = -inf,
        wanted: int = 0,
    ) -> tuple[float, int] | None:
        """Return the first time within the backfill window at which one of the groups of nodes can
        run ``demand`` for ``limit_s``. Also return the nodes that the job takes, which belong to
        the first suitable group.

        A gang uses nodes of a single group. ``span`` contains all nodes in the partition. ``alone``
        requires nodes without other users. ``layout`` sets how the instances are distributed over
        nodes. The runs ``gone`` count as ended (``_future_run_test`` in job_test.c). The job starts
        at ``from_s`` or later. ``wanted`` is the number of instances to place (by default all of
        them).
        """
        wanted = wanted or demand.gang or 1
        key = demand, alone, groups, span, gone, wanted
        search = self._searches.get(key)
        if search is None:
            search = self._searches[key] = self._search(demand, groups, span)
        if search.never_s <= limit_s:
            return None
        table, out = self._table, self._table.out
        runs = self._without(gone)
        table.searched += len(search.listed)
        if search.steps is None:
            search.steps = self._steps_of(demand, alone, gone)
        least_s, until_s = max(search.least_s, from_s), search.where.until_s
        if least_s > until_s:
            return None
        edges: Numbers = [float(begin_s) for begin_s, *_ in self._space]
        edges = np.array(edges, np.float64) if table.compiled else edges
        kept = Reserved(table.begins, table.untils, table.owners, table.kept, table.kept_stride, edges)
        # pass plain tuples, because numba takes 0.5 us to recognise each named tuple
        parts = [tuple(part) for part in (search.where, search.steps, runs.limits, kept, self._clock)]
        after_s = -inf
        while True:
            begin_s, first, start_s, freed_s = self._earliest(
                *parts, least_s, limit_s, float(wanted), layout.spread, after_s, out
            )
            if begin_s == inf:
                never = from_s <= search.least_s and not (layout.shares or layout.most)
                search.never_s = limit_s if never else search.never_s
                return None
            # ``members`` is sorted by group, so the first node found is the best.
            if wanted == 1 and self._choice.in_order:
                chosen = 1 << int(first)
            else:
                room = {node: int(out[node]) for node in search.listed if out[node] > 0}
                free = sum([1 << node for node in room])
                of_group = next(free & nodes for nodes in groups if free & nodes)
                chosen = self._choice.nodes(of_group, room, room, wanted, layout)
                if not chosen:  # too few of the required nodes are free, so free further runs
                    least_s, after_s = start_s, freed_s
                    continue
            if begin_s <= least_s or not self._taken(chosen, begin_s, begin_s + limit_s):
                return begin_s, chosen
            # Some of these nodes are reserved within this period, so search again from its
            # beginning, as Slurm does.
            least_s, after_s = begin_s, -inf

    def _without(self, gone: frozenset[int]) -> RunTable:
        """Return the table of running jobs as if the runs ``gone`` had ended."""
        if not gone:
            return self._table
        if gone not in self._tables:
            running = self._view.running
            self._tables[gone] = self._table.without([running[run] for run in gone if run in running], self._now)
        return self._tables[gone]

    def _taken(self, nodes: int, begin_s: float, end_s: float) -> bool:
        """Return True if some of the nodes are reserved for a job at some time between ``begin_s``
        and ``end_s``.
        """
        table = self._table
        for node in bits(nodes):
            row = node * table.kept_stride
            for place in range(row, row + int(table.kept[node])):
                if table.untils[place] > begin_s and table.begins[place] < end_s and table.owners[place] < 0:
                    return True
        return False

    def _search(self, demand: DemandClass, groups: tuple[int, ...], span: int) -> _Search:
        """Prepare a search for the times at which a demand may start, and the nodes on which it
        may, in some groups of nodes of a partition.
        """
        least_s, until_s, own = self.now, self._until_s, -2
        site, terms = self._view.machines.site, demand.terms
        usable = reduce(or_, groups) & self._up(demand) & ~self._drained
        if site is not None and terms is not None:
            usable, own = usable & terms.nodes, terms.reservation if terms.reservation >= 0 else own
            if own >= 0:
                times = [closed for closed in site.closed if closed.number == own and closed.end_s > self.now]
                until_s = min(until_s, nextafter(times[0].end_s, -inf)) if times else -inf
                if times:
                    usable, least_s = usable & times[0].nodes, max(least_s, times[0].start_s)
        listed, members = self._table.members(tuple([usable & nodes for nodes in groups]))
        never_s = -inf if least_s > until_s or not usable else inf
        span &= self._all_up & ~self._drained
        asked = self._table.flags(-1 if terms is None else terms.nodes)
        spanned = self._table.members((span | usable,))[1]
        where = Where(members, spanned, asked, own, float(until_s))
        return _Search(usable, listed, where, float(least_s), never_s)

    def _up(self, demand: DemandClass) -> int:
        """Return the nodes that have one of the demand's types and are up."""
        nodes = self._up_of.get(demand.types)
        if nodes is None:
            nodes = 0
            for type_ in demand.types:
                nodes |= self._of_type[type_]
            self._up_of[demand.types] = nodes
        return nodes

    def _steps_of(self, demand: DemandClass, alone: bool, gone: frozenset[int]) -> FitSteps:
        """Return, for each node with a GPU type that the demand allows, the times from which more
        instances of the demand fit."""
        key = demand, alone, gone
        steps = self._steps.get(key)
        if steps is None:
            table, machines = self._without(gone), self._view.machines
            steps = self._steps[key] = table.empty()
            nodes = self._up(demand)
            sharing = nodes if demand.share else 0
            if not demand.share:
                for type_ in demand.types:
                    sharing |= nodes & machines.shared[type_]
            _, members = table.members((nodes & ~sharing,))
            # The nodes that count as open when a domain is chosen. Unlike the plan, this choice
            # does not take the ends of the site's reservations into account.
            open_ = demand.nodes if demand.terms is not None and demand.terms.domains else -1
            needs = (float(demand.whole), float(demand.cpus), float(demand.memory))
            held = Held(table.ends, table.gives, table.runs, table.stride, table.free)
            flags = table.flags(open_), table.flags(self._whole)
            self._fill(members, tuple(held), *flags, needs, alone, self.now, tuple(steps))
            for node in bits(sharing):
                rows = list(self._freed(table, machines.list[node], demand, alone))
                at = node * (table.stride + 1)
                for place, (time_s, count) in enumerate(rows):
                    steps.times[at + place], steps.rooms[at + place] = time_s, float(count)
                steps.counts[node] = len(rows)
        return steps

    def _freed(
        self, table: RunTable, machine: NodeState, demand: DemandClass, alone: bool
    ) -> Iterator[tuple[float, int]]:
        """Yield each time from which more instances fit on a node with partly used GPUs, together
        with the number that fits from then on.
        """
        node = machine.index
        runs = [self._view.running[number] for number in table.ids[node]]
        shared = not (alone or self._whole >> node & 1)
        if shared or not runs:
            yield self.now, machine.room(demand)
        for place, run in enumerate(runs):
            for held, count, mask, on in run.held:
                if held.index == node:
                    machine = machine.after(run.task.demand, count, mask, on)
            if shared or place == len(runs) - 1:
                end_s = float(table.ends[node * table.stride + place])
                yield max(end_s, self.now + 1.0), machine.room(demand)
