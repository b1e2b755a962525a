"""The tables of PAI 2020 read in columns (see ``columnar``): jobs, tasks, and what was asked for, joined at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

import numpy as np

from dagsim.model import Job, Task
from dagsim.traces.columnar import Rows, gathered, told
from dagsim.traces.fields import are_counts
from dagsim.traces.gather import Gathered, pack
from dagsim.traces.options import TraceOptions
from dagsim.traces.report import ReadReport
from dagsim.traces.rows import kinds_of_rows
from dagsim.traces.source import Source, picker
from dagsim.traces.text_columns import TextTable, plain_lines, table_of
from dagsim.workload.arrays import JobArrays, TaskKind, bounds, objects

__all__ = ["Tables", "Words", "read_pai_tables", "read_table"]

_NO_HEADER = re.compile(b"")
_JOB, _NAME, _INSTANCES, _STATUS, _START, _END, _CPU, _MEMORY, _GPU, _TYPE = range(10)
"""Columns of the task table."""
_INST, _USER = 1, 2
"""Columns of the job table beside its name and, as in the task table, its start."""
_READ = {
    "task": ((_INSTANCES, _START, _END, _CPU, _MEMORY, _GPU), (_JOB, _NAME, _STATUS, _TYPE)),
    "job": ((_START,), (_JOB, _INST, _USER)),
    "instance": ((), (_JOB,)),
    "group_tag": ((), (0, 2)),
}
"""Places of the numbers and of the texts that are read."""


class Tables(NamedTuple):
    """The tables, in the order of their columns; ``job``, ``instance`` and ``tags`` may be missing, ``tags`` are only
    there beside ``job``."""

    task: TextTable
    job: TextTable | None
    instance: TextTable | None
    tags: TextTable | None


class Words(NamedTuple):
    """The meaning of the format's texts."""

    ended: Sequence[str]
    """Statuses of tasks that are kept."""
    types: dict[str, str]
    """The catalogue's names of GPU types."""
    uneven: str
    """The note on more than one GPU that are no whole number."""


def read_table(source: Source, columns: Sequence[str], names: Sequence[str], table: str) -> TextTable | None:
    """The columns of one ``table``, headerless, whose fields have these ``names``; nothing if it is not plain."""
    names = [name.lower() for name in names or columns]
    if not set(columns) <= set(names):
        return None
    lines = plain_lines(source, _NO_HEADER, len(names))
    if lines is None or set(columns) <= {name.strip().lower() for name in lines.text(0).split(",")}:
        return None
    pick = picker(names, columns)
    places, (numbers, texts) = [names.index(name) for name in columns], _READ[table]
    return table_of(lines, places, numbers, texts, lambda text: list(pick(text.split(","))))


def read_pai_tables(
    tables: Tables,
    options: TraceOptions,
    report: ReadReport,
    most: int | None,
    words: Words,
    by_rows: Callable[[Gathered], Job | None],
) -> JobArrays | None:
    """The first ``most`` jobs, or nothing if a name is missing, or two jobs have one ``inst_id``."""
    import pandas as pd

    task, job = tables.task, tables.job
    count = len(task.lines.ends)
    ids, time = task.texts(_JOB), np.full(count, inf)
    if job is None:
        time = _known(task.numbers(_START))
    else:
        if tables.tags is not None and pd.Series(job.texts(_INST)).dropna().duplicated().any():
            return None
        ids, time = np.concatenate([ids, job.texts(_JOB)]), np.concatenate([time, _known(job.numbers(_START))])
    if pd.isna(ids).any():
        return None
    rows = gathered(*pd.factorize(ids), time)
    _count(tables, report)
    is_task = rows.line < count
    sizes = np.add.reduceat(is_task, rows.first[:-1], dtype=np.int64)
    submitted = np.diff(rows.first) - sizes == (0 if job is None else 1)
    own = rows.line[rows.first[1:] - 1] - count  # a job's row in the job table, which stands behind those of its tasks
    last = np.where(submitted, np.maximum(own, 0), 0)
    asked, types = _asked(tables)
    every, fine, uneven = _every(
        task, rows, is_task, sizes, None if asked is None else asked[last], types, words, options
    )
    if job is not None:
        every = replace(every, tenant=job.words(_USER).chosen(last))
    whole = np.bincount(rows.job[is_task][~fine], minlength=len(sizes)) == 0
    plain = whole & submitted & (sizes > 0) & (rows.time < inf)
    noted = np.zeros(len(is_task), bool)
    noted[is_task] = uneven
    instances = _instances(tables.instance, rows.ids[~plain])

    def make(number: int, members: list[int]) -> Job | None:
        texts = [pack(task.lines.number(row), ["task", *task.fields(row)]) for row in members if row < count]
        for row in [row - count for row in members if row >= count]:
            assert job is not None
            kind = "" if asked is None else types[asked[row]]
            texts.append(pack(job.lines.number(row), ["job", *job.fields(row), kind]))
        id = rows.ids[number]
        return by_rows(Gathered(float(rows.time[number]), 0, id, texts + instances.get(id, [])))

    places = np.arange(len(sizes))
    arrays = told(every, places, rows, plain, ((words.uneven, noted),), task.lines, report, most, make)
    report.kept = arrays.tasks + (0 if job is None else len(arrays))
    return arrays


def _count(tables: Tables, report: ReadReport) -> None:
    """Count the rows of all tables; those of two are only joined."""
    for table, reason in (
        (tables.task, ""),
        (tables.job, ""),
        (tables.tags, "joined from the group tag table"),
        (tables.instance, "joined from the instance table"),
    ):
        if table is not None:
            report.rows += len(table.lines.ends)
            if reason:
                report.skip(reason, len(table.lines.ends))


def _known(times: np.ndarray) -> np.ndarray:
    """(n,) float64: ``inf`` for 0 and what is no time, which both mean unknown."""
    return np.where((times > 0) & (times < inf), times, inf)


def _asked(tables: Tables) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Per row of the job table the place of the GPU type that it asks for, and these types; nothing without tags."""
    import pandas as pd

    if tables.tags is None or tables.job is None:
        return None, ()
    spec, specs = tables.tags.words(2)
    names = tables.tags.texts(0)
    these = np.flatnonzero((spec < len(specs) - 1) & ~pd.isna(names))[::-1]  # of several the first stays
    jobs = tables.job.texts(_INST)
    code, ids = pd.factorize(np.concatenate([jobs, names[these]]))
    of_id = np.full(len(ids) + 1, len(specs) - 1)
    of_id[code[len(jobs) :]] = spec[these]
    of_id[-1] = len(specs) - 1  # of rows without an id
    return of_id[code[: len(jobs)]], specs


def _every(
    task: TextTable,
    rows: Rows,
    is_task: np.ndarray,
    sizes: np.ndarray,
    asked: np.ndarray | None,
    asked_types: Sequence[str],
    words: Words,
    options: TraceOptions,
) -> tuple[JobArrays, np.ndarray, np.ndarray]:
    """All jobs; per task that nothing else is to be said of it than that it is uneven; and that it is."""
    import pandas as pd

    line, job = rows.line[is_task], rows.job[is_task]
    start, end = (_known(task.numbers(column)[line]) for column in (_START, _END))
    instances, gpus, cpus, memory = (
        task.numbers(column, blank)[line] for column, blank in ((_INSTANCES, 1), (_GPU, 0), (_CPU, 0), (_MEMORY, 0))
    )
    gpus, cpus = gpus / 100, cpus / 100
    uneven = (gpus > 1) & (gpus < inf) & (gpus != np.floor(gpus))
    gpus = np.where(uneven, np.ceil(gpus), gpus)
    status, statuses = task.words(_STATUS)
    name, names = task.words(_NAME)
    fine = np.array([each in words.ended for each in statuses])[status[line]]
    fine &= (start < inf) & (end < inf) & (end >= start) & are_counts(instances)
    for amount in (gpus, cpus, memory):
        fine &= (amount >= 0) & (amount < inf)
    fine &= ~pd.Series(job * np.int64(len(names)) + name[line]).duplicated(keep=False).to_numpy()
    assigned = task.words(_TYPE)
    measured_on = [words.types.get(each, each) for each in assigned.words]
    work = np.zeros(len(line))
    work[fine] = end[fine] - start[fine]
    work = options.all_on_reference(work, measured_on, np.where(gpus > 0, assigned.place[line], len(measured_on) - 1))
    allowed, of = (assigned.place[line], assigned.words) if asked is None else (asked[job], asked_types)
    chosen = [None if each in ("", "CPU") else (words.types.get(each, each),) for each in of]
    kind, kinds = kinds_of_rows(
        fine,
        (gpus, cpus, memory, instances > 1, np.where(gpus > 0, allowed, len(of) - 1)),
        lambda gpus, cpus, memory, gang, place: TaskKind(
            Task("", 0.0, 1, gang, gpus, cpus, memory, chosen[place]).demand, gang
        ),
    )
    every = JobArrays(
        ids=rows.ids,
        arrival_s=rows.time,
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


def _instances(table: TextTable | None, wanted: np.ndarray) -> dict[str, list[str]]:
    """The rows of the instance table of jobs with these ids, as texts."""
    found: dict[str, list[str]] = {}
    if table is not None and len(wanted):
        ids = table.texts(0)
        known = set(wanted.tolist())
        for row in [row for row, id in enumerate(ids.tolist()) if id in known]:
            text = pack(table.lines.number(row), ["instance", *table.fields(row)])
            found.setdefault(ids[row], []).append(text)
    return found
