"""Fragmentation gradient descent: place where the least GPU capacity becomes useless to typical tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import TypeAlias

from dagsim.model import Demand, Placement, Share
from dagsim.systems.cluster.api import MICRO, ClusterView, DemandClass, NodeState, TaskState
from dagsim.systems.cluster.policies.placement.nodes import by_speed, fill, with_room

__all__ = ["Fgd", "fragmentation"]

_Typical: TypeAlias = Sequence[tuple[DemandClass, float]]
"""Demands and their probabilities."""
_State: TypeAlias = tuple[int, int, int, tuple[tuple[int, int], ...]]
"""What a machine has free: the bit mask of idle GPUs, CPUs, memory, shares of GPUs."""


class Fgd:
    """The node (and for a fractional demand the GPU) on which the expected fragmentation grows least; ties go to the
    faster type, then to the node with the least free on its GPUs, then to the first node. A gang goes where best fit
    puts it.

    ``typical`` weighs demands by how often they are asked, ``{Demand(gpus=0.5): 0.7, Demand(gpus=2): 0.3}``; left out,
    the demands it has been asked to place so far (memory left aside; the rare ones, which are often the widest, count
    too), renewed each time their number has doubled.
    Not clairvoyant. O(nodes) per decision, which the definition forces, and O(GPUs x typical demands) for each node
    that has changed (Weng et al., ATC 2023).
    """

    def __init__(self, typical: Mapping[Demand, float] | None = None) -> None:
        self._learns = typical is None
        self._weights: dict[Demand, float] = dict(typical or {})
        self._asked: dict[Demand, int] = {}
        self._count = 0
        self._growths: dict[tuple[int, Demand], tuple[_State, float, int | None]] = {}
        """Per node and demand: the node's state when it was looked at, the growth there, and on which GPU."""

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        demand = task.demand
        if demand.gang:
            return view.fit(task, type_)
        if self._learns:
            self._learn(demand.demand)
        typical = self._typical(view)
        least, where = (inf, inf, 0, 0), None
        for each in by_speed(task, type_):
            for machine in with_room(view, demand, each):
                growth, gpu = self._growth(machine, demand, typical)
                rank = (round(growth, 9), task.seconds[each], _free(machine), machine.index)
                if rank < least:
                    least, where = rank, (machine, gpu)
        if where is None:
            return None
        machine, gpu = where
        return fill(task, [machine]) if gpu is None else (Share(machine.index, 1, gpu),)

    def _growth(self, machine: NodeState, demand: DemandClass, typical: _Typical) -> tuple[float, int | None]:
        """The growth of fragmentation by an instance on the machine, and its best GPU. On that GPU fragmentation grows
        least."""
        state = (machine.free, machine.cpus, machine.memory, tuple(machine.shares.items()))
        known = self._growths.get((machine.index, demand.demand))
        if known is not None and known[0] == state:
            return known[1:]
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
        if self._count & (self._count - 1) == 0:  # 1, 2, 4, ...
            self._weights = dict(self._asked)
            self._growths.clear()

    def _typical(self, view: ClusterView) -> _Typical:
        asking = [(each, weight) for each, weight in self._weights.items() if each.gpus > 0]
        total = sum(weight for _, weight in asking)
        return [(view.machines.compile(each, 0), weight / total) for each, weight in asking]


def fragmentation(machine: NodeState, typical: _Typical) -> float:
    """The free GPUs of the machine that a typical task cannot use. The number is expected over ``typical`` demands and
    their probabilities: all of them if it cannot run there, else those with less free than it asks of one GPU."""
    shares = machine.shares.values()
    free = _free(machine)
    expected = 0.0
    for demand, probability in typical:
        if machine.type not in demand.types or not machine.room(demand):
            expected += probability * free
        else:
            least = demand.share or MICRO
            expected += probability * sum([each for each in shares if each < least])
    return expected / MICRO


def _free(machine: NodeState) -> int:
    """The free parts of all its GPUs, in millionths."""
    return machine.idle * MICRO + sum(machine.shares.values())


def _ways(machine: NodeState, demand: DemandClass) -> list[tuple[int | None, NodeState]]:
    """The ways to start one instance: the GPU it shares (``None``: whole ones, or none), and the machine after it."""
    if not demand.share:
        return [(None, _after(machine, demand, None))]
    gpus: list[int] = [gpu for gpu, free in sorted(machine.shares.items()) if free >= demand.share]
    if machine.idle:
        gpus.append((machine.free & -machine.free).bit_length() - 1)
    return [(gpu, _after(machine, demand, gpu)) for gpu in gpus]


def _after(machine: NodeState, demand: DemandClass, gpu: int | None) -> NodeState:
    """A copy of the machine with one more instance."""
    after = machine.copy()
    after.cpus -= demand.cpus
    after.memory -= demand.memory
    after.idle -= demand.whole
    if gpu is not None:
        if gpu not in after.shares:
            after.idle -= 1
            after.shares[gpu] = MICRO
        after.shares[gpu] -= demand.share
    return after
