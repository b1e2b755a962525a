"""Shortest remaining time and shortest remaining service first, with preemption."""

from __future__ import annotations

from dagsim.systems.cluster.api import TaskState
from dagsim.systems.cluster.policies.orders.static import width
from dagsim.systems.cluster.policies.placement.rule import PlacementRule
from dagsim.systems.cluster.policies.support.victims import LeastRemaining

__all__ = ["srsf", "srtf"]


def srtf(placement: str | PlacementRule = "best-fit") -> LeastRemaining:
    """Shortest job first by remaining time. Clairvoyant, preemptive. Cost: ``LeastRemaining`` (Schrage 1968, for one
    machine)."""
    return LeastRemaining(_one, placement)


def srsf(placement: str | PlacementRule = "best-fit") -> LeastRemaining:
    """Shortest remaining service first: GPUs x remaining time, the two-dimensional SRTF. Clairvoyant, preemptive. Cost:
    ``LeastRemaining`` (the clairvoyant reference of Tiresias, Gu et al., NSDI 2019)."""
    return LeastRemaining(width, placement)


def _one(_: TaskState) -> float:
    return 1.0
