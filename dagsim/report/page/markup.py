"""Text and tables as HTML. Everything from a log or a configuration is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from dagsim.report.grid import Grid

__all__ = ["details", "element", "notes", "table"]


def element(tag: str, text: str, **attributes: str) -> str:
    """Return an element with escaped text. ``class_`` sets ``class``, and ``aria_live`` sets
    ``aria-live``.
    """
    pairs = "".join(f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"' for name, value in attributes.items())
    return f"<{tag}{pairs}>{escape(text)}</{tag}>"


def table(grid: Grid) -> str:
    """Return a table with its title as caption and its notes below. Its box scrolls sideways and
    takes the focus.
    """
    heads = "".join(_cell("th", head, place in grid.texts, scope="col") for place, head in enumerate(grid.heads))
    rows = "".join(f"<tr>{_row(row, grid.texts)}</tr>" for row in grid.rows)
    label = escape(grid.title or "table")
    whole = f"<table>{element('caption', grid.title)}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    box = f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">{whole}</div>'
    return box + notes(grid.notes)


def notes(lines: Iterable[str]) -> str:
    """Return short paragraphs in small print."""
    return "".join(element("p", line, class_="note") for line in lines)


def details(summary: str, text: str) -> str:
    """Return a long text, collapsed."""
    return f'<details><summary>{escape(summary)}</summary><pre tabindex="0">{escape(text)}</pre></details>'


def _row(cells: Sequence[str], texts: Sequence[int]) -> str:
    first, *rest = cells
    head = _cell("th", first, 0 in texts, scope="row")
    return head + "".join(_cell("td", cell, place in texts) for place, cell in enumerate(rest, 1))


def _cell(tag: str, text: str, is_text: bool, **attributes: str) -> str:
    lines = "<br>".join(escape(line) for line in text.split("\n"))
    if not is_text:
        attributes["class"] = "number"
    pairs = "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())
    return f"<{tag}{pairs}>{lines}</{tag}>"
