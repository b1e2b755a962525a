"""Code shared by the readers of both Google traces. It reconstructs the history of each task from
events, and builds jobs from the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from math import inf, nan
from typing import Any, NamedTuple, Protocol

import numpy as np

from dagsim.errors import ConfigError, GraphError, ModelError
from dagsim.model import Cluster, Demand, Job, Node, Task, TaskGraph
from dagsim.traces.fields import Dirty, finite_number, not_a_number
from dagsim.traces.grouping import Grouped, in_parts, rows_by_job
from dagsim.traces.reader import Downtime, JobBlock
from dagsim.traces.report import ReadReport
from dagsim.traces.rows import Checks, Findings, JobBatch, job_blocks, kinds_of_rows, with_others
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table
from dagsim.workload.array_tools import bounds, combinations, objects, optional
from dagsim.workload.arrays import JobArrays, Labels, TaskKind


class Event(IntEnum):
    """The meaning of an event for a task, a job or a machine."""

    SUBMIT = 0
    """The task waits to be scheduled; the machine joins."""
    SCHEDULE = 1
    """The task starts to run."""
    END = 2
    """The task is evicted, fails, finishes, is killed or lost; the machine leaves."""
    UPDATE = 3
    """The demand or capacity changes, or the task moves between queues."""
    JOB = 4
    """The whole job is submitted."""


AFTER_US = 2**63 - 1
USES = frozenset({"gpus_per_task", "keep_partial", "floor_s", "protocol"})
_WINDOW_STARTS_US = 600_000_000
_PROTOCOLS = ("last-attempt", "all-attempts")

COLUMNS = ("time", "job", "task", "event", "user", "priority", "cpus", "memory")
"""Columns of a table of events, all as texts; times are in microseconds."""
TIME, JOB, TASK, EVENT, _USER, _PRIORITY, _CPUS, _MEMORY = range(len(COLUMNS))


class Workflows(Protocol):
    """Jobs whose tasks wait for each other."""

    def __bool__(self) -> bool:
        """Return True if there are any such jobs."""

    def __contains__(self, job: str) -> bool: ...

    def graph(self, tasks: list[Task], note: Callable[[str], None]) -> TaskGraph:
        """Build the graph of a job from its tasks. Report tolerated irregularities to ``note``.

        Raises:
            GraphError: The graph is not a DAG.
        """


@dataclass(slots=True)
class Events:
    """Builds jobs from events: one job per job id, one task per task index, with its attempts
    merged into one. Tasks need no GPUs.

    With ``protocol="last-attempt"``, work is the duration of the last attempt, because an evicted
    task restarts from the beginning. With ``"all-attempts"``, it is the duration of all attempts
    together. If a task is still waiting or running at the end of the trace, its job is dropped.
    With ``keep_partial``, the job is kept, and the task ends there. Tasks that ended before they
    ever ran are left out. The tasks of a job have no parents unless it is one of the ``workflows``.

    Raises:
        ConfigError: The protocol is neither of these.
    """

    options: TraceOptions
    band: Callable[[str], float]
    """Returns the priority of a job, given its text."""
    codes: Mapping[str, Event]
    workflows: Workflows | None = None
    end_us: int = 0
    """Time of the last event read."""

    def __post_init__(self) -> None:
        if self.options.protocol not in (None, *_PROTOCOLS):
            raise ConfigError(
                f"unknown protocol {self.options.protocol!r} for Google traces; known: {', '.join(_PROTOCOLS)}"
            )

    def blocks(
        self, read: Callable[[ReadReport], Iterator[Table]], report: ReadReport, most: int | None
    ) -> Iterator[JobBlock]:
        """Yield the first ``most`` jobs. ``read`` yields the events in the order of the file. All
        events of whole jobs must come before the events of tasks, or all of them after."""
        parts = in_parts(lambda report: map(self._within, read(report)), _keys, report)
        return job_blocks(map(self._batch, parts), report, most)

    def _within(self, table: Table) -> Table:
        self.end_us = max(self.end_us, int(times_us(table)[self._kinds(table) != Event.JOB].max(initial=0)))
        return table

    def _kinds(self, table: Table) -> np.ndarray:
        """Return (n,) int8: the meaning of each event."""
        words = table.words(EVENT)
        kinds: np.ndarray = np.array([self.codes[word] for word in words.words], np.int8)[words.place]
        return kinds

    def _batch(self, table: Table) -> JobBatch:
        """Convert a table to jobs."""
        findings, kind, time_us = Findings(), self._kinds(table), times_us(table)
        groups = rows_by_job(*_keys(table))
        job, count = groups.job_of_row(), len(groups.ids)
        rows = groups.row[kind[groups.row] != Event.JOB]  # rows grouped by job, each group in the order of the file
        late = (np.diff(time_us[rows]) < 0) & (np.diff(job[rows]) == 0)
        findings.note(rows[1:][late], "events out of order")

        lives = _Lives.of(table, rows, job, kind, seconds(time_us))
        sizes = np.bincount(job[rows], minlength=count).astype(np.int64)  # rows of each job
        lead = np.full(count, -1)
        lead[job[rows][::-1]] = rows[::-1]  # assigned backwards, so that each job keeps its first row
        is_partial = np.bincount(lives.job, lives.alive, count) > 0
        if self.options.keep_partial:
            lives.cut(seconds(self.end_us))
        else:
            cut_off = np.flatnonzero(is_partial)
            findings.drop(lead[cut_off], "of jobs that outlive the trace", stage=1, counts=sizes[cut_off])
        tasks, kind_of, kinds = self._checked(table, lives, is_partial & (not self.options.keep_partial), findings)

        work = (lives.total_s if self.options.protocol == "all-attempts" else lives.last_s)[tasks]
        owner = lives.job[tasks]
        user, priority = _last_words(table, groups.row, job, kind, lead)
        every = jobs_of_tasks(
            groups,
            owner,
            table.words(TASK).chosen(lives.lead[tasks]),
            np.where(work < self.options.floor_s, self.options.floor_s, work),
            kind_of,
            kinds,
            priority=optional(np.array([self.band(word) for word in priority.words])[priority.place], 0.0),
            tenant=user,
        )
        kept_rows = np.bincount(owner, lives.rows[tasks], count).astype(np.int64)
        batch = JobBatch(table, every, kept_rows > 0, kept_rows, job, findings)
        return _linked(batch, self.workflows, lead) if self.workflows else batch

    def _checked(
        self, table: Table, lives: _Lives, is_lost: np.ndarray, findings: Findings
    ) -> tuple[np.ndarray, np.ndarray, tuple[TaskKind, ...]]:
        """Return the tasks to keep, (n,) int64, and the kind of each. ``is_lost``, (J,) bool, marks
        the jobs that are not kept."""
        usable = ~is_lost[lives.job]

        def note(tasks: np.ndarray, text: str) -> None:
            findings.note(lives.lead[tasks & usable], text, stage=1)

        def drop(tasks: np.ndarray, reason: str, details: Mapping[int, str] | None = None) -> None:
            faulty = np.flatnonzero(tasks & usable)
            findings.drop(lives.lead[faulty], reason, stage=1, counts=lives.rows[faulty], details=details)
            usable[faulty] = False

        note(lives.alive, "tasks cut at the end of the trace")
        drop((lives.attempts == 0) & lives.is_headless, "of tasks that began before the trace")
        drop(lives.attempts == 0, "of tasks that never ran")
        note(lives.attempts > 1, "tasks with several attempts (merged into one)")
        asked = [table.words(column).chosen(lives.asked) for column in (_CPUS, _MEMORY)]
        blank = [np.array([not word for word in words.words])[words.place] for words in asked]
        note(blank[0] & blank[1], "tasks without a request (taken as no request)")
        amounts = []
        for words, field in zip(asked, ("CPU request", "memory request"), strict=True):
            values, reasons = zip(*[requested_amount(word, field) for word in words.words], strict=True)
            for reason in sorted({*reasons} - {""}):
                drop(np.array([cause == reason for cause in reasons])[words.place], reason)
            amounts.append(np.array(values)[words.place])
        kind, kinds = kinds_of_tasks(usable, amounts, self.options)
        errors = impossible_tasks(usable, table.texts(TASK)[lives.lead], lives.last_s, kind, kinds)
        details = {int(lives.lead[task]): text for task, text in errors.items()}
        drop(np.isin(np.arange(len(usable)), list(errors)), "of impossible tasks", details)
        tasks = np.flatnonzero(usable)
        return tasks, kind[tasks], kinds


def kinds_of_tasks(
    usable: np.ndarray, amounts: Sequence[np.ndarray], options: TraceOptions
) -> tuple[np.ndarray, tuple[TaskKind, ...]]:
    """Return the kinds of tasks that request these cores and this memory (see ``kinds_of_rows``)."""
    return kinds_of_rows(usable, amounts, lambda *asked: TaskKind(Demand(*options.cpu_demand(*asked))))


def impossible_tasks(
    usable: np.ndarray, names: np.ndarray, work: np.ndarray, kind: np.ndarray, kinds: Sequence[TaskKind]
) -> dict[int, str]:
    """Return the ``usable`` tasks that the job model rejects, each with the reason."""
    doubtful, errors = ~np.array([kind.is_possible() for kind in kinds])[kind] | ~np.isfinite(work), dict[int, str]()
    for task in np.flatnonzero(usable & doubtful).tolist():
        try:
            kinds[kind[task]].task(names[task], float(work[task]), 1)
        except ModelError as error:
            errors[task] = str(error)
    return errors


def jobs_of_tasks(
    groups: Grouped,
    owner: np.ndarray,
    name: Labels,
    work: np.ndarray,
    kind: np.ndarray,
    kinds: tuple[TaskKind, ...],
    **columns: Any,
) -> JobArrays:
    """Build jobs from tasks that do not wait for each other. ``owner`` contains the job of each
    task, (n,) int64, in ascending order.
    """
    return JobArrays(
        ids=groups.ids,
        arrival_s=groups.time,
        first=bounds(np.bincount(owner, minlength=len(groups.ids))),
        name=name.place,
        names=objects(name.words),
        work=work,
        instances=np.ones(len(work), np.int64),
        kind=kind,
        kinds=kinds,
        waits=np.zeros(len(work) + 1, np.int64),
        parent=np.zeros(0, np.int32),
        **columns,
    )


def _linked(batch: JobBatch, workflows: Workflows, lead: np.ndarray) -> JobBatch:
    """Return the same jobs, with edges between the tasks of workflows. ``lead`` contains the first
    row of each job.
    """
    is_linked = np.array([id in workflows for id in batch.every.ids.tolist()], bool)
    findings = batch.findings

    def make(place: int, rows: list[int]) -> tuple[Job, int] | None:
        if not (batch.kept[place] and is_linked[place]):
            return None
        job, at = next(batch.every.between(place, place + 1).jobs()), lead[place : place + 1]
        try:
            graph = workflows.graph(list(job.tasks), lambda text: findings.note(at, text, stage=2))
        except GraphError as error:
            details = {int(at[0]): f"job {job.id}: {error}"}
            findings.drop(at, "cyclic", stage=3, counts=batch.rows[place : place + 1], details=details)
            return None
        return replace(job, graph=graph), int(batch.rows[place])

    none = np.zeros(len(batch.kept) + 1, np.int64)
    return with_others(batch._replace(kept=batch.kept & ~is_linked), make, none, none)


class _Lives(NamedTuple):
    """The events of each of T tasks, sorted by job and then by first event. A task may run
    several times before it finally ends, each time from the beginning.
    """

    job: np.ndarray  # (T,) int64
    lead: np.ndarray  # (T,) int64: row of the first event
    asked: np.ndarray  # (T,) int64: row of the last event that states a request
    rows: np.ndarray  # (T,) int64: number of events
    attempts: np.ndarray  # (T,) int64
    last_s: np.ndarray  # (T,) float64: duration of the last finished attempt
    total_s: np.ndarray  # (T,) float64: total duration of all finished attempts
    began_s: np.ndarray  # (T,) float64: start of the current attempt, or NaN
    alive: np.ndarray  # (T,) bool: True if the task is still waiting or running after the last event
    is_headless: np.ndarray  # (T,) bool: True if the first event is an end, because the task had started before

    @classmethod
    def of(cls, table: Table, rows: np.ndarray, job: np.ndarray, kind: np.ndarray, time_s: np.ndarray) -> _Lives:
        """Reconstruct the tasks from the events in ``rows``, which are sorted by job and then as in
        the file.
        """
        number, first = combinations((job[rows], table.words(TASK).place[rows]))
        by_task = np.argsort(number, kind="stable")
        row, owner, count = rows[by_task], number[by_task], len(first)
        events, time_s = kind[row], time_s[row]
        sizes = np.bincount(owner, minlength=count).astype(np.int64)
        begins = bounds(sizes)[:-1]

        lasting = events != Event.UPDATE
        alive = np.zeros(count, bool)
        # if an index occurs several times, its last value counts, here and below
        alive[owner[lasting]] = events[lasting] != Event.END
        moves = np.flatnonzero((events == Event.SCHEDULE) | (events == Event.END))
        starts, stops = moves[:-1], moves[1:]
        ran = (events[starts] == Event.SCHEDULE) & (events[stops] == Event.END) & (owner[starts] == owner[stops])
        starts, stops = starts[ran], stops[ran]
        lasted_s, last_s, began_s = (
            np.maximum(0.0, time_s[stops] - time_s[starts]),
            np.zeros(count),
            np.full(count, nan),
        )
        last_s[owner[stops]] = lasted_s
        began_s[owner[moves]] = np.where(events[moves] == Event.SCHEDULE, time_s[moves], nan)
        asked = begins.copy()
        stated = np.flatnonzero((table.texts(_CPUS)[row] != "") | (table.texts(_MEMORY)[row] != ""))
        asked[owner[stated]] = stated
        return cls(
            job[rows[first]],
            rows[first],
            row[asked],
            sizes,
            np.bincount(owner, events == Event.SCHEDULE, count).astype(np.int64),
            last_s,
            # without any stops, bincount would return int64
            np.bincount(owner[stops], lasted_s, count).astype(np.float64),
            began_s,
            alive,
            events[begins] == Event.END,
        )

    def cut(self, end_s: float) -> None:
        """End the attempts that are still running at the end of the trace."""
        runs = ~np.isnan(self.began_s)
        self.last_s[runs] = np.maximum(0.0, end_s - self.began_s[runs])
        self.total_s[runs] += self.last_s[runs]


def _keys(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the job and the time in seconds of each event."""
    return table.texts(JOB), seconds(times_us(table))


def late_rows(checks: Checks, texts: np.ndarray) -> np.ndarray:
    """Return a mask of the rows whose time is after the end of the trace, (n,) bool. Drop the rows
    whose time is not a number."""
    times = texts.tolist()
    is_time = [time.isdecimal() and len(time) < 20 for time in times]
    checks.drop(~np.array(is_time, bool), not_a_number("time"))
    return np.array([is_read and int(time) >= AFTER_US for time, is_read in zip(times, is_time, strict=True)], bool)


def times_us(table: Table) -> np.ndarray:
    """Return (n,) int64: the time of each event in microseconds."""
    return np.array(list(map(int, table.texts(TIME).tolist())), np.int64)


def requested_amount(word: str, field: str) -> tuple[float, str]:
    """Return the number in a request, and the reason if it cannot be read."""
    try:
        return finite_number(word or "0", field), ""
    except Dirty as reason:
        return nan, str(reason)


def _last_words(
    table: Table, rows: np.ndarray, job: np.ndarray, kind: np.ndarray, lead: np.ndarray
) -> tuple[Labels, Labels]:
    """Return the user and the priority of each job. The user comes from the event of the whole job
    or, without it, from the first event that names a user. The priority is the last one that is
    stated. ``rows`` are sorted by job."""
    is_job = kind[rows] == Event.JOB
    users = table.words(_USER)
    named = rows[~is_job & (table.texts(_USER)[rows] != "")]
    user, last = lead.copy(), lead.copy()
    user[job[named][::-1]] = named[::-1]
    user[job[rows[is_job]]] = rows[is_job]
    last[job[rows[~is_job]]] = rows[~is_job]
    return users.chosen(user), table.words(_PRIORITY).chosen(last)


def seconds(time_us: Any) -> Any:
    """Convert one time or an array of times to seconds from the start of the window, or to 0 for
    earlier times.
    """
    return np.maximum(0.0, (time_us - _WINDOW_STARTS_US) / 1e6)


def work_text(options: TraceOptions) -> str:
    """Describe how the work of a task is measured."""
    which = "all attempts together" if options.protocol == "all-attempts" else "its last attempt"
    return f"how long {which} ran; for tasks that ran before the window, the part inside it"


def machines(
    name: str, events: Iterable[tuple[str, Event, float, float, float]]
) -> tuple[Cluster, tuple[Downtime, ...]]:
    """Build the machines that events describe, and the times when they are absent.

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
