"""Jobs from columns: plain ones all at once, the others one by one at their turn, in a tenth of the time of all.

A format says for all rows at once what jobs they are, and which of them are *plain*: nothing is to be said of them but
notes. A job with another row is left to the reader of rows. Jobs and report are the same as row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dagsim.model import Job
from dagsim.traces.report import ReadReport
from dagsim.traces.text_columns import Lines
from dagsim.workload.arrays import JobArrays, ranges

__all__ = ["Note", "Rows", "gathered", "told"]

Note = tuple[str, np.ndarray]
"""Something that is tolerated, and (n,) bool: in which rows."""


class Rows(NamedTuple):
    """The rows of J jobs, job by job in order of arrival."""

    line: np.ndarray  # (n,) int64: place in the file
    first: np.ndarray  # (J + 1,) int64
    time: np.ndarray  # (J,) float64: arrival
    ids: np.ndarray  # (J,) object

    @property
    def job(self) -> np.ndarray:
        """(n,) int64."""
        return np.repeat(np.arange(len(self.ids)), np.diff(self.first))


def gathered(code: np.ndarray, ids: np.ndarray, time: np.ndarray) -> Rows:
    """The rows by job, jobs by their earliest ``time``, then by first appearance; ``code`` is (n,) places in ``ids``,
    which are in order of appearance."""
    by_job = np.argsort(code, kind="stable")
    begins = np.flatnonzero(np.diff(code[by_job], prepend=-1))
    earliest, appears = np.minimum.reduceat(time[by_job], begins), by_job[begins]
    order = np.lexsort((appears, earliest))
    sizes = np.diff(begins, append=len(code))[order]
    line = by_job[ranges(begins[order], sizes)]
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return Rows(line, first, earliest[order], np.asarray(ids, object)[code[appears[order]]])


def told(
    every: JobArrays,
    places: np.ndarray,
    rows: Rows,
    plain: np.ndarray,
    notes: Sequence[Note],
    lines: Lines,
    report: ReadReport,
    most: int | None,
    make: Callable[[int, list[int]], Job | None],
) -> JobArrays:
    """The first ``most`` jobs; says in ``report`` what is to be said of them, in order, but counts no plain ones.

    ``places`` is (J,) int64, where jobs are in ``every``; ``plain`` is (J,) bool; ``notes`` are of rows as ``rows`` has
    them; ``make`` gets the number of a job that is not plain, and the places of its rows in the file.
    """
    made = _told(rows, plain, notes, lines, report, most, make)
    numbers = np.flatnonzero(plain)
    if most is not None:
        kept = plain.copy()
        kept[list(made)] = True
        numbers = numbers[(np.cumsum(kept) <= most)[numbers]]
    arrays = every.chosen(places[numbers])
    if made:
        arrays = JobArrays.joined([arrays, JobArrays.of(list(made.values()))])
        arrays = arrays.chosen(np.argsort(np.concatenate([numbers, list(made)]), kind="stable"))
    return arrays


def _told(
    rows: Rows,
    plain: np.ndarray,
    notes: Sequence[Note],
    lines: Lines,
    report: ReadReport,
    most: int | None,
    make: Callable[[int, list[int]], Job | None],
) -> dict[int, Job]:
    """Say what is to be said, job by job; returns those that are made of their rows."""
    job = rows.job
    noted = [np.flatnonzero(mask & plain[job]) for _, mask in notes]
    others = np.flatnonzero(~plain)
    jobs = np.concatenate([others, *[job[found] for found in noted]])
    which = np.repeat(np.arange(-1, len(notes)), [len(others), *map(len, noted)])
    order = np.lexsort((which, jobs))
    said = np.concatenate([others, *noted])[order]
    before = np.cumsum(plain) - plain
    made: dict[int, Job] = {}
    for number, note, place in zip(jobs[order].tolist(), which[order].tolist(), said.tolist(), strict=True):
        if most is not None and before[number] + len(made) >= most:
            break
        if note >= 0:
            report.note(notes[note][0], lines.where(int(rows.line[place])) if report.lists_more else "")
            continue
        found = make(number, rows.line[rows.first[number] : rows.first[number + 1]].tolist())
        if found is not None:
            made[number] = found
    return made
