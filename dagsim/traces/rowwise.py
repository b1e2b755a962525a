"""Traces that give each job in one row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf

from dagsim.errors import ModelError
from dagsim.model import Job
from dagsim.traces.fields import Dirty
from dagsim.traces.gather import gather, pack, unpack
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Row, Source

__all__ = ["jobs_by_row"]


def jobs_by_row(
    rows: Iterable[Row],
    source: Source,
    report: ReadReport,
    *,
    id: int,
    time: int,
    make: Callable[[list[str], str], Job],
) -> Iterator[Job]:
    """The jobs that ``make(row, where)`` makes, in order of arrival, sorted externally where they are many.

    ``id`` and ``time`` are the places of the fields that name a job and say when it arrives (nothing: at 0). A row
    for which ``make`` raises ``Dirty`` or ``ModelError`` is dropped; so are all rows of one id but the earliest.
    """
    for group in gather((row[id] or f"row {place}", _arrival(row[time]), pack(place, row)) for place, row in rows):
        packed = [unpack(text) for text in group.rows]
        (first, row), *others = sorted(packed, key=lambda each: _arrival(each[1][time]))
        for place, other in others:
            report.drop("given twice" if other == row else "whose id another row has", source.where(place))
        try:
            if not row[id]:
                raise Dirty("without an id")
            job = make(row, source.where(first))
        except Dirty as reason:
            report.drop(str(reason), source.where(first))
        except ModelError as error:
            report.drop("that ask for what cannot be", source.where(first), detail=str(error))
        else:
            report.kept += 1
            yield job


def _arrival(text: str) -> float:
    """The time when the job of a row arrives; never where that cannot be read, for ``make`` to say why."""
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        return inf
