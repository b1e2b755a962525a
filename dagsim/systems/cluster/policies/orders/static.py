"""Non-preemptive orders: what is started first. Each is list scheduling with its own key; ties go first come, first
served."""

from __future__ import annotations

from operator import attrgetter

from dagsim.systems.cluster.api import TaskState
from dagsim.systems.cluster.policies.placement.rule import PlacementRule
from dagsim.systems.cluster.policies.support.ordered import Ordered, TypedOrdered

__all__ = ["by_arrival", "by_seconds", "critical_path", "fifo", "fifo_fit", "ljf", "saf", "sjf", "width", "wspt"]

by_arrival = attrgetter("order")
"""First come, first served."""


def fifo(placement: str | PlacementRule = "best-fit") -> Ordered:
    """First in, first out, strictly: the oldest task blocks all behind it until it fits. Not clairvoyant. O(log n)."""
    return Ordered(by_arrival, placement, strict=True)


def fifo_fit(placement: str | PlacementRule = "best-fit") -> Ordered:
    """The oldest task that fits; what does not fit is skipped. Not clairvoyant. O(log n)."""
    return Ordered(by_arrival, placement)


def sjf(placement: str | PlacementRule = "best-fit") -> TypedOrdered:
    """Shortest job first: of all pairs of ready task and GPU type with room, the one that takes the least time.
    Clairvoyant. O(types x log n)."""
    return TypedOrdered(by_seconds, placement)


def critical_path(placement: str | PlacementRule = "best-fit") -> Ordered:
    """Highest level first: the ready task with the longest path to the end of its job (Hu 1961; HLFET). Clairvoyant.
    O(log n)."""
    return Ordered(by_rank, placement)


def ljf(placement: str | PlacementRule = "best-fit") -> Ordered:
    """Longest job first (LPT): the ready task that takes longest on its fastest type. For the makespan; at most 4/3 -
    1/(3m) times the least on m equal machines (Graham 1969). Clairvoyant. O(log n)."""
    return Ordered(by_length, placement)


def saf(placement: str | PlacementRule = "best-fit") -> TypedOrdered:
    """Smallest area first: the pair of ready task and GPU type with the fewest GPU-seconds. Clairvoyant.
    O(types x log n)."""
    return TypedOrdered(by_area, placement)


def wspt(placement: str | PlacementRule = "best-fit") -> TypedOrdered:
    """Weighted shortest processing time first: the least seconds per ``Job.weight``, over all pairs of ready task and
    GPU type (Smith 1956). Clairvoyant. O(types x log n)."""
    return TypedOrdered(by_seconds_per_weight, placement)


def width(task: TaskState) -> float:
    """GPUs that start together for the task: one instance's, or the whole gang's; 1 for what asks for no GPU."""
    return task.demand.demand.gpus * (task.demand.gang or 1) or 1.0


def by_seconds(task: TaskState, type_: int) -> float:
    return task.seconds[type_]


def by_rank(task: TaskState) -> float:
    return -task.rank_s


def by_length(task: TaskState) -> float:
    return -task.best_s


def by_area(task: TaskState, type_: int) -> float:
    return width(task) * task.seconds[type_]


def by_seconds_per_weight(task: TaskState, type_: int) -> float:
    return task.seconds[type_] / task.job.job.weight
