"""Roll-out: try every candidate in a simulation of what is known, go on by a base policy, and take the best."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from math import inf

from dagsim.errors import ConfigError, Stalled
from dagsim.model import Decision, Kind, Placement, Start
from dagsim.registry import Registry
from dagsim.systems.cluster.api import ClusterKernel, ClusterPolicy, ClusterView, TaskState
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing

__all__ = ["Rollout"]

_STUCK_S = 1e9


class Rollout:
    """One step of policy iteration (Bertsekas, Tsitsiklis and Wu 1997): each of ``width`` candidates (pairs of ready
    task and GPU type with room, shortest first) and to wait is tried in ``ClusterView.fork()``, which knows estimates
    but neither the truth nor arrivals to come, the ``base`` policy then finishes the jobs that are there, and the
    candidate with the min sum of completion times is carried out; of equals it waits.

    Clairvoyant, not preemptive. Costly by definition: ``width`` + 1 simulations of the jobs in the system per decision.

    Raises:
        ConfigError: ``width`` is less than 1, or ``base`` is preemptive.
    """

    def __init__(self, base: str = "eft-wait", width: int = 3, placement: str | PlacementRule = "best-fit") -> None:
        if width < 1:
            raise ConfigError(f"rollout: width must be 1 or more, got {width!r}")
        self.base = base
        self.width = width
        self._place = placing(placement).place
        _policies().create(base)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        candidates = self._candidates(view)
        if not candidates:
            return
        tried: list[tuple[float, TaskState, Placement]] = []
        for task, placement in candidates:
            tried.append((self._cost(view, (task, placement)), task, placement))
        cost, task, placement = min(tried, key=lambda each: each[0])
        if cost < self._cost(view, None) * (1 - 1e-9) or not view.running:
            yield Start(task, placement)

    def _candidates(self, view: ClusterView) -> list[tuple[TaskState, Placement]]:
        fitting = (task for task in view.ready if view.fits(task))
        pairs = [
            (task.seconds[type_], task, type_)
            for task in nsmallest(self.width, fitting, key=lambda task: (task.best_s, task.order, task.piece))
            for type_ in task.demand.types
            if view.machines.fits_on(task.demand, type_)
        ]
        found = []
        for _, task, type_ in sorted(pairs, key=lambda pair: (pair[0], pair[1].order, pair[2]))[: self.width]:
            placement = self._place(view, task, type_)
            if placement is not None:
                found.append((task, placement))
        return found

    def _cost(self, view: ClusterView, start: tuple[TaskState, Placement] | None) -> float:
        """The sum of completion times of the jobs that are there, if that is done now; to wait is until the next
        end."""
        if start is None and not view.running:
            return inf
        fork = view.fork()
        written = len(fork.schedule.log)
        stuck = _play(fork, _policies().create(self.base), start)  # on nodes that are down: nobody knows for how long
        rows, jobs = fork.schedule.log.since(written), fork.schedule.jobs
        done = [row[1] - jobs[row[2]].arrival_s for row in rows if row[0] == Kind.COMPLETED]
        return stuck * _STUCK_S + sum(done)


def _play(fork: ClusterKernel, base: ClusterPolicy, start: tuple[TaskState, Placement] | None) -> int:
    """Carry out the first decision, then let the base policy finish; returns how many jobs it could not."""
    conversation = fork.decisions()
    view = next(conversation)
    try:
        if start is None:
            now = view.now
            while view.now == now:
                conversation.send(())
        else:
            task, placement = start
            conversation.send((Start(_same(view, task), placement),))
        while True:
            conversation.send(base.decide(view))
    except (StopIteration, Stalled):
        return len(view.jobs)


def _same(view: ClusterView, task: TaskState) -> TaskState:
    """The ready task of a fork that ``task`` is in the original."""
    place = task.order, task.piece
    return next(each for each in view.ready if (each.order, each.piece) == place)


def _policies() -> Registry[ClusterPolicy]:
    from dagsim.systems.cluster.policies import POLICIES

    return POLICIES
