"""The kernel: DAG jobs on a cluster, on SimPy's clock.

``ClusterKernel.decisions()`` is a generator. It processes all events of an instant (completions,
then repairs and failures, then arrivals), yields a ``ClusterView`` and receives decisions until the
answer is empty; then time moves on. ``run`` and the Gymnasium environment are two short drivers of
it.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from itertools import tee
from math import inf
from sys import float_info
from types import GeneratorType
from typing import TYPE_CHECKING, Any

import numpy as np
from simpy import Interrupt
from simpy.events import Event

from dagsim.errors import IllegalDecision, ModelError, Stalled
from dagsim.model import (
    Admit,
    Cluster,
    Decision,
    Elastic,
    InFlight,
    Job,
    JobFacts,
    Join,
    Kill,
    Kind,
    Migrate,
    Placement,
    Preempt,
    Reject,
    RejectReason,
    Resize,
    Start,
    Task,
    TrainingState,
    Wait,
)
from dagsim.model.arithmetic import bits
from dagsim.model.log import Schedule, packed_row, unpacked_row
from dagsim.model.streams import stream
from dagsim.systems.cluster.clock import ARRIVALS, COMPLETIONS, DISTURBANCES, FIRST, Clock, Timer
from dagsim.systems.cluster.dependencies import Dependencies, any_depends
from dagsim.systems.cluster.legality import (
    Allotted,
    applicant,
    joinable,
    moved,
    placed,
    resident,
    resizable,
    started,
    stopped,
    wake_up,
)
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.failures import FailureProcess, Outages, start_all
from dagsim.systems.cluster.network.base import (
    NO_CARRIER,
    Carrier,
    Communication,
    Flow,
    ForeseeingCarrier,
    GangCarrier,
    Storage,
    levels_in,
)
from dagsim.systems.cluster.nodes import ClusterState, DemandClass, NodeState
from dagsim.systems.cluster.past import check_in_flight, past_of
from dagsim.systems.cluster.site import SiteState, domain_sets, down_windows
from dagsim.systems.cluster.state import Frontier, Held, JobState, Live, Run, StateWrite, TaskState, WorkProgress
from dagsim.systems.cluster.view import ClusterPolicy, ClusterView
from dagsim.systems.seam import decisions_of, drive

if TYPE_CHECKING:
    from dagsim.network.routing import FabricLevel

Observer = Callable[[tuple[int, float, int, int, int, int, int, int, float]], None]
"""Called with each row of the log as it is written (fields as in ``Record``)."""

_ARRIVED, _ADMITTED, _REJECTED = int(Kind.ARRIVED), int(Kind.ADMITTED), int(Kind.REJECTED)
_STARTED, _COMPUTING, _FINISHED = int(Kind.STARTED), int(Kind.COMPUTING), int(Kind.FINISHED)
_PREEMPTED, _FAILED, _COMPLETED = int(Kind.PREEMPTED), int(Kind.FAILED), int(Kind.COMPLETED)
_DOWN, _UP, _RATE, _WRITTEN = int(Kind.DOWN), int(Kind.UP), int(Kind.RATE), int(Kind.WRITTEN)
_FEW_EVENTS = 256
"""Number of events on the clock from which it is first searched for events of stopped runs."""
_NAMED = 5
"""Maximum number of nodes and runs that a message names."""
_MOST_FAILURES = 1_000
"""Number of consecutive failures, each losing all work since the one before, after which a task is
assumed never to finish.
"""
_ITERABLE = frozenset((GeneratorType, list, tuple))
"""The usual types of a policy's answer; any other answer is checked for being iterable."""
_facts_of: Callable[[tuple[object, ...]], JobFacts] = partial(tuple.__new__, JobFacts)
"""Makes a ``JobFacts`` from its fields in order, without a Python function call per job."""
_NOTHING = ()
"""The usual answer of a policy that waits: Python has only one empty tuple."""


class Preempted:
    """The cause of an interrupt: a decision stopped the run."""


class NodeFailed:
    """The cause of an interrupt: a node of the run went down."""

    def __init__(self, node: int) -> None:
        self.node = node


class ClusterKernel:
    """One cluster, one stream of jobs, and the models of everything that takes time.

    ``jobs`` must be in order of arrival and is read lazily: only the next job and those in the
    system are in memory. A job is not ready before its ``eligible_s``. ``origin_s`` is the time of the
    log at 0 s. The same arguments and ``seed`` give the same log, byte for byte.

    The simulation begins at ``begins_s``. Jobs that arrived earlier are in the system then, and
    their instances in flight run (``Job.in_flight``): the log starts with this past. Times of
    disturbances count from the beginning.

    Raises:
        ModelError: An instance in flight does not fit into the cluster, or gangs communicate without a
            network that carries them.
    """

    # With more than 30 attributes, a dictionary would be slower to read than slots.
    __slots__ = (
        "_admission",
        "_arrived",
        "_away",
        "_bare",
        "_by_network",
        "_carrier",
        "_changed",
        "_communication",
        "_condition_s",
        "_crowded",
        "_dependencies",
        "_disturbing",
        "_down",
        "_estimated",
        "_estimates",
        "_events",
        "_held",
        "_jobs_left",
        "_keeps_on_failure",
        "_next_job",
        "_number_of_event",
        "_on_arrival",
        "_on_end",
        "_on_reached",
        "_on_set_up",
        "_pieces",
        "_record",
        "_remember",
        "_reopen_s",
        "_runtime",
        "_served",
        "_setup",
        "_shows_truth",
        "_source",
        "_started",
        "_storage",
        "_storage_nodes",
        "_streams",
        "_wake_s",
        "_writes",
        "applicants",
        "clock",
        "frontier",
        "jobs",
        "levels",
        "machines",
        "now",
        "preemption",
        "queues",
        "running",
        "schedule",
        "sharing",
    )

    def __init__(
        self,
        cluster: Cluster,
        jobs: Iterable[Job],
        models: Models | None = None,
        *,
        seed: int = 0,
        observers: Sequence[Observer] = (),
        origin_s: float = 0.0,
        begins_s: float = 0.0,
    ) -> None:
        models = Models() if models is None else models
        setup, network, sharing = models.setup, models.network, models.sharing
        self.queues = queues = models.queues
        self.schedule = Schedule(cluster, seed=seed, begins_s=begins_s)
        names = [node.name for node in cluster.nodes]
        levels = None if network is None else levels_in(network, names)
        self.levels: Sequence[FabricLevel] = levels or ()
        binds = levels is not None or SiteState.binds(cluster, queues)
        site = SiteState(cluster, queues, origin_s, domain_sets(levels, len(names))) if binds else None
        self.machines = ClusterState(cluster, site)
        self.frontier = Frontier()
        self.running: Live[int, Run] = Live()
        self.applicants: Live[int, JobState] = Live()
        self.jobs = jobs
        """The jobs as passed in; their source may have further information."""
        self._source: Iterator[Job] = iter(jobs)
        self._next_job: Job | None = None
        self._jobs_left = True
        self._runtime = models.runtime
        self._setup = setup
        self.sharing = sharing
        self.preemption = models.preemption
        self._estimates = models.estimates
        self._estimated = self._estimates.kind != "exact"
        disturbances = models.disturbances
        if queues is not None and queues.outages:
            down = down_windows(queues, names, origin_s, begins_s)
            disturbances = [*disturbances, Outages(down)]
        self._disturbing: list[FailureProcess] = start_all(disturbances, len(cluster.nodes), seed, begins_s)
        self._admission = models.admission
        self._shows_truth = False
        self._keeps_on_failure = self.preemption.on_failure == "resume" or self.preemption.interval_s is not None
        plain = setup is None and network is None and sharing is None and self.preemption.interval_s is None
        self._bare = plain and not any(node.mig_s is not None for node in cluster.nodes)
        """True if a run is a single timeout. Elastic tasks end that."""
        self.now = begins_s
        self._arrived = 0
        self._started = 0
        self._pieces = 0
        self._down = [0] * len(cluster.nodes)
        """Number of disturbances that hold each node down."""
        self._away = 0
        """Number of nodes that are down."""
        self._wake_s = inf
        self._dependencies = Dependencies() if any_depends(jobs) else None
        self._condition_s = inf
        """The time of the next timer for conditions of waiting jobs."""
        self._held: list[tuple[float, int, JobState]] = []
        """Jobs that have arrived and are not eligible yet: a heap by time and number."""
        self._reopen_s = -inf
        """The next time at which reservations change the nodes that are open to some task."""
        self._streams: dict[str, np.random.Generator] = {}
        self._served: list[list[int]] | None = None
        """The job that each GPU of each machine served last; kept only for a set-up model."""
        if setup is not None:
            self._served = [[-1] * node.gpus for node in cluster.nodes]
        self._changed = False
        self._observe(observers)
        self._start_clock(begins_s)
        self._carrier: Carrier | None = None if network is None else network.carrier(self.clock, cluster)
        self._communication = self._communicating(models.communication)
        self._storage: Storage | None = getattr(network, "storage", None)
        self._storage_nodes = [] if self._storage is None else self._storage.numbers(names)
        self._by_network = self._storage is not None and self._storage.checkpoints
        """True if states go over the network."""
        self._writes: dict[int, StateWrite] = {}
        """The states of stopped runs that the storage does not have yet, by the piece that needs them."""
        if begins_s:
            self._recall(begins_s)

    def _communicating(self, communication: Communication | None) -> Communication | None:
        """The model of what gangs send: the one passed in, or that of the runtime.

        Raises:
            ModelError: There are two, or one that the network or the other models do not allow.
        """
        runtime = self._runtime
        if isinstance(runtime, Communication):
            if communication is not None:
                raise ModelError("the runtime model knows what gangs send; leave communication out")
            communication = runtime
        if communication is None:
            return None
        if not isinstance(self._carrier, GangCarrier):
            raise ModelError(NO_CARRIER)
        if self.sharing is not None:
            raise ModelError("gangs that communicate cannot share GPUs; leave sharing out")
        return communication

    @property
    def node_count(self) -> int:
        """Number of nodes in the cluster."""
        return len(self.machines.list)

    @property
    def done(self) -> bool:
        """True if every job has arrived and left."""
        waiting = self._held or (self._dependencies is not None and self._dependencies.waiting)
        return not (self._jobs_left or self.frontier.jobs or self.applicants or waiting)

    @property
    def became_eligible_s(self) -> Mapping[int, float]:
        """When each job became eligible whose dependencies or array decided that, by number."""
        return {} if self._dependencies is None else self._dependencies.eligible_s

    @property
    def pending(self) -> bool:
        """True if something will happen without a decision: an end, an arrival, a requested
        wake-up, or a repair.
        """
        if self.running or self._jobs_left or self._held or self._wake_s < inf or self._writes:
            return True
        if self._dependencies is not None and self._dependencies.next_s < inf:
            return True
        if self.machines.site is not None and any(time_s > self.now for time_s in self.machines.site.boundaries):
            return True
        return any(disturbing.returning() for disturbing in self._disturbing)

    def run(self, policy: ClusterPolicy, until_s: float = inf) -> Schedule:
        """Drive the simulation with ``policy`` until every job has left (or until ``until_s``).

        Raises:
            IllegalDecision: A decision of the policy cannot be carried out.
            Stalled: The policy waits although nothing is pending.
        """
        return drive(self, policy, until_s)

    def decisions(self, until_s: float = inf) -> Generator[ClusterView, Iterable[Decision] | None, None]:
        """Yield a view whenever something has changed and receive decisions for it (``None``: no
        decision), repeatedly until the answer is empty or no task waits any more. Then let time
        pass, and so on until the end.
        """
        clock = self.clock
        settle, events = clock.settle, clock.events
        view, start, carry_out, ready = ClusterView(self), self._start, self._carry_out, self.frontier.ready
        last_s = min(until_s, float_info.max)
        while True:
            if self._changed:
                if self._wake_s <= self.now:
                    self._wake_s = inf
                if self._reopen_s <= self.now:
                    self._reopen_s = self.machines.reopen(self.now)
                answered = True
                while answered:
                    answered = False
                    decided = yield view
                    if decided is _NOTHING:
                        break
                    for decision in decided if type(decided) in _ITERABLE else decisions_of(decided, self.now):  # type: ignore[union-attr]
                        if type(decision) is Start:
                            start(decision.task, decision.placement)
                            answered = True
                        else:
                            answered = carry_out(decision) or answered
                    if not (ready or self.applicants):
                        break
                self._changed = False
            if not self.running:
                if self.done:
                    break
                if not self.pending or (self._away and self._is_hopeless()):
                    raise Stalled(self._why_stalled())
            now = events[0][0] if events else inf
            if now > last_s:
                if until_s == inf:
                    raise Stalled(self._why_stalled())
                self.now = max(until_s, self.now) if now == inf else now
                break
            self.now = now
            settle()
        self.schedule.ended_s = min(until_s, self.now)

    def show_truth(self) -> None:
        """Show true durations from now on: the policy has declared ``clairvoyant = True``."""
        self._shows_truth = True
        for active in (*self.frontier.jobs.values(), *self.applicants.values()):
            active.shows_truth = True

    def stream(self, name: str) -> np.random.Generator:
        """The random stream with that name. Each name has its own stream, so draws from others do
        not affect it.
        """
        rng = self._streams.get(name)
        if rng is None:
            rng = self._streams[name] = stream(self.schedule.seed, name)
        return rng

    def claimed_s(self, task: TaskState) -> tuple[float, ...] | None:
        """Seconds of an instance by type, from the work that the user claims; ``None`` without a
        claim.
        """
        claimed = task.task.estimate
        if claimed is None or not 0 <= claimed < inf:
            return None
        return self._runtime.seconds(replace(task.task, work=claimed), self.machines.types)

    def lasting(self) -> list[bool]:
        """For each node, True if it is up, or if every disturbance that has taken it down will
        bring it back.
        """
        due = Counter(node for disturbing in self._disturbing for node in disturbing.returning())
        return [due[node] == down for node, down in enumerate(self._down)]

    # The past of a simulation that begins in the middle.

    def _recall(self, begins_s: float) -> None:
        """Let the jobs arrive that are in the system at the beginning, and put their runs in flight
        on their nodes, each at its own time.
        """
        past: list[Job] = []
        for job in self._source:
            if job.arrival_s >= begins_s:
                self._next_job = job
                break
            past.append(job)
        bare, self._bare = self._bare, True  # runs in flight have fetched their inputs and set themselves up
        for self.now, number, event in past_of(past, begins_s):
            if isinstance(event, Job):
                self._arrive(event)
            else:
                self._resume(past[number], number, event)
        self.now, self._bare = begins_s, bare
        self.clock.not_before(begins_s)  # some are overdue
        for run in self.running.values():
            run._ends_s = max(run._ends_s, begins_s)
            self._setup_s(run)  # only so that its GPUs know the job that they serve
            if self._by_network and self.preemption.interval_s is not None:
                progress, interval_s = WorkProgress(run.computing_s or 0.0), self.preemption.interval_s
                progress.saved = (begins_s - progress.since_s) // interval_s * interval_s
                run.progress = progress
                self._plan_checkpoint(run, progress)
            if self._communication is not None or run.progress is not None:
                self._set_pace(run)
        self._changed = False  # first, what is due at the beginning happens
        Timer(self.clock, begins_s, ARRIVALS).callbacks.append(self._wake)

    def _resume(self, job: Job, number: int, run: InFlight) -> None:
        """Start a run of the past where it runs."""
        if number in self.applicants:
            self._admit(self.applicants[number])
        active = self.frontier.jobs.get(number)
        task = None if active is None else active.tasks[run.task]
        if task is not None and task.training is not None:
            raise ModelError(
                f"job {job.id!r}: its elastic task {task.task.name!r} cannot be in flight at the beginning"
            )
        check_in_flight(job, run, None if task is None else task.demand, self.machines)
        self._occupy(task, [Allotted(self.machines.list[node], count, gpu) for node, count, gpu in run.placement])  # type: ignore[arg-type]

    # Operations for disturbances.

    def take_down(self, node: int, notice_s: float = 0.0) -> None:
        """Take the node down, unless it is down already; its runs end as failed. They keep their work if
        ``notice_s`` are enough to write a checkpoint. If it goes over the network, that shows later.
        """
        machine = self.machines.list[node]
        self._down[node] += 1
        if not machine.up:
            return
        self.machines.take_down(machine)
        self._away += 1
        self._record(packed_row(_DOWN, self.now, -1, -1, -1, node, 0, 0, 0.0))
        self._changed = True
        for run in [run for run in self.running.values() if node in run.nodes]:
            if notice_s and (self._by_network or notice_s >= self.preemption.write_s):
                self._stop(run, _FAILED, NodeFailed(node), kept=True, notice_s=notice_s)
            else:
                saved = self.preemption.on_failure == "restart"
                self._stop(run, _FAILED, NodeFailed(node), kept=self._keeps_on_failure, saved=saved)

    def bring_up(self, node: int) -> None:
        """Bring the node back, unless another disturbance also holds it down."""
        machine = self.machines.list[node]
        self._down[node] = max(0, self._down[node] - 1)
        if machine.up or self._down[node]:
            return
        self.machines.bring_up(machine)
        self._away -= 1
        self._record(packed_row(_UP, self.now, -1, -1, -1, node, 0, 0, 0.0))
        self._changed = True

    # Arrivals and admission.

    def _arrivals(self, timer: Event) -> None:
        """Let the jobs that are due arrive, and set the timer for the next one: a job is read when
        the previous one has arrived.
        """
        now = self.now
        while True:
            if self._next_job is None:
                self._next_job = next(self._source, None)
            job = self._next_job
            if job is None:
                self._jobs_left = False
                return
            if job.arrival_s > now:
                timer.callbacks = self._on_arrival  # type: ignore[assignment]
                heappush(self._events, (job.arrival_s, ARRIVALS, next(self._number_of_event), timer))
                return
            if job.arrival_s < now:
                raise ModelError(f"job {job.id!r} arrives at {job.arrival_s!r} s, after one that arrived at {now!r} s")
            self._next_job = None
            self._arrive(job)

    def _arrive(self, job: Job) -> None:
        number = self._arrived
        self._arrived += 1
        self._changed = True
        graph, schedule, machines, runtime = job.graph, self.schedule, self.machines, self._runtime.seconds
        types, class_of, site = machines.types, machines.classes.get, machines.site
        active = JobState(job, number)
        if self._shows_truth:
            active.shows_truth = True
        tasks = active.tasks
        gpu_s, gpus_most, rejected = 0.0, 0.0, None
        parents = graph.parents
        for index, task in enumerate(graph.tasks):
            instances = task.instances
            demand = None if task.gang else class_of(task.demand)
            if demand is None:
                demand = machines.compile(task.demand, instances if task.gang else 0)
            seconds = runtime(task, types)
            if site is not None:
                demand = self._bound(site, job, task, seconds) or demand
            if inf in seconds:
                demand = machines.narrowed(demand, seconds)
            entry = TaskState(active, index, task, demand, seconds, len(parents[index]))
            tasks.append(entry)
            if task.elastic is not None:
                demand = self._enter_elastic(entry, task.elastic)
            if demand.rejected is not None:
                rejected = demand.rejected
            gpus = task.gpus * instances
            gpu_s += gpus * entry.best_s if gpus else 0.0
            if gpus > gpus_most:
                gpus_most = gpus
        if len(tasks) == 1:  # most jobs of most traces: without the calls
            ideal_s = active.ideal_s = entry.rank_s
            names: tuple[str, ...] = (task.name,)
        else:
            ideal_s, names = active.rank(), graph.names
        submitted = job.id, job.arrival_s, job.priority, job.tenant, job.deadline_s, job.weight
        self._remember(_facts_of(submitted + (ideal_s, gpu_s, float(gpus_most), names, parents)))  # noqa: RUF005
        if not number & 4095:
            schedule.log.pack()
        self._record(packed_row(_ARRIVED, self.now, number, -1, -1, -1, 0, 0, 0.0))
        if rejected is not None and not job.in_flight:  # what runs already may run
            self._record(packed_row(_REJECTED, self.now, number, -1, -1, -1, 0, 0, float(rejected)))
            return
        if self._estimated:
            self._estimates.apply(active, schedule.seed, lambda task: runtime(task, types))
        begins_s, waits = schedule.begins_s, None
        if self._dependencies is not None:
            waits = self._dependencies.arrived(active, self.now)
            self._time_conditions()
        if waits:
            return
        if (
            waits is None
            and job.eligible_s is not None
            and job.eligible_s > max(self.now, begins_s)
            and not job.in_flight
        ):
            self._hold_back(job.eligible_s, active)
        elif self._admission:
            self.applicants[number] = active
        elif len(tasks) == 1:
            self.frontier.jobs[number] = active
            self.frontier.add(entry, self.now)
        else:
            self._enter(active)

    def _enter_elastic(self, task: TaskState, elastic: Elastic) -> DemandClass:
        """Begin the training of an elastic task. Returns the demand that decides whether it can ever run.

        Raises:
            ModelError: No type of GPU has enough of them for its least size.
        """
        task.training = elastic.training.start()
        self._bare = False
        demand = task.demand
        if self.preemption.interval_s is not None and self._by_network:
            raise ModelError(
                f"job {task.job.job.id!r}: elastic tasks write no periodic checkpoints over a network; leave "
                "preemption interval_s out"
            )
        least = self.machines.compile(task.task.demand, elastic.least, demand.terms)
        if least.rejected is RejectReason.TOO_LARGE:
            most = max([self.machines.capacity(least, type_) for type_ in least.types])
            raise ModelError(
                f"job {task.job.job.id!r}, task {task.task.name!r}: it needs {elastic.least} to {elastic.most} "
                f"instances, and the nodes of one type have room for {most}"
            )
        return least

    def _bound(self, site: SiteState, job: Job, task: Task, seconds: tuple[float, ...]) -> DemandClass | None:
        """The demand class of a task that the site restricts, with the nodes that are open to it."""
        claimed = task.estimate
        claimed_s = None if claimed is None else self._runtime.seconds(replace(task, work=claimed), self.machines.types)
        terms = site.terms(job, claimed_s, min(seconds))
        if terms is None:
            return None
        demand = self.machines.compile(task.demand, task.instances if task.gang else 0, terms)
        demand.open_to(site.open(terms, self.now))
        self._reopen_s = min(self._reopen_s, site.next_s(terms, self.now))
        return demand

    def _hold_back(self, until_s: float, active: JobState) -> None:
        """Keep a job that has arrived out of the frontier until it is eligible."""
        heappush(self._held, (until_s, active.number, active))
        self._call_at(until_s, self._let_in)

    def _let_in(self, _: Event) -> None:
        while self._held and self._held[0][0] <= self.now:
            self._becomes_eligible(heappop(self._held)[2])

    def _becomes_eligible(self, active: JobState) -> None:
        self._changed = True
        if self._admission:
            self.applicants[active.number] = active
        else:
            self._enter(active)

    def _has_left(self, number: int) -> None:
        """Let the jobs in that have waited for a job that has left."""
        if self._dependencies is not None:
            for active in self._dependencies.left(number, self.now):
                self._becomes_eligible(active)
            self._time_conditions()

    def _time_conditions(self) -> None:
        """Set a timer for the next time at which a condition of a waiting job is met by itself."""
        if self._dependencies is not None and self._dependencies.next_s < self._condition_s:
            self._condition_s = self._dependencies.next_s
            self._call_at(max(self._condition_s, self.now, self.schedule.begins_s), self._time_has_come)

    def _time_has_come(self, _: Event) -> None:
        self._condition_s = inf
        if self._dependencies is not None:
            for active in self._dependencies.passed(self.now):
                self._becomes_eligible(active)
        self._time_conditions()

    def _call_at(self, time_s: float, callback: Callable[[Event], None]) -> None:
        timer = Timer(self.clock, time_s, ARRIVALS)
        timer.callbacks.append(callback)

    def _enter(self, active: JobState) -> None:
        self.frontier.jobs[active.number] = active
        for task in active.tasks:
            if not task.missing:
                self.frontier.add(task, self.now)

    # Carrying out decisions.

    def _carry_out(self, decision: object) -> bool:
        """Carry out the decision; True if the policy must be asked again."""
        if isinstance(decision, Preempt):
            self._preempt(stopped(self, decision.run))
        elif isinstance(decision, Wait):
            self._wait(wake_up(self.now, decision.until_s))
            return False
        elif isinstance(decision, Migrate):
            run = stopped(self, decision.run)
            shares = moved(self, run, decision.placement)
            self._occupy(self._preempt(run), shares)
        elif isinstance(decision, Resize):
            run = stopped(self, decision.run)
            shares = resizable(self, run, decision.placement)
            if run.progress is not None:
                self._settle(run, run.progress)
            training = placed(self, run.task, shares)  # refused before anything is stopped
            task = self._preempt(run)
            self._occupy(task, shares, training if self.preemption.on_resume == "resume" else None)
        elif isinstance(decision, Join):
            self._join(joinable(self, decision.task, decision.run), decision.task)  # type: ignore[arg-type]
        elif isinstance(decision, Admit):
            self._admit(applicant(self, decision.job))
        elif isinstance(decision, Reject):
            self._reject(applicant(self, decision.job))
        elif isinstance(decision, Kill):
            self._kill(*resident(self, decision))
        elif isinstance(decision, Start):
            self._start(decision.task, decision.placement)
        else:
            raise IllegalDecision(
                f"at {self.now:g} s: {decision!r} is not a decision; yield Start, Preempt, Migrate, Resize, Join, "
                "Admit, Reject, Kill or Wait"
            )
        return True

    def _start(self, task: Any, placement: Any) -> None:
        """Start the task if that is legal. The most common starts (independent instances, or a gang
        on one node) are checked right here, for speed.
        """
        try:
            ((node, instances, gpu),) = placement
            legal = type(node) is int is type(instances) and gpu is None and task in self.frontier.ready
            if legal:
                demand: DemandClass = task.demand
                machine = self.machines.list[node]
                room = machine.idle // demand.whole if demand.plain and machine.up else machine.room(demand)
                legal = (
                    machine.index == node  # a negative number would count from the end
                    and 0 < instances <= task.waiting
                    and instances <= room
                    and machine.type in demand.types
                    and (not demand.gang or (instances == task.waiting and task.training is None))
                )
        except (TypeError, ValueError, IndexError):
            legal = False
        if not legal:
            self._occupy(task, started(self, task, placement))
            return
        mask, on = self.machines.take(machine, demand, instances, None)
        self._launch(task, instances, ((machine, instances, mask, on),))

    def _occupy(self, task: TaskState, shares: list[Allotted], training: TrainingState | None = None) -> None:
        """Start the task on the checked shares: a gang as one run, otherwise one run per node. An
        elastic task goes on with ``training``, by default with its own.
        """
        take, demand = self.machines.take, task.demand
        if demand.gang:
            instances = task.waiting
            if task.task.elastic is not None:
                task.training = training or placed(self, task, shares)
                task.restore_s += task.task.elastic.restart_s
                instances = task.waiting = sum(share.instances for share in shares)
            held = tuple((share.machine, share.instances, *take(share.machine, demand, *share[1:])) for share in shares)
            self._launch(task, instances, held)
            return
        for machine, instances, gpu in shares:
            self._launch(task, instances, ((machine, instances, *take(machine, demand, instances, gpu)),))

    def _join(self, host: Run, task: TaskState) -> None:
        """Start the task beside a run, on its GPUs."""
        for machine, count, *_ in host.held:
            self.machines.join(machine, task.demand, count)
        host.beside = (self._started,)
        self._launch(task, host.instances, host.held, (host.id,))
        if host.computing_s is not None:
            self._set_pace(host)

    def _launch(self, task: TaskState, instances: int, held: tuple[Held, ...], beside: tuple[int, ...] = ()) -> None:
        """Make the run, write its rows, and schedule its end."""
        now = self.now
        id_ = self._started
        self._started = id_ + 1
        run = self.running[id_] = Run(self.clock, id_, task, instances, held, now)
        if beside:
            run.beside = beside
        task.waiting -= instances
        if not task.waiting:
            del self.frontier.ready[task]
        number, index, gpus = task.job.number, task.index, task.demand.demand.gpus
        if task.demand.terms is not None:
            self.machines.hold(task.demand, 1, now)
        if self._dependencies is not None and self._dependencies.started(number, now):
            self._time_conditions()
        for machine, count, mask, _ in held:
            if not machine.named:
                mask = 0
            self._record(packed_row(_STARTED, now, number, index, id_, machine.index, count, mask, gpus * count))
        if self._bare and not task.restore_s:
            run._ends_s = end = now + run._seconds
            run.computing_s = now
            run.callbacks = self._on_end  # type: ignore[assignment]
            heappush(self._events, (end, COMPLETIONS, next(self._number_of_event), run))  # ``Clock.at``
        else:
            self._prepare(run)
        for tell in self.frontier.started:
            tell(run, now)

    def _prepare(self, run: Run) -> None:
        """Let the run fetch its inputs and set itself up before it computes."""
        run.setup_s = run.task.restore_s + self._setup_s(run)
        if self._carrier is not None:
            saved = run.task.saved
            state = None if saved is None else saved[1] if run.moves else ()
            run.flows = self._flows(run.task, _places(run), state)
        write = self._writes.get(run.task.piece)
        if write is not None and run.moves and not run.task.waiting:
            self._cancel(write)  # the storage does not need it any more
        if run.flows or write is not None:
            run._ends_s = inf
            run.process = self.clock.process(self._fetch(run))
        else:
            self._compute_or_set_up(run)

    def _preempt(self, run: Run) -> TaskState:
        return self._stop(run, _PREEMPTED, Preempted(), kept=self.preemption.on_resume == "resume")

    def _wait(self, until_s: float) -> None:
        if until_s < self._wake_s:
            self._wake_s = until_s
            self._call_at(until_s, self._wake)

    def _wake(self, _: Event) -> None:
        self._changed = True

    def _admit(self, active: JobState) -> None:
        del self.applicants[active.number]
        self._record(packed_row(_ADMITTED, self.now, active.number, -1, -1, -1, 0, 0, 0.0))
        self._enter(active)

    def _reject(self, active: JobState) -> None:
        del self.applicants[active.number]
        self._record(packed_row(_REJECTED, self.now, active.number, -1, -1, -1, 0, 0, float(RejectReason.BY_POLICY)))
        self._has_left(active.number)

    def _kill(self, active: JobState, reason: RejectReason) -> None:
        """End everything that is left of a job. O(running + ready)."""
        number = active.number
        for write in {id(write): write for write in self._writes.values() if write.run[0] == number}.values():
            self._cancel(write)
        for run in [run for run in self.running.values() if run.task.job is active]:
            run.disarm()
            if run.process is not None and run.process.is_alive:
                run.process.interrupt(Preempted())
            self._release(run, _PREEMPTED)
        for task in [task for task in self.frontier.ready if task.job is active]:
            task.waiting = 0  # indexes drop what does not wait
            del self.frontier.ready[task]
        del self.frontier.jobs[number]
        self._changed = True
        self._record(packed_row(_REJECTED, self.now, number, -1, -1, -1, 0, 0, float(reason)))
        self._has_left(number)

    # The life of a run.

    def _fetch(self, run: Run) -> Generator[Event, object, None]:
        """The SimPy process of a run that reads its inputs over the network: outputs of its parents, data,
        and its state, once the storage has it.
        """
        try:
            write = self._writes.get(run.task.piece)
            if write is not None and write.process is not None and not run.moves:
                yield write.process
            yield from self._carrier.fetch(run.flows)  # type: ignore[union-attr]
        except Interrupt:
            return
        run.process = None
        run.flows = []
        self._compute_or_set_up(run)

    def _compute_or_set_up(self, run: Run) -> None:
        now = self.now
        if run.setup_s:
            run._ends_s = now + run.setup_s
            run.callbacks = self._on_set_up  # type: ignore[assignment]
        else:
            run.computing_s = now
            if self.preemption.interval_s is not None:
                if self._by_network:
                    run.progress = WorkProgress(now)
                    self._plan_checkpoint(run, run.progress)
                elif run.task.training is not None:
                    run.progress = WorkProgress(now)
                    self._has_written(run.progress, run.task.training)
                else:
                    run._seconds = self.preemption.with_writes_s(run._seconds)
            run._ends_s = now + run._seconds
            run.callbacks = self._on_end  # type: ignore[assignment]
            if now > run.started_s:
                self._record_run(_COMPUTING, run)
            paced = self._communication is not None or self.sharing is not None or run.task.training is not None
            if paced or run.progress is not None:
                self._set_pace(run)
                if run.progress is not None:
                    return  # it has its own event
        self.clock.at(run._ends_s, COMPLETIONS, run)

    # States on the network: checkpoints, and what runs write after they were stopped.

    def _state_flows(self, task: TaskState, places: Iterable[tuple[int, int]]) -> list[Flow]:
        """The state of instances, from their nodes to the storage."""
        size, store = task.task.memory_gb * 1e9, self._storage_nodes[task.job.number % len(self._storage_nodes)]
        return [Flow(node, store, size * count) for node, count in places if size and node != store]

    def _plan_checkpoint(self, run: Run, progress: WorkProgress) -> None:
        progress.checkpoint = self.preemption.next_checkpoint_s(progress.saved, run._seconds)

    def _checkpoint(self, run: Run, progress: WorkProgress) -> None:
        """Let a run pause until its state is in the storage."""
        self._settle(run, progress)
        progress.done = progress.checkpoint
        run.flows = self._state_flows(run.task, _places(run))
        if not run.flows:
            self._has_saved(run, progress)
            return
        if progress.gang is not None:
            self._carrier.end(progress.gang)  # type: ignore[union-attr]
            progress.gang = None
        self._record_rate(run, 0.0)
        progress.rate, run._ends_s = 0.0, inf
        run.process = self.clock.process(self._save(run, progress))
        for tell in self.frontier.rated:
            tell(run, self.now)

    def _save(self, run: Run, progress: WorkProgress) -> Generator[Event, object, None]:
        """The SimPy process of a run that writes a checkpoint."""
        numbers = run.task.job.number, run.task.index, run.id
        try:
            yield from self._carrier.fetch(run.flows)  # type: ignore[union-attr]
        except Interrupt:
            self._record_written(numbers, run.flows)
            return
        self._record_written(numbers, run.flows)
        run.process = None
        run.flows = []
        self._has_saved(run, progress)

    def _has_saved(self, run: Run, progress: WorkProgress) -> None:
        """Let a run go on whose state is in the storage."""
        progress.saved = progress.done
        self._plan_checkpoint(run, progress)
        if progress.rate:
            self.set_rate(run, progress.rate)
        else:
            self._set_pace(run)

    def _begin(self, write: StateWrite) -> None:
        write.process = self.clock.process(self._write(write))
        if write.deadline_s < inf:
            timer = Timer(self.clock, write.deadline_s, DISTURBANCES)
            timer.callbacks.append(lambda _: self._interrupt(write))

    def _write(self, write: StateWrite) -> Generator[Event, object, None]:
        """The SimPy process of the state that a stopped run writes."""
        arrived = True
        try:
            yield from self._carrier.fetch(write.flows)  # type: ignore[union-attr]
        except Interrupt:
            arrived = False
        self._record_written(write.run, write.flows)
        self._writes = {piece: other for piece, other in self._writes.items() if other is not write}
        if write.pieces:
            self.frontier.add(write.pieces[0 if arrived else 1], self.now)
            self._changed = True

    def _interrupt(self, write: StateWrite) -> None:
        if write.process is not None and write.process.is_alive:
            write.process.interrupt()

    def _cancel(self, write: StateWrite) -> None:
        """End a write that nobody needs any more."""
        self._writes = {piece: other for piece, other in self._writes.items() if other is not write}
        write.pieces = ()
        self._interrupt(write)

    def _record_written(self, run: tuple[int, int, int], flows: Sequence[Flow]) -> None:
        for flow in flows:
            if sent := flow.sent(self.now):
                self._record(packed_row(_WRITTEN, self.now, *run, flow.source, 0, 0, sent / 1e9))

    # Rates. A run has work left and a present rate; most runs have rate 1 from their start to their end, and no
    # ``WorkProgress``. A change adds up the work done, and sets another event for the end: the event before it stays on
    # the clock and does nothing.

    def set_rate(self, run: Run, rate: float, until: float = inf, after_s: float | None = None) -> None:
        """Let a run that computes go on at ``rate`` from now on, and time its end again. An elastic
        task is asked for its pace again at the progress ``until``, or ``after_s`` seconds from now.

        Raises:
            ModelError: The run does not compute yet, or the rate is not a finite number of 0 or more.
        """
        now, progress, training = self.now, run.progress, run.task.training
        if run.computing_s is None or not 0 <= rate < inf:
            raise ModelError(f"at {now:g} s: run {run.id} of {run.task.name} cannot go on at rate {rate!r}")
        if progress is None:
            if rate == 1.0 and training is None:
                return
            progress = run.progress = WorkProgress(run.computing_s)
        elif rate == progress.rate and until == progress.until and progress.event is not None:
            return
        self._settle(run, progress)
        run.disarm()
        if rate != progress.rate or progress.since_s == run.computing_s:
            self._record_rate(run, rate)
        progress.rate, progress.usual, progress.until = rate, rate, until
        end = min(run._seconds, progress.checkpoint)
        left = end - progress.done if training is None else until - training.progress
        if after_s is None:
            after_s = left / rate if rate else inf
        if training is not None and rate and progress.checkpoint < progress.done + after_s:
            progress.phase, after_s = "work", progress.checkpoint - progress.done
        run._ends_s = now + max(after_s, 0.0)
        self._set_end(run, progress)
        if len(self.clock.events) > self._crowded:
            self._forget_stopped()
        for tell in self.frontier.rated:
            tell(run, now)

    def _set_end(self, run: Run, progress: WorkProgress) -> None:
        if run._ends_s < inf:
            progress.event = Timer(self.clock, run._ends_s, COMPLETIONS, run)
            progress.event.callbacks = self._on_reached

    def _settle(self, run: Run, progress: WorkProgress) -> None:
        """Add up the work that a run has done until now."""
        work = (self.now - progress.since_s) * progress.rate
        if run.task.training is None:
            progress.done += work
        else:
            run.task.training.advance(work)
            progress.done += self.now - progress.since_s if progress.rate else 0.0
        progress.since_s = self.now

    def _set_pace(self, run: Run) -> None:
        """Let a run that computes go on at the rate that its partner, or its training, leaves it."""
        task, gang = run.task, None
        if run.process is not None:
            return  # it writes a checkpoint
        if self._communication is not None and task.training is None:
            placement = [(machine, count, mask) for machine, count, mask, _ in run.held]
            gang = self._gang(task, run.type, placement)
        if task.training is not None:
            self.set_rate(run, *task.training.pace())
        elif gang is not None:
            progress = run.progress = run.progress or WorkProgress(run.computing_s)  # type: ignore[arg-type]
            progress.gang = gang
            self._carrier.begin(gang, partial(self.set_rate, run))  # type: ignore[union-attr]
        elif self.sharing is not None:
            rate, gpu = 1.0, self.machines.types[run.type]
            for other in run.beside:
                partner = self.running[other].task.task
                rate = self.sharing.rate(task.task, partner, "" if gpu is None else gpu.name, self.now)
            self.set_rate(run, rate)
        elif run.progress is not None:
            self.set_rate(run, 1.0)

    def _gang(self, task: TaskState, type_: int, placement: Iterable[tuple[NodeState, int, int]]) -> Any:
        """The communication of a gang on machines, each with its number of instances and the bit mask
        of their GPUs; None if it sends nothing.
        """
        from dagsim.systems.cluster.models.communication import gang_step

        held = [(machine.index, count, mask) for machine, count, mask in placement]
        types = self.machines.types
        step = gang_step(self._communication, self._runtime, task.task, types, types[type_], held)  # type: ignore[arg-type]
        try:
            return None if step is None else self._carrier.gang(*step)  # type: ignore[union-attr]
        except ModelError as error:
            raise ModelError(f"at {self.now:g} s: {task.name}: {error}") from None

    def expected_rate(self, task: TaskState, placement: Placement) -> float:
        """See ``ClusterView.expected_rate``."""
        if self._communication is None or not placement:
            return 1.0
        machines = self.machines.list
        held = []
        for node, count, _ in placement:
            mask, free = 0, machines[node].free
            for _ in range(count * task.demand.whole):
                mask |= free & -free
                free &= free - 1
            held.append((machines[node], count, mask))
        gang = self._gang(task, held[0][0].type, held)
        return 1.0 if gang is None else self._carrier.expected(gang)  # type: ignore[union-attr]

    def expected_moves_s(self, moves: Sequence[tuple[Run, Placement]]) -> list[float]:
        """See ``ClusterView.expected_moves_s``."""
        kept, sizes, flows = self.preemption.on_resume == "resume", [], []
        for run, placement in moves:
            sizes.append(run.task.task.memory_gb)
            if self._carrier is not None:
                state = _places(run) if kept and self._by_network else None
                flows.append(self._flows(run.task, [share[:2] for share in placement], state))
        fixed_s = [self.preemption.cost_s(size, kept and not self._by_network) for size in sizes]
        if not any(flows) or not isinstance(self._carrier, ForeseeingCarrier):
            return fixed_s
        return [fixed + sent for fixed, sent in zip(fixed_s, self._carrier.expected_s(flows), strict=True)]

    def _reached(self, event: Event) -> None:
        """End a run with a rate, or the epoch of an elastic one; or let it write a checkpoint."""
        run: Run = event._value
        training, progress = run.task.training, run.progress
        assert progress is not None
        progress.event = None
        if training is not None:
            if progress.phase != "epoch":
                self._write_elastic(run, progress, training)
                return
            progress.done += self.now - progress.since_s if progress.rate else 0.0
            training.end_epoch()
            progress.since_s = self.now
            if not training.done:
                self._set_pace(run)
                self._changed = True
                return
        elif progress.checkpoint < run._seconds:
            self._checkpoint(run, progress)
            return
        self._end(run)

    def _write_elastic(self, run: Run, progress: WorkProgress, training: TrainingState) -> None:
        """Let an elastic run write a checkpoint, or go on after that."""
        if progress.phase == "work":
            self._settle(run, progress)
            progress.phase = "write"
            self.set_rate(run, 0.0, training.progress, self.preemption.write_s)
        else:
            self._has_written(progress, training)
            self._set_pace(run)
        self._changed = True

    def _has_written(self, progress: WorkProgress, training: TrainingState) -> None:
        """Keep the state of an elastic run, and plan its next checkpoint."""
        assert self.preemption.interval_s is not None
        progress.state, progress.phase = training.copy(), "epoch"
        progress.checkpoint = progress.done + self.preemption.interval_s

    def _record_rate(self, run: Run, rate: float) -> None:
        task = run.task
        for machine, count, mask, _ in run.held:
            named = mask if machine.named else 0
            self._record(
                packed_row(_RATE, self.now, task.job.number, task.index, run.id, machine.index, count, named, rate)
            )

    def _set_up(self, event: Event) -> None:
        run: Run = event  # type: ignore[assignment]
        run.setup_s = 0.0
        self._compute_or_set_up(run)

    def _end(self, event: Event) -> None:
        """Complete a run. Its task and then its job may be done, and children may become ready."""
        run: Run = event  # type: ignore[assignment]
        self._release(run, _FINISHED)
        now, active, index = self.now, run.task.job, run.task.index
        if self._carrier is not None:
            places = active.places.setdefault(index, {})
            for machine, count, _, _ in run.held:
                places[machine.index] = places.get(machine.index, 0) + count
        tasks = active.tasks
        task = tasks[index]
        task.unfinished -= run.instances
        if task.unfinished:
            if task.task.elastic is None:
                return
            task.unfinished = 0  # an elastic task is done as a whole, whatever its size
        for child in active.job.graph.children[index]:
            waiter = tasks[child]
            waiter.missing -= 1
            if not waiter.missing:
                self.frontier.add(waiter, now)
        active.tasks_left -= 1
        if not active.tasks_left:
            del self.frontier.jobs[active.number]
            tasks.clear()  # job and tasks refer to each other: without this only the garbage collector frees them
            self._record(packed_row(_COMPLETED, self.now, active.number, -1, -1, -1, 0, 0, 0.0))
            self._has_left(active.number)

    def _stop(
        self, run: Run, kind: int, cause: object, *, kept: bool, saved: bool = False, notice_s: float = 0.0
    ) -> TaskState:
        """End a run before its time; its instances become ready again. With ``kept`` it keeps its work,
        with ``saved`` only what is in its last checkpoint. After ``notice_s``, its nodes cannot send its
        state any more; None returns before that shows.
        """
        now, computing = self.now, run.computing_s is not None
        run.disarm()
        if run.process is not None and run.process.is_alive:
            run.process.interrupt(cause)
        self._release(run, kind)
        if len(self.clock.events) > self._crowded:
            self._forget_stopped()
        self._pieces += 1
        again = self._piece(run, kind, kept=kept, saved=saved)
        if self._by_network and kept and not saved:
            places = _places(run)
            pending = self._writes.get(run.task.piece)
            if not computing and run.moves and again.saved is not None:
                places = again.saved[1]
                again.saved = now, places
            elif not computing:
                places = ()
            if pending is not None:
                self._writes[again.piece] = pending
            flows = self._state_flows(run.task, places) if kind == _PREEMPTED or notice_s else ()
            if flows:
                write = self._writes[again.piece] = StateWrite(run, flows)
                if notice_s:
                    lost = self._piece(
                        run, kind, kept=self._keeps_on_failure, saved=self.preemption.on_failure == "restart"
                    )
                    write.deadline_s, write.pieces = now + notice_s, (again, lost)
                self._begin(write)
                if notice_s:
                    return again
        if again.failures >= _MOST_FAILURES:
            raise Stalled(
                f"at {now:g} s: {again.name} failed {_MOST_FAILURES} times in a row with its nodes and lost its "
                f"work each time; it takes {run._seconds:g} s there. Set preemption on_failure to resume, or let "
                "nodes stay up longer"
            )
        self.frontier.add(again, now)
        return again

    def _piece(self, run: Run, kind: int, *, kept: bool, saved: bool) -> TaskState:
        """The instances of a stopped run as a piece of their task, with the number ``_pieces``."""
        task, elastic = run.task, run.task.task.elastic
        left = self._left(run, saved=saved) if kept else 1.0
        saves = kept and run.computing_s is not None
        cost_s = self.preemption.cost_s(task.task.memory_gb, saves and not self._by_network)
        again = task.piece_of(self._pieces, run.instances if elastic is None else task.task.instances, left, cost_s)
        if not kept:
            again.saved = None
            if elastic is not None:
                again.training = elastic.training.start()
        elif saved and run.progress is not None and run.progress.state is not None:
            again.training = run.progress.state
        elif self._by_network and saves and left < task.left:
            again.saved = self.now, () if kind == _FAILED else _places(run)
        if kind == _FAILED:
            again.failures = task.failures + 1 if left >= task.left else 0
        return again

    def _left(self, run: Run, *, saved: bool) -> float:
        """The part of its task's work that a run leaves if it stops now and keeps what it did; with
        ``saved`` only what is in its last checkpoint.
        """
        task, progress = run.task, run.progress
        if progress is not None:
            self._settle(run, progress)
            if task.training is not None:
                state = progress.state if saved and progress.state is not None else task.training
                return max(0.0, 1.0 - state.progress / state.total)
            passed_s = progress.done
        else:
            passed_s = self.now - run.computing_s if run.computing_s is not None else 0.0
        if self._by_network:
            whole_s = run._seconds
            if saved:
                passed_s = 0.0 if progress is None else progress.saved
        elif self.preemption.interval_s is not None and run.computing_s is not None:
            whole_s = self.preemption.worked_s(run._seconds)
            passed_s = self.preemption.worked_s(passed_s, saved=saved)
        else:
            whole_s = run._seconds
        return task.left * max(0.0, 1.0 - (passed_s / whole_s if whole_s else 0.0))

    def _forget_stopped(self) -> None:
        """Remove the ends of stopped runs, and ends that were timed again, from the clock, once they
        may be half of its events.
        """
        self.clock.keep(lambda event: bool(event.callbacks) or not isinstance(_run_of(event), Run))
        self._crowded = 2 * len(self.clock.events) + _FEW_EVENTS

    def _release(self, run: Run, kind: int) -> None:
        """Release the resources of a run and write its last rows."""
        self._changed = True
        id_ = run.id
        del self.running[id_]
        task = run.task
        active, demand = task.job, task.demand
        now = self.now
        gpus = demand.demand.gpus
        active.service_gpu_s += gpus * run.instances * (now - run.started_s)
        give = self.machines.give
        if demand.terms is not None:
            self.machines.hold(demand, -1, now)
        for machine, count, mask, on in run.held:
            if run.beside:
                self.machines.leave(machine, demand, count)
            else:
                give(machine, demand, count, mask, on)
            named = mask if machine.named else 0
            self._record(
                packed_row(kind, now, active.number, task.index, id_, machine.index, count, named, gpus * count)
            )
        for tell in self.frontier.ended:
            tell(run, now)
        if run.progress is not None and run.progress.gang is not None:
            self._carrier.end(run.progress.gang)  # type: ignore[union-attr]
        for other in run.beside:
            partner = self.running[other]
            partner.beside = ()
            if partner.computing_s is not None:
                self._set_pace(partner)

    def _record_run(self, kind: int, run: Run) -> None:
        task = run.task
        gpus = task.demand.demand.gpus
        for machine, count, mask, _ in run.held:
            named = mask if machine.named else 0
            self._record(
                packed_row(
                    kind, self.now, task.job.number, task.index, run.id, machine.index, count, named, gpus * count
                )
            )

    def _setup_s(self, run: Run) -> float:
        """Return the set-up time by the set-up model and of parts of GPUs that are made for it, and
        record the job that the GPUs serve from now on.
        """
        parting_s = max([machine.node.mig_s or 0.0 for machine, *_ in run.held if machine.remade], default=0.0)
        if self._setup is None or self._served is None:
            return parting_s
        number = run.task.job.number
        previous = []
        for machine, _, mask, _ in run.held:
            served = self._served[machine.index]
            for gpu in bits(mask):
                previous.append(served[gpu])
                served[gpu] = number
        return parting_s + self._setup.seconds(run.task.task, number, tuple(previous))

    def _flows(
        self, task: TaskState, places: Sequence[tuple[int, int]], state: Sequence[tuple[int, int]] | None
    ) -> list[Flow]:
        """The flows that a run on ``places`` must read: the output of each parent, from the nodes where its
        instances ran, in proportion to their number there, and its data from the storage. A run that has
        kept its work reads its ``state`` instead, from the nodes that have it or else from the storage.
        """
        active, index = task.job, task.index
        graph = active.job.graph
        share_here = {node: count / graph.tasks[index].instances for node, count in places}
        flows = [] if self._storage is None else self._stored(task, places, state, self._storage)
        for edge in active.job.graph.edges:
            if edge.child == index and edge.bytes:
                instances = graph.tasks[edge.parent].instances
                for source, count in active.places[edge.parent].items():
                    for node, part in share_here.items():
                        if node != source:
                            flows.append(Flow(source, node, edge.bytes * part * count / instances))
        return flows

    def _stored(
        self,
        task: TaskState,
        places: Sequence[tuple[int, int]],
        state: Sequence[tuple[int, int]] | None,
        storage: Storage,
    ) -> list[Flow]:
        sources: Sequence[tuple[int, float]] = [(self._storage_nodes[task.job.number % len(self._storage_nodes)], 1.0)]
        size = storage.load_bytes(task.task.model) / task.task.instances
        if state is not None:
            size = task.task.memory_gb * 1e9
            if state:
                total = sum(count for _, count in state)
                sources = [(node, count / total) for node, count in state]
        return [
            Flow(source, node, size * count * part)
            for node, count in places
            for source, part in sources
            if size and source != node
        ]

    # Clock and observers.

    def _start_clock(self, now: float) -> None:
        self.clock = clock = Clock(now)
        self._events, self._number_of_event = clock.events, clock.numbers
        self._crowded = _FEW_EVENTS
        """Number of events on the clock above which those of stopped runs are removed."""
        self._on_end = [self._end]
        self._on_set_up = [self._set_up]
        self._on_reached: list[Callable[[Event], None]] = [self._reached]
        self._on_arrival = [self._arrivals]
        if self._jobs_left:
            # With a past, runs that end at the beginning make room first.
            timer = Timer(clock, now, ARRIVALS if now == self.schedule.begins_s > 0 else FIRST)
            timer.callbacks = self._on_arrival  # type: ignore[assignment]
        for until_s, *_ in self._held:
            self._call_at(until_s, self._let_in)
        self._condition_s = inf
        self._time_conditions()
        if self.machines.site is not None:
            for time_s in self.machines.site.boundaries:
                if time_s > now:
                    self._call_at(time_s, self._wake)
        for disturbing in self._disturbing:
            for process in disturbing.processes(clock, self):
                clock.process(process)

    def _observe(self, observers: Sequence[Observer]) -> None:
        self._remember: Callable[[JobFacts], None] = self.schedule.jobs.append  # type: ignore[attr-defined]
        """Add the facts of a job that arrived."""
        append = self.schedule.log.append_packed
        if not observers:
            self._record = append
            return

        def record(row: bytes) -> None:
            append(row)
            for observer in observers:
                observer(unpacked_row(row))

        self._record = record

    # Forks: an equal simulation at the present instant, made from the plain data that a simulation is. SimPy's
    # environment cannot be copied, so the twin gets a clock of its own, on which the same ends are set in the same
    # order. Everything else that changes is copied, and what does not change is shared.

    def fork(self, *, by_estimates: bool = False) -> ClusterKernel:
        """Return an equal simulation at the present instant that continues independently. Costs
        O(jobs in the system + machines).

        Observers stay with the original. Future jobs are shared and read once, by the first
        simulation that needs them. With ``by_estimates`` it has no more information than a policy: tasks
        take their estimates, no job arrives and nothing fails.
        """
        twin = type(self).__new__(type(self))
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.schedule = self.schedule.copy()
        twin.machines = self.machines.copy()
        twin.frontier = self.frontier.copy(twin.machines)
        twin.applicants = Live((number, active.copy(twin.machines)) for number, active in self.applicants.items())
        reservations = () if by_estimates else self._held
        twin._dependencies = (
            None if by_estimates or self._dependencies is None else self._dependencies.copy(twin.machines)
        )
        twin._held = [(until_s, number, held.copy(twin.machines)) for until_s, number, held in reservations]
        if by_estimates:
            twin._jobs_left, twin._next_job, twin._source = False, None, iter(())
            twin.frontier.believe_estimates()
        else:
            self._source, twin._source = tee(self._source)
        twin._down = list(self._down)
        twin._streams = copy.deepcopy(self._streams)
        twin._served = None if self._served is None else [list(served) for served in self._served]
        twin._disturbing = [] if by_estimates else [disturbing.copy() for disturbing in self._disturbing]
        twin._observe(())
        twin._start_clock(twin.now)
        twin._carrier = None if self._carrier is None else self._carrier.fork(twin.clock)
        if self._writes:
            twin._adopt_writes(self._writes, by_estimates)
        twin._changed = True
        if twin._wake_s < inf:
            wake_s, twin._wake_s = twin._wake_s, inf
            if wake_s > twin.now:
                twin._wait(wake_s)
        twin.running = Live(dict.fromkeys(self.running))  # type: ignore[arg-type]  # in order; filled below
        for event in self.clock.scheduled():  # runs that end together must do so in the same order again
            run = _run_of(event)
            if isinstance(run, Run) and event.callbacks and run.id in self.running:
                twin._adopt(run, by_estimates)
        for run in self.running.values():
            if twin.running[run.id] is None:  # it fetches its inputs, or has rate 0
                twin._adopt(run, by_estimates)
        return twin

    def _adopt_writes(self, writes: Mapping[int, StateWrite], by_estimates: bool) -> None:
        """Continue the writes of the original in this simulation."""
        twins = {id(write): write.copy(self.frontier.jobs, self.machines) for write in writes.values()}
        self._writes = {piece: twins[id(write)] for piece, write in writes.items()}
        for twin in twins.values():
            for piece in twin.pieces if by_estimates else ():
                piece.believe_estimate()
            self._begin(twin)

    def _adopt(self, run: Run, by_estimates: bool) -> None:
        """Continue the run of the original in this simulation."""
        jobs, machines = self.frontier.jobs, self.machines.list
        owner = jobs[run.task.job.number]
        task = run.task.copy(owner, self.machines) if run.task.piece else owner.tasks[run.task.index]
        held = tuple((machines[machine.index], count, mask, on) for machine, count, mask, on in run.held)
        again = Run(self.clock, run.id, task, run.instances, held, run.started_s)
        again.setup_s, again.computing_s, again._ends_s = run.setup_s, run.computing_s, run._ends_s
        if by_estimates:
            again._seconds = run.estimate_s
            if run.computing_s is not None and task.training is None:
                again._ends_s = run.estimated_end_s(self.now)
        self.running[run.id] = again
        again.beside = run.beside
        if run.progress is not None:
            again.progress = run.progress.copy()
            if run.progress.gang is not None:
                again.progress.gang = self._carrier.adopt(run.progress.gang, partial(self.set_rate, again))  # type: ignore[union-attr]
            if run.process is not None:
                again.flows = [flow.copy() for flow in run.flows]
                again.process = self.clock.process(self._save(again, again.progress))
                return
            if by_estimates and run.progress.checkpoint < again._seconds:
                again._ends_s = run._ends_s
            self._set_end(again, again.progress)
            return
        if run.process is not None:
            again.flows = [flow.copy() for flow in run.flows]
            again.process = self.clock.process(self._fetch(again))
            return
        again.callbacks = self._on_set_up if run.computing_s is None else self._on_end  # type: ignore[assignment]
        self.clock.at(again._ends_s, COMPLETIONS, again)

    # Simulations that cannot go on: who waits, and why.

    def _is_hopeless(self) -> bool:
        """True if no waiting task will ever have room: nodes have left for good and no job is still
        to arrive. A policy that asks to be woken would otherwise continue forever. Checked only
        while nothing runs.
        """
        ready = self.frontier.ready
        if self._jobs_left or self.applicants or self._writes or not ready:
            return False
        lasting = self.lasting()
        return not any(self._could_fit(demand, lasting) for demand in {task.demand for task in ready})

    def _could_fit(self, demand: DemandClass, lasting: list[bool]) -> bool:
        """True if the nodes that are or will be up can hold an instance (a gang: all of it)."""
        for type_ in demand.types:
            empty = (
                NodeState(machine.index, machine.node, type_)
                for machine in self.machines.list
                if machine.type == type_ and lasting[machine.index]
            )
            if sum(machine.room(demand) for machine in empty) >= max(demand.gang, 1):
                return True
        return False

    def _why_stalled(self) -> str:
        """The message of ``Stalled``, for a kernel in which nothing will happen without a decision."""
        ready = self.frontier.ready
        first = next(iter(ready), None)
        waiting = [f"{len(ready)} ready tasks wait" + (f", {first.name} among them" if first else "")]
        if self.applicants:
            waiting.append(f"{len(self.applicants)} jobs wait to be admitted")
        endless = [f"{run.id} of {run.task.name}" for run in self.running.values() if run._ends_s == inf]
        if endless:
            return f"at {self.now:g} s: {' and '.join(waiting)}, and nothing is due: run {_some(endless)} never ends"
        stuck = next((task for task in ready if not self.machines.fits(task.demand)), None)
        startable = next((task for task in ready if self.machines.fits(task.demand)), None)
        pending = "nothing is pending" if not self.pending else "nothing that is pending helps"
        idle = f"at {self.now:g} s: {' and '.join(waiting)}, nothing runs and {pending}"
        if startable is not None or self.applicants:
            could = f", although {startable.name} could start" if startable is not None else ""
            return f"{idle}, but the policy decided nothing{could}"
        return f"{idle}: {self._why_stuck(stuck)}" if stuck is not None else idle

    def _why_stuck(self, task: TaskState) -> str:
        """The reason why there is no room for the task although nothing runs."""
        types = task.demand.types
        lasting = self.lasting()
        machines = [machine for machine in self.machines.list if machine.type in types]
        down = [machine.node.name for machine in machines if not lasting[machine.index]]
        asked = f"{task.name} asks {task.demand.gang or 1} x {tuple(task.demand.demand)}"
        return f"{asked}, which needs nodes that are down and are not to come back ({_some(down)})"


def _run_of(event: Event) -> object:
    """The run that the event ends, or that it sets up; anything else belongs to no run."""
    return event if isinstance(event, Run) else event._value


def _places(run: Run) -> tuple[tuple[int, int], ...]:
    """The nodes of a run, each with the number of its instances there."""
    return tuple([(machine.index, count) for machine, count, *_ in run.held])


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
