"""Parse points in time and durations as schedulers write them, and resolve the local dates that
become ambiguous when summer time ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise, product
from math import inf, nan
from zoneinfo import ZoneInfo

import numpy as np

from dagsim.model.arithmetic import whole_sum
from dagsim.traces.fields import Dirty, InvalidValue
from dagsim.traces.report import ImpossibleTimes, ReadReport
from dagsim.traces.typed_table import Table
from dagsim.workload.array_tools import objects

_UNSET = frozenset({"", "none", "unknown", "n/a", "(null)", "invalid"})
NO_DURATION = ("4294967294", "4294967295")
"""Slurm's 32-bit NO_VAL and INFINITE."""
_DURATION = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,8}):)?(?:(\d{1,8}):)?(\d{1,12}(?:\.\d{1,9})?)")
_LETTERS, _BETWEEN = 19, {4: ord("-"), 7: ord("-"), 13: ord(":"), 16: ord(":"), 19: 0}
"""The length of a date, and the positions of its non-digit characters, except the 11th
character.
"""
_FIRSTS = np.arange("1970-01", "10000-02", dtype="datetime64[M]").astype("datetime64[D]").astype(np.int64)
"""The first day of each month, in days since 1970."""
_STEP = 1 << 16
"""Number of texts that are converted together."""


def is_unset(text: str) -> bool:
    """Return True if the text in a field means that the field is not set."""
    return text.strip().lower() in _UNSET


def duration_s(text: str, field: str) -> float | None:
    """Parse ``[DD-[HH:]]MM:SS[.mmm]`` or plain seconds. Return ``None`` if the field is not set.

    Raises:
        Dirty: The text is not a duration.
    """
    if text == "00:00:00":  # the most frequent value in column Suspended
        return 0.0
    if is_unset(text):
        return None
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise Dirty(InvalidValue(f"with an invalid duration in {field}"))
    if text.strip() in NO_DURATION:
        return None
    days, first, second, seconds = match.groups()
    hours, minutes = (first, second) if second is not None else (None, first)
    # in 2-03:04, the text after the days would mean hours and minutes, but sacct does not print this form
    if days is not None and second is None:
        raise Dirty(InvalidValue(f"with an invalid duration in {field}"))
    return int(days or 0) * 86400.0 + int(hours or 0) * 3600.0 + int(minutes or 0) * 60.0 + float(seconds)


def moment_s(text: str, field: str, zone: ZoneInfo | None, fold: int = 0) -> float | None:
    """Parse epoch seconds, or a local date in ``zone`` (default: UTC), and return the seconds since
    1970, or ``None`` if the field is not set. If the date is in an hour that occurs twice, ``fold``
    selects the first (0) or the second (1) occurrence.

    Raises:
        Dirty: The text is not a point in time.
    """
    try:
        return _positive(float(text), field)
    except ValueError:
        if is_unset(text):
            return None
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone or ZoneInfo("UTC"), fold=fold)
        return _positive((moment - _EPOCH) / timedelta(seconds=1), field)
    except (ValueError, OverflowError):
        raise Dirty(InvalidValue(f"with an invalid time in {field}")) from None


def span_s(start: str, end: str, duration: str = "", zone: ZoneInfo | None = None) -> tuple[float | None, float | None]:
    """Return the start and end in seconds since 1970. If one of them is in an hour that occurs
    twice because summer time ends, it is interpreted so that the end is ``duration`` after the
    start or, if this is impossible, at least after the start.

    Raises:
        Dirty: The start or the end is not a point in time.
    """
    readings = [(moment_s(start, "start", zone, one), moment_s(end, "end", zone, other)) for one, other in _FOLDS]
    start_s, end_s = readings[0]
    if start_s is None or end_s is None:
        return start_s, end_s
    try:
        lasts_s = duration_s(duration, "duration")
    except Dirty:
        lasts_s = None
    spans = [(since, until) for since, until in readings if since is not None and until is not None and until > since]
    exact = [pair for pair in spans if lasts_s is not None and abs(pair[1] - pair[0] - lasts_s) <= 1]
    return next(iter(exact or spans), (start_s, end_s))


UNSET_MOMENTS = (0.0, 4294967294.0, 4294967295.0, 18446744073709551614.0, 18446744073709551615.0)
"""Numbers that are not points in time: Slurm's 32-bit and 64-bit NO_VAL and INFINITE, and the
beginning of 1970."""
_UNITS = ((1e11, 1e13, 1e3), (1e14, 1e16, 1e6), (1e17, 1e19, 1e9))
"""The ranges of numbers that are milliseconds, microseconds or nanoseconds since 1970, up to the
year 2286, each with the number of units per second. As seconds, these numbers would be after the
year 5138."""


def in_seconds(moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Convert moments to seconds since 1970, (n,) float64, even if some are in milliseconds,
    microseconds or nanoseconds. Also return a mask of these, (n,) bool. Other numbers that would
    mean a time after the year 5138, such as ``20260105080000``, become NaN.
    """
    scaled = np.zeros(len(moments), bool)
    if not (moments >= _UNITS[0][0]).any():
        return moments, scaled
    for least, most, per_second in _UNITS:
        fine = (moments >= least) & (moments < most)
        moments, scaled = np.where(fine, moments / per_second, moments), scaled | fine
    return np.where((moments >= _UNITS[0][0]) & (moments < _UNITS[-1][1]), nan, moments), scaled


TWICE = ImpossibleTimes("in an hour that occurs twice in their time zone (taken as the first)")
"""The note for a row whose date has two meanings."""
DAY_NUMBERS = "with times that look like day numbers of a spreadsheet (45234.5), taken as seconds"
"""The reason with which rows are noted if ``are_day_numbers`` returns True."""
_DAYS = (36526.0, 55153.0)
"""The years 2000 to 2050 as day numbers in spreadsheets, which count from 30 December 1899."""
_LONGEST_DAYS = 3660.0


def are_day_numbers(moments: np.ndarray) -> bool:
    """Return True if all moments may be a spreadsheet's day numbers with fractions of a day. Read
    as seconds, such numbers would all be between 10:08 and 15:20 on the first day of the log's
    clock, and within an hour of each other.
    """
    known = moments[np.isfinite(moments)]
    if not known.size or not (_DAYS[0] <= known.min() and known.max() < _DAYS[1]):
        return False
    return bool(known.max() - known.min() < _LONGEST_DAYS and (known % 1 > 0).any())


def folded_rows(texts: np.ndarray, zone: ZoneInfo) -> dict[int, bool]:
    """Return the rows whose local dates are in an hour that occurs twice in the zone (True) or not
    at all (False).
    """
    seconds = date_seconds(texts)
    dated = np.flatnonzero(~np.isnan(seconds))
    quarters, place = np.unique(seconds[dated] // 900, return_inverse=True)
    changes = []
    for number, quarter in enumerate(quarters.tolist()):
        first, second = (_offset_s(900 * quarter, zone, fold) for fold in (0, 1))
        if first != second:
            changes.append((number, first > second))
    return {int(row): repeats for number, repeats in changes for row in dated[place == number].tolist()}


def reading_of(texts: Sequence[str], lasts_s: float, zone: ZoneInfo) -> tuple[list[str], bool]:
    """Return the local times in a row (submitted, eligible, started, ended) with their offsets from
    UTC. Also return True if there is only one best interpretation. If there are several, the first
    one is chosen. ``lasts_s`` is the time from the start to the end.
    """
    ways: dict[tuple[float, ...], tuple[tuple[int, int], list[str]]] = {}
    for folds in product((0, 1), repeat=len(texts)):
        dated = [_with_offset(text, zone, fold) for text, fold in zip(texts, folds, strict=True)]
        moments = [_or_none(text, zone) for text in dated]
        known = [moment for moment in moments if moment is not None]
        wrong = sum(later < earlier for earlier, later in pairwise(known))
        if moments[2] is not None and moments[3] is not None and lasts_s >= 0:
            wrong += abs(moments[3] - moments[2] - lasts_s) > 1
        ways.setdefault(
            tuple([-1.0 if moment is None else moment for moment in moments]), ((wrong, whole_sum(folds)), dated)
        )
    best = min(ways.values(), key=lambda way: way[0])
    return best[1], sum(way[0][0] == best[0][0] for way in ways.values()) == 1


def with_offsets(
    table: Table, columns: Sequence[int], lasts_s: Callable[[int], float], zone: ZoneInfo, report: ReadReport
) -> Table:
    """Return the table with offsets from UTC added to local dates that a clock change makes
    ambiguous. ``columns`` contain the times that ``reading_of`` takes. ``lasts_s`` returns how long
    the job in each row ran.
    """
    texts = {column: table.words_of.get(column, objects([""] * len(table))) for column in columns}
    rows: dict[int, bool] = {}
    for column in columns:
        for row, repeats in folded_rows(texts[column], zone).items():
            rows[row] = rows.get(row, True) and repeats
    if not rows:
        return table
    texts = {column: words.copy() for column, words in texts.items()}
    for row, repeats in rows.items():
        if not repeats:
            report.note(
                ImpossibleTimes("with a time in an hour that does not exist in their time zone (check timezone)"),
                table.where(row),
            )
        dated, only = reading_of([texts[column][row] for column in columns], lasts_s(row), zone)
        if repeats and not only:
            report.note(TWICE, table.where(row))
        for column, text in zip(columns, dated, strict=True):
            texts[column][row] = text
    return replace(table, words_of=table.words_of | {column: texts[column] for column in columns})


def _with_offset(text: str, zone: ZoneInfo, fold: int) -> str:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return text
    return text if moment.tzinfo else moment.replace(tzinfo=zone, fold=fold).isoformat()


def _or_none(text: str, zone: ZoneInfo) -> float | None:
    try:
        moment = moment_s(text, "", zone)
    except Dirty:
        return None
    return None if moment in UNSET_MOMENTS else moment


def _offset_s(local_s: float, zone: ZoneInfo, fold: int) -> float:
    ahead = datetime.fromtimestamp(local_s, UTC).replace(tzinfo=zone, fold=fold).utcoffset()
    return ahead.total_seconds() if ahead is not None else 0.0


_FOLDS = ((0, 0), (0, 1), (1, 1), (1, 0))


def _positive(seconds: float, field: str) -> float:
    if not 0 <= seconds < inf:
        raise Dirty(InvalidValue(f"with an invalid time in {field}"))
    return seconds


_EPOCH = datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC"))


def local_seconds(texts: np.ndarray, zone: ZoneInfo | None) -> np.ndarray:
    """Convert local dates in ``zone`` (default: UTC) to seconds since 1970, (n,) float64. The
    result is NaN where a text does not have exactly the form of such a date.
    """
    seconds = date_seconds(texts)
    if zone is not None:
        dated = ~np.isnan(seconds)
        minutes, place = np.unique(seconds[dated] // 60, return_inverse=True)
        ahead = [
            datetime.fromtimestamp(60 * minute, UTC).replace(tzinfo=zone).utcoffset() for minute in minutes.tolist()
        ]
        seconds[dated] -= np.array([offset.total_seconds() for offset in ahead if offset is not None])[place]
    return seconds


def date_seconds(texts: np.ndarray) -> np.ndarray:
    """Convert dates such as ``2017-10-09 07:01:55`` to seconds since 1970, (n,) float64. The result
    is NaN where a text has any other form.
    """
    blocks = [_seconds_of(texts[start : start + _STEP]) for start in range(0, len(texts), _STEP)]
    return np.concatenate(blocks) if blocks else np.zeros(0)


def _seconds_of(texts: np.ndarray) -> np.ndarray:
    try:
        letters = texts.astype(f"S{_LETTERS + 1}").view(np.uint8).reshape(-1, _LETTERS + 1).T.copy()
    except UnicodeEncodeError:
        return np.full(len(texts), nan)
    fine = (letters[10] == ord(" ")) | (letters[10] == ord("T"))
    for at, letter in _BETWEEN.items():
        fine &= letters[at] == letter
    digits = letters - np.uint8(ord("0"))
    for at in range(_LETTERS):
        if at not in _BETWEEN and at != 10:
            fine &= digits[at] < 10
    century, years, month, day, hour, minute, second = (
        digits[at].astype(np.int32) * 10 + digits[at + 1] for at in (0, 2, 5, 8, 11, 14, 17)
    )
    year = century * 100 + years
    fine &= (year >= 1970) & (month >= 1) & (month <= 12) & (hour < 24) & (minute < 60) & (second < 60)
    months = np.where(fine, (year - 1970) * 12 + month - 1, 0)
    first = _FIRSTS[months]
    fine &= (day >= 1) & (day <= _FIRSTS[months + 1] - first)
    return np.where(fine, (first + day - 1) * 86_400 + (hour * 3_600 + minute * 60 + second), nan)
