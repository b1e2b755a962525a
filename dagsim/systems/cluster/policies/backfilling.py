"""EASY backfilling: the oldest task has a reservation, and other tasks may overtake it if they do
not delay it. Ready tasks are stored in groups, and each group in columns. The first task that meets
a condition is thus found without a loop over all tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from heapq import merge
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np

from dagsim.model import Decision, Placement, Start
from dagsim.model.arithmetic import whole_sum
from dagsim.systems.cluster.api import (
    ALL,
    MICRO,
    ClusterState,
    ClusterView,
    DemandClass,
    ExpectedFree,
    Run,
    TaskState,
)
from dagsim.systems.cluster.policies.formulas import slowed
from dagsim.systems.cluster.policies.gpu_amounts import (
    NEARLY,
    PLENTY,
    Holding,
    QueuedPiece,
    Ready,
    allowed_nodes,
    instances_on,
    size,
    unheld,
)
from dagsim.systems.cluster.policies.orders import by_arrival, slowness
from dagsim.systems.cluster.policies.placement import PlacementRule, placing

RankColumn: TypeAlias = Callable[["AlikeTasks", float], np.ndarray]
"""A function that returns the ranks of all tasks in a group, (tasks,) float64. Tasks with smaller ranks come first."""


class AlikeTasks:
    """A group of waiting tasks with equal demands, equal speed ratios between types, and the same
    number of waiting instances. At any given time, all these tasks would start on the same GPU
    type, where they need the same resources.
    """

    def __init__(self, task: TaskState) -> None:
        self.demand = task.demand
        self.waiting = task.waiting
        best_s = task.best_s or 1.0
        self.ratios = tuple([seconds / best_s if task.best_s else float(seconds == inf) for seconds in task.seconds])
        self.types = sorted(task.demand.types, key=task.seconds.__getitem__)
        """The types that may run them, fastest first."""
        self.tasks: list[TaskState] = []
        self._columns = np.zeros((4 + len(task.seconds), 8))

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def best_s(self) -> np.ndarray:
        """Seconds that each task takes on the fastest type. Shape (tasks,), float64."""
        return self._columns[0, : len(self.tasks)]

    @property
    def order(self) -> np.ndarray:
        """Sort key of each task by arrival (``TaskState.order``). Shape (tasks,), float64."""
        return self._columns[1, : len(self.tasks)]

    @property
    def ready_s(self) -> np.ndarray:
        """Time at which each task became ready. Shape (tasks,), float64."""
        return self._columns[2, : len(self.tasks)]

    @property
    def per_second(self) -> np.ndarray:
        """1 / ``best_s`` of each task. Shape (tasks,), float64."""
        return self._columns[3, : len(self.tasks)]

    def ends_s(self, now: float, type_: int) -> np.ndarray:
        """Return, for each task, the time at which it would end if it started now on a GPU type.
        Shape (tasks,), float64.
        """
        ends_s: np.ndarray = now + self._columns[4 + type_, : len(self.tasks)]
        return ends_s

    def room(self, machines: ClusterState) -> int | None:
        """Return the fastest type on which a task of the group fits now, or None if there is
        none.
        """
        return next((type_ for type_ in self.types if machines.fits_on(self.demand, type_)), None)

    def first(
        self, rank: RankColumn, now: float, type_: int = 0, until_s: float = inf
    ) -> tuple[float, int, TaskState] | None:
        """Return the first task by ``(rank, order)`` among those that would end by ``until_s`` if
        they started now on a GPU type, or None if there is none.
        """
        ranks = rank(self, now)
        if until_s < inf:
            ranks = np.where(self.ends_s(now, type_) <= until_s, ranks, inf)
        place = int(ranks.argmin())
        least = float(ranks[place])
        if least == inf:
            return None
        if rank is not by_order:
            ranks = ranks == least
            if np.count_nonzero(ranks) > 1:
                equal = np.flatnonzero(ranks)
                place = int(equal[self.order[equal].argmin()])
        return least, self.tasks[place].order, self.tasks[place]

    def add(self, task: TaskState) -> None:
        """Append a task."""
        place = len(self.tasks)
        if place == self._columns.shape[1]:
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
        self._columns[:, place] = task.best_s, task.order, task.ready_s, slowness(task.best_s), *task.seconds
        self.tasks.append(task)

    def remove(self, place: int) -> TaskState | None:
        """Remove the task at index ``place``. Return the task that takes its place, if there is
        one.
        """
        last = self.tasks.pop()
        if place == len(self.tasks):
            return None
        self.tasks[place] = last
        self._columns[:, place] = self._columns[:, len(self.tasks)]
        return last


def by_order(group: AlikeTasks, _: float) -> np.ndarray:
    """Rank tasks in order of arrival."""
    return group.order


class Backlog:
    """An index of the ready tasks in groups (``ClusterView.index``). The cost is O(1) per added
    task and per started run.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[DemandClass, tuple[float, ...], int], AlikeTasks] = {}
        self._place: dict[TaskState, tuple[AlikeTasks, int]] = {}
        self._demands: dict[DemandClass, None] = {}

    def push(self, task: TaskState) -> None:
        """Add a task that became ready."""
        best_s = task.best_s
        profile = tuple([round(seconds / best_s, 9) for seconds in task.seconds]) if best_s else ()
        key = (task.demand, profile, 0 if task.demand.gang else task.waiting)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = AlikeTasks(task)
            self._demands[task.demand] = None
        self._place[task] = group, len(group)
        group.add(task)

    def started(self, run: Run, now: float) -> None:
        """Record that some instances of a task have started. Remove the task from its group, or
        move it to another group.
        """
        task = run.task
        if task not in self._place:  # the task started before this index was created
            return
        group, place = self._place.pop(task)
        moved = group.remove(place)
        if moved is not None:
            self._place[moved] = group, place
        if task.waiting:
            self.push(task)

    def groups(self) -> Iterator[AlikeTasks]:
        """Yield the groups that are not empty."""
        return (group for group in self._groups.values() if group.tasks)

    def fits(self, machines: ClusterState) -> bool:
        """Return True if the tasks of any group fit now."""
        fits = machines.fits
        return any(fits(demand) for demand in self._demands)


class FreeAmounts(NamedTuple):
    """Free GPUs, cores and GB of memory, all in millionths."""

    gpus: int
    cpus: int
    memory: int

    def exceed(self, extra: FreeAmounts) -> bool:
        """Return True if any amount exceeds the corresponding amount in ``extra``."""
        return self.gpus > extra.gpus or self.cpus > extra.cpus or self.memory > extra.memory


EVERYTHING, NOTHING = FreeAmounts(PLENTY, PLENTY, PLENTY), FreeAmounts(-1, -1, -1)
"""The remaining resources if others may take everything, or if not even a task without GPUs may
start."""


class Shadow(NamedTuple):
    """The reservation for the oldest task: its start time, its GPU type, and what it leaves free on
    the nodes that it may use.
    """

    time_s: float
    type: int
    extra: FreeAmounts
    nodes: int = ALL
    """The nodes of its partition that satisfy its constraint, as a bit set."""
    licences: tuple[tuple[str, float], ...] = ()
    """Number of licences left over at that time, of each kind that it needs."""


class Easy:
    """Start the oldest task. If it does not fit, start other tasks, ordered by ``rank``, that do
    not delay it. The *shadow time* is the time at which enough resources are expected to be free
    for the oldest task. The other tasks must either end before it, or need no more than the *extra*
    resources, which are left over at that time (Lifka 1995; Mu'alem and Feitelson 2001).

    To find the shadow time and the extra resources, the policy counts the GPUs, cores and memory on
    those nodes of one type that the oldest task's partition and constraint allow. It also counts
    the licences that the task needs. It ignores how these resources are distributed over the nodes.
    A task that shares a node with other tasks and has a correct estimate never delays the oldest
    task. The policy uses estimates and never preempts. The cost per decision is O(running log
    running), plus a NumPy pass over the waiting tasks of each demand that fits but exceeds the
    extra resources. The counterpart in the compiled engine is ``compiled.easy``.
    """

    def __init__(self, rank: RankColumn, placement: str | PlacementRule = "best-fit") -> None:
        self.rank = rank
        self.placement = placing(placement)
        self._place = self.placement.place

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        head = view.queue(by_arrival).first()
        if head is None:
            return
        backlog = view.index(self, Backlog)
        task = head
        placement = self._place(view, head)
        if placement is None:
            if not backlog.fits(view.machines):
                return
            shadow = min([_reservation(view, view.expected_free, head, type_) for type_ in head.demand.types])
            filler = self._filler(view, backlog, head, shadow)
            if filler is None:
                return
            task, placement = filler
        yield Start(task, placement)

    def _filler(
        self, view: ClusterView, backlog: Backlog, head: TaskState, shadow: Shadow
    ) -> tuple[TaskState, Placement] | None:
        """Return the first task by rank that fits and does not delay ``head``, with its placement,
        or None if there is none.
        """
        stuck: set[AlikeTasks] = set()
        room: dict[DemandClass, list[int]] = {}
        while (found := self._best(view, backlog, shadow, stuck, room)) is not None:
            task, group = found
            placement = self._place(view, task)
            if placement is not None and self._delays(view, task, placement, shadow):
                placement = self._elsewhere(view, task, None, shadow)
            if placement is not None and task is not head and not self._delays(view, task, placement, shadow):
                return task, placement
            stuck.add(group)
        return None

    def _best(
        self,
        view: ClusterView,
        backlog: Backlog,
        shadow: Shadow,
        stuck: Collection[AlikeTasks],
        room: dict[DemandClass, list[int]],
    ) -> tuple[TaskState, AlikeTasks] | None:
        """Return the first task by rank that seems not to delay the reservation, with its group.
        The groups in ``stuck`` are skipped. ``room`` caches the types on which each demand fits.
        """
        machines, now = view.machines, view.now
        best: tuple[float, int, TaskState] | None = None
        chosen: AlikeTasks | None = None
        for group in backlog.groups():
            demand = group.demand
            types = room.get(demand)
            if types is None:
                types = room[demand] = [type_ for type_ in demand.types if machines.fits_on(demand, type_)]
            if not types or group in stuck:
                continue
            type_ = types[0] if len(types) == 1 else min(types, key=group.ratios.__getitem__)
            # tasks without work end as soon as they start, so they delay nothing
            late = group.ratios[type_] > 0 and self._exceeds(view, group, type_, shadow)
            first = group.first(self.rank, now, type_, shadow.time_s if late else inf)
            if first is not None and (best is None or first[:2] < best[:2]):
                best, chosen = first, group
        return None if best is None or chosen is None else (best[2], chosen)

    def _elsewhere(self, view: ClusterView, task: TaskState, type_: int | None, shadow: Shadow) -> Placement | None:
        """Return a placement that avoids the nodes of the reservation, or None if there is none."""
        if shadow.nodes == ALL:
            return None
        with view.machines.within(task.demand, ~shadow.nodes):
            placement = self._place(view, task, type_)
        return placement if placement is not None and not instances_on(placement, shadow.nodes) else None

    def _exceeds(self, view: ClusterView, group: AlikeTasks, type_: int, shadow: Shadow) -> bool:
        """Return True if a task in the group needs more than the reservation leaves over."""
        if shadow.licences and _takes_licences(group.demand, shadow):
            return True
        if type_ != shadow.type:
            return False
        count = group.waiting
        if shadow.nodes == ALL:
            if not group.demand.gang and count > 1:
                placement = self._place(view, group.tasks[0], type_)
                count = 0 if placement is None else instances_on(placement, ALL)
            return _amounts(group.demand, count).exceed(shadow.extra)
        if not group.demand.opened & shadow.nodes:
            return False
        if not _amounts(group.demand, count).exceed(shadow.extra):
            return False
        placement = self._place(view, group.tasks[0], type_)
        count = 0 if placement is None else instances_on(placement, shadow.nodes)
        if not _amounts(group.demand, count).exceed(shadow.extra):
            return False
        within = group.demand.opened & ~shadow.nodes == 0
        return within or self._elsewhere(view, group.tasks[0], type_, shadow) is None

    def _delays(self, view: ClusterView, task: TaskState, placement: Placement, shadow: Shadow) -> bool:
        type_ = view.machines.list[placement[0].node].type
        if view.now + task.seconds[type_] <= shadow.time_s:
            return False
        if shadow.licences and _takes_licences(task.demand, shadow):
            return True
        return type_ == shadow.type and _amounts(task.demand, instances_on(placement, shadow.nodes)).exceed(
            shadow.extra
        )


def easy(placement: str | PlacementRule = "best-fit") -> Easy:
    """EASY with candidates in order of arrival (Lifka 1995). The policy uses estimates. Its time
    complexity is that of ``Easy``.
    """
    return Easy(by_order, placement)


def easy_sjf(placement: str | PlacementRule = "best-fit") -> Easy:
    """EASY with the shortest candidate first (Tsafrir, Etsion and Feitelson 2007). The policy uses
    estimates. Its time complexity is that of ``Easy``.
    """
    return Easy(shortest_first, placement)


def easy_lxf(placement: str | PlacementRule = "best-fit") -> Easy:
    """EASY with the candidates sorted by their slowdown so far, largest first. The policy uses
    estimates. Its time complexity is that of ``Easy``.
    """
    return Easy(most_slowed_first, placement)


def shortest_first(group: AlikeTasks, _: float) -> np.ndarray:
    return group.best_s


def most_slowed_first(group: AlikeTasks, now: float) -> np.ndarray:
    ranks: np.ndarray = slowed(group.ready_s, now, group.per_second)
    return ranks


def _amounts(demand: DemandClass, count: int) -> FreeAmounts:
    """Return the resources that this many instances of ``demand`` need."""
    return FreeAmounts(round(demand.demand.gpus * MICRO) * count, demand.cpus * count, demand.memory * count)


def _takes_licences(demand: DemandClass, shadow: Shadow) -> bool:
    """Return True if a task needs more licences than the reservation leaves over."""
    left = dict(shadow.licences)
    return demand.terms is not None and any(count > left.get(name, count) for name, count in demand.terms.licences)


def _reservation(view: ClusterView, expected: ExpectedFree, head: TaskState, type_: int) -> Shadow:
    """Return the reservation for ``head`` on ``type_``: the time at which it is expected to fit,
    and the resources left over at that time.
    """
    demand, machines, now, running = head.demand, view.machines, view.now, view.running
    nodes, licences = allowed_nodes(view, demand), () if demand.terms is None else demand.terms.licences
    gpus, cpus, memory = _missing(machines, demand, type_, nodes)
    lacking = {name: wanted - machines.site.licences[name] for name, wanted in licences if machines.site is not None}
    ends = merge(*map(expected.ends, range(len(machines.types)))) if lacking else expected.ends(type_)
    lacks = gpus > 0 or cpus > 0 or memory > 0 or any(short > 0 for short in lacking.values())
    shadow_s = inf if lacks else now
    for end_s, id_, freed in ends:
        if not lacks and end_s > shadow_s:
            break
        if lacks:
            shadow_s = max(end_s, now)
        run = running[id_]
        if lacking:
            _return_licences(lacking, run)
        if run.type == type_:
            of, instances = run.task.demand, run.instances
            if nodes != ALL:
                instances = whole_sum(on_node for machine, on_node, *_ in run.held if nodes >> machine.index & 1)
                freed = of.demand.gpus * instances
            gpus -= freed
            cpus -= of.cpus * instances if demand.cpus else 0
            memory -= of.memory * instances if demand.memory else 0
        lacks = gpus > 0 or cpus > 0 or memory > 0 or any(short > 0 for short in lacking.values())
    if lacks:
        return Shadow(inf, type_, FreeAmounts(0, 0, 0), nodes)
    extra = FreeAmounts(round(-gpus * MICRO) if demand.demand.gpus else PLENTY, -cpus, -memory)
    return Shadow(shadow_s, type_, extra, nodes, tuple([(name, -short) for name, short in lacking.items()]))


def _missing(machines: ClusterState, demand: DemandClass, type_: int, nodes: int) -> tuple[float, int, int]:
    """Return how many GPUs, cores and GB of memory a task needs beyond the free ones on ``nodes`` of a
    type. Negative amounts are left over.
    """
    count, up = demand.gang or 1, [m for m in machines.list if m.type == type_ and m.up and nodes >> m.index & 1]
    idle = machines.idle_gpus(type_) if nodes == ALL else sum(machine.idle for machine in up)
    gpus = demand.demand.gpus * count - idle if demand.demand.gpus else -inf
    cpus = demand.cpus * count - whole_sum(machine.cpus for machine in up) if demand.cpus else -PLENTY
    memory = demand.memory * count - whole_sum(machine.memory for machine in up) if demand.memory else -PLENTY
    return gpus, cpus, memory


def _return_licences(lacking: dict[str, float], run: Run) -> None:
    """Reduce the missing licences by those of a run that ends."""
    for name, own in () if run.task.demand.terms is None else run.task.demand.terms.licences:
        if name in lacking:
            lacking[name] -= own


class EasyEvents:
    """EASY with one pass per event, as in PYSS and similar simulators (Lifka 1995; Tsafrir, Etsion
    and Feitelson 2007, section 2). At each point in time, there is first one pass for every
    arriving task. Runs that end at that time ahead of their estimates still hold their resources
    during these passes. Afterwards, there is one pass for each such end. By contrast, ``easy``
    decides once per point in time, when all simultaneous events have happened.

    The return of a node is also an event.

    A pass starts the oldest tasks until one does not fit. Other tasks overtake this task if they
    end by its *shadow time*, when enough resources are expected to be free for it, or if they need
    no more than the *extra* resources at that time. On the nodes that the oldest task may use, the
    pass counts GPUs (or cores, for tasks without GPUs) of all types together, so it is meant for
    clusters with a single type. It also counts the licences that the oldest task needs. The policy
    uses estimates and never preempts. The cost is O(running log running + queue) per event.
    """

    forgets = "at which events it had looked at its queue"

    def __init__(self, placement: str | PlacementRule = "best-fit") -> None:
        self._place = placing(placement).place
        self._queue: dict[QueuedPiece, None] = {}
        self._holding: dict[int, Holding] = {}
        """Runs under way, by id."""
        self._up = -1
        self._ended: dict[int, Holding] = {}
        """Resources of the runs that ended since the last decision."""

    def started(self, run: Run, now: float) -> None:
        """Add a run that has started."""
        self._holding.setdefault(run.id, Holding.of(run, run.estimated_end_s(now)))

    def ended(self, run: Run, now: float) -> None:
        """Record a run that has ended. Its resources count as held until the next decision."""
        self._ended[run.id] = self._holding.pop(run.id)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self)
        ready = view.index(EasyEvents, Ready).tasks
        ended = [holding for _, holding in sorted(self._ended.items())]
        self._ended.clear()
        gone = [key for key in self._queue if key not in ready]
        for key in gone:
            del self._queue[key]
        for key in sorted(ready.keys() - self._queue.keys()):
            self._queue[key] = None
            yield from self._pass(view, ready, _late(ended, view.now))
        for place in range(1, len(ended) + 1):
            yield from self._pass(view, ready, _late(ended[place:], view.now))
        up = sum(machine.bit for machine in view.machines.list if machine.up)
        site = view.machines.site
        # Try all tasks again if a node has come back, or if the site's rules may now allow other
        # tasks to start.
        if up & ~self._up or gone or (site is not None and view.now in site.boundaries):
            yield from self._pass(view, ready, [])
        self._up = up

    def _pass(self, view: ClusterView, ready: dict[QueuedPiece, TaskState], late: list[Holding]) -> Iterator[Decision]:
        """Start the tasks that may start while the runs in ``late`` are treated as still holding their resources."""
        keys = iter(list(self._queue))
        head = None
        for key in keys:
            task = ready[key]
            placement = self._room(view, task, late)
            if placement is None:
                head = task
                break
            yield Start(task, placement)
            self._leave(key, ready)
        if head is None:
            return
        shadow, extra = self._shadow(view, head, late)
        for key in keys:
            task = ready[key]
            in_time = view.now + task.best_s <= shadow.time_s
            if not in_time and _takes_licences(task.demand, shadow):
                continue
            if in_time or shadow.nodes != ALL or size(task) <= extra + NEARLY:
                placement = self._room(view, task, late)
                takes = 0.0 if in_time or placement is None else _size_on(task, placement, shadow.nodes)
                if takes > extra + NEARLY:
                    with view.machines.within(task.demand, ~shadow.nodes):
                        placement, takes = self._room(view, task, late), 0.0
                    if placement is not None and instances_on(placement, shadow.nodes):
                        continue
                if placement is not None:
                    yield Start(task, placement)
                    self._leave(key, ready)
                    extra -= takes

    def _shadow(self, view: ClusterView, head: TaskState, late: list[Holding]) -> tuple[Shadow, float]:
        """Return the reservation for ``head``, without amounts by type. Also return the number of
        GPUs (or cores) that are left over on its nodes when the reservation begins.
        """
        nodes, site = allowed_nodes(view, head.demand), view.machines.site
        wanted = () if head.demand.terms is None or site is None else head.demand.terms.licences
        left = {name: site.licences[name] - count for name, count in wanted if site is not None}
        idle = unheld(view, head, late)
        shadow_s = view.now
        for run in sorted([*self._holding.values(), *late]):
            if idle + NEARLY >= size(head) and min(left.values(), default=0) >= 0 and run.end_s > shadow_s:
                break
            idle += run.on(nodes)
            shadow_s = max(run.end_s, view.now)
            for name, count in run.licences if left else ():
                if name in left:
                    left[name] += count
        return Shadow(shadow_s, -1, NOTHING, nodes, tuple(left.items())), idle - size(head)

    def _room(self, view: ClusterView, task: TaskState, late: list[Holding]) -> Placement | None:
        if late and unheld(view, task, late) + NEARLY < size(task):
            return None
        return self._place(view, task)

    def _leave(self, key: QueuedPiece, ready: dict[QueuedPiece, TaskState]) -> None:
        """Remove a started task from the queue if none of its instances is waiting."""
        if not ready[key].waiting:
            del self._queue[key], ready[key]


def _size_on(task: TaskState, placement: Placement, nodes: int) -> float:
    """Return how many GPUs (or cores) a placement uses on the nodes in a bit set."""
    demand = task.demand
    if nodes == ALL:
        return size(task)
    return (demand.demand.gpus or demand.cpus / MICRO) * instances_on(placement, nodes)


def _late(ended: list[Holding], now: float) -> list[Holding]:
    """Return the runs that ended ahead of their estimates."""
    return [run for run in ended if run.end_s > now]
