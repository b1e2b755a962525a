"""Alibaba cluster trace v2018: ``batch_task.csv``, whose task names hold the DAG.

Headerless: ``task_name, instance_num, job_name, task_type, status, start_time, end_time, plan_cpu, plan_mem``. ``M1``
is task 1, ``R4_2`` task 4 which waits for task 2, ``task_<code>`` a task that waits for none. Seconds; ``plan_cpu`` 100
is a core per instance, ``plan_mem`` a percentage of a machine. The official file is sorted neither by job nor by time:
rows are gathered by job and jobs sorted by arrival, externally beyond 262,144 rows (see ``gather``). A table with a
header that has ``mean_instance_duration_s`` (terminated tasks joined with their instances) is read likewise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from math import inf
from typing import TypeAlias

from dagsim.errors import GraphError, ModelError, TraceError
from dagsim.model import Cluster, Edge, Job, Node, Task, TaskGraph
from dagsim.traces.fields import Dirty, count, finite_number
from dagsim.traces.formats.alibaba2018_columns import EARLY_END, NO_PARENT, read_columns
from dagsim.traces.gather import Gathered, gather
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source
from dagsim.workload.arrays import JobArrays
from dagsim.workload.records import clipped

__all__ = ["Alibaba2018"]

_STATUSES = ("Terminated", "Running", "Failed", "Waiting", "Ready", "Cancelled", "Interrupted", "Unknown")
_NUMBERED = re.compile(r"[A-Za-z]+(\d{1,9})((?:_.*)?)")
_JOINED = (
    "task_name",
    "instance_num",
    "job_name",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "mean_instance_duration_s",
)
_MACHINE_COLUMNS = ("machine_id", "time_stamp", "failure_domain_1", "failure_domain_2", "cpu_num", "mem_size", "status")


class Alibaba2018(Reader):
    """One job per ``job_name``, kept if all its tasks terminated (or ``keep_partial``); instances are independent.

    ``start_time`` is when a task was registered, often long before its parents ended, so ``end - start`` is not work:
    the work of a task is ``max(0, end - max(start, latest end of its parents))``.
    """

    name = "alibaba2018"
    summary = "Alibaba cluster trace v2018: batch_task.csv, DAG jobs without GPUs"
    uses = frozenset({"gpus_per_task", "keep_partial", "floor_s"})

    def recognises(self, source: Source) -> bool:
        rows = [line.split(",") for line in _tasks(source).head()]
        return _is_joined(source) or any(len(row) == 9 and row[4] in _STATUSES and not row[0].isdigit() for row in rows)

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        source = _tasks(source)
        for group in gather(_joined_rows(source, report) if _is_joined(source) else _rows(source, report)):
            job = _job(group, source, options, report)
            if job is not None:
                report.kept += len(job.graph.tasks)
                yield job

    def arrays(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> JobArrays | None:
        source = _tasks(source)
        if _is_joined(source):
            return None

        def by_rows(group: Gathered) -> Job | None:
            job = _job(group, source, options, report)
            if job is not None:
                report.kept += len(job.graph.tasks)
            return job

        return read_columns(source, options, report, most, spelled=_dag_name, by_rows=by_rows)

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """The machines of ``machine_meta.csv``, if it lies beside the tasks and they need no GPUs."""
        machines = source.beside("machine_meta.csv*", "machine_meta.tar.gz")
        if options.gpus_per_task is not None or not machines.files:
            return None
        nodes: dict[str, Node] = {}
        for place, row in machines.rows(ReadReport(strict=True), _MACHINE_COLUMNS):
            try:  # one row per machine and change of its status
                nodes.setdefault(
                    row[0], Node(row[0], None, 0, finite_number(row[4], "cpu_num"), finite_number(row[5], "mem_size"))
                )
            except (Dirty, ModelError) as error:
                raise TraceError(f"{machines.where(place)}: a machine {clipped(error)}") from None
        return Cluster(tuple(nodes.values()), self.name)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "demand": options.cpu_demand_text("plan_cpu / 100 cores and plan_mem as GB of a 100 GB machine"),
            "work": "end - max(start, latest end of the parents), in seconds; the same on every GPU type",
        }


_Row: TypeAlias = tuple[int, str, int | None, tuple[int, ...], int, float, float, float, float]
"""Where, name, number, parents, instances, start, end, cores, memory; a plain tuple, for there are millions."""


def _tasks(source: Source) -> Source:
    """The task table, if ``source`` is a directory or archive of several tables."""
    tables = source.select("batch_task.*")
    return tables if tables.files else source


def _rows(source: Source, report: ReadReport) -> Iterator[tuple[str, float, str]]:
    """Job, start and text (led by its number) of every row; rows that are no part of a job's life start never."""
    for place, line in source.lines():
        fields = line.split(",")
        if len(fields) != 9:
            if line.strip():
                report.rows += 1
                report.drop("with a wrong number of fields", source.where(place), detail=f"{len(fields)}")
            continue
        if fields[0] == "task_name":
            continue
        report.rows += 1
        if not fields[2]:
            report.drop("without job_name", source.where(place))
            continue
        try:
            start = float(fields[5]) if fields[4] == "Terminated" else inf
        except ValueError:
            start = inf
        yield fields[2], start if start >= 0 else inf, f"{place},{line}"


def _is_joined(source: Source) -> bool:
    return not source.path.is_dir() and set(_JOINED) <= set(source.head(1)[0].split(","))


def _joined_rows(source: Source, report: ReadReport) -> Iterator[tuple[str, float, str]]:
    """The rows of a table joined with instances, as ``_rows`` gives those of the official one."""
    for place, (task, instances, job, start, end, cpu, mem, _) in source.rows(report, _JOINED, header=True):
        try:
            arrival = max(0.0, finite_number(start, "start_time"))
        except Dirty:
            arrival = inf  # the row meets its fate with its job
        fields = (place, task, instances, job, "", "Terminated", start, end, cpu, mem)
        yield job, arrival, ",".join([str(field).replace(",", " ").replace("\n", " ") for field in fields])


def _job(group: Gathered, source: Source, options: TraceOptions, report: ReadReport) -> Job | None:
    rows: dict[int | str, _Row] = {}
    whole = True
    for text in group.rows:
        try:
            row = _parse(text, source, report)
            known = rows.setdefault(row[1] if row[2] is None else row[2], row)
            if known is row:
                continue
            if known[1:] != row[1:]:
                raise Dirty("with a task number that another row has")
            report.drop("given twice", source.where(row[0]))
        except Dirty as reason:
            whole = False
            report.drop(str(reason), source.where(int(text.partition(",")[0])))
    if rows and (whole or options.keep_partial):
        try:
            return Job(group.job, _graph(rows, source, options, report), group.time)
        except GraphError as error:
            report.drop("cyclic", _first(rows, source), len(rows), f"job {group.job}: {error}")
    elif rows:
        report.drop("of jobs that did not finish as a whole", _first(rows, source), len(rows))
    return None


def _first(rows: dict[int | str, _Row], source: Source) -> str:
    return source.where(next(iter(rows.values()))[0])


def _graph(rows: dict[int | str, _Row], source: Source, options: TraceOptions, report: ReadReport) -> TaskGraph:
    place = {key: index for index, key in enumerate(rows)}
    tasks: list[Task] = []
    edges: list[Edge] = []
    missing, floor_s, gpus = 0, options.floor_s, options.gpus_per_task
    for index, (where, name, _, parents, instances, start, end, cpus, memory) in enumerate(rows.values()):
        begin = start
        for parent in parents:
            if parent not in rows:
                missing = missing or where
                continue
            edges.append(Edge(place[parent], index))
            ended = rows[parent][6]
            if ended > begin:
                begin = ended
        work = end - begin
        if work < 0.0:
            report.note(EARLY_END, source.where(where))
        if work < floor_s:
            work = floor_s
        if gpus is None:
            tasks.append(Task(name, work, instances, False, 0.0, cpus, memory))
        else:
            tasks.append(Task(name, work, instances, False, gpus))
    if missing:
        report.note(NO_PARENT, source.where(missing))
    return TaskGraph(tuple(tasks), tuple(edges))


def _parse(text: str, source: Source, report: ReadReport) -> _Row:
    """The row in numbers.

    Raises:
        Dirty: It cannot be used.
    """
    place, name, instance_num, _, _, status, start_time, end_time, plan_cpu, plan_mem = text.split(",")
    where = int(place)
    if status != "Terminated":
        raise Dirty("of tasks that did not terminate" if status in _STATUSES else "of an unknown status")
    try:
        start, end = float(start_time), float(end_time)
        cpus, memory = float(plan_cpu or -1), float(plan_mem or -1)
    except ValueError:
        raise Dirty("with something else than a number") from None
    instances = _count(instance_num or "1", "number of instances")
    if not 0 <= start < inf or not end < inf:
        raise Dirty("with an impossible time")
    if end < start:
        raise Dirty("with an end before the start" if end > 0 else "without end")
    if not 0 <= cpus < inf:
        report.note("tasks without a usable plan_cpu (no cores asked)", source.where(where))
        cpus = 0.0
    if not 0 <= memory <= 100:
        report.note("tasks without a usable plan_mem (no memory asked)", source.where(where))
        memory = 0.0
    if name.startswith("task_"):
        return where, name, None, (), instances, start, end, cpus / 100, memory
    own, parents, ignored = _dag_name(name)
    if ignored:
        report.note(f"task names with {ignored} (ignored)", source.where(where))
    return where, name, own, parents, instances, start, end, cpus / 100, memory


_count = lru_cache(maxsize=1 << 12)(count)
"""``count``, which most rows ask the same of."""


@lru_cache(maxsize=1 << 16)
def _dag_name(name: str) -> tuple[int | None, tuple[int, ...], str]:
    """The number and the parents that ``name`` spells, and what in it cannot be read."""
    match = _NUMBERED.fullmatch(name)
    if match is None:
        return None, (), ""
    tokens = match[2].split("_")[1:]
    parents = tuple(dict.fromkeys([int(token) for token in tokens if token.isdecimal() and len(token) < 10]))
    odd = [token for token in tokens if not token.isdecimal()]
    ignored = "" if not odd else "a Stg token" if any(odd) else "an underscore too many"
    return int(match[1]), parents, ignored
