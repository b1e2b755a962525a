"""Preemptive policies that run the task with the least remaining time or service first, and
functions that choose which runs to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import TypeAlias

from dagsim.model import Decision, Preempt
from dagsim.model.arithmetic import whole_sum
from dagsim.systems.cluster.api import MICRO, ClusterState, ClusterView, DemandClass, NodeState, Run, TaskState
from dagsim.systems.cluster.policies.orders import TypedOrdered, width
from dagsim.systems.cluster.policies.placement import PlacementRule

Weight: TypeAlias = Callable[[TaskState], float]
"""Weight of one second of a task. It is the same for all pieces of the task."""


class LeastRemaining:
    """The task with the least ``weight x remaining seconds`` comes first. A ready task that does
    not fit displaces the runs with the largest product. For each of these runs, the product must be
    larger than the task's product on the same type. The policy uses estimates, and it preempts
    runs. The cost is O(log tasks) per decision, plus O(weights + log running) for each run that
    might be stopped. The counterpart in the compiled engine is ``compiled.srtf``.
    """

    def __init__(self, weight: Weight, placement: str | PlacementRule = "best-fit") -> None:
        def left(task: TaskState, type_: int) -> float:
            return weight(task) * task.seconds[type_]

        self.weight = weight
        self.order = TypedOrdered(left, placement)
        """The order in which tasks start where they fit."""
        self._victims: dict[float, list[tuple[float, int]]] = {}
        """A heap of ``(-end, run)`` for each weight: among runs of equal weight, the one that ends
        last has the most remaining at any time.
        """
        self._known: set[int] = set()
        """The runs under way."""
        self.forgets = ""
        self._has_begun = False

    def started(self, run: Run, now: float) -> None:
        """Add a run that has started."""
        if run.id not in self._known:
            self._known.add(run.id)
            heap = self._victims.setdefault(self.weight(run.task), [])
            heappush(heap, (-run.estimated_end_s(now), run.id))

    def ended(self, run: Run, now: float) -> None:
        """Remove a run. Its heap entry is dropped later, when it reaches the top."""
        self._known.discard(run.id)

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        decided = self.order.decide(view)
        if not decided and (decided := self._take_over(view)) and not self._has_begun:
            self.forgets = "at which events it had last compared its runs"
        self._has_begun = True
        return decided

    def _take_over(self, view: ClusterView) -> list[Decision]:
        """Preempt runs for the first ready task, if it fits when runs with a larger product are
        stopped.
        """
        pair = view.typed_queue(self.order.key).first()
        if pair is None:
            return []
        view.follow(self)
        task = pair[0]
        looked_at: list[tuple[float, tuple[float, int]]] = []
        chosen = make_room(view, task, self._with_more_left(view, task, looked_at))
        for weight, entry in looked_at:
            heappush(self._victims[weight], entry)
        return [Preempt(run) for run in chosen]

    def _with_more_left(
        self, view: ClusterView, task: TaskState, looked_at: list[tuple[float, tuple[float, int]]]
    ) -> Iterator[Run]:
        """Yield the runs whose product is larger than the product of ``task`` on the same type,
        largest first. Entries that are removed from a heap are stored in ``looked_at``.
        """
        now, running = view.now, view.running
        least = self.weight(task) * task.best_s
        while True:
            most, weight = least, -1.0
            for heap_weight, heap in self._victims.items():
                while heap and heap[0][1] not in running:
                    heappop(heap)
                if heap and heap_weight * (-heap[0][0] - now) > most:
                    most, weight = heap_weight * (-heap[0][0] - now), heap_weight
            if weight < 0:
                return
            entry = heappop(self._victims[weight])
            looked_at.append((weight, entry))
            run = running[entry[1]]
            if run.started_s == now:
                # spare runs that have just started, because otherwise two tasks could displace each
                # other forever
                continue
            if run.type in task.demand.types and most > self.order.key(task, run.type):
                yield run


def make_room(view: ClusterView, task: TaskState, victims: Iterable[Run]) -> list[int]:
    """Return the runs among ``victims`` that must be stopped so that ``task`` fits. Return no runs
    if stopping all of them would not be enough. The victims are read one by one. An independent
    instance gets the first node on which it fits. The cost is O(1) per victim and, for a gang, also
    O(nodes) once per type.
    """
    demand = task.demand
    freed = _FreedGpus(view) if _needs_only_gpus(demand) else FreedNodes(view)
    room: dict[int, int] = {}
    in_type: dict[int, int] = {}
    chosen: list[Run] = []
    for run in victims:
        type_ = run.type
        if type_ not in demand.types:
            continue
        chosen.append(run)
        nodes = freed.without(run)
        if not demand.gang:
            enough = [node for node in nodes if freed.room(node, demand)]
            if enough:
                return [victim.id for victim in chosen if min(enough) in victim.nodes]
            continue
        if type_ not in in_type:
            in_type[type_] = _room(view.machines, demand, type_)
        for node in nodes:
            now = freed.room(node, demand)
            was = room.get(node)
            in_type[type_] += now - (view.machines.list[node].room(demand) if was is None else was)
            room[node] = now
        if in_type[type_] >= demand.gang and (not demand.bound or _in_one_domain(view, freed, demand, type_)):
            return [victim.id for victim in chosen if victim.type == type_]
    return []


def _room(machines: ClusterState, demand: DemandClass, type_: int) -> int:
    """Return the number of instances that fit on nodes of the type now."""
    if _needs_only_gpus(demand):
        return machines.by_gpus[type_].room(demand.whole)
    return sum(machine.room(demand) for machine in machines.with_room(demand, type_))


def _needs_only_gpus(demand: DemandClass) -> bool:
    """Return True if whole GPUs on any node are enough for a task."""
    return bool(demand.whole) and not (demand.cpus or demand.memory or demand.terms)


def _in_one_domain(view: ClusterView, freed: _FreedGpus | FreedNodes, demand: DemandClass, type_: int) -> bool:
    """Return True if a gang would fit within one of its domains."""
    room = {machine.bit: freed.room(machine.index, demand) for machine in view.machines.list if machine.type == type_}
    return any(
        whole_sum(count for bit, count in room.items() if bit & domain) >= demand.gang
        for domain in demand.terms.domains  # type: ignore[union-attr]
    )


class _FreedGpus:
    """The idle GPUs that each node would have if some runs were stopped. This is sufficient for
    demands that consist only of whole GPUs.
    """

    def __init__(self, view: ClusterView) -> None:
        self._machines = view.machines.list
        self._idle: dict[int, int] = {}
        self._shares: dict[tuple[int, int], int] = {}
        """Free millionths of GPUs that runs share, by node and GPU."""

    def without(self, run: Run) -> list[int]:
        """Treat the run as stopped, and return the nodes that it uses."""
        demand, nodes = run.task.demand, []
        for machine, count, _, on in run.held:
            node = machine.index
            idle = self._idle.get(node)
            idle = (machine.idle if idle is None else idle) + demand.whole * count
            part = machine.part(demand) if on else 0
            for place in on:
                gpu = machine.gpu_at(place)
                free = self._shares[node, gpu] = self._shares.get((node, gpu), machine.shares[gpu]) + part
                idle += free == MICRO
            self._idle[node] = idle
            nodes.append(node)
        return nodes

    def room(self, node: int, demand: DemandClass) -> int:
        """Return the number of instances of ``demand`` that would fit on the node."""
        return self._idle[node] // demand.whole if self._machines[node].up else 0


class FreedNodes:
    """Copies of nodes in the state that they would have if some runs were stopped."""

    def __init__(self, view: ClusterView) -> None:
        self._machines = view.machines.list
        self._nodes: dict[int, NodeState] = {}

    def without(self, run: Run) -> list[int]:
        """Treat the run as stopped, and return its nodes."""
        nodes = []
        for machine, count, mask, on in run.held:
            copy = self._nodes.get(machine.index) or machine.copy()
            self._nodes[machine.index] = copy
            copy.vacate(run.task.demand, count, mask, on)
            nodes.append(machine.index)
        return nodes

    def room(self, node: int, demand: DemandClass) -> int:
        """Return the number of instances of ``demand`` that would fit on the node."""
        return self.node(node).room(demand)

    def node(self, node: int) -> NodeState:
        """Return a copy of a node without the runs that are treated as stopped."""
        return self._nodes.get(node) or self._machines[node]


def srtf(placement: str | PlacementRule = "best-fit") -> LeastRemaining:
    """Shortest remaining time first (Schrage 1968, for one machine). The policy uses estimates, and
    it preempts runs. Its time complexity is that of ``LeastRemaining``.
    """
    return LeastRemaining(_one, placement)


def srsf(placement: str | PlacementRule = "best-fit") -> LeastRemaining:
    """Shortest remaining service first, where service is GPUs x remaining time (two-dimensional
    SRTF; the baseline with known durations in Tiresias, Gu et al., NSDI 2019). The policy uses
    estimates, and it preempts runs. Its time complexity is that of ``LeastRemaining``.
    """
    return LeastRemaining(width, placement)


def _one(_: TaskState) -> float:
    return 1.0
