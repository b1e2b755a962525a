"""Read text tables in chunks of typed columns. This module reads all text tables.

If all lines in a block of bytes have the same number of fields and no quotes, pandas parses the
block. All other blocks are split row by row. So are small files, because this takes less time than
importing pandas. Both methods give the same ``Table``.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from itertools import chain, islice
from typing import Any

import numpy as np

from dagsim.errors import TraceError
from dagsim.files import LineLimit
from dagsim.traces.arrow import ArrowFile
from dagsim.traces.report import ReadReport
from dagsim.traces.source import LINE_BITS, Source
from dagsim.traces.text_forms import FileLayout, Form, csv_form
from dagsim.traces.typed_table import CHUNK_ROWS, Table, TextBlock, typed_table
from dagsim.workload.array_tools import objects
from dagsim.workload.records import clipped

_BLOCK_BYTES = 1 << 22
_SMALL_BYTES = 1 << 18
_ODD = (b"\0", b"\x1f")
_OTHER_BLANKS = (b"\v", b"\f", b"\x1c", b"\x1d", b"\x1e")
"""Characters that ``str.split`` treats as blanks but pandas does not."""


def read_tables(source: Source, form: Form, report: ReadReport) -> Iterator[Table]:
    """Yield the rows of all files of a source in chunks. Rows are counted in ``report``, and those
    with a wrong number of fields are dropped.

    Raises:
        TraceError: A file cannot be read, or its columns cannot be found.
    """
    for place, file in enumerate(source.files):
        yield from _File(source, file, place, form, report).tables()


def read_rows(
    source: Source, report: ReadReport, columns: Sequence[str], optional: Sequence[str] = (), *, header: bool = False
) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the rows of a CSV source as text. ``columns`` and ``optional`` have the same meaning as
    in ``csv_form``.

    Raises:
        TraceError: As in ``read_tables``.
    """
    every = range(len(columns) + len(optional))
    for table in read_tables(source, csv_form(columns, optional, numbers=(), texts=every, header=header), report):
        fields = zip(*[table.texts(column).tolist() for column in every], strict=True)
        yield from zip(table.line.tolist(), fields, strict=True)


class _File:
    """A single pass over one file."""

    def __init__(self, source: Source, file: Source, place: int, form: Form, report: ReadReport) -> None:
        self._source, self._file, self._form, self._report = source, file, form, report
        self._place = place
        self._layout: FileLayout | None = None

    def tables(self) -> Iterator[Table]:
        if self._file.columns is not None:
            yield from self._stored(self._file.columns)
            return
        form, small = self._form, self._file.size_bytes() < _SMALL_BYTES
        blocks = _blocks(self._file)
        for first, data in blocks:
            line, data = self._begun(first, data)
            if not data:
                continue
            if not small and self._layout is not None and (table := self._parsed(line, data)) is not None:
                yield table
            elif form.quoted and b'"' in data:  # a field may continue in the next block
                yield from self._split(self._records(chain([(line, data)], blocks)))
            else:
                yield from self._split(self._records([(line, data)]))

    def _stored(self, columns: ArrowFile) -> Iterator[Table]:
        """Yield the rows of a Parquet or Arrow file, whose columns are typed."""
        form, names = self._form, list(columns.names)
        self._layout = layout = form.layout(names, self._where(1))
        if layout.width != len(names):
            there = clipped(", ".join(names))
            raise TraceError(f"{self._where(1)}: expected {layout.width} columns, got {len(names)}: {there}")
        wanted = sorted({place for place in layout.places if place is not None})
        numbers = {place for column in form.numbers if (place := layout.places[column]) is not None}
        for line, arrays in columns.batches(wanted):
            fields: dict[int, np.ndarray] = {}
            for place, array in zip(wanted, arrays, strict=True):
                values = columns.numbers(array) if place in numbers else None
                fields[place] = columns.texts(array, place) if values is None else values
            rows = len(arrays[0])
            self._report.rows += rows
            unread = [column for column, place in enumerate(layout.places) if place is not None]
            yield self._table(line + np.arange(rows), fields, np.empty(rows, object), unread)

    def _begun(self, line: int, data: bytes) -> tuple[int, bytes]:
        """Remove the lines before the first row from the block. Find the layout, unless this
        requires a CSV parser.
        """
        form = self._form
        while data:
            text, _, rest = data.partition(b"\n")
            if not form.passes_over(text.decode()):
                if self._layout is not None or (form.quoted and (b'"' in text or b"\0" in text)):
                    break
                self._layout = form.layout(form.split(text.decode()), self._where(line))
                if not self._layout.is_header:
                    break
            line, data = line + 1, rest
        return line, data

    def _parsed(self, line: int, data: bytes) -> Table | None:
        """Parse a block with pandas. Return ``None`` if the block is not regular enough."""
        layout, form = self._layout, self._form
        assert layout is not None
        data = data.rstrip(b"\n")
        if any(odd in data for odd in _ODD) or (form.quoted and b'"' in data):
            return None
        if (form.comment and form.comment.encode() in data) or (form.heading and form.heading.encode() in data):
            return None
        if form.separator == " " and (any(blank in data for blank in _OTHER_BLANKS) or not data.isascii()):
            return None
        ends = np.append(np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")), len(data))
        sizes = np.diff(ends, prepend=-1)
        if sizes.min() < 2 or sizes.max() > csv.field_size_limit():
            return None
        if not _is_regular(data, ends, layout.width, form.separator):
            return None
        numbers = {place for column in form.numbers if (place := layout.places[column]) is not None}
        texts = {place for column in form.texts if (place := layout.places[column]) is not None}
        columns = _parsed(data, numbers, texts, form.separator)
        if columns is None or any(len(column) != len(ends) for column in columns.values()):
            return None
        self._report.rows += len(ends)
        table = self._table(line + np.arange(len(ends)), columns, np.empty(len(ends), object))
        return replace(table, blocks=(TextBlock(int(table.line[0]), data, ends),))

    def _records(self, blocks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, list[str]]]:
        """Yield each row with the number of its first line."""
        form = self._form
        if not form.quoted:
            split = (
                (line, form.split(text))
                for first, data in blocks
                for line, text in enumerate(data.decode().removesuffix("\n").split("\n"), first)
                if not form.passes_over(text)
            )
            yield from split if form.continues is None else self._joined(split, form.continues)
            return
        first = 0

        def lines() -> Iterator[str]:
            nonlocal first
            for start, data in blocks:
                first = first or start
                yield from (f"{text}\n" for text in data.decode().removesuffix("\n").split("\n"))

        table = csv.reader(lines(), delimiter=form.separator)
        read = 0
        try:
            for row in table:
                if row:
                    yield first + read, row
                read = table.line_num
        except csv.Error as error:
            raise TraceError(f"{self._where(first + read)}: invalid CSV ({error})") from None

    def _joined(
        self, lines: Iterable[tuple[int, list[str]]], continues: Callable[[list[str], list[str]], bool]
    ) -> Iterator[tuple[int, list[str]]]:
        """Join lines into rows, and yield the rows. A line may continue the row that the previous line began."""
        row: list[str] = []
        begun, cut = 0, False
        for line, fields in lines:
            if row and continues(row, fields):
                row = [*row[:-1], f"{row[-1]}\n{fields[0]}", *fields[1:]]
                cut = True
                continue
            if row:
                yield begun, row
                if cut:
                    self._report.note("with a line break inside a text (joined)", self._where(begun))
            row, begun, cut = fields, line, False
        if row:
            yield begun, row
            if cut:
                self._report.note("with a line break inside a text (joined)", self._where(begun))

    def _split(self, records: Iterator[tuple[int, list[str]]]) -> Iterator[Table]:
        """Build tables from records, each with its line number and its fields."""
        report, form = self._report, self._form
        while batch := list(islice(records, CHUNK_ROWS)):
            lines, rows = [], []
            for line, row in batch:
                if self._layout is None:
                    self._layout = form.layout(row, self._where(line))
                    if self._layout.is_header:
                        continue
                if form.heading and row[0] == form.heading:
                    continue
                report.rows += 1
                if len(row) != self._layout.width:
                    repaired = form.misfit(row, self._layout.width, self._where(line))
                    if repaired is not None:
                        report.note("with columns shifted by a separator inside a text (repaired)", self._where(line))
                        row = repaired
                if len(row) == self._layout.width:
                    lines.append(line)
                    rows.append(row)
                else:
                    # a quote that is not closed joins all lines up to the next quote, or to the end
                    open_quote = len(row) < self._layout.width and any("\n" in field for field in row)
                    reason = "with a quote that is not closed" if open_quote else "with a wrong number of fields"
                    report.drop(reason, self._where(line), detail=f"{len(row)} fields" if open_quote else f"{len(row)}")
            if not rows:
                continue
            columns = dict(enumerate(zip(*rows, strict=True)))
            yield self._table(np.array(lines), columns, objects(rows))

    def _table(self, line: np.ndarray, columns: dict[int, Any], raw: np.ndarray, unread: Sequence[int] = ()) -> Table:
        layout, number = self._layout, line + (self._place << LINE_BITS)
        assert layout is not None
        return typed_table(self._source, self._form, {self._place: layout}, number, columns, layout.places, raw, unread)

    def _where(self, line: int) -> str:
        return f"{self._file}:{line}"


def _blocks(file: Source) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines, each with the number of its first line. Line ends are converted to
    LF.

    Raises:
        TraceError: The data is damaged or not UTF-8. The message names the line.
    """
    rest, line, start = b"", 1, True
    try:
        with file.open_binary() as binary:
            stream = LineLimit(binary, str(file), TraceError)
            while read := stream.read(_BLOCK_BYTES):
                cut = read.rfind(b"\n") + 1
                data, rest = rest + read[:cut], read[cut:] if cut else rest + read
                if not cut:
                    continue
                data = _clean(data, start)
                yield line, data
                line, start = line + data.count(b"\n"), False
        if rest:
            yield line, _clean(rest, start)
    except (TraceError, UnicodeDecodeError):
        for _ in file.lines():  # reading line by line raises an error that names the line
            pass
        raise


def _clean(data: bytes, start: bool) -> bytes:
    data = data.removeprefix(b"\xef\xbb\xbf") if start else data
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not data.isascii():
        data.decode()
    return data


def _parsed(data: bytes, numbers: set[int], texts: set[int], separator: str) -> dict[int, np.ndarray] | None:
    """Return the columns in a block of lines by the index of the field. A column in which every
    field is a number or empty is float64, and any other column is object. Return ``None`` if pandas
    fails.
    """
    import pandas as pd

    for number in ("float64", "object"):  # the second attempt accepts values that are not numbers
        empty: Any = {place: [""] for place in numbers}
        dtypes: Any = {**dict.fromkeys(numbers, number), **dict.fromkeys(texts, "object")}
        try:
            frame: Any = pd.read_csv(
                BytesIO(data),
                sep=r"\s+" if separator == " " else separator,
                header=None,
                usecols=sorted(dtypes),
                dtype=dtypes,
                quoting=csv.QUOTE_NONE,
                na_values=empty,
                keep_default_na=False,
                engine="c",
                low_memory=False,
                **_exact(pd.__version__),
            )
        except (ValueError, OverflowError):
            continue
        columns = {}
        for place in dtypes:
            column = frame[place]
            if column.dtype == np.float64 and place in numbers:
                columns[place] = column.to_numpy()
            else:
                column = np.array(column, object)
                if place in numbers:
                    column[pd.isna(column)] = ""
                columns[place] = column
        return columns
    return None


def _is_regular(data: bytes, ends: np.ndarray, fields: int, separator: str) -> bool:
    """Return True if each line has exactly this number of fields."""
    letters, begin, per_line = np.frombuffer(data, np.uint8), 0, fields if separator == " " else fields - 1
    for start in range(0, len(ends), CHUNK_ROWS):
        these = ends[start : start + CHUNK_ROWS]
        block = letters[begin : these[-1]]
        if separator == " ":
            inside = (block != ord(" ")) & (block != ord("\t")) & (block != ord("\n"))
            marks = np.flatnonzero(inside & ~np.concatenate([[False], inside[:-1]]))
        else:
            marks = np.flatnonzero(block == ord(separator))
        marks += begin
        if len(marks) != per_line * len(these) or per_line < 1:
            return False
        if not ((marks[per_line - 1 :: per_line] < these).all() and (marks[per_line::per_line] > these[:-1]).all()):
            return False
        begin = int(these[-1])
    return True


def _exact(version: str) -> dict[str, Any]:
    """Return the option that makes pandas round floats as ``float`` does. pandas 3.1 and later need
    no option for this."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return {} if (major, minor) >= (3, 1) else {"float_precision": "round_trip"}
