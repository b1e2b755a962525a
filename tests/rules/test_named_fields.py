"""Long records are built by the names of their fields, because nobody counts to the ninth place of a call."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.sources import PACKAGE, trees

MOST = 8
"""Number of fields that a call, or the row of a log, may give by position."""


def is_record(node: ast.AST) -> bool:
    """True for a dataclass or a named tuple."""
    if not isinstance(node, ast.ClassDef):
        return False
    return any(ast.unparse(part).startswith(("NamedTuple", "dataclass")) for part in node.bases + node.decorator_list)


def long_calls(modules: Mapping[Path, ast.Module]) -> Iterator[str]:
    """Yield the calls that give a record more than ``MOST`` fields by position."""
    nodes = [(path, node) for path, module in modules.items() for node in ast.walk(module)]
    records = {node.name for _, node in nodes if isinstance(node, ast.ClassDef) and is_record(node)}
    for path, node in nodes:
        if isinstance(node, ast.Call) and len(node.args) > MOST:
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in records:
                yield f"{path}:{node.lineno}: {name} has {len(node.args)} fields by position"


def long_rows(modules: Mapping[Path, ast.Module]) -> Iterator[str]:
    """Yield the places where a row of a log is a tuple instead of a ``Record``."""
    for path, module in modules.items():
        for node in ast.walk(module):
            if isinstance(node, ast.Tuple) and len(node.elts) > MOST and ast.unparse(node.elts[0]).startswith("Kind."):
                yield f"{path}:{node.lineno}"


def test_long_records_are_built_by_the_names_of_their_fields() -> None:
    assert [*long_calls({**trees(), **trees(PACKAGE.parent / "scripts")})] == []


@pytest.mark.parametrize(
    ("head", "is_long"),
    [("@dataclass(slots=True)\nclass A:", True), ("class A(NamedTuple):", True), ("class A:", False)],
)
def test_a_call_with_nine_fields_by_position_is_found(head: str, is_long: bool) -> None:
    source = f"{head}\n    x: int\nA(1, 2, 3, 4, 5, 6, 7, 8)\nm.A(1, 2, 3, 4, 5, 6, 7, 8, 9)\n"
    line = source.count("\n")
    found = [*long_calls({Path("m.py"): ast.parse(source)})]
    assert found == ([f"m.py:{line}: A has 9 fields by position"] if is_long else [])


def test_rows_of_logs_are_built_by_the_names_of_their_fields() -> None:
    others = {**trees(PACKAGE.parent / "scripts"), **trees(PACKAGE.parent / "tests")}
    assert [*long_rows({**trees(), **others})] == []


def test_a_row_of_a_log_without_the_names_of_its_fields_is_found() -> None:
    source = "log.append((Kind.UP, 1.0, -1, -1, -1, 0, 0, 0, 0.0))\nlog.append(Record(Kind.UP, 1.0, node=0))\n"
    assert [*long_rows({Path("m.py"): ast.parse(source)})] == ["m.py:1"]
