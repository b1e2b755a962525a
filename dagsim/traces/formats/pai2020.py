"""Alibaba PAI ``cluster-trace-gpu-v2020``: its tables joined, and the machines.

Headerless tables whose columns are named in ``<table>.header`` files, each as ``.csv``, ``.csv.gz`` or the publisher's
``.tar.gz``: the trace is their directory, or any one of them. ``pai_job_table`` and ``pai_task_table`` are needed in
full; ``pai_group_tag_table`` (which GPU type was asked for) and ``pai_instance_table`` (times that a task lacks) are
joined where they are there. Seconds; ``plan_cpu`` and ``plan_gpu`` in percent, ``plan_mem`` in GB. The tables are in no
order: rows are gathered by job and sorted externally beyond 262,144 rows (see ``gather``). The single lists derived
from this trace are read by ``pai_lists``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

import numpy as np

from dagsim.errors import ModelError, TraceError
from dagsim.model import Cluster, Job, Node, Task, TaskGraph, gpu_type
from dagsim.traces.fields import MOST_GPUS, Dirty, count, finite_number
from dagsim.traces.formats import pai_lists
from dagsim.traces.formats.pai2020_columns import Tables, Words, read_pai_tables, read_table
from dagsim.traces.gather import Gathered, gather, pack, unpack
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.rows import Block
from dagsim.traces.source import Source
from dagsim.traces.text_columns import TextTable
from dagsim.workload.arrays import JobArrays
from dagsim.workload.records import clipped

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
"""The columns of the tables that are read, as the publisher's headers name them."""

_GPU_TYPES = {"V100M32": "V100-32", "V100": "V100-16", "T4": "T4", "P100": "P100", "MISC": "K80"}
"""The catalogue's names. MISC stands for the older K40m, K80 and M60, of which the catalogue has the K80."""

_UNEVEN = "tasks that ask for a fraction above one GPU (rounded up)"
_ENDED = ("Terminated", "Failed")
_STATUSES = (*_ENDED, "Running", "Waiting")


class Pai2020(Reader):
    """One job per ``job_name``, kept if all its tasks terminated (or ``keep_partial``, with those that failed).

    A task is a gang of ``inst_num`` instances, each with ``plan_gpu`` of a GPU, or so many GPUs. Work is the task's
    ``end - start``, a job's arrival its own ``start_time``, which is its submission.
    """

    name = "pai2020"
    summary = "Alibaba PAI cluster-trace-gpu-v2020: tables, simulator list, and lists derived from it"
    uses = frozenset({"reference_gpu", "keep_partial", "floor_s"})

    def recognises(self, source: Source) -> bool:
        if source.path.is_dir() or source.matches("*pai_*_table.*"):
            return _table(source, "task") is not None
        return pai_lists.recognises_pai_list(source)

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        tables = _Tables.beside(source)
        for group in gather(tables.rows(report)):
            gathered = _Gathered.of(group, tables)
            job = gathered.job(options, report)
            if job is not None:
                report.kept += len(job.tasks) + len(gathered.submitted)
                yield job

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[Block]:
        if not source.path.is_dir() and pai_lists.recognises_pai_list(source):
            return pai_lists.pai_list_blocks(source, options, report, most)
        arrays = self.arrays(source, options, report, most)
        if arrays is None:
            return Reader.blocks(self, source, options, report, most)
        beside = (report.kept - arrays.tasks) // max(len(arrays), 1)  # a row of the job table, if there is one
        return iter((Block(arrays, np.diff(arrays.first) + beside),))

    def arrays(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> JobArrays | None:
        found = _Tables.beside(source)
        read = found.in_columns()

        def by_rows(group: Gathered) -> Job | None:
            return _Gathered.of(group, found).job(options, report)

        return read and read_pai_tables(
            read, options, report, most, Words(_ended(options), _GPU_TYPES, _UNEVEN), by_rows
        )

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """The machines of ``pai_machine_spec`` beside the trace."""
        machines = _table(source, "machine_spec")
        if machines is None:
            return None
        nodes = []
        for place, (name, kind, cpus, memory, gpus) in machines.rows(ReadReport(strict=True), _TABLES["machine_spec"]):
            try:
                many = count(gpus, "cap_gpu", 0, MOST_GPUS)
                gpu = gpu_type(_GPU_TYPES.get(kind, kind)) if many else None
                nodes.append(Node(name, gpu, many, finite_number(cpus, "cap_cpu"), finite_number(memory, "cap_mem")))
            except (Dirty, ModelError) as error:
                raise TraceError(f"{machines.where(place)}: a machine {clipped(error)}") from None
        try:
            return Cluster(tuple(nodes), self.name)
        except ModelError as error:
            raise TraceError(f"{machines}:1: {clipped(error)}") from None

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
        """The tables of the directory that ``source`` is or lies in.

        Raises:
            TraceError: There is no task table.
        """
        task = _table(source, "task")
        if task is None:
            raise TraceError(f"{source}: no pai_task_table.csv (or .csv.gz, .tar.gz) here or beside it")
        job = _table(source, "job")
        tags = _table(source, "group_tag") if job else None  # only the job table says which tag is whose
        return cls(job, task, _table(source, "instance"), tags)

    def rows(self, report: ReadReport) -> Iterator[tuple[str, float, str]]:
        """Job, submission and text of the rows of all tables. The text is led by which table it is from."""
        for place, row in _rows(self.task, "task", report):
            yield row[0] or f"row {place}", inf if self.job else _time(row[4]), pack(place, ["task", *row])
        if self.job:
            submitted = self._submitted(report) if self.tags is None else self._tagged(self.tags, report)
            for place, row in submitted:
                yield row[0] or f"row {place}", _time(row[4]), pack(place, ["job", *row])
        if self.instance:
            for place, row in _rows(self.instance, "instance", report):
                report.skip("joined from the instance table")
                yield row[0], inf, pack(place, ["instance", *row])

    def in_columns(self) -> Tables | None:
        """The tables in columns; nothing if one of them is not plain."""
        sources = {"task": self.task, "job": self.job, "instance": self.instance, "group_tag": self.tags}
        read: dict[str, TextTable] = {}
        for name, source in sources.items():
            if source is not None:
                table = read_table(source, _TABLES[name], _named(source, name), name)
                if table is None:
                    return None
                read[name] = table
        return Tables(read["task"], read.get("job"), read.get("instance"), read.get("group_tag"))

    def _submitted(self, report: ReadReport) -> Iterator[tuple[int, list[str]]]:
        assert self.job
        for place, row in _rows(self.job, "job", report):
            yield place, [*row, ""]

    def _tagged(self, tags: Source, report: ReadReport) -> Iterator[tuple[int, list[str]]]:
        """The rows of the job table, each with the ``gpu_type_spec`` of its ``inst_id`` at the end."""

        def both() -> Iterator[tuple[str, float, str]]:
            for place, row in self._submitted(report):
                yield row[1] or f"row {place}", inf, pack(place, row)
            for place, row in _rows(tags, "group_tag", report):
                report.skip("joined from the group tag table")
                yield row[0], inf, pack(place, [row[2]])

        for group in gather(both()):
            rows = [unpack(text) for text in group.rows]
            asked = next((row[0] for _, row in rows if len(row) == 1 and row[0]), "")
            yield from ((place, [*row[:-1], asked]) for place, row in rows if len(row) > 1)


@dataclass(slots=True)
class _Gathered:
    """The rows of one job, gathered from the tables."""

    id: str
    time: float
    tables: _Tables
    submitted: list[tuple[int, list[str]]] = field(default_factory=list)
    tasks: list[tuple[int, list[str]]] = field(default_factory=list)
    instances: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Start and end of the instances of each task, where known."""

    @classmethod
    def of(cls, group: Gathered, tables: _Tables) -> _Gathered:
        gathered = cls(group.job, group.time, tables)
        for place, (table, *row) in map(unpack, group.rows):
            if table == "job":
                gathered.submitted.append((place, row))
            elif table == "task":
                gathered.tasks.append((place, row))
            else:
                gathered.instances.setdefault(row[1], []).append((_time(row[6]), _time(row[7])))
        return gathered

    def job(self, options: TraceOptions, report: ReadReport) -> Job | None:
        """The job, or ``None`` and its rows dropped for a reason."""
        if not self._is_submitted(report):
            return None
        user, asked = (self.submitted[0][1][2], self.submitted[0][1][6]) if self.submitted else ("", "")
        made: dict[str, tuple[list[str], Task]] = {}
        whole = True
        for place, row in self.tasks:
            where = self.tables.task.where(place)
            try:
                if row[1] in made:
                    raise Dirty("given twice" if made[row[1]][0] == row else "with a task_name that another row has")
                made[row[1]] = row, self._task(row, asked, options, report, where)
            except Dirty as reason:
                whole = whole and str(reason) == "given twice"
                report.drop(str(reason), where)
            except ModelError as error:
                whole = False
                report.drop("that ask for what cannot be", where, detail=str(error))
        if made and (whole or options.keep_partial):
            tasks = tuple([task for _, task in made.values()])
            return Job(self.id, TaskGraph(tasks), self.time, tenant=user)
        rest = len(made) + len(self.submitted)
        if rest:
            report.drop("of jobs that did not finish as a whole", self._where(), rest)
        return None

    def _is_submitted(self, report: ReadReport) -> bool:
        """True if the job can arrive; if not, all its rows are dropped."""
        assert self.tables.job is None or self.submitted or self.tasks or self.instances
        if self.tables.job is not None:
            for place, row in self.submitted[1:]:
                same = row == self.submitted[0][1]
                report.drop("given twice" if same else "whose job_name another row has", self.tables.job.where(place))
            del self.submitted[1:]
        reason = ""
        if self.tables.job is not None and not self.submitted:
            reason = "of jobs that the job table lacks"
        elif not self.tasks:
            reason = "of jobs that the task table lacks"
        elif self.time == inf:
            reason = "of jobs without start_time"
        if reason and (rows := len(self.tasks) + len(self.submitted)):
            report.drop(reason, self._where(), rows)
        return not reason

    def _where(self) -> str:
        if self.submitted and self.tables.job:
            return self.tables.job.where(self.submitted[0][0])
        return self.tables.task.where(self.tasks[0][0])

    def _task(self, row: list[str], asked: str, options: TraceOptions, report: ReadReport, where: str) -> Task:
        """The task of a row of the task table.

        Raises:
            Dirty: It cannot be used.
            ModelError: Its demand is impossible.
        """
        _, name, inst_num, status, start, end, plan_cpu, plan_mem, plan_gpu, assigned = row
        if status not in _ended(options):
            raise Dirty("of tasks that did not terminate" if status in _STATUSES else "of an unknown status")
        begun, ended = self._times(name, _time(start), _time(end), report, where)
        gpus = finite_number(plan_gpu or "0", "plan_gpu") / 100
        if gpus > 1 and gpus != int(gpus):
            report.note(_UNEVEN, where)
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

    def _times(self, name: str, start: float, end: float, report: ReadReport, where: str) -> tuple[float, float]:
        """Start and end of a task, those that its row lacks from its instances.

        Raises:
            Dirty: They are missing there too, or out of order.
        """
        if inf in (start, end) and name in self.instances:
            report.note("tasks whose start or end is taken from their instances", where)
            starts, ends = zip(*self.instances[name], strict=True)
            start = min(starts) if start == inf else start
            end = max([time for time in ends if time < inf], default=inf) if end == inf else end
        if inf in (start, end):
            raise Dirty("without start_time" if start == inf else "without end_time")
        if end < start:
            raise Dirty("with an end before the start")
        return start, end


def _table(source: Source, table: str) -> Source | None:
    """The table beside ``source``, in the first of its forms that is there."""
    stem = f"pai_{table}" if table == "machine_spec" else f"pai_{table}_table"
    found = source.beside(f"{stem}.csv", f"{stem}.csv.gz", f"{stem}.tar.gz")
    return found.files[0] if found.files else None


def _rows(source: Source, table: str, report: ReadReport) -> Iterator[tuple[int, list[str]]]:
    """The rows of a table in the order of ``_TABLES``, whatever order its header file says."""
    for place, row in source.rows(report, _TABLES[table], names=_named(source, table)):
        yield place, list(row)


def _named(source: Source, table: str) -> Sequence[str]:
    """The names of a table's columns as its header file says, if there is one.

    Raises:
        TraceError: It lacks some.
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
    """The time that ``text`` spells; ``inf`` for nothing and for 0, which both mean unknown, and for what is none."""
    try:
        value = float(text or 0)
    except ValueError:
        return inf
    return value if 0 < value < inf else inf
