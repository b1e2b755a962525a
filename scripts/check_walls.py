"""Remove each family from a copy of the tree, and check that the rest imports, type-checks and passes its tests.

    python scripts/check_walls.py [FAMILY ...] [--tests PATH ...] [--seed N --sample 2] [--json FILE]

A family is removed with those that need it, and with its folder of tests. Without names, all are removed in turn.
``--sample N`` takes N of them, by a seed that is printed.
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
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dagsim.family import families

ROOT = Path(__file__).parents[1]
IMPORTS = """
import importlib, pkgutil, dagsim
for module in pkgutil.walk_packages(dagsim.__path__, "dagsim."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


class Removed(NamedTuple):
    """The outcome of removing a family."""

    family: str
    removed: tuple[str, ...]
    """It and the families that need it."""
    lines: int
    imports: bool
    types: bool
    tests: str
    """The last line of pytest."""
    seconds: float

    @property
    def passed(self) -> bool:
        """True if nothing in the rest needed it."""
        return self.imports and self.types and "failed" not in self.tests and "error" not in self.tests


def needing(name: str) -> tuple[str, ...]:
    """Return a family and all families that need it, directly or not."""
    gone = {name}
    while more := {other for other, family in families().items() if gone & set(family.needs)} - gone:
        gone |= more
    return tuple(sorted(gone))


def copied(tree: Path) -> None:
    """Copy all files that git knows, and new ones that it does not ignore, with their times.

    Compiled code and the type checker's cache depend on paths and times, so each family is removed in the same place.
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


def without(name: str, tree: Path, tests: Sequence[str]) -> Removed:
    """Remove a family from the copy in ``tree``, check the rest, and bring it back."""
    began, gone = time.monotonic(), needing(name)
    folders = [tree / part / "families" / one for one in gone for part in ("dagsim", "tests")]
    lines = sum(path.read_text("utf-8").count("\n") for folder in folders[::2] for path in folder.rglob("*.py"))
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    environment = {**os.environ, "PYTHONPATH": str(tree)}

    def done(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True, check=False
        )

    imported = done("-c", IMPORTS)
    typed = done("-m", "mypy", "--strict", "dagsim")
    tested = done("-m", "pytest", "-q", "--no-header", *tests)
    lost = [line for line in tested.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    for text in (
        imported.stderr[-2000:] if imported.returncode else "",
        typed.stdout[-2000:] if typed.returncode else "",
    ):
        print(text, end="")
    print(*lost[:40], sep="\n")
    last = next((line for line in reversed(tested.stdout.splitlines()) if " in " in line), "no test ran, error")
    copied(tree)
    outcome = last.strip("= ").partition(" in ")[0]
    return Removed(
        name, gone, lines, imported.returncode == 0, typed.returncode == 0, outcome, round(time.monotonic() - began)
    )


def chosen(names: Sequence[str], sample: int | None, seed: int) -> Iterator[str]:
    """Yield the families to remove."""
    names = list(names) or sorted(families())
    yield from sorted(random.Random(seed).sample(names, min(sample, len(names)))) if sample else names


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("family", nargs="*", help="families to remove (default: all in turn)")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="tests to run (default: all that are left)")
    parser.add_argument("--sample", type=int, help="number of families to draw")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="seed of the draw")
    parser.add_argument("--json", type=Path, help="file for the outcomes")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    outcomes = []
    tree = Path(tempfile.gettempdir()) / "dagsim-walls"
    shutil.rmtree(tree, ignore_errors=True)
    copied(tree)
    if (ROOT / ".mypy_cache").is_dir():  # what the type checker knows already need not be found out again
        shutil.copytree(ROOT / ".mypy_cache", tree / ".mypy_cache")
    for name in chosen(options.family, options.sample, options.seed):
        outcome = without(name, tree, options.tests)
        print(
            f"{name}: {'passed' if outcome.passed else 'FAILED'} without {', '.join(outcome.removed)} "
            f"({outcome.lines:,} lines; imports {outcome.imports}, types {outcome.types}, {outcome.tests}; "
            f"{outcome.seconds} s)",
            flush=True,
        )
        outcomes.append(outcome)
        if options.json is not None:
            options.json.write_text(json.dumps([one._asdict() for one in outcomes], indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(tree)
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
