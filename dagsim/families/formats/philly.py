"""Microsoft Philly 2017: the official ``cluster_job_log`` (JSON), and lists derived from it (CSV).

The log is one array of ``{status, vc, jobid, submitted_time, user, attempts: [{start_time,
end_time, detail: [{ip, gpus}]}]}``. A time is a local date and time without a time zone, ``null``
or ``None``. The log is read object by object into columns. The lists have the columns ``timestamp,
duration, num_gpus, gpu_time, cluster``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dagsim.errors import TraceError
from dagsim.model import Demand
from dagsim.traces.chunks import read_tables
from dagsim.traces.documents import values
from dagsim.traces.fields import Dirty, seconds_since_1970
from dagsim.traces.grouping import in_parts, rows_by_job
from dagsim.traces.reader import JobBlock, Reader
from dagsim.traces.report import ImpossibleTimes, ReadReport, RepeatedId
from dagsim.traces.rows import Checks, JobBatch, arrivals, dates, job_blocks, row_blocks, single_tasks
from dagsim.traces.source import NumberedRow, Source
from dagsim.traces.text_forms import csv_form
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table, tables_of
from dagsim.workload.array_tools import objects
from dagsim.workload.arrays import JobArrays, TaskKind

_LIST = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
_TIME, _DURATION, _GPUS, _GPU_TIME, _VC = range(len(_LIST))
_FORM = csv_form(_LIST, numbers=(_DURATION, _GPUS), texts=range(len(_LIST)), header=True)
_LOG = ("jobid", "submitted", "vc", "seconds", "gpus", "attempts", "unfinished", "fault")
"""Columns of the log."""
_ID, _SUBMITTED, _OWNER, _SECONDS, _FIRST_GPUS, _ATTEMPTS, _UNFINISHED, _FAULT = range(len(_LOG))
_NUMBERS = (_SUBMITTED, _SECONDS, _FIRST_GPUS, _ATTEMPTS, _UNFINISHED)
_NO_TIME = (None, "None", "")


class Philly(Reader):
    """Builds one gang per job, with one GPU per instance. The work of a job is the sum over its
    attempts, and its tenant is the virtual cluster.
    """

    name = "philly"
    summary = "Microsoft Philly 2017: cluster_job_log (JSON) and processed lists (CSV)"
    uses = frozenset({"floor_s"})

    def recognises(self, source: Source) -> bool:
        return _is_list(source) or (
            source.head(1)[0].lstrip()[:1] in ("[", "{")
            and any('"jobid"' in line or '"submitted_time"' in line for line in source.head(64))
        )

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        if not _is_list(source):
            again = (RepeatedId("with the same jobid as another job"),) * 2
            times = partial(arrivals, column=_SUBMITTED)
            return row_blocks(partial(_log, source), times, partial(_logged, options), report, most, again)
        parts = in_parts(partial(_rows, source), _keys, report)
        return job_blocks((_listed(table, options) for table in parts), report, most)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "work": "seconds on undisclosed GPU types" + ("" if _is_list(source) else ", all attempts together"),
            "gpus": "those of the first attempt, one instance each: a gang that may span nodes",
            "clock": (
                "local time without a zone: the two occurrences of the repeated hour on 2017-11-05 "
                "cannot be distinguished"
            ),
        }


def _is_list(source: Source) -> bool:
    return set(_LIST) <= {name.strip().lower() for name in source.head(1)[0].split(",")}


def _rows(source: Source, report: ReadReport) -> Iterator[Table]:
    """Yield the rows of a derived list that have a date."""
    for table in read_tables(source, _FORM, report):
        checks = Checks(table)
        checks.date(_TIME, "timestamp")
        checks.findings.tell(report, table, np.arange(len(table)), len(table))
        yield table.chosen(np.flatnonzero(checks.usable))


def _keys(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the text of each row, and its time. The text identifies the job, because lists contain
    no ids. Parquet files contain numbers, which are converted to text.
    """
    columns = [table.words_of.get(column, table.values.get(column)) for column in range(len(_LIST))]
    texts = zip(*[map(str, column.tolist()) for column in columns if column is not None], strict=True)
    return objects(map(",".join, texts)), dates(table, _TIME)


def _listed(table: Table, options: TraceOptions) -> JobBatch:
    """Build the jobs in a derived list, named after their lines. Rows with equal texts are separate
    jobs.
    """
    checks, groups = Checks(table), rows_by_job(*_keys(table))
    seconds = checks.number(_DURATION, "duration")
    checks.drop(seconds < 0, ImpossibleTimes("with a negative duration"))
    gpus = checks.count(_GPUS, "num_gpus")
    is_again = np.ones(len(table), bool)
    is_again[groups.row[groups.first[:-1]]] = False
    jobs = _gangs(checks, dates(table, _TIME), seconds, gpus, options, tenant=table.words(_VC))
    checks.impossible(jobs)
    checks.note(is_again, "rows that are identical to another (kept)")
    lines = [f"row {table.where(row).rpartition(':')[2]}" for row in groups.row.tolist()]
    turn = np.empty(len(table), np.int64)
    turn[groups.row] = np.arange(len(table))
    every = replace(jobs.chosen(groups.row), ids=objects(lines))
    return JobBatch(table, every, checks.usable[groups.row], np.ones(len(table), np.int64), turn, checks.findings)


def _log(source: Source, report: ReadReport) -> Iterator[Table]:
    return tables_of(source, len(_LOG), _entries(source, report), _NUMBERS)


def _entries(source: Source, report: ReadReport) -> Iterator[NumberedRow]:
    """Yield the fields ``_LOG`` of every entry with an id and a time."""
    if not "".join(source.head()).lstrip().startswith("["):
        raise TraceError(f"{source.files[0]}:1: not a cluster_job_log, which must be a JSON array")
    for number, entry in values(source, ""):
        report.rows += 1
        with report.dropping(partial(source.where, number)):
            if not isinstance(entry, dict):
                raise Dirty("that are not objects")
            id = entry.get("jobid")
            if not isinstance(id, str) or not id:
                raise Dirty("without a jobid")
            submitted_s = seconds_since_1970(str(entry.get("submitted_time")), "submitted_time")
            yield number, (id, submitted_s, str(entry.get("vc") or ""), *_ran(entry.get("attempts")))


def _ran(attempts: Any) -> tuple[float, int, int, int, str]:
    """Return the total seconds of all attempts, the GPUs of the first attempt, the number of
    attempts, and the number of attempts without a time. If the attempts are unusable, also return
    the reason.
    """
    try:
        if not isinstance(attempts, list) or not attempts:
            raise Dirty("without attempts")
        if not all(isinstance(attempt, dict) for attempt in attempts):
            raise Dirty("with attempts that are not objects")
        gpus = _gpus(attempts[0])
        if not gpus:
            raise Dirty("without GPUs")
        seconds, unfinished = 0.0, 0
        for attempt in attempts:
            start, end = attempt.get("start_time"), attempt.get("end_time")
            if start in _NO_TIME or end in _NO_TIME:
                unfinished += 1
                continue
            span = seconds_since_1970(str(end), "end_time") - seconds_since_1970(str(start), "start_time")
            if span < 0:
                raise Dirty(ImpossibleTimes("with times out of order"))
            seconds += span
        if attempts[-1].get("end_time") in _NO_TIME:
            raise Dirty("without end")
    except Dirty as reason:
        return 0.0, 1, 1, 0, str(reason)
    return seconds, gpus, len(attempts), unfinished, ""


def _logged(options: TraceOptions, checks: Checks) -> JobArrays:
    """Build one job per entry of the log."""
    table = checks.table
    seconds, gpus = table.numbers(_SECONDS), table.numbers(_FIRST_GPUS)
    checks.drop_for(table.words(_FAULT))
    checks.note(table.numbers(_UNFINISHED) > 0, "with attempts that lack a time (not counted)")
    checks.note(table.numbers(_ATTEMPTS) > 1, "with several attempts (run times added up)")
    return _gangs(checks, table.numbers(_SUBMITTED), seconds, gpus, options, tenant=table.words(_OWNER))


def _gangs(
    checks: Checks, arrival_s: np.ndarray, seconds: np.ndarray, gpus: np.ndarray, options: TraceOptions, **columns: Any
) -> JobArrays:
    """Build one job per row: a gang with one GPU per instance."""
    work = np.where(seconds < options.floor_s, options.floor_s, seconds)
    return single_tasks(checks, arrival_s, work, gpus, (gpus > 1,), lambda gang: TaskKind(Demand(), gang), **columns)


def _gpus(attempt: dict[str, Any]) -> int:
    """Return the number of GPUs of an attempt, summed over its machines."""
    detail = attempt.get("detail")
    if not isinstance(detail, list):
        return 0
    lists = [machine.get("gpus") for machine in detail if isinstance(machine, dict)]
    return sum(len(gpus) for gpus in lists if isinstance(gpus, list))
