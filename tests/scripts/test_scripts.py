"""``scripts/``: an index that is complete, and a command line that is a process."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
SCRIPTS = TESTS.parent / "scripts"


def test_the_index_names_every_script_and_no_other() -> None:
    index = (SCRIPTS / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(\w+\.py)\b", index)) == {path.name for path in SCRIPTS.glob("*.py")}


def test_a_script_is_a_program_whose_errors_have_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "validate_span.py"), "--trace", str(tmp_path / "none.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "none.csv" in done.stderr
    assert "Traceback" not in done.stderr


OF_ANOTHER_NAME = {
    "test_check_kube": "check_kubernetes",
    "test_docs": "make_pages",
    "test_guides": "make_guides",
    "test_hostile_text": "check_page",
    "test_site": "make_site",
    "test_shipped": "make_workloads",
    "test_shipped_numbers": "make_pages",
}
"""Tests of what a script has made."""


def test_only_tests_of_scripts_import_scripts() -> None:
    names = {path.stem for path in SCRIPTS.iterdir()} - {"README"}
    for path in TESTS.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        modules += [one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names]
        imported = {module.partition(".")[0] for module in modules} & names
        own = OF_ANOTHER_NAME.get(path.stem, path.stem.removeprefix("test_"))
        assert not imported or own in imported, f"{path.relative_to(TESTS)} imports {sorted(imported)}"
