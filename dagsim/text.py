"""Functions that escape text from files, so that it is shown as plain text. There is one function
for each output format in which some characters have a special meaning. Call it in the code that
writes the output. For HTML, use ``html.escape``, and for JSON, ``json``.
"""

from __future__ import annotations

import re


def count_of(number: int, one: str, many: str | None = None) -> str:
    """Return the number followed by ``one`` or ``many``, the singular and plural of a noun.
    ``many`` defaults to ``one`` plus an s.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def is_text(text: str) -> bool:
    """Return True if UTF-8 can represent ``text``. Not every text can be represented, because JSON
    and YAML can contain unpaired surrogates, and file names can contain any bytes.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """Replace all unprintable characters except line ends. Otherwise, a name in a log could send
    commands to the terminal or reverse the text around it.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign == "\n" else "\N{REPLACEMENT CHARACTER}" for sign in text)


def on_one_line(text: str) -> str:
    """Replace unprintable characters as ``printable`` does, and replace line ends with spaces."""
    return printable(text).replace("\n", " ")


_MARKDOWN = re.compile(r"[\\`*|$]|~(?=~)|(?<=~)~|(?<!\w)_|_(?!\w)|(?<=\])\(|^[#>\[]")
"""Matches characters that Markdown would not read as plain text. An underscore within a word is
plain text."""
_HTML = re.compile(r"<(?=[A-Za-z/!?])|&(?=[#A-Za-z])")


def in_markdown(text: str) -> str:
    """Escape ``text`` for a paragraph or a table cell in Markdown, which also allows HTML."""
    escaped = _MARKDOWN.sub(lambda sign: f"\\{sign[0]}", on_one_line(text))
    return _HTML.sub(lambda sign: "&lt;" if sign[0] == "<" else "&amp;", escaped)


_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "µ": r"$\mu$"},
}


def in_latex(text: str) -> str:
    """Escape ``text`` for a paragraph or a table cell in LaTeX."""
    escaped = "".join(_LATEX.get(sign, sign) for sign in on_one_line(text))
    # At the beginning of a row, LaTeX would treat "[" or "*" as an argument of the line break or
    # rule before it.
    return f"{{{escaped[0]}}}{escaped[1:]}" if escaped.startswith(("[", "*")) else escaped


_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")


def in_spreadsheet(text: str) -> str:
    """Put an apostrophe in front of a text that a spreadsheet would interpret as a formula. Such a
    text begins with ``=``, ``+``, ``-`` or ``@`` and is not a number.
    """
    if _FORMULA.match(text) is None:
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
