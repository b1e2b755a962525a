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
        self._ranks: dict[int, list[float]] = {}
        """Per job the true path from the start of each task to the end of the job."""
        self._waiting: dict[int, dict[TaskState, float]] = {}
        """Per job its ready tasks and their paths."""
        self._ready: dict[int, float] = {}
        """Per job the longest of those, in the order in which jobs were let in."""
        self._until: dict[int, float] = {}
        """Per job, in the same order, the latest end of a path through a run."""
        self._pushed: list[TaskState] = []
        self._started: list[Run] = []
        self._stopped = False
        """A run was stopped since the last question."""
        self.arrived_s = 0.0
        """The critical paths of all jobs that were let in, as they arrived."""
        simulation.frontier.build(self, self, simulation.running.values(), simulation.now)

    def push(self, task: TaskState) -> None:
        """Take in a task that became ready."""
        self._pushed.append(task)

    def started(self, run: Run, now: float) -> None:
        """Take in a run that has just started."""
        self._started.append(run)

    def take(self, row: Row) -> None:
        """Take in what has arrived, left and stopped."""
        kind, number = row[0], row[2]
        if kind in (_ARRIVED, _ADMITTED):
            job = self._simulation.frontier.jobs.get(number)
            if job is not None:
                self._enter(job)
            if kind == _ARRIVED:
                self.arrived_s += self._simulation.schedule.jobs[number].ideal_s
        elif kind == _COMPLETED:
            self._leave(number)
        elif kind == _REJECTED:
            self._leave(number)
            self.arrived_s -= self._simulation.schedule.jobs[number].ideal_s
        elif kind in _STOPS:
            self._stopped = True

    def left_s(self) -> float:
        """The sum over the jobs in the system, in seconds."""
        self._look()
        now = self._simulation.now
        return sum(
            [
                until - now if until - now > ready else ready
                for until, ready in zip(self._until.values(), self._ready.values(), strict=True)
            ]
        )

    def _look(self) -> None:
        """Take in the ready tasks and runs since the last question."""
        ranks, ready = self._ranks, self._ready
        for task in self._pushed:
            number = task.job.number
            if task.waiting and number in ranks:
                rank = ranks[number][task.index]
                if task.left != 1.0:
                    rank -= (1.0 - task.left) * min(task.truth)
                self._waiting[number][task] = rank
                if rank > ready[number]:
                    ready[number] = rank
        self._pushed.clear()
        for run in self._started:
            task, number = run.task, run.task.job.number
            if not task.waiting and number in ranks:
                waiting = self._waiting[number]
                waiting.pop(task, None)
                ready[number] = max(waiting.values(), default=0.0)
        running, until = self._simulation.running, self._until
        if self._stopped:
            until.update(dict.fromkeys(until, 0.0))
        for run in running.values() if self._stopped else self._started:
            if run.id in running:
                task, number = run.task, run.task.job.number
                behind_s = ranks[number][task.index] - min(task.truth)
                begun = run.computing_s
                if begun is None:
                    begun = max(run.started_s + run.setup_s, self._simulation.now)
                end = begun + run.seconds + behind_s
                if end > until[number]:
                    until[number] = end
        self._started.clear()
        self._stopped = False

    def _enter(self, job: JobState) -> None:
        best = [min(task.truth) for task in job.tasks]
        number = job.number
        self._ranks[number] = best if len(best) == 1 else job.job.graph.upward_rank(best)
        self._waiting[number] = {}
        self._ready[number] = self._until[number] = 0.0

    def _leave(self, number: int) -> None:
        for known in (self._ranks, self._waiting, self._ready, self._until):
            known.pop(number, None)
