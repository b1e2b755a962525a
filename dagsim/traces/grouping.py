"""Group the rows of a table by job. A table that does not fit into memory is split by arrival, so
that each part contains whole jobs and the parts are in order (``in_parts``).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain
from math import inf, nan
from tempfile import TemporaryFile
from typing import IO, NamedTuple

import numpy as np

from dagsim.traces.report import ReadReport
from dagsim.traces.typed_table import Table, distinct_texts
from dagsim.workload.array_tools import ranges

ROWS_IN_MEMORY = 1 << 21
"""Maximum number of rows of a table that is read as a whole."""


class Grouped(NamedTuple):
    """The rows of J jobs, grouped by job. Jobs are in order of arrival."""

    row: np.ndarray  # shape (n,), int64: index in the table
    first: np.ndarray  # shape (J + 1,), int64: start of the rows of each job
    time: np.ndarray  # shape (J,), float64: arrival
    ids: np.ndarray  # shape (J,), object

    @property
    def job(self) -> np.ndarray:
        """(n,) int64: the job of each entry in ``row``."""
        return np.repeat(np.arange(len(self.ids)), np.diff(self.first))

    def job_of_row(self) -> np.ndarray:
        """Return the job of each row of the table. Shape (n,), int64."""
        job = np.empty(len(self.row), np.int64)
        job[self.row] = self.job
        return job

    def ordered(self, jobs: np.ndarray) -> Grouped:
        """Return only the jobs at these indices, in this order."""
        sizes = np.diff(self.first)[jobs]
        first = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        return Grouped(self.row[ranges(self.first[jobs], sizes)], first, self.time[jobs], self.ids[jobs])


def rows_by_job(ids: np.ndarray, times: np.ndarray) -> Grouped:
    """Group rows by job. Jobs are sorted by their earliest time, and then by first appearance."""
    code, names = distinct_texts(ids)
    count = len(code)
    if len(names) == count:  # in most logs, each job has one row
        return one_row_each(ids, times)
    # gives the same result as a stable sort of the codes, but faster
    by_job = np.sort(code * np.int64(count) + np.arange(count)) % count
    begins = np.flatnonzero(np.diff(code[by_job], prepend=-1))
    earliest = np.minimum.reduceat(times[by_job], begins)
    # stable, so that jobs with equal times stay in order of first appearance
    order = np.argsort(earliest, kind="stable")
    sizes = np.diff(begins, append=count)[order]
    row = by_job[ranges(begins[order], sizes)]
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return Grouped(row, first, earliest[order], names[order])


def one_row_each(ids: np.ndarray, times: np.ndarray) -> Grouped:
    """Group rows that each describe a separate job."""
    row = np.argsort(times, kind="stable")
    return Grouped(row, np.arange(len(ids) + 1), times[row], ids[row])


def in_parts(
    read: Callable[[ReadReport], Iterator[Table]],
    keys: Callable[[Table], tuple[np.ndarray, np.ndarray]],
    report: ReadReport,
    learn: Callable[[Table, bool], None] | None = None,
) -> Iterator[Table]:
    """Divide the rows that ``read`` returns into parts of at most ``ROWS_IN_MEMORY`` rows, and
    yield the parts. Each part contains whole jobs, and the parts are in order of arrival.

    ``keys`` returns the ids and times of rows in the form that ``rows_by_job`` takes. A table that
    is too large is read twice, first to find the arrival of each job, and then to write the rows of
    each part to a temporary file. If ``learn`` is given, it receives all rows before ``keys`` is
    called, so the table is read one more time. The second argument of ``learn`` is True if all rows
    are in a single table.
    """
    tables, count, stream = [], 0, read(report)
    for table in stream:
        tables.append(table)
        count += len(table)
        if count > ROWS_IN_MEMORY:
            break
    else:
        if count:
            table = Table.joined(tables)
            if learn is not None:
                learn(table, True)
            yield table
        return
    arrivals = _Arrivals(keys)
    if learn is not None:
        for table in chain(tables, stream):
            learn(table, False)
    for table in chain(tables, stream) if learn is None else read(ReadReport()):
        arrivals.add(table)
    first = tables[0]
    del tables
    bounds = arrivals.bounds()
    with ExitStack() as stack:
        files = [stack.enter_context(TemporaryFile()) for _ in range(len(bounds) + 1)]
        for table in read(ReadReport()):
            part = np.searchsorted(bounds, arrivals.of(table), "right")
            for place in np.unique(part).tolist():
                some = table.chosen(np.flatnonzero(part == place)).unblocked()
                pickle.dump((some.line, some.values, some.words_of, some.raw, some.layouts), files[place], 5)
        for file in files:
            file.seek(0)
            if pieces := list(_loaded(file, first)):
                yield Table.joined(pieces)


class _Arrivals:
    """The earliest time and the number of rows of each job, by a hash of the job's id."""

    def __init__(self, keys: Callable[[Table], tuple[np.ndarray, np.ndarray]]) -> None:
        self._keys = keys
        self._hashes, self._times = np.zeros(0, np.int64), np.zeros(0)
        self._sizes = np.zeros(0, np.int64)

    def add(self, table: Table) -> None:
        """Add the jobs to which the rows of a table belong."""
        ids, times = self._keys(table)
        hashes = np.concatenate([self._hashes, _hashes(ids)])
        self._hashes, place = np.unique(hashes, return_inverse=True)
        earliest = np.full(len(self._hashes), inf)
        np.minimum.at(earliest, place, np.concatenate([self._times, times]))
        sizes = np.concatenate([self._sizes, np.ones(len(ids), np.int64)])
        self._times, self._sizes = earliest, np.bincount(place, sizes).astype(np.int64)

    def bounds(self) -> np.ndarray:
        """Return the start times of all parts except the first."""
        order = np.argsort(self._times, kind="stable")
        rows = np.cumsum(self._sizes[order]) // (ROWS_IN_MEMORY // 2)
        return np.unique(self._times[order][np.flatnonzero(np.diff(rows)) + 1])

    def of(self, table: Table) -> np.ndarray:
        """Return the arrival of each row's job. Shape (n,), float64."""
        times: np.ndarray = self._times[np.searchsorted(self._hashes, _hashes(self._keys(table)[0]))]
        return times


class Namesakes:
    """An object that gives distinct ids to rows with the same id but different arrivals, across all
    parts of a table.
    """

    def __init__(self) -> None:
        self._hashes = np.zeros(0, np.int64)
        self._numbers: dict[str, int] = {}
        """The number of rows read so far for each id that has several rows."""

    def numbered(self, ids: np.ndarray, times: np.ndarray) -> np.ndarray | None:
        """Return the ids of the next part, in which every id that occurred before has a number
        (``7``, ``7#2``). Return None if all ids are new.
        """
        code, names = distinct_texts(ids)
        hashes = _hashes(names)
        again = np.isin(hashes, self._hashes)
        self._hashes = np.concatenate([self._hashes, hashes[~again]])
        if len(names) == len(ids) and not again.any():
            return None
        own, order = ids.copy(), np.lexsort((times, code))
        number, of, at = 0, -1, nan
        for row in order[(np.bincount(code) > 1)[code[order]] | again[code[order]]].tolist():
            id, time = str(ids[row]), float(times[row])
            if code[row] != of:
                number, of, at = self._numbers.get(id, int(again[code[row]])), int(code[row]), nan
            number += time != at
            at = time
            if number > 1:
                own[row], self._numbers[id] = f"{id}#{number}", number
        return own


def repeated(keys: np.ndarray) -> np.ndarray:
    """Return a mask of the rows, (n,) bool, whose key also occurs in an earlier row."""
    ordered = np.sort(keys)
    again = np.isin(keys, ordered[1:][ordered[1:] == ordered[:-1]])
    shared = np.flatnonzero(again)
    again[shared[np.unique(keys[shared], return_index=True)[1]]] = False
    return again


def _hashes(ids: np.ndarray) -> np.ndarray:
    return np.fromiter(map(hash, ids.tolist()), np.int64, len(ids))


def _loaded(file: IO[bytes], like: Table) -> Iterator[Table]:
    while True:
        try:
            columns = pickle.load(file)
        except EOFError:
            return
        yield Table(like.source, like.form, *columns)
