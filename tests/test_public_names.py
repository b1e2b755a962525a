"""One meaning per public name: functions and classes of modules that begin with no underscore."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

from sources import PACKAGE as ROOT
from sources import trees


@cache
def public_names(root: Path) -> dict[str, list[str]]:
    homes: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees(root).items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                homes[node.name].append(str(path.relative_to(root)))
    return homes


def test_no_public_name_means_two_things() -> None:
    twice = {name: homes for name, homes in public_names(ROOT).items() if len(homes) > 1}
    assert not twice


def test_a_name_with_two_homes_is_found(tmp_path: Path) -> None:
    for file, name in (("one.py", "draw"), ("two.py", "draw"), ("three.py", "_draw")):
        (tmp_path / file).write_text(f"def {name}(): ...\n", encoding="utf-8")
    assert public_names(tmp_path) == {"draw": ["one.py", "two.py"]}
