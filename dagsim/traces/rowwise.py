"""Traces with one row per job, read row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import NamedTuple

from dagsim.errors import ModelError
from dagsim.model import Job
from dagsim.traces.fields import Dirty
from dagsim.traces.gather import gather, pack, unpack
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Row, Source

__all__ = ["RowReader"]


class RowReader(NamedTuple):
    """Makes jobs from rows by ``make(row, where)``, in order of arrival; many rows are sorted
    externally.

    ``id`` and ``time`` are the indices of the fields with a job's name and its arrival (``None``: 0
    s). A row for which ``make`` raises ``Dirty`` or ``ModelError`` is dropped. If several rows
    share an id, only the earliest is kept.
    """

    source: Source
    report: ReadReport
    id: int
    time: int
    make: Callable[[list[str], str], Job]

    def jobs(self, rows: Iterable[Row]) -> Iterator[Job]:
        """The jobs of all rows."""
        numbered = (
            (row[self.id] or _unnamed(place), _arrival(row[self.time]), pack(place, row)) for place, row in rows
        )
        for group in gather(numbered):
            job = self._job([unpack(text) for text in group.rows])
            if job is not None:
                yield job

    def _job(self, rows: list[tuple[int, list[str]]]) -> Job | None:
        """Job of the rows of one id, or ``None`` if it is invalid; drops all but the earliest row."""
        (first, row), *others = sorted(rows, key=lambda each: _arrival(each[1][self.time]))
        for place, other in others:
            reason = "given twice" if other == row else "whose id another row has"
            self.report.drop(reason, self.source.where(place))
        where = self.source.where(first)
        try:
            if not row[self.id]:
                raise Dirty("without an id")
            job = self.make(row, where)
        except Dirty as error:
            self.report.drop(str(error), where)
        except ModelError as error:
            self.report.drop("that ask for what cannot be", where, detail=str(error))
        else:
            self.report.kept += 1
            return job
        return None


def _unnamed(place: int) -> str:
    return f"row {place}"


def _arrival(text: str) -> float:
    """Arrival of the job of a row; ``inf`` if it cannot be read, so that ``make`` reports the
    reason.
    """
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        return inf
