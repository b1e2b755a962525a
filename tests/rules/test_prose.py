"""Rules for the first lines of docstrings (STYLE)."""

from __future__ import annotations

import ast
import re

from support.sources import PACKAGE, trees

CLAUSES = "What|Where|Who|Whose|How|Whether|Which|When|Why"


def first_lines() -> list[tuple[str, str]]:
    lines = []
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                line = getattr(node, "lineno", 1)
                lines.append((f"{path.relative_to(PACKAGE)}:{line}", text.splitlines()[0]))
    return lines


def test_docstrings_open_with_a_noun_phrase_or_an_imperative() -> None:
    """Fewer than 1 % may open with a relative clause."""
    lines = first_lines()
    odd = [(place, text) for place, text in lines if re.match(rf"({CLAUSES})\b", text)]
    assert len(odd) < len(lines) / 100, "\n".join(f"{place}: {text}" for place, text in odd)


def test_tables_in_docstrings_keep_their_columns() -> None:
    """A table that was wrapped as prose has a ruler of a single column."""
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                assert not re.search(r"^\s*={4,}\s*$", text, re.MULTILINE), path
