"""A table as text cells, shown in a terminal, in Markdown or in LaTeX, and numbers as tables print them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Grid", "TableFormat", "factor", "interval", "number", "printable", "short"]


class TableFormat(StrEnum):
    """The form that a table is printed in."""

    TEXT = "text"
    MARKDOWN = "markdown"
    LATEX = "latex"


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of text under heads, with a title and notes below; ``texts`` are the columns flush left."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: tuple[str, ...] = ()
    texts: tuple[int, ...] = (0,)

    def __rich__(self) -> RenderableType:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False, show_edge=False)
        table.title, table.title_justify = Text(printable(self.title)), "left"
        for place, head in enumerate(self.heads):
            side: Literal["left", "right"] = "left" if self._is_text(place) else "right"
            table.add_column(Text(head), justify=side, overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        return Group(table, *(Text(printable(note)) for note in self.notes))

    def markdown(self) -> str:
        """As a GitHub table with its title above and its notes below."""
        marks = ["---" if self._is_text(place) else "---:" for place in range(len(self.heads))]
        lines = [_markdown_row(self.heads), f"| {' | '.join(marks)} |", *map(_markdown_row, self.rows)]
        return "\n".join([f"**{self.title}**", "", *lines, *(f"\n{note}" for note in self.notes)])

    def latex(self) -> str:
        """As a ``table`` with rules of booktabs; the title and the notes are its caption."""
        columns = "".join("l" if self._is_text(place) else "r" for place in range(len(self.heads)))
        caption = _latex(". ".join([self.title, *(note.rstrip(".") for note in self.notes)]) + ".")
        lines = [_latex_row(self.heads), r"\midrule", *map(_latex_row, self.rows)]
        return "\n".join(
            [
                r"\begin{table}",
                rf"\caption{{{caption}}}",
                rf"\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                *lines,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
            ]
        )

    def shown(self, look: TableFormat) -> str:
        """As Markdown or LaTeX."""
        return self.latex() if look is TableFormat.LATEX else self.markdown()

    def _is_text(self, place: int) -> bool:
        return place in self.texts


def printable(text: str) -> str:
    """The text for a terminal: what a log calls a job cannot steer it."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "\N{REPLACEMENT CHARACTER}" for sign in text)


def _markdown_row(cells: Sequence[str]) -> str:
    plain = (_one_line(printable(cell)).replace("|", chr(92) + "|").replace("<", "&lt;") for cell in cells)
    return f"| {' | '.join(plain)} |"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(_latex(_one_line(cell)) for cell in cells) + r" \\"


def _one_line(cell: str) -> str:
    """A cell that was broken for a narrow screen, in one line again."""
    return re.sub(r"(?<=[\[,])\n", "", cell).replace("\n", " ")


_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "µ": r"$\mu$"}


def _latex(text: str) -> str:
    return "".join(_SPECIAL.get(sign) or (f"\\{sign}" if sign in "&%$#_{}" else sign) for sign in text)


def number(value: float) -> str:
    """Four digits, more only before the point; ``-`` where there is no number."""
    if not isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def short(value: float) -> str:
    """As ``number``, from a million on with an exponent: at most nine signs."""
    return f"{value:.3e}".replace("e+0", "e") if isfinite(value) and abs(value) >= 1e6 else number(value)


def factor(value: float) -> str:
    """A ratio: three digits after the point, four digits in all from 10 on; ``-`` where there is none."""
    return f"{value:.3f}" if isfinite(value) and 0.001 <= value < 10 else number(value)


def interval(low: float, high: float, shown: Callable[[float], str] = short) -> str:
    """Both bounds, or ``-`` where there is no interval."""
    return f"{shown(low)} .. {shown(high)}" if isfinite(low) and isfinite(high) else "-"
