"""Placement rules, which choose the GPU type and the nodes for the instances of a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf, log
from typing import Protocol, TypeAlias

from dagsim.model import Decision, Demand, Placement, Share, Start
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.registry import Entry, Registry
from dagsim.systems.cluster.api import MICRO, ClusterView, DemandClass, NodeState, Run, TaskState


class PlacementRule(Protocol):
    """The interface for placement rules."""

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        """Return a placement of the task's waiting instances, or ``None`` if they do not fit. The GPU
        type is ``type_`` (an index in ``ClusterView.gpu_types``), or the type that the rule
        prefers.
        """


class BestFit:
    """Use the fastest type on which the task fits and, among the nodes of this type, the one with
    the fewest idle GPUs. If several types are equally fast, all their nodes are compared. Gangs are
    placed on a single node if they fit there, or else on as few nodes as possible. The cost is O(1)
    for tasks without CPU and memory demands, and O(nodes of the type) for others.
    """

    place = staticmethod(ClusterView.fit)


PLACEMENT_RULES: Registry[PlacementRule] = Registry(
    "placement",
    [
        Entry("best-fit", ".placement:BestFit", "fastest GPU type, then the fullest of its nodes with enough space"),
        Entry("fastest", ".placement:BestFit", "another name for best-fit"),
        Entry("first-fit", ".placement:FirstFit", "first node on which the task fits"),
        Entry("worst-fit", ".placement:WorstFit", "fastest GPU type, then the emptiest of its nodes"),
        Entry("random", ".placement:RandomNode", "random GPU type and node on which the task fits"),
        Entry("consolidate", ".placement:Consolidate", "as few nodes as possible"),
        Entry("spread", ".placement:SpreadGang", "as many nodes as possible"),
        Entry(
            "comparative-advantage",
            ".placement:ComparativeAdvantage",
            "GPU type on which the task loses less speed than other tasks would",
        ),
        Entry("dot-product", ".placement:DotProduct", "node whose free resources match the demand best (dot product)"),
        Entry("gpu-packing", ".placement:GpuPacking", "partly used GPUs first, then nodes in use"),
        Entry("gpu-clustering", ".placement:GpuClustering", "node with tasks that have the same demand"),
        Entry("fgd", ".placement:Fgd", "node where fragmentation grows least"),
    ],
    group="dagsim.placements",
    home="dagsim.systems.cluster.policies",
    listing="dagsim list placements",
    method="place",
)


def placing(placement: str | PlacementRule) -> PlacementRule:
    """Return ``placement`` itself or, if it is a name, the placement rule with this name."""
    return PLACEMENT_RULES.create(placement) if isinstance(placement, str) else placement


def start_of(
    place: Callable[..., Placement | None], view: ClusterView, task: TaskState | None, *type_: int
) -> tuple[Start, ...]:
    """Return the decision to start ``task`` on the placement that ``place`` finds (on ``type_``, if
    it is given). The result is empty if there is no task, or if the task does not fit.
    """
    placement = None if task is None else place(view, task, *type_)
    return () if task is None or placement is None else (Start(task, placement),)


class ComparativeAdvantage:
    """Of the types on which the task fits, use the one on which it loses least compared with other
    tasks (based on Ricardo 1817). The loss on a type is the logarithm of the task's slowdown
    relative to its fastest type, minus the mean loss on this type of all tasks that have been ready
    so far. On the chosen type, the node is chosen by best fit.

    If the order has already chosen the type (as sjf does), this is best fit. The cost is O(types).
    """

    forgets = "which tasks had been ready"
    rehearses = False  # an index stores the losses of earlier tasks, so no rehearsal can restore them

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        if type_ is not None:
            return view.fit(task, type_)
        mean = view.index(ComparativeAdvantage, lambda: _Losses(len(view.gpu_types))).mean
        for candidate in sorted(by_speed(task, None), key=lambda candidate: loss(task, candidate) - mean(candidate)):
            placement = view.fit(task, candidate)
            if placement is not None:
                return placement
        return None


class _Losses:
    """An index that computes the mean loss on each type over the tasks that may run on it."""

    def __init__(self, types: int) -> None:
        self._sums = [0.0] * types
        self._counts = [0] * types

    def push(self, task: TaskState) -> None:
        for type_ in task.demand.types:
            self._sums[type_] += loss(task, type_)
            self._counts[type_] += 1

    def mean(self, type_: int) -> float:
        return self._sums[type_] / self._counts[type_] if self._counts[type_] else 0.0


def loss(task: TaskState, type_: int) -> float:
    """Return the logarithm of the task's slowdown on ``type_`` relative to its fastest type."""
    if task.seconds[type_] == inf:
        return 1e9  # a finite value, so that averages over tasks stay finite
    return log(task.seconds[type_] / task.best_s) if task.best_s else 0.0


class FirstFit:
    """Use the first node in the cluster on which the task fits, with any GPU type that may run it.
    The cost is O(nodes).
    """

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        return _least(view, task, type_, lambda machine: machine.index)


class WorstFit:
    """Use the fastest type on which the task fits, and on this type the node with the most idle
    GPUs. The cost is O(skipped nodes).
    """

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        machines = view.machines
        for candidate in by_speed(task, type_):
            placement = fill(task, machines.with_room(task.demand, candidate, True))
            if placement is not None:
                return placement
        return None


class RandomNode:
    """Use a random type on which the task fits, and its nodes in random order. The rule draws from
    the simulation's random stream ``placement``. The cost is O(nodes).
    """

    forgets = "how many random numbers had been drawn"

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        machines, rng = view.machines, view.stream("placement")
        types = [candidate for candidate in by_speed(task, type_) if machines.fits_on(task.demand, candidate)]
        if not types:
            return None
        nodes = list(with_room(view, task.demand, types[int(rng.integers(len(types)))]))
        return fill(task, [nodes[at] for at in rng.permutation(len(nodes))])


class DotProduct:
    """Use the node whose free GPUs, CPUs and memory are best aligned with the demand. This is the
    node for which the dot product of its free resources and the demand is largest, with each
    resource as a fraction of the node (Tetris, Grandl et al., SIGCOMM 2014; Panigrahy et al. 2011).
    The cost is O(nodes).
    """

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        demand = task.demand.demand

        def away(machine: NodeState) -> float:
            return -alignment(machine, demand.gpus, task.demand.cpus, task.demand.memory)

        return _least(view, task, type_, away)


class GpuPacking:
    """Use partly used GPUs first, then idle GPUs on nodes that are in use, then empty nodes. Ties
    go to the node with the fewest idle GPUs (a baseline of FGD, Weng et al., ATC 2023). The cost is
    O(nodes).
    """

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        share = task.demand.share

        def emptiness(machine: NodeState) -> tuple[int, int]:
            if share and any(free >= share for free in machine.shares.values()):
                return 0, machine.idle
            return (1 if machine.idle < machine.gpus else 2), machine.idle

        return _least(view, task, type_, emptiness)


class GpuClustering:
    """Use the nodes that run the most tasks with the same GPU demand. Ties go to the node with the
    fewest idle GPUs (a baseline of FGD, Weng et al., ATC 2023). The cost is O(nodes).
    """

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        runs, gpus = view.index(_Alike, _Alike).runs, task.demand.demand.gpus

        def unlike(machine: NodeState) -> tuple[int, int]:
            return -runs[machine.index, gpus], machine.idle

        return _least(view, task, type_, unlike)


class _Alike:
    """An index that counts the current runs by node and by number of GPUs per instance."""

    def __init__(self) -> None:
        self.runs: Counter[tuple[int, float]] = Counter()

    def started(self, run: Run, now: float) -> None:
        for node in run.nodes:
            self.runs[node, run.task.demand.demand.gpus] += 1

    def ended(self, run: Run, now: float) -> None:
        for node in run.nodes:
            self.runs[node, run.task.demand.demand.gpus] -= 1


def alignment(machine: NodeState, gpus: float, cpus: int, memory: int) -> float:
    """Return the dot product of a demand and the free resources of a machine, both as fractions of
    the machine. CPUs and memory are in millionths.
    """
    node, total = machine.node, 0.0
    if node.gpus:
        free = machine.idle + whole_sum(machine.shares.values()) / MICRO
        total += gpus / node.gpus * (free / node.gpus)
    if node.cpus:
        total += cpus * machine.cpus / (node.cpus * MICRO) ** 2
    if node.memory_gb:
        total += memory * machine.memory / (node.memory_gb * MICRO) ** 2
    return total


def by_speed(task: TaskState, type_: int | None) -> list[int]:
    """Return the types to try, fastest first, or only ``type_`` if it is set."""
    return sorted(task.demand.types, key=task.seconds.__getitem__) if type_ is None else [type_]


def with_room(view: ClusterView, demand: DemandClass, type_: int) -> Iterator[NodeState]:
    """Yield the machines of ``type_`` on which an instance fits."""
    return view.machines.with_room(demand, type_)


def fill(task: TaskState, machines: Iterable[NodeState]) -> Placement | None:
    """Place the waiting instances on the first of ``machines`` on which any instance fits, or
    return None if there is none. A gang is placed on the first machines that together can hold all
    of it.
    """
    demand, shares = task.demand, []
    needed = demand.gang or task.waiting
    for machine in machines:
        count = min(needed, machine.room(demand))
        if count:
            shares.append(Share(machine.index, count))
            needed -= count
            if not needed or not demand.gang:
                return tuple(shares)
    return None


def _least(
    view: ClusterView, task: TaskState, type_: int | None, rank: Callable[[NodeState], float | tuple[int, int]]
) -> Placement | None:
    """Place the task on the nodes with the smallest ``rank``, or return None if it does not fit.
    Ties go to the faster type, then to the first node. A gang is placed on the type to which the
    node with the smallest rank belongs.
    """
    demand = task.demand
    best, where = None, None
    for place, candidate in enumerate(by_speed(task, type_)):
        ranked = [(rank(machine), place, machine.index, machine) for machine in with_room(view, demand, candidate)]
        if demand.gang:
            ranked.sort(key=lambda entry: entry[:3])
        elif ranked:
            ranked = [min(ranked, key=lambda entry: entry[:3])]
        placement = fill(task, [entry[3] for entry in ranked])
        if placement is not None and (best is None or ranked[0][:3] < best):
            best, where = ranked[0][:3], placement
    return where


class Consolidate:
    """Use as few nodes as possible, of any type. Choose the type on which the waiting instances fit
    on the fewest nodes (ties go to the fastest type). On this type, use the fullest node on which
    all of them fit, or else the nodes on which most of them fit. The cost is O(nodes).
    """

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        demand, best = task.demand, None
        needed = demand.gang or task.waiting
        for candidate in by_speed(task, type_):
            rooms = sorted((-machine.room(demand), machine.index) for machine in with_room(view, demand, candidate))
            enough = [room for room in rooms if -room[0] >= needed]
            placement = _pour(enough[-1:] or rooms, needed, whole=bool(demand.gang))
            if placement is not None and (best is None or _fewer(placement, best)):
                best = placement
        return best


class SpreadGang:
    """Use as many nodes as possible. On the fastest type on which the task fits, one instance is
    placed on each node in turn, starting with the emptiest node, until all instances are placed.
    The cost is O(nodes).
    """

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        demand = task.demand
        needed = demand.gang or task.waiting
        for candidate in by_speed(task, type_):
            emptiest = sorted(with_room(view, demand, candidate), key=lambda machine: (-machine.idle, machine.index))
            room = {machine.index: machine.room(demand) for machine in emptiest}
            if room and (not demand.gang or whole_sum(room.values()) >= needed):
                return _deal(room, needed)
        return None


def _fewer(one: Placement, other: Placement) -> bool:
    """Return True if ``one`` starts more instances than ``other``, or the same number on fewer
    nodes.
    """
    started, before = (sum(share.instances for share in way) for way in (one, other))
    return (-started, len(one)) < (-before, len(other))


def _pour(rooms: list[tuple[int, int]], needed: int, *, whole: bool) -> Placement | None:
    """Fill the nodes in turn. Return ``None`` if nothing fits, or if the instances are a gang
    (``whole``) that does not fit as a whole.
    """
    shares = []
    for less_room, node in rooms:
        count = min(needed, -less_room)
        shares.append(Share(node, count))
        needed -= count
        if not needed:
            break
    return tuple(shares) if shares and not (whole and needed) else None


def _deal(room: dict[int, int], needed: int) -> Placement:
    """Assign one instance to each node in turn, until all instances are assigned or no node can
    hold another one.
    """
    dealt = dict.fromkeys(room, 0)
    while needed and room:
        for node in list(room):
            if not needed:
                break
            dealt[node] += 1
            needed -= 1
            room[node] -= 1
            if not room[node]:
                del room[node]
    return tuple(Share(node, count) for node, count in dealt.items() if count)


_Typical: TypeAlias = Sequence[tuple[DemandClass, float]]
"""Probability of each demand."""
_State: TypeAlias = tuple[int, int, int, tuple[tuple[int, int], ...]]
"""The free resources of a machine: the bit mask of idle GPUs, CPUs, memory, shares of GPUs."""


class Fgd:
    """Use the node (and, for a fractional demand, the GPU) on which the expected fragmentation
    grows least (Weng et al., ATC 2023). Ties go to the faster type, then to the node whose GPUs
    have the least free in total, then to the first node. A gang is placed by best fit.

    ``typical`` maps demands to probabilities, such as ``{Demand(gpus=0.5): 0.7, Demand(gpus=2):
    0.3}``. By default, the probabilities are estimated from the demands that the rule has placed so
    far. They are updated whenever the number of these demands has doubled. Memory is ignored. Rare
    demands are taken into account, because they are often the widest.

    The rule needs no estimates. It is costly by definition: O(nodes) per decision, and O(GPUs x
    typical demands) for each node that has changed.
    """

    rehearses = False  # no rehearsal, because the number of calls of this rule depends on what an index stores

    def __init__(self, typical: Mapping[Demand, float] | None = None) -> None:
        self._learns = typical is None
        self.forgets = "the demands that it was asked to place" if self._learns else ""
        self._weights: dict[Demand, float] = dict(typical or {})
        self._asked: dict[Demand, int] = {}
        self._count = 0
        self._growths: dict[tuple[int, Demand], tuple[_State, float, int | None]] = {}
        """By node and demand: the state of the node when it was examined, the growth of
        fragmentation there, and the GPU.
        """

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        demand = task.demand
        if demand.gang:
            return view.fit(task, type_)
        if self._learns:
            self._learn(demand.demand)
        typical = self._typical(view)
        least, where = (inf, inf, 0, 0), None
        for candidate in by_speed(task, type_):
            for machine in with_room(view, demand, candidate):
                growth, gpu = self._growth(machine, demand, typical)
                rank = (round(growth, 9), task.seconds[candidate], _free(machine), machine.index)
                if rank < least:
                    least, where = rank, (machine, gpu)
        if where is None:
            return None
        machine, gpu = where
        return fill(task, [machine]) if gpu is None else (Share(machine.index, 1, gpu),)

    def _growth(self, machine: NodeState, demand: DemandClass, typical: _Typical) -> tuple[float, int | None]:
        """Return the smallest increase in fragmentation if one more instance starts on the machine,
        and the GPU with this increase.
        """
        state = (machine.free, machine.cpus, machine.memory, tuple(machine.shares.items()))
        cached = self._growths.get((machine.index, demand.demand))
        if cached is not None and cached[0] == state:
            return cached[1:]
        least, where = inf, None
        before = fragmentation(machine, typical)
        for gpu, after in _ways(machine, demand):
            growth = fragmentation(after, typical) - before
            if growth < least - 1e-12:
                least, where = growth, gpu
        self._growths[machine.index, demand.demand] = state, least, where
        return least, where

    def _learn(self, demand: Demand) -> None:
        kind = demand._replace(memory_gb=0.0)
        self._asked[kind] = self._asked.get(kind, 0) + 1
        self._count += 1
        if self._count & (self._count - 1) == 0:  # true if the count is a power of two
            self._weights = dict(self._asked)
            self._growths.clear()

    def _typical(self, view: ClusterView) -> _Typical:
        asking = [(demand, weight) for demand, weight in self._weights.items() if demand.gpus > 0]
        total = ordered_sum(weight for _, weight in asking)
        return [(view.machines.compile(demand, 0), weight / total) for demand, weight in asking]


def fragmentation(machine: NodeState, typical: _Typical) -> float:
    """Return the amount of free GPUs on the machine that a typical task cannot use, averaged over
    the ``typical`` demands by their probabilities. If a task cannot run on the machine, it can use
    none of them. Otherwise, it cannot use the GPUs that have less free than it needs on one GPU.
    """
    shares = machine.shares.values()
    free = _free(machine)
    expected = 0.0
    for demand, probability in typical:
        if machine.type not in demand.types or not machine.room(demand):
            expected += probability * free
        else:
            least = demand.share or MICRO
            expected += probability * whole_sum([share for share in shares if share < least])
    return expected / MICRO


def _free(machine: NodeState) -> int:
    """Return the sum of the free amounts on all GPUs of a machine, in millionths."""
    return machine.idle * MICRO + whole_sum(machine.shares.values())


def _ways(machine: NodeState, demand: DemandClass) -> list[tuple[int | None, NodeState]]:
    """Return all ways to start one instance. Each consists of the GPU that the instance shares (or
    ``None``) and a copy of the machine after the start.
    """
    if not demand.share:
        return [(None, _after(machine, demand, None))]
    gpus: list[int] = [gpu for gpu in sorted(machine.shares) if machine.room_on(gpu, demand)]
    if machine.idle:
        gpus.append((machine.free & -machine.free).bit_length() - 1)
    return [(gpu, _after(machine, demand, gpu)) for gpu in gpus]


def _after(machine: NodeState, demand: DemandClass, gpu: int | None) -> NodeState:
    """Return a copy of the machine with one more instance."""
    after = machine.copy()
    after.fill(demand, 1, gpu)
    return after


def start_those(
    view: ClusterView, chosen: Iterable[tuple[TaskState, int]], place: Callable[..., Placement | None]
) -> Iterator[Decision]:
    """Start the chosen pairs of a task and a type that fit. If none fits and nothing is running,
    start any task that fits.
    """
    started = False
    for task, type_ in chosen:
        placement = place(view, task, type_) if view.machines.fits_on(task.demand, type_) else None
        if placement is not None:
            started = True
            yield Start(task, placement)
    if not started and not view.running:
        task = next(task for task in view.ready if view.fits(task))
        placement = place(view, task)
        if placement is not None:
            yield Start(task, placement)
