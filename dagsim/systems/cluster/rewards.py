"""Rewards of the GPU cluster: what a schedule costs, as folds over its log that can be asked at any instant.

Each term is a running total that only grows by what has happened.
"""

from __future__ import annotations

from math import inf

from dagsim.metrics.energy import DEFAULT_POWER, Watts
from dagsim.model import Kind
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.log import Row, Schedule
from dagsim.registry import Entry, Registry
from dagsim.systems.cluster.kernel import ClusterKernel
from dagsim.systems.cluster.state import JobState, Run, TaskState
from dagsim.systems.seam import RewardTerm

__all__ = ["TERMS", "Accrual", "CriticalPaths"]


_ENDS = (Kind.FINISHED, Kind.PREEMPTED, Kind.FAILED)
_RUNS = (int(Kind.STARTED), int(Kind.COMPUTING), int(Kind.FINISHED))
_ARRIVED, _LEFT = int(Kind.ARRIVED), (int(Kind.COMPLETED), int(Kind.REJECTED))


class Accrual:
    """The integral of a rate that changes at rows."""

    def __init__(self) -> None:
        self.rate = self._integral = self._since = self._charged = 0.0

    def change(self, now: float, by: float) -> None:
        """From ``now`` on the rate is larger by so much."""
        self._integral += self.rate * (now - self._since)
        self._since = now
        self.rate += by

    def total(self, now: float) -> float:
        """The cost of everything until ``now``."""
        return self._integral + self.rate * (now - self._since)

    def cost(self, now: float) -> float:
        total = self.total(now)
        grown, self._charged = total - self._charged, total
        return grown


class _PerJob(Accrual):
    """Every job adds to the rate from its arrival until it has left."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._schedule = schedule

    def weight(self, job: int) -> float:
        """The weight of a second of the job."""
        return 1.0

    def take(self, row: Row) -> None:
        if row[0] == _ARRIVED:
            self.change(row[1], self.weight(row[2]))
        elif row[0] in _LEFT:
            self.change(row[1], -self.weight(row[2]))


class JobSeconds(_PerJob):
    """Seconds in the system, over all jobs: in the end exactly the sum of completion times."""


class WeightedJobSeconds(_PerJob):
    """The same, each job counting as often as its weight says."""

    def weight(self, job: int) -> float:
        return self._schedule.jobs[job].weight


class BoundedSlowdown(_PerJob):
    """The sum over jobs of max(1, completion time / max(ideal time, 10 s)); what a job lacks to 1 comes as it ends."""

    def weight(self, job: int) -> float:
        return 1.0 / max(self._schedule.jobs[job].ideal_s, 10.0)

    def take(self, row: Row) -> None:
        super().take(row)
        if row[0] == Kind.COMPLETED:
            slowdown = (row[1] - self._schedule.jobs[row[2]].arrival_s) * self.weight(row[2])
            self._integral += max(0.0, 1.0 - slowdown)


class Makespan(Accrual):
    """Seconds from the first arrival until the last job has left."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._first: float | None = None
        self._left_s = 0.0
        self._in_system = 0

    def take(self, row: Row) -> None:
        if row[0] == Kind.ARRIVED:
            self._first = row[1] if self._first is None else self._first
            self._in_system += 1
        elif row[0] in (Kind.COMPLETED, Kind.REJECTED):
            self._in_system -= 1
        self._left_s = row[1]

    def total(self, now: float) -> float:
        if self._first is None:
            return 0.0
        return (now if self._in_system else self._left_s) - self._first


class IdleGpuSeconds(Accrual):
    """GPU-seconds held by nobody while jobs were there, as a share of the GPUs."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._gpus = sum(node.gpus for node in schedule.cluster.nodes) or 1
        self._in_system = 0
        self._held = 0.0

    def take(self, row: Row) -> None:
        if row[0] == Kind.ARRIVED:
            self._in_system += 1
        elif row[0] in (Kind.COMPLETED, Kind.REJECTED):
            self._in_system -= 1
        elif row[0] == Kind.STARTED:
            self._held += row[8]
        elif row[0] in _ENDS:
            self._held -= row[8]
        wanted = 1.0 - self._held / self._gpus if self._in_system else 0.0
        self.change(row[1], wanted - self.rate)


class Joules(Accrual):
    """Energy drawn by all GPUs since the first arrival, held or idle. Those of nodes that are down draw none."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        nodes = schedule.cluster.nodes
        watts = [Watts(0.0, 0.0) if node.gpu is None else DEFAULT_POWER.of(node.gpu) for node in nodes]
        self._extra = [each.busy - each.idle for each in watts]
        self._idle = [each.idle * node.gpus for each, node in zip(watts, nodes, strict=True)]
        self._up_watts = ordered_sum(self._idle)
        self._begun = False

    def take(self, row: Row) -> None:
        kind, now, node = row[0], row[1], row[5]
        if not self._begun:
            if kind == Kind.ARRIVED:
                self._begun = True
                self.change(now, self._up_watts)
            elif kind in (Kind.DOWN, Kind.UP):
                self._up_watts += self._idle[node] * (1 if kind == Kind.UP else -1)
        elif kind == Kind.STARTED:
            self.change(now, row[8] * self._extra[node])
        elif kind in _ENDS:
            self.change(now, -row[8] * self._extra[node])
        elif kind == Kind.DOWN:
            self.change(now, -self._idle[node])
        elif kind == Kind.UP:
            self.change(now, self._idle[node])


class Unfairness(Accrual):
    """Seconds times 1 - Jain's index of the GPUs that tenants hold at each instant. Tenants count while they have jobs
    in the system."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._schedule = schedule
        self._jobs: dict[str, int] = {}
        self._held: dict[str, float] = {}

    def take(self, row: Row) -> None:
        kind, now, job = row[0], row[1], row[2]
        if job < 0:
            return
        tenant = self._schedule.jobs[job].tenant
        if kind == Kind.ARRIVED:
            self._jobs[tenant] = self._jobs.get(tenant, 0) + 1
        elif kind in (Kind.COMPLETED, Kind.REJECTED):
            self._jobs[tenant] -= 1
            if not self._jobs[tenant]:
                del self._jobs[tenant]
        elif kind == Kind.STARTED:
            self._held[tenant] = self._held.get(tenant, 0.0) + row[8]
        elif kind in _ENDS:
            self._held[tenant] -= row[8]
        held = [max(self._held.get(each, 0.0), 0.0) for each in self._jobs]
        squares = len(held) * ordered_sum(gpus * gpus for gpus in held)
        self.change(now, (1.0 - ordered_sum(held) ** 2 / squares if squares > 0 else 0.0) - self.rate)


class ShapedJobSeconds(JobSeconds):
    """Job-seconds less what no schedule avoids: the critical paths of the jobs in the system count as spent already, so
    that a start on a slow GPU is billed at once.

    Every step costs 0 or more, and all of them add up to the sum of completion times less the sum of critical paths
    (potential-based shaping, Ng, Harada and Russell 1999: with no discount it changes no ranking of policies).
    """

    def __init__(self, kernel: ClusterKernel) -> None:
        super().__init__(kernel.schedule)
        self._paths = CriticalPaths(kernel)

    def take(self, row: Row) -> None:
        if row[0] not in _RUNS:
            super().take(row)
            self._paths.take(row)

    def total(self, now: float) -> float:
        return super().total(now) + (self._paths.left_s() - self._paths.arrived_s)


TERMS: Registry[RewardTerm] = Registry(
    "reward term",
    [
        Entry("job_seconds", ".rewards:JobSeconds", "seconds in the system, over all jobs"),
        Entry("shaped_job_seconds", ".rewards:ShapedJobSeconds", "the same less the critical paths: billed at once"),
        Entry("weighted_job_seconds", ".rewards:WeightedJobSeconds", "the same by the weights of jobs"),
        Entry("bounded_slowdown", ".rewards:BoundedSlowdown", "completion time over ideal time, 1 or more"),
        Entry("makespan", ".rewards:Makespan", "seconds from the first arrival until the last job has left"),
        Entry("idle", ".rewards:IdleGpuSeconds", "share of GPUs that nobody holds while jobs are there, over time"),
        Entry("energy", ".rewards:Joules", "energy drawn by all GPUs"),
        Entry("unfairness", ".rewards:Unfairness", "1 - Jain's index over tenants, over time"),
    ],
    group="dagsim.rewards",
    listing="dagsim list rewards",
    home="dagsim.systems.cluster",
    method="cost",
)
"""Every reward term of the GPU cluster by name, made with ``kernel`` or its ``schedule``."""


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
        """The critical paths of all jobs that were let in, as they arrived, in seconds; without those that no GPU type
        may run, whose paths are infinite."""
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
            if kind == _ARRIVED and (ideal_s := self._simulation.schedule.jobs[number].ideal_s) < inf:
                self.arrived_s += ideal_s
        elif kind == _COMPLETED:
            self._paths.pop(number, None)
        elif kind == _REJECTED:
            self._paths.pop(number, None)
            if (ideal_s := self._simulation.schedule.jobs[number].ideal_s) < inf:
                self.arrived_s -= ideal_s
        elif kind in _STOPS:
            self._stopped = True

    def left_s(self) -> float:
        """The sum over the jobs in the system, in seconds."""
        self._look()
        now = self._simulation.now
        return ordered_sum(
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
