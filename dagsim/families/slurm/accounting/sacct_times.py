"""The times in Slurm's accounting, and how long each attempt ran."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, isnan, nan
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from dagsim.families.slurm.accounting.accounting_rows import COLUMNS
from dagsim.traces.fields import Dirty, InvalidValue
from dagsim.traces.report import ImpossibleTimes, ReadReport
from dagsim.traces.times import duration_s, with_offsets
from dagsim.traces.typed_table import Table

AT = {name: place for place, name in enumerate(COLUMNS)}
"""The index of each accounting column."""
MOMENTS = ("Submit", "Eligible", "Start", "End")
_HOUR_S = 3600.0
FAULTS = (
    "",
    InvalidValue("with an invalid duration in Suspended"),
    InvalidValue("with an invalid duration in ElapsedRaw"),
    InvalidValue("with an invalid duration in Elapsed"),
    "without End and Elapsed",
    ImpossibleTimes("with an end before the start"),
)
"""Reasons why a run time cannot be used. The empty text means that there is none."""
NOTES = (
    "",
    ImpossibleTimes(
        "whose elapsed time differs by an hour from End - Start, as at a clock change (the elapsed time counts)"
    ),
    ImpossibleTimes("whose elapsed time is not End - Start without suspensions (the elapsed time counts)"),
    ImpossibleTimes("that start before their submission (taken to start then)"),
    ImpossibleTimes("that start before they are eligible (taken as eligible at the start)"),
)
"""Flaws of a run time that is used anyway. The empty text means that there is none."""
CLOCK_S = 1.0
"""Slurm's clock counts whole seconds, and each column is rounded separately."""


class SacctTimes(NamedTuple):
    """The times in n rows of accounting."""

    # For each column (n,) float64: seconds since 1970, NaN if not set, -inf if invalid.
    moments: Mapping[str, np.ndarray]
    ran_s: np.ndarray  # (n,) float64: seconds for which the job ran, without suspensions
    fault: np.ndarray  # (n,) int64: index into FAULTS of the row's fault
    note: np.ndarray  # (n,) int64: index into NOTES of the row's note

    @classmethod
    def of(cls, table: Table, *moments: np.ndarray) -> SacctTimes:
        """Read the times in a table. ``moments`` contains one column for each name in
        ``MOMENTS``."""

        def lasted(name: str) -> np.ndarray:
            labels = table.words(AT[name])
            label_s = [seconds_or_nan(lambda text: duration_s(text, name), text) for text in labels.words]
            values: np.ndarray = np.array(label_s, np.float64)[labels.place]
            return values

        *_, start, end = moments
        suspended, raw, elapsed = lasted("Suspended"), lasted("ElapsedRaw"), lasted("Elapsed")
        is_raw = ~np.isnan(raw)
        stated = np.where(is_raw, raw, elapsed)
        with np.errstate(invalid="ignore"):
            between = end - start - np.where(np.isnan(suspended), 0.0, suspended)
            apart = np.abs(between - stated)
            ran_s = np.where(np.isnan(stated), between, stated)
            wrong = (suspended == -inf, raw == -inf, ~is_raw & (elapsed == -inf), np.isnan(ran_s), ran_s < 0)
            submit, eligible = moments[:2]
            early = (start + CLOCK_S < submit, start + CLOCK_S < eligible)
            noted = (np.abs(apart - _HOUR_S) < 1, apart > CLOCK_S, *early)
        fault, note = (np.select(masks, range(1, len(masks) + 1), 0) for masks in (wrong, noted))
        return cls(dict(zip(MOMENTS, moments, strict=True)), ran_s, fault, note)

    def are_plain(self) -> np.ndarray:
        """Return (n,) bool: True for rows that have a start and whose times need no report."""
        times = self.moments
        plain: np.ndarray = (self.fault == 0) & (self.note == 0) & (self.ran_s < inf) & (times["Start"] >= 0)
        return plain & ~np.isneginf(times["End"]) & ~np.isneginf(times["Eligible"])

    def moment(self, name: str, row: int) -> float | None:
        """Return one of a row's times, or None if it is not set.

        Raises:
            Dirty: The text is not a time.
        """
        moment = float(self.moments[name][row])
        if moment == -inf:
            raise Dirty(InvalidValue(f"with an invalid time in {name}"))
        return None if isnan(moment) else moment


EXAMPLE = SacctTimes(dict(zip(MOMENTS, np.array([[1.0], [1.0], [2.0], [12.0]]), strict=True)), np.array([10.0]),
                  np.zeros(1, np.int64), np.zeros(1, np.int64))  # fmt: skip
"""The row of an attempt that ran for 10 s."""


def seconds_or_nan(read: Callable[[str], float | None], text: str) -> float:
    """Apply ``read`` to a text. Return NaN if the text is not set, and ``-inf`` if it is
    invalid."""
    try:
        value = read(text)
    except Dirty:
        return -inf
    return nan if value is None else value


def unfolded(table: Table, zone: ZoneInfo | None, report: ReadReport) -> Table:
    """Add the UTC offset to dates that are ambiguous or impossible because of a clock change. If
    there are several ways to read a row, choose the one in which its times are in order and agree
    with the stated duration.
    """
    if zone is None:
        return table

    def lasts_s(row: int) -> float:
        elapsed, suspended = (
            seconds_or_nan(lambda text: duration_s(text, ""), table.texts(AT[name])[row])
            for name in ("ElapsedRaw" if table.texts(AT["ElapsedRaw"])[row] else "Elapsed", "Suspended")
        )
        return elapsed + (suspended if suspended > 0 else 0.0)

    return with_offsets(table, [AT[name] for name in MOMENTS], lasts_s, zone, report)
