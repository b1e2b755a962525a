"""The critical paths of the jobs in the system: seconds that no schedule can save any more."""

from __future__ import annotations

from dagsim.model import Kind
from dagsim.model.log import Row
from dagsim.systems.cluster.kernel import ClusterKernel
from dagsim.systems.cluster.run import Run
from dagsim.systems.cluster.state import JobState, TaskState

__all__ = ["CriticalPaths"]

_ARRIVED, _ADMITTED = int(Kind.ARRIVED), int(Kind.ADMITTED)
_REJECTED, _COMPLETED = int(Kind.REJECTED), int(Kind.COMPLETED)
_STOPS = (int(Kind.PREEMPTED), int(Kind.FAILED))


class CriticalPaths:
    """The longest path of each job from now to its end, by true durations: what runs to its end, everything else on its
    fastest type.

    A run's path is as long as the run has left plus the path behind it. A run that has ended need not be looked for:
    its path goes on in a child that is ready, or another parent of the child has the longer one. So a job's path is the
    larger of (latest end of a run plus what follows) - now and the longest rank of its ready tasks.

    The kernel tells it of ready tasks and starts; ``take`` wants every new row of the log before the paths are asked
    for. Cost per question: O(jobs + new rows, runs and ready tasks).
    """

    def __init__(self, simulation: ClusterKernel) -> None:
        self._simulation = simulation
        self._paths: dict[int, _Path] = {}
        """By job, in the order in which jobs were let in."""
        self._pushed: list[TaskState] = []
        self._started: list[Run] = []
        self._stopped = False
        """A run was stopped since the last question."""
        self.arrived_s = 0.0
        """The critical paths of all jobs that were let in, as they arrived."""
        self.push = self._pushed.append
        """Take in a task that became ready."""
        simulation.frontier.build(self, self, simulation.running.values(), simulation.now)

    def started(self, run: Run, now: float) -> None:
        """Take in a run that has just started."""
        self._started.append(run)

    def take(self, row: Row) -> None:
        """Take in what has arrived, left and stopped."""
        kind, number = row[0], row[2]
        if kind in (_ARRIVED, _ADMITTED):
            job = self._simulation.frontier.jobs.get(number)
            if job is not None:
                self._paths[number] = _Path(job)
            if kind == _ARRIVED:
                self.arrived_s += self._simulation.schedule.jobs[number].ideal_s
        elif kind == _COMPLETED:
            self._paths.pop(number, None)
        elif kind == _REJECTED:
            self._paths.pop(number, None)
            self.arrived_s -= self._simulation.schedule.jobs[number].ideal_s
        elif kind in _STOPS:
            self._stopped = True

    def left_s(self) -> float:
        """The sum over the jobs in the system, in seconds."""
        self._look()
        now = self._simulation.now
        return sum(
            [left if (left := path.until_s - now) > path.ready_s else path.ready_s for path in self._paths.values()]
        )

    def _look(self) -> None:
        """Take in the ready tasks and runs since the last question."""
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
    """The longest path of one job: through its runs until ``until_s``, through its ready tasks of ``ready_s``."""

    __slots__ = ("_ranks", "_waiting", "ready_s", "until_s")

    def __init__(self, job: JobState) -> None:
        best = [min(task._truth) for task in job.tasks]
        self._ranks = best if len(best) == 1 else job.job.graph.upward_rank(best)
        """The true path from the start of each task to the end of the job."""
        self._waiting: dict[TaskState, float] = {}
        """The paths of ready tasks."""
        self.ready_s = self.until_s = 0.0

    def wait(self, task: TaskState) -> None:
        """The task became ready."""
        rank = self._ranks[task.index]
        if task.left != 1.0:
            rank -= (1.0 - task.left) * min(task._truth)
        self._waiting[task] = rank
        if rank > self.ready_s:
            self.ready_s = rank

    def go(self, task: TaskState) -> None:
        """The task has been started for good."""
        self._waiting.pop(task, None)
        self.ready_s = max(self._waiting.values(), default=0.0)

    def run(self, run: Run, now: float) -> None:
        """The run is under way."""
        task = run.task
        begun = run.computing_s if run.computing_s is not None else max(run.started_s + run.setup_s, now)
        until_s = begun + run._seconds + (self._ranks[task.index] - min(task._truth))
        if until_s > self.until_s:
            self.until_s = until_s
