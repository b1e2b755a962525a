"""Alibaba cluster trace v2017: ``batch_task.csv``, jobs as bags of tasks.

Columns, without a header: ``create_timestamp, modify_timestamp, job_id, task_id, instance_num,
status, plan_cpu, plan_mem``. Times are in seconds, negative before the window of 12 hours.
``plan_cpu`` 100 is one core per instance; ``plan_mem`` is a fraction of a machine. A row is the
latest state of a task, so ``modify_timestamp`` is its end only if it terminated. The DAG was not
released. The file is sorted neither by job nor by time: rows are grouped by job and jobs sorted by
arrival, externally beyond 262,144 rows (see ``gather``).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from dagsim.errors import ModelError
from dagsim.model import Job, Task, TaskGraph
from dagsim.traces.fields import Dirty, count, finite_number
from dagsim.traces.gather import Gathered, gather, pack, unpack
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source

__all__ = ["Alibaba2017"]

_COLUMNS = (
    "create_timestamp",
    "modify_timestamp",
    "job_id",
    "task_id",
    "instance_num",
    "status",
    "plan_cpu",
    "plan_mem",
)
_STATUSES = ("Ready", "Waiting", "Running", "Terminated", "Failed", "Cancelled")


class Alibaba2017(Reader):
    """One job per ``job_id``, kept if all its tasks terminated (or with ``keep_partial``); tasks
    have no parents.

    Work is ``modify - create``; instances are independent. A job created before the window arrives
    at its start.
    """

    name = "alibaba2017"
    summary = "Alibaba cluster trace v2017: batch_task.csv, bags of tasks without GPUs"
    uses = frozenset({"gpus_per_task", "keep_partial", "floor_s"})

    def recognises(self, source: Source) -> bool:
        rows = [line.split(",") for line in _tasks(source).head()]
        return any(len(row) == 8 and row[5] in _STATUSES and row[2].isdigit() for row in rows)

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        source = _tasks(source)
        for group in gather(_rows(source, report)):
            job = _job(group, source, options, report)
            if job is not None:
                report.kept += len(job.tasks)
                yield job

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "demand": options.cpu_demand_text("plan_cpu / 100 cores and plan_mem as a share of a 100 GB machine"),
            "work": "modify - create, in seconds; the same on every GPU type",
            "graph": "the tasks of a job are independent (the trace leaves its DAGs out)",
        }


def _tasks(source: Source) -> Source:
    """The task table, if ``source`` is a directory or archive with several tables."""
    tables = source.select("batch_task.*")
    return tables if tables.files else source


def _rows(source: Source, report: ReadReport) -> Iterator[tuple[str, float, str]]:
    """Job, creation time and text (starting with its number) of every row; the time is ``inf`` for
    tasks that did not terminate.
    """
    for place, row in source.rows(report, _COLUMNS):
        if not row[2]:
            report.drop("without job_id", source.where(place))
            continue
        try:
            created = finite_number(row[0], "create_timestamp") if row[5] == "Terminated" else inf
        except Dirty:
            created = inf  # the row is dropped together with its job
        yield row[2], max(0.0, created), pack(place, row)


def _job(group: Gathered, source: Source, options: TraceOptions, report: ReadReport) -> Job | None:
    tasks: dict[str, Task] = {}
    whole, early, first = True, False, 0
    for text in group.rows:
        place, row = unpack(text)
        try:
            task = _task(row, options, source.where(place), report)
            if tasks.setdefault(task.name, task) is not task:
                raise Dirty("given twice" if tasks[task.name] == task else "with a task_id that another row has")
            first = first or place
            early = early or float(row[0]) < 0
        except Dirty as reason:
            whole = whole and str(reason) == "given twice"
            report.drop(str(reason), source.where(place))
        except ModelError as error:
            whole = False
            report.drop("that describe an impossible job", source.where(place), detail=str(error))
    if tasks and not (whole or options.keep_partial):
        report.drop("of jobs that did not finish as a whole", source.where(first), len(tasks))
    elif tasks:
        if early:
            report.note("jobs from before the window (arrive at its start)", source.where(first))
        return Job(group.job, TaskGraph(tuple(tasks.values())), group.time)
    return None


def _task(row: list[str], options: TraceOptions, where: str, report: ReadReport) -> Task:
    """Task of a row.

    Raises:
        Dirty: The row is unusable.
        ModelError: Its time or demand is too large for a number.
    """
    create, modify, _, name, instances, status, plan_cpu, plan_mem = row
    if status != "Terminated":
        raise Dirty("of tasks that did not terminate" if status in _STATUSES else "of an unknown status")
    work = finite_number(modify, "modify_timestamp") - finite_number(create, "create_timestamp")
    if work < 0:
        raise Dirty("with an end before the start")
    cpus, memory = finite_number(plan_cpu or "0", "plan_cpu") / 100, finite_number(plan_mem or "0", "plan_mem") * 100
    if cpus < 0 or memory < 0:
        raise Dirty("with a negative demand")
    if not plan_cpu or not plan_mem:
        report.note("tasks without plan_cpu or plan_mem (none asked)", where)
    parallel = count(instances, "instance_num")
    return Task(name, max(work, options.floor_s), parallel, False, *options.cpu_demand(cpus, memory))
