"""Each public class and function of the package has a name of its own."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import dagsim

PACKAGE = Path(dagsim.__file__).parent
DECLARED = ("services.py", "envs/__init__.py")
"""Names of modules that declare under the same name what a family defines."""
ALIKE = {"agent_names", "rules_of_site"}
"""Names of functions that answer the same question, for the core and a family or for two families."""


def public_names(source: str) -> set[str]:
    """The public classes and functions at the top level of a module."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(source).body if isinstance(node, kinds) and not node.name.startswith("_")}


def test_no_name_has_two_meanings() -> None:
    places = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        place = file.relative_to(PACKAGE).as_posix()
        if not place.endswith(DECLARED):
            for name in public_names(file.read_text(encoding="utf-8")):
                places[name].append(place)
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in ALIKE} == {}


def test_private_names_and_methods_do_not_count() -> None:
    assert public_names("class A:\n    def f(self): ...\ndef _g(): ...\ndef h(): ...\nB = 1\n") == {"A", "h"}
