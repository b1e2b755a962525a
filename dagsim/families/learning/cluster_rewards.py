"""Reward terms for the GPU cluster. Each term is a cost of the schedule, summed row by row from the
log, and can be read at any time.

A term covers only past events, and it never decreases.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Self

from dagsim.families.learning.critical_paths import CriticalPaths
from dagsim.metrics.utilization import DEFAULT_POWER, Watts, off_watts
from dagsim.model import Kind, PowerState, RejectReason
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.model.log import RUN_ENDS, Record, Schedule
from dagsim.systems.cluster.kernel import ClusterKernel

_LEFT = (Kind.COMPLETED, Kind.REJECTED)
_RUNS = (Kind.STARTED, Kind.COMPUTING, Kind.FINISHED)
_NODES = (Kind.DOWN, Kind.UP, Kind.POWER)


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

    def take(self, row: Record) -> None:
        if row.kind == Kind.ARRIVED:
            self.change(row.time_s, self.weight(row.job))
        elif row.kind in _LEFT:
            self.change(row.time_s, -self.weight(row.job))


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

    def take(self, row: Record) -> None:
        super().take(row)
        if row.kind == Kind.COMPLETED:
            slowdown = (row.time_s - self._schedule.jobs[row.job].arrival_s) * self.weight(row.job)
            self._integral += max(0.0, 1.0 - slowdown)


class Makespan(Accrual):
    """The time from the first arrival until the departure of the last job, in seconds."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._first: float | None = None
        self._left_s = 0.0
        self._in_system = 0

    def take(self, row: Record) -> None:
        if row.kind == Kind.ARRIVED:
            self._first = row.time_s if self._first is None else self._first
            self._in_system += 1
        elif row.kind in _LEFT:
            self._in_system -= 1
        self._left_s = row.time_s

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

    def take(self, row: Record) -> None:
        if row.kind == Kind.ARRIVED:
            self._in_system += 1
        elif row.kind in _LEFT:
            self._in_system -= 1
        elif row.kind == Kind.STARTED:
            self._held += row.held
        elif row.kind in RUN_ENDS:
            self._held -= row.held
        idle_share = 1.0 - self._held / self._gpus if self._in_system else 0.0
        self.change(row.time_s, idle_share - self.rate)


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

    def take(self, row: Record) -> None:
        if not self._begun:
            if row.kind == Kind.ARRIVED:
                self._begun = True
                self.change(row.time_s, self._up_watts)
            elif row.kind in _NODES:
                self._up_watts += self._changed(row)
        elif row.kind == Kind.STARTED:
            self.change(row.time_s, row.held * self._extra[row.node])
        elif row.kind in RUN_ENDS:
            self.change(row.time_s, -row.held * self._extra[row.node])
        elif row.kind in _NODES and (change := self._changed(row)):
            self.change(row.time_s, change)

    def _changed(self, row: Record) -> float:
        """Return by how many watts the idle power changes when a node goes down, comes up, or is
        powered on or off.
        """
        node = row.node
        drawn = self._drawn[node]
        if row.kind == Kind.POWER:
            self._off[node] = row.power == PowerState.OFF
        else:
            self._down[node] = row.kind == Kind.DOWN
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

    def take(self, row: Record) -> None:
        if row.job < 0:
            return
        tenant = self._schedule.jobs[row.job].tenant
        if row.kind == Kind.ARRIVED:
            self._jobs[tenant] = self._jobs.get(tenant, 0) + 1
        elif row.kind in _LEFT:
            self._jobs[tenant] -= 1
            if not self._jobs[tenant]:
                del self._jobs[tenant]
        elif row.kind == Kind.STARTED:
            self._held[tenant] = self._held.get(tenant, 0.0) + row.held
        elif row.kind in RUN_ENDS:
            self._held[tenant] -= row.held
        held = [max(self._held.get(name, 0.0), 0.0) for name in self._jobs]
        squares = len(held) * ordered_sum(share * share for share in held)
        self.change(row.time_s, (1.0 - ordered_sum(held) ** 2 / squares if squares > 0 else 0.0) - self.rate)


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

    def take(self, row: Record) -> None:
        if row.kind not in _RUNS:
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

    def take(self, row: Record) -> None:
        if row.kind == Kind.STARTED:
            self._begun[row.run] = row.time_s
        elif row.kind == Kind.PREEMPTED:
            active = self._kernel.frontier.jobs.get(row.job)
            memory_gb = 0.0 if active is None else active.tasks[row.task].task.memory_gb
            ran_s = row.time_s - self._begun.get(row.run, row.time_s)
            self.add(row.held * self._kernel.preemption.lost_s(memory_gb, ran_s))


class Rejections(_Count):
    """The number of jobs rejected by the policy."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()

    def take(self, row: Record) -> None:
        if row.kind == Kind.REJECTED and row.reason == RejectReason.BY_POLICY:
            self.add(1.0)
