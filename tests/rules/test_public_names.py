"""One meaning per public name within the core and within each family: functions and classes without an underscore."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

from support.sources import PACKAGE as ROOT
from support.sources import trees


def room(path: str) -> str:
    """The family that a module belongs to; empty for the core."""
    return path.split("/")[1] if path.startswith("families/") else ""


@cache
def public_names(root: Path) -> dict[str, list[str]]:
    homes: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees(root).items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                homes[node.name].append(str(path.relative_to(root)))
    return homes


def test_no_public_name_means_two_things() -> None:
    rooms = {name: [(room(home), home) for home in homes] for name, homes in public_names(ROOT).items()}
    twice = {name: homes for name, homes in rooms.items() if len({part for part, _ in homes}) < len(homes)}
    assert not twice


def test_a_name_with_two_homes_is_found(tmp_path: Path) -> None:
    for file, name in (("one.py", "draw"), ("two.py", "draw"), ("three.py", "_draw")):
        (tmp_path / file).write_text(f"def {name}(): ...\n", encoding="utf-8")
    assert public_names(tmp_path) == {"draw": ["one.py", "two.py"]}
