"""Text tables as columns: which files are plain enough, and their fields as pandas parses them, all rows at once."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Sequence
from io import BytesIO
from math import nan
from typing import Any, NamedTuple

import numpy as np

from dagsim.errors import TraceError
from dagsim.traces.source import Source, picker
from dagsim.workload.arrays import Labels

__all__ = ["HEADER", "Lines", "TextTable", "csv_table", "plain_lines", "table_of"]

_BLOCK = 1 << 16
_ODD = (b"\r", b"\0", b'"', b"\x1f")
"""Ends of lines and quotes that need a parser, and what ``gather.pack`` replaces."""
_OTHER_BLANKS = (b"\v", b"\f", b"\x1c", b"\x1d", b"\x1e")
"""What ``str.split`` takes for blanks beside those that pandas does."""
HEADER = re.compile(rb"\n*[^\n]*\n")
"""A line of names, perhaps behind blank ones."""


class Lines(NamedTuple):
    """The rows of a file, each a line of as many fields as any other."""

    source: Source
    head: str
    """The lines before the first row."""
    before: int
    """So many are they."""
    data: bytes
    ends: np.ndarray  # (n,) int64

    def number(self, row: int) -> int:
        """The line of a row, from 1."""
        return self.before + row + 1

    def where(self, row: int) -> str:
        """``file:line`` of a row."""
        return self.source.where(self.number(row))

    def text(self, row: int) -> str:
        """A row as it stands there."""
        return self.data[int(self.ends[row - 1]) + 1 if row else 0 : int(self.ends[row])].decode()


class TextTable(NamedTuple):
    """The fields of a file's rows; columns that the file lacks are blank."""

    lines: Lines
    places: Sequence[int | None]
    """Which field of the file is which column, if any."""
    frame: Any
    """A pandas DataFrame by fields of the file."""
    split: Callable[[str], list[str]]
    """The fields of a row's text, as the reader of rows gets them."""

    def fields(self, row: int) -> list[str]:
        """The fields of one row."""
        return self.split(self.lines.text(row))

    def blank(self, column: int) -> np.ndarray:
        """(n,) bool."""
        missing: np.ndarray = self._column(column).isna().to_numpy()
        return missing

    def numbers(self, column: int, blank: float = nan) -> np.ndarray:
        """(n,) float64: what ``float`` makes of the texts, NaN where that fails; blank ones are ``blank``."""
        texts = self._column(column)
        if texts.dtype.kind == "f":
            found: np.ndarray = texts.to_numpy()
        else:
            found = np.array([_number(text) for text in texts.tolist()], np.float64)
        return found if blank != blank else np.where(self.blank(column), blank, found)

    def texts(self, column: int) -> np.ndarray:
        """(n,) object: str, or NaN where blank."""
        return np.asarray(self._column(column), object)

    def words(self, column: int) -> Labels:
        """The words of (n,) rows, the last of which is empty and stands for blank ones."""
        import pandas as pd

        codes, words = pd.factorize(self.texts(column))
        return Labels(np.where(codes < 0, len(words), codes).astype(np.int32), (*words.tolist(), ""))

    def has(self, column: int) -> bool:
        """True if the file has the column."""
        return self.places[column] is not None

    def _column(self, column: int) -> Any:
        if self.has(column):
            return self.frame[self.places[column]]
        import pandas as pd

        return pd.Series(np.full(len(self.lines.ends), nan))


def plain_lines(source: Source, header: re.Pattern[bytes], fields: int | None, separator: str = ",") -> Lines | None:
    """The lines behind the ``header``; nothing if one has another number of ``fields``, or is odd.

    ``fields`` are as many as the header has unless given; a ``separator`` that is a blank stands for several.
    """
    if len(source.files) != 1:
        return None
    try:
        data = source.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except TraceError:  # the reader of rows says at which line
        return None
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    found = header.match(data)
    begin = found.end() if found else 0
    head, data = data[:begin], data[begin:].rstrip(b"\n")
    if not data or _is_odd(data, separator) or (b"\r" in head if separator == " " else _is_odd(head, ",")):
        return None
    ends = np.append(np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")), len(data))
    sizes = np.diff(ends, prepend=-1)
    if sizes.min() < 2 or (separator != " " and sizes.max() > csv.field_size_limit()):
        return None
    fields = head.count(separator.encode()) + 1 if fields is None else fields
    if not _regular(data, ends, fields, separator):
        return None
    try:
        if not data.isascii():
            data.decode()
        return Lines(source, head.decode(), head.count(b"\n"), data, ends)
    except UnicodeDecodeError:
        return None


def csv_table(
    source: Source,
    needed: Sequence[str],
    optional: Sequence[str],
    numbers: Collection[int],
    texts: Collection[int],
    separator: str = ",",
) -> TextTable | None:
    """The columns ``numbers`` and ``texts`` of what ``source.rows(..., needed, optional, header=True)`` reads; nothing
    where the file is not plain."""
    lines = plain_lines(source, HEADER, None, separator)
    names = [name.strip().lower() for name in lines.head.strip("\n").split(separator)] if lines else []
    wanted = [name.lower() for name in (*needed, *optional)]
    if lines is None or not set(wanted[: len(needed)]) <= set(names):
        return None
    pick = picker(names, wanted)
    return table_of(
        lines,
        [names.index(name) if name in names else None for name in wanted],
        numbers,
        texts,
        lambda text: list(pick(text.split(separator))),
        separator,
    )


def table_of(
    lines: Lines,
    places: Sequence[int | None],
    numbers: Collection[int],
    texts: Collection[int],
    split: Callable[[str], list[str]],
    separator: str = ",",
) -> TextTable | None:
    """The columns ``numbers`` and ``texts``, where the fields at ``places`` are columns 0, 1, ...; nothing where pandas
    finds other rows.
    """
    import pandas as pd

    there = {place: column in texts for column in (*numbers, *texts) if (place := places[column]) is not None}
    for number in ("float64", "object"):  # the second time where something is no number
        dtypes: Any = {place: "object" if text else number for place, text in there.items()}
        try:
            frame: Any = pd.read_csv(
                BytesIO(lines.data),
                sep=r"\s+" if separator == " " else separator,
                header=None,
                usecols=sorted(there),
                dtype=dtypes,
                quoting=csv.QUOTE_NONE,
                na_values=[""],
                keep_default_na=False,
                engine="c",
                low_memory=False,
                **_exact(pd.__version__),
            )
        except (ValueError, OverflowError):
            continue
        if len(frame) == len(lines.ends):
            return TextTable(lines, places, frame, split)
    return None


def _is_odd(data: bytes, separator: str) -> bool:
    if separator == " ":
        return any(each in data for each in (*_ODD, *_OTHER_BLANKS)) or not data.isascii()
    return any(each in data for each in _ODD)


def _regular(data: bytes, ends: np.ndarray, fields: int, separator: str) -> bool:
    """True if each line has so many fields: what marks one lies in its line."""
    letters, begin, each = np.frombuffer(data, np.uint8), 0, fields if separator == " " else fields - 1
    for start in range(0, len(ends), _BLOCK):
        these = ends[start : start + _BLOCK]
        block = letters[begin : these[-1]]
        if separator == " ":
            inside = (block != ord(" ")) & (block != ord("\t")) & (block != ord("\n"))
            marks = np.flatnonzero(inside & ~np.concatenate([[False], inside[:-1]]))
        else:
            marks = np.flatnonzero(block == ord(separator))
        marks += begin
        if len(marks) != each * len(these) or each < 1:
            return False
        if not ((marks[each - 1 :: each] < these).all() and (marks[each::each] > these[:-1]).all()):
            return False
        begin = int(these[-1])
    return True


def _number(text: Any) -> float:
    try:
        return float(text)
    except ValueError:
        return nan


def _exact(version: str) -> dict[str, Any]:
    """The way to have floats rounded as ``float`` does; pandas 3.1 always does."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return {} if (major, minor) >= (3, 1) else {"float_precision": "round_trip"}
