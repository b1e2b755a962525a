"""Syntax trees of the package, read once in a process."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import dagsim

PACKAGE = Path(dagsim.__file__).parent


@cache
def trees(root: Path = PACKAGE) -> Mapping[Path, ast.Module]:
    """The tree of every Python file below ``root``, by path in alphabetical order."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.py"))}
