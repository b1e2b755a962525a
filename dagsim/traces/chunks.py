"""Read text tables in chunks of typed columns. This module reads all text tables.

If all lines in a block of bytes have the same number of fields and no quotes, pandas parses the
block. All other blocks are split row by row. So are small files, because this takes less time than
importing pandas. Both methods give the same ``Table``.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import chain, islice
from math import nan
from typing import Any, NamedTuple

import numpy as np

from dagsim.errors import TraceError
from dagsim.files import LineLimit
from dagsim.model.arithmetic import numbered
from dagsim.traces.arrow import ArrowFile
from dagsim.traces.report import ReadReport
from dagsim.traces.source import LINE_BITS, NumberedRow, Source
from dagsim.workload.arrays import Labels, objects
from dagsim.workload.records import clipped

_BLOCK_BYTES = 1 << 22
_SMALL_BYTES = 1 << 18
_ROWS = 1 << 16
"""Number of rows in a chunk that is split row by row, and in each step of other row-wise
processing."""
_ODD = (b"\0", b"\x1f")
_OTHER_BLANKS = (b"\v", b"\f", b"\x1c", b"\x1d", b"\x1e")
"""Characters that ``str.split`` treats as blanks but pandas does not."""


class FileLayout(NamedTuple):
    """The positions in a file's rows at which the columns of a form are found."""

    places: Sequence[int | None]
    """The field index of each column, or ``None`` if the file lacks the column."""
    width: int
    """Number of fields per row."""
    is_header: bool
    """True if the first row is a header."""


@dataclass(frozen=True, slots=True)
class Form:
    """The syntax of a table, and the columns to read as numbers and as text."""

    numbers: Collection[int]
    texts: Collection[int]
    layout: Callable[[list[str], str], FileLayout]
    """A function that finds the columns, given the fields of the first row and its
    ``file:line``.
    """
    separator: str = ","
    """The separator between fields. A blank represents any sequence of blanks and tabs."""
    quoted: bool = True
    """True for CSV with quoting. Otherwise, fields are split at every separator."""
    comment: str = ""
    """Lines that start with this text (after any blanks) are comments."""
    heading: str = ""
    """Rows whose first field equals this text are skipped."""
    strips: bool = False
    """True if blanks around each text are removed."""
    continues: Callable[[list[str], list[str]], bool] | None = None
    """A function for tables without quotes. It gets the fields of a row and of the next line, and
    returns True if the line continues the row, because a text contains a line break.
    """
    misfit: Callable[[list[str], int, str], list[str] | None] = lambda fields, width, where: None
    """A function that repairs a row with a wrong number of fields. It returns None if the row is to
    be dropped, and raises an error if the row must not be dropped silently."""

    def split(self, line: str) -> list[str]:
        """Split a line without quotes into fields."""
        return line.split() if self.separator == " " else line.split(self.separator)

    def passes_over(self, line: str) -> bool:
        """Return True if a line is blank or a comment."""
        if not self.quoted:
            text = line.strip()
            return not text or bool(self.comment and text.startswith(self.comment))
        return not line


def csv_form(
    columns: Sequence[str],
    optional: Sequence[str] = (),
    *,
    numbers: Collection[int],
    texts: Collection[int],
    names: Sequence[str] = (),
    separator: str = ",",
    header: bool = False,
) -> Form:
    """Return the form of a CSV file with ``columns`` and ``optional`` columns. An optional column
    is empty if a file lacks it.

    The first row of a file is its header if it contains every name in ``columns`` (in any case and
    order). Otherwise, the file has no header, and its fields are ``names`` or, by default,
    ``columns + optional``, in this order. ``header=True`` requires a header.
    """
    wanted = [name.lower() for name in (*columns, *optional)]

    def layout(first: list[str], where: str) -> FileLayout:
        there = [name.strip().lower() for name in first]
        missing = [name for name in columns if name.lower() not in there]
        if header and missing:
            raise TraceError(
                f"{where}: the header lacks {', '.join(map(repr, missing))}; it has {clipped(', '.join(first))}"
            )
        if missing:
            headless = names or (*columns, *optional)[: max(len(first), len(columns))]
            there = [name.lower() for name in headless]
        if twice := [name for name in wanted if not missing and there.count(name) > 1]:
            raise TraceError(f"{where}: there are two columns {twice[0]!r}; rename or remove one")
        places = [there.index(name) if name in there else None for name in wanted]
        return FileLayout(places, len(there), not missing)

    return Form(numbers, texts, layout, separator)


class _Lines(NamedTuple):
    """A block of whole lines. It is split into lines only when a line is needed."""

    first: int
    """The number of the first line, in the form that ``Source.where`` takes."""
    data: bytes
    ends: np.ndarray  # shape (n,), int64: end of each line

    def line(self, number: int) -> str:
        """Return the line with this number."""
        place = number - self.first
        begin = int(self.ends[place - 1]) + 1 if place else 0
        return self.data[begin : int(self.ends[place])].decode()


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The rows of a source, as numeric columns and text columns, with the file and line of each
    row.
    """

    source: Source
    form: Form
    line: np.ndarray  # shape (n,), int64: index of the file << LINE_BITS | line, as in ``Source.where``
    values: dict[int, np.ndarray]  # shape (n,), float64 by column; NaN for texts that are not numbers
    # shape (n,), object by column; numeric columns keep only the entries that are not numbers
    words_of: dict[int, np.ndarray]
    # shape (n,), object: the line or its fields; ``None`` for rows from ``blocks`` and from Parquet or
    # Arrow files
    raw: np.ndarray
    layouts: dict[int, FileLayout]  # layouts by the index of the file in the source
    blocks: tuple[_Lines, ...] = ()

    def __len__(self) -> int:
        return len(self.line)

    def has(self, column: int) -> bool:
        """Return True if any file has the column."""
        return any(layout.places[column] is not None for layout in self.layouts.values())

    def numbers(self, column: int, blank: float = nan) -> np.ndarray:
        """Return a column as numbers, (n,) float64: ``blank`` where the text is empty, and NaN
        where it is not a number.
        """
        values = self.values[column]
        return values if blank != blank else np.where(self.blank(column), blank, values)

    def blank(self, column: int) -> np.ndarray:
        """Return a mask of the rows, (n,) bool, in which the text is empty or the file lacks the
        column.
        """
        if column in self.words_of:
            empty: np.ndarray = self.words_of[column] == ""
            return empty
        missing: np.ndarray = np.isnan(self.values[column])
        return missing

    def unreadable(self, column: int) -> np.ndarray:
        """Return a mask of the rows, (n,) bool, in which the text is not a number. ``nan`` counts
        as a number.
        """
        wrong: np.ndarray = np.isnan(self.values[column])
        if column in self.words_of:
            texts = self.words_of[column]
            for row in np.flatnonzero(wrong).tolist():
                wrong[row] = not texts[row] or "nan" not in texts[row].lower()
        return wrong

    def texts(self, column: int) -> np.ndarray:
        """Return a column that was read as text, (n,) object."""
        return self.words_of[column]

    def words(self, column: int) -> Labels:
        """Return the distinct texts in a column, and the text of each row as an index among them."""
        place, words = distinct_texts(self.words_of[column])
        return Labels(place, tuple(words.tolist()))

    def fields(self, row: int) -> list[str]:
        """Return all columns of one row as texts."""
        raw = self._raw(row)
        if raw is None:
            return [self._text(column, row) for column in range(len(self._places(row)))]
        fields = self.form.split(raw) if isinstance(raw, str) else raw
        return _picked(fields, self._places(row), self.form.strips)

    def where(self, row: int) -> str:
        """Return the ``file:line`` of a row."""
        return self.source.where(int(self.line[row]))

    def chosen(self, rows: np.ndarray) -> Table:
        """Return the rows at these indices."""
        line = self.line[rows]

        def part(values: np.ndarray) -> np.ndarray:
            return np.broadcast_to(values[:1], len(line)) if _is_constant(values) else values[rows]

        return Table(
            self.source,
            self.form,
            line,
            {column: part(values) for column, values in self.values.items()},
            {column: part(texts) for column, texts in self.words_of.items()},
            self.raw[rows],
            self.layouts,
            self.blocks,
        )

    def unblocked(self) -> Table:
        """Return the same rows, each of which stores its own line instead of a reference to a block of lines."""
        return replace(self, raw=objects(map(self._raw, range(len(self)))), blocks=())

    @classmethod
    def joined(cls, tables: Sequence[Table]) -> Table:
        """Concatenate tables from the same source."""
        first = tables[0]
        if len(tables) == 1:
            return first
        texts = {}
        for column in dict.fromkeys(chain.from_iterable([table.words_of for table in tables])):
            texts[column] = _concatenated([table._all_texts(column) for table in tables])
        return cls(
            first.source,
            first.form,
            np.concatenate([table.line for table in tables]),
            {column: _concatenated([table.values[column] for table in tables]) for column in first.values},
            texts,
            np.concatenate([table.raw for table in tables]),
            {place: layout for table in tables for place, layout in table.layouts.items()},
            tuple([block for table in tables for block in table.blocks]),
        )

    def _raw(self, row: int) -> Any:
        """Return a row's line or fields, or ``None`` for rows that were not read as text."""
        if self.raw[row] is not None or not self.blocks:
            return self.raw[row]
        number = int(self.line[row])
        place = bisect_right(self.blocks, number, key=lambda block: block.first) - 1
        return self.blocks[place].line(number) if place >= 0 else None

    def _places(self, row: int) -> Sequence[int | None]:
        """Return the field index of each column in the file that a row comes from."""
        return self.layouts[int(self.line[row]) >> LINE_BITS].places

    def _text(self, column: int, row: int) -> str:
        """Return a field of a row whose original text was not kept. A number is formatted as Python
        does.
        """
        if column in self.words_of:
            return str(self.words_of[column][row])
        number = float(self.values[column][row]) if column in self.values else nan
        return "" if number != number else repr(number)

    def _all_texts(self, column: int) -> np.ndarray:
        """Return the texts in a column. For a numeric column, only the empty texts are the original
        ones.
        """
        if column in self.words_of:
            return self.words_of[column]
        values = self.values.get(column)
        if values is None or _is_constant(values):
            return _constant("", len(self))
        return np.where(np.isnan(values), "", "0").astype(object)


def _constant(value: float | str, rows: int) -> np.ndarray:
    """Return a column that repeats one value, for a field that the file lacks. The column takes
    almost no memory, which matters because a log with millions of rows lacks most of the optional
    fields.
    """
    return np.broadcast_to(np.array(value, object if isinstance(value, str) else np.float64), rows)


def _is_constant(column: np.ndarray) -> bool:
    """Return True for a column from ``_constant``: NaN or an empty text in every row."""
    return column.strides == (0,) and len(column) > 0


def _concatenated(columns: Sequence[np.ndarray]) -> np.ndarray:
    if all(map(_is_constant, columns)):
        return np.broadcast_to(columns[0][:1], sum(map(len, columns)))
    return np.concatenate(columns)


def distinct_texts(texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays: for each text, its index among the distinct texts, (n,) int, and the
    distinct texts in order of first appearance, as objects.
    """
    if _is_constant(texts):
        return np.zeros(len(texts), np.int32), objects(texts[:1])
    if len(texts) < _ROWS:
        place, words = numbered(texts.tolist())
        return place, objects(words)
    import pandas as pd

    code, values = pd.factorize(texts)
    return code.astype(np.int32), np.asarray(values, object)


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


def tables_of(
    source: Source, width: int, rows: Iterable[NumberedRow], numbers: Collection[int] = ()
) -> Iterator[Table]:
    """Yield records from a source as rows with ``width`` columns, in chunks. The columns
    ``numbers`` are also read as numbers, and all other columns may contain any object.
    """
    layout, rows = FileLayout(range(width), width, False), iter(rows)
    form = Form(numbers, range(width), lambda first, where: layout)
    while batch := list(islice(rows, _ROWS)):
        line, fields = zip(*batch, strict=True)
        columns = dict(enumerate(zip(*fields, strict=True)))
        layouts = dict.fromkeys(range(len(source.files)), layout)
        yield _typed(source, form, layouts, np.array(line, np.int64), columns, layout.places, objects(fields))


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
        return replace(table, blocks=(_Lines(int(table.line[0]), data, ends),))

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
        while batch := list(islice(records, _ROWS)):
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
        return _typed(self._source, self._form, {self._place: layout}, number, columns, layout.places, raw, unread)

    def _where(self, line: int) -> str:
        return f"{self._file}:{line}"


def _typed(
    source: Source,
    form: Form,
    layouts: dict[int, FileLayout],
    line: np.ndarray,
    fields: Mapping[int, Any],
    places: Sequence[int | None],
    raw: np.ndarray,
    unread: Sequence[int] = (),
) -> Table:
    """Build a table from ``fields``, which maps each field index to a sequence of strings or
    float64. ``unread`` lists further columns to keep. The original text of these rows is not kept,
    so no other column can be read later.
    """
    values: dict[int, np.ndarray] = {}
    words: dict[int, np.ndarray] = {}
    for column in dict.fromkeys((*form.numbers, *form.texts, *unread)):
        place = places[column]
        listed: Any = None if place is None else fields[place]
        if getattr(listed, "dtype", None) == np.float64:
            values[column] = listed
        elif listed is None and column in form.numbers:
            values[column] = _constant(nan, len(line))
        elif listed is None:
            words[column] = _constant("", len(line))
        else:
            texts = list(map(str.strip, listed)) if form.strips else listed
            words[column] = texts if isinstance(texts, np.ndarray) else objects(texts)
            if column in form.numbers:
                values[column] = _floats(list(texts))
    return Table(source, form, line, values, words, raw, layouts)


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
    for start in range(0, len(ends), _ROWS):
        these = ends[start : start + _ROWS]
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


def _picked(fields: Sequence[str], places: Sequence[int | None], strips: bool) -> list[str]:
    picked = ["" if place is None else fields[place] for place in places]
    return [text.strip() for text in picked] if strips else picked


def _floats(texts: list[str]) -> np.ndarray:
    """Convert each text with ``float``, and return NaN where this fails."""
    try:
        return np.array(list(map(float, texts)), np.float64)
    except ValueError:
        return np.array(list(map(_float, texts)), np.float64)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan


def _exact(version: str) -> dict[str, Any]:
    """Return the option that makes pandas round floats as ``float`` does. pandas 3.1 and later need
    no option for this."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return {} if (major, minor) >= (3, 1) else {"float_precision": "round_trip"}
