"""Setting up a simulation that begins in the middle of a log, with the jobs that were in the system
at that time and their unfinished runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from math import inf, nextafter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from dagsim.errors import ModelError
from dagsim.model import InFlight, Job, Kind
from dagsim.systems.cluster.forks import Forked
from dagsim.systems.cluster.resources.cluster_state import ClusterState
from dagsim.systems.cluster.resources.nodes import Allotted, DemandClass, demand_words, may_mix_types
from dagsim.systems.cluster.state import JobState, Run, TaskState
from dagsim.systems.seam import stated

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel


class Ended(NamedTuple):
    """The end of a run before the beginning of the simulation. It is one of the kinds of events
    that ``past_of`` yields.
    """

    run: InFlight

    @property
    def was_decided(self) -> bool:
        """True if a decision ended the run: either its preemption or, if the run had no work to do, its start."""
        return self.run.stopped == "preempted" or self.run.until_s == self.run.since_s


def past_of(jobs: Sequence[Job], begins_s: float) -> Iterator[tuple[float, int, Job | InFlight | Ended]]:
    """Yield arrivals, starts and ends before ``begins_s`` in the order in which they happened, each
    with its time and the number of its job. Simultaneous events come in this order: runs that
    complete, runs that fail, arrivals, and then preemptions and starts. Each group is in the order
    of the log's rows, or sorted by job if that order is unknown.

    Raises:
        ModelError: The jobs are not in order of arrival, or a run starts at the beginning or later.
    """
    events: list[tuple[float, int, int, int, int, Job | InFlight | Ended]] = []
    for number, job in enumerate(jobs):
        if number and job.arrival_s < (before_s := jobs[number - 1].arrival_s):
            raise ModelError(
                f"jobs must be sorted by arrival: {job.id!r} ({job.arrival_s!r} s) follows a job that arrives "
                f"at {before_s!r} s"
            )
        events.append((job.arrival_s, _ARRIVES, number, 0, number, job))
        for run in job.in_flight:
            if run.since_s >= begins_s:
                raise ModelError(
                    f"job {job.id!r} has been running since {run.since_s!r} s, but the simulation begins at "
                    f"{begins_s!r} s; runs that begin then or later must be started by the policy"
                )
            first, last = run.rows
            events.append((run.since_s, _DECIDED, first, number, number, run))
            if run.until_s is not None:
                end = Ended(run)
                order = _DECIDED if end.was_decided else _FAILS if run.stopped else _COMPLETES
                events.append((run.until_s, order, last if last >= 0 else first, number, number, end))
    events.sort(key=lambda event: event[:4])
    for time_s, *_, number, event in events:
        yield time_s, number, event


_COMPLETES, _FAILS, _ARRIVES, _DECIDED = range(4)
"""The order of events at one time."""


class PastEvents:
    """The events before the beginning of a simulation, for the indexes and listeners of policies
    (``Frontier.build``).

    This object records the kernel's events until the kernel has processed the beginning of the
    simulation. Later, it can repeat them: which tasks became ready, which runs started, ended or
    were suspended, and when. Listeners with an attribute ``remembers`` also receive the events of
    jobs that have ended: jobs of the simulation, and jobs that had ``left`` before it began. The
    latter are not part of the simulation, so they and their runs have negative numbers. ``jobs``
    are the jobs of the simulation that arrived before the beginning.
    """

    def __init__(self, kernel: ClusterKernel, jobs: Sequence[Job], left: Iterable[Job] | None) -> None:
        self.at_s, self.jobs = kernel.now, jobs
        self.is_whole = left is not None and not any(True for _ in left)
        """True if no event before the beginning is missing, because no other jobs had left."""
        self.reminded: list[object] = []
        """Listeners that remember what happened before the beginning."""
        self._kernel = kernel
        self._left = left
        self._events: list[_Event] = []
        self._of_left: list[_Event] | None = None
        self._told: list[object] = []

    def push(self, task: TaskState) -> None:
        """Record a task that became ready."""
        self._events.append((task.ready_s, "push", task))

    def started(self, run: Run, now: float) -> None:
        """Record the start of a run."""
        self._events.append((now, "started", run))

    def ended(self, run: Run, now: float) -> None:
        """Record the end of a run."""
        self._events.append((now, "ended", run))

    def rated(self, run: Run, now: float) -> None:
        """Record that a run was suspended or resumed."""
        self._events.append((now, "rated", run))

    def tell(self, index: object) -> None:
        """Call the methods of an index for all events of the past. A second call for the same index
        does nothing.
        """
        if any(index is other for other in self._told):
            return
        self._told.append(index)
        there, events = self._kernel.frontier.jobs, self._events
        if any(index is listener for listener in self.reminded):
            events = [event for event in events if event[0] >= self.at_s]
        elif remembers := stated(index, "remembers"):
            if self._left is None:
                self._kernel.frontier.unknown[remembers] = None
            if self._of_left is None:
                self._restore_tasks()
                self._of_left = self._events_of_left()
            events = list(merge(self._of_left, events, key=lambda event: event[0]))
        else:  # leave out jobs that end at the beginning, because the index would find no tasks in them
            events = [event for event in events if event[2].job.number in there]
        calls = {name: getattr(index, name) for name in ("push", "started", "ended", "rated") if hasattr(index, name)}
        for time_s, name, what in events:
            if name not in calls:
                continue
            if name == "push":
                calls[name](what)
            else:
                calls[name](what, time_s)

    def _restore_tasks(self) -> None:
        """Restore the tasks of jobs that ended before the beginning. The kernel removed these tasks
        when the jobs ended.
        """
        emptied: dict[int, list[TaskState]] = {}
        for _, name, what in self._events:
            if name == "push" and not what.piece and not what.job.tasks:
                emptied.setdefault(what.job.number, []).append(what)
        for tasks in emptied.values():
            tasks[0].job.tasks.extend(sorted(tasks, key=lambda task: task.index))

    def _events_of_left(self) -> list[_Event]:
        """Return the events of the jobs that had already left the system, in the order in which
        they happened.
        """
        jobs = sorted(self._left or (), key=lambda job: job.arrival_s)
        kernel, states = self._kernel, list[JobState]()
        machines, count = kernel.machines.list, sum(len(job.in_flight) for job in jobs)
        for place, job in enumerate(jobs):
            states.append(kernel.preparation.state_of(replace(job, in_flight=()), place - len(jobs))[0])
        events, number = list[_Event](), -count
        running: dict[tuple[int, InFlight], list[Run]] = {}
        for active in states:
            for task in active.tasks:
                task.waiting = task.unfinished = 0
        for time_s, place, event in past_of(jobs, self.at_s):
            active = states[place]
            if isinstance(event, Job):
                for task in active.tasks:
                    if not task.missing:
                        task.ready_s = time_s
                        events.append((time_s, "push", task))
            elif isinstance(event, Ended):
                run = running[place, event.run].pop(0)
                events.append((time_s, "ended", run))
            else:
                held = tuple([(machines[node], instances, 0, ()) for node, instances, _ in event.placement])
                instances = sum(share.instances for share in event.placement)
                run = Run(kernel.clock, number, active.tasks[event.task], instances, held, time_s)
                run.compute(time_s)
                running.setdefault((place, event), []).append(run)
                number += 1
                events.append((time_s, "started", run))
        return events


_Event: TypeAlias = tuple[float, str, Any]
"""Time, name of the method, and the task or run."""


def recall_past(kernel: ClusterKernel, left: Iterable[Job] | None) -> None:
    """Replay what happened before a simulation begins, at the recorded times: the arrivals of the
    jobs that are in the system, and the starts and ends of their runs. The kernel must be at the
    beginning of its simulation. ``left`` contains the jobs that had already left the system.

    Raises:
        ModelError: A run in flight does not fit; see ``past_of`` and ``check_in_flight``.
    """
    begins_s, past, upcoming = kernel.now, list[Job](), kernel.upcoming
    while (job := upcoming.peek()) is not None and job.arrival_s < begins_s:
        past.append(job)
        upcoming.take()
    events, frontier = PastEvents(kernel, past, left), kernel.frontier
    frontier.build(events, events, (), begins_s)
    started: dict[tuple[int, InFlight], list[list[Run]]] = {}
    stopped: dict[tuple[int, int], TaskState] = {}
    """The piece that each stopped run left, by the number of the job and the row of its start."""
    if kernel.suspensions is not None:
        kernel.suspensions.recall()
    for time_s, number, event in past_of(past, begins_s):
        # At equal times, runs end first. Then timers fire, and then jobs arrive and runs start.
        before_timers = isinstance(event, Ended) and not event.was_decided
        _pass_time(kernel, time_s if before_timers else nextafter(time_s, inf))
        kernel.now = time_s
        if isinstance(event, Job):
            kernel.arrive(event)
        elif isinstance(event, Ended):
            for run in started[number, event.run].pop(0):
                if event.run.stopped == "failed":
                    piece = kernel.stop(run, Kind.FAILED, kernel.preemption.kept_on_failure)
                    stopped[number, event.run.rows[0]] = piece
                elif event.run.stopped:
                    stopped[number, event.run.rows[0]] = kernel.preempt(run)
                else:
                    run.disarm()
                    kernel.end(run)
        else:
            runs = _resume(kernel, past[number], number, event, stopped)
            started.setdefault((number, event), []).append(runs)
    _pass_time(kernel, begins_s)
    if kernel.machines.reopen_s < begins_s:
        kernel.machines.reopen(nextafter(begins_s, -inf))
        kernel.machines.returned_s = -inf
    frontier.past = events
    kernel.now = begins_s
    kernel.clock.not_before(begins_s)  # events that should have happened earlier happen at the beginning
    for run in kernel.running.values():
        run.phase_until(max(run.scheduled_end_s, begins_s))
        if kernel.life is not None:
            kernel.life.recall(run)
    kernel.changed = False  # events that are due at the beginning happen before the policy is called
    kernel.wait(begins_s)


def forgotten(policy: object) -> list[str]:
    """Return the ``forgets`` texts of a policy and its parts (a placement, an order). They describe
    what the policy and its parts remember between decisions although neither the log nor the state
    of the cluster contains it.
    """
    texts = [stated(part, "forgets") for part in parts_of(policy)]
    return list(dict.fromkeys([text for text in texts if isinstance(text, str) and text]))


def parts_of(policy: object) -> Iterator[object]:
    """Yield a policy and its parts, such as its placement and its order. Parts are found by
    following all attributes, so no policy has to list them. Objects that neither dagsim defines nor
    state what they forget are left out.
    """
    parts, seen = [policy], set[int]()
    while parts:
        part = parts.pop()
        part = getattr(part, "__self__", part)  # for a bound method, use the object to which it is bound
        is_known = part is policy or type(part).__module__.startswith("dagsim.") or hasattr(part, "forgets")
        if id(part) in seen or not is_known:
            continue
        seen.add(id(part))
        yield part
        if not isinstance(part, Forked):
            parts += attributes_of(part).values()


def attributes_of(part: object) -> dict[str, object]:
    """Return the values of all attributes of an object, including those in slots."""
    members = [item for kind in type(part).__mro__ for item in vars(kind).items()]
    slots = [name for name, member in members if isinstance(member, MemberDescriptorType) and hasattr(part, name)]
    return {name: getattr(part, name) for name in slots} | getattr(part, "__dict__", {})


def unknown_past(kernel: ClusterKernel, policy: object) -> list[str]:
    """For a simulation that began in the middle of a log, return sentences that state about which
    parts of the past the policy has no information.
    """
    begins_s = kernel.schedule.begins_s
    if not begins_s:
        return []
    unremembered = [] if kernel.reminded else forgotten(policy)
    notes = [f"the policy starts anew, because a log does not show {words}" for words in unremembered]
    unknown = kernel.frontier.unknown
    notes += [f"the policy starts without its earlier state: {words} before the beginning" for words in unknown]
    if kernel.on_demand is not None:
        notes.append(
            "nodes on demand on which nothing was running begin in their configured state, because a log of jobs does "
            "not show which nodes were up"
        )
    return notes


def is_done(job: Job) -> bool:
    """Return True if all instances of a job had ended when the simulation began."""
    done = [run for run in job.in_flight if run.until_s is not None and not run.stopped]
    return sum(share.instances for run in done for share in run.placement) == sum(
        task.instances for task in job.graph.tasks
    )


def _pass_time(kernel: ClusterKernel, until_s: float) -> None:
    """Process all events before ``until_s`` that depend only on time: add jobs to the system when
    they become eligible, and suspend and resume jobs.
    """
    parts = [part for part in (kernel.suspensions, kernel.eligibility) if part is not None]
    while parts and (next_s := min(part.next_s for part in parts)) < until_s:
        kernel.now = next_s
        next(part for part in parts if part.next_s == next_s).pass_time()


def _resume(
    kernel: ClusterKernel, job: Job, number: int, run: InFlight, stopped: Mapping[tuple[int, int], TaskState]
) -> list[Run]:
    """Start a run from before the beginning of the simulation on its recorded nodes. The run has
    already fetched its inputs and been set up.
    """
    if number in kernel.applicants:
        kernel.admit(kernel.applicants[number])
    active = kernel.frontier.jobs.get(number)
    task = None if active is None else _waiting_piece(kernel, active, run, stopped)
    if task is not None and task.training is not None:
        raise ModelError(f"job {job.id!r}: its elastic task {task.task.name!r} cannot be in flight at the beginning")
    check_in_flight(job, run, None if task is None else task.demand, kernel.machines)
    if task is None:
        return []
    shares = [Allotted(kernel.machines.list[node], count, gpu) for node, count, gpu in run.placement]
    before = len(kernel.running)
    kernel.occupy(task, shares, in_flight=True)
    return list(kernel.running.values())[before:]


def _waiting_piece(
    kernel: ClusterKernel, active: JobState, run: InFlight, stopped: Mapping[tuple[int, int], TaskState]
) -> TaskState:
    """Return the piece of a task that the run executes. If the run resumes a stopped run, this is
    the piece that the stopped run left. Otherwise, it is the first piece with enough waiting
    instances.
    """
    task, needed = active.tasks[run.task], sum(share.instances for share in run.placement)
    piece = stopped.get((active.number, run.resumes)) if run.resumes >= 0 else None
    if piece is not None and piece.waiting >= needed:
        return piece
    if task.waiting >= needed:
        return task
    return next(
        (other for other in kernel.frontier.ready if other.order == task.order and other.waiting >= needed), task
    )


def check_in_flight(job: Job, run: InFlight, demand: DemandClass | None, machines: ClusterState) -> None:
    """Check that the nodes of a run in flight exist, and that the run fits on them together with
    the runs that started before it. ``demand`` is the demand of the run's task, or ``None`` if the
    job can never run.

    Raises:
        ModelError: A node does not exist, or the run does not fit. The message names the job and
            the node.
    """
    where, nodes = f"job {job.id!r} is in flight on node", [share.node for share in run.placement]
    for number, instances, gpu in run.placement:
        if not 0 <= number < len(machines.list) or nodes.count(number) > 1:
            why = "which is listed twice" if nodes.count(number) > 1 else f"but there are {len(machines.list)} nodes"
            raise ModelError(f"{where} number {number}, {why}")
        machine = machines.list[number]
        empty = machine.emptied()
        refused = demand is None or demand.rejected is not None
        if demand is None or (refused and (not demand.types or empty.room(demand, anywhere=True) < instances)):
            raise ModelError(f"{where} {machine.node.name!r}, but the task requests more than the whole cluster has")
        if machine.type not in demand.types:
            raise ModelError(
                f"{where} {machine.node.name!r}, which cannot run the task, because it requests "
                f"{demand_words(demand.demand)}"
            )
        if machine.type != machines.list[nodes[0]].type and not may_mix_types(job, demand.demand):
            raise ModelError(
                f"{where} {machine.node.name!r} and on a node with another GPU type, but the job may not mix types"
            )
        if gpu is not None and machine.room_on(gpu, demand) < instances:
            raise ModelError(
                f"{where} {machine.node.name!r}, but {instances} shares of the task do not fit on its GPU {gpu}"
            )
        # a job that is already running may stay on a node that is closed to its demand
        if (room := machine.room(demand, anywhere=True)) < instances:
            raise ModelError(
                f"{where} {machine.node.name!r} with {instances} x {demand_words(demand.demand)}, but "
                f"only {room} fit beside the jobs already running there"
            )
