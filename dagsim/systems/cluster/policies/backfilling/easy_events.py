"""EASY back-filling as batch simulators play it: one pass of the scheduler for every single event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dagsim.model import Decision, Placement, Start
from dagsim.systems.cluster.api import ClusterView, Run, TaskState
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing
from dagsim.systems.cluster.policies.support.batch_events import NEARLY, Key, Ready, free, held, size

__all__ = ["EasyEvents"]


class _Holding(NamedTuple):
    """A run under way: when it is expected to end, and what it holds."""

    end_s: float
    size: float


class EasyEvents:
    """EASY with a pass for every event: inside an instant one for each task that comes, while the runs that end there
    ahead of their estimates still hold what they have, and then one for each of those ends. So do PYSS and simulators
    like it; ``easy`` decides once per instant, on what is free when all events of it have happened.

    A node that comes back is an event too.

    A pass starts tasks by age until one does not fit; others go ahead of it that end by its *shadow time*, when enough
    is expected to be free for it, or need no more than is *extra* then. It counts GPUs (cores, of what asks for none)
    on all types together: for clusters of one. Clairvoyant, not preemptive. O(running log running + queue) per event
    (Lifka 1995; Tsafrir, Etsion and Feitelson 2007, section 2).
    """

    def __init__(self, placement: str | PlacementRule = "best-fit") -> None:
        self._place = placing(placement).place
        self._queue: dict[Key, None] = {}
        self._holding: dict[int, _Holding] = {}
        """By run id."""
        self._up = -1
        self._ended: dict[int, _Holding] = {}
        """Those that ended since the last decision."""

    def started(self, run: Run, now: float) -> None:
        """Take in a run."""
        self._holding.setdefault(run.id, _Holding(run.estimated_end_s(now), held(run)))

    def ended(self, run: Run, now: float) -> None:
        """Keep what a run held until the next decision."""
        self._ended[run.id] = self._holding.pop(run.id)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self)
        ready = view.index(EasyEvents, Ready).tasks
        ended = [holding for _, holding in sorted(self._ended.items())]
        self._ended.clear()
        for key in sorted(ready.keys() - self._queue.keys()):
            self._queue[key] = None
            yield from self._pass(view, ready, _late(ended, view.now))
        for place in range(1, len(ended) + 1):
            yield from self._pass(view, ready, _late(ended[place:], view.now))
        up = sum(machine.bit for machine in view.machines.list if machine.up)
        if up & ~self._up:  # a node has come back
            yield from self._pass(view, ready, [])
        self._up = up

    def _pass(self, view: ClusterView, ready: dict[Key, TaskState], late: list[_Holding]) -> Iterator[Decision]:
        """Start what may start while the runs in ``late`` still hold what they have."""
        keys = iter(list(self._queue))
        head = None
        for key in keys:
            task = ready[key]
            placement = self._room(view, task, late)
            if placement is None:
                head = task
                break
            yield Start(task, placement)
            self._leave(key, ready)
        if head is None:
            return
        shadow_s, extra = self._shadow(view, head, late)
        for key in keys:
            task = ready[key]
            in_time = view.now + task.best_s <= shadow_s
            if in_time or size(task) <= extra + NEARLY:
                placement = self._room(view, task, late)
                if placement is not None:
                    yield Start(task, placement)
                    self._leave(key, ready)
                    extra -= 0.0 if in_time else size(task)

    def _shadow(self, view: ClusterView, head: TaskState, late: list[_Holding]) -> tuple[float, float]:
        """The time when enough should be free for ``head``, and what is left over."""
        idle = free(view, head) - sum(run.size for run in late)
        shadow_s = view.now
        for end_s, amount in sorted([*self._holding.values(), *late]):
            if idle + NEARLY >= size(head) and end_s > shadow_s:
                break
            idle += amount
            shadow_s = max(end_s, view.now)
        return shadow_s, idle - size(head)

    def _room(self, view: ClusterView, task: TaskState, late: list[_Holding]) -> Placement | None:
        if late and free(view, task) - sum(run.size for run in late) + NEARLY < size(task):
            return None
        return self._place(view, task)

    def _leave(self, key: Key, ready: dict[Key, TaskState]) -> None:
        """Take a task that was started out of the queue, if nothing of it waits."""
        if not ready[key].waiting:
            del self._queue[key], ready[key]


def _late(ended: list[_Holding], now: float) -> list[_Holding]:
    """Those that ended ahead of their estimates."""
    return [run for run in ended if run.end_s > now]
