"""The critical paths of all jobs in a simulation of the GPU cluster, kept up to date while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from math import inf
from typing import Any

from dagsim.model import Kind
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.log import Record
from dagsim.systems.cluster.kernel import ClusterKernel
from dagsim.systems.cluster.state import JobState, Run, TaskState


class CriticalPaths:
    """The longest path from now to the end of each job, with true durations. A running task counts
    as the time until it ends, and any other task as its time on its fastest type.

    The path of a run is its remaining time plus the path after it. Ended runs can be ignored,
    because their paths continue in a child that is ready, or because another parent of this child
    has a longer path. A job's path is therefore the maximum of two values: (latest end of a run
    plus the path after it) - now, and the longest rank among its ready tasks.

    The kernel reports ready tasks and starts. Before the paths are read, ``take`` must have
    received every new row of the log. ``left_s`` takes O(jobs + new rows + new runs + new ready
    tasks).
    """

    def __init__(self, simulation: ClusterKernel) -> None:
        self._simulation = simulation
        self._paths: dict[int, _Path] = {}
        """Paths by job, in order of admission."""
        self._pushed: list[TaskState] = []
        self._started: list[Run] = []
        self._stopped = False
        """True if a run was stopped since the last call of ``left_s``."""
        self.arrived_s = 0.0
        """Sum of the critical paths of all admitted jobs at their arrival, in seconds. Jobs that no
        GPU type can run are left out, because their paths are infinite."""
        self.push = self._pushed.append
        """Record a task that became ready."""
        simulation.frontier.build(self, self, simulation.running.values(), simulation.now)

    def __deepcopy__(self, memo: dict[int, Any]) -> CriticalPaths:
        """Return the same paths for a fork of the simulation, which ``memo`` contains."""
        twin = CriticalPaths(memo[id(self._simulation)])
        tasks = {(task.order, task.piece): task for task in twin._pushed}
        twin._paths = {number: path.fork(tasks) for number, path in self._paths.items()}
        twin._pushed[:] = [tasks[task.order, task.piece] for task in self._pushed]
        twin._started = [twin._simulation.running[run.id] for run in self._started]
        twin._stopped, twin.arrived_s = self._stopped, self.arrived_s
        return twin

    def started(self, run: Run, now: float) -> None:
        """Record a run that has just started."""
        self._started.append(run)

    def take(self, row: Record) -> None:
        """Process a row of the log if it reports an arrival, a departure or a stopped run."""
        number = row.job
        if row.kind in (Kind.ARRIVED, Kind.ADMITTED):
            job = self._simulation.frontier.jobs.get(number)
            if job is not None:
                self._paths[number] = _Path(job)
            if row.kind == Kind.ARRIVED and (ideal_s := self._simulation.schedule.jobs[number].ideal_s) < inf:
                self.arrived_s += ideal_s
        elif row.kind == Kind.COMPLETED:
            self._paths.pop(number, None)
        elif row.kind == Kind.REJECTED:
            self._paths.pop(number, None)
            if (ideal_s := self._simulation.schedule.jobs[number].ideal_s) < inf:
                self.arrived_s -= ideal_s
        elif row.kind in (Kind.PREEMPTED, Kind.FAILED):
            self._stopped = True

    def left_s(self) -> float:
        """Return the sum of the longest paths of all jobs in the system, in seconds."""
        self._look()
        now = self._simulation.now
        return ordered_sum(
            [left if (left := path.until_s - now) > path.ready_s else path.ready_s for path in self._paths.values()]
        )

    def _look(self) -> None:
        """Update the paths with the tasks that have become ready and the runs that have started
        since the last call.
        """
        paths, running = self._paths, self._simulation.running
        for task in self._pushed:
            path = paths.get(task.job.number)
            if path is not None and task.waiting:
                path.wait(task)
        self._pushed.clear()
        for run in self._started:
            path = paths.get(run.task.job.number)
            if path is not None and not run.task.waiting:
                path.go(run.task)
        if self._stopped:
            for path in paths.values():
                path.until_s = 0.0
        now = self._simulation.now
        for run in running.values() if self._stopped else self._started:
            if run.id in running:
                paths[run.task.job.number].run(run, now)
        self._started.clear()
        self._stopped = False


class _Path:
    """The longest path of one job. ``until_s`` is the time at which the longest path through the
    job's runs ends. ``ready_s`` is the length of the longest path through its ready tasks."""

    __slots__ = ("_ranks", "_waiting", "ready_s", "until_s")

    def __init__(self, job: JobState) -> None:
        best = [min(task.true_seconds) for task in job.tasks]
        self._ranks = best if len(best) == 1 else job.job.graph.upward_rank(best)
        """Length of the true path from the start of each task to the end of the job, in seconds."""
        self._waiting: dict[TaskState, float] = {}
        """Lengths of the paths from ready tasks, in seconds."""
        self.ready_s = self.until_s = 0.0

    def fork(self, tasks: Mapping[tuple[int, int], TaskState]) -> _Path:
        """Return this path for a fork whose waiting tasks are ``tasks``, keyed by sort key and
        piece number.
        """
        twin = copy(self)
        twin._waiting = {tasks.get((task.order, task.piece), task): s for task, s in self._waiting.items()}
        return twin

    def wait(self, task: TaskState) -> None:
        """Add a task that has become ready."""
        rank = self._ranks[task.index]
        if task.left != 1.0:
            rank -= (1.0 - task.left) * min(task.true_seconds)
        self._waiting[task] = rank
        if rank > self.ready_s:
            self.ready_s = rank

    def go(self, task: TaskState) -> None:
        """Remove a task because all of its instances have started."""
        self._waiting.pop(task, None)
        self.ready_s = max(self._waiting.values(), default=0.0)

    def run(self, run: Run, now: float) -> None:
        """Extend the path to the end of a run in progress, plus the path after the run."""
        task = run.task
        begun = run.computing_s if run.computing_s is not None else max(run.started_s + run.setup_s, now)
        ends_s = begun + run.true_seconds if run.progress is None else run.scheduled_end_s
        until_s = ends_s + (self._ranks[task.index] - min(task.true_seconds))
        if until_s > self.until_s:
            self.until_s = until_s
