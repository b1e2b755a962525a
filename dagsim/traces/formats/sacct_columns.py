"""The text of ``sacct -P`` read in columns (see ``columnar``): a row per job, and what alike rows ask for once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from math import inf, nan
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np

from dagsim.model import Job, Task
from dagsim.model.arithmetic import numbered
from dagsim.traces.columnar import Rows, combinations, gathered, told
from dagsim.traces.fields import Dirty
from dagsim.traces.gather import Gathered, pack
from dagsim.traces.options import TraceOptions
from dagsim.traces.report import ReadReport
from dagsim.traces.slurm import COLUMNS, delimiter_of, duration_s, moment_s, places_of
from dagsim.traces.source import Source
from dagsim.traces.text_columns import HEADER, TextTable, date_seconds, plain_lines, table_of
from dagsim.workload.arrays import JobArrays, Labels, TaskKind, objects, ranges

__all__ = ["sacct_arrays", "sacct_table"]

Template: TypeAlias = Callable[[list[str]], tuple[Task, str | None] | None]
"""Makes the task of a row, as if it had run for 10 s, and says the GPU type that it was measured on."""

_AT = {name: place for place, name in enumerate(COLUMNS)}
_MOMENTS = tuple([_AT[name] for name in ("Submit", "Eligible", "Start", "End")])
_SHAPE = ("State", "TimelimitRaw", "Timelimit", "NNodes", "NCPUS", "ReqTRES", "AllocTRES", "Restarts")
"""The columns that decide, with whether nodes were assigned, what a job asks for, and whether it is kept."""


def sacct_table(source: Source, delimiter: str | None) -> TextTable | None:
    """The columns of ``COLUMNS``, all as texts; nothing where the file is not plain."""
    mark = delimiter or delimiter_of(source) or "|"
    lines = plain_lines(source, HEADER, None, mark) if mark.isascii() and mark != " " else None
    if lines is None:
        return None
    at = places_of(lines.head.strip("\n").split(mark))
    if at is None:
        return None
    found = [None if place < 0 else place for place in at]

    def split(text: str) -> list[str]:
        fields = text.split(mark)
        return ["" if place < 0 else fields[place].strip() for place in at]

    try:
        numbers = _MOMENTS if [float(split(lines.text(0))[place]) for place in _MOMENTS] else ()
    except ValueError:
        numbers = ()
    skipped = (*numbers, _AT["JobIDRaw"]) if at[_AT["JobID"]] >= 0 else numbers
    return table_of(lines, found, numbers, [each for each in range(len(COLUMNS)) if each not in skipped], split, mark)


def sacct_arrays(
    table: TextTable,
    options: TraceOptions,
    report: ReadReport,
    most: int | None,
    order: Callable[[str], Any],
    template: Template,
    hosts: Callable[[str], tuple[str, ...]],
    by_rows: Callable[[Gathered], Job | None],
) -> JobArrays | None:
    """The first ``most`` jobs, or nothing if a row has no id or no ``Submit``.

    ``order`` sorts ids of jobs that were submitted at once; ``template`` makes the task of a row, with the GPU type
    that it was measured on, if nothing is to be said of it; ``hosts`` reads a list of nodes.
    """
    import pandas as pd

    lines = table.lines
    named = table.texts(_AT["JobID" if table.has(_AT["JobID"]) else "JobIDRaw"]).tolist()
    ids = [id.strip() if isinstance(id, str) else "" for id in named]
    steps = np.array(["." in id and "." in id.partition("[")[0] for id in ids], bool)
    row = np.flatnonzero(~steps)
    submit, eligible, start, end = (_moments(table.texts(place)[row], options.zone()) for place in _MOMENTS)
    if not all(ids) or not len(row) or not (submit >= 0).all():
        return None
    whole = np.array(["+" not in id for id in ids], bool)[row]
    own = objects([id.partition("+")[0] for id in ids])[row]
    rows = _in_order(gathered(*pd.factorize(own), submit), order)
    report.rows = len(steps)
    if len(row) < len(steps):
        report.skip("of steps", len(steps) - len(row))
    ran_s, known = _ran(table, row, start, end)
    kinds = _Kinds(table, row, template)
    plain = whole & known & kinds.known & (start >= 0) & ~np.isneginf(eligible)
    first = rows.line[rows.first[:-1]]
    work = options.all_on_reference(ran_s, kinds.measured_on, kinds.place)
    arrival, eligible_s = submit[first], np.where(np.isnan(eligible), submit, eligible)[first]
    labels = ("User", "Account", "Partition", "QOS", "NodeList")
    words = {name: table.words(_AT[name]).chosen(row[first]).mapped(str.strip) for name in labels}
    words["Partition"] = words["Partition"].mapped(lambda text: text.partition(",")[0])
    nodes = words["NodeList"].mapped(hosts)
    every = JobArrays.of_single_tasks(
        rows.ids,
        arrival,
        "job",
        work=np.where(work < options.floor_s, options.floor_s, work)[first],
        instances=kinds.instances[kinds.place][first],
        kind=kinds.kind[kinds.place][first],
        kinds=kinds.kinds,
        estimate=kinds.estimate[kinds.place][first],
        tenant=_tenant(words, options.tenant),
        user=words["User"],
        account=words["Account"],
        partition=words["Partition"],
        qos=words["QOS"],
        observed_start_s=np.maximum(arrival, start[first]),
        eligible_s=np.maximum(arrival, eligible_s),
        observed_nodes=nodes,
    )
    plain_job = plain[first] & (np.diff(rows.first) == 1)
    made = 0

    def make(number: int, members: list[int]) -> Job | None:
        nonlocal made
        texts = [pack(lines.number(at), table.fields(at)) for at in row[members].tolist()]
        job = by_rows(Gathered(float(rows.time[number]), 0, rows.ids[number], texts))
        made += job is not None
        return job

    arrays = told(every, np.arange(len(every)), rows, plain_job, (), lines, report, most, make)
    report.kept += len(arrays) - made  # the rows of the others were counted at their turn
    return arrays


class _Kinds:
    """The demands of rows, one for all that are alike."""

    def __init__(self, table: TextTable, row: np.ndarray, template: Template) -> None:
        nodes = table.words(_AT["NodeList"])
        nowhere = np.array([text.strip().lower() == "none assigned" for text in nodes.words])[nodes.place[row]]
        self.place, firsts = combinations([*[table.words(_AT[name]).place[row] for name in _SHAPE], nowhere])
        """(n,) int64: places in the others."""
        made = [template(table.fields(at)) for at in row[firsts].tolist()]
        self.known = np.array([each is not None for each in made])[self.place]
        """(n,) bool: nothing is to be said of the row's demand, state and limit."""
        tasks, self.measured_on = zip(*[each or (Task("job", 0.0), None) for each in made], strict=True)
        self.instances = np.array([task.instances for task in tasks], np.int64)
        self.estimate = np.array([nan if task.estimate is None else task.estimate for task in tasks], np.float64)
        self.kind, self.kinds = numbered([TaskKind(task.demand, task.gang) for task in tasks])


def _moments(texts: np.ndarray, zone: ZoneInfo | None) -> np.ndarray:
    """(n,) float64: seconds since 1970, NaN where nothing is set, ``-inf`` where it is no time."""
    try:
        found = texts.astype(np.float64)  # NaN where blank
        return np.where(np.isnan(found) | ((found >= 0) & (found < inf)), found, -inf)
    except ValueError:
        found = date_seconds(texts)
    if zone is not None:
        minutes, place = np.unique(found[~np.isnan(found)] // 60, return_inverse=True)
        ahead = [datetime.fromtimestamp(60 * each, UTC).replace(tzinfo=zone).utcoffset() for each in minutes.tolist()]
        found[~np.isnan(found)] -= np.array([each.total_seconds() for each in ahead if each is not None])[place]
        found[found < 0] = -inf
    for row in np.flatnonzero(np.isnan(found)).tolist():
        text = texts[row].strip() if isinstance(texts[row], str) else ""
        found[row] = _or_nan(lambda text: moment_s(text, "", zone), text)
    return found


def _or_nan(read: Callable[[str], float | None], text: str) -> float:
    """The number that is read, NaN where nothing is set, ``-inf`` where it cannot be."""
    try:
        value = read(text)
    except Dirty:
        return -inf
    return nan if value is None else value


def _ran(table: TextTable, row: np.ndarray, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n,) float64 and bool: for how long it ran, without suspensions, and that nothing is to be said of that."""

    def lasted(name: str) -> np.ndarray:
        labels = table.words(_AT[name])
        each = [_or_nan(lambda text: duration_s(text.strip(), name), text) for text in labels.words]
        found: np.ndarray = np.array(each, np.float64)[labels.place[row]]
        return found

    suspended, raw, elapsed = lasted("Suspended"), lasted("ElapsedRaw"), lasted("Elapsed")
    known = (suspended != -inf) & (raw != -inf) & ~(np.isnan(raw) & (elapsed == -inf)) & ~np.isneginf(end)
    elapsed = np.where(np.isnan(raw), elapsed, raw)
    with np.errstate(invalid="ignore"):
        between = end - start - np.where(np.isnan(suspended), 0.0, suspended)
        known &= ~(np.abs(np.abs(between - elapsed) - 3600.0) < 1)
        ran_s = np.where(np.isnan(elapsed), between, elapsed)
        known &= (ran_s >= 0) & (ran_s < inf)
    return ran_s, known


def _in_order(rows: Rows, order: Callable[[str], Any]) -> Rows:
    """The same rows, with jobs of one time in ``order``."""
    ids = rows.ids.tolist()
    if all(id.isascii() and id.isdecimal() and len(id) < 19 and (id[0] != "0" or id == "0") for id in ids):
        jobs = np.lexsort((np.array(ids, object).astype(np.int64), rows.time))
    else:
        jobs, tied = np.arange(len(ids)), np.flatnonzero(np.diff(rows.time) == 0)
        begins = tied[np.diff(tied, prepend=-2) > 1]
        ends = np.searchsorted(rows.time, rows.time[begins], "right")
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            jobs[begin:end] = sorted(range(begin, end), key=lambda job: order(ids[job]))
    sizes = np.diff(rows.first)[jobs]
    line = rows.line[ranges(rows.first[jobs], sizes)]
    return Rows(line, np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]), rows.time[jobs], rows.ids[jobs])


def _tenant(words: dict[str, Labels], by: str | None) -> Labels:
    """The user, account or partition; the account, else the user, if left out."""
    if by is not None:
        return words[by.capitalize()]
    account, user = words["Account"], words["User"]
    nameless = np.array([not word for word in account.words])[account.place]
    place = np.where(nameless, user.place + np.int32(len(account.words)), account.place)
    return Labels(place, (*account.words, *user.words)).mapped(str)
