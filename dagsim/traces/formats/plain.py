"""A plain CSV, or JSON lines, for logs of your own: one row per job, or per task of a job.

The header names the columns, in any order; ``--map`` says which columns of a foreign file hold them. Needed: ``id,
arrival_s, gpus`` and either ``duration_s`` or both ``start_s`` and ``end_s``. Allowed besides:

==============  =====================================================================================
``gpu_type``    GPU types that the job may use, ``A100-40|V100-16``; nothing allows any
``instances``   identical parallel pieces, each of ``gpus`` GPUs and ``duration_s`` (1)
``gang``        whether the instances start together: yes or no (yes)
``cpus``        cores per instance (0)
``memory_gb``   memory per instance (0)
``estimate_s``  what the user claimed the duration to be
``model``       a row of the throughput table, with ``batch``
``priority``    larger is more urgent (0)
``tenant``      user, group or queue
``user``        with ``account``, ``partition`` and ``qos``: what a batch system knows a job by
``deadline_s``  a point in time on the clock of ``arrival_s``
``start_s``     when it really started, on the same clock
``end_s``       when it really ended
``eligible_s``  since when it could have started
``weight``      what a second of waiting costs (1)
``task``        the name of a task: rows of one ``id`` are then the tasks of one job
``parents``     names of the tasks that a task waits for, ``map|shuffle``
==============  =====================================================================================

Times are seconds, from any origin at or before the first arrival, or ISO dates; durations are seconds or
``[DD-]HH:MM:SS``. Rows are sorted by arrival, externally beyond 262,144
rows (see ``gather``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from zoneinfo import ZoneInfo

from dagsim.errors import GraphError, ModelError, TraceError
from dagsim.model import Job, Task, TaskGraph
from dagsim.model.gpu import canonical
from dagsim.traces.fields import Dirty, count, finite_number
from dagsim.traces.formats.plain_columns import NUMBERS, TEXTS, plain_rows
from dagsim.traces.gather import Gathered, gather, pack, unpack
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.rowwise import RowReader
from dagsim.traces.slurm import duration_s, moment_s
from dagsim.traces.source import Row, Source
from dagsim.traces.tables import Table, likely, map_command
from dagsim.workload.arrays import JobArrays
from dagsim.workload.records import clipped

__all__ = ["Plain"]

_NEEDED = ("id", "arrival_s", "gpus")
_ALLOWED = (
    "duration_s",
    "start_s",
    "end_s",
    "eligible_s",
    "gpu_type",
    "instances",
    "gang",
    "cpus",
    "memory_gb",
    "estimate_s",
    "model",
    "batch",
    "priority",
    "tenant",
    "user",
    "account",
    "partition",
    "qos",
    "deadline_s",
    "weight",
    "task",
    "parents",
)
_COLUMNS = (*_NEEDED, *_ALLOWED)
_NUMBERS, _TEXTS = (tuple([_COLUMNS.index(name) for name in names]) for names in (NUMBERS, TEXTS))
_DURATION = ("duration_s", "start_s", "end_s")
_MOMENTS = tuple([_COLUMNS.index(name) for name in ("arrival_s", "deadline_s", "start_s", "end_s", "eligible_s")])
_YES_OR_NO = {"": True, "yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


class Plain(Reader):
    """One job per row; with a ``task`` column one task per row, and one job per ``id``."""

    name = "plain"
    summary = "plain CSV of your own: id,arrival_s,gpus,duration_s[,gpu_type,priority,...]"
    uses = frozenset({"reference_gpu", "floor_s", "map", "timezone", "gpu_names", "delimiter"})

    def recognises(self, source: Source) -> bool:
        return not _missing(Table(source, {}))

    def nearly(self, source: Source) -> str | None:
        names = Table(source, {}).names
        found = likely(names, (*_NEEDED, *_DURATION))
        if len(found) < 2:
            return None
        table = Table(source, found)
        missing = _missing(table)
        if "duration_s" in found or missing:
            found = {ours: theirs for ours, theirs in found.items() if ours not in ("start_s", "end_s")}
        unnamed = [ours for ours in missing if ours not in found]
        lacking = [ours for ours in _missing(Table(source, {})) if ours in _NEEDED or "duration_s" not in names]
        return (
            f"nearly 'plain': it lacks {', '.join(lacking)}; its columns are {clipped(', '.join(names))}; "
            f"say which hold them: {map_command(source, found, unnamed)}"
        )

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        table, zone = _table(source, options), options.zone()
        rows = ((place, _in_seconds(row, zone)) for place, row in table.rows(report, _NEEDED, _ALLOWED))
        if table.has("task"):
            return _graphs(rows, source, options, report)
        return _reader(source, options, report).jobs(rows)

    def arrays(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> JobArrays | None:
        found, zone = _table(source, options), options.zone()
        table = None if found.has("task") else found.in_columns(_NEEDED, _ALLOWED, _NUMBERS, _TEXTS)
        if table is None:
            return None
        read, split = plain_rows(table, _COLUMNS, _YES_OR_NO, options), table.split
        dated = table._replace(split=lambda text: list(_in_seconds(split(text), zone)))
        return None if read is None else _reader(source, options, report).arrays(dated, read, most)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        said = {"work": "duration_s, or end_s - start_s, measured on the job's gpu_type where it has exactly one"}
        if options.map or options.timezone:
            said["dates"] = f"those without an offset are of {options.timezone or 'UTC'} (--read timezone=)"
        return said


def _table(source: Source, options: TraceOptions) -> Table:
    """The table, with all columns that are needed.

    Raises:
        TraceError: One is missing, or unknown.
    """
    table = Table(source, options.mapping(), options.delimiter)
    table.check(_COLUMNS)
    if missing := _missing(table):
        raise TraceError(
            f"{source}:1: there is no column for {', '.join(missing)}; "
            f"there are {clipped(', '.join(table.names))}; "
            f"say which hold them: {map_command(source, options.mapping(), missing)}"
        )
    return table


def _reader(source: Source, options: TraceOptions, report: ReadReport) -> RowReader:
    return RowReader(source, report, 0, 1, lambda row, where: _single(row, options))


def _missing(table: Table) -> list[str]:
    """Needed columns that the table lacks."""
    missing = [ours for ours in _NEEDED if not table.has(ours)]
    if not table.has("duration_s") and not (table.has("start_s") and table.has("end_s")):
        missing.append("duration_s")
    return missing


def _in_seconds(row: Sequence[str], zone: ZoneInfo | None) -> Sequence[str]:
    """The row with dates as seconds since 1970; what is no date stays as it is."""
    if any(_is_date(row[at]) for at in _MOMENTS):
        row = list(row)
        for at in _MOMENTS:
            with suppress(Dirty):
                if _is_date(row[at]):
                    row[at] = repr(moment_s(row[at], _COLUMNS[at], zone))
    return row


def _is_date(text: str) -> bool:
    return len(text) > 9 and text[4:5] == "-" and text[:4].isdecimal()


def _single(row: Sequence[str], options: TraceOptions) -> Job:
    """The job of one row.

    Raises:
        Dirty: A field is missing or no number.
        ModelError: The job is impossible.
    """
    fields = dict(zip(_COLUMNS, row, strict=True))
    return _job(fields["id"], TaskGraph((_task(fields, options),)), _arrival(fields), fields)


def _graphs(rows: Iterator[Row], source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
    """The jobs whose tasks have a row each."""
    for group in gather(_by_job(rows, source, report)):
        job = _gathered(group, source, options, report)
        if job is not None:
            report.kept += len(job.tasks)
            yield job


def _by_job(rows: Iterator[Row], source: Source, report: ReadReport) -> Iterator[tuple[str, float, str]]:
    for place, row in rows:
        try:
            if not row[0]:
                raise Dirty("without an id")
            yield row[0], _arrival({"arrival_s": row[1]}), pack(place, row)
        except Dirty as reason:
            report.drop(str(reason), source.where(place))


def _gathered(group: Gathered, source: Source, options: TraceOptions, report: ReadReport) -> Job | None:
    tasks: dict[str, Task] = {}
    parents: dict[str, list[str]] = {}
    facts: Mapping[str, str] = {}
    places = []
    for place, row in map(unpack, group.rows):
        fields = dict(zip(_COLUMNS, row, strict=True))
        try:
            name = fields["task"] or "task"
            if name in tasks:
                raise Dirty("whose task another row has")
            tasks[name] = _task(fields, options)
            parents[name] = list(dict.fromkeys([text for text in fields["parents"].split("|") if text]))
        except (Dirty, ModelError) as error:
            reason = str(error) if isinstance(error, Dirty) else "that ask for what cannot be"
            report.drop(reason, source.where(place), detail="" if isinstance(error, Dirty) else str(error))
            continue
        facts = facts or fields
        places.append(place)
    if not places:
        return None
    first = source.where(places[0])
    if len(places) < len(group.rows):
        report.drop("of jobs that lost another row", first, len(places))
        return None
    try:
        return _job(group.job, TaskGraph.of(tasks.values(), parents), group.time, facts)
    except GraphError as error:
        report.drop("of jobs that are no DAG", first, len(places), str(error))
    except (Dirty, ModelError) as error:
        report.drop("of jobs that cannot be", first, len(places), str(error))
    return None


def _task(fields: Mapping[str, str], options: TraceOptions) -> Task:
    seconds = _seconds(fields)
    named = options.named_gpus()
    kinds = [text.strip() for text in fields["gpu_type"].split("|") if text.strip()]
    types = tuple(dict.fromkeys([named.get(kind.lower()) or canonical(kind) for kind in kinds]))
    measured_on = types[0] if len(types) == 1 else None
    instances = count(fields["instances"] or "1", "instances")
    gang = _YES_OR_NO.get(fields["gang"].strip().lower())
    if gang is None:
        raise Dirty("whose gang is neither yes nor no")
    if seconds < 0:
        raise Dirty("with a negative duration_s")
    estimate = finite_number(fields["estimate_s"], "estimate_s") if fields["estimate_s"] else None
    return Task(
        fields["task"] or "task",
        max(options.on_reference(seconds, measured_on), options.floor_s),
        instances,
        gang and instances > 1,
        finite_number(fields["gpus"], "gpus"),
        finite_number(fields["cpus"] or "0", "cpus"),
        finite_number(fields["memory_gb"] or "0", "memory_gb"),
        types or None,
        model=fields["model"] or None,
        batch=count(fields["batch"], "batch") if fields["batch"] else None,
        estimate=None if estimate is None else options.on_reference(estimate, measured_on),
    )


def _seconds(fields: Mapping[str, str]) -> float:
    """The time that it ran."""
    said = fields["duration_s"]
    if said:
        return duration_s(said, "duration_s") or 0.0 if ":" in said else finite_number(said, "duration_s")
    return finite_number(fields["end_s"], "duration_s") - finite_number(fields["start_s"], "duration_s")


def _job(id: str, graph: TaskGraph, arrival_s: float, fields: Mapping[str, str]) -> Job:
    deadline = fields["deadline_s"]
    started, eligible = (
        finite_number(fields[name], name) if fields[name] else None for name in ("start_s", "eligible_s")
    )
    return Job(
        id,
        graph,
        arrival_s,
        finite_number(fields["priority"] or "0", "priority"),
        fields["tenant"],
        None if deadline in ("", "inf") else finite_number(deadline, "deadline_s"),
        finite_number(fields["weight"] or "1", "weight"),
        started,
        eligible,
        **{name: fields[name] for name in ("user", "account", "partition", "qos")},  # type: ignore[arg-type]
    )


def _arrival(fields: Mapping[str, str]) -> float:
    arrival = finite_number(fields["arrival_s"], "arrival_s")
    if not 0 <= arrival < inf:
        raise Dirty("with a negative arrival_s")
    return arrival
