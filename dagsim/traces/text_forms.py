"""The syntax of text tables, and the positions of their columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dagsim.errors import TraceError
from dagsim.workload.records import clipped


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
