"""List scheduling: an order over ready tasks and a placement for the one chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dagsim.model import Decision, Start
from dagsim.policies.placement import Placing, placing
from dagsim.sim.frontier import ActiveTask, Key, TypedKey
from dagsim.sim.policy import View

__all__ = ["Ordered", "TypedOrdered"]


class Ordered:
    """Start the first task by ``key`` that fits, until none does; with ``strict`` the first task blocks all behind it until it
    fits. Cost per decision: O(log tasks + demand classes)."""

    def __init__(self, key: Key, placement: str | Placing = "best-fit", *, strict: bool = False) -> None:
        self.key = key
        self.placement = placing(placement)
        self.strict = strict

    def decide(self, view: View) -> Iterable[Decision]:
        queue = view.queue(self.key)
        choose = queue.first if self.strict else queue.first_fit
        task = choose()
        return () if task is None else self._starts(view, choose, task)

    def _starts(self, view: View, choose: Callable[[], ActiveTask | None], first: ActiveTask) -> Iterator[Decision]:
        place = self.placement.place
        task: ActiveTask | None = first
        while task is not None:
            placement = place(view, task)
            if placement is None:
                return
            yield Start(task, placement)
            task = choose()


class TypedOrdered:
    """Start the first pair of task and GPU type by ``key`` that fits, until none does: for orders that depend on where a task
    would run. Cost per decision: O(types x (log tasks + demand classes))."""

    def __init__(self, key: TypedKey, placement: str | Placing = "best-fit") -> None:
        self.key = key
        self.placement = placing(placement)

    def decide(self, view: View) -> Iterable[Decision]:
        choose = view.typed_queue(self.key).first_fit
        pair = choose()
        return () if pair is None else self._starts(view, choose, pair)

    def _starts(
        self, view: View, choose: Callable[[], tuple[ActiveTask, int] | None], first: tuple[ActiveTask, int]
    ) -> Iterator[Decision]:
        place = self.placement.place
        pair: tuple[ActiveTask, int] | None = first
        while pair is not None:
            task, type_ = pair
            placement = place(view, task, type_)
            if placement is None:
                return
            yield Start(task, placement)
            pair = choose()
