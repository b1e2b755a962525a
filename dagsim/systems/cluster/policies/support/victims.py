"""Victims of preemptive list schedulers: the runs that must go so that a task fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import TypeAlias

from dagsim.model import Decision, Preempt
from dagsim.systems.cluster.api import MICRO, ClusterView, NodeState, Run, TaskState
from dagsim.systems.cluster.policies.placement.rule import PlacementRule
from dagsim.systems.cluster.policies.support.ordered import TypedOrdered

__all__ = ["LeastRemaining", "Weight", "make_room"]

Weight: TypeAlias = Callable[[TaskState], float]
"""What a second of a task counts, the same for all its pieces."""


class LeastRemaining:
    """Least ``weight x remaining seconds`` first; a ready task that does not fit takes the place of the runs with the
    most left, as long as each of them has more left than it needs there. Clairvoyant, preemptive. O(log n) per decision
    plus O(weights + log running) per victim looked at."""

    def __init__(self, weight: Weight, placement: str | PlacementRule = "best-fit") -> None:
        def left(task: TaskState, type_: int) -> float:
            return weight(task) * task.seconds[type_]

        self._left = left
        self._weight = weight
        self._start = TypedOrdered(left, placement)
        self._victims: dict[float, list[tuple[float, int]]] = {}
        """Per weight a heap of ``(-end, run)``: of one weight, who ends last has the most left at any time."""
        self._known: set[int] = set()
        """The runs under way."""

    def started(self, run: Run, now: float) -> None:
        """Take in a run."""
        if run.id not in self._known:
            self._known.add(run.id)
            heap = self._victims.setdefault(self._weight(run.task), [])
            heappush(heap, (-run.estimated_end_s(now), run.id))

    def ended(self, run: Run, now: float) -> None:
        """Let go of a run; its entry is dropped when it comes first."""
        self._known.discard(run.id)

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        return self._start.decide(view) or self._take_over(view)

    def _take_over(self, view: ClusterView) -> list[Decision]:
        """Preempt for the task with the least left, if runs with more left make room for it."""
        pair = view.typed_queue(self._left).first()
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
        """Runs with more left than ``task`` needs on their type, most first; what is taken off a heap is noted."""
        now, running = view.now, view.running
        least = self._weight(task) * task.best_s
        while True:
            most, weight = least, -1.0
            for each, heap in self._victims.items():
                while heap and heap[0][1] not in running:
                    heappop(heap)
                if heap and each * (-heap[0][0] - now) > most:
                    most, weight = each * (-heap[0][0] - now), each
            if weight < 0:
                return
            entry = heappop(self._victims[weight])
            looked_at.append((weight, entry))
            run = running[entry[1]]
            if run.started_s == now:
                continue  # what has just been started stays, so that no two tasks displace each other for ever
            if run.type in task.demand.types and most > self._left(task, run.type):
                yield run


def make_room(view: ClusterView, task: TaskState, victims: Iterable[Run]) -> list[int]:
    """The runs among ``victims``, asked for one by one, that must go so that ``task`` fits; none if all of them would
    not do. An independent instance gets the first node that has room for it."""
    demand, gang = task.demand, task.demand.gang or 1
    freed: dict[int, NodeState] = {}
    room: dict[int, int] = {}
    chosen: list[Run] = []
    for run in victims:
        if run.type not in demand.types:
            continue
        chosen.append(run)
        nodes = _free(run, freed)
        for node in nodes:
            room[node] = freed[node].room(demand)
        enough = {node for node in nodes if room[node]}
        if demand.gang:
            enough = {node for node in room if freed[node].type == run.type}
            if _gang_room(view, task, run.type, room, enough) < gang:
                continue
        if enough:
            first = enough if demand.gang else {min(enough)}
            return [each.id for each in chosen if first.intersection(each.nodes)]
    return []


def _gang_room(view: ClusterView, task: TaskState, type_: int, room: dict[int, int], enough: set[int]) -> int:
    machines = view.machines
    untouched = (index for index in machines.candidates(task.demand, type_) if index not in room)
    return sum(machines.list[index].room(task.demand) for index in untouched) + sum(room[node] for node in enough)


def _free(run: Run, freed: dict[int, NodeState]) -> list[int]:
    """Note on copies of the run's machines what they would have free without it."""
    demand = run.task.demand
    nodes = []
    for machine, count, _, on in run.held:
        copy = freed.get(machine.index) or machine.copy()
        freed[machine.index] = copy
        copy.idle += demand.whole * count
        copy.cpus += demand.cpus * count
        copy.memory += demand.memory * count
        for gpu in on:
            copy.shares[gpu] += demand.share
            if copy.shares[gpu] == MICRO:
                del copy.shares[gpu]
                copy.idle += 1
        nodes.append(machine.index)
    return nodes
