"""Plain tables with one row per task: the rows with the same id form a job with a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from dagsim.errors import GraphError
from dagsim.model import Task, TaskGraph
from dagsim.traces.formats.plain_rows import ALLOWED, AT, ID, NEEDED, NUMBERS, PlainRows
from dagsim.traces.grouping import Grouped, in_parts, repeated, rows_by_job
from dagsim.traces.reader import JobBlock
from dagsim.traces.report import ReadReport, RepeatedId
from dagsim.traces.rows import Checks, JobBatch, job_blocks
from dagsim.traces.table_files import NamedColumns
from dagsim.traces.typed_table import Table
from dagsim.workload.array_tools import bounds
from dagsim.workload.arrays import JobArrays


def task_blocks(columns: NamedColumns, rows: PlainRows, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
    """Yield the jobs of a table with one row per task."""

    def read(report: ReadReport) -> Iterator[Table]:
        for table in columns.tables(NEEDED, ALLOWED, NUMBERS, report):
            checks = Checks(table)
            checks.drop(table.texts(ID) == "", "without an id")
            rows.checked_arrivals(checks)
            checks.findings.tell(report, table, np.arange(len(table)), len(table))
            yield table.chosen(np.flatnonzero(checks.usable))

    def keys(table: Table) -> tuple[np.ndarray, np.ndarray]:
        return table.texts(ID), rows.arrivals(table)

    parts = in_parts(read, keys, report)
    return job_blocks((_graphs(table, rows, rows_by_job(*keys(table))) for table in parts), report, most)


def _graphs(table: Table, rows: PlainRows, groups: Grouped) -> JobBatch:
    """Build the jobs from rows that each describe a task."""
    checks = Checks(table)
    tasks, group = rows.tasks(checks), groups.job_of_row()
    checks.drop(
        repeated(group * np.int64(len(tasks.names)) + tasks.name), RepeatedId("with the same task as another row")
    )
    checks.impossible(tasks)
    usable = checks.usable[groups.row]
    kept = np.bincount(groups.job, usable, len(groups.ids)).astype(np.int64)
    leads = np.minimum.reduceat(np.where(usable, np.arange(len(usable)), len(usable) - 1), groups.first[:-1])
    lead = groups.row[leads]  # values that belong to the job are taken from its first usable row

    def drop(reason: str, jobs: np.ndarray, details: Mapping[int, str]) -> None:
        checks.findings.drop(
            lead[jobs],
            reason,
            stage=1,
            counts=kept[jobs],
            details={int(lead[job]): text for job, text in details.items()},
        )

    whole = kept == np.diff(groups.first)
    drop("of jobs from which another row was dropped", np.flatnonzero(~whole & (kept > 0)), {})
    waits, parent, circular = _parents(table, tasks, groups, whole)
    drop("of jobs that are not a DAG", np.array(list(circular), np.int64), circular)
    whole[list(circular)] = False
    leading = Checks(table.chosen(lead))
    every = replace(
        tasks.chosen(lead),
        ids=groups.ids,
        arrival_s=groups.time,
        first=groups.first,
        name=tasks.name[groups.row],
        names=tasks.names,
        work=tasks.work[groups.row],
        instances=tasks.instances[groups.row],
        kind=tasks.kind[groups.row],
        kinds=tasks.kinds,
        estimate=None if tasks.estimate is None else tasks.estimate[groups.row],
        waits=waits,
        parent=parent,
        **rows.facts(leading, groups.time),
    )
    leading.usable &= whole
    leading.impossible(every)
    reasons = {job: text for job, text in leading.findings.reasons().items() if whole[job]}
    drop("of impossible jobs", np.array(list(reasons), np.int64), reasons)
    whole[list(reasons)] = False
    return JobBatch(table, every, whole, kept, group, checks.findings)


def _parents(
    table: Table, tasks: JobArrays, groups: Grouped, whole: np.ndarray
) -> tuple[np.ndarray, np.ndarray, dict[int, str]]:
    """Return the edges of all jobs in the mask ``whole`` whose graphs are DAGs, as ``waits`` and
    ``parent``, and for each of the other jobs, the reason why its graph is not a DAG.
    """
    texts, waits, parent, wrong = table.texts(AT["parents"]), np.zeros(len(table), np.int64), [], {}
    for job in np.flatnonzero(whole).tolist():
        begin, end = groups.first[job], groups.first[job + 1]
        members = groups.row[begin:end].tolist()
        names = [tasks.names[tasks.name[row]] for row in members]
        waited = {
            name: list(dict.fromkeys([text for text in texts[row].split("|") if text]))
            for name, row in zip(names, members, strict=True)
        }
        try:
            graph = TaskGraph.of([Task(name, 0.0) for name in names], waited)
        except GraphError as error:
            wrong[job] = str(error)
            continue
        waits[begin:end] = [len(places) for places in graph.parents]
        parent += [place for places in graph.parents for place in places]
    return bounds(waits), np.array(parent, np.int32), wrong
