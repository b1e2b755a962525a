"""``batch_task.csv`` read in columns (see ``columnar``): the graphs of all jobs at once, and what their tasks take."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf, nan
from typing import NamedTuple

import numpy as np

from dagsim.model import Demand, Job, Task
from dagsim.traces.columnar import Rows, gathered, kinds_of_rows, told
from dagsim.traces.fields import are_counts
from dagsim.traces.gather import Gathered
from dagsim.traces.options import TraceOptions
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source
from dagsim.traces.text_columns import TextTable, plain_lines, table_of
from dagsim.workload.arrays import JobArrays, TaskKind, objects, ranges

__all__ = ["EARLY_END", "NO_PARENT", "read_columns"]

EARLY_END = "tasks that end before a parent does (work 0)"
NO_PARENT = "jobs with a parent that does not exist (taken as done)"

_WIDTH = 9
_NAME, _INSTANCES, _JOB, _, _STATUS, _START, _END, _CPU, _MEMORY = range(_WIDTH)
_NUMBERS = (_INSTANCES, _START, _END, _CPU, _MEMORY)
_NO_HEADER = re.compile(b"")
_BY_NAME = np.int64(1) << 31
"""Keys of tasks without a number begin here."""


class _Rows(NamedTuple):
    """The rows as they stand in ``by_job``."""

    by_job: Rows
    name: np.ndarray  # (n,) int32
    names: tuple[str, ...]
    columns: tuple[np.ndarray, ...]  # float64: instances, start, end, cpu, memory
    terminated: np.ndarray  # (n,) bool


class _Graph(NamedTuple):
    """The edges between rows, by child, without those from rows that do not exist."""

    waits: np.ndarray  # (n + 1,) int64
    parent: np.ndarray  # (E,) int64: rows
    orphan: np.ndarray  # (n,) bool: has a parent that does not exist
    whole: np.ndarray  # (J,) bool: each task is there once, and none waits for itself in the end


def read_columns(
    source: Source,
    options: TraceOptions,
    report: ReadReport,
    most: int | None,
    *,
    spelled: Callable[[str], tuple[int | None, tuple[int, ...], str]],
    by_rows: Callable[[Gathered], Job | None],
) -> JobArrays | None:
    """The first ``most`` jobs, or nothing if the file is not plain enough.

    ``spelled`` reads a task's name, ``by_rows`` makes the job of rows that are not in order.
    """
    import pandas as pd

    lines = plain_lines(source, _NO_HEADER, _WIDTH)
    table = (
        None
        if lines is None
        else table_of(lines, range(_WIDTH), _NUMBERS, (_NAME, _JOB, _STATUS), lambda text: text.split(","))
    )
    if lines is None or table is None or table.blank(_NAME).any() or table.blank(_JOB).any():
        return None
    code, ids = pd.factorize(table.texts(_JOB))
    rows = _gathered(table, code, ids)
    del table, code
    if "task_name" in rows.names:
        return None
    by_job = rows.by_job
    report.rows = len(by_job.line)
    graph = _graph(rows, spelled)
    plain = np.logical_and.reduceat(_plain_rows(rows), by_job.first[:-1]) & graph.whole
    work, early = _work(rows, graph, options.floor_s)
    orphans = np.flatnonzero(graph.orphan)
    orphan = np.zeros(len(work), bool)
    orphan[orphans[np.diff(by_job.job[orphans], prepend=-1) > 0]] = True  # the first of each job
    notes = ((EARLY_END, early), (NO_PARENT, orphan))

    def make(number: int, members: list[int]) -> Job | None:
        texts = [f"{lines.number(row)},{lines.text(row)}" for row in members]
        return by_rows(Gathered(float(by_job.time[number]), 0, by_job.ids[number], texts))

    every = _every(rows, graph, work, options)
    arrays = told(every, np.arange(len(every)), by_job, plain, notes, lines, report, most, make)
    report.kept = arrays.tasks
    return arrays


def _gathered(table: TextTable, code: np.ndarray, ids: np.ndarray) -> _Rows:
    """The rows by job; what did not terminate starts never."""
    status, statuses = table.words(_STATUS)
    terminated = np.array([each == "Terminated" for each in statuses])[status]
    columns = [table.numbers(place, 1 if place == _INSTANCES else nan) for place in _NUMBERS]
    start = columns[1]
    with np.errstate(invalid="ignore"):
        time = np.where(terminated & (start >= 0), start, inf)
    by_job = gathered(code, ids, time)
    line = by_job.line
    name, names = table.words(_NAME)
    return _Rows(by_job, name[line], names[:-1], tuple([column[line] for column in columns]), terminated[line])


def _plain_rows(rows: _Rows) -> np.ndarray:
    """(n,) bool: nothing is to be said of the row itself."""
    instances, start, end, cpu, memory = rows.columns
    with np.errstate(invalid="ignore"):
        times = (start >= 0) & (end >= start) & (end < inf)
        asked = (cpu >= 0) & (cpu < inf) & (memory >= 0) & (memory <= 100)
    plain: np.ndarray = rows.terminated & are_counts(instances) & times & asked
    return plain


def _graph(rows: _Rows, spelled: Callable[[str], tuple[int | None, tuple[int, ...], str]]) -> _Graph:
    """Parents by the numbers in the names."""
    read = [(None, (), "") if name.startswith("task_") else spelled(name) for name in rows.names]
    number = np.array([_BY_NAME + place if own is None else own for place, (own, _, _) in enumerate(read)], np.int64)
    clean = np.array([not ignored for _, _, ignored in read], bool)
    degree = np.array([len(parents) for _, parents, _ in read], np.int64)
    listed = np.array([parent for _, parents, _ in read for parent in parents], np.int64)
    begins = np.cumsum(degree) - degree
    job, own = rows.by_job.job, number[rows.name]
    key = job * (2 * _BY_NAME) + own  # number and place of a name lie below 2^31 each
    by_key = np.argsort(key, kind="stable")
    ordered = key[by_key]
    bad = ~clean[rows.name]
    bad[by_key[1:][ordered[1:] == ordered[:-1]]] = True
    degrees = degree[rows.name]
    wanted = listed[ranges(begins[rows.name], degrees)]
    child = np.repeat(np.arange(len(job)), degrees)
    place = np.searchsorted(ordered, job[child] * (2 * _BY_NAME) + wanted)
    place[place == len(ordered)] = 0
    found = ordered[place] == job[child] * (2 * _BY_NAME) + wanted if len(ordered) else np.zeros(0, bool)
    orphan = np.zeros(len(job), bool)
    orphan[child[~found]] = True
    waits = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(child[found], minlength=len(job)))])
    parent, child, upward = by_key[place[found]], child[found], (wanted >= own[child])[found]
    bad |= _circular(parent, child, job, upward)
    return _Graph(waits, parent, orphan, ~np.logical_or.reduceat(bad, rows.by_job.first[:-1]))


def _circular(parent: np.ndarray, child: np.ndarray, job: np.ndarray, upward: np.ndarray) -> np.ndarray:
    """(n,) bool: the row waits for itself in the end; possible only where an edge leads to a number no larger."""
    suspect = np.zeros(int(job[-1]) + 1, bool)
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


def _work(rows: _Rows, graph: _Graph, floor_s: float) -> tuple[np.ndarray, np.ndarray]:
    """(n,) float64 and bool: the work of each task, and that it ended before a parent did."""
    _, start, end, _, _ = rows.columns
    begin = start.copy()
    waiting = np.flatnonzero(np.diff(graph.waits))
    if len(waiting):
        begin[waiting] = np.maximum(begin[waiting], np.maximum.reduceat(end[graph.parent], graph.waits[:-1][waiting]))
    with np.errstate(invalid="ignore"):
        work = end - begin
        early = work < 0.0
        return np.where(work < floor_s, floor_s, work), early


def _every(rows: _Rows, graph: _Graph, work: np.ndarray, options: TraceOptions) -> JobArrays:
    """The jobs of all rows; those that are not plain hold anything."""
    by_job, (instances, _, _, cpu, memory) = rows.by_job, rows.columns
    if options.gpus_per_task is None:
        kind, kinds = kinds_of_rows(
            _plain_rows(rows), (cpu, memory), lambda cpu, gb: TaskKind(Demand(0.0, cpu / 100, gb))
        )
    else:
        kind, kinds = np.zeros(len(work), np.int32), (TaskKind(Task("", 0.0, gpus=options.gpus_per_task).demand),)
    base = np.repeat(by_job.first[:-1], np.diff(by_job.first))
    return JobArrays(
        ids=by_job.ids,
        arrival_s=by_job.time,
        first=by_job.first,
        name=rows.name,
        names=objects(rows.names),
        work=work,
        instances=np.where(are_counts(instances), instances, 1).astype(np.int64),
        kind=kind,
        kinds=kinds,
        waits=graph.waits,
        parent=(graph.parent - np.repeat(base, np.diff(graph.waits))).astype(np.int32),
    )
