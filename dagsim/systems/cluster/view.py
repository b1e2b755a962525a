"""The seam between kernel and policies: a view of the present, and what decides on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import numpy as np

from dagsim.model import Cluster, Decision, GpuType, Placement, QueueTree
from dagsim.systems.cluster.expected_free import ExpectedFree
from dagsim.systems.cluster.nodes import ClusterState
from dagsim.systems.cluster.state import Frontier, JobState, Key, Queue, TaskState, TypedKey, TypedQueue

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel
    from dagsim.systems.cluster.models.overheads import Preemption
    from dagsim.systems.cluster.run import Run

__all__ = ["ClusterPolicy", "ClusterView"]

AnyIndex = TypeVar("AnyIndex")


@runtime_checkable
class ClusterPolicy(Protocol):
    """Decides. Heuristics, trained agents and users' own all look like this.

    A policy object serves one simulation at a time and may keep state about it; what it keeps must be deep-copyable, so
    that look-ahead can fork it. ``clairvoyant = True`` in its class lets it read ``task.truth`` and ``run.ends_s``.
    """

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        """Decisions for this instant, carried out one by one as they are yielded; the view shows each at once. Asked
        again until the answer is empty (or only ``Wait``), which means: wait for the next change; or until nothing
        waits any more."""
        ...


class ClusterView:
    """The present, as a policy may see it: live, read-only, O(1) to hand over. It never shows true durations (where
    estimates are not exact), nor arrivals to come."""

    __slots__ = ("_frontier", "_machines", "_simulation")

    def __init__(self, simulation: ClusterKernel) -> None:
        self._simulation = simulation
        self._frontier: Frontier = simulation.frontier
        self._machines: ClusterState = simulation.machines

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self._simulation.now

    @property
    def cluster(self) -> Cluster:
        """The cluster as configured."""
        return self._simulation.schedule.cluster

    @property
    def queues(self) -> QueueTree | None:
        """The queues as configured, if there are any."""
        return self._simulation.queues

    @property
    def machines(self) -> ClusterState:
        """The free resources by node. Read only."""
        return self._machines

    @property
    def gpu_types(self) -> tuple[GpuType | None, ...]:
        """The GPU types of the cluster, as ``TaskState.seconds`` counts them; ``None`` for CPU machines."""
        return self._machines.types

    @property
    def ready(self) -> Collection[TaskState]:
        """Ready tasks with waiting instances, in the order they became ready. A loop over them goes over those that
        were ready when it began, whatever is started in it; so do loops over ``jobs``, ``running``, ``applicants``."""
        return self._frontier.ready

    @property
    def jobs(self) -> Mapping[int, JobState]:
        """Jobs in the system, by number."""
        return self._frontier.jobs

    @property
    def running(self) -> Mapping[int, Run]:
        """Runs under way, by id."""
        return self._simulation.running

    @property
    def applicants(self) -> Mapping[int, JobState]:
        """Jobs that wait to be admitted or rejected, by number. Empty unless the simulation asks for admission."""
        return self._simulation.applicants

    @property
    def pending(self) -> bool:
        """True if anything is still to happen by itself, so that waiting makes sense."""
        return self._simulation.pending

    @property
    def expected_free(self) -> ExpectedFree:
        """Times at which GPUs are expected to be free: an index shared by all who ask, made when the first one does.
        Ask for it anew at each decision."""
        known = self.index(ExpectedFree, lambda: ExpectedFree(self))
        known.refresh()
        return known

    @property
    def preemption(self) -> Preemption:
        """The work that a stopped run keeps, and the cost of coming back."""
        return self._simulation.preemption

    def queue(self, key: Key) -> Queue:
        """Ready tasks indexed by ``key``, kept up to date by the kernel; pass the same function each time."""
        known = self._frontier.indexes.get(key)
        if known is None:
            known = self._build(Queue(key, self._machines), key)
        return known

    def typed_queue(self, key: TypedKey) -> TypedQueue:
        """Pairs of ready task and GPU type indexed by ``key``; pass the same function each time."""
        known = self._frontier.indexes.get(key)
        if known is None:
            known = self._build(TypedQueue(key, self._machines), key)
        return known

    def index(self, key: object, make: Callable[[], AnyIndex]) -> AnyIndex:
        """A policy's own index, made once and told of events. It is told by those of three methods that it has:
        ``push(task)`` of every task that becomes ready, ``started(run, now)`` and ``ended(run, now)`` of every run that
        does; first of all that are ready and all that run. In a fork it is made anew."""
        known = self._frontier.indexes.get(key)
        if known is None:
            known = self._build(make(), key)
        return known

    def follow(self, listener: object) -> None:
        """Tell ``listener`` of events as an ``index``, unless that is so already: for what keeps a past that no view
        shows. Call it at each decision. In a fork a copy of the listener is told again of what runs."""
        if listener not in self._frontier.indexes:
            self._build(listener, listener)

    def fits(self, task: TaskState) -> bool:
        """True if an instance of the task (a gang: all of it) could start now."""
        return self._machines.fits(task.demand)

    def fit(self, task: TaskState, type_: int | None = None) -> Placement | None:
        """A placement of the task's waiting instances: the fastest type that has room (or the given one;
        of equally fast ones the one with the fuller machine), on it best fit; of independent instances as many as one
        machine takes. ``None`` if there is no room."""
        demand, machines = task.demand, self._machines
        types = demand.types
        if type_ is not None:
            return machines.fit(demand, type_, task.waiting)
        if len(types) == 1:
            return machines.fit(demand, types[0], task.waiting)
        best, seconds, idle = None, inf, inf
        for type_ in sorted(types, key=task.seconds.__getitem__):
            if task.seconds[type_] > seconds:
                break
            placement = machines.fit(demand, type_, task.waiting)
            if placement is not None and (left := machines.list[placement[0].node].idle) < idle:
                best, seconds, idle = placement, task.seconds[type_], left
        return best

    def claimed_s(self, task: TaskState) -> tuple[float, ...] | None:
        """The seconds that the task's user claimed an instance to take (its time limit), by type; ``None`` if its user
        claimed nothing."""
        return self._simulation.claimed_s(task)

    def stream(self, name: str) -> np.random.Generator:
        """The named random stream of this simulation, for policies that draw."""
        return self._simulation.stream(name)

    def fork(self) -> ClusterKernel:
        """A simulation of what is known now that goes its own way, to ask what if. Tasks take what is estimated, nobody
        arrives any more and nothing fails."""
        return self._simulation.fork(known=True)

    def _build(self, index: AnyIndex, key: object) -> AnyIndex:
        self._frontier.build(index, key, self._simulation.running.values(), self._simulation.now)
        return index
