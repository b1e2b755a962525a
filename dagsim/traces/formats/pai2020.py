"""Alibaba PAI ``cluster-trace-gpu-v2020``: its tables joined, and the machines.

Tables have no header; the columns are named in ``<table>.header`` files. Each table is ``.csv``,
``.csv.gz`` or the publisher's ``.tar.gz``. The trace is their directory, or any one of them.
``pai_job_table`` and ``pai_task_table`` are needed in full. ``pai_group_tag_table`` (requested GPU
types) and ``pai_instance_table`` (times that a task lacks) are joined if present. Times are in
seconds, ``plan_cpu`` and ``plan_gpu`` in percent, ``plan_mem`` in GB. The tables are unordered and
held in memory, except for the instances. ``pai_lists`` reads the single lists derived from this
trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from dagsim.errors import ModelError, TraceError
from dagsim.model import Cluster, Job, Node, Task, TaskGraph, gpu_type
from dagsim.traces.chunks import Table, csv_form, read_tables
from dagsim.traces.fields import MOST_GPUS, Dirty, FaultsAt, are_counts, count, finite_number
from dagsim.traces.formats import pai_lists
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Block, Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.rows import (
    Findings,
    Grouped,
    JobBatch,
    job_blocks,
    kinds_of_rows,
    repeated,
    rows_by_job,
    with_others,
)
from dagsim.traces.source import LINE_BITS, Source
from dagsim.workload.arrays import JobArrays, Labels, TaskKind, bounds, objects

__all__ = ["Pai2020"]

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
"""Catalogue names. MISC stands for the older K40m, K80 and M60; of these, the catalogue has the
K80.
"""

_JOB, _NAME, _INSTANCES, _STATUS, _START, _END, _CPU, _MEMORY, _GPU, _TYPE = range(10)
"""Columns of the task table."""
_INST, _USER = 1, 2
"""Columns of the job table besides its name and, as in the task table, its start."""
_READ = {
    "task": ((_INSTANCES, _START, _END, _CPU, _MEMORY, _GPU), (_JOB, _NAME, _STATUS, _TYPE)),
    "job": ((_START,), (_JOB, _INST, _USER)),
    "instance": ((6, 7), (_JOB, 1)),
    "group_tag": ((), (0, 2)),
}
"""Indices of the numeric and of the text columns that are read."""
_UNEVEN = "tasks that ask for a fraction above one GPU (rounded up)"
_ENDED = ("Terminated", "Failed")
_STATUSES = (*_ENDED, "Running", "Waiting")


class Pai2020(Reader):
    """One job per ``job_name``, kept if all its tasks terminated (or with ``keep_partial``,
    including failed tasks).

    A task is a gang of ``inst_num`` instances, each with ``plan_gpu`` of a GPU, or several whole
    GPUs. Work is the task's ``end - start``. A job arrives at its own ``start_time``, which is its
    submission.
    """

    name = "pai2020"
    summary = "Alibaba PAI cluster-trace-gpu-v2020: tables, simulator list, and lists derived from it"
    uses = frozenset({"reference_gpu", "keep_partial", "floor_s"})

    def recognises(self, source: Source) -> bool:
        if source.path.is_dir() or source.matches("*pai_*_table.*"):
            return _table(source, "task") is not None
        return pai_lists.recognises_pai_list(source)

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[Block]:
        if not source.path.is_dir() and pai_lists.recognises_pai_list(source):
            return pai_lists.pai_list_blocks(source, options, report, most)
        tables = _Tables.beside(source)
        return job_blocks((_batch(table, options, report) for table in tables.joined(report)), report, most)

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """The machines of ``pai_machine_spec`` beside the trace."""
        machines = _table(source, "machine_spec")
        if machines is None:
            return None
        nodes = []
        for place, (name, kind, cpus, memory, gpus) in machines.rows(ReadReport(strict=True), _TABLES["machine_spec"]):
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
        asked = "the group tag table asks for" if tagged else "it was assigned (no group tag table, or no job table)"
        counted = f"counted on {options.reference_gpu}" if options.reference_gpu else "as they were measured"
        return {
            "gpu types": f"a task may use the GPU type that {asked}; MISC (K40m, K80, M60) is taken for a K80",
            "work": f"the task's end - start on the GPU type it was assigned, in seconds {counted}",
            "gang": "the instances of a task start together; tasks of one job start each on its own",
        }


@dataclass(frozen=True, slots=True)
class _Tables:
    job: Source | None
    task: Source
    instance: Source | None
    tags: Source | None

    @classmethod
    def beside(cls, source: Source) -> _Tables:
        """Tables in the directory that ``source`` is or lies in.

        Raises:
            TraceError: There is no task table.
        """
        task = _table(source, "task")
        if task is None:
            raise TraceError(f"{source}: no pai_task_table.csv (or .csv.gz, .tar.gz) here or beside it")
        job = _table(source, "job")
        tags = _table(source, "group_tag") if job else None  # only the job table links tags to jobs
        return cls(job, task, _table(source, "instance"), tags)

    def joined(self, report: ReadReport) -> Iterator[_Joined]:
        """Rows of all tables except the instances, held in memory; empty without tasks."""
        task = list(self._read(self.task, "task", report))
        job = list(self._read(self.job, "job", report)) if self.job else []
        specs: dict[str, str] = {}
        for tags in self._read(self.tags, "group_tag", report) if self.tags else ():
            report.skip("joined from the group tag table", len(tags))
            for inst_id, spec in zip(tags.texts(0).tolist(), tags.texts(2).tolist(), strict=True):
                if inst_id and spec:
                    specs.setdefault(inst_id, spec)
        if task or job:
            yield _Joined(
                self,
                Table.joined(task) if task else None,
                Table.joined(job) if job else None,
                specs if self.tags else None,
            )
        elif self.instance:
            _instances(self, np.zeros(0, object), report)

    def instances(self, report: ReadReport) -> Iterator[Table]:
        """Rows of the instance table, if present, in chunks."""
        return self._read(self.instance, "instance", report) if self.instance else iter(())

    def _read(self, source: Source, table: str, report: ReadReport) -> Iterator[Table]:
        numbers, texts = _READ[table]
        form = csv_form(_TABLES[table], names=_named(source, table), numbers=numbers, texts=texts)
        return read_tables(source, form, report)


class _Joined(NamedTuple):
    """Rows of tasks, followed by those of jobs."""

    tables: _Tables
    task: Table | None
    job: Table | None
    specs: dict[str, str] | None
    """Requested GPU type by ``inst_id``; empty without the table of tags."""

    @property
    def tasks(self) -> int:
        """Number of task rows."""
        return 0 if self.task is None else len(self.task)

    def where(self, row: int) -> str:
        """``file:line`` of a row."""
        table, place = self._row(row)
        return table.where(place)

    def fields(self, row: int) -> list[str]:
        """Columns of a row; a job's row includes the requested GPU type."""
        table, place = self._row(row)
        fields = table.fields(place)
        return fields if row < self.tasks else [*fields, (self.specs or {}).get(fields[_INST], "")]

    def keys(self) -> tuple[np.ndarray, np.ndarray]:
        """Job of each row, and its submission time."""
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
        table = self.task if row < self.tasks else self.job
        assert table is not None
        return table, row if row < self.tasks else row - self.tasks


def _batch(joined: _Joined, options: TraceOptions, report: ReadReport) -> JobBatch:
    """Jobs of the tables: plain rows are converted all at once, others row by row."""
    findings, task, job, count = Findings(), joined.task, joined.job, joined.tasks
    groups = rows_by_job(*joined.keys())
    is_task = groups.row < count
    sizes = np.add.reduceat(is_task, groups.first[:-1], dtype=np.int64)
    once = np.diff(groups.first) - sizes == (0 if joined.tables.job is None else 1)
    # the row of a job in the job table follows those of its tasks
    own = np.where(once & (job is not None), np.maximum(groups.row[groups.first[1:] - 1] - count, 0), 0)
    if task is None:
        every, fine, uneven = _no_tasks(groups), np.zeros(0, bool), np.zeros(0, bool)
    else:
        asked = None if joined.specs is None or job is None else _asked(job, joined.specs).chosen(own)
        every, fine, uneven = _every(task, groups, is_task, sizes, asked, options)
    if job is not None:
        every = replace(every, tenant=job.words(_USER).chosen(own))
    whole = np.bincount(groups.job[is_task][~fine], minlength=len(sizes)) == 0
    kept = whole & once & (sizes > 0) & (groups.time < inf)
    noted = np.flatnonzero(uneven & kept[groups.job[is_task]])
    findings.note(groups.row[is_task][noted], _UNEVEN)
    instances = _instances(joined.tables, groups.ids[~kept], report)
    rows_of = sizes + (0 if joined.tables.job is None else 1)
    batch = JobBatch(joined, every, kept, rows_of, groups.job_of_row(), findings)

    def make(place: int, rows: list[int]) -> tuple[Job, int] | None:
        job_rows = _Gathered(str(groups.ids[place]), float(groups.time[place]), joined.tables, findings)
        for row in rows:
            (job_rows.tasks if row < count else job_rows.submitted).append((row, joined.fields(row)))
        job_rows.instances = instances.get(job_rows.id, {})
        job = job_rows.job(options)
        return None if job is None else (job, len(job.tasks) + len(job_rows.submitted))

    return with_others(batch, make, groups.first, groups.row)


def _no_tasks(groups: Grouped) -> JobArrays:
    """Jobs without tasks, none of which can be kept."""
    return JobArrays(
        ids=groups.ids,
        arrival_s=groups.time,
        first=np.zeros(len(groups.ids) + 1, np.int64),
        name=np.zeros(0, np.int32),
        names=objects([]),
        work=np.zeros(0),
        instances=np.zeros(0, np.int64),
        kind=np.zeros(0, np.int32),
        kinds=(),
        waits=np.zeros(1, np.int64),
        parent=np.zeros(0, np.int32),
    )


def _known(times: np.ndarray) -> np.ndarray:
    """(n,) float64: times; ``inf`` for 0 and invalid ones, which both mean unknown."""
    return np.where((times > 0) & (times < inf), times, inf)


def _asked(job: Table, specs: dict[str, str]) -> Labels:
    """Requested GPU type of each row of the job table."""
    return Labels.numbered([specs.get(inst_id, "") for inst_id in job.texts(_INST).tolist()])


def _every(
    task: Table,
    groups: Grouped,
    is_task: np.ndarray,
    sizes: np.ndarray,
    asked: Labels | None,
    options: TraceOptions,
) -> tuple[JobArrays, np.ndarray, np.ndarray]:
    """All jobs; for each task, whether there is nothing to report except that it is uneven; and
    whether it is uneven.
    """
    line, job = groups.row[is_task], groups.job[is_task]
    start, end = (_known(task.numbers(column)[line]) for column in (_START, _END))
    instances, gpus, cpus, memory = (
        task.numbers(column, blank)[line] for column, blank in ((_INSTANCES, 1), (_GPU, 0), (_CPU, 0), (_MEMORY, 0))
    )
    gpus, cpus = gpus / 100, cpus / 100
    uneven = (gpus > 1) & (gpus < inf) & (gpus != np.floor(gpus))
    gpus = np.where(uneven, np.ceil(gpus), gpus)
    status, statuses = task.words(_STATUS)
    name, names = task.words(_NAME)
    fine = np.array([status_text in _ended(options) for status_text in statuses])[status[line]]
    fine &= (start < inf) & (end < inf) & (end >= start) & are_counts(instances)
    for amount in (gpus, cpus, memory):
        fine &= (amount >= 0) & (amount < inf)
    key = job * np.int64(len(names)) + name[line]
    fine &= ~(repeated(key) | repeated(key[::-1])[::-1])
    assigned = task.words(_TYPE)
    measured_on = [*(_GPU_TYPES.get(gpu, gpu) for gpu in assigned.words), ""]
    work = np.zeros(len(line))
    work[fine] = end[fine] - start[fine]
    work = options.all_on_reference(work, measured_on, np.where(gpus > 0, assigned.place[line], len(measured_on) - 1))
    allowed, of = (assigned.place[line], assigned.words) if asked is None else (asked.place[job], asked.words)
    of = (*of, "")
    chosen = [None if gpu in ("", "CPU") else (_GPU_TYPES.get(gpu, gpu),) for gpu in of]
    kind, kinds = kinds_of_rows(
        fine,
        (gpus, cpus, memory, instances > 1, np.where(gpus > 0, allowed, len(of) - 1)),
        lambda gpus, cpus, memory, gang, place: TaskKind(
            Task("", 0.0, 1, gang, gpus, cpus, memory, chosen[place]).demand, gang
        ),
    )
    every = JobArrays(
        ids=groups.ids,
        arrival_s=groups.time,
        first=bounds(sizes),
        name=name[line],
        names=objects(names),
        work=np.where(work < options.floor_s, options.floor_s, work),
        instances=np.where(fine, instances, 1).astype(np.int64),
        kind=kind,
        kinds=kinds,
        waits=np.zeros(len(line) + 1, np.int64),
        parent=np.zeros(0, np.int32),
    )
    return every, fine, uneven


def _instances(
    tables: _Tables, wanted: np.ndarray, report: ReadReport
) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Start and end of the instances of each task of the jobs with these ids, if known."""
    times: dict[str, dict[str, list[tuple[float, float]]]] = {}
    ids = set(wanted.tolist())
    for table in tables.instances(report):
        report.skip("joined from the instance table", len(table))
        names, begun, ended = table.texts(_JOB), _known(table.numbers(6)), _known(table.numbers(7))
        for row in [row for row, id in enumerate(names.tolist()) if id in ids]:
            of_task = times.setdefault(names[row], {}).setdefault(table.texts(1)[row], [])
            of_task.append((float(begun[row]), float(ended[row])))
    return times


@dataclass(slots=True)
class _Gathered:
    """Rows of one job, collected from the tables."""

    id: str
    time: float
    tables: _Tables
    findings: Findings
    submitted: list[tuple[int, list[str]]] = field(default_factory=list)
    tasks: list[tuple[int, list[str]]] = field(default_factory=list)
    instances: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Start and end of the instances of each task, if known."""

    def job(self, options: TraceOptions) -> Job | None:
        """The job, or ``None`` if its rows were dropped for a reason."""
        if not self._is_submitted():
            return None
        user, asked = (self.submitted[0][1][2], self.submitted[0][1][6]) if self.submitted else ("", "")
        tasks_by_name: dict[str, tuple[list[str], Task]] = {}
        whole = True
        for place, row in self.tasks:
            try:
                if row[1] in tasks_by_name:
                    raise Dirty(
                        "given twice" if tasks_by_name[row[1]][0] == row else "with a task_name that another row has"
                    )
                tasks_by_name[row[1]] = row, self._task(row, asked, options, place)
            except Dirty as reason:
                whole = whole and str(reason) == "given twice"
                self.findings.one(place, str(reason), True)
            except ModelError as error:
                whole = False
                self.findings.one(place, "that describe an impossible job", True, detail=str(error))
        if tasks_by_name and (whole or options.keep_partial):
            tasks = tuple([task for _, task in tasks_by_name.values()])
            return Job(self.id, TaskGraph(tasks), self.time, tenant=user)
        rest = len(tasks_by_name) + len(self.submitted)
        if rest:
            self.findings.one(self._first(), "of jobs that did not finish as a whole", True, rest)
        return None

    def _is_submitted(self) -> bool:
        """True if the job can arrive; otherwise drops all its rows."""
        assert self.tables.job is None or self.submitted or self.tasks or self.instances
        if self.tables.job is not None:
            for place, row in self.submitted[1:]:
                same = row == self.submitted[0][1]
                self.findings.one(place, "given twice" if same else "whose job_name another row has", True)
            del self.submitted[1:]
        reason = ""
        if self.tables.job is not None and not self.submitted:
            reason = "of jobs that the job table lacks"
        elif not self.tasks:
            reason = "of jobs that the task table lacks"
        elif self.time == inf:
            reason = "of jobs without start_time"
        if reason and (rows := len(self.tasks) + len(self.submitted)):
            self.findings.one(self._first(), reason, True, rows)
        return not reason

    def _first(self) -> int:
        return (self.submitted or self.tasks)[0][0]

    def _task(self, row: list[str], asked: str, options: TraceOptions, place: int) -> Task:
        """Task of a row of the task table.

        Raises:
            Dirty: The row is unusable.
            ModelError: Its demand is invalid.
        """
        _, name, inst_num, status, start, end, plan_cpu, plan_mem, plan_gpu, assigned = row
        if status not in _ended(options):
            raise Dirty("of tasks that did not terminate" if status in _STATUSES else "of an unknown status")
        begun, ended = self._times(name, _time(start), _time(end), place)
        gpus = finite_number(plan_gpu or "0", "plan_gpu") / 100
        if gpus > 1 and gpus != int(gpus):
            self.findings.one(place, _UNEVEN, False)
            gpus = float(ceil(gpus))
        type_of = _GPU_TYPES.get(assigned, assigned)
        allowed = _GPU_TYPES.get(asked, asked) if self.tables.tags else type_of
        work = options.on_reference(ended - begun, type_of) if gpus else ended - begun
        instances = count(inst_num or "1", "inst_num")
        return Task(
            name,
            max(work, options.floor_s),
            instances,
            instances > 1,
            gpus,
            finite_number(plan_cpu or "0", "plan_cpu") / 100,
            finite_number(plan_mem or "0", "plan_mem"),
            (allowed,) if gpus and allowed not in ("", "CPU") else None,
        )

    def _times(self, name: str, start: float, end: float, place: int) -> tuple[float, float]:
        """Start and end of a task; times that its row lacks come from its instances.

        Raises:
            Dirty: The instances lack them too, or they are out of order.
        """
        if inf in (start, end) and name in self.instances:
            self.findings.one(place, "tasks whose start or end is taken from their instances", False)
            starts, ends = zip(*self.instances[name], strict=True)
            start = min(starts) if start == inf else start
            end = max([time for time in ends if time < inf], default=inf) if end == inf else end
        if inf in (start, end):
            raise Dirty("without start_time" if start == inf else "without end_time")
        if end < start:
            raise Dirty("with an end before the start")
        return start, end


def _table(source: Source, table: str) -> Source | None:
    """The table beside ``source``, in the first form that exists."""
    stem = f"pai_{table}" if table == "machine_spec" else f"pai_{table}_table"
    tables = source.beside(f"{stem}.csv", f"{stem}.csv.gz", f"{stem}.tar.gz", f"{stem}.parquet")
    return tables.files[0] if tables.files else None


def _named(source: Source, table: str) -> Sequence[str]:
    """Column names of a table from its header file, if there is one.

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


def _time(text: str) -> float:
    """Parse a time; ``inf`` for an empty text and for 0, which both mean unknown, and for an
    invalid text.
    """
    try:
        value = float(text or 0)
    except ValueError:
        return inf
    return value if 0 < value < inf else inf
