"""Exports of Google ClusterData2019 that do not contain the history of tasks: the Kaggle sample,
requests, and machine shapes.

- Kaggle's ``borg_traces_data.csv`` joins a random event of a random task with a random window of
  its usage: 34 columns with a header, demands as Python dictionaries, line ends inside quotes.
- Requests (``*_user_requests.csv``): ``time, user, collection_id, instance_index, cpus, ram,
  collection_type``.
- Shapes (``*_host_resource.csv``): ``cpus, ram, machine_count``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from math import inf
from typing import Any

import numpy as np

from dagsim.families.formats.google import (
    AFTER_US,
    impossible_tasks,
    jobs_of_tasks,
    kinds_of_tasks,
    requested_amount,
    seconds,
)
from dagsim.model import Cluster, Node
from dagsim.traces.chunks import read_rows, read_tables
from dagsim.traces.fields import Dirty, FaultsAt, count, finite_number
from dagsim.traces.grouping import in_parts, repeated, rows_by_job
from dagsim.traces.reader import JobBlock
from dagsim.traces.report import ImpossibleTimes, ReadReport, RepeatedId
from dagsim.traces.rows import Checks, JobBatch, job_blocks
from dagsim.traces.source import Source
from dagsim.traces.text_forms import Form, csv_form
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table
from dagsim.workload.array_tools import combinations, optional, renumbered
from dagsim.workload.arrays import Labels

_COMMON = ("time", "collection_id", "instance_index", "collection_type", "user")
_KAGGLE = (*_COMMON, "resource_request", "priority", "alloc_collection_id", "start_time", "end_time")
_TIME, _COLLECTION_ID, _INSTANCE, _KIND, _USER = range(len(_COMMON))
_REQUESTED, _PRIORITY, _ALLOC, _START, _END = range(len(_COMMON), len(_KAGGLE))
_KAGGLE_ONLY = {"instance_events_type", "collections_events_type", "start_time", "end_time"}
_REQUESTS = (*_COMMON, "cpus", "ram")
_CPUS, _RAM = range(len(_COMMON), len(_REQUESTS))
_TEXTS = (_COLLECTION_ID, _INSTANCE, _KIND, _USER)
_SAMPLE_FORM = csv_form(
    _KAGGLE, numbers=(_TIME, _START, _END), texts=(*_TEXTS, _REQUESTED, _PRIORITY, _ALLOC), header=True
)
_REQUESTS_FORM = csv_form(_REQUESTS, numbers=(_TIME, _CPUS, _RAM), texts=_TEXTS, header=True)
_LISTED_SETS = ("1", "1.0", "ALLOC_SET")
_SHAPES = ("cpus", "ram", "machine_count")
_MOST_MACHINES = 1_000_000


def recognises_google_list(source: Source) -> bool:
    """Return True if the source is the Kaggle sample or a list of requests."""
    names = _names(source)
    return not source.path.is_dir() and (names >= _KAGGLE_ONLY or (names >= set(_REQUESTS) and "type" not in names))


def list_work_text(source: Source) -> str:
    """Describe how the work of a task is measured. The text is empty for any other source."""
    if not recognises_google_list(source):
        return ""
    if _names(source) >= _KAGGLE_ONLY:
        return "the time covered by the usage windows of the task in the sample: a lower bound of its life"
    return "0 (or floor_s): requests have no end"


def list_blocks(source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
    """Yield the jobs in a list: one per collection, with the tasks that the list contains."""
    is_sample = _names(source) >= _KAGGLE_ONLY
    parts = in_parts(partial(_listed, source, _SAMPLE_FORM if is_sample else _REQUESTS_FORM), _keys, report)
    return job_blocks((_batch(table, options, is_sample) for table in parts), report, most)


def shapes_beside(source: Source) -> Cluster | None:
    """Return the cluster from the list of shapes next to ``source`` for the same cell, or from the
    only list of shapes there.
    """
    cell = source.name.partition("_user_requests")[0]
    tables = source.beside(f"{cell}_host_resource.csv*")
    if len(tables.files) != 1:
        tables = source.beside("*host_resource.csv*")
    if len(tables.files) != 1:
        return None
    nodes = []
    for place, (cpus, ram, machine_count) in read_rows(tables, ReadReport(strict=True), _SHAPES, header=True):
        with FaultsAt(tables.where(place), "a machine shape"):
            size = finite_number(cpus, "cpus"), finite_number(ram, "ram")
            if (many := count(machine_count, "machine_count", 0)) > _MOST_MACHINES:
                raise Dirty(f"with more than {_MOST_MACHINES:,} machines")
            for nth in range(many):
                nodes.append(Node(f"{cpus}-{ram}-{nth}", None, 0, *size))
    with FaultsAt(f"{tables.files[0]}:1"):
        return Cluster(tuple(nodes), "google2019")


def band(priority: str) -> float:
    """Return the priority band: 0 for free, 1 for best-effort batch, 2 for mid, 3 for production, 4
    for monitoring."""
    try:
        value = float(priority or 0)
    except ValueError:
        return 0.0
    return float(sum(value >= least for least in (100, 116, 120, 360)))


def _listed(source: Source, form: Form, report: ReadReport) -> Iterator[Table]:
    """Yield the rows of a list that belong to a collection."""
    for table in read_tables(source, form, report):
        checks = Checks(table)
        checks.skip(np.isin(table.texts(_KIND), _LISTED_SETS), "of alloc sets", report)
        checks.drop(table.texts(_COLLECTION_ID) == "", "without collection_id")
        checks.findings.tell(report, table, np.arange(len(table)), len(table))
        yield table.chosen(np.flatnonzero(checks.usable))


def _keys(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the collection of each row, and its time in seconds."""
    time_us = table.numbers(_TIME)
    return table.texts(_COLLECTION_ID), seconds(np.where(np.isfinite(time_us), time_us, inf))


def _batch(table: Table, options: TraceOptions, is_sample: bool) -> JobBatch:
    """Convert a list to jobs. If a task in the sample has several rows, these are separate usage
    windows.
    """
    checks, groups, names = Checks(table), rows_by_job(*_keys(table)), table.words(_INSTANCE)
    job, count = groups.job_of_row(), len(groups.ids)
    time_us = checks.number(_TIME, "time")
    checks.drop(~((time_us >= 0) & (time_us < AFTER_US)), "with a time outside the trace")
    checks.drop(np.array([not word.strip() for word in names.words])[names.place], "without instance_index")
    if is_sample:
        amounts = _requests(checks)
        start, end = checks.number(_START, "start_time"), checks.number(_END, "end_time")
        checks.drop(end < start, ImpossibleTimes("with an end before the start"))
        inside = table.words(_ALLOC)
        checks.note(
            np.array([word not in ("", "0", "0.0") for word in inside.words])[inside.place],
            "tasks inside alloc sets (treated as ordinary tasks)",
        )
    else:
        amounts = [checks.number(column, "request", 0) for column in (_CPUS, _RAM)]
        again = checks.usable.copy()
        again[again] = repeated(job[again] * np.int64(len(table)) + names.place[again])
        checks.drop(again, RepeatedId("with the same instance as another row"))

    rows = groups.row[checks.usable[groups.row]]  # rows grouped by job, each group in the order of the file
    number, firsts = combinations((job[rows], names.place[rows]))
    lead, sizes = rows[firsts], np.bincount(number, minlength=len(firsts))
    covered_s = _covered_s(number, start[rows], end[rows], len(lead)) if is_sample else np.zeros(len(lead))
    work = np.where(covered_s < options.floor_s, options.floor_s, covered_s)
    kind, kinds = kinds_of_tasks(np.ones(len(lead), bool), [column[lead] for column in amounts], options)
    errors = impossible_tasks(np.ones(len(lead), bool), table.texts(_INSTANCE)[lead], work, kind, kinds)
    wrong = np.array(list(errors), np.int64)
    details = {int(lead[task]): text for task, text in errors.items()}
    checks.findings.drop(lead[wrong], "that describe an impossible job", stage=1, counts=sizes[wrong], details=details)
    tasks = np.delete(np.arange(len(lead)), wrong)
    kept_rows = np.bincount(job[lead[tasks]], sizes[tasks], count).astype(np.int64)
    last = np.zeros(count, np.int64)
    last[job[rows]] = rows  # later rows overwrite earlier ones, so this is the last usable row of each job
    columns: dict[str, Any] = {"tenant": table.words(_USER).chosen(last)}
    if is_sample:
        priority = table.words(_PRIORITY).chosen(last)
        columns["priority"] = optional(np.array([band(word) for word in priority.words])[priority.place], 0.0)
    every = jobs_of_tasks(
        groups, job[lead[tasks]], names.chosen(lead[tasks]), work[tasks], *renumbered(kind[tasks], kinds), **columns
    )
    return JobBatch(table, every, kept_rows > 0, kept_rows, job, checks.findings)


def _requests(checks: Checks) -> list[np.ndarray]:
    """Return the CPUs and the memory that each row of the Kaggle sample requests. The sample writes
    requests as Python dictionaries."""
    requests, amounts = checks.table.words(_REQUESTED), []
    for name in ("cpus", "memory"):
        texts = [re.search(rf"'{name}': *([^,}}]*)", word) for word in requests.words]
        stated = ["" if match is None or match[1] == "None" else match[1] for match in texts]
        values, reasons = zip(*[requested_amount(text, "request") for text in stated], strict=True)
        checks.drop_for(Labels(requests.place, reasons))
        amounts.append(np.array(values)[requests.place])
    return amounts


def _covered_s(task: np.ndarray, start: np.ndarray, end: np.ndarray, count: int) -> np.ndarray:
    """Return how long each of T tasks was covered by at least one of its windows, in seconds, (T,)
    float64. The windows are in microseconds."""
    order, by_end = np.lexsort((end, start, task)), np.lexsort((end, task))
    rank = np.empty(len(task), np.int64)
    rank[by_end] = np.arange(len(task))
    task, start = task[order], start[order]
    # ranks grow from task to task, so the running maximum stays within a task
    latest = end[by_end[np.maximum.accumulate(rank[order])]]
    reached = np.where(np.diff(task, prepend=-1) > 0, -inf, np.roll(latest, 1))
    covered: np.ndarray = np.bincount(task, np.maximum(0.0, end[order] - np.maximum(start, reached)), count) / 1e6
    return covered


def _names(source: Source) -> set[str]:
    return set(source.head(1)[0].split(","))
