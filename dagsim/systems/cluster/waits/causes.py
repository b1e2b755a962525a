"""Finding the causes of a job's waits in a single pass over the log. The kernel's rules determine
what fits, and the policy's limits determine what may start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, TypeAlias

import numpy as np

from dagsim.errors import InputError
from dagsim.metrics.why import Cause, CauseKind
from dagsim.model import Job, Kind, QueueTree
from dagsim.model.log import RUN_ENDS, Schedule
from dagsim.systems.cluster.arrivals.dependencies import ArrivingJob, Dependencies
from dagsim.systems.cluster.network.base import Network
from dagsim.systems.cluster.resources.nodes import NodeState
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.cluster.state import JobState, TaskState
from dagsim.systems.cluster.view import ClusterView
from dagsim.systems.cluster.waits.room_tally import NodeStanding, RoomTally, lacking_causes
from dagsim.systems.cluster.waits.wait_rules import rules_of_named

Causes: TypeAlias = tuple[Cause, ...]
"""All causes that kept a job waiting at one time."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a job's wait during which the causes stay the same."""

    from_s: float
    until_s: float
    causes: Causes

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that are safe for JSON."""
        causes = [{"kind": str(cause.kind), "what": cause.what} for cause in self.causes]
        return {"from_s": self.from_s, "until_s": self.until_s, "causes": causes}


def causes_by_time(stretches: Iterable[Stretch]) -> list[tuple[Causes, float]]:
    """Return each set of causes with its total seconds, longest first."""
    seconds: dict[Causes, float] = {}
    for stretch in stretches:
        seconds[stretch.causes] = seconds.get(stretch.causes, 0.0) + stretch.until_s - stretch.from_s
    return sorted(seconds.items(), key=lambda pair: -pair[1])


def binding_causes(
    schedule: Schedule,
    jobs: Iterable[Job],
    job: int,
    periods: Sequence[tuple[float, float]],
    policy: str,
    queues: QueueTree | None = None,
    network: Network | None = None,
) -> tuple[Stretch, ...]:
    """Return the causes for which job number ``job`` waits in ``periods``, which are in order of
    time. ``network`` defines the levels that jobs may require.

    ``jobs`` are the jobs in the schedule in order of arrival. Only as many of them as needed are
    read. The limits in ``queues`` apply only if the policy, which is given by name, has rules. The
    cost is O(rows of the log up to the last wait).

    Raises:
        InputError: The jobs do not match the schedule.
    """
    if not periods:
        return ()
    past = _Past(schedule, jobs, policy, queues, network)
    rows = schedule.log.rows()
    last = int(np.searchsorted(rows["time_s"], periods[-1][1], "right"))
    return tuple(_joined(_stretches(past, rows[:last].tolist(), job, periods)))


def _stretches(
    past: _Past, rows: list[tuple[Any, ...]], job: int, periods: Sequence[tuple[float, float]]
) -> Iterator[Stretch]:
    at = 0
    for start_s, end_s in periods:
        now_s, tally = start_s, None
        while now_s < end_s:
            while at < len(rows) and rows[at][1] <= now_s:
                past.read(rows[at])
                at += 1
            if tally is None:
                tally = past.tally(past.waiting(job, (rows[place] for place in range(at, len(rows)))))
            until_s = min(end_s, rows[at][1] if at < len(rows) else inf)
            conditions = past.booting(job) or past.conditions(job, now_s)
            until_s = min(until_s, past.next_s(job, now_s))
            yield Stretch(now_s, until_s, conditions or past.causes(tally))
            now_s = until_s


def _joined(stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    """Merge adjacent parts of a wait that have the same causes."""
    last: Stretch | None = None
    for stretch in stretches:
        if last is not None and last.until_s == stretch.from_s and last.causes == stretch.causes:
            stretch = Stretch(last.from_s, stretch.until_s, last.causes)
        elif last is not None:
            yield last
        last = stretch
    if last is not None:
        yield last


class _Past:
    """The state of the cluster after the rows of the log that have been read so far."""

    def __init__(
        self,
        schedule: Schedule,
        jobs: Iterable[Job],
        policy: str,
        queues: QueueTree | None,
        network: Network | None,
    ) -> None:
        kernel = ClusterScenario(schedule.cluster, (), queues=queues, network=network).kernel(0)
        self._machines, self._policy = kernel.machines, policy
        self._rules = rules_of_named(policy, ClusterView(kernel))
        self._facts, self._source = schedule.jobs, iter(jobs)
        self._jobs: list[JobState] = []
        self._held: dict[tuple[int, int], tuple[TaskState, int, int, tuple[int, ...]]] = {}
        """The task, instances and GPUs of each run, by run and node."""
        self._joint: dict[tuple[int, int], bool] = {}
        """Nodes and GPUs that two runs share."""
        self._parts: dict[int, int] = {}
        """Nodes on which each run is."""
        self._done: dict[tuple[int, int], int] = {}
        """Instances of each task that are done."""
        self._users: dict[int, dict[int, TaskState]] = {}
        """The runs on each node."""
        self._touched: set[int] = set()
        """Nodes that have to be counted again."""
        self._allowed = 0
        self._dependencies = Dependencies()
        self._allocated: dict[int, int] = {}
        """The job of each run that has its nodes and waits for them to boot."""
        self._down: set[int] = set()
        self._power = dict(kernel.on_demand.states) if kernel.on_demand is not None else {}
        """The state of each node that is powered on demand."""
        self._decided: set[int] = set()
        """The jobs whose conditions or array decide when they are eligible."""

    def read(self, row: tuple[Any, ...]) -> None:
        """Process a row of the log."""
        kind, time_s, job, task, run, node, instances, gpus, value = row
        self._dependencies.passed(time_s)
        if kind == Kind.ARRIVED:
            if self._dependencies.arrived(self._task(job, 0).job, time_s) is not ArrivingJob.FREE:
                self._decided.add(job)
        elif kind in (Kind.STARTED, Kind.ALLOCATED):
            self._dependencies.started(job, time_s)
        elif kind in (Kind.COMPLETED, Kind.REJECTED):
            self._dependencies.left(job, time_s)
        if node >= 0:
            self._touched.add(node)
        if kind in (Kind.STARTED, Kind.ALLOCATED):
            if (run, node) not in self._held:  # a run that was allocated earlier is already recorded
                self._start(self._task(job, task), run, self._machines.list[node], instances, gpus)
            if kind == Kind.ALLOCATED:
                self._allocated[run] = job
            else:
                self._allocated.pop(run, None)
        elif kind == Kind.RELEASED:
            self._allocated.pop(run, None)
            self._end(run, self._machines.list[node])
        elif kind in RUN_ENDS:
            self._end(run, self._machines.list[node])
            if kind == Kind.FINISHED:
                self._done[job, task] = self._done.get((job, task), 0) + instances
        elif kind == Kind.DOWN:
            self._down.add(node)
        elif kind == Kind.UP:
            self._down.discard(node)
        elif kind == Kind.POWER:
            self._power[node] = int(value)
        if kind in (Kind.DOWN, Kind.UP, Kind.POWER):
            self._open_or_close(self._machines.list[node], time_s)

    def _open_or_close(self, machine: NodeState, now: float) -> None:
        """Open a node to tasks or close it, depending on its power state and on whether it has
        failed.
        """
        rule = machine.node.on_demand
        is_open = machine.index not in self._down and (rule is None or rule.is_open(self._power[machine.index]))
        if machine.up and not is_open:
            self._machines.take_down(machine)
        elif is_open and not machine.up:
            self._machines.bring_up(machine, now)

    def booting(self, job: int) -> Causes:
        """Return the cause of a job's wait while the nodes that it already holds are booting."""
        return (Cause(CauseKind.BOOT, "its nodes were booting"),) if job in self._allocated.values() else ()

    def waiting(self, job: int, rows: Iterable[tuple[Any, ...]]) -> TaskState:
        """Return the task of a job that starts next according to the following ``rows``. If none
        starts, return the first task that could start.
        """
        for row in rows:
            if row[0] == Kind.STARTED and row[2] == job:
                return self._task(job, row[3])
        first = self._task(job, 0)
        tasks, parents = first.job.tasks, first.job.job.graph.parents
        open_ = {task.index for task in tasks if self._done.get((job, task.index), 0) < task.task.instances}
        return next((task for task in tasks if task.index in open_ and not open_ & {*parents[task.index]}), first)

    def conditions(self, job: int, now_s: float) -> Causes:
        """Return the conditions that keep a job from being eligible at ``now_s``."""
        self._dependencies.passed(now_s)
        active = self._task(job, 0).job
        unmet = tuple([Cause(CauseKind.CONDITION, what) for what in self._dependencies.unmet(active, now_s)])
        eligible_s = active.job.eligible_s
        if not unmet and job not in self._decided and eligible_s is not None and eligible_s > now_s:
            return (
                Cause(CauseKind.CONDITION, "according to the log, it was not eligible yet (a hold or a dependency)"),
            )
        return unmet

    def next_s(self, job: int, now_s: float) -> float:
        """Return the next time after ``now_s`` at which a condition is met without an event in the
        log.
        """
        eligible_s = self._task(job, 0).job.job.eligible_s
        times_s = [self._dependencies.next_s, inf if eligible_s is None else eligible_s]
        return min([time_s for time_s in times_s if time_s > now_s], default=inf)

    def tally(self, task: TaskState) -> RoomTally:
        """Return a tally of the free resources for a task. It is kept up to date as further rows of
        the log are read.
        """
        self._allowed = 0
        self._touched = {machine.index for machine in self._machines.list}
        site, job = self._machines.site, task.job.job
        terms = None if site is None or not task.demand.gang else site.terms(job, 0.0)
        return RoomTally(task, distinct=self._rules.distinct(task), domains=() if terms is None else terms.domains)

    def causes(self, tally: RoomTally) -> Causes:
        """Return all causes that prevent the task from starting now."""
        task, rules = tally.task, self._rules
        allowed = rules.nodes(task)
        if allowed != self._allowed:
            self._allowed, self._touched = allowed, {machine.index for machine in self._machines.list}
        for node in self._touched:
            tally.put(self._machines.list[node], self._place(self._machines.list[node], task))
        self._touched.clear()
        limits = tuple([Cause(CauseKind.LIMIT, what) for what in rules.limits(task)])
        if not tally.fits(NodeStanding.OPEN):
            powered_down = bool(self._power) and not self._down
            return (*limits, *lacking_causes(tally, rules.elsewhere, powered_down=powered_down))
        return limits or (
            Cause(CauseKind.ORDER, f"it would have fitted, but the order of {self._policy} kept it waiting"),
        )

    def _place(self, machine: NodeState, task: TaskState) -> NodeStanding:
        if not self._allowed >> machine.index & 1:
            return NodeStanding.OUTSIDE
        if not machine.up:
            return NodeStanding.DOWN
        users = self._users.get(machine.index, {}).values()
        alone = self._rules.alone
        return (
            NodeStanding.CLOSED if users and (alone(task) or any(alone(user) for user in users)) else NodeStanding.OPEN
        )

    def _start(self, task: TaskState, run: int, machine: NodeState, instances: int, gpus: int) -> None:
        demand = task.demand
        if demand.whole and gpus & ~machine.free:  # the run shares its GPUs with another run
            self._machines.join(machine, demand, instances)
            self._joint[machine.index, gpus] = True
            self._held[run, machine.index] = task, instances, gpus, ()
        else:
            named = gpus.bit_length() - 1 if demand.share and instances == 1 and gpus else None
            self._held[run, machine.index] = task, instances, *self._machines.take(machine, demand, instances, named)
        self._users.setdefault(machine.index, {})[run] = task
        parts = self._parts[run] = self._parts.get(run, 0) + 1
        if parts == 1:
            self._rules.started(run, task, demand.gang or instances, machine.type)

    def _end(self, run: int, machine: NodeState) -> None:
        task, count, mask, on = self._held.pop((run, machine.index))
        if self._joint.pop((machine.index, mask), False):  # the other run keeps these GPUs
            self._machines.leave(machine, task.demand, count)
        else:
            self._machines.give(machine, task.demand, count, mask, on)
        del self._users[machine.index][run]
        self._parts[run] -= 1
        if not self._parts[run]:
            del self._parts[run]
            self._rules.ended(run)

    def _task(self, job: int, task: int) -> TaskState:
        """Return a task by number, reading its job if necessary."""
        while len(self._jobs) <= job:
            self._jobs.append(self._next_job(len(self._jobs)))
        return self._jobs[job].tasks[task]

    def _next_job(self, number: int) -> JobState:
        job = next(self._source, None)
        if job is None or job.id != self._facts[number].id:
            there = "no more jobs" if job is None else f"the job {job.id!r}"
            raise InputError(
                f"job {self._facts[number].id!r} from the log is not in the workload, which now has {there}"
            )
        active, nothing = JobState(job, number), (0.0,) * len(self._machines.types)
        for index, task in enumerate(job.graph.tasks):
            demand = self._machines.demand_of(task)
            active.tasks.append(TaskState(active, index, task, demand, nothing, 0))
        return active
