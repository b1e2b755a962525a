"""Policies that use records of the past. One replays the schedule in a log, and the other one
orders tasks by the durations of similar earlier tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush

from dagsim.errors import require
from dagsim.model import Decision, Placement, Start, Wait
from dagsim.systems.cluster.api import ClusterView, Queue, Run, TaskState, nodes_by_name, placement_on
from dagsim.systems.cluster.policies.orders import width
from dagsim.systems.cluster.policies.placement import PlacementRule, placing, start_of
from dagsim.text import count_of


class AsObserved:
    """Start every job at the time and place recorded in the trace. The time is
    ``Job.observed_start_s``. If the cluster has free nodes with the recorded names, these are used.
    Otherwise, ``placement`` chooses the nodes. Tasks without a recorded start begin immediately.
    Tasks that do not fit at their recorded time start later, oldest first. The policy needs no
    estimates. The cost is O(log tasks) per decision.
    """

    def __init__(self, placement: str | PlacementRule = "best-fit") -> None:
        self._place = placing(placement).place
        self._nodes: dict[str, list[int]] = {}
        self._without_start: set[int] = set()
        """Numbers of the jobs without a recorded start."""

    @property
    def notes(self) -> tuple[str, ...]:
        """A warning about jobs that have no recorded start."""
        if not self._without_start:
            return ()
        jobs = count_of(len(self._without_start), "job")
        return (f"the log has no start time for {jobs}, so each of these started as soon as it could",)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        due = view.index(self, lambda: DueTasks(_due_s, Queue(_due_s, view.machines)))
        while (task := due.next(view.now)) is not None:
            # Some of the task's instances may have to wait, so it is put in the queue, which drops
            # a task when all its instances have started.
            due.late.push(task)
            if task.job.job.observed_start_s is None:
                self._without_start.add(task.job.number)
            placement = self._observed(view, task) or self._place(view, task)
            if placement is not None:
                yield Start(task, placement)
                return
        late = start_of(self._place, view, due.late.first_fit())
        yield from late
        if due.later and not late:
            yield Wait(due.later[0][0])

    def _observed(self, view: ClusterView, task: TaskState) -> Placement | None:
        """Return a placement on the nodes named in the log, or ``None`` if they do not exist or are
        full.
        """
        job = task.job.job
        if not job.observed_nodes:
            return None
        if not self._nodes:
            self._nodes = nodes_by_name(node.name for node in view.cluster.nodes)
        return placement_on(job, self._nodes, view.machines, task.demand, task.waiting)


class DueTasks:
    """Ready tasks sorted by the time at which they are due, and tasks that were due but did not
    fit.
    """

    def __init__(self, due_s: Callable[[TaskState], float], late: Queue) -> None:
        self._due_s = due_s
        self.later: list[tuple[float, int, int, TaskState]] = []
        self.late = late

    def push(self, task: TaskState) -> None:
        heappush(self.later, (self._due_s(task), task.order, task.piece, task))

    def next(self, now: float) -> TaskState | None:
        """Return the next task that is due by ``now`` and is still waiting, or None if there is none."""
        while self.later and (self.later[0][0] <= now or not self.later[0][3].waiting):
            task = heappop(self.later)[3]
            if task.waiting:
                return task
        return None


def _due_s(task: TaskState) -> float:
    observed_s = task.job.job.observed_start_s
    return task.ready_s if observed_s is None else max(task.ready_s, observed_s)


class Qssf:
    """The task with the least predicted GPU time comes first (Helios, Hu et al., SC 2021, section
    4.2). Helios itself predicts with gradient boosting, on columns that some traces lack. The
    prediction is the mean over past tasks with the same tenant, model and number of GPUs. If there
    are none, it is the mean over all past tasks. Recent tasks have a higher weight: each new
    duration multiplies the weights of the older durations by ``memory``. Until the first task has
    ended, tasks start in order of arrival. The policy needs no estimates and never preempts. The
    cost is O(log tasks) per decision.
    """

    remembers = "how long earlier tasks took"

    def __init__(self, memory: float = 0.8, placement: str | PlacementRule = "best-fit") -> None:
        require(0 <= memory <= 1, "qssf: memory must be from 0 to 1", memory)
        self.memory = memory
        self._place = placing(placement).place
        self._known: dict[Hashable, float] = {}
        self._running: set[int] = set()
        self._ended: list[tuple[float, int, Hashable, float]] = []
        """Runs from which nothing has been learned yet: end, id, kind and seconds."""
        self._predicted: dict[tuple[int, int], float] = {}
        """Predictions for waiting tasks, by order and piece."""

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self)
        queue = view.index(Qssf, lambda: Queue(self._service, view.machines))
        yield from start_of(self._place, view, queue.first_fit())

    def push(self, task: TaskState) -> None:
        """Predict the GPU-seconds of a task that became ready, based on the runs that had ended
        before. Runs that end at the same time do not count, even if the policy has been called
        since then, because a log does not record such calls.
        """
        key = task.order, task.piece
        if key not in self._predicted:
            self._learn_before(task.ready_s)
            seconds = self._known.get(_kind(task), self._known.get(None, 0.0))
            self._predicted[key] = seconds * width(task)

    def started(self, run: Run, now: float) -> None:
        """Add a run that has started."""
        self._running.add(run.id)
        if not run.task.waiting:
            self._predicted.pop((run.task.order, run.task.piece), None)

    def ended(self, run: Run, now: float) -> None:
        """Record the duration of a run that had work, so that the next prediction can use it."""
        if run.id in self._running:
            self._running.remove(run.id)
            if now > run.started_s:
                self._ended.append((now, run.id, _kind(run.task), now - run.started_s))

    def _service(self, task: TaskState) -> float:
        return self._predicted[task.order, task.piece]

    def _learn_before(self, time_s: float) -> None:
        runs = [run for run in self._ended if run[0] < time_s]
        for _, _, kind, seconds in sorted(runs, key=lambda run: run[:2]):
            self._learn(kind, seconds)
            self._learn(None, seconds)
        if runs:
            self._ended = [run for run in self._ended if run[0] >= time_s]

    def _learn(self, kind: Hashable, seconds: float) -> None:
        mean_s = self._known.get(kind)
        self._known[kind] = seconds if mean_s is None else self.memory * mean_s + (1 - self.memory) * seconds


def _kind(task: TaskState) -> Hashable:
    return task.job.job.tenant, task.task.model, width(task)
