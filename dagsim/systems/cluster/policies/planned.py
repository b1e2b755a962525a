"""Policies that follow a plan. Each job is planned when it arrives, using the times that are not
booked for earlier jobs.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from math import ceil, inf
from typing import NamedTuple, TypeAlias

from dagsim.model import Decision, Placement, Share, Start
from dagsim.systems.cluster.api import MICRO, ClusterState, ClusterView, DemandClass, JobState, Queue, TaskState
from dagsim.systems.cluster.policies import planners
from dagsim.systems.cluster.policies.orders import by_arrival, by_rank, width
from dagsim.systems.cluster.policies.placement import PlacementRule, placing
from dagsim.systems.cluster.policies.planners import Booking, BookingPlanner, Calendar, Problem

_Key: TypeAlias = tuple[int, int]
"""Job number and task."""


class PlannedPlace(NamedTuple):
    """A place for which a task can be planned: a node or, for tasks wider than any node, a whole
    GPU type (``node`` is -1).
    """

    type: int
    node: int
    lanes: tuple[int, ...]


class Planned:
    """Plan each job on arrival with ``planner``, and then follow the plan. Plans assume that the
    estimates are exact. On every GPU, the tasks start in the planned order. Each starts as soon as
    it is ready and fits on its node. Tasks without GPUs cannot be planned, nor can tasks that have
    returned after a preemption or a failure. Such tasks start wherever they fit.

    In the plan, each GPU is a lane, and a share of a GPU counts as a whole GPU. The policy uses
    estimates and never preempts. Planning a job tries each of its tasks once on each node, which
    costs O(GPUs + gaps between bookings) per try. Starting a task by the plan costs O(GPUs of the
    task).
    """

    forgets = "its plans for the jobs that had arrived"

    def __init__(self, planner: BookingPlanner, placement: str | PlacementRule = "best-fit") -> None:
        self.planner = planner
        self._placing = placing(placement)
        self._sites: list[PlannedPlace] = []
        self._calendar = Calendar(0)
        self._plan: dict[_Key, tuple[PlannedPlace, Booking]] = {}
        """Planned tasks with instances still to start."""
        self._lanes: list[list[tuple[float, int, _Key]]] = []
        """The tasks planned on each lane: planned start, a running number, key."""
        self._last = -1
        """Number of the job planned last."""
        self._count = 0

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        waiting = view.index(self, lambda: _Waiting(view.machines))
        self._plan_arrivals(view, waiting.new)
        while waiting.new:
            self._sort(waiting, waiting.new.pop())
        yield from self._follow(view, waiting)
        task = waiting.unplanned.first_fit()
        if task is None and not view.running:
            # the plan cannot be followed any longer, so start any task that fits
            task = view.queue(by_arrival).first_fit()
        if task is not None:
            placement = self._placing.place(view, task)
            if placement is not None:
                yield Start(task, placement)
                self._leave(waiting, task)

    def _follow(self, view: ClusterView, waiting: _Waiting) -> Iterator[Decision]:
        """Start the ready tasks that are next on all of their lanes."""
        again, machines = True, view.machines.list
        while again:
            again = False
            for key in sorted(waiting.due):  # in a fixed order, because the order of a set differs in a fork
                task, site = waiting.due[key], self._plan[key][0]
                if site.node >= 0 and not machines[site.node].room(task.demand):
                    continue
                placement = self._place(view, task, site)
                if placement is not None:
                    yield Start(task, placement)
                    again = self._leave(waiting, task) or again

    def _place(self, view: ClusterView, task: TaskState, site: PlannedPlace) -> Placement | None:
        """Return a placement on the planned site, or None if the task cannot start there now."""
        if site.node < 0:
            return self._placing.place(view, task, site.type)
        demand = task.demand
        room = min(view.machines.list[site.node].room(demand), task.waiting)
        return (Share(site.node, room),) if room and room >= (demand.gang or 1) else None

    def _leave(self, waiting: _Waiting, task: TaskState) -> bool:
        """Remove a started task from its lanes. Return True if other tasks may be next on these
        lanes now.
        """
        key = (task.job.number, task.index)
        if task.waiting or task.piece or key not in self._plan:
            return False
        _, booking = self._plan.pop(key)
        waiting.due.pop(key, None)
        for lane in booking.lanes:
            queue = self._lanes[lane]
            queue.remove(next(entry for entry in queue if entry[2] == key))
        for lane in booking.lanes:
            if self._lanes[lane]:
                self._make_due(waiting, self._lanes[lane][0][2])
        return True

    def _sort(self, waiting: _Waiting, task: TaskState) -> None:
        """Add a ready task to the tasks that are next on their lanes, that are planned for later,
        or that are not planned.
        """
        key = (task.job.number, task.index)
        if task.piece or key not in self._plan:
            waiting.unplanned.push(task)
        else:
            waiting.ready[key] = task
            self._make_due(waiting, key)

    def _make_due(self, waiting: _Waiting, key: _Key) -> None:
        if key in waiting.ready and all(self._lanes[lane][0][2] == key for lane in self._plan[key][1].lanes):
            waiting.due[key] = waiting.ready.pop(key)

    def _plan_arrivals(self, view: ClusterView, tasks: list[TaskState]) -> None:
        """Plan the jobs that have arrived since the last call. Such a job always has a ready task."""
        if not self._sites:
            self._lay_out(view.machines)
        new = {task.job.number: task.job for task in tasks if task.job.number > self._last}
        if new:
            self._calendar.forget(view.now)
            for number in sorted(new):
                self._plan_job(view, new[number])
            self._last = max(new)

    def _lay_out(self, machines: ClusterState) -> None:
        """Number the GPUs, and group them by node and by type."""
        count = 0
        by_type: dict[int, list[int]] = {}
        for machine in machines.list:
            lanes = tuple(range(count, count + machine.gpus))
            count += machine.gpus
            self._sites.append(PlannedPlace(machine.type, machine.index, lanes))
            by_type.setdefault(machine.type, []).extend(lanes)
        self._sites += [PlannedPlace(type_, -1, tuple(lanes)) for type_, lanes in by_type.items()]
        self._calendar = Calendar(count)
        self._lanes = [[] for _ in range(count)]

    def _plan_job(self, view: ClusterView, job: JobState) -> None:
        graph, machines = job.job.graph, view.machines
        seconds, widths = [], []
        for task in job.tasks:
            wide = ceil(width(task) * (1 if task.demand.gang else task.waiting)) if task.demand.demand.gpus else 0
            row = [self._seconds(machines, task, site, wide) for site in self._sites]
            narrowest = min([len(site.lanes) for site, s in zip(self._sites, row, strict=True) if s < inf], default=0)
            widths.append(min(wide, narrowest))
            seconds.append(row if min(row) < inf else [task.best_s] * len(row))
        lanes = [site.lanes for site in self._sites]
        problem = Problem(
            seconds, graph.parents, graph.children, graph.order, _no_transfer, lanes, widths,
            calendar=self._calendar, now_s=view.now,
        )  # fmt: skip
        for index, booking in self.planner(problem).items():
            if booking.lanes:
                key = (job.number, index)
                self._plan[key] = self._sites[booking.site], booking
                self._count += 1
                for lane in booking.lanes:
                    insort(self._lanes[lane], (booking.start_s, self._count, key))

    def _seconds(self, machines: ClusterState, task: TaskState, site: PlannedPlace, wide: int) -> float:
        """Return the seconds that the whole task takes on the site. The result is ``inf`` if the
        task cannot run there. It is also ``inf`` if the site is a whole type although the task
        would fit on a single node.
        """
        demand = task.demand
        if site.type not in demand.types:
            return inf
        if site.node >= 0:
            return task.seconds[site.type] * self._waves(wide, site) if _fits(machines, demand, site.node) else inf
        nodes = [other.node for other in self._sites if other.type == site.type and other.node >= 0]
        if any(_fits(machines, demand, node) for node in nodes):
            return inf
        return task.seconds[site.type] * self._waves(wide, site)

    def _waves(self, wide: int, site: PlannedPlace) -> int:
        return max(ceil(wide / len(site.lanes)), 1) if wide and site.lanes else 1


def _no_transfer(parent: int, child: int) -> float:
    """Return 0, because plans ignore transfers. A run fetches its inputs when it starts, from
    wherever they are.
    """
    return 0.0


class _Waiting:
    """An index of the ready tasks, divided into new tasks, planned tasks, tasks that are next on
    all of their lanes, and all others.
    """

    def __init__(self, machines: ClusterState) -> None:
        self.new: list[TaskState] = []
        self.ready: dict[_Key, TaskState] = {}
        self.due: dict[_Key, TaskState] = {}
        self.unplanned = Queue(by_rank, machines)

    def push(self, task: TaskState) -> None:
        self.new.append(task)


def _fits(machines: ClusterState, demand: DemandClass, index: int) -> bool:
    """Return True if an instance (or the whole gang) fits on the node when it is empty."""
    node, count = machines.list[index].node, demand.gang or 1
    asked = demand.demand
    gpus = asked.gpus * count <= node.gpus
    return gpus and demand.cpus * count <= node.cpus * MICRO and demand.memory * count <= node.memory_gb * MICRO


def heft(placement: str | PlacementRule = "best-fit") -> Planned:
    """Heterogeneous earliest finish time (Topcuoglu, Hariri and Wu 2002, section 4.1), with each
    job planned on arrival. Tasks are planned in order of upward rank. Each is planned on the node
    where it finishes earliest, in a gap between bookings if possible. The policy uses estimates.
    Its time complexity is that of ``Planned``.
    """
    return Planned(planners.plan_heft, placement)


def cpop(placement: str | PlacementRule = "best-fit") -> Planned:
    """Critical path on a processor (Topcuoglu, Hariri and Wu 2002, section 4.2), with each job
    planned on arrival. All tasks on the job's critical path are planned on the node that runs them
    fastest. The policy uses estimates. Its time complexity is that of ``Planned``.
    """
    return Planned(planners.plan_cpop, placement)


def peft(placement: str | PlacementRule = "best-fit") -> Planned:
    """Predict earliest finish time (Arabnejad and Barbosa 2014), with each job planned on arrival.
    It works like HEFT, but in choosing a node it also considers how soon the following tasks could
    end. The policy uses estimates. Its time complexity is that of ``Planned``, plus O(edges x
    nodes^2) for planning.
    """
    return Planned(planners.plan_peft, placement)


def dls(placement: str | PlacementRule = "best-fit") -> Planned:
    """Dynamic level scheduling (Sih and Lee 1993), with each job planned on arrival. The pair of a
    ready task and a node with the highest dynamic level comes first. The policy uses estimates. Its
    time complexity is that of ``Planned``, except that planning takes O(tasks) times as long.
    """
    return Planned(planners.plan_dls, placement)
