"""The reasons why tasks are waiting now, and why some jobs can never start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from itertools import count
from math import inf
from operator import or_
from typing import Any

from dagsim.family import family_entries, required
from dagsim.metrics.why import Cause
from dagsim.model import Job, QueueTree, RejectReason, Request, Task
from dagsim.systems.cluster.resources.nodes import ALL, DemandClass, demand_words
from dagsim.systems.cluster.resources.site import ClosedTime
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.cluster.state import JobState, Run, TaskState
from dagsim.systems.cluster.view import ClusterView
from dagsim.systems.cluster.waits.room_tally import NodeStanding, RoomTally, lacking_causes
from dagsim.systems.cluster.waits.wait_rules import Standing, WaitRules, as_one_reason, rules_of
from dagsim.systems.seam import stated


def rules_of_site(view: ClusterView) -> WaitRules:
    """Return the rules that a family derives from the queues of a site. If no family does this,
    there are no limits.
    """
    for _, entry in family_entries("site_rules"):
        rules: WaitRules | None = required(entry.name, "site_rules")(view)
        if rules is not None:
            return rules
    return WaitRules()


class Present:
    """The causes that prevent waiting tasks from starting at the current time of a view.

    A policy with its own order has a method ``outlook(view)``. It returns the policy's limits, in
    which the current runs are already counted, and the place of each waiting task in the policy's
    order. For other policies, the order is by priority and arrival.
    """

    def __init__(self, view: ClusterView, policy: Any) -> None:
        self._view = view
        self._users: dict[int, list[TaskState]] = {}
        for run in view.running.values():
            for machine, *_ in run.held:
                self._users.setdefault(machine.index, []).append(run.task)
        self.standings: list[Standing]
        """The waiting tasks that are eligible, in the order in which they would be served."""
        if (outlook := stated(policy, "outlook")) is not None:
            self.rules, self.standings = outlook(view)
        else:
            self.rules = rules_of(policy, view)
            for run in view.running.values():
                self.rules.started(run.id, run.task, run.instances, run.type)
            order = sorted(view.ready, key=lambda task: (-task.job.job.priority, task.job.job.arrival_s, task.order))
            self.standings = [Standing(task, "", 0, task.job.job.priority, {}, ALL) for task in order]

    @property
    def running(self) -> Mapping[int, Run]:
        """The current runs, by id."""
        return self._view.running

    def reserved(self, task: TaskState) -> list[ClosedTime]:
        """Return the reservations of other jobs with which the task would conflict on its nodes if it
        started now.
        """
        site, terms, now = self._view.machines.site, task.demand.terms, self._view.now
        if site is None or terms is None:
            return []
        nodes = terms.nodes & self.rules.nodes(task)
        met = [closed for closed in site.met(terms, now, now + terms.limit_s) if closed.nodes & nodes]
        return sorted(met, key=lambda closed: closed.start_s)

    def own_reservation(self, task: TaskState) -> ClosedTime | None:
        """Return the reservation in which the task runs. Return None if there is none, or if it has already begun."""
        site, terms = self._view.machines.site, task.demand.terms
        if site is None or terms is None or terms.reservation < 0:
            return None
        own = site.held(terms.reservation, self._view.now)
        return own if own is not None and self._view.now < own.start_s else None

    def licences(self, task: TaskState) -> list[tuple[str, int, float]]:
        """Return the missing licences. Each has its name, the requested number and the free number."""
        site, terms = self._view.machines.site, task.demand.terms
        if site is None or terms is None:
            return []
        return [(name, count, free) for name, count in terms.licences if (free := site.licences[name]) < count]

    def closed(self, task: TaskState) -> bool:
        """Return True if the nodes that are open to the task now would not be enough even if they
        were idle.
        """
        tally = self._tally(task, empty=True)
        return not tally.fits(NodeStanding.OPEN)

    def fits(self, task: TaskState) -> bool:
        """Return True if the task fits now, regardless of the order."""
        return self._tally(task).fits(NodeStanding.OPEN)

    def lacking(self, task: TaskState) -> list[Cause]:
        """Return the resources that are missing on the nodes for the task to start. The list is
        empty if the task fits.
        """
        tally = self._tally(task)
        return [] if tally.fits(NodeStanding.OPEN) else list(lacking_causes(tally, self.rules.elsewhere))

    def _tally(self, task: TaskState, *, empty: bool = False) -> RoomTally:
        tally, site, terms = RoomTally(task, distinct=self.rules.distinct(task)), self._view.machines.site, None
        open_ = self.rules.nodes(task)
        if site is not None and (terms := task.demand.terms) is not None:
            open_ &= site.open_between(terms, self._view.now, self._view.now + terms.limit_s)
        alone = self.rules.alone
        for machine in self._view.machines.list:
            standing = NodeStanding.OPEN if open_ >> machine.index & 1 else NodeStanding.OUTSIDE
            users = self._users.get(machine.index, ())
            if standing is NodeStanding.OPEN and not machine.up:
                standing = NodeStanding.DOWN
            elif standing is NodeStanding.OPEN and users and not empty:
                closed = alone(task) or any(alone(user) for user in users)
                standing = NodeStanding.CLOSED if closed else standing
            tally.put(machine.emptied() if empty else machine, standing)
        return tally


class Obstacles:
    """The rules of a site and of a policy that prevent some jobs from ever starting, even if
    nothing else is running.
    """

    def __init__(self, scenario: ClusterScenario, rules: Callable[[ClusterView], WaitRules]) -> None:
        """Create a simulation of the site without jobs. The times of reservations are on the clock
        of ``scenario.queues``. ``rules`` returns the rules for a view of the empty simulation.
        """
        empty = replace(scenario, workload=(), outages=False, failures=(), admission=False, engine="simpy")
        self._queues, self._kernel = scenario.queues or QueueTree(), empty.kernel(0)
        view, self._runtime = ClusterView(self._kernel), scenario.runtime
        self._rules = rules(view)
        self._numbers = count()

    def rules_against(self, job: Job) -> str:
        """Describe the rules that prevent the job from ever starting, however many resources are
        free. The result is empty if there are no such rules.
        """
        active, machines = JobState(job, next(self._numbers)), self._kernel.machines
        for index, task in enumerate(job.graph.tasks):
            demand = machines.demand_of(task)
            if demand.rejected is not None:
                return ""
            seconds = self._runtime.seconds(task, machines.types)
            active.tasks.append(TaskState(active, index, task, demand, seconds, 0))
        return self._never(active)

    def _never(self, active: JobState) -> str:
        return as_one_reason([*dict.fromkeys(reason for task in active.tasks for reason in self._rules.never(task))])

    def of(self, job: Job, now_s: float) -> str:
        """Describe what prevents the job from ever starting after ``now_s``. The result is empty if
        nothing prevents it.
        """
        active, machines = JobState(job, next(self._numbers)), self._kernel.machines
        for index, task in enumerate(job.graph.tasks):
            seconds = self._runtime.seconds(task, machines.types)
            demand = machines.demand_of(task)
            if demand.rejected is not None:
                asked = TaskState(active, index, task, demand, seconds, 0)
                own = self._rules.never(asked) if self._rules.judges_demands else ()
                return next(iter(own), "") or _too_large(task, demand, "the cluster")
            site = machines.site
            if site is not None and (words := self._outside(job, task, now_s)):
                return words
            if site is not None:
                limit_s = self._kernel.preparation.time_limit_s(job, task, seconds)
                terms = site.terms(job, limit_s, demand.gang)
                demand = demand if terms is None else machines.demand_of(task, terms)
            active.tasks.append(TaskState(active, index, task, demand, seconds, 0))
        return self._never(active)

    def _outside(self, job: Job, task: Task, now_s: float) -> str:
        """Describe a rule of the site with which the job can never comply."""
        site, request = self._kernel.machines.site, job.request or Request()
        assert site is not None
        for name, number in request.licences:
            if number > site.licences.get(name, inf):
                return f"Licenses: {name} ({site.licences[name]:g}) < {number}"
        nodes = site.nodes_of(job.partition, replace(request, constraint=""))
        if not self._holds(task, nodes):
            return _too_large(task, None, "its partition")
        if request.constraint and not self._holds(task, nodes := site.nodes_of(job.partition, request)):
            return f"BadConstraints: {_too_large(task, None, f'what satisfies {request.constraint!r}')}"
        if site.is_over(request.reservation, now_s - site.origin_s):
            return f"Reservation: {request.reservation!r} is over"
        own = [closed.nodes for closed in site.closed if closed.name == request.reservation]
        if own and not self._holds(task, nodes & reduce(or_, own)):
            return _too_large(task, None, f"the reservation {request.reservation!r}")
        return ""

    def _holds(self, task: Task, nodes: int) -> bool:
        """Return True if the task fits on these nodes when they are empty."""
        machines = self._kernel.machines
        return machines.holds(machines.demand_of(task), nodes)


def _too_large(task: Task, demand: DemandClass | None, where: str) -> str:
    """Describe a demand that would not fit on ``where`` even if everything there were idle."""
    if demand is not None and demand.rejected is RejectReason.NO_SUCH_GPU:
        return f"no node has GPUs of type {' or '.join(task.demand.gpu_types or ('any',))}"
    wanted = f"{task.instances} x ({demand_words(task.demand)})" if task.gang else demand_words(task.demand)
    return f"{where}, idle, has no room for {wanted}"
