"""Convert the rows of a table to jobs: find faults in rows, and sort jobs by arrival.

A reader checks all rows of a table together. ``Findings`` collects everything to report. Each entry
contains the rows that it concerns. ``JobBatch.block`` reports these entries job by job, as if the
rows had been read in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf, nan
from typing import Any, NamedTuple, Protocol

import numpy as np

from dagsim.model import Demand, Job
from dagsim.model.arithmetic import DAY_S
from dagsim.traces.fields import (
    Contradictory,
    Dirty,
    InvalidValue,
    are_counts,
    is_number,
    not_a_number,
    seconds_since_1970,
)
from dagsim.traces.grouping import Namesakes, in_parts, one_row_each, repeated, rows_by_job
from dagsim.traces.reader import JobBlock
from dagsim.traces.report import NO_HOURS, SHOWN, Hours, ImpossibleTimes, ReadReport, RepeatedId
from dagsim.traces.times import date_seconds
from dagsim.traces.typed_table import Table
from dagsim.workload.array_tools import combinations, objects
from dagsim.workload.arrays import JobArrays, Labels, TaskKind
from dagsim.workload.records import MOST_INSTANCES, clipped_repr

MOST_WORK_S = 100 * 365.25 * DAY_S
"""100 years in seconds. A job that takes longer is a fault in the trace."""


class _Located(Protocol):
    """An object whose rows have a known ``file:line``."""

    def where(self, row: int) -> str: ...


class _Finding(NamedTuple):
    """A fault or an irregularity in some rows, which is to be reported."""

    rows: np.ndarray  # int64: indices in the table
    text: str
    drops: bool
    stage: int
    """Findings from earlier stages are reported first."""
    order: np.ndarray
    """The order of findings within a job and a stage. Equal values keep the order in which the
    findings were added.
    """
    counts: np.ndarray | None
    """The number of rows (or times) that each entry represents. The default is 1."""
    details: Mapping[int, str]
    """Additional texts about individual rows."""


class Findings:
    """Everything to report about the rows of a table, in the order in which it was added."""

    def __init__(self) -> None:
        self._listed: list[_Finding] = []

    def __bool__(self) -> bool:
        return bool(self._listed)

    def drop(
        self,
        rows: np.ndarray,
        reason: str,
        *,
        stage: int = 0,
        order: np.ndarray | None = None,
        counts: np.ndarray | None = None,
        details: Mapping[int, str] | None = None,
    ) -> None:
        """Record rows that have to be dropped. ``counts`` is the number of rows that each of these
        rows represents. The rows are reported in row order unless ``order`` is given.
        """
        if len(rows):
            order = rows if order is None else order
            self._listed.append(_Finding(rows, reason, True, stage, order, counts, details or {}))

    def note(
        self,
        rows: np.ndarray,
        text: str,
        *,
        stage: int = 0,
        order: np.ndarray | None = None,
        counts: np.ndarray | None = None,
    ) -> None:
        """Add a tolerated irregularity in some rows."""
        if len(rows):
            self._listed.append(_Finding(rows, text, False, stage, rows if order is None else order, counts, {}))

    def one(self, row: int, text: str, drops: bool, count: int = 1, detail: str = "") -> None:
        """Add a finding about a single row of a job that is examined row by row. Such findings are
        reported in the order in which they were added.
        """
        order = np.array([len(self._listed)])
        details = {row: detail} if detail else {}
        self._listed.append(_Finding(np.array([row]), text, drops, 0, order, np.array([count]), details))

    def forget(self, rows: np.ndarray) -> None:
        """Remove all findings about the rows in a mask, (n,) bool."""
        kept = [~rows[finding.rows] for finding in self._listed]
        self._listed = [
            finding._replace(
                rows=finding.rows[mask],
                order=finding.order[mask],
                counts=None if finding.counts is None else finding.counts[mask],
            )
            for finding, mask in zip(self._listed, kept, strict=True)
        ]

    def reasons(self) -> dict[int, str]:
        """Return the reason why each dropped row is dropped, by row."""
        return {
            row: finding.details.get(row, finding.text)
            for finding in self._listed
            if finding.drops
            for row in finding.rows.tolist()
        }

    def tell(
        self,
        report: ReadReport,
        table: _Located,
        job: np.ndarray,
        last: int,
        hours: Callable[[np.ndarray], Hours] = lambda jobs: NO_HOURS,
    ) -> None:
        """Report all findings about jobs up to ``last``. ``job`` (n,) is the job of each row of the
        table, and ``hours`` returns the total hours of some jobs.

        Raises:
            TraceError: A row is dropped in strict mode.
        """
        if not self._listed:
            return
        rows = np.concatenate([finding.rows for finding in self._listed])
        which = np.repeat(np.arange(len(self._listed)), [len(finding.rows) for finding in self._listed])
        stages = np.array([finding.stage for finding in self._listed])[which]
        counts = np.concatenate(
            [
                np.ones(len(finding.rows), np.int64) if finding.counts is None else finding.counts
                for finding in self._listed
            ]
        )
        places = np.concatenate([finding.order for finding in self._listed])
        order = np.lexsort((which, places, stages, job[rows]))
        order = order[job[rows[order]] <= last]
        reported = 0
        for row, finding, count in zip(*[column[order].tolist() for column in (rows, which, counts)], strict=True):
            if not report.strict and not report.lists_more:
                break
            text, drops, details = (
                self._listed[finding].text,
                self._listed[finding].drops,
                self._listed[finding].details,
            )
            if drops:
                report.drop(text, table.where(row), count, details.get(row, ""))
            else:
                report.note(text, table.where(row), count)
            reported += 1
        rest = order[reported:]  # only count the remaining findings
        totals = np.bincount(which[rest], counts[rest], len(self._listed)).astype(np.int64)
        kinds: dict[str, list[int]] = {}
        for place in dict.fromkeys(which[order].tolist()):
            text = self._listed[place].text
            if totals[place] or isinstance(text, Contradictory):
                report.count(text, drops=self._listed[place].drops, rows=int(totals[place]))
            if isinstance(text, Contradictory):
                kinds.setdefault(text.kind, []).append(place)
        for kind, of in kinds.items():  # a row with several faults of the same kind counts once
            told = order[np.isin(which[order], of)]
            most = np.zeros(int(rows[told].max()) + 1, np.int64)
            np.maximum.at(most, rows[told], counts[told])
            jobs = np.unique(job[rows[told]])
            report.once(kind, int(counts[told].sum() - most.sum()), hours(jobs))


class JobBatch(NamedTuple):
    """The jobs in a table in order of arrival, with a mask of the jobs to keep and the findings about
    all jobs.
    """

    table: _Located
    every: JobArrays
    """All jobs. Those that are not kept may contain invalid values."""
    kept: np.ndarray  # shape (J,), bool
    rows: np.ndarray  # shape (J,), int64: number of rows of each kept job
    job: np.ndarray  # shape (n,), int64: the job of each row of the table
    findings: Findings

    def block(self, report: ReadReport, most: int | None) -> JobBlock:
        """Return the first ``most`` kept jobs, and report all findings up to the last of them.

        Raises:
            TraceError: A row is dropped in strict mode.
        """
        kept = np.flatnonzero(self.kept)
        last = len(self.kept)
        if most is not None and len(kept) >= most:
            kept = kept[:most]
            last = int(kept[-1])
        self.findings.tell(report, self.table, self.job, last, self._hours)
        rows = self.rows[kept]
        report.kept += int(rows.sum())
        return JobBlock(self.every.chosen(kept), rows)

    def _hours(self, jobs: np.ndarray) -> Hours:
        """Return the GPU-hours and core-hours of those of the given jobs that are kept."""
        gpu_h, core_h = self.every.chosen(jobs[self.kept[jobs]]).hours()
        return Hours(float(gpu_h.sum()), float(core_h.sum()))


class Checks:
    """The checks of a table's rows, made column by column. A row is dropped for the first fault
    that is found in it.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.findings = Findings()
        self.usable = np.ones(len(table), bool)

    def drop(self, faulty: np.ndarray, reason: str, details: Mapping[int, str] | None = None) -> None:
        """Drop the rows in the mask ``faulty``, (n,) bool, unless they have already been dropped."""
        self.findings.drop(np.flatnonzero(faulty & self.usable), reason, details=details)
        self.usable &= ~faulty

    def drop_for(self, reasons: Labels) -> None:
        """Drop each row whose entry in ``reasons`` is not empty."""
        for place, reason in enumerate(reasons.words):
            if reason:
                self.drop(reasons.place == place, reason)

    def skip(self, rows: np.ndarray, reason: str, report: ReadReport) -> None:
        """Skip the rows in a mask, (n,) bool, unless they have already been dropped."""
        rows = rows & self.usable
        if rows.any():
            report.skip(reason, int(rows.sum()))
        self.usable &= ~rows

    def note(self, rows: np.ndarray, text: str) -> None:
        """Add a note to the rows in a mask, (n,) bool, unless they have already been dropped."""
        self.findings.note(np.flatnonzero(rows & self.usable), text)

    def number(self, column: int, field: str, blank: float = nan, where: np.ndarray | None = None) -> np.ndarray:
        """Return the numbers in a column, (n,) float64. Drop every row without a finite number or,
        if the mask ``where`` is given, every such row in the mask.
        """
        return self.finite(self.table.numbers(column, blank), column, field, where)

    def finite(self, values: np.ndarray, column: int, field: str, where: np.ndarray | None = None) -> np.ndarray:
        """Return the values of a column. Drop every row without a finite number or, if the mask
        ``where`` is given, every such row in the mask.
        """
        faulty = ~np.isfinite(values)
        if where is not None:
            faulty &= where
        if faulty.any():
            empty = self.table.blank(column)
            got: dict[int, str] = {}
            if column in self.table.words_of:
                texts = self.table.words_of[column]
                empty = _mask([row for row in np.flatnonzero(faulty).tolist() if not texts[row].strip()], len(faulty))
                first = np.flatnonzero(faulty & ~empty & self.usable)[:SHOWN].tolist()
                # A text such as 1e400 is a number, and if pandas has parsed the column, the text is
                # no longer available.
                got = {row: f"got {clipped_repr(texts[row])}" for row in first if not is_number(texts[row])}
            self.drop(faulty & empty, f"without {field}")
            self.drop(faulty & ~empty, not_a_number(field), got)
        return values

    def count(
        self,
        column: int,
        field: str,
        least: int = 1,
        most: int = MOST_INSTANCES,
        *,
        blank: float = nan,
        where: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return a column of whole numbers from ``least`` to ``most``, (n,) float64. Drop the rows
        with any other value.
        """
        values = self.number(column, field, blank, where)
        faulty = ~are_counts(values, least, most)
        self.drop(faulty if where is None else faulty & where, InvalidValue(f"with an invalid value for {field}"))
        return values

    def date(self, column: int, field: str, where: np.ndarray | None = None) -> np.ndarray:
        """Return a column of dates without a zone, as seconds since 1970, (n,) float64. Drop the
        rows with any other text.
        """
        texts, seconds = self.table.texts(column), dates(self.table, column)
        reasons: dict[str, list[int]] = {}
        for row in np.flatnonzero(np.isnan(seconds) if where is None else np.isnan(seconds) & where).tolist():
            try:
                seconds_since_1970(texts[row], field)
            except Dirty as reason:
                reasons.setdefault(str(reason), []).append(row)
        for text, rows in reasons.items():
            self.drop(_mask(rows, len(texts)), text)
        return seconds

    def impossible(self, jobs: JobArrays) -> None:
        """Drop the rows whose jobs are invalid or would never end. Each row has one job."""
        with np.errstate(invalid="ignore"):
            endless = (jobs.work > MOST_WORK_S) & (jobs.work < inf)
        if endless.any():
            job = np.repeat(np.arange(len(jobs)), np.diff(jobs.first))
            self.drop(_mask(job[endless].tolist(), len(jobs)), ImpossibleTimes("that take more than 100 years"))
        details = {row: str(error) for row, error in jobs.faults(self.usable)}
        self.drop(_mask(list(details), len(self.usable)), "that describe an impossible job", details)


def single_tasks(
    checks: Checks,
    arrival_s: np.ndarray,
    work: np.ndarray,
    instances: np.ndarray,
    properties: Sequence[np.ndarray],
    kind: Callable[..., TaskKind],
    name: str = "job",
    **columns: Any,
) -> JobArrays:
    """Create one single-task job per row, with the ids in column 0.

    Rows that are not usable may contain any values. ``kind`` creates the kind of a task from a
    row's values in ``properties``, and ``columns`` contains further fields of ``JobArrays``.
    """
    place, kinds = kinds_of_rows(checks.usable, properties, kind)
    return JobArrays.of_single_tasks(
        checks.table.texts(0),
        arrival_s,
        name,
        work=work,
        instances=np.where(checks.usable, instances, 1).astype(np.int64),
        kind=place,
        kinds=kinds,
        **columns,
    )


_SLACK_S = 1.0
"""The rounding error of clocks that count whole seconds. It applies to each column separately."""


class JobTimes(NamedTuple):
    """The times of the jobs in n rows, and how long the jobs ran. All times are on the same clock,
    and unknown times are NaN.
    """

    arrival_s: np.ndarray  # shape (n,), float64
    start_s: np.ndarray
    end_s: np.ndarray | None = None
    ran_s: np.ndarray | None = None
    eligible_s: np.ndarray | None = None

    def checked(self, checks: Checks, slack_s: float = _SLACK_S) -> JobTimes:
        """Note times that contradict each other. Return corrected times, with which no job starts
        before it arrives or becomes eligible.
        """
        arrival_s, start_s, end_s, ran_s, eligible_s = self
        with np.errstate(invalid="ignore"):
            checks.note(
                start_s < arrival_s - slack_s,
                ImpossibleTimes("that start before they arrive (taken to start on arrival)"),
            )
            if end_s is not None and ran_s is not None:
                checks.note(
                    end_s < start_s - slack_s, ImpossibleTimes("with an end before the start (the run time counts)")
                )
                apart = (end_s >= start_s - slack_s) & (np.abs(end_s - start_s - ran_s) > slack_s)
                checks.note(
                    apart,
                    ImpossibleTimes(
                        "whose elapsed time differs from the time between start and end (the elapsed time counts)"
                    ),
                )
            start_s = np.where(start_s < arrival_s, arrival_s, start_s)
            if eligible_s is not None:
                checks.note(
                    eligible_s > start_s + slack_s,
                    ImpossibleTimes("that become eligible after their start (taken as eligible at the start)"),
                )
                eligible_s = np.where(eligible_s > start_s, start_s, eligible_s)
                eligible_s = np.where(eligible_s < arrival_s, arrival_s, eligible_s)
        return JobTimes(arrival_s, start_s, end_s, ran_s, eligible_s)


_AGAIN = ("given twice", RepeatedId("with the same id as another row"))


def single_rows(
    checks: Checks,
    jobs: JobArrays,
    ids: np.ndarray,
    times: np.ndarray,
    again: tuple[str, str] = _AGAIN,
    *,
    distinct: bool = False,
) -> JobBatch:
    """Create one job per row, in order of arrival. Of several rows with the same id, keep only the
    earliest. With ``distinct``, no id is repeated.

    ``jobs`` has one job per row. ``ids`` (n,) object and ``times`` (n,) float64 contain the id and
    the arrival of each row. The arrival is ``inf`` if it cannot be read. Rows that are not usable
    may contain any values. ``again`` contains two reasons for dropping a row with a repeated id.
    The first reason is for a row that equals the earliest row with that id. The second is for a row
    that differs from it.
    """
    table, findings = checks.table, checks.findings
    groups = one_row_each(ids, times) if distinct else rows_by_job(ids, times)
    first = groups.row[groups.first[:-1]].copy()
    repeats: dict[str, list[tuple[int, int]]] = {}
    for job in np.flatnonzero(np.diff(groups.first) > 1).tolist():
        rows = groups.row[groups.first[job] : groups.first[job + 1]]
        first[job], *others = rows[np.argsort(times[rows], kind="stable")].tolist()
        fields = table.fields(int(first[job]))
        for place, row in enumerate(others):
            reason = again[table.fields(row) != fields]
            repeats.setdefault(reason, []).append((row, place))
    findings.forget(_mask([row for rows in repeats.values() for row, _ in rows], len(table)))
    for reason, pairs in repeats.items():
        rows, order = np.array(pairs, np.int64).T
        findings.drop(rows, reason, stage=-1, order=order)
    rows_of = np.ones(len(first), np.int64)
    return JobBatch(table, jobs.chosen(first), checks.usable[first], rows_of, groups.job_of_row(), findings)


def row_blocks(
    read: Callable[[ReadReport], Iterator[Table]],
    times: Callable[[Table], np.ndarray],
    jobs: Callable[[Checks], JobArrays],
    report: ReadReport,
    most: int | None,
    again: tuple[str, str] = _AGAIN,
    *,
    apart: bool = False,
) -> Iterator[JobBlock]:
    """Return the jobs in a table with one row per job, sorted by arrival.

    ``read`` reads the table, whose column 0 contains the job ids. ``times`` returns the arrival of
    each row, or ``inf`` if it cannot be read. ``jobs`` creates one job per row and drops rows that
    cannot be kept. ``again`` has the same meaning as in ``single_rows``. If ``apart`` is True, rows
    with the same id but different arrivals are separate jobs.
    """

    def keys(table: Table) -> tuple[np.ndarray, np.ndarray]:
        ids = table.texts(0)
        if (unnamed := ids == "").any():
            ids = ids.copy()
            for row in np.flatnonzero(unnamed).tolist():
                ids[row] = f"row {int(table.line[row])}"
        return ids, times(table)

    namesakes = Namesakes()

    def keys_apart(table: Table) -> tuple[np.ndarray, np.ndarray]:
        ids, seconds = keys(table)
        return objects([f"{id} at {at!r}" for id, at in zip(ids.tolist(), seconds.tolist(), strict=True)]), seconds

    def batch(table: Table) -> JobBatch:
        checks = Checks(table)
        checks.drop(table.texts(0) == "", "without an id")
        arrays = jobs(checks)
        ids, seconds = keys(table)
        own = namesakes.numbered(ids, seconds) if apart else ids
        distinct = own is None
        if own is not None and own is not ids:
            checks.note(own != ids, RepeatedId("with the id of an earlier row (treated as separate jobs)"))
            ids, arrays = own, replace(arrays, ids=np.where(own != ids, own, arrays.ids))
        checks.impossible(arrays)
        return single_rows(checks, arrays, ids, seconds, again, distinct=distinct)

    return job_blocks(map(batch, in_parts(read, keys_apart if apart else keys, report)), report, most)


def with_others(
    batch: JobBatch, make: Callable[[int, list[int]], tuple[Job, int] | None], first: np.ndarray, members: np.ndarray
) -> JobBatch:
    """Examine the rejected jobs in the batch a second time, row by row. Add those that turn out to
    be valid.

    ``make`` receives the index of a job and the job's rows (those in ``members`` from the job's
    entry in ``first`` onwards), and returns the job and the number of its rows.
    """
    retried = {}
    for place in np.flatnonzero(~batch.kept).tolist():
        job = make(place, members[first[place] : first[place + 1]].tolist())
        if job is not None:
            retried[place] = job
    if not retried:
        return batch
    plain, places = np.flatnonzero(batch.kept), list(retried)
    every = JobArrays.joined([batch.every.chosen(plain), JobArrays.of([job for job, _ in retried.values()])])
    order = np.argsort(np.concatenate([plain, places]), kind="stable")
    kept, rows = batch.kept.copy(), batch.rows.copy()
    kept[places], rows[places] = True, [count for _, count in retried.values()]
    filler = np.zeros(len(kept), np.int64)
    filler[np.sort(np.concatenate([plain, places]))] = order
    return batch._replace(every=every.chosen(filler), kept=kept, rows=rows)


def job_blocks(batches: Iterable[JobBatch], report: ReadReport, most: int | None) -> Iterator[JobBlock]:
    """Yield the first ``most`` jobs of consecutive batches, as one block per batch."""
    for batch in batches:
        block = batch.block(report, most)
        most = None if most is None else most - len(block.jobs)
        yield block
        if most == 0:
            return


def arrivals(table: Table, column: int) -> np.ndarray:
    """Return the seconds in a column, (n,) float64, raised to at least 0. An empty field counts as
    0, and a field that is not a number becomes ``inf``.
    """
    seconds = np.where(table.unreadable(column), inf, table.numbers(column))
    return np.where(table.blank(column), 0.0, np.fmax(seconds, 0.0))


def dates(table: Table, column: int) -> np.ndarray:
    """Convert dates without a time zone to seconds since 1970, (n,) float64. Any other text becomes
    NaN.
    """
    texts = table.texts(column)
    seconds = date_seconds(texts)
    for row in np.flatnonzero(np.isnan(seconds) & (texts != "")).tolist():
        with suppress(Dirty):
            seconds[row] = seconds_since_1970(texts[row], "")
    return seconds


def kinds_of_rows(
    usable: np.ndarray, columns: Sequence[np.ndarray], kind: Callable[..., TaskKind]
) -> tuple[np.ndarray, tuple[TaskKind, ...]]:
    """Return the index of each row's kind, (n,) int32, and the kinds. There is one kind for each
    combination of values in the ``usable`` rows.
    """
    if not usable.any():
        return np.zeros(len(usable), np.int32), (TaskKind(Demand(0.0)),)
    few = [column[usable] for column in columns]
    codes, firsts = combinations(few)
    every = np.zeros(len(usable), np.int32)
    every[usable] = codes
    return every, tuple([kind(*values) for values in zip(*[column[firsts].tolist() for column in few], strict=True)])


def drop_repeated(checks: Checks, keys: np.ndarray, values: Sequence[np.ndarray], other: str) -> np.ndarray:
    """Drop each usable row that has the same key as an earlier usable row. If all ``values`` are
    equal, the reason is that the row is given twice. Otherwise, the reason is ``other``. Return a
    mask, (n,) bool, of the usable rows and the rows given twice.
    """
    usable = checks.usable.copy()
    again = usable.copy()
    again[usable] = repeated(keys[usable])
    if not again.any():
        return usable
    table = np.array(values).T
    rows = np.flatnonzero(usable & ~again)
    first, twice = rows[np.argsort(keys[rows])], np.flatnonzero(again)
    same = np.zeros(len(usable), bool)
    same[twice] = (table[first[np.searchsorted(keys[first], keys[twice])]] == table[twice]).all(axis=1)
    checks.drop(again & same, "given twice")
    checks.drop(again, other)
    return usable & ~(again & ~same)


def _mask(rows: list[int], count: int) -> np.ndarray:
    mask = np.zeros(count, bool)
    mask[rows] = True
    return mask
