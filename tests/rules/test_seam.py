"""Nothing above the seam knows a system: it neither imports one nor asks for its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from support.sources import PACKAGE, trees

from dagsim.systems import LISTS, SYSTEMS, all_systems
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.section import ClusterKeys

SYSTEM_FOLDERS = ("cluster",)
EXCEPTIONS: dict[str, tuple[str, ...]] = {}
"""Modules above the seam that know a system although they serve all. This list can only shrink."""

FAMILIES = {
    "public names and tools for tests of the GPU cluster": (
        "__init__.py",
        "experiment/api.py",
        "testing/__init__.py",
        "testing/cases.py",
        "testing/engine_cases.py",
        "testing/knowledge_checks.py",
    ),
    "links of a network and causes of waits": (
        "experiment/explained.py",
        "report/panels.py",
        "report/tables.py",
    ),
    "traces, their audit, and sizes of clusters": (
        "cli/inputs.py",
        "cli/configuring.py",
        "cli/inspect.py",
        "experiment/as_log.py",
        "experiment/sizing.py",
        "experiment/trace_info.py",
    ),
}
"""Modules that serve one system, or do what only the GPU cluster can: they become families, which may know it."""


def above() -> Iterator[tuple[str, ast.Module]]:
    """The modules that see systems only through the seam, by path in the package."""
    for path, tree in trees().items():
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(("systems/", "families/")):
            yield name, tree


def inside(module: str) -> bool:
    """True for a module of a concrete system."""
    parts = module.split(".")
    return parts[:2] == ["dagsim", "systems"] and len(parts) > 2 and parts[2] in SYSTEM_FOLDERS


def imports_a_system(node: ast.AST) -> bool:
    match node:
        case ast.ImportFrom(module=str(module)):
            return inside(module)
        case ast.Import():
            return any(inside(alias.name) for alias in node.names)
        case ast.Constant(value=str(text)) if text.isascii() and " " not in text:
            return inside(text.partition(":")[0])
    return False


def names_a_system(node: ast.AST) -> bool:
    """True for a constant that can only be the name of a system, and a comparison with any of them."""
    match node:
        case ast.Constant(value=str(text)):
            return text in ("ramp", "spark")
        case ast.Compare():
            sides = [node.left, *node.comparators]
            asked = any(word in ast.unparse(side) for side in sides for word in ("system", "kind"))
            return asked and any(isinstance(side, ast.Constant) and side.value in SYSTEMS for side in sides)
    return False


@cache
def knowing() -> frozenset[str]:
    return frozenset(
        name for name, tree in above() if any(imports_a_system(node) or names_a_system(node) for node in ast.walk(tree))
    )


def allowed() -> set[str]:
    return {name for names in (*EXCEPTIONS.values(), *FAMILIES.values()) for name in names}


def test_no_module_above_the_seam_imports_or_names_a_system() -> None:
    assert not sorted(knowing() - allowed())


def test_every_exception_is_still_needed() -> None:
    assert not sorted(allowed() - knowing())


def test_every_system_has_a_folder_that_the_rule_knows() -> None:
    folders = {path.parent.name for path in (PACKAGE / "systems").glob("*/scenario.py")}
    assert folders == set(SYSTEM_FOLDERS)


@pytest.mark.parametrize(
    ("source", "known"),
    [
        ("from dagsim.systems.cluster.scenario import ClusterScenario", True),
        ("import dagsim.systems.cluster", True),
        ("target = 'dagsim.systems.cluster.policies:POLICIES'", True),
        ("if scenario.system == 'cluster': pass", True),
        pytest.param(
            "if config.kind in ('cluster',) or config.kind != 'mixture': pass",
            True,
            marks=pytest.mark.family("learning"),
        ),
        ("match scenario.system:\n    case 'spark': pass", True),
        ("scores = {'spark': 1}", True),
        ("from dagsim.systems.seam import Scenario", False),
        ("if 'cluster' in config.model_fields_set: pass", False),
        ("'like dagsim.systems.cluster, but in words'", False),
    ],
)
def test_the_rule_sees_imports_and_names(source: str, known: bool) -> None:
    assert any(imports_a_system(node) or names_a_system(node) for node in ast.walk(ast.parse(source))) is known


def test_every_model_of_the_cluster_is_a_key() -> None:
    assert {part.name for part in fields(Models)} <= ClusterKeys.model_fields.keys()


def test_the_registries_of_every_system_are_listed() -> None:

    listed = [LISTS.get(name) for name in LISTS.names()]
    for name, system in all_systems().items():
        for registry in (system.policies, system.codecs, system.terms):
            assert any(registry is one for one in listed), f"{name}: {registry.kind}"


def test_modules_that_are_listed_exist() -> None:
    assert [name for name in allowed() if not Path(PACKAGE, name).is_file()] == []
