"""The kernel. It simulates DAG jobs on a cluster with SimPy processes and events.

- *Arrivals* are one process (``_arrivals``), which waits until the arrival time of the next job and
  then adds the job.
- *Nodes* are resources (``machines``). For each failure model, a process takes nodes down and
  brings them back (``resources/down_nodes.py``).
- *Tasks* run as events. A ``Run`` consists of instances of a task that started together, and is
  itself the SimPy event of their end. The callback of this event, ``end``, frees the nodes and
  makes the task's children ready. A run that has to fetch inputs or be set up, or whose rate
  changes, has additional phases (``runs/life.py``).

``ClusterKernel.decisions()`` is a generator. It processes all simultaneous events (completions,
then repairs and failures, then arrivals), yields a ``ClusterView`` and receives decisions until
there are no more. Then time advances. ``run`` is a short driver for this generator.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from sys import float_info
from types import GeneratorType
from typing import Any

from simpy.events import Event

from dagsim.errors import IllegalDecision, ModelError, Stalled
from dagsim.model import (
    Admit,
    Cluster,
    Decision,
    Job,
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
    TrainingState,
    Wait,
)
from dagsim.model.log import LogRow, Schedule, packed_row, unpacked_row
from dagsim.model.streams import Streams
from dagsim.systems.cluster import legality
from dagsim.systems.cluster.arrivals.dependencies import any_depends
from dagsim.systems.cluster.arrivals.eligibility import Eligibility
from dagsim.systems.cluster.arrivals.jobs_to_come import JobsToCome
from dagsim.systems.cluster.arrivals.preparation import Preparation
from dagsim.systems.cluster.clock import ARRIVALS, COMPLETIONS, Clock, Timer
from dagsim.systems.cluster.forks import AHEAD, COPIED, EMPTY, SAME, Forked
from dagsim.systems.cluster.frontier import Frontier
from dagsim.systems.cluster.kernel_fork import fork_of
from dagsim.systems.cluster.knowledge import known
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.kept_work import KeptWork
from dagsim.systems.cluster.network.base import levels_in
from dagsim.systems.cluster.past.recall import recall_past
from dagsim.systems.cluster.past.rehearsal import rehearse
from dagsim.systems.cluster.resources.cluster_state import ClusterState
from dagsim.systems.cluster.resources.down_nodes import DownNodes
from dagsim.systems.cluster.resources.nodes import Allotted
from dagsim.systems.cluster.resources.on_demand import OnDemandNodes
from dagsim.systems.cluster.resources.site import SiteState
from dagsim.systems.cluster.runs.life import Life
from dagsim.systems.cluster.runs.suspensions import Suspensions
from dagsim.systems.cluster.state import HeldOnNode, JobState, Live, Run, TaskState
from dagsim.systems.cluster.view import ClusterPolicy, ClusterView
from dagsim.systems.cluster.waits.stalled import FAILS_ALWAYS, MOST_FAILURES, Wakes, only_endless, why_stalled
from dagsim.systems.seam import CountedJobs, decisions_of, drive

Observer = Callable[[LogRow], None]
"""A function that receives each row of the log when it is written."""

_ARRIVED, _ADMITTED, _REJECTED = int(Kind.ARRIVED), int(Kind.ADMITTED), int(Kind.REJECTED)
_STARTED, _FINISHED, _COMPLETED = int(Kind.STARTED), int(Kind.FINISHED), int(Kind.COMPLETED)
_PREEMPTED, _FAILED = int(Kind.PREEMPTED), int(Kind.FAILED)
_ALLOCATED, _RELEASED = int(Kind.ALLOCATED), int(Kind.RELEASED)
_ITERABLE = frozenset((GeneratorType, list, tuple))
"""The usual types of a policy's answer. If an answer has another type, the kernel checks whether it
is iterable."""
_NOTHING = ()
"""The usual answer of a policy that waits. Comparing identities is enough, because Python has only
one empty tuple."""


class ClusterKernel(Forked):
    """A simulation of one cluster and one stream of jobs. It uses a model for everything that takes
    time.

    ``jobs`` must be in order of arrival. They are read one by one, so only the jobs in the system
    and the next job are in memory. ``origin_s`` is the time in the log that corresponds to time 0
    of the simulation. The same arguments and ``seed`` give the same log, byte for byte.

    The simulation begins at ``begins_s``. Jobs that arrived earlier are in the system from the
    beginning, and their runs continue (``Job.in_flight``). The log starts with these earlier
    events. Failure models measure time from ``begins_s``. ``left`` contains the jobs that
    ended before the beginning, with their runs, or is None if they are unknown. Only policies that
    use finished jobs receive it.

    Raises:
        ModelError: An instance in flight does not fit on the cluster, or gangs communicate without
            a network that carries them.
    """

    # With more than 30 attributes, slots are faster to read than a dictionary.
    __slots__ = {
        "_arrived": SAME,
        "_pieces": SAME,
        "_started": SAME,
        "applicants": COPIED,
        "changed": SAME,
        "clock": COPIED,
        "down_nodes": COPIED,
        "eligibility": AHEAD,
        "frontier": COPIED,
        "jobs": SAME,
        "levels": SAME,
        "life": COPIED,
        "machines": COPIED,
        "models": SAME,
        "now": SAME,
        "on_demand": COPIED,
        "preemption": SAME,
        "preparation": COPIED,
        "queues": SAME,
        "record": EMPTY,
        "reminded": SAME,
        "running": COPIED,
        "schedule": COPIED,
        "sharing": SAME,
        "streams": COPIED,
        "stuck": COPIED,
        "suspensions": COPIED,
        "upcoming": AHEAD,
        "wake_s": SAME,
        "wakes": COPIED,
    }

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
        left: Iterable[Job] | None = None,
    ) -> None:
        models = Models() if models is None else models
        self.models = models = replace(models, estimates=known(models.estimates, jobs))
        self.queues, self.sharing, self.preemption = models.queues, models.sharing, models.preemption
        self.schedule = Schedule(cluster, seed=seed, begins_s=begins_s)
        self.now = begins_s
        self.clock = Clock(begins_s)
        names = [node.name for node in cluster.nodes]
        levels = None if models.network is None else levels_in(models.network, names)
        self.levels = tuple(levels or ())
        self.machines = ClusterState(cluster, SiteState.of(cluster, self.queues, origin_s, levels))
        self.jobs = jobs
        """The jobs as passed in; their source may have more information."""
        self.upcoming = JobsToCome(jobs)
        """The jobs that have not arrived yet."""
        self.applicants: Live[int, JobState] = Live()
        """Jobs that wait for ``Admit`` or ``Reject``."""
        self.frontier = Frontier()
        """Jobs in the system, and their tasks that can start."""
        self.running: Live[int, Run] = Live()
        self.changed = False
        """True if the policy has to be called after the current events."""
        self.wake_s = inf
        """The time at which the policy has requested to be called in any case."""
        self.wakes = Wakes()
        self._arrived = self._started = self._pieces = 0
        """Numbers of jobs, runs and pieces so far."""
        self.stuck = dict[int, str]()
        """Jobs, by number, with a task that was taken out of the queue because it can never start,
        and the reason."""
        self.reminded = False
        """True if the policy remembers the events before the beginning as if its own decisions had caused them."""
        self.streams = Streams(seed)
        """The random streams of this simulation (``ClusterView.stream``)."""
        self.preparation = Preparation(self)
        self.down_nodes = DownNodes(self, names, origin_s)
        depends = any_depends(jobs)
        self.eligibility = Eligibility(self, depends=depends) if depends or models.admission else None
        """Jobs that have arrived but may not start yet. None as long as there cannot be any."""
        self.life: Life | None = Life(self, cluster) if Life.is_needed(models, cluster) else None
        """Phases and rates of runs, or None if every run is a single timeout."""
        self.observe(observers)
        self.on_demand = OnDemandNodes.of(self)
        """Power states of nodes, or None if all nodes are always on."""
        self.suspensions = None if self.queues is None else Suspensions.of(self, origin_s)
        """Jobs that are suspended for a time, or None if there are none."""
        self.set_clock()
        if begins_s:
            recall_past(self, left)

    # Queries from outside the kernel.

    @property
    def done(self) -> bool:
        """True if all jobs have arrived and none is left in the system."""
        waiting = self.eligibility is not None and self.eligibility.waiting
        return not (self.upcoming.any_left or self.frontier.jobs or self.applicants or waiting)

    @property
    def became_eligible_s(self) -> Mapping[int, float]:
        """The time at which each job became eligible, by job number. Only jobs that had to wait for
        a dependency or for the limit of their array are included.
        """
        return {} if self.eligibility is None else self.eligibility.became_eligible_s

    @property
    def pending(self) -> bool:
        """True if something will happen even without a decision: a run will end, a job will arrive,
        a node will be repaired, or a requested wake-up is due.
        """
        if self.running or self.upcoming.any_left or self.wake_s < inf:
            return True
        site, parts = self.machines.site, (self.eligibility, self.life, self.on_demand, self.down_nodes)
        if any(part is not None and part.pending for part in parts):
            return True
        return site is not None and site.pending(self.now)

    def behind(self, active: JobState) -> int:
        """See ``ClusterView.behind``."""
        return 0 if self.eligibility is None else self.eligibility.behind(active)

    @property
    def source(self) -> Iterable[Job]:
        """See ``ClusterView.source``."""
        return self.jobs.jobs if isinstance(self.jobs, CountedJobs) else self.jobs

    def expected_rate(self, task: TaskState, placement: Placement) -> float:
        """See ``ClusterView.expected_rate``."""
        return 1.0 if self.life is None else self.life.expected_rate(task, placement)

    def expected_moves_s(self, moves: Sequence[tuple[Run, Placement]]) -> list[float]:
        """See ``ClusterView.expected_moves_s``."""
        return [0.0] * len(moves) if self.life is None else self.life.expected_moves_s(moves)

    # Methods that call the policy and carry out its decisions.

    def run(self, policy: ClusterPolicy, until_s: float = inf) -> Schedule:
        """Run the simulation with ``policy`` until no job is left, or until ``until_s``.

        Raises:
            IllegalDecision: A decision of the policy cannot be carried out.
            Stalled: The policy waits although nothing is pending.
        """
        return drive(self, policy, until_s)

    def show_truth(self) -> None:
        """Show true durations from now on, because the policy has declared ``clairvoyant = True``."""
        self.preparation.shows_truth = True
        for active in (*self.frontier.jobs.values(), *self.applicants.values()):
            active.shows_truth = True

    def remind(self, policy: object) -> None:
        """Show the policy the events before the beginning (``rehearse``), so that it remembers what
        it would remember if its own decisions had caused them.
        """
        past = self.frontier.past
        self.reminded = past is not None and rehearse(self, past, policy)

    def decisions(self, until_s: float = inf) -> Generator[ClusterView, Iterable[Decision] | None, None]:
        """Yield a view whenever something has changed, and receive the decisions for this view
        (``None`` if there are none). Repeat this until there are no more decisions or no task is
        waiting. Then advance to the next events, and continue in this way until the end.
        """
        clock, machines, down_nodes = self.clock, self.machines, self.down_nodes
        view, start, carry_out, ready = ClusterView(self), self._start, self._carry_out, self.frontier.ready
        last_s, asked_s = min(until_s, float_info.max), -inf
        self.wakes.until_s = until_s
        # Each iteration handles one point in time. First, all events that are due happen in the
        # order of the clock. Then the policy is called until it returns no decisions. Its decisions
        # may put further events on the clock for the same time, such as the end of a run without
        # work. The next iteration handles these.
        while True:
            if self.changed:
                if self.wake_s <= self.now:
                    self.wake_s = inf
                if machines.reopen_s <= self.now:
                    machines.reopen(self.now)
                site = machines.site
                if (down_nodes.count and down_nodes.may_be_lost) or (site and self.now >= site.doubt_s):
                    down_nodes.withdraw()
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
                if self.on_demand is not None:
                    self.on_demand.look()
                self.frontier.rejected.clear()
                self.changed, asked_s = False, self.now
            if not self.running:
                if self.done or self._only_rules_bind():
                    break
                # true only at the beginning, before the policy is called for the first time
                due = clock.peek() <= self.now
                if not (self.pending or due) and asked_s < self.now:
                    # call the policy again, because it may have been waiting for an event that can
                    # no longer happen
                    self.changed = True
                    continue
                if not (self.pending or due):
                    raise Stalled(why_stalled(self))
            now = clock.peek()
            if now > last_s:
                if until_s == inf and only_endless(self):
                    break
                if until_s == inf:
                    raise Stalled(why_stalled(self))
                self.now = max(until_s, self.now) if now == inf else now
                break
            if self.frontier.past is not None and now > self.schedule.begins_s:
                self.frontier.end_past()
            self.now = now
            clock.settle()
        self.schedule.ended_s = min(until_s, self.now)

    def _only_rules_bind(self) -> bool:
        """Return True if all remaining tasks will wait forever, because of a rule of the site or
        because of other jobs. This is called only while nothing is running.
        """
        if self.frontier.ready or self.applicants or self.upcoming.any_left:
            return False
        return not any(part is not None and part.pending for part in (self.eligibility, self.life))

    # Arrivals.

    def _arrivals(self) -> Generator[Event, object, None]:
        """Yield the events of the arrival process. Each job is read only when the previous one has
        arrived.
        """
        if self.now == self.schedule.begins_s > 0:
            # Runs in flight that end at this time must free their resources before jobs arrive.
            yield Timer(self.clock, self.now, ARRIVALS)
        while (job := self.upcoming.peek()) is not None:
            if job.arrival_s > self.now:
                yield Timer(self.clock, job.arrival_s, ARRIVALS)
            elif job.arrival_s < self.now:
                after = f"follows a job that arrives at {self.now!r} s"
                raise ModelError(f"jobs must be sorted by arrival: {job.id!r} ({job.arrival_s!r} s) {after}")
            self.upcoming.take()
            self.arrive(job)

    def arrive(self, job: Job) -> None:
        """Add the next job, which arrives now. Its first tasks become ready, unless the job can
        never run or is not eligible yet.
        """
        number, machines, schedule = self._arrived, self.machines, self.schedule
        self._arrived += 1
        self.changed, self.wakes.count = True, 0
        active, rejected = self.preparation.state_of(job, number)
        schedule.arrived(active.facts())
        if not number & 4095:
            schedule.log.pack()
        self._record_job(_ARRIVED, number)
        if machines.site is not None and rejected is None:
            rejected = machines.site.refuses(job, self.now)
        if rejected is not None and not job.in_flight:  # a job that is already running is not rejected
            self._record_job(_REJECTED, number, float(rejected))
            if machines.site is not None:
                self.frontier.rejected.append(active)
            return
        self.preparation.estimate(active)
        if self.eligibility is None and job.eligible_s is not None:
            self.eligibility = Eligibility(self)
        if self.eligibility is None or not self.eligibility.holds(active):
            self.enter(active)

    def enter(self, active: JobState) -> None:
        """Add an eligible job to the system, so that its tasks without parents become ready."""
        self.frontier.jobs[active.number] = active
        for task in active.tasks:
            if not task.missing:
                self.frontier.add(task, self.now)

    def admit(self, active: JobState) -> None:
        """Admit a job that has been waiting for admission, so that it enters the system."""
        del self.applicants[active.number]
        self._record_job(_ADMITTED, active.number)
        self.enter(active)

    def _reject(self, active: JobState) -> None:
        del self.applicants[active.number]
        self._leave(active.number, _REJECTED, float(RejectReason.BY_POLICY))

    def _leave(self, number: int, kind: int, value: float = 0.0) -> None:
        """Record that a job leaves, and add jobs to the system that were only waiting for this job."""
        self._record_job(kind, number, value)
        if self.eligibility is not None:
            self.eligibility.left(number)

    # Decisions.

    def _carry_out(self, decision: object) -> bool:
        """Carry out the decision. Return True if the policy must be called again."""
        match decision:
            case Preempt():
                self.preempt(legality.stopped(self, decision.run))
            case Wait():
                self.wait(legality.wake_up(self.now, decision.until_s))
                return False
            case Migrate():
                run = legality.stopped(self, decision.run)
                shares = legality.moved(self, run, decision.placement)
                self.occupy(self.preempt(run), shares)
            case Resize():
                run = legality.stopped(self, decision.run)
                shares = legality.resizable(self, run, decision.placement)
                assert self.life is not None  # the run's task is elastic, so there is a ``life``
                self.life.resize(run, shares)
            case Join():
                host = legality.joinable(self, decision.task, decision.run)
                assert self.life is not None  # there is a model for shared GPUs, and therefore a ``life``
                self.life.join(host, decision.task)  # type: ignore[arg-type]
            case Admit():
                self.admit(legality.applicant(self, decision.job))
            case Reject():
                self._reject(legality.applicant(self, decision.job))
            case Kill():
                self._kill(*legality.resident(self, decision))
            case Start():
                self._start(decision.task, decision.placement)
            case _:
                raise IllegalDecision(
                    f"at {self.now:g} s: {decision!r} is not a decision; yield Start, Preempt, Migrate, Resize, Join, "
                    "Admit, Reject, Kill or Wait"
                )
        return True

    def _start(self, task: Any, placement: Any) -> None:
        machine = legality.starts_on(self, task, placement)
        if machine is None:
            self.occupy(task, legality.started(self, task, placement))
            return
        # The most common starts (independent instances, or a gang on one node) need no list of
        # shares.
        instances = placement[0][1]
        held = (machine, instances, *self.machines.take(machine, task.demand, instances, None))
        self.launch(task, instances, (held,))

    def occupy(
        self, task: TaskState, shares: list[Allotted], training: TrainingState | None = None, *, in_flight: bool = False
    ) -> None:
        """Start the task on the shares of nodes, which have already been checked. A gang becomes a
        single run; any other task becomes one run per node. An elastic task continues with the
        state ``training``, which defaults to the task's own state. A task that is ``in_flight`` is
        already computing.
        """
        take, demand = self.machines.take, task.demand
        if not demand.gang:
            for machine, instances, gpu in shares:
                held = (machine, instances, *take(machine, demand, instances, gpu))
                self.launch(task, instances, (held,), computes=in_flight)
            return
        if task.task.elastic is not None and self.life is not None:
            self.life.place_elastic(task, shares, training)
        all_held = [(share.machine, share.instances, *take(share.machine, demand, *share[1:])) for share in shares]
        self.launch(task, task.waiting, tuple(all_held), computes=in_flight)

    def preempt(self, run: Run) -> TaskState:
        """Stop a run because of a decision. Return the piece of its task that waits to be resumed."""
        return self.stop(run, _PREEMPTED, self.preemption.kept_on_preemption)

    def _kill(self, active: JobState, reason: RejectReason) -> None:
        """Stop all runs of a job and remove its waiting tasks. The cost is O(running + ready)."""
        number = active.number
        if self.life is not None:
            self.life.killed(number)
        for run in [run for run in self.running.values() if run.task.job is active]:
            run.halt()
            self._release(run, _PREEMPTED)
        for task in [task for task in self.frontier.ready if task.job is active]:
            task.waiting = 0  # indexes drop tasks without waiting instances
            del self.frontier.ready[task]
        del self.frontier.jobs[number]
        self.changed = True
        self._leave(number, _REJECTED, float(reason))

    def wait(self, until_s: float) -> None:
        """Make sure that the policy is called at ``until_s`` or earlier."""
        if until_s < self.wake_s:
            self.wake_s = until_s
            self.call_at(until_s, self.wake)

    def wake(self, _: Event) -> None:
        """Make sure that the policy is called when the current events have been processed."""
        self.changed = True
        self.wakes.count_one(self)

    # Runs.

    def launch(
        self,
        task: TaskState,
        instances: int,
        held: tuple[HeldOnNode, ...],
        *,
        beside: Run | None = None,
        computes: bool = False,
    ) -> None:
        """Create the run, and begin it unless one of its nodes has to boot. The run uses the same
        GPUs as the run ``beside`` it, if there is one.
        """
        now = self.now
        run = self.running[self._started] = Run(self.clock, self._started, task, instances, held, now)
        self._started += 1
        if beside is not None:
            run.beside, beside.beside = (beside.id,), (run.id,)
        task.waiting -= instances
        if not task.waiting:
            del self.frontier.ready[task]
        if self.on_demand is not None and self.on_demand.allocate(run, in_flight=computes):
            self.record_run(_ALLOCATED, run)
        else:
            self.begin(run, computes=computes)
        for tell in self.frontier.started:
            tell(run, now)

    def begin(self, run: Run, *, computes: bool = False) -> None:
        """Start a run on nodes that are up: write its rows to the log, and schedule its end."""
        self.record_run(_STARTED, run)
        if computes or self.life is None:
            run.callbacks.append(self.end)
            self.clock.at(run.compute(self.now), COMPLETIONS, run)
        else:
            self.life.begin(run)

    def end(self, event: Event) -> None:
        """Complete a run. If this completes its task, child tasks may become ready, and the job may
        be done.
        """
        run: Run = event  # type: ignore[assignment]
        self._release(run, _FINISHED)
        self.wakes.count = 0
        active, index = run.task.job, run.task.index
        task = active.tasks[index]  # the original task, not a resumed piece of it
        task.unfinished -= run.instances
        active.changed(index)
        if task.unfinished and task.task.elastic is None:
            return
        task.unfinished = 0  # an elastic task ends as a whole, regardless of its number of instances
        for child in active.job.graph.children[index]:
            waiter = active.tasks[child]
            waiter.missing -= 1
            if not waiter.missing:
                self.frontier.add(waiter, self.now)
        active.tasks_left -= 1
        if not active.tasks_left:
            del self.frontier.jobs[active.number]
            # The job and its tasks refer to each other. Breaking this cycle frees them now, rather
            # than when the garbage collector runs.
            active.tasks.clear()
            self._leave(active.number, _COMPLETED)

    def stop(self, run: Run, kind: int, kept: KeptWork, notice_s: float = 0.0) -> TaskState:
        """Stop a run before its end. Its instances become ready again as a new piece of its task.
        The piece has to repeat the work that is not ``kept``. If ``notice_s`` is above 0, the nodes
        have that many seconds to send the state of the run.
        """
        # The order matters. First, all future events of the run are cancelled. Then its nodes are
        # freed, before listeners are notified. The resumed piece is created last, from the work
        # that the run has completed by now. Pieces are numbered across the whole simulation,
        # because pieces of one task with equal keys are tried in the order of their numbers.
        run.halt()
        began = self._release(run, kind)
        self.clock.tidy()
        self._pieces += 1
        again = self.piece(run, kind, kept)
        if not began and run.task.training is None:
            again.restore_s = run.task.restore_s
        elif began and self.life is not None and self.life.keeps_state(run, again, kind, kept, notice_s):
            return again  # the task becomes ready later, when its state has arrived or is lost
        if again.failures >= MOST_FAILURES:
            again.waiting = 0
            self.stuck[again.job.number] = FAILS_ALWAYS
            return again
        self.frontier.add(again, self.now)
        return again

    def piece(self, run: Run, kind: int, kept: KeptWork) -> TaskState:
        """Create the piece of a task that contains the instances of a stopped run. Its number is
        the current value of the piece counter.
        """
        task = run.task
        if self.life is not None:
            again = self.life.piece(run, self._pieces, kind, kept)
        else:
            left = 1.0 if kept is KeptWork.NOTHING else run.left(self.now)
            again = task.piece_of(self._pieces, run.instances, left, 0.0)
        if kind == _FAILED:
            again.failures = task.failures + 1 if again.left >= task.left else 0
        return again

    def _release(self, run: Run, kind: int) -> bool:
        """Release the resources of a run, and write its last rows to the log. Return True if the
        run had begun.
        """
        self.changed = True
        del self.running[run.id]
        task, demand, machines, now = run.task, run.task.demand, self.machines, self.now
        task.job.service_gpu_s += demand.demand.gpus * run.instances * (now - run.started_s)
        began = self.on_demand is None or self.on_demand.release(run)
        for machine, count, mask, on in run.held:
            if run.beside:
                machines.leave(machine, demand, count)
            else:
                machines.give(machine, demand, count, mask, on)
        self.record_run(kind if began else _RELEASED, run)
        for tell in self.frontier.ended:
            tell(run, now)
        if self.life is not None:
            self.life.ended(run, kind)
        return began

    # Clock and log.

    def call_at(self, time_s: float, callback: Callable[[Event], None]) -> None:
        """Call ``callback`` at ``time_s``, together with the arrivals at that time."""
        Timer(self.clock, time_s, ARRIVALS).callbacks.append(callback)

    def set_clock(self) -> None:
        """Start the processes, and put all events except those of runs on the clock. This is called
        at the beginning of a simulation and in each fork.
        """
        if self.upcoming.any_left:
            self.clock.process(self._arrivals())
        if self.eligibility is not None:
            self.eligibility.attach()
        if self.machines.site is not None:
            self.machines.site.attach(self)
        self.down_nodes.attach()
        if self.on_demand is not None:
            self.on_demand.attach()
        if self.suspensions is not None:
            self.suspensions.attach()

    def observe(self, observers: Sequence[Observer]) -> None:
        """Send each row of the log to ``observers`` from now on."""
        append = self.schedule.log.append_packed

        def record(row: bytes) -> None:
            append(row)
            for observer in observers:
                observer(unpacked_row(row))

        self.record: Callable[[bytes], None] = record if observers else append
        """Add a row to the log."""

    def _record_job(self, kind: int, number: int, value: float = 0.0) -> None:
        self.record(packed_row(kind, self.now, number, -1, -1, -1, 0, 0, value))

    def record_run(self, kind: int, run: Run, rate: float | None = None) -> None:
        """Write one row for each node of a run. Each row contains the GPUs that the run uses on
        this node, or the run's new ``rate``.
        """
        task, now, record = run.task, self.now, self.record
        number, index, id_, gpus = task.job.number, task.index, run.id, task.demand.demand.gpus
        for machine, count, mask, _ in run.held:
            value = gpus * count if rate is None else rate
            record(packed_row(kind, now, number, index, id_, machine.index, count, mask if machine.named else 0, value))

    def fork(self, *, by_estimates: bool = False) -> ClusterKernel:
        """Return an identical simulation at the current time, which continues independently. The
        cost is O(jobs in the system + machines).

        Observers stay with the original. Future jobs are shared and read once, by the first
        simulation that needs them. With ``by_estimates``, the fork has no more information than a
        policy: tasks take their estimated times, no job arrives and nothing fails.
        """
        return fork_of(self, by_estimates=by_estimates)
