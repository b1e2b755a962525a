"""``scripts/``: an index that is complete, and a command line that is a process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parent.parent / "scripts"


def test_the_index_names_every_script_and_no_other() -> None:
    index = (SCRIPTS / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(\w+\.py)\b", index)) == {path.name for path in SCRIPTS.glob("*.py")}


def test_a_script_is_a_program_whose_errors_have_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "validate_span.py"), "--trace", str(tmp_path / "none.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "none.csv" in done.stderr
    assert "Traceback" not in done.stderr
