"""Remove each family from a copy of the tree, and check that the rest imports, type-checks and passes its tests.

    python scripts/check_walls.py [FAMILY ...] [--reach FOLDER] [--tests PATH ...] [--json FILE]
    python scripts/check_walls.py --sample 2 --together --tests tests/families/test_core_alone.py

A family is removed with those that need it, and with its folder of tests. Without names, all are removed in turn.
``--sample N`` draws N of them, by a seed that is printed, and ``--together`` removes them at once. With all tests that
are left, a family takes 15 minutes. ``--reach FOLDER`` runs, beside ``--tests``, only the tests that run code of a
removed family according to the map of ``scripts/which_tests.py``, so that it takes one or two. The map is taken as it
is, and has no tests of more than 2 s. numba is then off, as it was when the map was made.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mutate import Reach, blocks_of, test_files

from dagsim.family import families

ROOT = Path(__file__).parents[1]
CHOSEN = """
import json, sys, pytest
class Chosen:
    def pytest_collection_modifyitems(self, config, items):
        kept = [item.nodeid in chosen or item.nodeid.startswith(whole) for item in items]
        config.hook.pytest_deselected(items=[item for item, keep in zip(items, kept) if not keep])
        items[:] = [item for item, keep in zip(items, kept) if keep]
whole, chosen = map(tuple, json.load(open(sys.argv[1])))
files = dict.fromkeys((*whole, *(test.partition("::")[0] for test in chosen)))
chosen = set(chosen)
raise SystemExit(pytest.main([*sys.argv[2:], *files], plugins=[Chosen()]))
"""
"""Runs whole folders or files of tests, and single tests."""
IMPORTS = """
import importlib, pkgutil, dagsim
for module in pkgutil.walk_packages(dagsim.__path__, "dagsim."):
    if not module.name.endswith(("__main__", ".torchrl_env")):  # needs an extra that the tests do not install
        importlib.import_module(module.name)
"""


class Removed(NamedTuple):
    """The outcome of removing a family, or several at once."""

    family: str
    removed: tuple[str, ...]
    """It and the families that need it."""
    lines: int
    imports: bool
    types: bool
    tests: str
    """The last line of pytest."""
    cpu_s: int
    """Processor time, with that of all processes."""

    @property
    def passed(self) -> bool:
        """True if nothing in the rest needed it."""
        return self.imports and self.types and "failed" not in self.tests and "error" not in self.tests


def cpu_s() -> float:
    """Return the processor time of the processes that this one started and that ended."""
    times = os.times()
    return times.children_user + times.children_system


def needing(names: Sequence[str]) -> tuple[str, ...]:
    """Return families and all families that need one of them, directly or not."""
    gone = set(names)
    while more := {other for other, family in families().items() if gone & set(family.needs)} - gone:
        gone |= more
    return tuple(sorted(gone))


def copied(tree: Path) -> None:
    """Copy all files that git knows, and new ones that it does not ignore, with their times.

    Compiled code and the type checker's cache depend on paths and times, so each family is removed in the same place.
    The tree that is copied may change meanwhile.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)


def latest(folder: Path) -> Reach:
    """Return the latest map in a folder, in which records of changed test files may be missing or older."""
    os.chdir(ROOT)
    reach = Reach({}, {})
    for file in test_files():
        stem = file.removesuffix(".py").replace("/", "-")
        records = sorted(folder.glob(f"{stem}-{'[0-9a-f]' * 16}.json"), key=lambda path: path.stat().st_mtime)
        if records:
            reach.add(json.loads(records[-1].read_text("utf-8")), folder)
    return reach


def noticing(reach: Reach, gone: Sequence[str]) -> list[str]:
    """Return the tests outside of these families that run code of one."""
    needed: set[str] = set()
    for one in gone:
        for path in (ROOT / "dagsim" / "families" / one).rglob("*.py"):
            if path.name not in ("family.py", "__init__.py"):  # which every test that lists names reads
                file = str(path.relative_to(ROOT))
                needed |= reach.running(file, list(blocks_of(file)))
    folders = tuple(f"tests/families/{one}/" for one in gone)
    return sorted(test for test in needed if not test.startswith(folders))


def without(names: Sequence[str], tree: Path, tests: Sequence[str], reach: Reach | None) -> Removed:
    """Move families out of the copy in ``tree/copy``, check the rest, and bring them back."""
    began_s, gone = cpu_s(), needing(names)
    tree, aside = tree / "copy", tree / "aside"
    folders = [tree / part / "families" / one for one in gone for part in ("dagsim", "tests")]
    lines = sum(path.read_text("utf-8").count("\n") for folder in folders[::2] for path in folder.rglob("*.py"))
    places = {folder: aside / folder.relative_to(tree) for folder in folders if folder.is_dir()}
    for folder, place in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(place)
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    selection, chosen = tree / "build" / "selection.json", list[str]()
    options = ["-q", "--no-header", "-p", "no:cacheprovider", *([] if list(tests) == ["tests"] else ["-n", "0"])]
    if reach is not None:
        environment["NUMBA_DISABLE_JIT"] = "1"
        chosen = noticing(reach, gone)
    selection.parent.mkdir(exist_ok=True)
    selection.write_text(json.dumps([list(tests), chosen]), encoding="utf-8")

    def done(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True, check=False
        )

    imported = done("-c", IMPORTS)
    typed = done("-m", "mypy", "--strict", "dagsim")
    tested = done("-c", CHOSEN, str(selection), *options)
    lost = [line for line in tested.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    for text in (
        imported.stderr[-2000:] if imported.returncode else "",
        typed.stdout[-2000:] if typed.returncode else "",
    ):
        print(text, end="")
    print(*lost[:40], sep="\n")
    last = next((line for line in reversed(tested.stdout.splitlines()) if " in " in line), "no test ran, error")
    for folder, place in places.items():
        place.rename(folder)
    outcome = last.strip("= ").partition(" in ")[0]
    return Removed(
        " ".join(names), gone, lines, imported.returncode == 0, typed.returncode == 0, outcome, round(cpu_s() - began_s)
    )


def drawn(names: Sequence[str], sample: int | None, seed: int) -> list[str]:
    """Return the families to remove."""
    names = list(names) or sorted(families())
    return sorted(random.Random(seed).sample(names, min(sample, len(names)))) if sample else list(names)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("family", nargs="*", help="families to remove (default: all in turn)")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="tests to run (default: all that are left)")
    parser.add_argument(
        "--reach",
        type=lambda text: Path(text).resolve(),
        help="map of tests and lines: also run the tests that it finds",
    )
    parser.add_argument("--sample", type=int, help="number of families to draw")
    parser.add_argument("--together", action="store_true", help="remove them all at once")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="seed of the draw")
    parser.add_argument("--json", type=Path, help="file for the outcomes")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    reach = None
    if options.reach is not None:
        reach = latest(options.reach)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="dagsim-walls-") as scratch:
        tree = Path(scratch)
        copied(tree / "copy")
        if (ROOT / ".mypy_cache").is_dir():  # what the type checker knows already need not be found out again
            shutil.copytree(ROOT / ".mypy_cache", tree / "copy" / ".mypy_cache")
        removed = drawn(options.family, options.sample, options.seed)
        for names in [removed] if options.together else [[name] for name in removed]:
            outcome = without(names, tree, options.tests, reach)
            print(
                f"{' '.join(names)}: {'passed' if outcome.passed else 'FAILED'} without {', '.join(outcome.removed)} "
                f"({outcome.lines:,} lines; imports {outcome.imports}, types {outcome.types}, {outcome.tests}; "
                f"{outcome.cpu_s} s of CPU)",
                flush=True,
            )
            outcomes.append(outcome)
            if options.json is not None:
                options.json.write_text(
                    json.dumps([one._asdict() for one in outcomes], indent=1) + "\n", encoding="utf-8"
                )
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
