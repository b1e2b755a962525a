"""The rules of a site that apply under every policy: partitions, constraints, reservations and
licences.

The rules determine the nodes on which a task may start now. ``Terms`` contains the rules that are
fixed for a task, and belongs to the task's demand class. ``SiteState`` keeps track of which nodes
are *open* to each such class.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from math import inf, nextafter
from operator import and_, attrgetter, or_
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from dagsim.errors import ConfigError, ModelError
from dagsim.model import Cluster, Job, NodePartition, NodeReservation, QueueTree, RejectReason, Request
from dagsim.model.arithmetic import whole_sum
from dagsim.model.constraints import counts_of, satisfies, ways
from dagsim.systems.cluster.forks import COPIED, SAME, Forked

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel
    from dagsim.systems.cluster.network.links import FabricLevel


class Terms(NamedTuple):
    """The part of a demand class that states on which nodes its tasks may run and under which
    terms.
    """

    nodes: int
    """The nodes in the task's partitions that satisfy the task's constraint, as a bit set."""
    limit_s: float = 0.0
    """The task's time limit, or 0 if the site has no reservations."""
    reservation: int = -1
    """Number of the reservation in which the task runs."""
    licences: tuple[tuple[str, int], ...] = ()
    domains: tuple[int, ...] = ()
    """Bit sets of nodes. A gang must be placed within one of them."""
    counts: tuple[NodeCount, ...] = ()
    """For some sets of nodes, how many of a gang's nodes must be in the set."""
    named: int = 0
    """The nodes that each start must include, as a bit set."""
    welcome: tuple[int, ...] = ()
    """Numbers of further reservations whose nodes the task may use while these reservations
    last."""


class NodeCount(NamedTuple):
    """The condition that at least ``least`` of a gang's nodes are among ``nodes`` (a bit set). If
    ``apart``, nodes that are counted for other conditions are not counted here.
    """

    nodes: int
    least: int
    apart: bool


def nodes_by_counts(nodes: Sequence[int], wanted: int, counts: Sequence[NodeCount]) -> list[int] | None:
    """Choose ``wanted`` nodes that satisfy all counts. Nodes that come first in ``nodes`` are
    preferred. Return None if there are too few such nodes.

    The counts are satisfied one by one, starting with the count that has the fewest nodes. For each
    count, nodes that no other count needs are used first.
    """
    chosen: list[int] = []
    for count in sorted(counts, key=lambda count: count.nodes.bit_count()):
        own = [node for node in nodes if count.nodes >> node & 1 and node not in chosen]
        lacking = count.least - (0 if count.apart else sum(count.nodes >> node & 1 for node in chosen))
        if lacking > len(own):
            return None
        own.sort(key=lambda node: sum(other.nodes >> node & 1 for other in counts))
        chosen += own[: max(lacking, 0)]
    rest = [node for node in nodes if node not in chosen]
    return [*chosen, *rest[: wanted - len(chosen)]] if len(chosen) <= wanted <= len(chosen) + len(rest) else None


class ClosedTime(NamedTuple):
    """A period in which a reservation is in effect, on the clock of the simulation. ``nodes`` is a
    bit set.
    """

    name: str
    nodes: int
    start_s: float
    end_s: float
    number: int = -1
    """Number of the reservation, which all of its times share."""
    known_s: float = 0.0


_start_s, _end_s = attrgetter("start_s"), attrgetter("end_s")
_NO_REQUEST = Request()


class SiteState(Forked):
    """The restrictions at a site, and the free licences. All attributes are plain data.

    ``origin_s`` is the time in the log that corresponds to time 0 of the simulation. Constraints
    apply only if the nodes of the cluster have features. A reservation or licence that the site
    does not list is ignored.
    """

    __slots__ = {
        "_chosen": COPIED,
        "_features": SAME,
        "_members": SAME,
        "_named": COPIED,
        "_numbers": SAME,
        "_over": SAME,
        "_owned": SAME,
        "_partitions": SAME,
        "_times": SAME,
        "all_nodes": SAME,
        "boundaries": SAME,
        "closed": SAME,
        "doubt_s": SAME,
        "drained": SAME,
        "levels": SAME,
        "licences": COPIED,
        "magnets": SAME,
        "origin_s": SAME,
    }

    def __init__(
        self,
        cluster: Cluster,
        queues: QueueTree | None,
        origin_s: float = 0.0,
        levels: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        self.origin_s = origin_s
        self.levels = MappingProxyType(dict(levels or {}))
        """Domains of each level of the network, as bit sets."""
        queues = queues or QueueTree()
        names = [node.name for node in cluster.nodes]
        self.all_nodes = (1 << len(names)) - 1
        """All nodes, as a bit set."""
        self._named: dict[str, int] = {}
        """Bit of each node by its name, and of all parts of a node of several GPU types."""
        for at, name in enumerate(names):
            for alias in {name, name.partition(":")[0]}:
                self._named[alias] = self._named.get(alias, 0) | 1 << at
        self._features = tuple([node.features for node in cluster.nodes])
        self._partitions = MappingProxyType({part.name: part for part in queues.partitions})
        self._members = MappingProxyType({part.name: members(part, names) for part in queues.partitions})
        self.magnets = tuple([one for one in queues.reservations if one.magnetic])
        """The magnetic reservations."""
        numbers = {reservation.name: number for number, reservation in enumerate(queues.reservations)}
        times = [_closed_times(one, numbers[one.name], names, origin_s) for one in queues.reservations]
        held = [closed for closed in times if closed]
        reserved = sorted([closed for times in held for closed in times], key=_start_s)
        known = {reservation.name for reservation in queues.reservations}
        self._over = frozenset(known - {closed.name for closed in reserved})
        """Reservations that had ended before the simulation begins."""
        self.closed = tuple(reserved)
        """The reservations, in order of their starts."""
        self.drained = _drains(queues, names, origin_s)
        """Times at which nothing starts on some nodes, in order of their starts."""
        self._numbers = MappingProxyType({closed.name: closed.number for closed in reserved})
        self._times = tuple(held)
        """The times of each reservation, in order; they do not overlap."""
        limits = {time_s for closed in (*reserved, *self.drained) for time_s in (closed.start_s, closed.end_s)}
        self.boundaries = tuple(sorted((limits | {closed.known_s for closed in reserved}) - {inf}))
        """Times at which a reservation or a drain of nodes begins or ends."""
        self._owned = MappingProxyType(dict(queues.licences))
        self.licences = dict(queues.licences)
        """Number of free licences of each kind."""
        gone_s = [times[-1].end_s for times in held] + [drain.start_s for drain in self.drained if drain.end_s == inf]
        self.doubt_s = min(gone_s, default=inf)
        """The time from which some tasks may wait forever, because a reservation has ended or nodes
        are drained for good.
        """
        self._chosen: dict[str, int] = {}
        """Nodes that satisfy each constraint."""

    @classmethod
    def of(
        cls, cluster: Cluster, queues: QueueTree | None, origin_s: float, levels: Sequence[FabricLevel] | None
    ) -> SiteState | None:
        """Create the restrictions for a cluster whose network has ``levels``. Return None if no
        restriction could affect a job.
        """
        if levels is None and not cls.binds(cluster, queues):
            return None
        return cls(cluster, queues, origin_s, domain_sets(levels, len(cluster.nodes)))

    @staticmethod
    def is_needed_for(request: Request | None) -> bool:
        """Return True if a job names nodes. The job is then restricted even if ``binds`` is False."""
        return request is not None and bool(request.nodes or request.excluded)

    def attach(self, kernel: ClusterKernel) -> None:
        """Register with the kernel to be notified of starts and ends, and put timers on its clock.
        This is called at the beginning of a simulation and in each fork.
        """
        machines = kernel.machines
        if self.licences:
            kernel.frontier.started.append(lambda run, now: machines.hold(run.task.demand, 1, now))
            kernel.frontier.ended.append(lambda run, now: machines.hold(run.task.demand, -1, now))
        for time_s in self.boundaries:
            if time_s > kernel.now:
                kernel.call_at(time_s, kernel.wake)

    def pending(self, now: float) -> bool:
        """Return True if any node will open or close after ``now``."""
        return bool(self.boundaries) and self.boundaries[-1] > now

    @classmethod
    def binds(cls, cluster: Cluster, queues: QueueTree | None) -> bool:
        """Return True if the site's rules could restrict any job."""
        if queues is not None and (queues.reservations or queues.outages or queues.licences):
            return True
        if queues is not None and any(part.nodes for part in queues.partitions):
            return True
        return any(node.features for node in cluster.nodes)

    def terms(self, job: Job, limit_s: float, gang: int = 0) -> Terms | None:
        """Return the terms for a task of the job. ``limit_s`` is the task's time limit, and
        ``gang`` is its number of instances if they start together. Return None if no rule applies
        to the task.
        """
        request = job.request or _NO_REQUEST
        nodes, reservation = self.nodes_of(job.partition, request), -1
        wanted = [nodes & self._named[name] for name in request.nodes if name in self._named]
        # the task can use no nodes besides the named ones
        if wanted and len(wanted) >= max(gang, 1):
            nodes = whole_sum(wanted)
            wanted = wanted if gang > 1 else []
        if self.closed:
            reservation = self._numbers.get(request.reservation, -1)
            nodes &= self.all_nodes if reservation < 0 else self.reserved_nodes(reservation)
        licences = tuple([pair for pair in request.licences if pair[0] in self.licences])
        domains = self._domains(job.id, request) if request.level and self.levels else ()
        if sets := self.alike(request):
            domains = tuple([domain & alike for domain in domains or (self.all_nodes,) for alike in sets])
        counts, named = self.counts(request), whole_sum(wanted)
        if gang == 1 and counts:  # the single node has to meet all counts
            nodes, counts = nodes & _meeting_all(counts), ()
        if nodes == self.all_nodes and not (self.closed or self.drained or licences or domains or counts or named):
            return None
        welcome = () if reservation >= 0 else tuple([self._numbers[one.name] for one in self._attracting(job)])
        limit_s = limit_s if self.closed else 0.0
        return Terms(nodes, limit_s, reservation, licences, domains, counts, named, welcome)

    def reserved_nodes(self, number: int) -> int:
        """Return the nodes of a reservation, as a bit set."""
        return reduce(or_, [times[0].nodes for times in self._times if times[0].number == number], 0)

    def _attracting(self, job: Job) -> Iterator[NodeReservation]:
        """Yield the magnetic reservations that are open to a job."""
        for one in self.magnets:
            if one.name not in self._numbers:
                continue
            if (not one.accounts or job.account in one.accounts) and (not one.users or job.user in one.users):
                yield one

    def alike(self, request: Request) -> tuple[int, ...]:
        """In a constraint such as ``[r1|r2]``, all nodes of a job must satisfy the same part. For
        each part, return the bit set of nodes that satisfy it.
        """
        parts = ways(request.constraint) if request.constraint and any(self._features) else ()
        return tuple([self._satisfying(part) for part in parts]) if len(parts) > 1 else ()

    def counts(self, request: Request) -> tuple[NodeCount, ...]:
        """Return the node counts in the constraint of a job."""
        counted = counts_of(request.constraint) if "*" in request.constraint and any(self._features) else ()
        return tuple([NodeCount(self._satisfying(part), least, apart) for part, least, apart in counted or ()])

    def _domains(self, job: str, request: Request) -> tuple[int, ...]:
        if request.level not in self.levels:
            raise ModelError(
                f"job {job!r}: the network has no level {request.level!r}; levels: {', '.join(self.levels)}"
            )
        return self.levels[request.level] if request.level_required and request.segment is None else ()

    def nodes_of(self, partition: str, request: Request | None) -> int:
        """Return the nodes in a job's partitions that satisfy the job's constraint, as a bit
        set.
        """
        request, nodes = request or _NO_REQUEST, self.all_nodes
        if self._partitions:
            named = [name for name in request.partitions or (partition,) if name in self._partitions]
            named = named or [next(iter(self._partitions))]
            nodes = 0
            for name in named:
                nodes |= self._members[name]
        for name in request.excluded:
            nodes &= ~self._named.get(name, 0)
        return nodes & self._satisfying(request.constraint) if request.constraint else nodes

    def named(self, name: str) -> int:
        """Return a bit set of the node with this name. If the node has several GPU types, the bit
        set contains all of its parts.
        """
        return self._named.get(name, 0)

    def refuses(self, job: Job, now: float) -> RejectReason | None:
        """Return the reason why a job that arrives now can never run: it needs more licences than
        exist, or its reservation has ended. Return None if neither is the case. GPUs, CPUs and
        memory are checked elsewhere.
        """
        request = job.request or _NO_REQUEST
        if any(count > self._owned.get(name, inf) for name, count in request.licences):
            return RejectReason.TOO_LARGE
        return RejectReason.CANCELLED if self.is_over(request.reservation, now) else None

    def is_over(self, name: str, now: float) -> bool:
        """Return True if a reservation has ended and will not return."""
        return name in self._over or (name in self._numbers and self.held(self._numbers[name], now) is None)

    def lasting(self, terms: Terms | None, now: float) -> int:
        """Return a bit set of the nodes on which a task with these terms may start now or at some
        later time.
        """
        nodes = self.all_nodes if terms is None else terms.nodes
        if terms is not None and terms.reservation >= 0 and self.held(terms.reservation, now) is None:
            return 0
        for drain in self.drained:
            if drain.end_s == inf and drain.start_s <= now:
                nodes &= ~drain.nodes
        return nodes

    def open(self, terms: Terms, now: float) -> int:
        """Return the nodes on which a task with these terms may start now."""
        if any(self.licences[name] < count for name, count in terms.licences):
            return 0
        return self.open_between(terms, now, now + terms.limit_s)

    def open_between(self, terms: Terms, begin_s: float, end_s: float) -> int:
        """Return the nodes that a task with these terms may hold from ``begin_s`` to ``end_s``. A
        drain matters only if it is already in effect at ``begin_s``, because the scheduler has no
        information about future drains.
        """
        nodes = terms.nodes
        if terms.reservation >= 0:
            own = self.held(terms.reservation, begin_s)
            nodes &= own.nodes if own is not None and own.start_s <= begin_s else 0
        for closed in self.met(terms, begin_s, end_s):
            nodes &= ~closed.nodes
        for drain in self.drained:
            if drain.start_s <= begin_s < drain.end_s:
                nodes &= ~drain.nodes
        return nodes

    def met(self, terms: Terms, begin_s: float, end_s: float) -> Iterator[ClosedTime]:
        """Suppose that a task with these terms ran on all nodes from ``begin_s`` to ``end_s``. For
        each reservation other than the task's own, yield the first period with which the task would
        overlap.
        """
        for times in self._times:
            number = times[0].number
            if number == terms.reservation or begin_s < times[0].known_s:
                continue
            place = bisect_right(times, begin_s, key=_end_s)
            if number in terms.welcome and place < len(times) and times[place].start_s <= begin_s:
                place += 1
            if place < len(times) and times[place].start_s < end_s:
                yield times[place]

    def held(self, number: int, now: float) -> ClosedTime | None:
        """Return the current period of a reservation or, if there is none, the next one. Return
        None if there will be no further period.
        """
        places = [(times, bisect_right(times, now, key=_end_s)) for times in self._times if times[0].number == number]
        return min([times[place] for times, place in places if place < len(times)], key=_start_s, default=None)

    def magnetic_nodes(self) -> dict[int, int]:
        """Return the nodes of each magnetic reservation, by the number of the reservation."""
        numbers = [self._numbers[one.name] for one in self.magnets if one.name in self._numbers]
        return {number: self.reserved_nodes(number) for number in numbers}

    def attracting(self, now: float) -> dict[int, int]:
        """Return the nodes of each magnetic reservation that is in effect, by the number of the reservation."""
        held = {number: self.held(number, now) for number in self.magnetic_nodes()}
        return {number: one.nodes for number, one in held.items() if one is not None and one.start_s <= now}

    def next_s(self, terms: Terms, now: float) -> float:
        """Return the next time at which the nodes that are open for these terms may change just
        because time passes. A task may end at the very time at which a reservation begins. The
        nodes are therefore open up to and including the task's last possible start, and close just
        after that.
        """
        changes_s = [time_s for drain in self.drained for time_s in (drain.start_s, drain.end_s)]
        own = (terms.reservation, *terms.welcome)
        for times in self._times:
            changes_s.append(times[0].known_s)
            place = bisect_right(times, now, key=_end_s)
            for held in times[place : place + 1]:
                changes_s += [held.end_s, held.start_s] if held.number in own else [held.end_s]
            place = bisect_left(times, now + terms.limit_s, key=_start_s)
            if place < len(times):
                changes_s.append(max(times[place].start_s - terms.limit_s, nextafter(now, inf)))
        return min([time_s for time_s in changes_s if time_s > now], default=inf)

    def take(self, licences: Iterable[tuple[str, int]], sign: int) -> None:
        """Take licences (if ``sign`` is 1) or return them (if it is -1)."""
        for name, count in licences:
            self.licences[name] -= sign * count

    def _satisfying(self, constraint: str) -> int:
        nodes = self._chosen.get(constraint)
        if nodes is None:
            nodes = self.all_nodes
            if any(self._features):
                bits = [1 << at for at, features in enumerate(self._features) if satisfies(constraint, features)]
                nodes = whole_sum(bits)
            self._chosen[constraint] = nodes
        return nodes


def _meeting_all(counts: Sequence[NodeCount]) -> int:
    """Return, as a bit set, the nodes that each satisfy all counts alone."""
    if (len(counts) > 1 and any(count.apart for count in counts)) or any(count.least > 1 for count in counts):
        return 0
    return reduce(and_, [count.nodes for count in counts])


def _closed_times(
    reservation: NodeReservation, number: int, names: Sequence[str], origin_s: float
) -> tuple[ClosedTime, ...]:
    """Return the periods of a reservation that are not over when it becomes known, in order."""
    nodes = members(NodePartition(f"{reservation.name} (reservation)", reservation.nodes), names)
    known_s = 0.0 if reservation.known_s is None else max(0.0, reservation.known_s - origin_s)
    return tuple(
        [
            ClosedTime(reservation.name, nodes, max(0.0, start_s - origin_s), end_s - origin_s, number, known_s)
            for start_s, end_s in reservation.times()
            if end_s - origin_s > known_s
        ]
    )


def _drains(queues: QueueTree, names: Sequence[str], origin_s: float) -> tuple[ClosedTime, ...]:
    """Return the periods during which nodes are drained, in order of their starts."""
    drained = []
    for outage in sorted(queues.outages, key=lambda one: one.start_s):
        nodes = members(NodePartition("(outage)", outage.nodes), names)
        end_s = (inf if outage.end_s is None else outage.end_s) - origin_s
        if outage.kind == "drain" and end_s > 0:
            drained.append(ClosedTime("outage", nodes, max(0.0, outage.start_s - origin_s), end_s))
    return tuple(drained)


def domain_sets(levels: Sequence[FabricLevel] | None, nodes: int) -> dict[str, tuple[int, ...]]:
    """Return the domains of each level as bit sets of nodes, starting with the level ``host``. The
    result is empty if ``levels`` is None.
    """
    if levels is None:
        return {}
    sets = {"host": tuple([1 << node for node in range(nodes)])}
    for level in levels:
        of: dict[int, int] = {}
        for node, domain in enumerate(level.domains):
            of[domain] = of.get(domain, 0) | 1 << node
        sets[level.name] = tuple(of.values())
    return sets


def down_windows(
    queues: QueueTree, names: Sequence[str], origin_s: float, begins_s: float
) -> tuple[tuple[int, float, float], ...]:
    """Return the periods in which nodes are down, as ``(node, start_s, end_s)``, in seconds from
    the beginning of the simulation. Overlapping periods of a node are merged.

    Raises:
        ConfigError: An outage names a node that the cluster lacks.
    """
    away: dict[int, list[tuple[float, float]]] = {}
    for outage in sorted(queues.outages, key=lambda one: one.start_s):
        start_s = max(0.0, outage.start_s - origin_s - begins_s)
        end_s = (inf if outage.end_s is None else outage.end_s) - origin_s - begins_s
        nodes = members(NodePartition("(outage)", outage.nodes), names)
        for node in range(len(names)) if outage.kind == "down" and end_s > 0 else ():
            if nodes >> node & 1:
                times = away.setdefault(node, [])
                joins = bool(times) and start_s <= times[-1][1]
                before_s, until_s = times.pop() if joins else (start_s, end_s)
                times.append((before_s, max(until_s, end_s)))
    return tuple([(node, *times) for node in sorted(away) for times in away[node]])


def members(part: NodePartition, names: Sequence[str]) -> int:
    """Return a bit set of the nodes in a partition. The partition may name nodes and node groups.

    Raises:
        ConfigError: A name matches no node.
    """
    if not part.nodes:
        return (1 << len(names)) - 1
    by_name: dict[str, int] = {}
    for index, full_name in enumerate(names):
        name = full_name.partition(":")[0]
        for alias in {name, full_name, name.rpartition("-")[0]}:
            by_name[alias] = by_name.get(alias, 0) | 1 << index
    nodes = 0
    for name in part.nodes:
        if name not in by_name:
            raise ConfigError(f"partition {part.name!r}: the cluster has no node or group of nodes called {name!r}")
        nodes |= by_name[name]
    return nodes
