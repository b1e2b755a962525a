"""Reward terms for the GPU cluster. Each term is a cost of the schedule, summed row by row from the
log, and can be read at any time.

A term covers only past events, and it never decreases.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy, deepcopy
from math import inf
from typing import Any, Self

from dagsim.metrics.utilization import DEFAULT_POWER, Watts, off_watts
from dagsim.model import Kind, PowerState, RejectReason
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.model.log import RUN_ENDS, LogRow, Schedule
from dagsim.systems.cluster.kernel import ClusterKernel
from dagsim.systems.cluster.state import JobState, Run, TaskState

_ARRIVED, _ADMITTED = int(Kind.ARRIVED), int(Kind.ADMITTED)
_COMPLETED, _REJECTED = int(Kind.COMPLETED), int(Kind.REJECTED)
_LEFT = (_COMPLETED, _REJECTED)
_RUNS = (int(Kind.STARTED), int(Kind.COMPUTING), int(Kind.FINISHED))
_STOPS = (int(Kind.PREEMPTED), int(Kind.FAILED))


class Accrual:
    """The integral over time of a rate that changes only at rows of the log."""

    def __init__(self) -> None:
        self.rate = self._integral = self._since = self._charged = 0.0

    def change(self, now: float, by: float) -> None:
        """Change the rate by ``by`` from time ``now`` onwards."""
        self._integral += self.rate * (now - self._since)
        self._since = now
        self.rate += by

    def total(self, now: float) -> float:
        """Return the total cost up to time ``now``."""
        return self._integral + self.rate * (now - self._since)

    def cost(self, now: float) -> float:
        total = self.total(now)
        increase, self._charged = total - self._charged, total
        return increase

    def fork(self, kernel: ClusterKernel, twin: ClusterKernel) -> Self:
        """Return the same total for ``twin``, a fork of ``kernel``."""
        return deepcopy(self, {id(kernel): twin, id(kernel.schedule): twin.schedule})


class _PerJob(Accrual):
    """Every job contributes to the rate from its arrival until its departure."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._schedule = schedule

    def weight(self, job: int) -> float:
        """Return how much each second that the job spends in the system costs."""
        return 1.0

    def take(self, row: LogRow) -> None:
        kind, now, job, _, _, _, _, _, _ = row
        if kind == _ARRIVED:
            self.change(now, self.weight(job))
        elif kind in _LEFT:
            self.change(now, -self.weight(job))


class JobSeconds(_PerJob):
    """The time that jobs spend in the system, in seconds, summed over all jobs. When all jobs have
    left, this is exactly the sum of their completion times."""


class WeightedJobSeconds(_PerJob):
    """The seconds that jobs spend in the system, multiplied by the jobs' weights and added up."""

    def weight(self, job: int) -> float:
        return self._schedule.jobs[job].weight


class BoundedStretch(_PerJob):
    """The sum of max(1, completion time / max(ideal time, 10 s)) over all jobs. If a job's ratio is
    still below 1 when the job ends, it is then raised to 1."""

    def weight(self, job: int) -> float:
        return 1.0 / max(self._schedule.jobs[job].ideal_s, 10.0)

    def take(self, row: LogRow) -> None:
        super().take(row)
        kind, now, job, _, _, _, _, _, _ = row
        if kind == Kind.COMPLETED:
            slowdown = (now - self._schedule.jobs[job].arrival_s) * self.weight(job)
            self._integral += max(0.0, 1.0 - slowdown)


class Makespan(Accrual):
    """The time from the first arrival until the departure of the last job, in seconds."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._first: float | None = None
        self._left_s = 0.0
        self._in_system = 0

    def take(self, row: LogRow) -> None:
        kind, now, _, _, _, _, _, _, _ = row
        if kind == Kind.ARRIVED:
            self._first = now if self._first is None else self._first
            self._in_system += 1
        elif kind in _LEFT:
            self._in_system -= 1
        self._left_s = now

    def total(self, now: float) -> float:
        if self._first is None:
            return 0.0
        return (now if self._in_system else self._left_s) - self._first


class IdleGpuSeconds(Accrual):
    """GPU-seconds that are idle while jobs are in the system, divided by the number of GPUs."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._gpus = whole_sum(node.gpus for node in schedule.cluster.nodes) or 1
        self._in_system = 0
        self._held = 0.0

    def take(self, row: LogRow) -> None:
        kind, now, _, _, _, _, _, _, held = row
        if kind == Kind.ARRIVED:
            self._in_system += 1
        elif kind in _LEFT:
            self._in_system -= 1
        elif kind == Kind.STARTED:
            self._held += held
        elif kind in RUN_ENDS:
            self._held -= held
        idle_share = 1.0 - self._held / self._gpus if self._in_system else 0.0
        self.change(now, idle_share - self.rate)


class Joules(Accrual):
    """The energy in joules that all GPUs, busy or idle, have consumed since the first arrival. GPUs
    on nodes that are down consume no energy."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        nodes = schedule.cluster.nodes
        watts = [Watts(0.0, 0.0) if node.gpu is None else DEFAULT_POWER.of(node.gpu) for node in nodes]
        self._extra = [power.busy - power.idle for power in watts]
        self._idle = [power.idle * node.gpus for power, node in zip(watts, nodes, strict=True)]
        rules = [node.on_demand for node in nodes]
        self._down, self._off = [False] * len(nodes), [rule is not None and not rule.up for rule in rules]
        self._off_watts = off_watts(schedule.cluster).tolist()
        self._drawn = [
            draws if off else idle for off, draws, idle in zip(self._off, self._off_watts, self._idle, strict=True)
        ]
        """Watts of each node while nothing is held."""
        self._up_watts = ordered_sum(self._drawn)
        self._begun = False

    def take(self, row: LogRow) -> None:
        kind, now, _, _, _, node, _, _, held = row
        if not self._begun:
            if kind == Kind.ARRIVED:
                self._begun = True
                self.change(now, self._up_watts)
            elif kind in (Kind.DOWN, Kind.UP, Kind.POWER):
                self._up_watts += self._changed(row)
        elif kind == Kind.STARTED:
            self.change(now, held * self._extra[node])
        elif kind in RUN_ENDS:
            self.change(now, -held * self._extra[node])
        elif kind in (Kind.DOWN, Kind.UP, Kind.POWER) and (change := self._changed(row)):
            self.change(now, change)

    def _changed(self, row: LogRow) -> float:
        """Return by how many watts the idle power changes when a node goes down, comes up, or is
        powered on or off.
        """
        kind, _, _, _, _, node, _, _, state = row
        drawn = self._drawn[node]
        if kind == Kind.POWER:
            self._off[node] = state == PowerState.OFF
        else:
            self._down[node] = kind == Kind.DOWN
        watts = self._off_watts[node] if self._off[node] else self._idle[node]
        self._drawn[node] = 0.0 if self._down[node] else watts
        return self._drawn[node] - drawn


class Unfairness(Accrual):
    """The integral over time of 1 - Jain's index. The index compares how many GPUs the tenants
    hold. Only tenants with jobs in the system count.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._schedule = schedule
        self._jobs: dict[str, int] = {}
        self._held: dict[str, float] = {}

    def take(self, row: LogRow) -> None:
        kind, now, job, _, _, _, _, _, gpus = row
        if job < 0:
            return
        tenant = self._schedule.jobs[job].tenant
        if kind == Kind.ARRIVED:
            self._jobs[tenant] = self._jobs.get(tenant, 0) + 1
        elif kind in _LEFT:
            self._jobs[tenant] -= 1
            if not self._jobs[tenant]:
                del self._jobs[tenant]
        elif kind == Kind.STARTED:
            self._held[tenant] = self._held.get(tenant, 0.0) + gpus
        elif kind in RUN_ENDS:
            self._held[tenant] -= gpus
        held = [max(self._held.get(name, 0.0), 0.0) for name in self._jobs]
        squares = len(held) * ordered_sum(share * share for share in held)
        self.change(now, (1.0 - ordered_sum(held) ** 2 / squares if squares > 0 else 0.0) - self.rate)


class ShapedJobSeconds(JobSeconds):
    """The job-seconds beyond those that every schedule needs. The critical path of each job in the
    system is charged in advance, so starting a task on a slow GPU costs something immediately.

    No step has a negative cost. In total, the costs are the sum of completion times minus
    the sum of critical paths. (This is potential-based shaping, Ng, Harada and Russell 1999.
    Without a discount, it does not change the ranking of policies.)
    """

    def __init__(self, kernel: ClusterKernel) -> None:
        super().__init__(kernel.schedule)
        self._paths = CriticalPaths(kernel)

    def take(self, row: LogRow) -> None:
        kind = row[0]
        if kind not in _RUNS:
            super().take(row)
            self._paths.take(row)

    def total(self, now: float) -> float:
        return super().total(now) + (self._paths.left_s() - self._paths.arrived_s)


class _Count(Accrual):
    """A total that increases only at the rows of the log."""

    def add(self, amount: float) -> None:
        """Add an amount to the total."""
        self._integral += amount


class LostGpuSeconds(_Count):
    """GPU-seconds lost to preemptions and migrations: the start-up delay when a stopped run
    resumes, and the work of the run if it is not kept.
    """

    def __init__(self, kernel: ClusterKernel) -> None:
        super().__init__()
        self._kernel = kernel
        self._begun: dict[int, float] = {}

    def take(self, row: LogRow) -> None:
        kind, now, job, task, run, _, _, _, gpus = row
        if kind == Kind.STARTED:
            self._begun[run] = now
        elif kind == Kind.PREEMPTED:
            active = self._kernel.frontier.jobs.get(job)
            memory_gb = 0.0 if active is None else active.tasks[task].task.memory_gb
            self.add(gpus * self._kernel.preemption.lost_s(memory_gb, now - self._begun.get(run, now)))


class Rejections(_Count):
    """The number of jobs rejected by the policy."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()

    def take(self, row: LogRow) -> None:
        kind, _, _, _, _, _, _, _, reason = row
        if kind == Kind.REJECTED and reason == RejectReason.BY_POLICY:
            self.add(1.0)


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

    def take(self, row: LogRow) -> None:
        """Process a row of the log if it reports an arrival, a departure or a stopped run."""
        kind, _, number, _, _, _, _, _, _ = row
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
