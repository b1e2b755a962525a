"""The default scheduler of Kubernetes: pods by priority, nodes by score, preemption by priority class."""

from __future__ import annotations

from collections.abc import Iterator

from dagsim.model import Decision, Preempt, Start
from dagsim.systems.cluster.api import ClusterView, Run, TaskState
from dagsim.systems.cluster.policies.production.kube_scoring import NodeScorer
from dagsim.systems.cluster.policies.support.victims import make_room

__all__ = ["KubeDefault"]


def _by_priority(task: TaskState) -> float:
    return -task.job.job.priority


class KubeDefault:
    """Pods by ``Job.priority``, then by arrival; who finds no node waits aside and blocks nobody. A pod goes to the
    node with the highest score of NodeResourcesFit: ``scoring=least`` (LeastAllocated, the default, spreads) or
    ``most`` (MostAllocated, packs), with a weight for ``cpu``, ``memory`` and ``gpu`` (Kubernetes,
    resource-bin-packing, 2024). With ``preempt`` the first pod that finds no room stops pods of lower priority, the
    lowest first and of these the youngest.

    A gang starts whole, as with a gang plug-in. Not clairvoyant, preemptive. O(demand classes + nodes with room) per
    pod.
    """

    def __init__(
        self, scoring: str = "least", cpu: float = 1.0, memory: float = 1.0, gpu: float = 0.0, preempt: bool = True
    ) -> None:
        self._scorer = NodeScorer(scoring, cpu, memory, gpu)
        self._preempt = preempt
        self._runs: dict[float, dict[int, None]] = {}
        """Runs by priority."""

    def started(self, run: Run, now: float) -> None:
        """Take in a run."""
        self._runs.setdefault(run.job.job.priority, {})[run.id] = None

    def ended(self, run: Run, now: float) -> None:
        """Let go of a run."""
        alike = self._runs[run.job.job.priority]
        del alike[run.id]
        if not alike:
            del self._runs[run.job.job.priority]

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        if self._preempt:
            view.follow(self)
        queue = view.queue(_by_priority)
        task = queue.first_fit()
        first = queue.first() if self._preempt else None
        if first is not None and first is not task and min(self._runs, default=0.0) < _priority(first):
            chosen = make_room(view, first, self._lower(view, first))
            if chosen:
                yield from map(Preempt, chosen)
                task = first
        placement = None if task is None else self._scorer.place(view, task)
        if task is not None and placement is not None:
            yield Start(task, placement)

    def _lower(self, view: ClusterView, task: TaskState) -> Iterator[Run]:
        """Runs of lower priority that may be stopped, the lowest and youngest first."""
        for priority in sorted(self._runs):
            if priority >= _priority(task):
                return
            for run in sorted(self._runs[priority], reverse=True):
                if view.running[run].started_s < view.now:
                    yield view.running[run]


def _priority(task: TaskState) -> float:
    return task.job.job.priority
