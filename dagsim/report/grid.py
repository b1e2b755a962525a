"""Format tables of text cells for the terminal, Markdown and LaTeX, and numbers in tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import TYPE_CHECKING, Literal

from dagsim.text import in_latex, in_markdown, on_one_line, printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_WORD = 9
"""Minimum width of a column of words in a narrow terminal."""
_LABEL = 60
"""Maximum length of a label in LaTeX."""


class TableFormat(StrEnum):
    """Output format of a table."""

    TEXT = "text"
    MARKDOWN = "markdown"
    LATEX = "latex"


class Lines(str):
    """A cell with several lines. In all other cells, line breaks are replaced, because they can
    only come from names in files.
    """


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of text cells under column heads, with a title above and notes below.

    ``texts`` lists the columns that contain words, which are aligned left. All other columns
    contain numbers and are aligned right.
    """

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: tuple[str, ...] = ()
    texts: tuple[int, ...] = (0,)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        heads = [printable(head) for head in self.heads]  # some headings have two lines
        rows = [[cell if isinstance(cell, Lines) else on_one_line(cell) for cell in row] for row in self.rows]
        widths = self._column_widths([heads, *rows], options.max_width)
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False, show_edge=False)
        if self.title:
            yield Text(on_one_line(self.title))
        for place, (head, width) in enumerate(zip(heads, widths, strict=True)):
            side: Literal["left", "right"] = "left" if place in self.texts else "right"
            table.add_column(Text(_broken(head, width)), justify=side, overflow="fold", width=width)
        for row in rows:
            table.add_row(*(Text(_broken(cell, width)) for cell, width in zip(row, widths, strict=True)))
        yield table
        for note in self.notes:
            yield Text(on_one_line(note))

    def _column_widths(self, rows: Sequence[Sequence[str]], available: int) -> list[int]:
        """Return column widths that fit into ``available`` characters, if possible without breaking
        a word. Numbers are never broken.
        """
        # imported here, because it imports numpy, which help does not need
        from dagsim.model.arithmetic import whole_sum

        columns = list(zip(*rows, strict=True))
        widths = [max(len(line) for cell in column for line in cell.split("\n")) for column in columns]
        least = [max(len(piece) for cell in column for piece in _pieces(cell)) for column in columns]
        numbers = [max((len(piece) for cell in column[1:] for piece in _pieces(cell)), default=1) for column in columns]
        words = [min(width, _WORD) if place in self.texts else numbers[place] for place, width in enumerate(least)]
        # each divider with its padding takes two characters
        excess = whole_sum(widths) + 2 * (len(widths) - 1) - available
        every = range(len(widths))
        # shrink the columns of text first, then all columns; break words only as a last resort
        for shrinkable, floors in ((self.texts, least), (every, least), (every, words)):
            while excess > 0 and (wide := [place for place in shrinkable if widths[place] > floors[place]]):
                widths[max(wide, key=lambda place: widths[place])] -= 1
                excess -= 1
        return widths

    def markdown(self) -> str:
        """Format the table as GitHub Markdown, with the title above and the notes below."""
        marks = ["---" if place in self.texts else "---:" for place in range(len(self.heads))]
        lines = [_markdown_row(self.heads), f"| {' | '.join(marks)} |", *map(_markdown_row, self.rows)]
        return "\n".join(
            [f"**{in_markdown(self.title)}**", "", *lines, *(f"\n{in_markdown(note)}" for note in self.notes)]
        )

    def latex(self) -> str:
        """Format as a LaTeX ``table`` with booktabs rules. The caption is the title, the label is
        made of its first words, and the notes are paragraphs below the table.
        """
        columns = "".join("l" if place in self.texts else "r" for place in range(len(self.heads)))
        label = re.sub(r"[^a-z0-9]+", "-", self.title.partition(";")[0].lower()).strip("-")[:_LABEL]
        lines = [_latex_row(self.heads), r"\midrule", *map(_latex_row, self.rows)]
        return "\n".join(
            [
                r"\begin{table}",
                rf"\caption{{{in_latex(self.title)}.}}",
                rf"\label{{tab:{label}}}",
                rf"\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                *lines,
                r"\bottomrule",
                r"\end{tabular}",
                *(rf"\par\footnotesize {in_latex(note)}" for note in self.notes),
                r"\end{table}",
            ]
        )

    def shown(self, look: TableFormat) -> str:
        """Format the table as Markdown or LaTeX."""
        return self.latex() if look is TableFormat.LATEX else self.markdown()


_PIECE = re.compile(r"\n| +|[^\s]+?(?:[\[,/-](?=[A-Za-z])|(?=\s)|$)")
"""Matches text that stays on one line. Names may also be broken after ``[``, ``,``, ``/`` and,
before a letter, ``-``.
"""


def _pieces(text: str) -> list[str]:
    """Split ``text`` into pieces between which a line may be broken."""
    return _PIECE.findall(text) or [""]


def _broken(text: str, width: int) -> str:
    """Break ``text`` into lines with at most ``width`` characters. A longer piece of text gets a line
    of its own.
    """
    lines = [""]
    for piece in _pieces(text):
        if piece == "\n":
            lines.append("")
        elif lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append(piece.lstrip(" "))
        else:
            lines[-1] += piece
    return "\n".join(line.rstrip(" ") for line in lines)


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(in_markdown, cells))} |"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(in_latex, cells)) + r" \\"


def number(value: float) -> str:
    """Format a number with four significant digits, or more if the integer part is longer. NaN and
    infinity are shown as ``-``.
    """
    if not isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def plain_text(value: object) -> str:
    """Format any value. None is shown as ``-``."""
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def short(value: float) -> str:
    """Format a number in at most nine characters, like ``number`` but with an exponent from a
    million onwards.
    """
    return f"{value:.3e}".replace("e+0", "e") if isfinite(value) and abs(value) >= 1e6 else number(value)


def factor(value: float) -> str:
    """Format a ratio with three decimals or, from 10 onwards, with four significant digits. It is
    shown as ``-`` if it is not finite.
    """
    return f"{value:.3f}" if isfinite(value) and 0.001 <= value < 10 else number(value)


def interval(low: float, high: float, shown: Callable[[float], str] = short) -> str:
    """Format both bounds of an interval, or return ``-`` if there is no interval."""
    return f"{shown(low)} .. {shown(high)}" if isfinite(low) and isfinite(high) else "-"
