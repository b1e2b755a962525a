"""Slurm's accounting: what ``sacct -P`` or ``sacct --json`` prints.

``docs/traces.md`` has the command. One job per ``JobID`` (``JobIDRaw`` is no key: the last task of an array carries the
array's own number), its attempts the rows of equal ``JobID`` in order of submission. Rows are gathered by job, sorted
externally beyond 262,144 rows (see ``gather``). Measured on Slurm 22.05.8 and 24.11.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from math import inf
from sys import intern
from zoneinfo import ZoneInfo

import numpy as np

from dagsim.errors import ConfigError, ModelError
from dagsim.model import Job, Task, TaskGraph
from dagsim.traces.fields import Dirty, count, finite_number
from dagsim.traces.formats.sacct_columns import sacct_arrays, sacct_table
from dagsim.traces.gather import Gathered, gather, pack, unpack
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.rows import Block
from dagsim.traces.sites import hosts, site_gpu
from dagsim.traces.slurm import (
    COLUMNS,
    COMMAND,
    NOT_OVER,
    Resources,
    array_tasks,
    delimiter_of,
    duration_s,
    is_json,
    is_unset,
    limit_s,
    moment_s,
    resources,
    sacct_rows,
    state,
)
from dagsim.traces.source import Row, Source
from dagsim.workload.arrays import JobArrays

__all__ = ["Sacct"]

_PROTOCOLS = ("last-attempt", "all-attempts")
_NEVER_KEPT = {"BOOT_FAIL": "whose nodes did not boot", "REVOKED": "revoked by another cluster"}
_HOUR_S = 3600.0
_SHORT = 200  # characters of a list of nodes; longer ones are not remembered
_MOST_NODES = 1 << 14  # of one job


class Sacct(Reader):
    """One gang per job, of one instance per node; a heterogeneous job has a task per component.

    Every job that held its nodes is kept, however it ended. An attempt that was requeued, preempted or lost its node is
    followed by another: work is that of the last one (``protocol="last-attempt"``) or of all (``all-attempts``).
    """

    name = "sacct"
    summary = "Slurm's accounting: sacct -P or sacct --json"
    uses = frozenset(
        {
            "protocol",
            "keep_partial",
            "gpus_per_task",
            "reference_gpu",
            "floor_s",
            "timezone",
            "tenant",
            "demand",
            "mig",
            "shards",
            "gpu_names",
            "delimiter",
        }
    )

    def recognises(self, source: Source) -> bool:
        return is_json(source) or delimiter_of(source) is not None

    def nearly(self, source: Source) -> str | None:
        names = re.split(r"[\s|,;]+", source.head(1)[0].lower())
        if not {"jobid", "jobidraw"} & set(names) or "state" not in names:
            return None
        return (
            f"nearly 'sacct': a header of sacct without -P, or without the columns needed; this makes them: {COMMAND}"
        )

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        reading = _Reading.of(source, options, report)
        groups = gather(reading.by_job(sacct_rows(source, report, options.delimiter)))
        for _, together in groupby(groups, key=lambda group: group.time):
            for group in sorted(together, key=lambda group: _order(group.job)):  # text and JSON list them differently
                job = reading.job(group)
                if job is not None:
                    yield job

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[Block]:
        arrays = self.arrays(source, options, report, most)
        if arrays is None:
            return Reader.blocks(self, source, options, report, most)
        return iter((Block(arrays, np.ones(len(arrays), np.int64)),))  # no window begins later

    def arrays(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> JobArrays | None:
        reading = _Reading.of(source, options, report)
        if is_json(source) or options.start:  # rows of jobs that are left out differ in number
            return None
        table = sacct_table(source, options.delimiter)
        if table is None:
            return None
        return sacct_arrays(table, options, report, most, _order, reading.template, reading.hosts, reading.job)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        which = "all attempts together" if options.protocol == "all-attempts" else "its last attempt"
        said = {
            "work": f"seconds that {which} ran, without suspensions; a job arrives when it was first submitted",
            "tenant": f"the {options.tenant or 'account, else the user'} (tenant)",
            "demand": f"what was {options.demand or 'allocated'}, even over the nodes; any GPU type but where one was "
            "asked for",
            "not listed": "sacct leaves out jobs that never became eligible",
        }
        if not is_json(source):
            said["dates"] = f"those without an offset are of {options.timezone or 'UTC'} (timezone)"
        return said


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One row that is in order."""

    place: int
    id: str
    tenant: str
    submitted: tuple[str, str, str, str]
    """User, account, partition and QOS."""
    state: str
    submit_s: float
    eligible_s: float
    start_s: float | None
    ran_s: float
    limit_s: float | None
    nodes: int
    asked: Resources
    given: Resources
    ran: bool
    restarts: bool
    node_list: str

    @property
    def base(self) -> str:
        """The job without the number of a component."""
        return self.id.partition("+")[0]

    @property
    def is_over(self) -> bool:
        return self.state not in NOT_OVER


@dataclass(frozen=True, slots=True)
class _Reading:
    """One reading of a log."""

    source: Source
    options: TraceOptions
    report: ReadReport
    zone: ZoneInfo | None
    named: dict[str, str]

    @classmethod
    def of(cls, source: Source, options: TraceOptions, report: ReadReport) -> _Reading:
        """A reading with these options.

        Raises:
            ConfigError: A protocol that there is not.
        """
        if options.protocol not in (None, *_PROTOCOLS):
            raise ConfigError(f"sacct knows no protocol {options.protocol!r}; it knows {', '.join(_PROTOCOLS)}")
        return cls(source, options, report, options.zone(), options.named_gpus())

    def by_job(self, rows: Iterator[Row]) -> Iterator[tuple[str, float, str]]:
        """Rows of jobs, with the job and when it was submitted; steps are passed over."""
        for place, row in rows:
            id = row[1] or row[0]
            if "." in id.partition("[")[0]:  # a list of tasks that was cut has dots too
                self.report.skip("of steps")
                continue
            try:
                if not id:
                    raise Dirty("without an id")
                submit_s = moment_s(row[6], "Submit", self.zone)
                if submit_s is None:
                    raise Dirty("without Submit")
            except Dirty as reason:
                self.report.drop(str(reason), self.source.where(place))
            else:
                yield id.partition("+")[0], submit_s, pack(place, row)

    def job(self, group: Gathered) -> Job | None:
        """The job of its rows, or nothing where it cannot be kept."""
        components: dict[str, list[_Attempt]] = {}
        seen: dict[str, set[str]] = {}
        for text in group.rows:
            place, row = unpack(text)
            same = text.partition("\x1f")[2]
            try:
                attempt = self._attempt(place, dict(zip(COLUMNS, row, strict=True)))
                if same in seen.setdefault(attempt.id, set()):
                    raise Dirty("given twice")
                seen[attempt.id].add(same)
            except Dirty as reason:
                self.report.drop(str(reason), self.source.where(place))
            else:
                components.setdefault(attempt.id, []).append(attempt)
        kept = {id: self._lasting(attempts) for id, attempts in components.items()}
        rows = [attempt for attempts in kept.values() for attempt in attempts]
        if not rows:
            return None
        if not all(kept.values()):
            self._drop("of jobs that lost a component", rows)
            return None
        try:
            made = self._made(group, list(kept.values()))
        except Dirty as reason:
            self._drop(str(reason), rows)
            return None
        except ModelError as error:
            self._drop("that ask for what cannot be", rows, str(error))
            return None
        self.report.kept += len(rows)
        return made

    def template(self, row: list[str]) -> tuple[Task, str | None] | None:
        """The task of a job that is this row alone, had it run for 10 s, and the GPU type that it was measured on;
        nothing if anything is to be said of it."""
        scratch = replace(self, report=ReadReport())
        said = {"JobID": "1", "Submit": "1", "Eligible": "1", "Start": "2", "End": "12", "ElapsedRaw": "10"}
        unsaid = {"Elapsed": "", "Suspended": ""}
        try:
            ran = scratch._lasting([scratch._attempt(1, dict(zip(COLUMNS, row, strict=True)) | said | unsaid)])
            parts = scratch._by_type(ran) if ran else []
            task = scratch._task(parts[0], "job") if len(parts) == 1 else None
        except (Dirty, ModelError):
            return None
        if task is None or scratch.report.dropped or scratch.report.noted:
            return None
        return task, self._measured_on(parts[0][-1])

    def hosts(self, text: str) -> tuple[str, ...]:
        """The nodes of a list; none where it cannot be read."""
        try:
            return _hosts(text)
        except ValueError:
            return ()

    def _measured_on(self, attempt: _Attempt) -> str | None:
        kinds = [site_gpu(kind, self.named) for kind, _ in attempt.given.types]
        return kinds[0] if len(kinds) == 1 else None

    def _drop(self, reason: str, rows: list[_Attempt], detail: str = "") -> None:
        for attempt in rows:
            self.report.drop(reason, self.source.where(attempt.place), detail=detail)

    def _attempt(self, place: int, row: dict[str, str]) -> _Attempt:
        """The attempt of a row.

        Raises:
            Dirty: It cannot be used.
        """
        word = state(row["State"])
        given = resources(row["AllocTRES"])
        start_s, end_s = (moment_s(row[name], name, self.zone) for name in ("Start", "End"))
        submit_s = moment_s(row["Submit"], "Submit", self.zone) or 0.0
        nowhere = row["NodeList"].lower() == "none assigned"
        ran = word != "PENDING" and start_s is not None and not nowhere
        if row["ReqTRES"] or row["AllocTRES"]:  # without any, the file has no such columns
            ran = ran and given.given
        else:
            given = Resources(cpus=count(row["NCPUS"] or "0", "NCPUS", 0))
        return _Attempt(
            place,
            row["JobID"] or row["JobIDRaw"],
            self._tenant(row),
            _submitted(row),
            word,
            submit_s,
            moment_s(row["Eligible"], "Eligible", self.zone) or submit_s,
            start_s,
            self._ran_s(place, row, start_s, end_s) if ran else 0.0,
            limit_s(row["TimelimitRaw"], row["Timelimit"]),
            count(row["NNodes"] or "1", "NNodes", 0) or 1,
            resources(row["ReqTRES"]),
            given,
            ran,
            not is_unset(row["Restarts"]) and finite_number(row["Restarts"], "Restarts") > 0,
            row["NodeList"],
        )

    def _tenant(self, row: dict[str, str]) -> str:
        match self.options.tenant:
            case "user":
                return row["User"]
            case "partition":
                return row["Partition"].partition(",")[0]  # while it waits there may be several
            case "account":
                return row["Account"]
            case _:
                return row["Account"] or row["User"]

    def _ran_s(self, place: int, row: dict[str, str], start_s: float | None, end_s: float | None) -> float:
        """The time that it ran, without suspensions."""
        suspended_s = duration_s(row["Suspended"], "Suspended") or 0.0
        elapsed_s = duration_s(row["ElapsedRaw"], "ElapsedRaw")
        if elapsed_s is None:
            elapsed_s = duration_s(row["Elapsed"], "Elapsed")
        between_s = None if start_s is None or end_s is None else end_s - start_s - suspended_s
        if elapsed_s is None:
            elapsed_s = between_s
        elif between_s is not None and abs(abs(between_s - elapsed_s) - _HOUR_S) < 1:
            self.report.note("whose hours change between winter and summer time", self.source.where(place))
        if elapsed_s is None:
            raise Dirty("without End and Elapsed")
        if elapsed_s < 0:
            raise Dirty("with an end before the start")
        return elapsed_s

    def _lasting(self, attempts: list[_Attempt]) -> list[_Attempt]:
        """The attempts that ran of a job that is kept, in order; nothing where it is dropped."""
        attempts.sort(key=lambda each: (each.submit_s, inf if each.start_s is None else each.start_s, each.place))
        ran = []
        for attempt in attempts:
            reason = self._unusable(attempt)
            if reason is None:
                ran.append(attempt)
                continue
            detail = ""
            if (tasks := _array_tasks(attempt.id)) is not None:
                reason, detail = "of array tasks that never ran", f"{tasks:,} tasks"
                self.report.note("array tasks never ran, at least", self.source.where(attempt.place), tasks)
            self.report.drop(reason, self.source.where(attempt.place), detail=detail)
        if ran and not attempts[-1].is_over and not self.options.keep_partial:
            for attempt in ran:
                self.report.drop("of jobs that outlive the trace", self.source.where(attempt.place))
            return []
        if ran and ran[0].restarts:
            self.report.note("of requeued jobs whose first attempts are not in the file (sacct --duplicates)",
                             self.source.where(ran[0].place))  # fmt: skip
        return ran

    def _unusable(self, attempt: _Attempt) -> str | None:
        if attempt.state in _NEVER_KEPT:
            return _NEVER_KEPT[attempt.state]
        if not attempt.ran:
            if attempt.state == "CANCELLED":
                return "cancelled before they started"
            return "that never ran" if attempt.state in NOT_OVER else "that ended before they started"
        if not attempt.is_over and not self.options.keep_partial:
            return "that outlive the trace"
        return None

    def _made(self, group: Gathered, components: list[list[_Attempt]]) -> Job:
        """The job, a task per component.

        Raises:
            Dirty, ModelError: It asks for what cannot be told or cannot be.
        """
        first = components[0][0]
        if len(components) > 1:
            self.report.note("of several components, which need not start together here", self._where(first))
        pieces = [piece for attempts in components for piece in self._by_type(attempts)]
        names = [f"component-{place}" for place in range(len(pieces))] if len(pieces) > 1 else ["job"]
        tasks = [self._task(each, name) for each, name in zip(pieces, names, strict=True)]
        shown = components[0][0 if self.options.protocol == "all-attempts" else -1]
        return Job(
            first.base,
            TaskGraph(tuple(tasks)),
            group.time,
            tenant=first.tenant,
            user=first.submitted[0],
            account=first.submitted[1],
            partition=shown.submitted[2],  # the one used, where several were asked for
            qos=first.submitted[3],
            observed_start_s=None if shown.start_s is None else max(group.time, shown.start_s),
            eligible_s=max(group.time, shown.eligible_s),
            observed_nodes=self._nodes([each[-1] for each in components]),
        )

    def _nodes(self, shown: list[_Attempt]) -> tuple[str, ...]:
        """The nodes that the log names; none where its list cannot be read."""
        try:
            listed = [_hosts(each.node_list) for each in shown]
        except ValueError:
            return ()
        return listed[0] if len(listed) == 1 else tuple([name for names in listed for name in names])

    def _by_type(self, attempts: list[_Attempt]) -> list[list[_Attempt]]:
        """A part of a component for each GPU type, since a gang runs on one type. Only of components whose whole nodes
        are of several types."""
        last = attempts[-1]
        given, nodes = last.given, last.nodes
        if given.gpus > last.asked.gpus and last.asked.given:
            self.report.note("that hold GPUs they did not request", self._where(last))
        requested = self.options.demand == "requested" and last.asked.given
        if requested or given.slices or len(given.types) < 2 or nodes < 2 or given.gpus % nodes:
            return [attempts]
        per_node = given.gpus // nodes
        if sum(size for _, size in given.types) != given.gpus or any(size % per_node for _, size in given.types):
            return [attempts]
        self.report.note("on nodes of several GPU types, which need not start together here", self._where(last))
        parts = []
        for kind, size in sorted(given.types, key=lambda each: -each[1]):
            share = size / given.gpus
            part = Resources(size, ((kind, size),), (), 0, given.cpus * share, given.memory_gb * share)
            parts.append([*attempts[:-1], replace(last, nodes=size // per_node, given=part)])
        return parts

    def _task(self, attempts: list[_Attempt], name: str) -> Task:
        last = attempts[-1]
        every = self.options.protocol == "all-attempts"
        seconds = sum(each.ran_s for each in attempts) if every else last.ran_s
        taken = last.asked if self.options.demand == "requested" and last.asked.given else last.given
        instances, gpus = self._shape(taken, last)
        measured_on = self._measured_on(last)
        asked = tuple(dict.fromkeys([site_gpu(kind, self.named) for kind, _ in last.asked.types]))
        limit = last.limit_s
        return Task(
            name,
            max(self.options.on_reference(seconds, measured_on), self.options.floor_s),
            instances,
            instances > 1,
            gpus,
            taken.cpus / instances,
            taken.memory_gb / instances,
            asked or None if gpus else None,
            estimate=None if limit is None else self.options.on_reference(limit, measured_on),
        )

    def _shape(self, taken: Resources, attempt: _Attempt) -> tuple[int, float]:
        """Instances, and GPUs of each."""
        nodes = attempt.nodes
        if taken.slices:
            if not self.options.mig:
                raise Dirty("on MIG slices (option mig)")
            if len(taken.slices) > 1:
                self.report.note("on MIG slices of several sizes, each taken as the largest", self._where(attempt))
            return sum(each for _, each in taken.slices), max(share for share, _ in taken.slices)
        if taken.gpus:
            if taken.gpus % nodes == 0:
                return nodes, taken.gpus // nodes
            self.report.note("whose GPUs are not even over their nodes, taken one by one", self._where(attempt))
            return taken.gpus, 1
        if taken.shards:
            if self.options.shards is None:
                raise Dirty("on shards of a GPU (option shards)")
            whole, rest = divmod(taken.shards, self.options.shards)
            return 1, whole + (rest > 0) if whole else rest / self.options.shards
        return nodes, self.options.gpus_per_task or 0

    def _where(self, attempt: _Attempt) -> str:
        return self.source.where(attempt.place)


def _submitted(row: dict[str, str]) -> tuple[str, str, str, str]:
    """User, account, partition and QOS, shared by all jobs that have the same."""
    partition = row["Partition"].partition(",")[0]
    return intern(row["User"]), intern(row["Account"]), intern(partition), intern(row["QOS"])


def _order(job: str) -> tuple[tuple[int, ...], str]:
    """Jobs by their numbers, in order of submission, and by those of their array."""
    return tuple([int(digits) for digits in re.findall(r"\d{1,18}", job)[:3]]), job


@lru_cache(maxsize=1 << 12)
def _short_hosts(text: str) -> tuple[str, ...]:
    """The names of a list, shared by all jobs that ran there."""
    return tuple([intern(name) for name in hosts(text, _MOST_NODES)])


def _hosts(text: str) -> tuple[str, ...]:
    return _short_hosts(text) if len(text) < _SHORT else hosts(text, _MOST_NODES)


def _array_tasks(id: str) -> int | None:
    """Tasks that an id stands for; nothing if it is one job, or its list cannot be read."""
    try:
        return array_tasks(id)
    except Dirty:
        return 1
