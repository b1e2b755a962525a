"""Quasi-shortest-service first: short by what alike tasks took before."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from dagsim.model import Decision, Start
from dagsim.systems.cluster.api import ClusterView, Queue, Run, TaskState
from dagsim.systems.cluster.policies.orders.static import width
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing

__all__ = ["Qssf"]


class Qssf:
    """The least predicted GPU time first. A task is predicted to take what those of the same tenant, model and GPUs
    took lately (their mean, fading by ``memory`` each), else what everybody's did; before anything has ended all are
    alike, first come, first served. It never looks at estimates: not clairvoyant, not preemptive. O(log n) (Helios, Hu
    et al., SC 2021, section 4.2; its model is gradient boosting on more columns than traces share)."""

    def __init__(self, memory: float = 0.8, placement: str | PlacementRule = "best-fit") -> None:
        self.memory = memory
        self._place = placing(placement).place
        self._known: dict[Hashable, float] = {}
        self._running: set[int] = set()
        self._new: set[int] = set()
        """Runs that started since the last decision."""
        self._ended: list[tuple[int, Hashable, float]] = []
        """Runs that ended since the last decision: id, kind and seconds."""

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self)
        queue = view.index(Qssf, lambda: Queue(self._service, view.machines))
        for _, kind, seconds in sorted(self._ended, key=lambda run: run[0]):
            self._learn(kind, seconds)
            self._learn(None, seconds)
        self._ended.clear()
        self._running |= self._new
        self._new.clear()
        task = queue.first_fit()
        placement = None if task is None else self._place(view, task)
        if task is not None and placement is not None:
            yield Start(task, placement)

    def started(self, run: Run, now: float) -> None:
        """Take in a run."""
        if run.id not in self._running:
            self._new.add(run.id)

    def ended(self, run: Run, now: float) -> None:
        """Note what a run took, to be learnt at the next decision."""
        self._new.discard(run.id)
        if run.id in self._running:
            self._running.remove(run.id)
            self._ended.append((run.id, _kind(run.task), now - run.started_s))

    def _service(self, task: TaskState) -> float:
        """Predicted GPU-seconds, as known when the task became ready."""
        seconds = self._known.get(_kind(task), self._known.get(None, 0.0))
        return seconds * width(task)

    def _learn(self, kind: Hashable, seconds: float) -> None:
        known = self._known.get(kind)
        self._known[kind] = seconds if known is None else self.memory * known + (1 - self.memory) * seconds


def _kind(task: TaskState) -> Hashable:
    return task.job.job.tenant, task.task.model, width(task)
