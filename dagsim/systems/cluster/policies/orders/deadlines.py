"""Orders by deadline, not preemptive. Jobs without one come last, first come, first served."""

from __future__ import annotations

from math import inf

from dagsim.systems.cluster.api import TaskState
from dagsim.systems.cluster.policies.placement.rule import PlacementRule
from dagsim.systems.cluster.policies.support.ordered import Ordered

__all__ = ["edf", "llf"]


def edf(placement: str | PlacementRule = "best-fit") -> Ordered:
    """Earliest deadline first (Jackson 1955; Liu and Layland 1973). Not clairvoyant. O(log n)."""
    return Ordered(by_deadline, placement)


def llf(placement: str | PlacementRule = "best-fit") -> Ordered:
    """Least laxity first: the least ``deadline - now - path to the end of the job``, everything on its fastest type. As
    ``now`` is the same for all, the order never changes. Clairvoyant. O(log n)."""
    return Ordered(by_laxity, placement)


def by_deadline(task: TaskState) -> float:
    deadline_s = task.job.job.deadline_s
    return inf if deadline_s is None else deadline_s


def by_laxity(task: TaskState) -> float:
    return by_deadline(task) - task.rank_s
