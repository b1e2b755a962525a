"""Alibaba cluster trace v2018: ``batch_task.csv``, whose task names encode the DAG.

Columns, without a header: ``task_name, instance_num, job_name, task_type, status, start_time,
end_time, plan_cpu, plan_mem``. ``M1`` is task 1. ``R4_2`` is task 4, which waits for task 2.
``task_<code>`` is a task without parents. Times are in seconds. A ``plan_cpu`` of 100 is one core
per instance, and ``plan_mem`` is a percentage of a machine. The official file is sorted neither by
job nor by time. A table whose header has ``mean_instance_duration_s`` (terminated tasks joined with
their instances) is read the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache, partial
from math import inf
from typing import NamedTuple

import numpy as np

from dagsim.errors import GraphError
from dagsim.model import Cluster, Demand, Node
from dagsim.traces.chunks import read_rows, read_tables
from dagsim.traces.fields import FaultsAt, finite_number
from dagsim.traces.grouping import in_parts, rows_by_job
from dagsim.traces.reader import JobBlock, Reader
from dagsim.traces.report import ImpossibleTimes, ReadReport
from dagsim.traces.rows import Checks, JobBatch, drop_repeated, job_blocks, kinds_of_rows
from dagsim.traces.source import Source
from dagsim.traces.text_forms import FileLayout, Form
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table
from dagsim.workload.array_tools import bounds, objects, ranges
from dagsim.workload.arrays import JobArrays, Labels, TaskKind

_STATUSES = ("Terminated", "Running", "Failed", "Waiting", "Ready", "Cancelled", "Interrupted", "Unknown")
_NUMBERED = re.compile(r"[A-Za-z]+(\d{1,9})((?:_.*)?)")
_JOINED = (
    "task_name", "instance_num", "job_name", "start_time", "end_time", "plan_cpu", "plan_mem",
    "mean_instance_duration_s",
)  # fmt: skip
_OFFICIAL = (
    "task_name", "instance_num", "job_name", "task_type", "status", "start_time", "end_time", "plan_cpu", "plan_mem",
)  # fmt: skip
_NAME, _INSTANCES, _JOB, _, _STATUS, _START, _END, _CPU, _MEMORY = range(len(_OFFICIAL))
_NUMBERS, _TEXTS = (_INSTANCES, _START, _END, _CPU, _MEMORY), (_NAME, _JOB, _STATUS)
_FORM = Form(_NUMBERS, _TEXTS, layout=lambda first, where: _official_layout(first), quoted=False, heading="task_name")
_JOINED_FORM = Form(_NUMBERS, _TEXTS, lambda first, where: _joined_layout(first, where))
_BY_NAME = np.int64(1) << 31
"""First key for tasks without a number."""
_MACHINE_COLUMNS = ("machine_id", "time_stamp", "failure_domain_1", "failure_domain_2", "cpu_num", "mem_size", "status")


class Alibaba2018(Reader):
    """Builds one job per ``job_name``, which is kept if all its tasks terminated (or with
    ``keep_partial``); instances are independent.

    ``start_time`` is the registration of a task, often long before its parents ended, so
    ``end - start`` is not the work of the task. Instead, work is
    ``max(0, end - max(start, latest end of its parents))``.
    """

    name = "alibaba2018"
    summary = "Alibaba cluster trace v2018: batch_task.csv, DAG jobs without GPUs"
    uses = frozenset({"gpus_per_task", "keep_partial", "floor_s"})

    def recognises(self, source: Source) -> bool:
        rows = [line.split(",") for line in _tasks(source).head()]
        if _is_joined(source) or _is_named(rows[0]):
            return True
        return any(len(row) == 9 and row[4] in _STATUSES and not row[0].isdigit() for row in rows)

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        source = _tasks(source)
        joined = _is_joined(source)
        parts = in_parts(partial(_rows, source, joined), partial(_keys, joined), report)
        return job_blocks((_batch(table, joined, options) for table in parts), report, most)

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """Read the machines from ``machine_meta.csv`` next to the tasks. Return None if there is no
        such file, or if tasks need GPUs."""
        machines = source.beside("machine_meta.csv*", "machine_meta.tar.gz")
        if options.gpus_per_task is not None or not machines.files:
            return None
        nodes: dict[str, Node] = {}
        for place, row in read_rows(machines, ReadReport(strict=True), _MACHINE_COLUMNS):
            # A machine has a row for every change of its status. Keep the first one.
            with FaultsAt(machines.where(place), "a machine"):
                nodes.setdefault(
                    row[0], Node(row[0], None, 0, finite_number(row[4], "cpu_num"), finite_number(row[5], "mem_size"))
                )
        return Cluster(tuple(nodes.values()), self.name)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "demand": options.cpu_demand_text("plan_cpu / 100 cores and plan_mem as GB of a 100 GB machine"),
            "work": "end - max(start, latest end of the parents), in seconds; the same on every GPU type",
        }


def _tasks(source: Source) -> Source:
    """Return the task table in ``source``, which may be a directory or archive with several tables."""
    tables = source.select("batch_task.*")
    return tables if tables.files else source


def _is_joined(source: Source) -> bool:
    return not source.path.is_dir() and set(_JOINED) <= set(source.head(1)[0].split(","))


def _is_named(header: list[str]) -> bool:
    """Return True if the columns have the publisher's names, as in a Parquet file."""
    return set(_OFFICIAL) <= {name.strip().lower() for name in header}


def _official_layout(first: list[str]) -> FileLayout:
    """Return the columns by their names if there are names, and otherwise in the publisher's order."""
    names = [name.strip().lower() for name in first]
    if _is_named(first):
        return FileLayout([names.index(name) for name in _OFFICIAL], len(names), True)
    return FileLayout(range(len(_OFFICIAL)), len(_OFFICIAL), False)


def _joined_layout(first: list[str], where: str) -> FileLayout:
    names = [name.strip().lower() for name in first]
    return FileLayout([names.index(name) if name in _JOINED else None for name in _OFFICIAL], len(names), True)


def _rows(source: Source, joined: bool, report: ReadReport) -> Iterator[Table]:
    """Yield the rows that have a job name."""
    for table in read_tables(source, _JOINED_FORM if joined else _FORM, report):
        unnamed = table.texts(_JOB) == ""
        if joined or not unnamed.any():
            yield table
            continue
        for row in np.flatnonzero(unnamed).tolist():
            report.drop("without job_name", table.where(row))
        yield table.chosen(np.flatnonzero(~unnamed))


def _keys(joined: bool, table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the job and the start of each row. The start is ``inf`` for rows that do not determine
    the job's arrival.
    """
    start, status = table.numbers(_START), table.texts(_STATUS)
    if joined:
        return table.texts(_JOB), np.where(np.isfinite(start), np.maximum(start, 0.0), inf)
    return table.texts(_JOB), np.where((status == "Terminated") & (start >= 0), start, inf)


class _Columns(NamedTuple):
    """The values in each row of a table, and the meaning of each distinct task name."""

    name: Labels
    spelled: list[tuple[int | None, tuple[int, ...], str]]
    """Number, parents and ignored part of each distinct name."""
    instances: np.ndarray
    start: np.ndarray
    end: np.ndarray
    cpus: np.ndarray
    memory: np.ndarray

    @classmethod
    def of(cls, checks: Checks, joined: bool) -> _Columns:
        """Read the columns. Rows that cannot be used are dropped, and odd values are noted."""
        table = checks.table
        if not joined:
            status = table.words(_STATUS)
            has_status = np.array([word in _STATUSES for word in status.words])[status.place]
            checks.drop(~has_status, "with an unknown status")
            terminated = np.array([word == "Terminated" for word in status.words])[status.place]
            checks.drop(~terminated, "of tasks that did not terminate")
        for column, optional in ((_START, False), (_END, False), (_CPU, True), (_MEMORY, True)):
            wrong = table.unreadable(column)
            checks.drop(wrong & ~table.blank(column) if optional else wrong, "with a value that is not a number")
        instances = checks.count(_INSTANCES, "number of instances", blank=1)
        start, end = table.numbers(_START), table.numbers(_END)
        checks.drop(~((start >= 0) & (start < inf) & (end < inf)), ImpossibleTimes("with an impossible time"))
        checks.drop((end < start) & (end > 0), ImpossibleTimes("with an end before the start"))
        checks.drop(end < start, "without end")
        cpus, memory = table.numbers(_CPU), table.numbers(_MEMORY)
        fine = (cpus >= 0) & (cpus < inf), (memory >= 0) & (memory <= 100)
        checks.note(~fine[0], "tasks without a usable plan_cpu (taken as no cores)")
        checks.note(~fine[1], "tasks without a usable plan_mem (taken as no memory)")
        cpus, memory = (np.where(usable, asked, 0.0) for usable, asked in zip(fine, (cpus / 100, memory), strict=True))
        name = table.words(_NAME)
        spelled = [(None, (), "") if word.startswith("task_") else _dag_name(word) for word in name.words]
        for odd in dict.fromkeys(ignored for _, _, ignored in spelled if ignored):
            at_odds = np.array([ignored == odd for _, _, ignored in spelled])[name.place]
            checks.note(at_odds, f"task names with {odd} (ignored)")
        return cls(name, spelled, instances, start, end, cpus, memory)

    def keys(self, job: np.ndarray) -> np.ndarray:
        """Return a number for each row that is unique to its job and task."""
        numbers = [_BY_NAME + place if own is None else own for place, (own, _, _) in enumerate(self.spelled)]
        # task numbers and name indices are below 2^31, so their ranges do not overlap
        keys: np.ndarray = job * (2 * _BY_NAME) + np.array(numbers, np.int64)[self.name.place]
        return keys

    def graph(self, tasks: np.ndarray, job: np.ndarray, key: np.ndarray) -> _Graph:
        """Build the graph of the tasks in the given rows."""
        degree = np.array([len(parents) for _, parents, _ in self.spelled], np.int64)
        listed = np.array([parent for _, parents, _ in self.spelled for parent in parents], np.int64)
        return _graph(key[tasks], job[tasks], self.name.place[tasks], degree, listed)

    def kinds(self, tasks: np.ndarray, gpus_per_task: float | None) -> tuple[np.ndarray, tuple[TaskKind, ...]]:
        """Return the kind of each task, and all kinds."""
        if gpus_per_task is not None:
            return np.zeros(len(tasks), np.int32), (TaskKind(Demand(gpus_per_task)),)
        asked = self.cpus[tasks], self.memory[tasks]
        return kinds_of_rows(np.ones(len(tasks), bool), asked, lambda cpus, gb: TaskKind(Demand(0.0, cpus, gb)))


def _batch(table: Table, joined: bool, options: TraceOptions) -> JobBatch:
    """Convert a table to jobs."""
    checks = Checks(table)
    rows = _Columns.of(checks, joined)
    groups = rows_by_job(*_keys(joined, table))
    job = groups.job_of_row()
    key = rows.keys(job)
    values = (rows.name.place, rows.instances, rows.start, rows.end, rows.cpus, rows.memory)
    whole_row = drop_repeated(checks, key, values, "with a task number that another row has")
    whole = np.bincount(job, ~whole_row, len(groups.ids)) == 0
    tasks = groups.row[checks.usable[groups.row]]  # rows grouped by job, each group in the original order
    sizes = np.bincount(job[tasks], minlength=len(groups.ids)).astype(np.int64)
    kept = (sizes > 0) & (whole | options.keep_partial)
    first_row = np.full(len(groups.ids), -1)
    first_row[job[tasks][::-1]] = tasks[::-1]
    lost = np.flatnonzero((sizes > 0) & ~kept)
    findings = checks.findings
    findings.drop(first_row[lost], "of jobs that did not finish as a whole", stage=1, counts=sizes[lost])

    graph = rows.graph(tasks, job, key)
    work, early = _work(rows.start[tasks], rows.end[tasks], graph, options.floor_s)
    alive = kept[job[tasks]]
    findings.note(
        tasks[early & alive], ImpossibleTimes("tasks that end before one of their parents (taken as no work)"), stage=1
    )
    orphans = np.flatnonzero(graph.orphan & alive)
    orphans = orphans[np.diff(job[tasks[orphans]], prepend=-1) > 0]
    findings.note(tasks[orphans], "jobs with a missing parent (taken as done)", stage=2)
    kind, kinds = rows.kinds(tasks, options.gpus_per_task)
    first = bounds(sizes)
    base = np.repeat(first[:-1], sizes)
    every = JobArrays(
        ids=groups.ids,
        arrival_s=groups.time,
        first=first,
        name=rows.name.place[tasks],
        names=objects(rows.name.words),
        work=work,
        instances=rows.instances[tasks].astype(np.int64),
        kind=kind,
        kinds=kinds,
        waits=graph.waits,
        parent=(graph.parent - np.repeat(base, np.diff(graph.waits))).astype(np.int32),
    )
    circular = np.flatnonzero(kept & (np.bincount(job[tasks], graph.circular, len(kept)) > 0))
    kept[circular] = False
    details = {int(first_row[place]): f"job {groups.ids[place]}: {_error(every, place)}" for place in circular.tolist()}
    findings.drop(first_row[circular], "cyclic", stage=3, counts=sizes[circular], details=details)
    return JobBatch(table, every, kept, sizes, job, findings)


class _Graph(NamedTuple):
    """The edges between n tasks, sorted by child. Edges from missing tasks are left out."""

    waits: np.ndarray  # (n + 1,) int64: the parents of task i are parent[waits[i] : waits[i + 1]]
    parent: np.ndarray  # (E,) int64: tasks
    orphan: np.ndarray  # (n,) bool: True if a parent does not exist
    circular: np.ndarray  # (n,) bool: True if the task is part of a cycle


def _graph(key: np.ndarray, job: np.ndarray, name: np.ndarray, degree: np.ndarray, listed: np.ndarray) -> _Graph:
    """Build the graph of tasks with these keys, jobs and names. ``degree`` is the number of parents
    that each name lists, and ``listed`` contains these parents, name by name.
    """
    by_key = np.argsort(key)
    ordered, degrees = key[by_key], degree[name]
    wanted = listed[ranges((np.cumsum(degree) - degree)[name], degrees)]
    child = np.repeat(np.arange(len(key)), degrees)
    sought = job[child] * (2 * _BY_NAME) + wanted
    place = np.searchsorted(ordered, sought)
    place[place == len(ordered)] = 0
    there = ordered[place] == sought if len(ordered) else np.zeros(0, bool)
    orphan = np.zeros(len(key), bool)
    orphan[child[~there]] = True
    parent, child, upward = by_key[place[there]], child[there], (sought >= key[child])[there]
    waits = bounds(np.bincount(child, minlength=len(key)))
    return _Graph(waits, parent, orphan, _circular(parent, child, job, upward))


def _circular(parent: np.ndarray, child: np.ndarray, job: np.ndarray, upward: np.ndarray) -> np.ndarray:
    """Return a mask of the tasks that wait for themselves, directly or through other tasks, (n,)
    bool. In every cycle, there is an edge whose parent has the same number as its child, or a
    larger one (``upward``).
    """
    if not len(child):
        return np.zeros(len(job), bool)
    suspect = np.zeros(int(job.max()) + 1, bool)
    suspect[job[child[upward]]] = True
    these = suspect[job[child]]
    parent, child = parent[these], child[these]
    missing = np.bincount(child, minlength=len(job))
    while len(parent):
        free = missing[parent] == 0
        if not free.any():
            break
        missing -= np.bincount(child[free], minlength=len(job))
        parent, child = parent[~free], child[~free]
    return missing > 0


def _work(start: np.ndarray, end: np.ndarray, graph: _Graph, floor_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the work of each task, (n,) float64, and a mask of the tasks that ended before one of
    their parents, (n,) bool.
    """
    begin, waiting = start.copy(), np.flatnonzero(np.diff(graph.waits))
    if len(waiting):
        begin[waiting] = np.maximum(begin[waiting], np.maximum.reduceat(end[graph.parent], graph.waits[:-1][waiting]))
    work = end - begin
    return np.where(work < floor_s, floor_s, work), work < 0.0


def _error(every: JobArrays, job: int) -> str:
    """Return the reason why a job's graph is invalid."""
    try:
        next(every.between(job, job + 1).jobs())
    except GraphError as error:
        return str(error)
    return ""


@lru_cache(maxsize=1 << 16)
def _dag_name(name: str) -> tuple[int | None, tuple[int, ...], str]:
    """Return the number and the parents in a task's ``name``, and the part of the name that cannot
    be read.
    """
    match = _NUMBERED.fullmatch(name)
    if match is None:
        return None, (), ""
    tokens = match[2].split("_")[1:]
    parents = tuple(dict.fromkeys([int(token) for token in tokens if token.isdecimal() and len(token) < 10]))
    odd = [token for token in tokens if not token.isdecimal()]
    ignored = "" if not odd else "a Stg token" if any(odd) else "an underscore too many"
    return int(match[1]), parents, ignored
