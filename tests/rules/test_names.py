"""Each public class, function and type of the package has a name of its own."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import dagsim

PACKAGE = Path(dagsim.__file__).parent
DECLARED = ("services.py", "envs/__init__.py")
"""Names of modules that declare under the same name what a family defines."""
ALIKE = {"agent_names", "rules_of_site"}
"""Names of functions that answer the same question, for the core and a family or for two families."""


def public_names(source: str) -> set[str]:
    """The public names at the top level of a module: classes, functions, aliases of types and other objects."""
    return {name for node in ast.parse(source).body for name in _bound(node) if not name.startswith("_")}


def _bound(node: ast.stmt) -> Iterator[str]:
    # Constants in capitals do not count: they are numbers, tables and records of their own module, which is part of
    # their meaning (COLUMNS of a reader, FAMILY of a family). Type variables mean nothing outside a signature.
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            yield node.name
        case ast.Assign(value=ast.Call(func=ast.Name("TypeVar" | "ParamSpec"))):
            return
        case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
            if not name.isupper():
                yield name


def test_no_name_has_two_meanings() -> None:
    places = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        place = file.relative_to(PACKAGE).as_posix()
        if not place.endswith(DECLARED):
            for name in public_names(file.read_text(encoding="utf-8")):
                places[name].append(place)
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in ALIKE} == {}


def test_private_names_methods_constants_and_type_variables_do_not_count() -> None:
    source = "class A:\n    def f(self): ...\ndef _g(): ...\ndef h(): ...\nB = 1\nT = TypeVar('T')\n_E = int\n"
    assert public_names(f"{source}Cost: TypeAlias = int\nDict = dict[str, int]\n") == {"A", "h", "Cost", "Dict"}


LAYOUT = {
    "__init__",
    "api",
    "codecs",
    "command",
    "family",
    "kernel",
    "policies",
    "rewards",
    "scenario",
    "services",
    "state",
}
LAYOUT |= {"view", "workload"}
"""Names of files that several families or systems have because each has such a part (see ARCHITECTURE.md)."""


def test_a_file_name_has_one_meaning() -> None:
    places = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        places[file.stem].append(file.relative_to(PACKAGE).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in LAYOUT} == {}
