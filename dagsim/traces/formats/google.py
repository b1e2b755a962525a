"""Shared by both Google traces: fold events into the lives of tasks, and make jobs from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import TypeAlias

from dagsim.errors import ConfigError, GraphError
from dagsim.model import Cluster, Job, Node, Task, TaskGraph
from dagsim.traces.fields import Dirty, finite_number
from dagsim.traces.gather import Gathered, gather, pack, unpack
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Downtime
from dagsim.traces.report import ReadReport

__all__ = ["AFTER_US", "USES", "Attempts", "Event", "Happened", "jobs_of_events", "machines", "seconds", "work_text"]


class Event(Enum):
    """Meaning of an event for a task or a machine."""

    SUBMIT = "S"
    """The task waits to be scheduled; the machine joins."""
    SCHEDULE = "R"
    """The task starts to run."""
    END = "E"
    """The task is evicted, fails, finishes, is killed or lost; the machine leaves."""
    UPDATE = "U"
    """The demand or capacity changes, or the task moves between queues."""


@dataclass(slots=True)
class Attempts:
    """The life of one task. It may run several times before it ends for good, each time from the
    beginning.
    """

    rows: int = 0
    attempts: int = 0
    last_s: float = 0.0
    """Duration of the last finished attempt, in seconds."""
    total_s: float = 0.0
    """Total duration of all finished attempts, in seconds."""
    running_since: float | None = None
    alive: bool = False
    """True if it still waits or runs after the last event read."""
    headless: bool = False
    """True if its first event is an end: it began before the first event read."""

    def take(self, event: Event, time_s: float) -> None:
        """Apply the next event in order of time."""
        self.rows += 1
        if event is Event.SUBMIT:
            self.alive = True
        elif event is Event.SCHEDULE:
            self.alive = True
            self.attempts += 1
            self.running_since = time_s
        elif event is Event.END:
            self.headless = self.headless or self.rows == 1
            self._end(time_s)

    def cut(self, time_s: float) -> None:
        """Cut the life at the end of the trace."""
        self._end(time_s)

    def _end(self, time_s: float) -> None:
        self.alive = False
        if self.running_since is not None:
            self.last_s = max(0.0, time_s - self.running_since)
            self.total_s += self.last_s
            self.running_since = None


AFTER_US = 2**63 - 1
USES = frozenset({"gpus_per_task", "keep_partial", "floor_s", "protocol"})
_WINDOW_STARTS_US = 600_000_000
_PROTOCOLS = ("last-attempt", "all-attempts")

Graph: TypeAlias = Callable[[list[Task], Callable[[str], None]], TaskGraph]
"""Makes the graph of a job from its tasks; may note tolerated irregularities."""


def _bag(tasks: list[Task], note: Callable[[str], None]) -> TaskGraph:
    return TaskGraph(tuple(tasks))


@dataclass(slots=True)
class Happened:
    """Converts events to rows for grouping by job, and records the time of the last one."""

    end_us: int = 0

    def row(
        self,
        place: int,
        time_us: int,
        job: str,
        task: str,
        event: Event,
        user: str,
        priority: str,
        asked: tuple[str, str],
    ) -> tuple[str, float, str]:
        """Row of a task event; ``asked`` is its request of cores and memory."""
        self.end_us = max(self.end_us, time_us)
        return job, seconds(time_us), pack(place, (str(time_us), task, event.value, user, priority, *asked))

    def submission(self, place: int, time_us: int, job: str, user: str) -> tuple[str, float, str]:
        """Row of the submission of a whole job."""
        return job, seconds(time_us), pack(place, (user,))


def jobs_of_events(
    rows: Iterable[tuple[str, float, str]],
    happened: Happened,
    where: Callable[[int], str],
    band: Callable[[str], float],
    options: TraceOptions,
    report: ReadReport,
    graph: Graph = _bag,
) -> Iterator[Job]:
    """One job per job id, one task per task index, with its attempts folded into one; no GPUs.

    Work is the duration of the last attempt (``protocol="last-attempt"``), since an evicted task
    starts from the beginning, or of all attempts together (``"all-attempts"``). A job with a task
    that is alive at the end of the trace is dropped; ``keep_partial`` keeps it and cuts such a task
    there. Tasks that ended before they ever ran are left out. The tasks of a job have no parents
    unless ``graph`` adds them.

    Raises:
        ConfigError: The protocol is neither of these.
    """
    if options.protocol not in (None, *_PROTOCOLS):
        raise ConfigError(f"unknown protocol {options.protocol!r} for Google traces; known: {', '.join(_PROTOCOLS)}")
    for group in gather(rows):
        lives = _Lives.of(group, where, report)
        if lives.tasks and (job := lives.job(happened.end_us, where, band, options, report, graph)):
            yield job


def work_text(options: TraceOptions) -> str:
    """Work of a task, in words."""
    which = "all attempts together" if options.protocol == "all-attempts" else "its last attempt"
    return f"how long {which} ran; of tasks that ran before the window, what lies in it"


def machines(
    name: str, events: Iterable[tuple[str, Event, float, float, float]]
) -> tuple[Cluster, tuple[Downtime, ...]]:
    """Machines described by events, and the times when they are absent.

    Events are ``(machine, event, time_s, cpus, memory_gb)`` in order of time. A machine that is
    resized keeps its largest size.

    Raises:
        ModelError: A size is negative, or there is no machine.
    """
    sizes: dict[str, tuple[float, float]] = {}
    away: dict[str, float | None] = {}
    downtimes: list[tuple[str, float, float]] = []
    for machine, event, time_s, cpus, memory in events:
        largest = sizes.get(machine, (0.0, 0.0))
        sizes[machine] = max(cpus, largest[0]), max(memory, largest[1])
        since = away.setdefault(machine, 0.0)
        if event is Event.END and since is None:
            away[machine] = time_s
        elif event is not Event.END and since is not None:
            downtimes.append((machine, since, time_s))
            away[machine] = None
    downtimes += [(machine, since, inf) for machine, since in away.items() if since is not None]
    place = {machine: index for index, machine in enumerate(sizes)}
    absences = [Downtime(place[machine], start, end) for machine, start, end in downtimes if start < end]
    return Cluster(tuple([Node(machine, None, 0, *size) for machine, size in sizes.items()]), name), tuple(absences)


def seconds(time_us: float) -> float:
    """Seconds from the start of the window; 0 for earlier times."""
    return max(0.0, (time_us - _WINDOW_STARTS_US) / 1e6)


@dataclass(slots=True)
class _Lives:
    """Collected events of one job."""

    id: str
    arrival_s: float
    tasks: dict[str, Attempts] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    asked: dict[str, tuple[str, str]] = field(default_factory=dict)
    user: str = ""
    priority: str = ""

    @classmethod
    def of(cls, group: Gathered, where: Callable[[int], str], report: ReadReport) -> _Lives:
        lives = cls(group.job, group.time)
        before = 0
        for place, fields in map(unpack, group.rows):
            if len(fields) == 1:
                lives.user = fields[0]
                continue
            time_us, task, event, user, lives.priority, cpus, memory = fields
            lives.user = lives.user or user
            time = int(time_us)
            if time < before:
                report.note("events out of order", where(place))
            before = time
            if task not in lives.tasks:
                lives.tasks[task], lives.first[task] = Attempts(), place
            lives.tasks[task].take(_EVENTS[event], seconds(time))
            if cpus or memory or task not in lives.asked:
                lives.asked[task] = cpus, memory
        return lives

    def job(
        self,
        end_us: int,
        where: Callable[[int], str],
        band: Callable[[str], float],
        options: TraceOptions,
        report: ReadReport,
        graph: Graph,
    ) -> Job | None:
        """The job, or ``None`` if its events were dropped for a reason."""
        if not options.keep_partial and any(life.alive for life in self.tasks.values()):
            rows = sum(life.rows for life in self.tasks.values())
            report.drop("of jobs that outlive the trace", where(next(iter(self.first.values()))), rows)
            return None
        tasks = []
        kept = 0
        for name, life in self.tasks.items():
            at = where(self.first[name])
            if life.alive:
                report.note("tasks cut at the end of the trace", at)
                life.cut(seconds(end_us))
            with report.dropping(at, rows=life.rows, impossible="of impossible tasks"):
                tasks.append(_task(name, life, self.asked[name], options, report, at))
                kept += life.rows
        if not tasks:
            return None
        at = where(next(iter(self.first.values())))
        try:
            task_graph = graph(tasks, lambda what: report.note(what, at))
        except GraphError as error:
            report.drop("cyclic", at, kept, f"job {self.id}: {error}")
            return None
        report.kept += kept
        return Job(self.id, task_graph, self.arrival_s, band(self.priority), self.user)


_EVENTS = {event.value: event for event in Event}


def _task(
    name: str, life: Attempts, asked: tuple[str, str], options: TraceOptions, report: ReadReport, where: str
) -> Task:
    """Task of one life.

    Raises:
        Dirty: It never ran, or its request is not a number.
        ModelError: Its request is invalid.
    """
    if not life.attempts:
        raise Dirty("of tasks that began before the trace" if life.headless else "of tasks that never ran")
    if life.attempts > 1:
        report.note("tasks of several attempts (folded into one)", where)
    if asked == ("", ""):
        report.note("tasks without a request (nothing asked)", where)
    cpus, memory = finite_number(asked[0] or "0", "CPU request"), finite_number(asked[1] or "0", "memory request")
    work = life.total_s if options.protocol == "all-attempts" else life.last_s
    return Task(name, max(work, options.floor_s), 1, False, *options.cpu_demand(cpus, memory))
