"""Standard Workload Format: batch logs and models of the Parallel Workloads Archive.

``;`` lines of the header (``; MaxProcs: 240``), then 18 fields between blanks: job, submit, wait, run, allocated
processors, CPU time, memory, requested processors, requested time, requested memory, status, user, group, executable,
queue, partition, preceding job, think time. -1 is unknown; numbers may be floats. Rows are sorted by submit time,
externally beyond 262,144 rows (see ``gather``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from dagsim.errors import ConfigError
from dagsim.model import Cluster, Job, Node, Task
from dagsim.traces.columnar import kinds_of_rows
from dagsim.traces.fields import Dirty, are_counts, count, finite_number
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.rowwise import PlainRows, RowReader
from dagsim.traces.source import Row, Source
from dagsim.traces.text_columns import TextTable, plain_lines, table_of
from dagsim.workload.arrays import JobArrays, TaskKind

__all__ = ["Swf", "max_processors"]

_FIELDS = 18
_JOB, _USER, _NUMBERS = 0, 11, (1, 3, 4, 7, 8, 16)
"""The fields that count."""
_HEADER = re.compile(rb"([ \t]*(;[^\n]*)?\n)*")
_OTHERS = "that got other processors than requested"
_LONGER = "that ran longer than requested"
_WIDER = "that are wider than the machine"
_PRECEDING = "that name a preceding job (not heeded)"
_PROTOCOLS = ("rlscheduler", "pyss")
_MACHINE = re.compile(r";\s*(MaxProcs|MaxNodes)\s*:\s*(\d{1,9})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")


class Swf(Reader):
    """One gang task per job: ``processors`` instances of one core each, as one start of all of them.

    ``protocol`` takes the rules of a published evaluation for turning rows into jobs. ``rlscheduler`` (Zhang et al.,
    SC 2020): rows of run time 0 are left out, below 0 means 10 s; processors are the larger of allocated and
    requested. ``pyss`` (Hebrew University): whole seconds, the run ends at the request, a row without run time or
    processors is one processor for one second, and so long lasts what comes without a request.
    """

    name = "swf"
    summary = "Standard Workload Format (.swf): logs of the Parallel Workloads Archive"
    uses = frozenset({"protocol", "processors", "gpus_per_task", "floor_s"})

    def recognises(self, source: Source) -> bool:
        for line in source.head(1000):
            if line.strip() and not line.lstrip().startswith(";"):
                fields = line.split()
                return len(fields) == _FIELDS and all(_NUMBER.fullmatch(field) for field in fields)
        return False

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        most = _machine(source, options)
        return _reader(source, options, report, most).jobs(_rows(source, report))

    def arrays(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> JobArrays | None:
        machine = _machine(source, options)
        lines = plain_lines(source, _HEADER, _FIELDS, " ")
        if lines is None or b";" in lines.data:
            return None
        table = table_of(lines, range(_FIELDS), _NUMBERS, (_JOB, _USER), str.split, " ")
        if table is None:
            return None
        return _reader(source, options, report, machine).arrays(table, _plain(table, options, machine), most)

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """One machine of ``MaxProcs`` cores (``processors`` if given, else ``MaxNodes``, else none)."""
        most = options.processors or max_processors(source)
        return Cluster((Node("machine", cpus=most),), "swf") if most else None

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        said = {
            "demand": options.cpu_demand_text("one core"),
            "gang": "the processors of a job start together",
            "estimate": "the requested time, or the run time where none was requested",
            "order": "preceding job and think time are not heeded",
        }
        if options.protocol:
            said["protocol"] = f"rows are turned into jobs by the rules of {options.protocol}"
        return said


def _machine(source: Source, options: TraceOptions) -> int | None:
    """Its processors, if known.

    Raises:
        ConfigError: A protocol that there is not.
    """
    if options.protocol not in (None, *_PROTOCOLS):
        raise ConfigError(f"swf knows no protocol {options.protocol!r}; it knows {', '.join(_PROTOCOLS)}")
    return options.processors or max_processors(source)


def _reader(source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> RowReader:
    return RowReader(source, report, 0, 1, lambda row, where: _job(row, options, most, report, where))


def max_processors(source: Source) -> int | None:
    """The processors that the header gives: ``MaxProcs``, else ``MaxNodes``; ``338 (batch; 512 total)`` means 338."""
    found: dict[str, int] = {}
    for line in source.head(1000):
        match = _MACHINE.match(line)
        if match:
            found.setdefault(match[1].lower(), int(match[2]))
    return found.get("maxprocs") or found.get("maxnodes") or None


def _rows(source: Source, report: ReadReport) -> Iterator[Row]:
    for place, line in source.lines():
        fields = line.split()
        if not fields or fields[0].startswith(";"):
            continue
        report.rows += 1
        if len(fields) == _FIELDS:
            yield place, fields
        else:
            report.drop("with a wrong number of fields", source.where(place), detail=f"{len(fields)}")


def _job(row: list[str], options: TraceOptions, most: int | None, report: ReadReport, where: str) -> Job:
    """The job of a row.

    Raises:
        Dirty: It cannot be used.
        ModelError: Its demand is impossible.
    """
    submit, run = finite_number(row[1], "submit time"), finite_number(row[3], "run time")
    if submit < 0:
        raise Dirty("with a negative submit time")
    allocated, requested = count(row[4], "processors", -1), count(row[7], "processors", -1)
    limit = finite_number(row[8], "requested time")
    match options.protocol:
        case "rlscheduler":
            run, limit, processors = _rlscheduler(run, limit, max(allocated, requested))
        case "pyss":
            run, limit, processors = _pyss(run, limit, allocated)
        case _:
            processors = allocated if allocated > 0 else requested
            if run < 0:
                raise Dirty("that never ran")
            if allocated > 0 and requested > 0 and allocated != requested:
                report.note(_OTHERS, where)
            if 0 < limit < run:
                report.note(_LONGER, where)
    if processors <= 0:
        raise Dirty("without processors")
    if most and processors > most:
        report.note(_WIDER, where)
    if finite_number(row[16], "preceding job") > 0:
        report.note(_PRECEDING, where)
    gpus, cpus, _ = options.cpu_demand(1.0, 0.0)
    work = max(run, options.floor_s)
    estimate = limit if limit > 0 else work
    task = Task("job", work, processors, processors > 1, gpus, cpus, estimate=estimate)
    user = row[11]
    return Job.single(row[0], task, submit, tenant="" if user == "-1" else user)


def _plain(table: TextTable, options: TraceOptions, machine: int | None) -> PlainRows:
    """The jobs that ``_job`` makes, of all rows at once."""
    submit, run, allocated, requested, limit, preceding = map(table.numbers, _NUMBERS)
    plain = (submit >= 0) & np.isfinite(submit) & np.isfinite(run) & np.isfinite(limit) & np.isfinite(preceding)
    plain &= are_counts(allocated, -1) & are_counts(requested, -1)
    others = longer = np.zeros(len(plain), bool)
    match options.protocol:
        case "rlscheduler":
            plain &= run != 0
            run = np.where(run < 0, 10.0, run)
            limit = np.where(limit == -1, run, limit)
            processors = np.maximum(allocated, requested)
        case "pyss":
            never = (run <= 0) | (allocated <= 0)
            run, limit = np.trunc(run), np.trunc(limit)
            wanted = np.where(never, 1.0, np.maximum(np.maximum(run, limit), 1.0))
            run, limit = np.where(never, 1.0, np.maximum(np.minimum(run, limit), 1.0)), wanted
            processors = np.where(never, np.maximum(allocated, 1.0), allocated)
        case _:
            plain &= run >= 0
            processors = np.where(allocated > 0, allocated, requested)
            others = (allocated > 0) & (requested > 0) & (allocated != requested)
            longer = (limit > 0) & (limit < run)
    plain &= processors > 0
    work = np.where(run < options.floor_s, options.floor_s, run)
    gpus, cpus, _ = options.cpu_demand(1.0, 0.0)
    demand = Task("job", 0.0, gpus=gpus, cpus=cpus).demand
    kind, kinds = kinds_of_rows(plain, [processors > 1], lambda gang: TaskKind(demand, gang))
    users = table.words(_USER)
    jobs = JobArrays.of_single_tasks(
        table.texts(_JOB),
        submit,
        "job",
        work=work,
        instances=np.where(plain, processors, 1).astype(np.int64),
        kind=kind,
        kinds=kinds,
        estimate=np.where(limit > 0, limit, work),
        tenant=users.mapped(lambda user: "" if user == "-1" else user),
    )
    notes = (
        (_OTHERS, others),
        (_LONGER, longer),
        (_WIDER, processors > (machine or np.inf)),
        (_PRECEDING, preceding > 0),
    )
    return PlainRows(jobs, plain, notes)


def _rlscheduler(run: float, limit: float, processors: int) -> tuple[float, float, int]:
    if run == 0:
        raise Dirty("that ran for no time")
    run = 10.0 if run < 0 else run
    return run, run if limit == -1 else limit, processors


def _pyss(run: float, limit: float, processors: int) -> tuple[float, float, int]:
    """The min of run and request as it stands, as PYSS takes it. A run without a request (-1) so lasts one second."""
    if run <= 0 or processors <= 0:
        return 1.0, 1.0, max(processors, 1)
    run, limit = float(int(run)), float(int(limit))
    return max(min(run, limit), 1.0), max(run, limit, 1.0), processors
