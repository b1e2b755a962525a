"""Conservative back-filling: everybody who waits has a reservation, and nobody is started who would delay one."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf
from typing import TypeAlias

from dagsim.model import Decision, Start
from dagsim.systems.cluster.api import ClusterState, ClusterView, Queue, Run, TaskState
from dagsim.systems.cluster.policies.orders.static import by_rank, width
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing
from dagsim.systems.cluster.policies.support.profile import Profile

__all__ = ["Conservative"]

_EARLY_S = 1e-6
_Key: TypeAlias = tuple[int, int]
"""Order of a task, and which piece of it."""


class Conservative:
    """Every ready task gets the earliest start among the reservations there are. It is on the type where it would
    finish first, and the task starts then. When a run ends before it was expected to, or a node goes or comes, all
    reservations are made anew in the order of arrival, so that everybody moves up (compression).

    Reservations count the GPUs of a type, whatever their nodes; tasks that ask for none start where they fit.
    Clairvoyant, not preemptive. Costly by definition: O(reservations) per task that becomes ready, its square when they
    are made anew (Mu'alem and Feitelson 2001).
    """

    def __init__(self, placement: str | PlacementRule = "best-fit") -> None:
        self._place = placing(placement).place
        self._profiles: list[Profile] = []
        self._starts: dict[_Key, tuple[float, int]] = {}
        """Reservations of the tasks that wait: when and on which type."""
        self._expected: dict[int, float] = {}
        """Expected ends of the runs that reservations were made around."""
        self._new: dict[int, float] = {}
        """Those of runs that started since: they count from the next reserved start on."""
        self._early = False
        """A run has ended before it was expected to."""
        self._up = -1

    def started(self, run: Run, now: float) -> None:
        """Take in a run."""
        if run.id not in self._expected:
            self._new[run.id] = run.estimated_end_s(now)

    def ended(self, run: Run, now: float) -> None:
        """Note if a run ended early."""
        self._new.pop(run.id, None)
        if self._expected.pop(run.id, now) > now + _EARLY_S:
            self._early = True

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self)
        waiting = view.index(Conservative, lambda: _Waiting(view.machines))
        self._look(view, waiting)
        for key in sorted(waiting.tasks.keys() - self._starts.keys()):
            self._reserve(view, key, waiting.tasks[key])
        yield from self._start_due(view, waiting)
        task = waiting.without_gpus.first_fit()
        placement = None if task is None else self._place(view, task)
        if task is not None and placement is not None:
            yield Start(task, placement)
        elif not view.running and self._starts:
            self._renew(view, waiting)
            yield from self._start_due(view, waiting)

    def _start_due(self, view: ClusterView, waiting: _Waiting) -> Iterator[Decision]:
        due = [key for key, (start_s, _) in self._starts.items() if start_s <= view.now + _EARLY_S]
        for key in sorted(due):
            task, (_, type_) = waiting.tasks[key], self._starts[key]
            placement = self._place(view, task, type_)
            if placement is not None:
                yield Start(task, placement)
                self._expected |= self._new
                self._new.clear()
                if not task.waiting:
                    del self._starts[key], waiting.tasks[key]

    def _look(self, view: ClusterView, waiting: _Waiting) -> None:
        """Make everything anew if something has gone otherwise than expected."""
        up = sum(machine.up for machine in view.machines.list)
        late = any(end_s < view.now - _EARLY_S for end_s in self._expected.values())
        if self._early or late or up != self._up or not self._profiles:
            self._up, self._early = up, False
            self._renew(view, waiting)
        for profile in self._profiles:
            profile.forget(view.now)

    def _renew(self, view: ClusterView, waiting: _Waiting) -> None:
        now, machines = view.now, view.machines
        self._profiles = [Profile(now, machines.idle_gpus(type_)) for type_ in range(len(machines.types))]
        self._expected, self._new = {run.id: run.estimated_end_s(now) for run in view.running.values()}, {}
        for run in view.running.values():
            self._profiles[run.type].release(self._expected[run.id], run.gpus)
        self._starts = {}
        for key in sorted(waiting.tasks):
            self._reserve(view, key, waiting.tasks[key])

    def _reserve(self, view: ClusterView, key: _Key, task: TaskState) -> None:
        best = (inf, inf, -1, 0.0, 0.0)
        asked = width(task) * (1 if task.demand.gang else task.waiting)
        for type_ in task.demand.types:
            capacity = sum(machine.gpus for machine in view.machines.list if machine.type == type_ and machine.up)
            if not capacity or view.machines.capacity(task.demand, type_) < (task.demand.gang or 1):
                continue
            gpus = min(asked, capacity)
            seconds = task.seconds[type_] * ceil(asked / capacity)
            start_s = self._profiles[type_].earliest(gpus, seconds)
            best = min(best, (start_s + seconds, start_s, type_, gpus, seconds))
        end_s, start_s, type_, gpus, _ = best
        self._starts[key] = start_s, type_
        if end_s < inf:
            self._profiles[type_].take(start_s, end_s, gpus)


class _Waiting:
    """The ready tasks by arrival, and those that ask for no GPU."""

    def __init__(self, machines: ClusterState) -> None:
        self.tasks: dict[_Key, TaskState] = {}
        self.without_gpus = Queue(by_rank, machines)

    def push(self, task: TaskState) -> None:
        if task.demand.demand.gpus:
            self.tasks[task.order, task.piece] = task
        else:
            self.without_gpus.push(task)
