"""The critical paths of the jobs in the system: seconds that no schedule can save any more."""

from __future__ import annotations

from itertools import repeat
from operator import sub

from dagsim.model import Kind
from dagsim.systems.cluster.kernel import ClusterKernel
from dagsim.systems.cluster.state import JobState

__all__ = ["CriticalPaths"]

_ARRIVED, _REJECTED, _COMPLETED = int(Kind.ARRIVED), int(Kind.REJECTED), int(Kind.COMPLETED)
_STOPS = (int(Kind.PREEMPTED), int(Kind.FAILED))


class CriticalPaths:
    """The longest path of each job from now to its end, by true durations: what runs to its end, everything else on its
    fastest type.

    A run's path is as long as the run has left plus the path behind it. A run that has ended need not be looked for:
    its path goes on in a child that is ready, or another parent of the child has the longer one. So a job's path is the
    larger of (latest end of a run plus what follows) - now and the longest rank of its ready tasks. Cost per question:
    O(ready tasks + jobs + new runs).
    """

    def __init__(self, simulation: ClusterKernel) -> None:
        self._simulation = simulation
        self._until: dict[int, float] = {}
        """Per job the latest end of a path through a run."""
        self._ranks: dict[int, list[float]] = {}
        """Per job the true path from the start of each task to the end of the job."""
        self._seen = -1
        self._read = 0
        self.arrived_s = 0.0
        """The critical paths of all jobs that were let in, as they arrived."""

    def left_s(self) -> float:
        """The sum over the jobs in the system, in seconds."""
        frontier, ranks = self._simulation.frontier, self._ranks
        jobs = frontier.jobs
        self._take(jobs)
        ready = dict.fromkeys(jobs, 0.0)
        for task in frontier.ready:
            number = task.job.number
            rank = ranks[number][task.index]
            if task.left != 1.0:
                rank -= (1.0 - task.left) * min(task.truth)
            if rank > ready[number]:
                ready[number] = rank
        running = map(sub, map(self._until.get, jobs, repeat(0.0)), repeat(self._simulation.now))
        left_s: float = sum(map(max, running, ready.values()))
        return left_s

    def _take(self, jobs: dict[int, JobState]) -> None:
        """Take in what has arrived, left, started and stopped since the last look."""
        simulation = self._simulation
        rows = simulation.schedule.log.since(self._read)
        self._read += len(rows)
        stopped = False
        for row in rows:
            if row[0] == _ARRIVED:
                number = row[2]
                if number in jobs:
                    self._enter(jobs[number])
                else:
                    self.arrived_s += simulation.schedule.jobs[number].ideal_s
            elif row[0] == _REJECTED:
                self.arrived_s -= simulation.schedule.jobs[row[2]].ideal_s
            elif row[0] == _COMPLETED:
                self._until.pop(row[2], None)
                self._ranks.pop(row[2], None)
            elif row[0] in _STOPS:
                stopped = True
        if stopped:
            self._until.clear()
            self._seen = -1
        running = simulation.running
        for id_ in reversed(running):
            if id_ <= self._seen:
                break
            run = running[id_]
            number, task = run.job.number, run.task
            behind_s = self._ranks[number][task.index] - min(task.truth)
            begun = run.computing_s if run.computing_s is not None else max(run.started_s + run.setup_s, simulation.now)
            until = begun + run.seconds + behind_s
            if until > self._until.get(number, 0.0):
                self._until[number] = until
        self._seen = next(reversed(running), self._seen)

    def _enter(self, job: JobState) -> None:
        best = [min(task.truth) for task in job.tasks]
        ranks = best if len(best) == 1 else list(job.job.graph.upward_rank(best))
        self._ranks[job.number] = ranks
        self.arrived_s += max(ranks)
