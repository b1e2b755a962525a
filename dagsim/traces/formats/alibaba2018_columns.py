"""``batch_task.csv`` read in columns: the same jobs and the same report as row by row, in a tenth of the time.

pandas parses; everything else is done for all rows at once. A job of which anything must be said (a row that is dropped
or tolerated, a parent that does not exist) is left to the reader of rows, at its turn. A file that is not nine plain
columns is left to it as a whole.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

import numpy as np

from dagsim.model import Demand, Job, Task
from dagsim.traces.gather import Gathered
from dagsim.traces.options import TraceOptions
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source
from dagsim.workload.arrays import JobArrays, TaskKind, ranges, renumbered
from dagsim.workload.records import MOST_INSTANCES

__all__ = ["EARLY_END", "NO_PARENT", "read_columns"]

EARLY_END = "tasks that end before a parent does (work 0)"
NO_PARENT = "jobs with a parent that does not exist (taken as done)"

_WIDTH = 9
_NAME, _INSTANCES, _JOB, _KIND, _STATUS, _START, _END, _CPU, _MEMORY = range(_WIDTH)
_BY_NAME = np.int64(1) << 31
"""Keys of tasks without a number begin here."""


class _Parsed(NamedTuple):
    """The file as a table."""

    table: Any  # a pandas DataFrame
    job: np.ndarray  # (n,) int64: place in ids
    ids: np.ndarray  # object: str, by first appearance


class _Rows(NamedTuple):
    """The rows, job by job in order of arrival."""

    line: np.ndarray  # (n,) int64: place in the file
    first: np.ndarray  # (J + 1,) int64
    time: np.ndarray  # (J,) float64: arrival
    ids: np.ndarray  # (J,) object
    name: np.ndarray  # (n,) int32
    names: np.ndarray  # object
    columns: tuple[np.ndarray, ...]  # float64: instances, start, end, cpu, memory
    terminated: np.ndarray  # (n,) bool

    @property
    def job(self) -> np.ndarray:
        """(n,) int64."""
        return np.repeat(np.arange(len(self.ids)), np.diff(self.first))


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
    if len(source.files) != 1:
        return None
    with source.open_binary() as stream:
        data = stream.read()
    parsed = _parsed(data)
    if parsed is None:
        return None
    rows = _gathered(parsed)
    del parsed
    report.rows = len(rows.line)
    graph = _graph(rows, spelled)
    plain = _plain_rows(rows, options)
    plain_job = np.logical_and.reduceat(plain, rows.first[:-1]) & graph.whole
    work, early = _work(rows, graph, options.floor_s)
    told = np.flatnonzero(~plain_job | np.logical_or.reduceat(early | graph.orphan, rows.first[:-1]))
    made = _tell(rows, data, source, report, most, told, plain_job, (early, graph.orphan), by_rows)
    return _arrays(rows, graph, work, plain_job, made, options, report, most)


def _parsed(data: bytes) -> _Parsed | None:
    """The nine columns as pandas reads them; nothing if a line is no row of the table."""
    import pandas as pd

    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    odd = b"\r" in data or b"\0" in data or b"\n\n" in data or data.startswith((b"\n", b"\xef\xbb\xbf", b"task_name"))
    if odd or data.count(b",") != (_WIDTH - 1) * lines:
        return None
    # A category would sort the ids of all jobs: twice the time of everything else.
    texts: Any = {_NAME: "category", _JOB: object, _KIND: "category", _STATUS: "category"}
    try:
        table: Any = pd.read_csv(
            io.BytesIO(data),
            header=None,
            dtype=texts,
            quoting=3,
            na_values=[""],
            keep_default_na=False,
            engine="c",
            low_memory=False,
        )
    except (ValueError, OverflowError):  # too many fields in a line, or no UTF-8
        return None
    if table.shape[1] != _WIDTH:
        return None
    numbers = all(table[column].dtype.kind in "if" for column in (_INSTANCES, _START, _END, _CPU, _MEMORY))
    job, ids = pd.factorize(table[_JOB])
    named = len(table) == lines and job.min() >= 0 and table[_NAME].cat.codes.min() >= 0
    return _Parsed(table, job, np.asarray(ids, object)) if numbers and named else None


def _gathered(parsed: _Parsed) -> _Rows:
    """The rows by job, jobs by their earliest start, then by first appearance."""
    table, code = parsed.table, parsed.job
    statuses = table[_STATUS].cat
    known = list(statuses.categories)
    ended = known.index("Terminated") if "Terminated" in known else -2
    terminated = statuses.codes.to_numpy() == ended
    columns = [table[column].to_numpy(np.float64) for column in (_INSTANCES, _START, _END, _CPU, _MEMORY)]
    start = columns[1]
    with np.errstate(invalid="ignore"):
        time = np.where(terminated & (start >= 0), start, np.inf)
    by_job = np.argsort(code, kind="stable")
    begins = np.flatnonzero(np.diff(code[by_job], prepend=-1))
    earliest, appears = np.minimum.reduceat(time[by_job], begins), by_job[begins]
    order = np.lexsort((appears, earliest))
    sizes = np.diff(begins, append=len(code))[order]
    line = by_job[ranges(begins[order], sizes)]
    return _Rows(
        line,
        np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]),
        earliest[order],
        parsed.ids[code[appears[order]]],
        table[_NAME].cat.codes.to_numpy()[line].astype(np.int32),
        np.asarray(table[_NAME].cat.categories, object),
        tuple([column[line] for column in columns]),
        terminated[line],
    )


def _plain_rows(rows: _Rows, options: TraceOptions) -> np.ndarray:
    """(n,) bool: nothing is to be said of the row itself."""
    instances, start, end, cpu, memory = rows.columns
    with np.errstate(invalid="ignore"):
        counted = np.isnan(instances) | (
            (instances >= 1) & (instances <= MOST_INSTANCES) & (instances == np.floor(instances))
        )
        times = (start >= 0) & (end >= start) & (end < np.inf)
        asked = (cpu >= 0) & (cpu < np.inf) & (memory >= 0) & (memory <= 100)
    plain: np.ndarray = rows.terminated & counted & times & asked
    return plain


def _graph(rows: _Rows, spelled: Callable[[str], tuple[int | None, tuple[int, ...], str]]) -> _Graph:
    """Parents by the numbers in the names."""
    read = [(None, (), "") if name.startswith("task_") else spelled(name) for name in rows.names.tolist()]
    number = np.array([_BY_NAME + place if own is None else own for place, (own, _, _) in enumerate(read)], np.int64)
    clean = np.array([not ignored for _, _, ignored in read], bool)
    degree = np.array([len(parents) for _, parents, _ in read], np.int64)
    listed = np.array([parent for _, parents, _ in read for parent in parents], np.int64)
    begins = np.cumsum(degree) - degree
    job, own = rows.job, number[rows.name]
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
    return _Graph(waits, parent, orphan, ~np.logical_or.reduceat(bad, rows.first[:-1]))


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


def _tell(
    rows: _Rows,
    data: bytes,
    source: Source,
    report: ReadReport,
    most: int | None,
    told: np.ndarray,
    plain: np.ndarray,
    notes: tuple[np.ndarray, np.ndarray],
    by_rows: Callable[[Gathered], Job | None],
) -> dict[int, Job]:
    """Say what is to be said of the jobs ``told``, in order; returns those that are made of their rows."""
    breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) if len(told) else np.zeros(0, np.int64)
    before = np.cumsum(plain) - plain
    made: dict[int, Job] = {}
    for number in told.tolist():
        if most is not None and before[number] + len(made) >= most:
            break
        members = range(rows.first[number], rows.first[number + 1])
        if plain[number]:
            early, orphans = (members.start + np.flatnonzero(at[members.start : members.stop]) for at in notes)
            for row in early.tolist():
                report.note(EARLY_END, source.where(int(rows.line[row]) + 1))
            for row in orphans[:1].tolist():
                report.note(NO_PARENT, source.where(int(rows.line[row]) + 1))
            continue
        texts = [_text(data, breaks, int(rows.line[row])) for row in members]
        job = by_rows(Gathered(float(rows.time[number]), 0, rows.ids[number], texts))
        if job is not None:
            made[number] = job
    return made


def _text(data: bytes, breaks: np.ndarray, line: int) -> str:
    """A row as the reader of rows hands it on: its number and the line."""
    begin = int(breaks[line - 1]) + 1 if line else 0
    end = int(breaks[line]) if line < len(breaks) else len(data)
    return f"{line + 1},{data[begin:end].decode()}"


def _arrays(
    rows: _Rows,
    graph: _Graph,
    work: np.ndarray,
    plain: np.ndarray,
    made: dict[int, Job],
    options: TraceOptions,
    report: ReadReport,
    most: int | None,
) -> JobArrays:
    """The jobs in plain rows, and in their midst those that were made one by one."""
    kept = plain.copy()
    kept[list(made)] = True
    if most is not None:
        kept &= np.cumsum(kept) <= most
    instances, _, _, cpu, memory = rows.columns
    kind, kinds = _kinds(cpu, memory, options)
    every = JobArrays(
        ids=rows.ids,
        arrival_s=rows.time,
        first=rows.first,
        name=rows.name,
        names=rows.names,
        work=work,
        instances=np.where(np.isnan(instances), 1, instances).astype(np.int64),
        kind=kind,
        kinds=kinds,
        waits=graph.waits,
        parent=(graph.parent - np.repeat(rows.first[:-1][rows.job], np.diff(graph.waits))).astype(np.int32),
    )
    places = np.flatnonzero(kept & plain)
    arrays = every.chosen(places)
    others = [number for number in made if kept[number]]
    if others:
        arrays = arrays.joined(JobArrays.of([made[number] for number in others]))
        arrays = arrays.chosen(np.argsort(np.concatenate([places, others]), kind="stable"))
    elif len(places) == len(every):
        kind, kinds = renumbered(every.kind, every.kinds)
        arrays = replace(every, kind=kind, kinds=kinds)
    report.kept += arrays.tasks - sum(len(made[number].graph.tasks) for number in others)  # counted at their turn
    return arrays


def _kinds(cpu: np.ndarray, memory: np.ndarray, options: TraceOptions) -> tuple[np.ndarray, tuple[TaskKind, ...]]:
    """The kinds of all rows, each once."""
    import pandas as pd

    if options.gpus_per_task is not None:
        return np.zeros(len(cpu), np.int32), (TaskKind(Task("", 0.0, gpus=options.gpus_per_task).demand),)
    cpu_code, cpus = pd.factorize(cpu, use_na_sentinel=False)
    memory_code, memories = pd.factorize(memory, use_na_sentinel=False)
    asked, pairs = pd.factorize(cpu_code * len(memories) + memory_code)
    kinds = []
    for pair in pairs.tolist():
        cores, gb = float(cpus[pair // len(memories)]), float(memories[pair % len(memories)])
        usable = 0 <= cores < inf and 0 <= gb < inf  # others are of rows that are not plain
        kinds.append(TaskKind(Demand(0.0, cores / 100, gb) if usable else Demand(0.0)))
    return asked.astype(np.int32), tuple(kinds)
