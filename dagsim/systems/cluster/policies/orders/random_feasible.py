"""The lower bound of policies: anything that fits."""

from __future__ import annotations

from collections.abc import Iterator

from dagsim.model import Decision, Start
from dagsim.systems.cluster.api import ClusterView, DemandClass, TaskState
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing

__all__ = ["RandomFeasible"]


class RandomFeasible:
    """Uniform over all pairs of ready task and GPU type that could start now. It draws until none could, from the
    simulation's stream ``policy``. Not clairvoyant. O(demand classes x types) per decision."""

    def __init__(self, placement: str | PlacementRule = "best-fit") -> None:
        self.placement = placing(placement)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        bags = view.index(RandomFeasible, _Bags)
        rng = view.stream("policy")
        fits_on = view.machines.fits_on
        while True:
            fitting = [(demand, type_) for demand in bags.by_demand for type_ in demand.types if fits_on(demand, type_)]
            total = sum(len(bags.by_demand[demand]) for demand, _ in fitting)
            if not total:
                return
            demand, type_, at = _pick(bags, fitting, int(rng.integers(total)))
            bag = bags.by_demand[demand]
            task = bag[at]
            if not task.waiting:  # started before: forget it and draw again, which keeps the choice uniform
                bag[at] = bag[-1]
                bag.pop()
                continue
            placement = self.placement.place(view, task, type_)
            if placement is None:
                return
            yield Start(task, placement)


class _Bags:
    """Ready tasks by demand class, in no order."""

    def __init__(self) -> None:
        self.by_demand: dict[DemandClass, list[TaskState]] = {}

    def push(self, task: TaskState) -> None:
        self.by_demand.setdefault(task.demand, []).append(task)


def _pick(bags: _Bags, fitting: list[tuple[DemandClass, int]], at: int) -> tuple[DemandClass, int, int]:
    """Number ``at`` of all pairs of task and type: its class, its type, and its place in the class's bag."""
    for demand, type_ in fitting:
        size = len(bags.by_demand[demand])
        if at < size:
            return demand, type_, at
        at -= size
    raise AssertionError("more pairs drawn than there are")
