"""Round robin: everyone in turn, for a slice of time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from math import ceil

from dagsim.errors import ConfigError
from dagsim.model import Decision, Preempt, Start, Wait
from dagsim.systems.cluster.api import ClusterView, DemandClass, Run, TaskState
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing
from dagsim.systems.cluster.policies.support.victims import make_room

__all__ = ["RoundRobin"]


class RoundRobin:
    """First come, first served, but a run that has had its slice of ``quantum_s`` seconds makes way for the next in
    turn and queues up again; gangs come and go whole (Ousterhout 1982).

    A run whose slice is over goes on as long as nobody needs its place. What the next in turn cannot use yet, later
    ones may. Not clairvoyant, preemptive. O(log running + demand classes) per decision, plus O(runs whose slice is
    over) when the next in turn does not fit.

    Raises:
        ConfigError: ``quantum_s`` is not positive.
    """

    def __init__(self, quantum_s: float = 60.0, placement: str | PlacementRule = "best-fit") -> None:
        if not quantum_s > 0:
            raise ConfigError(f"round-robin: quantum_s must be positive, got {quantum_s!r}")
        self.quantum_s = quantum_s
        self._place = placing(placement).place
        self._slices: list[tuple[float, int]] = []
        """A heap of ``(end of slice, run)``."""
        self._over: dict[int, None] = {}
        """Runs whose slice is over, longest over first."""
        self._known: set[int] = set()
        """The runs under way."""

    def started(self, run: Run, now: float) -> None:
        """Give a run its first slice."""
        if run.id not in self._known:
            self._known.add(run.id)
            heappush(self._slices, (run.started_s + self.quantum_s, run.id))

    def ended(self, run: Run, now: float) -> None:
        """Let go of a run; its slice is dropped when it is over."""
        self._known.discard(run.id)
        self._over.pop(run.id, None)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self)
        turns = view.index(RoundRobin, _Turns)
        heads = turns.heads()
        self._look_at_slices(view.now, bool(heads))
        if not heads:
            return
        if not view.fits(heads[0]):
            displaced = make_room(view, heads[0], self._displaceable(view))
            if displaced:
                for run in displaced:
                    yield Preempt(run)
                return
        for task in heads:
            placement = self._place(view, task) if view.fits(task) else None
            if placement is not None:
                yield Start(task, placement)
                return
        if self._slices:
            yield Wait(self._slices[0][0])

    def _displaceable(self, view: ClusterView) -> Iterator[Run]:
        return (view.running[run] for run in self._over)

    def _look_at_slices(self, now: float, somebody_waits: bool) -> None:
        """Note whose slice is over, and renew those that ended while nobody waited."""
        quantum_s, slices, known = self.quantum_s, self._slices, self._known
        while slices and (slices[0][0] <= now or slices[0][1] not in known):
            end_s, id_ = heappop(slices)
            if id_ not in known:
                continue
            end_s += quantum_s * ceil((now - end_s) / quantum_s)
            if end_s > now:
                heappush(slices, (end_s, id_))
            elif somebody_waits:
                self._over[id_] = None
            else:
                heappush(slices, (now + quantum_s, id_))
        if not somebody_waits:
            for id_ in self._over:
                heappush(slices, (now + quantum_s, id_))
            self._over.clear()


class _Turns:
    """Ready tasks in the order they became ready: at one instant, arrivals before what is preempted then."""

    def __init__(self) -> None:
        self._turns: dict[DemandClass, deque[tuple[int, TaskState]]] = {}
        self._count = 0

    def push(self, task: TaskState) -> None:
        self._turns.setdefault(task.demand, deque()).append((self._count, task))
        self._count += 1

    def heads(self) -> list[TaskState]:
        """The first task of each demand class, in turn."""
        first = []
        for turns in self._turns.values():
            while turns and not turns[0][1].waiting:
                turns.popleft()
            if turns:
                first.append(turns[0])
        return [task for _, task in sorted(first)]
