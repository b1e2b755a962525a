"""The floors of dagsim (ARCHITECTURE.md), read from its imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from support.sources import PACKAGE as ROOT
from support.sources import trees

FLOORS = (
    {"errors", "renamed"},
    {"own_code", "specs", "spelling"},
    {"family"},
    {"services"},
    {"registry"},
    {"files", "freed_memory", "standard_streams", "stops", "text"},
    {"workers"},
    {"sections"},
    {"model"},
    {"seeds"},
    {"metrics", "workload"},
    {"pictures"},
    {"traces"},
    {"systems"},
    {"envs"},
    {"testing"},
    {"config"},
    {"experiment"},
    {"report"},
    {"cli"},
    {"families"},
    {"__main__"},
)
"""Lowest first. Parts of one floor do not import each other; ``__init__`` gathers the public names of all."""

OWNERS = {
    "gymnasium": ("envs", "families/learning", "families/decima/decima_env", "families/pac_ml/partition_env"),
    "numba": "families/compiled",
    "pydantic": ("config", "sections", "systems/cluster/section", "families/learning/training/train_section"),
    "ray": "experiment/on_ray",
    "simpy": ("systems/cluster", "families/fabric/shared_network"),
    "starlette": "families/web",
    "torch": ("families/learning", "families/decima", "families/pac_ml"),
    "typer": "cli",
    "uvicorn": ("families/web", "families/kubernetes/server"),
    "zmq": "families/programs/batsim",
}
"""The one part that imports a foreign library, or the few."""

LATE = {
    "matplotlib": {"report"},
    "numpy": {
        "config",
        "experiment",
        "families",
        "metrics",
        "model",
        "pictures",
        "report",
        "seeds",
        "systems",
        "testing",
        "traces",
        "workload",
    },
    "pandas": set(),
}
"""The parts that may import a foreign library on their own import; all others only inside a function."""

HEAVY = {"gymnasium", "matplotlib", "pandas", "scipy", "torch"}


class Import(NamedTuple):
    """An import of ``module`` in a file of dagsim; ``late`` if it stands in a function or is for type checking only."""

    where: str
    part: str
    module: str
    late: bool


@cache
def imports() -> tuple[Import, ...]:
    return tuple(read_imports())


def read_imports() -> Iterator[Import]:
    for path, tree in trees().items():
        inside = path.relative_to(ROOT)
        pending: list[tuple[ast.AST, bool]] = [(tree, False)]
        while pending:
            node, late = pending.pop()
            late = late or is_late(node)
            for module in modules(node, path):
                yield Import(f"dagsim/{inside}:{node.lineno}", inside.parts[0].removesuffix(".py"), module, late)
            if not isinstance(node, ast.expr):  # holds no statement
                pending += [(child, late) for child in ast.iter_child_nodes(node)]


def is_late(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def modules(node: ast.AST, path: Path) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom(level=0, module=str(module)):
            return [f"dagsim.{alias.name}" for alias in node.names] if module == "dagsim" else [module]
        case ast.ImportFrom():
            raise AssertionError(f"{path}:{node.lineno}: imports are absolute")
    return []


def floor(part: str) -> int:
    return next(height for height, parts in enumerate(FLOORS) if part in parts)


def test_every_part_stands_on_a_floor() -> None:
    parts = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts - {"__init__"} <= set().union(*FLOORS)


def test_the_table_of_floors_is_that_of_this_file() -> None:
    table = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## Layers")[2].partition("## Words")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    heights = [floor(part) for cell in cells for part in re.findall(r"`(\w+)(?:/|\.py)`", cell)]
    assert heights == sorted(heights)
    assert sorted(heights) == sorted(height for height, parts in enumerate(FLOORS[:-1]) for _ in parts)


def test_parts_import_downward_only() -> None:
    upward = []
    for entry in imports():
        root, _, rest = entry.module.partition(".")
        part = rest.split(".")[0]
        if root != "dagsim" or part in ("", "__version__", entry.part) or entry.part == "__init__":
            continue
        if part == "families":  # see tests/families/test_walls.py
            continue
        if entry.part == "services" and entry.late:  # its signatures name types of all floors, for the type checker
            continue
        if floor(part) >= floor(entry.part):
            upward.append(f"{entry.where} imports {entry.module}")
    assert not upward, "\n".join(upward)


@pytest.mark.parametrize(("library", "owner"), OWNERS.items())
def test_a_foreign_library_lives_on_one_floor(library: str, owner: str | tuple[str, ...]) -> None:
    strays = [f"{entry.where} imports {entry.module}" for entry in imports() if foreign(entry) == library]
    owners = owner if isinstance(owner, tuple) else (owner,)
    homes = tuple([f"dagsim/{name}{ending}" for name in owners for ending in ("/", ".py")])
    commands = library == "typer"  # a family brings its commands in one file
    assert not [stray for stray in strays if not stray.startswith(homes) and not (commands and "/command.py:" in stray)]


@pytest.mark.parametrize(("library", "parts"), LATE.items())
def test_a_slow_library_is_imported_when_needed(library: str, parts: set[str]) -> None:
    early = [entry for entry in imports() if foreign(entry) == library and not entry.late and entry.part not in parts]
    assert not early, "\n".join(f"{entry.where} imports {library} at once" for entry in early)


def foreign(entry: Import) -> str:
    return entry.module.split(".")[0]


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import dagsim", HEAVY),
        ("import dagsim.cli", HEAVY | {"numpy", "simpy"}),
        ("from dagsim.cli import app; app(['--help'], standalone_mode=False)", HEAVY | {"numpy", "simpy"}),
    ],
    ids=["import dagsim", "import dagsim.cli", "dagsim --help"],
)
def test_start_up_loads_nothing_heavy(statement: str, heavy: set[str]) -> None:
    script = f"{statement}\nimport sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not heavy & set(done.stderr.split())


@pytest.mark.family("learning", "ramp", "spark")
@pytest.mark.parametrize(
    ("arguments", "others"),
    [
        (
            "['eval', '--algo', 'sjf', '--seeds', '1', '--no-plots']",
            ("families.learning", "envs", "families.spark", "families.ramp"),
        ),
        (
            "['eval', '--system', 'ramp', '--algo', 'max', '--seeds', '1', '--no-plots']",
            ("families.learning", "families.spark"),
        ),
    ],
    ids=["cluster", "ramp"],
)
def test_a_run_loads_no_other_system_and_no_agents(arguments: str, others: tuple[str, ...], tmp_path: Path) -> None:
    script = (
        f"from dagsim.cli import app; app({arguments}, standalone_mode=False)\n"
        "import sys; print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    loaded = done.stderr.split()
    assert "dagsim.systems.seam" in loaded
    assert all(find_spec(f"dagsim.{other}") for other in others)
    stated = {f"dagsim.{other}{part}" for other in others for part in ("", ".family", ".command")}
    own = [name for name in loaded for other in others if f"{name}.".startswith(f"dagsim.{other}.")]
    assert not {*own} - stated
    assert not {"torch", "gymnasium", "pandas", "matplotlib"} & set(loaded)
