"""Quasi-shortest-service first: short by what alike tasks took before."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from dagsim.model import Decision, Start
from dagsim.systems.cluster.policies.orders.static import width
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing
from dagsim.systems.cluster.state import Queue, TaskState
from dagsim.systems.cluster.view import ClusterView

__all__ = ["Qssf"]


class Qssf:
    """The least predicted GPU time first. A task is predicted to take what those of the same tenant, model and GPUs
    took lately (their mean, fading by ``memory`` each), else what everybody's did; before anything has ended all are
    alike, first come, first served. It never looks at estimates: not clairvoyant, not preemptive. O(log n), and
    O(running) when something has ended (Helios, Hu et al., SC 2021, section 4.2; its model is gradient boosting on more
    columns than traces share)."""

    def __init__(self, memory: float = 0.8, placement: str | PlacementRule = "best-fit") -> None:
        self.memory = memory
        self._place = placing(placement).place
        self._known: dict[Hashable, float] = {}
        self._runs: dict[int, tuple[Hashable, float]] = {}
        """What is under way: its kind and when it started."""
        self._seen = -1
        self._released = -1

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        queue = view.index(self, lambda: Queue(self._service, view.machines))
        self._look(view)
        task = queue.first_fit()
        placement = None if task is None else self._place(view, task)
        if task is not None and placement is not None:
            yield Start(task, placement)

    def _service(self, task: TaskState) -> float:
        """Predicted GPU-seconds, as known when the task became ready."""
        seconds = self._known.get(_kind(task), self._known.get(None, 0.0))
        return seconds * width(task)

    def _look(self, view: ClusterView) -> None:
        for run in view.runs_after(self._seen):
            self._runs[run.id] = _kind(run.task), run.started_s
        self._seen = max([self._seen, *self._runs])
        if self._released != view.machines.released:
            self._released = view.machines.released
            for id_ in sorted(self._runs.keys() - view.running.keys()):
                kind, started_s = self._runs.pop(id_)
                self._learn(kind, view.now - started_s)
                self._learn(None, view.now - started_s)

    def _learn(self, kind: Hashable, seconds: float) -> None:
        known = self._known.get(kind)
        self._known[kind] = seconds if known is None else self.memory * known + (1 - self.memory) * seconds


def _kind(task: TaskState) -> Hashable:
    return task.job.job.tenant, task.task.model, width(task)
