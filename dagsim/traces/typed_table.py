"""The rows of a table as typed columns, with the place that each row comes from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from math import nan
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dagsim.model.arithmetic import numbered
from dagsim.traces.source import LINE_BITS, NumberedRow, Source
from dagsim.traces.text_forms import FileLayout, Form
from dagsim.workload.array_tools import objects
from dagsim.workload.arrays import Labels

CHUNK_ROWS = 1 << 16
"""Number of rows in a chunk that is split row by row, and in each step of other row-wise
processing."""


class TextBlock(NamedTuple):
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


_Raw: TypeAlias = str | list[str] | None
"""The line of a row, or its fields."""


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
    blocks: tuple[TextBlock, ...] = ()

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

    def _raw(self, row: int) -> _Raw:
        """Return a row's line or fields, or ``None`` for rows that were not read as text."""
        if self.raw[row] is not None or not self.blocks:
            kept: _Raw = self.raw[row]
            return kept
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
    if len(texts) < CHUNK_ROWS:
        place, words = numbered(texts.tolist())
        return place, objects(words)
    import pandas as pd

    code, values = pd.factorize(texts)
    return code.astype(np.int32), np.asarray(values, object)


def tables_of(
    source: Source, width: int, rows: Iterable[NumberedRow], numbers: Collection[int] = ()
) -> Iterator[Table]:
    """Yield records from a source as rows with ``width`` columns, in chunks. The columns
    ``numbers`` are also read as numbers, and all other columns may contain any object.
    """
    layout, rows = FileLayout(range(width), width, False), iter(rows)
    form = Form(numbers, range(width), lambda first, where: layout)
    while batch := list(islice(rows, CHUNK_ROWS)):
        line, fields = zip(*batch, strict=True)
        columns = dict(enumerate(zip(*fields, strict=True)))
        layouts = dict.fromkeys(range(len(source.files)), layout)
        yield typed_table(source, form, layouts, np.array(line, np.int64), columns, layout.places, objects(fields))


def typed_table(
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
