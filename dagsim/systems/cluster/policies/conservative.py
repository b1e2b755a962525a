"""Conservative backfilling: every task has a reservation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor, inf
from typing import NamedTuple, TypeAlias

from dagsim.model import Decision, Start
from dagsim.model.arithmetic import bits, ordered_sum, whole_sum
from dagsim.systems.cluster.api import ALL, MICRO, ClusterView, DemandClass, NodeState, Run, TaskState
from dagsim.systems.cluster.policies.gpu_amounts import NEARLY, PLENTY, QueuedPiece, Ready, instances_on
from dagsim.systems.cluster.policies.orders import width
from dagsim.systems.cluster.policies.placement import PlacementRule, placing
from dagsim.systems.cluster.policies.step_profile import StepProfile

_EARLY_S = 1e-6


class Conservative:
    """Conservative backfilling (Mu'alem and Feitelson 2001): every ready task reserves the earliest
    start that the existing reservations allow, on the type where it would finish first. It starts
    at the reserved time. All reservations are made again in order of arrival when a run ends
    earlier than expected, or when a node fails, returns or is permanently drained. Every task can
    then move up (compression).

    Reservations are for licences and for the GPUs, cores and memory of a type. They ignore how
    these resources are distributed over the nodes. If partitions and constraints restrict some
    tasks to some nodes, the nodes are divided into *parts*. A task may use either all nodes in a
    part or none of them. A reservation is divided over the parts that its task may use, starting
    with those that the fewest tasks may use. The policy uses estimates and never preempts. It is
    costly by definition: O(reservations) per task that becomes ready, and the square of that when
    all reservations are made again.
    """

    forgets = "the reservations that it had made"

    def __init__(self, placement: str | PlacementRule = "best-fit") -> None:
        self._place = placing(placement).place
        self._parts: list[_Part] = []
        self._divided_by: dict[int, None] = {}
        """The bit sets of nodes by which the nodes are divided into parts."""
        self._licences: dict[str, StepProfile] = {}
        self._starts: dict[QueuedPiece, tuple[float, int, _Shares]] = {}
        """Reservations of the waiting tasks: start time, type and, if there were several parts to
        choose from, the amounts reserved on each part."""
        self._expected: dict[int, float] = {}
        """Expected ends of the runs that the reservations take into account."""
        self._new: dict[int, float] = {}
        """Expected ends of runs that started since then; they count from the next reserved start
        on.
        """
        self._early = False
        """True if a run has ended earlier than expected."""
        self._usable = -1
        """The nodes that are up and not drained for good, as a bit set."""

    def started(self, run: Run, now: float) -> None:
        """Add a run that has started."""
        if run.id not in self._expected:
            self._new[run.id] = run.estimated_end_s(now)

    def ended(self, run: Run, now: float) -> None:
        """Record that a run has ended, and whether it ended early."""
        self._new.pop(run.id, None)
        if self._expected.pop(run.id, now) > now + _EARLY_S:
            self._early = True

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self)
        waiting = view.index(Conservative, Ready)
        # a planned task is missing from the queue if the site's rules have removed it
        self._early = self._early or any(key not in waiting.tasks for key in self._starts)
        new = sorted(waiting.tasks.keys() - self._starts.keys())
        for key in new:
            if (terms := waiting.tasks[key].demand.terms) is not None and terms.nodes not in self._divided_by:
                self._divided_by[terms.nodes] = None
                self._early = True
        self._look(view, waiting)
        for key in new:
            if key not in self._starts:
                self._reserve(view, key, waiting.tasks[key])
        yield from self._start_due(view, waiting)
        if not view.running and self._starts:
            self._renew(view, waiting)
            yield from self._start_due(view, waiting)

    def _start_due(self, view: ClusterView, waiting: Ready) -> Iterator[Decision]:
        due = [key for key, (start_s, *_) in self._starts.items() if start_s <= view.now + _EARLY_S]
        for key in sorted(due):
            task, (_, type_, shares) = waiting.tasks[key], self._starts[key]
            placement = None
            if shares:
                with view.machines.within(task.demand, whole_sum(part.nodes for part, share in shares if any(share))):
                    placement = self._place(view, task, type_)
            if placement is None:
                placement = self._place(view, task, type_)
            if placement is not None:
                if shares:
                    demand = task.demand
                    one = (demand.demand.gpus, demand.cpus, demand.memory)
                    counts = [instances_on(placement, part.nodes) for part, _ in shares]
                    taken = [tuple([amount * count for amount in one]) for count in counts]
                    self._early = self._early or taken != [share for _, share in shares]
                yield Start(task, placement)
                self._expected |= self._new
                self._new.clear()
                if not task.waiting:
                    del self._starts[key], waiting.tasks[key]

    def _look(self, view: ClusterView, waiting: Ready) -> None:
        """Make all reservations again if anything unexpected has happened."""
        usable = view.machines.usable(view.now)
        late = any(end_s < view.now - _EARLY_S for end_s in self._expected.values())
        if self._early or late or usable != self._usable or not self._parts:
            self._usable, self._early = usable, False
            self._renew(view, waiting)
        for profile in (*self._licences.values(), *(profile for part in self._parts for profile in part.profiles)):
            profile.forget(view.now)

    def _renew(self, view: ClusterView, waiting: Ready) -> None:
        now, machines = view.now, view.machines
        self._parts = self._divided(view)
        self._licences = {} if machines.site is None else {
            name: StepProfile(now, free) for name, free in machines.site.licences.items()
        }  # fmt: skip
        self._expected, self._new = {run.id: run.estimated_end_s(now) for run in view.running.values()}, {}
        part_of = {node: part for part in self._parts if part.nodes != ALL for node in bits(part.nodes)}
        for run in view.running.values():
            demand, end_s = run.task.demand, self._expected[run.id]
            if not self._divided_by:
                amounts = (run.gpus, demand.cpus * run.instances, demand.memory * run.instances)
                self._parts[run.type].release(end_s, amounts)
            else:
                for machine, count, *_ in run.held:
                    amounts = (demand.demand.gpus * count, demand.cpus * count, demand.memory * count)
                    part_of[machine.index].release(end_s, amounts)
            for name, count in () if demand.terms is None else demand.terms.licences:
                self._licences[name].release(end_s, count)
        self._starts = {}
        for key in sorted(waiting.tasks):
            self._reserve(view, key, waiting.tasks[key])

    def _divided(self, view: ClusterView) -> list[_Part]:
        """Divide the nodes that are up into parts, of one type each, without reservations. Parts that
        fewer tasks may use come first.
        """
        members: dict[tuple[int, tuple[int, ...]], list[NodeState]] = {}
        for type_ in range(len(view.machines.types)):
            members.setdefault((type_, tuple([0] * len(self._divided_by))), [])
        for machine in view.machines.list:
            if machine.up:
                may_use = tuple([nodes >> machine.index & 1 for nodes in self._divided_by])
                members.setdefault((machine.type, may_use), []).append(machine)
        parts = []
        for (type_, _), nodes in sorted(members.items(), key=_least_wanted):
            whole = sum(machine.bit for machine in nodes) if self._divided_by else ALL
            idle = view.machines.idle_gpus(type_) if whole == ALL else sum(machine.idle for machine in nodes)
            free = (idle, whole_sum(machine.cpus for machine in nodes), whole_sum(machine.memory for machine in nodes))
            sizes = [(one.node.gpus, one.node.cpus * MICRO, one.node.memory_gb * MICRO) for one in nodes]
            most = tuple([ordered_sum(amounts) for amounts in zip(*sizes, strict=True)]) or (0, 0, 0)
            parts.append(_Part(type_, whole, most, tuple([StepProfile(view.now, amount) for amount in free])))
        return parts

    def _open_parts(self, demand: DemandClass, type_: int) -> list[_Part]:
        nodes = ALL if demand.terms is None else demand.terms.nodes
        return [part for part in self._parts if part.type == type_ and part.nodes & nodes]

    def _reserve(self, view: ClusterView, key: QueuedPiece, task: TaskState) -> None:
        """Make a reservation for the task on the GPU type on which it would end first."""
        terms, count = task.demand.terms, 1 if task.demand.gang else task.waiting
        licences = [(self._licences[name], count) for name, count in (() if terms is None else terms.licences)]
        found = [self._reservation(view, task, type_, count, licences) for type_ in task.demand.types]
        best = min([_Reservation(inf, inf, -1), *[one for one in found if one is not None]])
        self._starts[key] = best.start_s, best.type, best.shares if len(best.shares) > 1 else ()
        if best.end_s < inf:
            for part, share in best.shares:
                part.take(best.start_s, best.end_s, share)
            for profile, taken in licences:
                profile.take(best.start_s, best.end_s, taken)

    def _reservation(
        self, view: ClusterView, task: TaskState, type_: int, count: int, licences: Sequence[tuple[StepProfile, int]]
    ) -> _Reservation | None:
        """Return the earliest reservation for ``count`` instances (or gangs) on a type, or None if
        they cannot run there.
        """
        demand, parts = task.demand, self._open_parts(task.demand, type_)
        together = demand.gang or count
        asked = (width(task) * count if demand.demand.gpus else 0.0, demand.cpus * together, demand.memory * together)
        capacity = tuple([ordered_sum(amounts) for amounts in zip(*[part.most for part in parts], strict=True)])
        if not parts or any(amount and not most for amount, most in zip(asked, capacity, strict=True)):
            return None
        if view.machines.capacity(demand, type_, now=view.now) < (demand.gang or 1):
            return None
        pairs = list(zip(asked, capacity, strict=True))
        rounds = max([ceil(amount / most) for amount, most in pairs if amount], default=1)
        seconds = task.seconds[type_] * rounds
        if len(parts) == 1:
            shares = [tuple([min(amount, most) for amount, most in pairs])]
            profiles = (*parts[0].profiles, *[profile for profile, _ in licences])
            start_s = _earliest(profiles, (*shares[0], *[taken for _, taken in licences]), seconds)
        else:
            one = (demand.demand.gpus, demand.cpus, demand.memory)
            start_s, shares = _earliest_on(parts, one, -(-together // rounds), seconds, licences)
        return _Reservation(start_s + seconds, start_s, type_, tuple(zip(parts, shares, strict=True)))


def _least_wanted(item: tuple[tuple[int, tuple[int, ...]], Sequence[NodeState]]) -> tuple[int, int, int]:
    """Return a sort key for the parts of a type. The parts that the fewest tasks may use come
    first, and larger parts come before smaller ones.
    """
    (type_, may_use), nodes = item
    return type_, may_use.count(1), -len(nodes)


class _Part(NamedTuple):
    """A part of the nodes of one type: all of them, or those that the same tasks may use."""

    type: int
    nodes: int
    """A bit set."""
    most: tuple[float, ...]
    """GPUs, and cores and memory in millionths, of the nodes that are up."""
    profiles: tuple[StepProfile, ...]
    """Their free amounts over time."""

    def release(self, time_s: float, amounts: Sequence[float]) -> None:
        """Release the amounts from ``time_s`` on."""
        for profile, amount in zip(self.profiles, amounts, strict=True):
            if amount:
                profile.release(time_s, amount)

    def take(self, start_s: float, end_s: float, amounts: Sequence[float]) -> None:
        """Reserve the amounts from ``start_s`` to ``end_s``."""
        for profile, amount in zip(self.profiles, amounts, strict=True):
            if amount:
                profile.take(start_s, end_s, amount)

    def room(self, one: Sequence[float], start_s: float, end_s: float) -> int:
        """Return how many instances, each of which needs ``one``, fit from ``start_s`` to
        ``end_s``.
        """
        pairs = zip(self.profiles, one, strict=True)
        rooms = [floor((profile.least(start_s, end_s) + NEARLY) / amount) for profile, amount in pairs if amount]
        return max(min(rooms, default=PLENTY), 0)


_Shares: TypeAlias = tuple[tuple[_Part, tuple[float, ...]], ...]


class _Reservation(NamedTuple):
    """The reservation of a task: its start and end, its GPU type, and the amounts reserved on each part."""

    end_s: float
    start_s: float
    type: int
    shares: _Shares = ()


def _earliest_on(
    parts: Sequence[_Part],
    one: Sequence[float],
    instances: int,
    seconds: float,
    licences: Sequence[tuple[StepProfile, int]],
) -> tuple[float, list[tuple[float, ...]]]:
    """Return the first time from which all instances fit on several parts together, and the amounts
    that they need on each part. Each instance needs ``one``. If there is no such time, it is
    ``inf``.
    """
    profiles = [profile for part in parts for profile in part.profiles] + [profile for profile, _ in licences]
    needed = [amount * instances - NEARLY for amount in one]
    by_resource = list(zip(*[part.profiles for part in parts], strict=True))
    for start_s in sorted({time_s for profile in profiles for time_s in profile.times}):
        at_once = [ordered_sum([profile.at(start_s) for profile in of]) for of in by_resource]
        if any(amount and free < least for amount, free, least in zip(one, at_once, needed, strict=True)):
            continue
        end_s = start_s + seconds
        if any(profile.least(start_s, end_s) < count for profile, count in licences):
            continue
        left, shares = instances, []
        for part in parts:
            taken = min(left, part.room(one, start_s, end_s))
            shares.append(tuple([amount * taken for amount in one]))
            left -= taken
        if not left:
            return start_s, shares
    return inf, [tuple([0.0] * len(one)) for _ in parts]


def _earliest(profiles: Sequence[StepProfile], amounts: Sequence[float], seconds: float) -> float:
    """Return the first time from which all amounts are free for ``seconds``, or ``inf`` if there is
    no such time.
    """
    start_s = -inf
    while True:
        times_s = [
            profile.earliest(amount, seconds, start_s)
            for profile, amount in zip(profiles, amounts, strict=True)
            if amount or start_s == -inf
        ]
        if max(times_s, default=start_s) == start_s or start_s == inf:
            return start_s
        start_s = max(times_s)
