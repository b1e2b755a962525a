"""Syntax trees of the package, read once in a process."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

import dagsim

PACKAGE = Path(dagsim.__file__).parent
WHOLE = pytest.mark.family(*json.loads((PACKAGE / "families" / "names.json").read_text(encoding="utf-8")))
"""Mark of tests of pages and tables that name what all families add."""


@cache
def trees(root: Path = PACKAGE) -> Mapping[Path, ast.Module]:
    """The tree of every Python file below ``root``, by path in alphabetical order."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.py"))}
