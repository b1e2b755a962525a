"""Graham's list scheduling: whenever a machine is idle it takes the first ready task of a given list."""

from __future__ import annotations

from dagsim.systems.cluster.api import TaskState
from dagsim.systems.cluster.policies.placement.rule import PlacementRule
from dagsim.systems.cluster.policies.support.ordered import Ordered

__all__ = ["graham"]


def graham(order: object = (), placement: str | PlacementRule = "best-fit") -> Ordered:
    """List scheduling: the first ready task of the list ``order`` that fits; never idle while something fits.

    ``order`` names tasks, of whatever job: ``graham[order=[t1,t3,t2]]``; those it does not name follow, first come,
    first served. Not clairvoyant, not preemptive. O(log n) per decision. At most 2 - 1/m times the least makespan on m
    equal machines, and open to the anomalies of Graham (1966): more machines, shorter tasks or fewer edges can make the
    schedule longer.
    """
    names: tuple[object, ...] = order if isinstance(order, tuple) else (order,)
    place: dict[str, int] = {str(name): index for index, name in reversed([*enumerate(names)])}

    def by_list(task: TaskState) -> float:
        return place.get(task.task.name, len(place))

    return Ordered(by_list, placement)
