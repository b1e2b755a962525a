"""Beliefs about run times. They are based on estimates, on the service that tasks have had, and on
tasks that have ended."""

from __future__ import annotations

from collections.abc import Hashable
from math import exp, inf, log

from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster.api import ClusterView, DemandClass, ExpectedFree, Run, TaskState
from dagsim.systems.cluster.policies.orders import width

_FIRST_S = 600.0
"""The expected seconds of a task before any task has ended; the weight is that of one task."""
_SHRINKAGE = 2.0
"""Number of similar tasks at which their mean and the mean over all tasks have equal weights."""
_HIDDEN_S = 1.0
"""The estimate of every task if durations are hidden (``Estimates``)."""


class Belief(ExpectedFree):
    """The remaining times of tasks and runs, and the ends of runs, as a scheduler would expect
    them.

    If durations are hidden, a task's expected time on its fastest type is a geometric mean over
    tasks that have ended. Tasks with the same tenant, model and width have greater weights. On
    other types, the expected time is inversely proportional to the peak rate of the GPU. A task
    that has already run for longer is expected to take the same time again. If durations are not
    hidden, the estimates are used. An overdue run is expected to need as much additional time as it
    is already overdue.

    An observation costs O(running log running).
    """

    def __init__(self, view: ClusterView) -> None:
        super().__init__(view)
        rates = [1.0 if gpu is None else gpu.fp32_tflops for gpu in view.gpu_types]
        self._nominal = [max(rates) / rate for rate in rates]
        """Seconds on each type over those on the type with the highest peak rate."""
        self._rates: dict[DemandClass, list[float]] = {}
        """Results of ``_slower`` where durations are hidden."""
        self._runs: dict[int, Run] = {}
        self._had: dict[int, float] = {}
        """Seconds of service of each unfinished task on its fastest type, by order."""
        self._past: dict[Hashable, tuple[int, float]] = {}
        """Number and sum of the logarithms of the seconds of ended tasks, of each kind and of all (None)."""
        self._ended: list[tuple[Run, float]] = []
        """Runs that have ended since the last observation, with their seconds on the fastest type."""
        self._left: dict[int, float] = {}
        """Expected remaining seconds of the runs at the last observation."""
        self._typical: dict[Hashable, float] = {}
        """Results of ``typical_s`` since a task last ended, by kind."""

    def started(self, run: Run, now: float) -> None:
        """Add a run."""
        self._runs[run.id] = run

    def ended(self, run: Run, now: float) -> None:
        """Remove a run. ``refresh`` determines later whether the run's task is done."""
        if self._runs.pop(run.id, None) is not None:
            self._ended.append((run, self._served_by(run, now)))

    def rated(self, run: Run, now: float) -> None:
        """Do nothing, because each observation recomputes all ends."""

    def push(self, task: TaskState) -> None:
        """Add the service time of a stopped run to that of its task, which is ready again."""
        stopped = [served_s for run, served_s in self._ended if run.task.order == task.order]
        if task.piece and stopped:
            self._had[task.order] = self._had.get(task.order, 0.0) + max(stopped)
            self._ended = [entry for entry in self._ended if entry[0].task.order != task.order]

    def refresh(self) -> None:
        """Update the means with the tasks that have ended, and compute the expected ends of all
        runs."""
        if self._ended:
            self._typical.clear()
        for run, served_s in self._ended:
            task = run.task
            total_s = self._had.get(task.order, 0.0) + served_s
            if not task.unfinished:
                self._had.pop(task.order, None)
            for kind in (_kind(task), None):
                count, logs = self._past.get(kind, (0, 0.0))
                self._past[kind] = count + 1, logs + log(max(total_s, 1e-3))
        self._ended.clear()
        now = self._view.now
        self._left = {run.id: self._left_now_s(run) for run in self._runs.values()}
        self._ends = [[] for _ in self._nominal]
        for run in self._runs.values():
            self._ends[run.type].append((now + self._left[run.id], run.id, run.gpus))
        for ends in self._ends:
            ends.sort()

    def seconds(self, task: TaskState) -> tuple[float, ...]:
        """Return how many more seconds an instance is expected to run on each type (``inf`` where
        it cannot run)."""
        if not is_hidden(task):
            return task.seconds
        base_s = max(self.typical_s(task), self._had.get(task.order, 0.0))
        slower = self._slower(task)
        return tuple([inf if s == inf else base_s * slower[type_] for type_, s in enumerate(task.seconds)])

    def left_s(self, run: Run) -> float:
        """Return how many more seconds a run was expected to take at the last observation."""
        left_s = self._left.get(run.id)
        return self._left_now_s(run) if left_s is None else left_s

    def _left_now_s(self, run: Run) -> float:
        now = self._view.now
        if not is_hidden(run.task):
            return max(run.work_left_s(now), run.done(now) - run.estimate_s)
        return max(self.typical_s(run.task), self.served_s(run)) * self._slower(run.task)[run.type]

    def served_s(self, of: Run | TaskState) -> float:
        """Return how much service the task, or the task of the run, ``of`` has received, in seconds
        on its fastest type.
        """
        if isinstance(of, TaskState):
            return self._had.get(of.order, 0.0)
        return self._had.get(of.task.order, 0.0) + self._served_by(of, self._view.now)

    def job_served_gpu_s(self, task: TaskState) -> float:
        """Return the GPU-seconds that the runs of the task's job have held."""
        job, now = task.job, self._view.now
        current = [run.gpus * (now - run.started_s) for run in self._runs.values() if run.task.job is job]
        return job.service_gpu_s + ordered_sum(current)

    def typical_s(self, task: TaskState) -> float:
        """Return how many seconds a task of this kind is expected to take on its fastest type."""
        kind = _kind(task)
        if (known_s := self._typical.get(kind)) is not None:
            return known_s
        count, logs = self._past.get(None, (0, 0.0))
        mean = (log(_FIRST_S) + logs) / (1 + count)
        of_kind, logs = self._past.get(kind, (0, 0.0))
        return self._typical.setdefault(kind, exp((_SHRINKAGE * mean + logs) / (_SHRINKAGE + of_kind)))

    def alike(self, task: TaskState) -> int:
        """Return the number of tasks of the same kind that have ended."""
        return self._past.get(_kind(task), (0, 0.0))[0]

    def _served_by(self, run: Run, now: float) -> float:
        return run.done(now) / self._slower(run.task)[run.type]

    def _slower(self, task: TaskState) -> list[float]:
        """Return how many times as long a task takes on each type as on its fastest type. If the
        task's duration is hidden, the ratios follow from the peak rates of the GPUs."""
        if is_hidden(task):
            known = self._rates.get(task.demand)
            if known is None:
                fastest = min([self._nominal[type_] for type_ in task.demand.types])
                known = self._rates[task.demand] = [slower / fastest for slower in self._nominal]
            return known
        best_s = task.best_s or 1e-9
        return [max(s, 1e-9) / best_s for s in task.seconds]


def is_hidden(task: TaskState) -> bool:
    """Return True if policies know nothing about the duration of a task."""
    return task.job.tasks[task.index].best_s == _HIDDEN_S and not task.job.has_limits


def _kind(task: TaskState) -> Hashable:
    return task.job.job.tenant, task.task.model, width(task)
