"""List scheduling: an order over ready tasks and a placement for the one chosen.

One task is started per answer; the kernel asks again until nothing more fits.
"""

from __future__ import annotations

from collections.abc import Iterable

from dagsim.model import Decision, Start
from dagsim.systems.cluster.api import ClusterView, Key, TypedKey
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing

__all__ = ["Ordered", "TypedOrdered"]


class Ordered:
    """Start the first task by ``key`` that fits, until none does; with ``strict`` the first task blocks all behind it
    until it fits. Cost per decision: O(log tasks + demand classes)."""

    def __init__(self, key: Key, placement: str | PlacementRule = "best-fit", *, strict: bool = False) -> None:
        self.key = key
        self._place = placing(placement).place
        self.strict = strict

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        queue = view.queue(self.key)
        task = queue.first() if self.strict else queue.first_fit()
        if task is None:
            return ()
        placement = self._place(view, task)
        return () if placement is None else (Start(task, placement),)


class TypedOrdered:
    """Start the first pair of task and GPU type by ``key`` that fits, until none does: for orders that depend on where
    a task would run. Cost per decision: O(types x (log tasks + demand classes))."""

    def __init__(self, key: TypedKey, placement: str | PlacementRule = "best-fit") -> None:
        self.key = key
        self._place = placing(placement).place

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        pair = view.typed_queue(self.key).first_fit()
        if pair is None:
            return ()
        task, type_ = pair
        placement = self._place(view, task, type_)
        return () if placement is None else (Start(task, placement),)
