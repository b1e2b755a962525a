"""Fragmentation gradient descent: place where the least GPU capacity becomes useless to typical tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from dagsim.model import Demand, Placement, Share
from dagsim.policies.placement_nodes import by_speed, fill, with_room
from dagsim.sim.frontier import ActiveTask
from dagsim.sim.machines import MICRO, DemandClass, Machine
from dagsim.sim.policy import View

__all__ = ["Fgd", "fragmentation"]


class Fgd:
    """The node (and for a fractional demand the GPU) on which the expected fragmentation grows least; ties go to the
    faster type, then to the first node. A gang goes where best fit puts it.

    ``typical`` weighs demands by how often they are asked, ``{Demand(gpus=0.5): 0.7, Demand(gpus=2): 0.3}``; left out,
    the demands it has been asked to place so far, the most frequent 32. Not clairvoyant. O(nodes x GPUs x typical
    demands) per decision, which the definition forces (Weng et al., ATC 2023).
    """

    def __init__(self, typical: Mapping[Demand, float] | None = None) -> None:
        self.typical = typical
        self._asked: dict[Demand, int] = {}

    def place(self, view: View, task: ActiveTask, type_: int | None = None) -> Placement | None:
        demand = task.demand
        if demand.gang:
            return view.fit(task, type_)
        known = self._typical(view, demand)
        least, where = inf, None
        for each in by_speed(task, type_):
            for machine in with_room(view, demand, each):
                before = fragmentation(machine, known)
                for gpu, after in _ways(machine, demand):
                    growth = fragmentation(after, known) - before
                    if growth < least - 1e-12:
                        least, where = growth, (machine, gpu)
        if where is None:
            return None
        machine, gpu = where
        return fill(task, [machine]) if gpu is None else (Share(machine.index, 1, gpu),)

    def _typical(self, view: View, demand: DemandClass) -> list[tuple[DemandClass, float]]:
        weights: Iterable[tuple[Demand, float]]
        if self.typical is not None:
            weights = self.typical.items()
        else:
            self._asked[demand.demand] = self._asked.get(demand.demand, 0) + 1
            weights = sorted(self._asked.items(), key=lambda asked: -asked[1])[:32]
        asking = [(each, weight) for each, weight in weights if each.gpus > 0]
        total = sum(weight for _, weight in asking)
        return [(view.machines.compile(each, 0), weight / total) for each, weight in asking]


def fragmentation(machine: Machine, typical: Sequence[tuple[DemandClass, float]]) -> float:
    """The free GPUs of the machine that a typical task cannot use, expected over ``typical`` demands and their
    probabilities: all of them if it cannot run there, else those with less free than it asks of one GPU."""
    shares = machine.shares.values()
    free = machine.idle * MICRO + sum(shares)
    expected = 0.0
    for demand, probability in typical:
        if machine.type not in demand.types or not machine.room(demand):
            expected += probability * free
        else:
            least = demand.share or MICRO
            expected += probability * sum([each for each in shares if each < least])
    return expected / MICRO


def _ways(machine: Machine, demand: DemandClass) -> list[tuple[int | None, Machine]]:
    """The ways to start one instance: the GPU it shares (``None``: whole ones, or none), and the machine after it."""
    if not demand.share:
        return [(None, _after(machine, demand, None))]
    gpus: list[int] = [gpu for gpu, free in sorted(machine.shares.items()) if free >= demand.share]
    if machine.idle:
        gpus.append((machine.free & -machine.free).bit_length() - 1)
    return [(gpu, _after(machine, demand, gpu)) for gpu in gpus]


def _after(machine: Machine, demand: DemandClass, gpu: int | None) -> Machine:
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
