"""F1 to F4: orders that a regression over simulated queues of batch systems found, not preemptive.

With ``r`` the seconds on the fastest type, ``n`` the GPUs that start together and ``s`` the arrival in seconds, least
first. Arrivals and times below 0.1 s count as 0.1 s, so that the logarithm is defined (as RLScheduler, SC 2020, does).
"""

from __future__ import annotations

from math import log10, sqrt

from dagsim.systems.cluster.api import TaskState
from dagsim.systems.cluster.policies.orders.static import width
from dagsim.systems.cluster.policies.placement.rule import PlacementRule
from dagsim.systems.cluster.policies.support.ordered import Ordered

__all__ = ["f1", "f2", "f3", "f4"]


def f1(placement: str | PlacementRule = "best-fit") -> Ordered:
    """``log10(r) n + 870 log10(s)`` (Carastan-Santos and de Camargo, SC 2017). Clairvoyant. O(log n)."""
    return Ordered(by_f1, placement)


def f2(placement: str | PlacementRule = "best-fit") -> Ordered:
    """``sqrt(r) n + 25600 log10(s)`` (Carastan-Santos and de Camargo, SC 2017). Clairvoyant. O(log n)."""
    return Ordered(by_f2, placement)


def f3(placement: str | PlacementRule = "best-fit") -> Ordered:
    """``r n + 6860000 log10(s)`` (Carastan-Santos and de Camargo, SC 2017). Clairvoyant. O(log n)."""
    return Ordered(by_f3, placement)


def f4(placement: str | PlacementRule = "best-fit") -> Ordered:
    """``r sqrt(n) + 530000 log10(s)`` (Carastan-Santos and de Camargo, SC 2017). Clairvoyant. O(log n)."""
    return Ordered(by_f4, placement)


def by_f1(task: TaskState) -> float:
    return log10(max(task.best_s, 0.1)) * width(task) + 870 * _log_arrival(task)


def by_f2(task: TaskState) -> float:
    return sqrt(task.best_s) * width(task) + 25_600 * _log_arrival(task)


def by_f3(task: TaskState) -> float:
    return task.best_s * width(task) + 6_860_000 * _log_arrival(task)


def by_f4(task: TaskState) -> float:
    return task.best_s * sqrt(width(task)) + 530_000 * _log_arrival(task)


def _log_arrival(task: TaskState) -> float:
    return log10(max(task.job.job.arrival_s, 0.1))
