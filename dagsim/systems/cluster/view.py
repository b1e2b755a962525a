"""The interface between the kernel and policies. It consists of the protocol for policies, and of a
view of the current state, including the times at which GPUs are expected to become free.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np

from dagsim.model import Cluster, Decision, GpuType, Job, Placement, QueueTree
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.log import Schedule
from dagsim.model.streams import Streams
from dagsim.systems.cluster.frontier import Frontier, Key, Queue, TypedKey, TypedQueue
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.models.shared_gpus import Sharing
from dagsim.systems.cluster.resources.cluster_state import ClusterState
from dagsim.systems.cluster.resources.nodes import DemandClass
from dagsim.systems.cluster.state import JobState, Live, Run, TaskState

if TYPE_CHECKING:
    from dagsim.systems.cluster.arrivals.preparation import Preparation
    from dagsim.systems.cluster.network.links import FabricLevel

AnyIndex = TypeVar("AnyIndex")


@runtime_checkable
class ClusterPolicy(Protocol):
    """A scheduling policy. All policies implement this protocol: heuristics, trained agents and
    users' own policies.

    A policy object is used in one simulation at a time and may keep state about it. It must be
    possible to deep-copy this state, so that look-ahead can fork the simulation. With
    ``clairvoyant = True`` in its class, a policy may read ``task.truth`` and ``run.ends_s``.
    """

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        """Return the decisions for the current time. Each decision is carried out as soon as it is
        yielded, and the view shows its effect immediately. The policy is called again until it
        returns no decisions (or only ``Wait``), which means that it waits for the next change, or
        until no task is waiting.
        """


class Simulation(Protocol):
    """The interface that views and legality checks need from a kernel. ``ClusterKernel`` is the
    only implementation.
    """

    now: float
    schedule: Schedule
    machines: ClusterState
    frontier: Frontier
    running: Live[int, Run]
    applicants: Live[int, JobState]
    queues: QueueTree | None
    preemption: Preemption
    sharing: Sharing | None
    levels: tuple[FabricLevel, ...]
    preparation: Preparation
    streams: Streams

    @property
    def pending(self) -> bool:
        """See ``ClusterView.pending``."""

    @property
    def source(self) -> Iterable[Job]:
        """See ``ClusterView.source``."""
        ...

    def expected_rate(self, task: TaskState, placement: Placement) -> float:
        """See ``ClusterView.expected_rate``."""

    def expected_moves_s(self, moves: Sequence[tuple[Run, Placement]]) -> list[float]:
        """See ``ClusterView.expected_moves_s``."""

    def behind(self, active: JobState) -> int:
        """See ``ClusterView.behind``."""
        ...

    def fork(self, *, by_estimates: bool = False) -> Simulation:
        """Return an identical simulation that continues independently. With ``by_estimates``, the
        fork has no more information than a policy.
        """

    def decisions(self, until_s: float = inf) -> Generator[ClusterView, Iterable[Decision] | None, None]:
        """Yield views and receive decisions (see ``seam.Kernel.decisions``)."""

    def run(self, policy: ClusterPolicy, until_s: float = inf) -> Schedule:
        """Run the simulation with ``policy`` until every job has left the system, or until
        ``until_s``.
        """


class ClusterView:
    """The part of the current state that a policy may see. A view is live and read-only, and it is
    passed to the policy without a copy. It never shows true durations (unless estimates are exact)
    or future arrivals.
    """

    __slots__ = ("_frontier", "_machines", "_simulation")

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._frontier: Frontier = simulation.frontier
        self._machines: ClusterState = simulation.machines

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self._simulation.now

    @property
    def cluster(self) -> Cluster:
        """The cluster as the configuration describes it."""
        return self._simulation.schedule.cluster

    @property
    def queues(self) -> QueueTree | None:
        """The queues as the configuration describes them, if there are any."""
        return self._simulation.queues

    @property
    def machines(self) -> ClusterState:
        """The free resources of each node (read-only)."""
        return self._machines

    @property
    def gpu_types(self) -> tuple[GpuType | None, ...]:
        """The GPU types of the cluster, in the order of ``TaskState.seconds``, or ``None`` for CPU
        machines.
        """
        return self._machines.types

    @property
    def ready(self) -> Collection[TaskState]:
        """Tasks that are ready and have waiting instances, in the order in which they became ready.
        A loop over them visits the tasks that were ready when the loop began, even if it starts
        some of them. Loops over ``jobs``, ``running`` and ``applicants`` behave in the same way.
        """
        return self._frontier.ready

    @property
    def jobs(self) -> Mapping[int, JobState]:
        """Jobs in the system, by number."""
        return self._frontier.jobs

    @property
    def rejected(self) -> Sequence[JobState]:
        """Jobs that have just arrived at a site (``queues``) and were rejected because they could
        never run at this site. They are not in the system. If a policy represents a scheduler that
        keeps such jobs in its queue, the policy must remember them, because the list is emptied
        before simulated time advances.
        """
        return self._frontier.rejected

    @property
    def running(self) -> Mapping[int, Run]:
        """Current runs, by id."""
        return self._simulation.running

    @property
    def applicants(self) -> Mapping[int, JobState]:
        """Jobs waiting to be admitted or rejected, by number. There are none unless the simulation
        uses admission control.
        """
        return self._simulation.applicants

    @property
    def pending(self) -> bool:
        """True if a further event (such as the end of a run, or an arrival) will happen even
        without a decision. Only then may the policy wait.
        """
        return self._simulation.pending

    @property
    def expected_free(self) -> ExpectedFree:
        """The times at which GPUs are expected to become free. This index is created on first use
        and shared. Read this property again whenever you make a decision.
        """
        ends = self.index(ExpectedFree, lambda: ExpectedFree(self))
        ends.refresh()
        return ends

    @property
    def preemption(self) -> Preemption:
        """The share of its work that a stopped run keeps, and the cost of resuming the run."""
        return self._simulation.preemption

    @property
    def levels(self) -> Sequence[FabricLevel]:
        """The levels of the network above the nodes (such as racks and pods), from the narrowest to
        the widest, each with the domain of every node. The result is empty if the network has no
        levels.
        """
        return self._simulation.levels

    @property
    def sharing(self) -> Sharing | None:
        """The model for how fast runs are when they share GPUs (``Join``), or None if runs cannot
        share GPUs.
        """
        return self._simulation.sharing

    def queue(self, key: Key) -> Queue:
        """Return an index of the ready tasks, sorted by ``key``. The kernel keeps it up to date.
        Pass the same function each time.
        """
        index = self._frontier.indexes.get(key)
        if index is None:
            index = self._build(Queue(key, self._machines), key)
        return index

    def typed_queue(self, key: TypedKey) -> TypedQueue:
        """Return an index, sorted by ``key``, of all pairs of a ready task and a GPU type. The
        kernel keeps it up to date. Pass the same function each time.
        """
        index = self._frontier.indexes.get(key)
        if index is None:
            index = self._build(TypedQueue(key, self._machines), key)
        return index

    def index(self, key: object, make: Callable[[], AnyIndex]) -> AnyIndex:
        """Return an index that the policy defines itself. It is created once, and the kernel then
        keeps it up to date. The kernel calls those of the following methods that the index has:
        ``push(task)`` for every task that becomes ready, and ``started(run, now)`` and
        ``ended(run, now)`` for every run that starts or ends. A new index first receives all ready
        tasks and all runs. A fork creates its own index.
        """
        index = self._frontier.indexes.get(key)
        if index is None:
            index = self._build(make(), key)
        return index

    def follow(self, listener: object) -> bool:
        """Send the same events to ``listener`` that an ``index`` receives, unless it already
        receives them. Use this for a listener that records past events which a view does not show.
        Call this method at each decision. In a fork, the copy of the listener receives the runs
        again. Return True if the listener is new, and False if it already received events.
        """
        if listener in self._frontier.indexes:
            return False
        self._build(listener, listener)
        return True

    def fits(self, task: TaskState) -> bool:
        """Return True if an instance of the task (or the whole gang) could start now."""
        return self._machines.fits(task.demand)

    def fit(self, task: TaskState, type_: int | None = None) -> Placement | None:
        """Place the task's waiting instances by best fit. Return the placement, or ``None`` if they
        do not fit. The placement uses ``type_`` or, if that is None, the fastest type on which the
        task fits. If several types are equally fast, the method chooses the type with the fuller
        node. As many independent instances as possible are placed on a single node.
        """
        demand, machines = task.demand, self._machines
        types = demand.types
        if type_ is not None or len(types) == 1:
            return machines.fit(demand, types[0] if type_ is None else type_, task.waiting)
        best, seconds, idle = None, inf, inf
        for type_ in sorted(types, key=task.seconds.__getitem__):
            if task.seconds[type_] > seconds:
                break
            placement = machines.fit(demand, type_, task.waiting)
            if placement is not None and (left := machines.list[placement[0].node].idle) < idle:
                best, seconds, idle = placement, task.seconds[type_], left
        return best

    def expected_rate(self, task: TaskState, placement: Placement) -> float:
        """Return the rate at which a communicating gang would compute on ``placement`` while the
        current flows use the network. The rate is the step time without communication divided by
        the step time with communication. It is 1 for tasks that do not communicate.
        """
        return self._simulation.expected_rate(task, placement)

    def expected_moves_s(self, moves: Sequence[tuple[Run, Placement]]) -> list[float]:
        """Return, for each run, how many seconds would pass until it computes again if all runs
        moved now (``Migrate``). These times include the costs in ``preemption``. They also include
        the time to transfer the run's state, data and inputs while the current flows use the
        network. They do not include the work that the run would lose.
        """
        return self._simulation.expected_moves_s(moves)

    def behind(self, active: JobState) -> int:
        """Return how many tasks of a job's array are not in the system yet because of the array's
        limit (``Request.array_limit``).
        """
        return self._simulation.behind(active)

    @property
    def source(self) -> Iterable[Job]:
        """The jobs as they were passed to the simulation. They may contain more information than
        the jobs that arrive (``JobStream``). Only policies that reproduce a log need them. A fork
        has none.
        """
        return self._simulation.source

    def as_arrived(self, job: Job, number: int) -> JobState:
        """Return the state that a job would have if it arrived now. This does not add the job to
        the system. The job's number has to be negative, so that no other job has the same number.
        """
        return self._simulation.preparation.as_arrived(job, number)

    def requested_s(self, task: TaskState) -> tuple[float, ...] | None:
        """Return the time limit that the user requested for an instance of the task, in seconds by
        GPU type. Return ``None`` if the user requested no limit.
        """
        return self._simulation.preparation.requested_s(task)

    def stream(self, name: str) -> np.random.Generator:
        """Return a named random stream of this simulation, for randomised policies."""
        return self._simulation.streams.of(name)

    def fork(self) -> Simulation:
        """Return an independent simulation that starts from the current state, for trying out
        decisions. In this fork, tasks take their estimated times, no job arrives and nothing fails.
        """
        return self._simulation.fork(by_estimates=True)

    def _build(self, index: AnyIndex, key: object) -> AnyIndex:
        self._frontier.build(index, key, self._simulation.running.values(), self._simulation.now)
        return index


NEVER_S = 1e7
"""Represents an unknown end; finite, so that neural networks can read it."""

End: TypeAlias = tuple[float, int, float]
"""Expected end, id and GPUs of a run. The end lies in the past if the run takes longer than
estimated.
"""


class ExpectedFree:
    """The current runs on each GPU type, sorted by expected end, soonest first. The expected end of
    a run is the current value of ``Run.estimated_end_s``. Times are measured from the start of the
    simulation, whereas waits are measured from now.

    A start or an end costs O(log running), an access through the view costs O(runs that are not
    computing yet), and a query costs O(runs that end earlier).
    """

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._machines = view.machines
        self._ends: list[list[End]] = [[] for _ in view.gpu_types]
        self._of: dict[int, End] = {}
        """The entry of each run."""
        self._moving: dict[int, Run] = {}
        """Runs that make no progress yet. Their expected ends may change as time passes."""

    def started(self, run: Run, now: float) -> None:
        """Add a run that has started."""
        entry = self._of[run.id] = (run.estimated_end_s(now), run.id, run.gpus)
        insort(self._ends[run.type], entry)
        if run.computing_s is None:
            self._moving[run.id] = run

    def ended(self, run: Run, now: float) -> None:
        """Remove a run that has ended."""
        self._forget(run)
        self._moving.pop(run.id, None)

    def rated(self, run: Run, now: float) -> None:
        """Update the end of a run that continues at a new rate."""
        if run.id in self._of:
            self._forget(run)
            self.started(run, now)

    def refresh(self) -> None:
        """Update the estimated ends of runs that are not computing yet."""
        if self._moving:
            moving, self._moving = self._moving, {}
            for run in moving.values():
                self._forget(run)
                self.started(run, self._view.now)

    def ends(self, type_: int) -> Sequence[End]:
        """Return the expected end, the id and the GPUs of all runs on the type, soonest first."""
        return self._ends[type_]

    def eta_s(self, demand: DemandClass, type_: int) -> float:
        """Return the seconds until ``demand`` is expected to fit on the type, regardless of how the
        GPUs are distributed over nodes.
        """
        if type_ not in demand.types:
            return NEVER_S
        if self._machines.fits_on(demand, type_):
            return 0.0
        return self.free_in_s(demand.demand.gpus * (demand.gang or 1), type_)

    def free_in_s(self, gpus: float, type_: int) -> float:
        """Return the seconds until ``gpus`` GPUs of the type are expected to be idle."""
        return self.freed_in_s(gpus - self._machines.idle_gpus(type_), type_)

    def freed_in_s(self, gpus: float, type_: int, never_s: float = NEVER_S) -> float:
        """Return the seconds until runs on the type are expected to have released ``gpus`` more
        GPUs. Return 0 if ``gpus`` is 0, and ``never_s`` if this is never expected.
        """
        if gpus <= 0:
            return 0.0
        for end_s, _, held in self._ends[type_]:
            gpus -= held
            if gpus <= 0:
                return max(end_s - self._view.now, 0.0)
        return never_s

    def free_in_each_s(self, amounts: Sequence[float], idle: Sequence[int], never_s: float = NEVER_S) -> list[float]:
        """Return, for each type and each number of GPUs in ``amounts``, the seconds until so many
        GPUs are expected to be idle. ``idle`` is the number of GPUs of each type that are idle now.
        The value is ``never_s`` for an amount that is never expected to be idle.
        """
        now = self._view.now
        waits: list[float] = []
        for ends, free in zip(self._ends, idle, strict=True):
            for gpus in amounts:
                missing = gpus - free
                if missing <= 0:
                    waits.append(0.0)
                    continue
                for end_s, _, held in ends:
                    missing -= held
                    if missing <= 0:
                        waits.append(end_s - now if end_s > now else 0.0)
                        break
                else:
                    waits.append(never_s)
        return waits

    def free_within(self, wait_s: float, type_: int) -> float:
        """Return the number of GPUs of the type that are expected to be idle in ``wait_s`` seconds
        if nothing starts.
        """
        until = self._view.now + wait_s
        ending = ordered_sum([gpus for end_s, _, gpus in self._ends[type_] if end_s <= until])
        return self._machines.idle_gpus(type_) + ending

    def shadow(self, gpus: float, type_: int) -> tuple[float, float]:
        """Return the time at which ``gpus`` GPUs of the type are expected to be idle, and how many
        more GPUs are then idle. All runs that end at that time are counted as ended. Return ``(inf,
        0)`` if so many GPUs are never expected to be idle.
        """
        now = self._view.now
        missing = gpus - self._machines.idle_gpus(type_)
        shadow_s = now if missing <= 0 else inf
        for end_s, _, held in self._ends[type_]:
            if missing > 0:
                shadow_s = end_s if end_s > now else now
            elif end_s > shadow_s:
                break
            missing -= held
        return (shadow_s, -missing) if missing <= 0 else (inf, 0.0)

    def oldest_s(self, type_: int, count: int) -> list[float]:
        """Return, for each of the ``count`` oldest runs on the type, the seconds until its expected
        end, oldest run first. If there are fewer runs, the list is padded with 0.
        """
        now = self._view.now
        first = sorted([(id_, end_s) for end_s, id_, _ in self._ends[type_]])[:count]
        return [max(end_s - now, 0.0) for _, end_s in first] + [0.0] * (count - len(first))

    def times(self, type_: int) -> list[float]:
        """Return, for each GPU of the type, the time at which it is expected to become free,
        soonest first. A run that holds part of a GPU counts as holding all of it.
        """
        now = self._view.now
        times = [now] * self._machines.idle_gpus(type_)
        for end_s, _, gpus in self._ends[type_]:
            if gpus:
                times += [end_s if end_s > now else now] * max(round(gpus), 1)
        return times

    def _forget(self, run: Run) -> None:
        ends = self._ends[run.type]
        del ends[bisect_left(ends, self._of.pop(run.id))]
