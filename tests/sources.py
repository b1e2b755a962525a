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


PENDING = frozenset(
    {
        ("forecast/backtest.py", "formats"),
        ("forecast/futures.py", "slurm"),
        ("forecast/log.py", "slurm"),
        ("forecast/rows.py", "kubernetes"),
        ("forecast/rows.py", "pbs"),
        ("forecast/rows.py", "slurm"),
        ("model/queues.py", "kubernetes"),
        ("site", "kubernetes"),
        ("site", "pbs"),
        ("site", "slurm"),
    }
)
"""Imports of families that are still to be cut, by the file of the core or the family that imports."""
