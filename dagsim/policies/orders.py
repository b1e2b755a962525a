"""Non-preemptive orders: what is started first. Each is list scheduling with its own key; ties go first come, first
served."""

from __future__ import annotations

from operator import attrgetter

from dagsim.policies.ordered import Ordered, TypedOrdered
from dagsim.policies.placement import Placing
from dagsim.sim.frontier import ActiveTask

__all__ = ["by_arrival", "by_seconds", "critical_path", "fifo", "fifo_fit", "sjf"]

by_arrival = attrgetter("order")
"""First come, first served."""


def fifo(placement: str | Placing = "best-fit") -> Ordered:
    """First in, first out, strictly: the oldest task blocks all behind it until it fits. Not clairvoyant. O(log n)."""
    return Ordered(by_arrival, placement, strict=True)


def fifo_fit(placement: str | Placing = "best-fit") -> Ordered:
    """The oldest task that fits; what does not fit is skipped. Not clairvoyant. O(log n)."""
    return Ordered(by_arrival, placement)


def sjf(placement: str | Placing = "best-fit") -> TypedOrdered:
    """Shortest job first: of all pairs of ready task and GPU type with room, the one that takes the least time.
    Clairvoyant. O(types x log n)."""
    return TypedOrdered(by_seconds, placement)


def critical_path(placement: str | Placing = "best-fit") -> Ordered:
    """Highest level first: the ready task with the longest path to the end of its job (Hu 1961; HLFET). Clairvoyant.
    O(log n)."""
    return Ordered(by_rank, placement)


def by_seconds(task: ActiveTask, type_: int) -> float:
    return task.seconds[type_]


def by_rank(task: ActiveTask) -> float:
    return -task.rank_s
