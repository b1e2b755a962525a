"""Alibaba PAI ``cluster-trace-gpu-v2020``: its tables joined, and the machines.

The tables have no headers. Their columns are named in ``<table>.header`` files. Each table is
``.csv``, ``.csv.gz`` or the publisher's ``.tar.gz``. The trace is the directory with the tables, or
any one of them. ``pai_job_table`` and ``pai_task_table`` are needed in full.
``pai_group_tag_table`` (requested GPU types) and ``pai_instance_table`` (times that a task lacks)
are joined if present. Times are in seconds, ``plan_cpu`` and ``plan_gpu`` in percent, ``plan_mem``
in GB. The tables are unordered, and all except the instance table are held in memory. ``pai_lists``
reads the lists derived from this trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np

from dagsim.errors import TraceError
from dagsim.families.formats import pai_lists
from dagsim.model import Cluster, Demand, Node, gpu_type
from dagsim.traces.chunks import read_rows, read_tables
from dagsim.traces.fields import MOST_GPUS, FaultsAt, count, finite_number
from dagsim.traces.grouping import rows_by_job
from dagsim.traces.reader import JobBlock, Reader
from dagsim.traces.report import ImpossibleTimes, ReadReport
from dagsim.traces.rows import Checks, Findings, JobBatch, job_blocks, single_tasks
from dagsim.traces.source import LINE_BITS, Source
from dagsim.traces.text_forms import csv_form
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table
from dagsim.workload.array_tools import bounds, objects
from dagsim.workload.arrays import JobArrays, Labels, TaskKind

_TABLES = {
    "job": ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    "task": (
        "job_name",
        "task_name",
        "inst_num",
        "status",
        "start_time",
        "end_time",
        "plan_cpu",
        "plan_mem",
        "plan_gpu",
        "gpu_type",
    ),
    "instance": (
        "job_name",
        "task_name",
        "inst_name",
        "worker_name",
        "inst_id",
        "status",
        "start_time",
        "end_time",
        "machine",
    ),
    "group_tag": ("inst_id", "user", "gpu_type_spec", "group", "workload"),
    "machine_spec": ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"),
}
"""Columns that are read from each table, by the publisher's names."""

_GPU_TYPES = {"V100M32": "V100-32", "V100": "V100-16", "T4": "T4", "P100": "P100", "MISC": "K80"}
"""Names in the catalogue. MISC means the older K40m, K80 and M60, of which the catalogue has the
K80."""

_JOB, _NAME, _INSTANCES, _STATUS, _START, _END, _CPU, _MEMORY, _GPU, _TYPE = range(10)
"""Columns in the task table."""
_INST, _USER = 1, 2
"""Columns in the job table, besides its name and its start, which are as in the task table."""
_READ = {
    "task": ((_INSTANCES, _START, _END, _CPU, _MEMORY, _GPU), (_JOB, _NAME, _STATUS, _TYPE)),
    "job": ((_START,), (_JOB, _INST, _USER)),
    "instance": ((6, 7), (_JOB, 1)),
    "group_tag": ((), (0, 2)),
}
"""Indices of the numeric columns and of the text columns that are read."""
_UNEVEN = "tasks that request a fraction above one GPU (rounded up)"
_ENDED = ("Terminated", "Failed")
_STATUSES = (*_ENDED, "Running", "Waiting")


class Pai2020(Reader):
    """Builds one job per ``job_name``, which is kept if all its tasks terminated (or with
    ``keep_partial``, which also keeps failed tasks).

    A task is a gang of ``inst_num`` instances, each with ``plan_gpu`` of a GPU, or several whole
    GPUs. Work is the task's ``end - start``. A job arrives at its own ``start_time``, which is its
    submission time.
    """

    name = "pai2020"
    summary = "Alibaba PAI cluster-trace-gpu-v2020: tables, simulator list, and lists derived from it"
    uses = frozenset({"reference_gpu", "keep_partial", "floor_s"})

    def recognises(self, source: Source) -> bool:
        if source.path.is_dir() or source.matches("*pai_*_table.*"):
            return _table(source, "task") is not None
        return pai_lists.recognises_pai_list(source)

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        if not source.path.is_dir() and pai_lists.recognises_pai_list(source):
            return pai_lists.pai_list_blocks(source, options, report, most)
        tables = _Tables.beside(source)
        return job_blocks((_batch(table, options, report) for table in tables.joined(report)), report, most)

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """Read the machines from ``pai_machine_spec`` next to the trace, or return None if it is
        missing."""
        machines = _table(source, "machine_spec")
        if machines is None:
            return None
        nodes = []
        for place, (name, kind, cpus, memory, gpus) in read_rows(
            machines, ReadReport(strict=True), _TABLES["machine_spec"]
        ):
            with FaultsAt(machines.where(place), "a machine"):
                many = count(gpus, "cap_gpu", 0, MOST_GPUS)
                gpu = gpu_type(_GPU_TYPES.get(kind, kind)) if many else None
                nodes.append(Node(name, gpu, many, finite_number(cpus, "cap_cpu"), finite_number(memory, "cap_mem")))
        with FaultsAt(f"{machines}:1"):
            return Cluster(tuple(nodes), self.name)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        if not source.path.is_dir() and pai_lists.recognises_pai_list(source):
            return pai_lists.assumptions(source)
        tagged = _table(source, "group_tag") and _table(source, "job")
        asked = "the group tag table requests" if tagged else "it was assigned (no group tag table, or no job table)"
        counted = f"counted on {options.reference_gpu}" if options.reference_gpu else "as they were measured"
        return {
            "gpu types": f"a task may use the GPU type that {asked}; MISC (K40m, K80, M60) is modelled as a K80",
            "work": f"the task's end - start on the GPU type that it was assigned, in seconds {counted}",
            "gang": "the instances of a task start together; the tasks of one job start independently",
        }


@dataclass(frozen=True, slots=True)
class _Tables:
    job: Source | None
    task: Source
    instance: Source | None
    tags: Source | None

    @classmethod
    def beside(cls, source: Source) -> _Tables:
        """Return the tables in ``source`` if it is a directory, and otherwise those in its
        directory.

        Raises:
            TraceError: There is no task table.
        """
        task = _table(source, "task")
        if task is None:
            raise TraceError(f"{source}: no pai_task_table.csv (or .csv.gz, .tar.gz) here or next to it")
        job = _table(source, "job")
        # Group tags can be used only with the job table, which links them to jobs.
        tags = _table(source, "group_tag") if job else None
        return cls(job, task, _table(source, "instance"), tags)

    def joined(self, report: ReadReport) -> Iterator[_Joined]:
        """Return the rows of all tables except the instances, held in memory. The result is empty
        if there are no tasks.
        """
        task = list(self._read(self.task, "task", report))
        job = list(self._read(self.job, "job", report)) if self.job else []
        specs: dict[str, str] = {}
        for tags in self._read(self.tags, "group_tag", report) if self.tags else ():
            report.skip("joined from the group tag table", len(tags))
            for inst_id, spec in zip(tags.texts(0).tolist(), tags.texts(2).tolist(), strict=True):
                if inst_id and spec:
                    specs.setdefault(inst_id, spec)
        if task or job:
            specs_if_tagged = specs if self.tags else None
            yield _Joined(self, _rows(self.task, task), Table.joined(job) if job else None, specs_if_tagged)
        else:
            _instances(self, (), report)

    def instances(self, report: ReadReport) -> Iterator[Table]:
        """Yield the rows of the instance table, if present, in chunks."""
        return self._read(self.instance, "instance", report) if self.instance else iter(())

    def _read(self, source: Source, table: str, report: ReadReport) -> Iterator[Table]:
        numbers, texts = _READ[table]
        form = csv_form(_TABLES[table], names=_named(source, table), numbers=numbers, texts=texts)
        return read_tables(source, form, report)


class _Joined(NamedTuple):
    """The rows of tasks, followed by the rows of jobs."""

    tables: _Tables
    task: Table
    job: Table | None
    specs: dict[str, str] | None
    """Requested GPU type by ``inst_id``; ``None`` without the group tag table."""

    def where(self, row: int) -> str:
        """Return ``file:line`` for a row."""
        table, place = self._row(row)
        return table.where(place)

    def fields(self, row: int) -> list[str]:
        """Return the columns of a row. The row of a job includes the requested GPU type."""
        table, place = self._row(row)
        fields = table.fields(place)
        return fields if row < len(self.task) else [*fields, (self.specs or {}).get(fields[_INST], "")]

    def keys(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the job of each row, and its submission time."""
        ids, times = [], []
        for table in (self.task, self.job):
            if table is not None:
                named = table.texts(_JOB).copy()
                for row in np.flatnonzero(named == "").tolist():
                    named[row] = f"row {int(table.line[row]) & ((1 << LINE_BITS) - 1)}"
                ids.append(named)
                unknown = table is self.task and self.tables.job is not None
                times.append(np.full(len(table), inf) if unknown else _known(table.numbers(_START)))
        return np.concatenate(ids), np.concatenate(times)

    def _row(self, row: int) -> tuple[Table, int]:
        if row < len(self.task):
            return self.task, row
        assert self.job is not None
        return self.job, row - len(self.task)


def _rows(source: Source, tables: list[Table]) -> Table:
    """Return all rows of the task table, which may be empty."""
    if tables:
        return Table.joined(tables)
    (numbers, texts), none = _READ["task"], objects([])
    form = csv_form(_TABLES["task"], numbers=numbers, texts=texts)
    values, words = dict.fromkeys(numbers, np.zeros(0)), dict.fromkeys(texts, none)
    return Table(source, form, np.zeros(0, np.int64), values, words, none, {})


def _batch(joined: _Joined, options: TraceOptions, report: ReadReport) -> JobBatch:
    """Convert the tables to jobs."""
    groups, checks = rows_by_job(*joined.keys()), Checks(joined.task)
    jobs, job, count = len(groups.ids), groups.job_of_row(), len(joined.task)
    findings, of_task = checks.findings, job[:count]
    listed = np.bincount(of_task, minlength=jobs)
    rows = np.arange(count, len(job))
    own = np.full(jobs, -1)  # assigned backwards, so that each job keeps its first row of the job table
    own[job[rows][::-1]] = rows[::-1]
    submitted = (own >= 0).astype(np.int64)
    head = np.where(own >= 0, own, groups.row[groups.first[:-1]])
    _drop_again(
        joined, findings, rows[own[job[rows]] != rows], own[job], "with the same job_name as another row", stage=-1
    )
    possible = np.ones(jobs, bool)
    for missing, reason in (
        ((own < 0) & (joined.tables.job is not None), "of jobs that are missing in the job table"),
        (listed == 0, "of jobs that are missing in the task table"),
        (groups.time == inf, "of jobs without start_time"),
    ):
        lacking = np.flatnonzero(missing & possible)
        findings.drop(head[lacking], reason, counts=(listed + submitted)[lacking])
        possible &= ~missing
    checks.usable &= possible[of_task]
    asked = None
    if joined.specs is not None and joined.job is not None:
        asked = _asked(joined.job, joined.specs).chosen(np.maximum(own - count, 0)).chosen(of_task)
    tasks = _tasks(checks, groups.ids[of_task], joined.tables, asked, options, report)
    again, first = _again(tasks, of_task, checks.usable)
    findings.forget(np.concatenate([again, np.zeros(len(rows), bool)]))
    twice = _drop_again(joined, findings, np.flatnonzero(again), first, "with a task_name that another row has")
    checks.usable &= ~again
    usable = np.bincount(of_task[checks.usable], minlength=jobs)
    faulty = ~checks.usable
    faulty[twice] = False
    whole = np.bincount(of_task[faulty], minlength=jobs) == 0
    kept = possible & (usable > 0) & (whole | options.keep_partial)
    lost = np.flatnonzero(possible & ~kept & (usable + submitted > 0))
    counts = (usable + submitted)[lost]
    findings.drop(head[lost], "of jobs that did not finish as a whole", stage=1, counts=counts)
    row = groups.row[groups.row < count]
    row = row[checks.usable[row]]
    every = JobArrays(
        ids=groups.ids,
        arrival_s=groups.time,
        first=bounds(usable),
        name=tasks.name[row],
        names=tasks.names,
        work=tasks.work[row],
        instances=tasks.instances[row],
        kind=tasks.kind[row],
        kinds=tasks.kinds,
        waits=np.zeros(len(row) + 1, np.int64),
        parent=np.zeros(0, np.int32),
    )
    if joined.job is not None:
        every = replace(every, tenant=joined.job.words(_USER).chosen(np.maximum(own - count, 0)))
    return JobBatch(joined, every, kept, usable + submitted, job, findings)


def _drop_again(
    joined: _Joined, findings: Findings, rows: np.ndarray, first: np.ndarray, reason: str, stage: int = 0
) -> np.ndarray:
    """Drop ``rows``, each of which repeats the earlier row in ``first``. Identical rows count as
    duplicates, and the others are dropped for ``reason``. Return the identical rows."""
    same = np.array([joined.fields(row) == joined.fields(int(first[row])) for row in rows.tolist()], bool)
    twice: np.ndarray = rows[same]
    findings.drop(twice, "given twice", stage=stage)
    findings.drop(rows[~same], reason, stage=stage)
    return twice


def _again(tasks: JobArrays, job: np.ndarray, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a mask of the rows that repeat a usable task of the same job under the same name, (n,)
    bool, and the earlier row with that task, (n,) int64."""
    key = job * np.int64(len(tasks.names)) + tasks.name
    candidates = np.flatnonzero(usable)
    keys, places = np.unique(key[candidates], return_index=True)
    first, is_job = np.full(len(key), len(key)), np.isin(key, keys)
    first[is_job] = candidates[places][np.searchsorted(keys, key[is_job])]
    return first < np.arange(len(key)), first


def _known(times: np.ndarray) -> np.ndarray:
    """Return the times, (n,) float64. A time that is 0 or invalid is unknown, and becomes
    ``inf``."""
    return np.where((times > 0) & (times < inf), times, inf)


def _asked(job: Table, specs: dict[str, str]) -> Labels:
    """Return the requested GPU type of each row in the job table."""
    return Labels.numbered([specs.get(inst_id, "") for inst_id in job.texts(_INST).tolist()])


def _tasks(
    checks: Checks,
    ids: np.ndarray,
    tables: _Tables,
    asked: Labels | None,
    options: TraceOptions,
    report: ReadReport,
) -> JobArrays:
    """Build the task of each row as a separate job. ``ids`` are the ids of the rows' jobs, and
    ``asked`` are the GPU types that these jobs request, if known."""
    task = checks.table
    status = task.words(_STATUS)
    for words, reason in ((_STATUSES, "with an unknown status"), (_ended(options), "of tasks that did not terminate")):
        checks.drop(~np.array([word in words for word in status.words], bool)[status.place], reason)
    start, end = (_known(task.numbers(column)) for column in (_START, _END))
    unknown = np.flatnonzero(checks.usable & ((start == inf) | (end == inf)))
    instances = _instances(tables, ids[unknown], report)
    names, joined = task.texts(_NAME), []
    for row in unknown.tolist():
        if times := instances.get((ids[row], names[row])):
            starts, ends = zip(*times, strict=True)
            start[row] = min(starts) if start[row] == inf else start[row]
            end[row] = max([time for time in ends if time < inf], default=inf) if end[row] == inf else end[row]
            joined.append(row)
    checks.findings.note(np.array(joined, np.int64), "tasks whose start or end is taken from their instances")
    checks.drop(start == inf, "without start_time")
    checks.drop(end == inf, "without end_time")
    checks.drop(end < start, ImpossibleTimes("with an end before the start"))
    gpus = checks.number(_GPU, "plan_gpu", 0) / 100
    uneven = (gpus > 1) & (gpus != np.floor(gpus))
    checks.note(uneven, _UNEVEN)
    gpus = np.where(uneven, np.ceil(gpus), gpus)
    wide = checks.count(_INSTANCES, "inst_num", blank=1)
    cpus, memory = checks.number(_CPU, "plan_cpu", 0) / 100, checks.number(_MEMORY, "plan_mem", 0)
    assigned = task.words(_TYPE)
    measured_on = [*(_GPU_TYPES.get(gpu, gpu) for gpu in assigned.words), ""]
    work = np.zeros(len(task))
    work[checks.usable] = end[checks.usable] - start[checks.usable]
    work = options.all_on_reference(work, measured_on, np.where(gpus != 0, assigned.place, len(measured_on) - 1))
    allowed = assigned if asked is None else asked
    of = (*allowed.words, "")
    chosen = [None if gpu in ("", "CPU") else (_GPU_TYPES.get(gpu, gpu),) for gpu in of]
    name = task.words(_NAME)
    tasks = single_tasks(
        checks,
        np.zeros(len(task)),
        np.where(work < options.floor_s, options.floor_s, work),
        wide,
        (gpus, cpus, memory, wide > 1, np.where(gpus != 0, allowed.place, len(of) - 1)),
        lambda gpus, cpus, memory, gang, place: TaskKind(Demand(gpus, cpus, memory, chosen[place]), gang),
    )
    tasks = replace(tasks, name=name.place, names=objects(name.words))
    checks.impossible(tasks)
    return tasks


def _instances(
    tables: _Tables, wanted: Iterable[str], report: ReadReport
) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Return the start and the end of each task's instances, by job and name, for the jobs with
    these ids."""
    times: dict[tuple[str, str], list[tuple[float, float]]] = {}
    ids = set(wanted)
    for table in tables.instances(report):
        report.skip("joined from the instance table", len(table))
        names, begun, ended = table.texts(_JOB), _known(table.numbers(6)), _known(table.numbers(7))
        for row in [row for row, id in enumerate(names.tolist()) if id in ids]:
            of_task = times.setdefault((names[row], table.texts(1)[row]), [])
            of_task.append((float(begun[row]), float(ended[row])))
    return times


def _table(source: Source, table: str) -> Source | None:
    """Return the table next to ``source``. If there are files with several extensions, return the
    first one."""
    stem = f"pai_{table}" if table == "machine_spec" else f"pai_{table}_table"
    tables = source.beside(f"{stem}.csv", f"{stem}.csv.gz", f"{stem}.tar.gz", f"{stem}.parquet")
    return tables.files[0] if tables.files else None


def _named(source: Source, table: str) -> Sequence[str]:
    """Read the column names of a table from its header file, if there is one.

    Raises:
        TraceError: The header lacks columns.
    """
    headers = Source(source.path).beside(f"pai_{table}_table.header").files
    names = headers[0].head(1)[0].strip().split(",") if headers else ()
    if headers and not set(_TABLES[table]) <= set(names):
        missing = ", ".join(sorted(set(_TABLES[table]) - set(names)))
        raise TraceError(f"{headers[0]}:1: the header lacks {missing}")
    return names


def _ended(options: TraceOptions) -> Sequence[str]:
    return _ENDED if options.keep_partial else _ENDED[:1]
