"""Alibaba cluster trace v2017: ``batch_task.csv``, jobs as bags of tasks.

Columns, without a header: ``create_timestamp, modify_timestamp, job_id, task_id, instance_num,
status, plan_cpu, plan_mem``. Times are in seconds, and are negative before the 12-hour window of
the trace. A ``plan_cpu`` of 100 is one core per instance, and ``plan_mem`` is a fraction of a
machine. A row is the latest state of a task, so ``modify_timestamp`` is the end of the task only if
the task terminated. The DAG was not released. The file is sorted neither by job nor by time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import inf

import numpy as np

from dagsim.model import Demand
from dagsim.traces.chunks import read_tables
from dagsim.traces.grouping import in_parts, rows_by_job
from dagsim.traces.reader import JobBlock, Reader
from dagsim.traces.report import ImpossibleTimes, ReadReport
from dagsim.traces.rows import Checks, JobBatch, drop_repeated, job_blocks, single_tasks
from dagsim.traces.source import Source
from dagsim.traces.text_forms import csv_form
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table
from dagsim.workload.array_tools import bounds, objects
from dagsim.workload.arrays import TaskKind

_COLUMNS = (
    "create_timestamp", "modify_timestamp", "job_id", "task_id", "instance_num", "status", "plan_cpu", "plan_mem",
)  # fmt: skip
_JOB, _TASK, _STATUS, _CREATE, _MODIFY, _INSTANCES, _CPU, _MEMORY = range(len(_COLUMNS))
_FORM = csv_form(
    ("job_id", "task_id", "status", "create_timestamp", "modify_timestamp", "instance_num", "plan_cpu", "plan_mem"),
    numbers=(_CREATE, _MODIFY, _INSTANCES, _CPU, _MEMORY),
    texts=(_JOB, _TASK, _STATUS),
    names=_COLUMNS,
)
_STATUSES = ("Ready", "Waiting", "Running", "Terminated", "Failed", "Cancelled")


class Alibaba2017(Reader):
    """Builds one job per ``job_id``, whose tasks have no parents. The job is kept if all its tasks
    terminated or ``keep_partial`` is set.

    Work is ``modify - create``, and instances are independent. A job created before the window
    arrives at the start of the window.
    """

    name = "alibaba2017"
    summary = "Alibaba cluster trace v2017: batch_task.csv, bags of tasks without GPUs"
    uses = frozenset({"gpus_per_task", "keep_partial", "floor_s"})

    def recognises(self, source: Source) -> bool:
        rows = [line.split(",") for line in _tasks(source).head()]
        return any(len(row) == 8 and row[5] in _STATUSES and row[2].isdigit() for row in rows)

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        parts = in_parts(partial(_rows, _tasks(source)), _keys, report)
        return job_blocks((_batch(table, options) for table in parts), report, most)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "demand": options.cpu_demand_text("plan_cpu / 100 cores and plan_mem as a share of a 100 GB machine"),
            "work": "modify - create, in seconds; the same on every GPU type",
            "graph": "the tasks of a job are independent (the trace does not include the DAGs)",
        }


def _tasks(source: Source) -> Source:
    """Return the task table in ``source``, which may be a directory or archive with several tables."""
    tables = source.select("batch_task.*")
    return tables if tables.files else source


def _rows(source: Source, report: ReadReport) -> Iterator[Table]:
    """Yield the rows that have a job id."""
    for table in read_tables(source, _FORM, report):
        unnamed = table.texts(_JOB) == ""
        for row in np.flatnonzero(unnamed).tolist():
            report.drop("without job_id", table.where(row))
        yield table.chosen(np.flatnonzero(~unnamed))


def _keys(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the job and the creation time of each row. The time is ``inf`` for tasks that did not
    terminate."""
    created = table.numbers(_CREATE)
    is_over = (table.texts(_STATUS) == "Terminated") & np.isfinite(created)
    return table.texts(_JOB), np.where(is_over, np.maximum(created, 0.0), inf)


def _batch(table: Table, options: TraceOptions) -> JobBatch:
    """Convert a table to jobs."""
    checks = Checks(table)
    findings = checks.findings
    status = table.texts(_STATUS)
    checks.drop(~np.isin(status, _STATUSES), "with an unknown status")
    checks.drop(status != "Terminated", "of tasks that did not terminate")
    modified, created = checks.number(_MODIFY, "modify_timestamp"), checks.number(_CREATE, "create_timestamp")
    # infinite values are rejected below, so they need no warning here
    with np.errstate(over="ignore", invalid="ignore"):
        work = modified - created
        checks.drop(work < 0, ImpossibleTimes("with an end before the start"))
        cpus, memory = checks.number(_CPU, "plan_cpu", 0) / 100, checks.number(_MEMORY, "plan_mem", 0) * 100
    checks.drop((cpus < 0) | (memory < 0), "with a negative demand")
    checks.note(table.blank(_CPU) | table.blank(_MEMORY), "tasks without plan_cpu or plan_mem (taken as no request)")
    instances = checks.count(_INSTANCES, "instance_num")
    work = np.where(work < options.floor_s, options.floor_s, work)
    asked = (cpus, memory) if options.gpus_per_task is None else (np.zeros(len(table)), np.zeros(len(table)))
    tasks = single_tasks(
        checks,
        np.zeros(len(table)),
        work,
        instances,
        asked,
        lambda *asked: TaskKind(Demand(*options.cpu_demand(*asked))),
    )
    checks.impossible(tasks)

    groups = rows_by_job(*_keys(table))
    job, name = groups.job_of_row(), table.words(_TASK)
    key = job * np.int64(len(table)) + name.place
    whole_row = drop_repeated(checks, key, (work, instances, *asked), "with a task_id that another row has")
    whole = np.bincount(job, ~whole_row, len(groups.ids)) == 0

    rows = groups.row[checks.usable[groups.row]]  # rows grouped by job, each group in the order of the file
    sizes = np.bincount(job[rows], minlength=len(groups.ids)).astype(np.int64)
    lead = np.full(len(groups.ids), -1)
    lead[job[rows][::-1]] = rows[::-1]  # assigned backwards, so that each job keeps its first row
    kept = (sizes > 0) & (whole | options.keep_partial)
    lost = np.flatnonzero((sizes > 0) & ~kept)
    findings.drop(lead[lost], "of jobs that did not finish as a whole", stage=1, counts=sizes[lost])
    is_early = kept & (np.bincount(job[rows], created[rows] < 0, len(kept)) > 0)
    findings.note(lead[is_early], "jobs submitted before the window (taken to arrive at its start)", stage=1)
    every = replace(
        tasks,
        ids=groups.ids,
        arrival_s=groups.time,
        first=bounds(sizes),
        name=name.place[rows],
        names=objects(name.words),
        work=tasks.work[rows],
        instances=tasks.instances[rows],
        kind=tasks.kind[rows],
        waits=np.zeros(len(rows) + 1, np.int64),
    )
    return JobBatch(table, every, kept, sizes, job, findings)
